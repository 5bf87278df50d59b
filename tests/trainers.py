"""Small networks, batches and training steps for the tests of compiled steps."""

from __future__ import annotations

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn, optim


def network():
    """No bias before batch norm: its gradient would be zero but for rounding, and that is nothing to compare."""
    return nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


def batch(n=6):
    x = torch.linspace(-1, 1, 4 * n).view(n, 4).sin()
    return x, torch.arange(n) % 3


def trainer(make=lambda p: optim.SGD(p, lr=0.1, momentum=0.9), model=network, clip=None, loss_of=F.cross_entropy):
    """build() of a usual step."""
    def build():
        net = model()
        opt = make(net.parameters())

        def step(x, y):
            opt.zero_grad()
            loss = loss_of(net(x), y)
            loss.backward()
            if clip is not None:
                clip(net.parameters())
            opt.step()
            return loss
        return step, net, opt
    return build


def small():
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "maximize": lambda p: optim.SGD(p, lr=0.01, momentum=0.5, dampening=0.1, maximize=True),
    "adam": lambda p: optim.Adam(p, lr=0.01, weight_decay=0.01),
    "amsgrad": lambda p: optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: optim.AdamW(p, lr=0.01),
    "nadam": lambda p: optim.NAdam(p, lr=0.01),
    "radam": lambda p: optim.RAdam(p, lr=0.01),
    "adamax": lambda p: optim.Adamax(p, lr=0.01),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.05, lr_decay=0.01),
    "adadelta": lambda p: optim.Adadelta(p, lr=0.5),
    "rprop": lambda p: optim.Rprop(p, lr=0.01),
    "asgd": lambda p: optim.ASGD(p, lr=0.01),
    "adafactor": lambda p: optim.Adafactor(p, lr=0.01),
}
