"""Shared by the tests of nn.functional and the layers: one call under both frameworks, with derivatives compared."""

import numpy as np
import torch as reference

import flambeau

FRAMEWORKS = {"torch": reference, "flambeau": flambeau}


def build(value, torch, grads):
    """Arrays as tensors (floating ones as leaves that want a gradient); lists and everything else as they are."""
    if isinstance(value, np.ndarray):
        t = torch.tensor(value.tolist(), dtype=getattr(torch, value.dtype.name)).reshape(value.shape)
        if grads and value.dtype.kind == "f":
            t.requires_grad_()
        return t
    if isinstance(value, str) and value.startswith("dtype:"):
        return getattr(torch, value[6:])
    return value


def results(call, torch, args, kwargs, second):
    """(values, node name, gradients, gradients of gradients) of one call."""
    torch.manual_seed(3)
    made = [build(a, torch, True) for a in args]
    named = {k: build(v, torch, k not in ("weight", "pos_weight")) for k, v in kwargs.items()}
    leaves = [t for t in [*made, *named.values()] if isinstance(t, torch.Tensor) and t.requires_grad]
    out = call(torch, *made, **named)
    found = [out.detach().numpy()]
    name = None if out.grad_fn is None else out.grad_fn.name()
    if leaves and out.requires_grad:
        weights = torch.arange(1, out.numel() + 1, dtype=out.dtype).reshape(out.shape) / max(7, out.numel())
        first = torch.autograd.grad((out * weights).sum(), leaves, create_graph=second, allow_unused=True)
        found += [None if g is None else (g + 0).detach().numpy() for g in first]
        wanted = [g for g in first if g is not None and g.requires_grad]
        if second:
            total = sum((g * g).sum() for g in wanted)
            again = torch.autograd.grad(total, leaves, allow_unused=True) if wanted else [None] * len(leaves)
            found += [None if g is None else (g + 0).detach().numpy() for g in again]
    return found, name


def compare(call, *args, second=False, node=True, tolerance=1e-6, **kwargs):
    """The same numbers, derivatives and node under both frameworks."""
    (expected, name), (got, our_name) = [results(call, t, args, kwargs, second) for t in FRAMEWORKS.values()]
    assert len(expected) == len(got)
    for a, b in zip(expected, got):
        if a is None or b is None:  # no gradient at all stands for zeros
            assert not np.any(a if b is None else b)
            continue
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance)
    if node:
        assert our_name == name


def numbers(*shape, seed=0, dtype=np.float64, low=None):
    rng = np.random.default_rng(seed + sum(shape) * 7)
    values = rng.normal(size=shape)
    if low is not None:
        values = np.abs(values) * 0.3 + low
    return values.astype(dtype)


def integers(high, *shape, seed=0):
    return np.random.default_rng(seed + high).integers(0, high, shape)


def raises(call, *args, **kwargs):
    """Both frameworks refuse the call with the same type of error."""
    kinds = []
    for torch in FRAMEWORKS.values():
        try:
            call(torch, *[build(a, torch, False) for a in args], **{k: build(v, torch, False) for k, v in kwargs.items()})
            kinds.append(None)
        except Exception as error:
            kinds.append(type(error).__name__)
    assert kinds[0] is not None, "PyTorch does not refuse this"
    assert kinds[0] == kinds[1], kinds
