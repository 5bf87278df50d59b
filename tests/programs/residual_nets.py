"""Convolutional families: residual, inverted residual with gates, densely joined, and an encoder-decoder for masks."""
from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


def unit(a, b, k=3, stride=1, groups=1, act=nn.ReLU):
    return nn.Sequential(nn.Conv2d(a, b, k, stride, k // 2, groups=groups, bias=False), nn.BatchNorm2d(b), act(inplace=True))


class Residual(nn.Module):
    def __init__(self, a, b, stride=1):
        super().__init__()
        self.one, self.two, self.norm = unit(a, b, stride=stride), nn.Conv2d(b, b, 3, padding=1, bias=False), nn.BatchNorm2d(b)
        self.skip = nn.Sequential() if a == b and stride == 1 else nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b))

    def forward(self, x):
        out = self.norm(self.two(self.one(x)))
        out += self.skip(x)
        return F.relu(out)


class Inverted(nn.Module):
    def __init__(self, a, b, stride):
        super().__init__()
        self.body = nn.Sequential(unit(a, 3 * a, 1, act=nn.ReLU6), unit(3 * a, 3 * a, 3, stride, groups=3 * a, act=nn.Hardswish), nn.Conv2d(3 * a, b, 1))
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(b, b // 2, 1), nn.SiLU(), nn.Conv2d(b // 2, b, 1), nn.Hardsigmoid())

    def forward(self, x):
        y = self.body(x)
        y = y * self.gate(y)
        return x + y if x.shape == y.shape else y


class Joined(nn.Module):
    def __init__(self, a, grow):
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(1, a), nn.Conv2d(a, grow, 3, padding=1, padding_mode="reflect")

    def forward(self, x):
        return torch.cat([x, self.conv(F.leaky_relu(self.norm(x), 0.1))], 1)


class Masker(nn.Module):
    def __init__(self, bilinear):
        super().__init__()
        self.a, self.b, self.c = unit(3, 4), unit(4, 8), unit(12, 4)
        self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True) if bilinear else nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.out = nn.Conv2d(4, 1, 1)

    def forward(self, x):
        wide = self.a(x)
        deep = self.up(self.b(F.max_pool2d(wide, 2)))
        dy, dx = wide.size(2) - deep.size(2), wide.size(3) - deep.size(3)
        return self.out(self.c(torch.cat([wide, F.pad(deep, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])], 1)))


def head(c):
    return [nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Dropout(0.1), nn.Linear(c, 10)]


nets = OrderedDict(residual=nn.Sequential(unit(3, 8), Residual(8, 8), Residual(8, 12, 2), *head(12)),
                   inverted=nn.Sequential(unit(3, 6, stride=2), Inverted(6, 6, 1), Inverted(6, 8, 2), *head(8)),
                   joined=nn.Sequential(Joined(3, 4), Joined(7, 4), nn.Conv2d(11, 6, 1), nn.AvgPool2d(2), nn.PReLU(6), *head(6)))
x, y = torch.randn(8, 3, 8, 8), torch.randint(0, 10, (8,))
for net in nets.values():
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
            nn.init.constant_(m.weight, 1), nn.init.constant_(m.bias, 0)
for name, net in nets.items():
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[2, 4], gamma=0.1)
    for _ in range(5):
        out = net.train()(x)
        loss = F.cross_entropy(out, y)
        optimizer.zero_grad(), loss.backward(), optimizer.step(), schedule.step()
        top = out.topk(3, 1, True, True)[1].t().eq(y.view(1, -1)).reshape(-1).float().sum(0).mul_(100.0 / 8)
        print(f"{name} {loss.item():.5f} top3 {top.item():.1f}% lr {schedule.get_last_lr()[0]:.4f}")
    with torch.inference_mode():
        print(net.eval()(x).softmax(-1).max(dim=1).values.mean())
for bilinear in (True, False):
    net, truth = Masker(bilinear), (torch.rand(2, 13, 14) > 0.5).float()
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3, momentum=0.9, foreach=True)
    for _ in range(3):
        guess = net(torch.ones(2, 3, 13, 14).cumsum(-1).to(memory_format=torch.channels_last) / 14).squeeze(1)
        both = 2 * (guess.sigmoid() * truth).sum(dim=(-1, -2)) / (guess.sigmoid() + truth).sum(dim=(-1, -2))
        loss = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(2.0))(guess, truth) + 1 - both.mean()
        optimizer.zero_grad(set_to_none=True), loss.backward(), optimizer.step()
        print(loss.item())
print(nets["inverted"])
