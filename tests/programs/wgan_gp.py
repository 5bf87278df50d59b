import numpy as np
import torch
import torch.nn as nn
import torch.autograd as autograd
from torch.autograd import Variable
from torch.nn.utils import spectral_norm

cuda = True if torch.cuda.is_available() else False
torch.manual_seed(0); np.random.seed(0)
img_shape = (1, 6, 6)


class Generator(nn.Module):
    def __init__(self):
        super(Generator, self).__init__()

        def block(in_feat, out_feat, normalize=True):
            layers = [nn.Linear(in_feat, out_feat)]
            if normalize:
                layers.append(nn.BatchNorm1d(out_feat, 0.8))
            layers.append(nn.LeakyReLU(0.2, inplace=True))
            return layers

        self.model = nn.Sequential(*block(8, 16, normalize=False), *block(16, 24), nn.Linear(24, int(np.prod(img_shape))), nn.Tanh())

    def forward(self, z):
        img = self.model(z)
        return img.view(img.shape[0], *img_shape)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(int(np.prod(img_shape)), 24), nn.LeakyReLU(0.2, inplace=True), nn.Linear(24, 1))

    def forward(self, img):
        return self.model(img.view(img.shape[0], -1))


lambda_gp = 10
generator, discriminator = Generator(), Discriminator()
optimizer_G = torch.optim.Adam(generator.parameters(), lr=0.0002, betas=(0.5, 0.999))
optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=0.0002, betas=(0.5, 0.999))
Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor


def compute_gradient_penalty(D, real_samples, fake_samples):
    alpha = Tensor(np.random.random((real_samples.size(0), 1, 1, 1)))
    interpolates = (alpha * real_samples + ((1 - alpha) * fake_samples)).requires_grad_(True)
    d_interpolates = D(interpolates)
    fake = Variable(Tensor(real_samples.shape[0], 1).fill_(1.0), requires_grad=False)
    gradients = autograd.grad(outputs=d_interpolates, inputs=interpolates, grad_outputs=fake, create_graph=True,
                              retain_graph=True, only_inputs=True)[0]
    gradients = gradients.view(gradients.size(0), -1)
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


imgs_all = torch.rand(32, *img_shape) * 2 - 1
for i in range(6):
    imgs = imgs_all[(i * 8) % 32:(i * 8) % 32 + 8]
    real_imgs = Variable(imgs.type(Tensor))
    optimizer_D.zero_grad()
    z = Variable(Tensor(np.random.normal(0, 1, (imgs.shape[0], 8))))
    fake_imgs = generator(z)
    real_validity, fake_validity = discriminator(real_imgs), discriminator(fake_imgs)
    gradient_penalty = compute_gradient_penalty(discriminator, real_imgs.data, fake_imgs.data)
    d_loss = -torch.mean(real_validity) + torch.mean(fake_validity) + lambda_gp * gradient_penalty
    d_loss.backward()
    optimizer_D.step()
    optimizer_G.zero_grad()
    if i % 2 == 0:
        fake_imgs = generator(z)
        g_loss = -torch.mean(discriminator(fake_imgs))
        g_loss.backward()
        optimizer_G.step()
        print("[D loss: %f] [G loss: %f] gp %f" % (d_loss.item(), g_loss.item(), gradient_penalty))
# weight clipping and spectral norm
D = nn.Sequential(spectral_norm(nn.Conv2d(1, 4, 3, padding=1)), nn.LeakyReLU(0.1), nn.Flatten(), spectral_norm(nn.Linear(144, 1)))
opt = torch.optim.RMSprop(D.parameters(), lr=5e-4)
for i in range(3):
    opt.zero_grad()
    loss = torch.relu(1.0 - D(imgs_all[:8])).mean() + torch.relu(1.0 + D(fake_imgs.detach())).mean()
    loss.backward(); opt.step()
    for p in D.parameters():
        p.data.clamp_(-0.1, 0.1)
    print(loss.item())
print(sorted(D.state_dict().keys()))
from torch.nn.utils.parametrizations import spectral_norm as sn, weight_norm, orthogonal
m = nn.Sequential(sn(nn.Linear(5, 4)), weight_norm(nn.Linear(4, 3)))
print(m(torch.ones(2, 5)))
print(list(m.state_dict()))
