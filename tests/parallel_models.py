"""Models, data and the reference for the checks of parallel training (parallel_checks.py)."""

import flambeau as torch
from flambeau import nn
from flambeau.distributed.tensor import DTensor
from flambeau.nn import functional as F

STEPS, BATCH = 20, 8


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def network(dtype):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), Block(8), Block(8), nn.Linear(8, 4)).to(dtype)


def batches(dtype):
    torch.manual_seed(1)
    return torch.randn(STEPS, BATCH, 6, dtype=dtype), torch.randn(STEPS, BATCH, 4, dtype=dtype)


def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2)


def share(values, rank, world):
    """The part of a batch that a process trains on."""
    size = len(values) // world
    return values[rank * size:(rank + 1) * size]


def train(model, made, dtype, rank=0, world=1, steps=STEPS, loss=F.mse_loss):
    xs, ys = batches(dtype)
    for x, y in zip(xs[:steps], ys[:steps]):
        made.zero_grad()
        loss(model(share(x, rank, world)), share(y, rank, world)).backward()
        made.step()


_references = {}


def reference(dtype, steps=STEPS):
    """Parameters after training in one process on whole batches."""
    if (dtype, steps) not in _references:
        model = network(dtype)
        train(model, optimizer(model.parameters()), dtype, steps=steps)
        _references[dtype, steps] = dict(model.named_parameters())
    return _references[dtype, steps]


def whole(p):
    return p.full_tensor() if isinstance(p, DTensor) else p


def same(named, dtype, steps=STEPS, tolerance=None):
    """Compares parameters with those of the reference: to 1e-12 in double precision, to 1e-6 in single."""
    wanted = reference(dtype, steps)
    tolerance = tolerance or {torch.float64: 1e-12, torch.float32: 1e-6}[dtype]
    named = dict(named)
    assert named
    for name, p in named.items():
        error = (whole(p) - wanted[name]).abs().max().item()
        assert error < tolerance, f"{name} differs by {error}"
