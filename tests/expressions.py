"""One expression, evaluated by PyTorch and by flambeau: same value, dtype, shape, strides, or the same error."""

import warnings

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")


def outcome(package, source, **names):
    """("value", ...) or ("error", type), and the messages of warnings."""
    package.manual_seed(17)
    env = {"torch": package, "np": np, "nan": float("nan"), "inf": float("inf"), **names}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            result = ("value", described(package, eval(source, env)))
        except Exception as error:
            result = ("error", error)
    return result, [w.category for w in said if not issubclass(w.category, DeprecationWarning)]


def described(package, x):
    """A result as plain data that can be compared across packages."""
    if isinstance(x, package.Tensor):
        head = (str(x.dtype), tuple(x.shape), x.requires_grad, str(x.device))
        if x.device.type == "meta":
            return (*head, x.stride())
        t = x.detach()
        return (*head, t.stride() if t.numel() else (),
                t.to(package.float32).tolist() if "bfloat16" in head[0] else t.tolist())
    if isinstance(x, (list, tuple)):
        return [described(package, v) for v in x]
    if isinstance(x, dict):
        return {k: described(package, v) for k, v in x.items()}
    if isinstance(x, np.ndarray):
        return (str(x.dtype), x.shape, x.tolist())
    if x is None or isinstance(x, (bool, int, float, complex, str)):
        return (type(x).__name__, x)
    return repr(x)


def same(a, b):
    """Equality that lets nan equal nan."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return a == b or (a != a and b != b)


def agree(source, warned=True, names=lambda package: {}):
    """Fails unless both packages do the same with the expression. names: what it may use besides, for a package."""
    (kind, theirs), their_warnings = outcome(torch, source, **names(torch))
    (mine, ours), our_warnings = outcome(flambeau, source, **names(flambeau))
    if kind == "error":
        assert mine == "error", f"{source}: PyTorch raises {theirs!r}, flambeau gives {ours}"
        assert isinstance(ours, type(theirs)), f"{source}: PyTorch raises {theirs!r}, flambeau {ours!r}"
        return
    if mine == "error":
        raise AssertionError(f"{source}: PyTorch gives {theirs}, flambeau raises {ours!r}") from ours
    assert same(theirs, ours), f"{source}:\nPyTorch  {theirs}\nflambeau {ours}"
    if warned:
        assert bool(their_warnings) <= bool(our_warnings), f"{source}: PyTorch warns, flambeau does not"
