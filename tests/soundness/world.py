"""What the programs share: something to call with, ways to call again and again, something to train."""

from __future__ import annotations

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn, optim
from flambeau.utils import data

__all__ = ["F", "Thing", "around", "data", "each", "final", "fit", "item", "line", "nn", "optim", "put",
           "task", "torch", "turns", "vec"]


class Thing:
    """An object with the attributes that it was made with."""

    def __init__(self, **attributes):
        vars(self).update(attributes)


def vec(n=3):
    """1, 2, 3: most programs multiply these by something, so that they share their kernels."""
    return torch.arange(1.0, n + 1)


def each(f, *args, calls=6):
    """The results of calls that look alike."""
    return (f(*args) for _ in range(calls))


def around(f, *changes, args=None, every=3):
    """Results of calls that look alike; after every few of them the next change happens."""
    args = (vec(),) if args is None else args
    yield from each(f, *args, calls=every)
    for change in changes:
        change()
        yield from each(f, *args, calls=every)


def turns(f, values):
    """Results of calls with a second argument that takes these values in turn."""
    return (f(vec(), value) for value in values)


def put(owner, **values):
    """A change: these attributes get these values."""
    return lambda: [setattr(owner, name, value) for name, value in values.items()]


def item(owner, key, value):
    """A change: this entry gets this value."""
    return lambda: owner.__setitem__(key, value)


def line(make=None):
    """The least thing that learns: a linear layer, its optimizer, inputs, targets."""
    net = nn.Linear(3, 1)
    x = torch.arange(12.0).reshape(4, 3) / 12
    return net, (make or (lambda ps: optim.SGD(ps, lr=0.1)))(net.parameters()), x, x.sum(1, keepdim=True)


def task(make=None):
    """Something with a hidden layer to learn: net, optimizer, inputs, targets."""
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    x = torch.arange(12.0).reshape(4, 3) / 12
    return net, (make or (lambda ps: optim.SGD(ps, lr=0.1)))(net.parameters()), x, x.sum(1, keepdim=True)


def fit(net, opt, x, y):
    """One training step."""
    opt.zero_grad()
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    opt.step()
    return loss


def final(net, opt=None):
    """All that training leaves behind."""
    grads = {name: p.grad for name, p in net.named_parameters()}
    return net.state_dict(), grads, None if opt is None else opt.state_dict()
