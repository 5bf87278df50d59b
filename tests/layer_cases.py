"""Calls of nn.functional and of layers under both libraries, on the same numbers and with derivatives."""

from __future__ import annotations

import warnings

import numpy as np
from compare import MODULES, both_raise, same

import flambeau


def arrays(*shapes, seed=0, dtype=np.float64):
    """One array of standard normal numbers per shape."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


def numbers(*shape, seed=0, dtype=np.float64, low=None):
    rng = np.random.default_rng(seed + sum(shape) * 7)
    values = rng.normal(size=shape)
    if low is not None:
        values = np.abs(values) * 0.3 + low
    return values.astype(dtype)


def integers(high, *shape, seed=0):
    return np.random.default_rng(seed + high).integers(0, high, shape)


def build(value, torch, grads=False):
    """Arrays as tensors (floating ones as leaves that want a gradient); everything else as it is."""
    if isinstance(value, np.ndarray):
        t = torch.from_numpy(value.copy())
        return t.requires_grad_() if grads and value.dtype.kind in "fc" else t
    if isinstance(value, str) and value.startswith("dtype:"):
        return getattr(torch, value[6:])
    return value


def sequence(made):
    return list(made) if isinstance(made, (tuple, list)) else [made]


def derivatives(call, torch, args, kwargs, second):
    """(results, gradients, gradients of the gradients' squares) of one call."""
    torch.manual_seed(3)
    made = [build(a, torch, True) for a in args]
    named = {k: build(v, torch, k not in ("weight", "pos_weight")) for k, v in kwargs.items()}
    leaves = [t for t in [*made, *named.values()] if isinstance(t, torch.Tensor) and t.requires_grad]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = sequence(call(torch, *made, **named))
    rng = np.random.default_rng(1)
    weighted = [(o * torch.from_numpy(np.asarray(rng.standard_normal(tuple(o.shape)).astype(str(o.dtype)[6:])))).sum()
                for o in out if o.requires_grad]
    first = again = [None] * len(leaves)
    if leaves and weighted:
        first = torch.autograd.grad(sum(weighted), leaves, create_graph=second, allow_unused=True)
        wanted = [(g * g).sum() for g in first if g is not None and g.requires_grad]
        if second and wanted:
            again = torch.autograd.grad(sum(wanted), leaves, allow_unused=True)
    return out, *[[torch.zeros_like(t) if g is None else g.detach() for g, t in zip(grads, leaves)] for grads in (first, again)]


def derivatives_agree(call, *args, second=False, node=True, tolerance=None, **kwargs):
    """call(torch, *args): results, the names of their nodes (node) and gradients (second: second ones too) agree."""
    theirs, ours = [derivatives(call, m, args, kwargs, second) for m in MODULES.values()]
    same(theirs[0], ours[0], tolerance, "output", graph=node)
    same(theirs[1], ours[1], tolerance, "gradient")
    same(theirs[2], ours[2], tolerance, "second derivative")


def check_derivatives(call, *inputs):
    """First and second derivatives in flambeau agree with finite differences."""
    leaves = [build(a, flambeau, True) for a in inputs]
    assert flambeau.autograd.gradcheck(lambda *t: call(flambeau, *t), leaves)
    assert flambeau.autograd.gradgradcheck(lambda *t: call(flambeau, *t), leaves)


def both_refuse(call, *args, **kwargs):
    """Both libraries raise the same type of error."""
    both_raise(lambda torch: call(torch, *[build(a, torch) for a in args], **{k: build(v, torch) for k, v in kwargs.items()}))


def modules_agree(make, *inputs):
    """A freshly made module prints itself like PyTorch's, has its parameters and state, and gives its output, from one seed."""
    made = []
    for torch in MODULES.values():
        torch.manual_seed(0)
        module = make(torch.nn)
        text = repr(module)
        made.append((text, sequence(module(*[build(a, torch) for a in inputs])) if inputs else [], module.state_dict()))
    same(*made)


def layers(torch):
    """Two small layers and a model that do not need nn's own, so that these tests stand on Module alone."""

    class Dense(torch.nn.Module):
        def __init__(self, inputs, outputs, device=None):
            super().__init__()
            self.inputs, self.outputs = inputs, outputs
            self.weight = torch.nn.Parameter(torch.empty(outputs, inputs, device=device))
            self.bias = torch.nn.Parameter(torch.empty(outputs, device=device))
            if device is None:
                torch.nn.init.kaiming_uniform_(self.weight, a=5**0.5)
                torch.nn.init.zeros_(self.bias)

        def forward(self, x):
            return x @ self.weight.t() + self.bias

        def extra_repr(self):
            return f"{self.inputs}, {self.outputs}"

    class Scale(torch.nn.Module):
        def __init__(self, n=2):
            super().__init__()
            self.register_buffer("factor", torch.full((n,), 2.0))
            self.register_buffer("scratch", torch.zeros(n), persistent=False)
            self.register_buffer("nothing", None)

        def forward(self, x):
            return x * self.factor

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = Dense(2, 3)
            self.scale = Scale(3)
            self.second = Dense(3, 1)
            self.alpha = torch.nn.Parameter(torch.ones(1))
            self.register_parameter("beta", None)

        def forward(self, x):
            return self.second(self.scale(self.first(x)).tanh()) * self.alpha

    torch.manual_seed(0)
    return Dense, Scale, Model


def dense(torch, *sizes, **options):
    """One of these layers, from 2 to 3 elements unless said otherwise."""
    return layers(torch)[0](*(sizes or (2, 3)), **options)


def model(torch):
    return layers(torch)[2]()
