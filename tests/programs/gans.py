"""Adversarial training three ways: transposed convolutions, a gradient penalty, spectral normalisation."""
import torch
import torch.nn as nn
from torch import autograd
from torch.autograd import Variable
from torch.nn.utils import spectral_norm

torch.manual_seed(5)
FloatTensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor


def begin(module):
    name = type(module).__name__
    if "Conv" in name:
        nn.init.normal_(module.weight.data, 0.0, 0.02)
    elif "BatchNorm" in name:
        nn.init.normal_(module.weight.data, 1.0, 0.02)
        module.bias.data.fill_(0)


maker = nn.Sequential(nn.ConvTranspose2d(6, 8, 4, 1, 0, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
                      nn.ConvTranspose2d(8, 3, 4, 2, 1, bias=False), nn.Tanh())
judge = nn.Sequential(nn.Conv2d(3, 4, 4, 2, 1, bias=False), nn.BatchNorm2d(4), nn.LeakyReLU(0.2, inplace=True),
                      nn.Conv2d(4, 1, 4, 1, 0, bias=False), nn.Sigmoid(), nn.Flatten(0))
maker.apply(begin), judge.apply(begin)
print(maker, judge)
loss = nn.BCELoss()
adam_m, adam_j = (torch.optim.Adam(m.parameters(), lr=2e-3, betas=(0.5, 0.999)) for m in (maker, judge))
images = torch.rand(24, 3, 8, 8) * 2 - 1
for step in range(6):
    real = images[step * 8 % 24:][:8]
    label = torch.full((8,), 1.0)
    judge.zero_grad()
    on_real = loss(judge(real), label)
    on_real.backward()
    fake = maker(torch.randn(8, 6, 1, 1))
    label.fill_(0)
    on_fake = loss(judge(fake.detach()), label)
    on_fake.backward()
    adam_j.step()
    maker.zero_grad()
    fooled = loss(judge(fake), label.fill_(1))
    fooled.backward()
    adam_m.step()
    print("[%d] real %.5f fake %.5f maker %.5f" % (step, on_real, on_fake.item(), fooled))
critic = nn.Sequential(nn.Linear(192, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
rms = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
for step in range(4):
    real, fake = Variable(images[:8].type(FloatTensor)).flatten(1), maker(torch.randn(8, 6, 1, 1)).detach().flatten(1)
    mix = torch.rand(8, 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_(True)
    score = critic(between)
    slope = autograd.grad(outputs=score, inputs=between, grad_outputs=torch.ones_like(score), create_graph=True, retain_graph=True, only_inputs=True)[0]
    penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
    total = critic(fake).mean() - critic(real).mean() + 10 * penalty
    rms.zero_grad()
    total.backward()
    rms.step()
    print(total.item(), penalty.item())
bounded = nn.Sequential(spectral_norm(nn.Conv2d(3, 4, 3, padding=1)), nn.LeakyReLU(0.1), nn.Flatten(), spectral_norm(nn.Linear(256, 1)))
sgd = torch.optim.SGD(bounded.parameters(), lr=0.05, momentum=0.9)
for _ in range(3):
    sgd.zero_grad()
    hinge = torch.relu(1 - bounded(images[:8])).mean() + torch.relu(1 + bounded(images[8:16].flip(-1))).mean()
    hinge.backward()
    sgd.step()
    for p in bounded.parameters():
        p.data.clamp_(-0.2, 0.2)
    print(hinge.item())
print(list(bounded.state_dict()))
