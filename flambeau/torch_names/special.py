"""`flambeau.special`: special functions under the names of SciPy's module (their rows are in ops/pointwise/special.py)."""

from __future__ import annotations

from typing import Any

from .ops.core import examples as _examples
from .ops.core.row import FUNCTIONS as _FUNCTIONS
from .ops.pointwise.special import SPECIAL as _SPECIAL

globals().update(_SPECIAL)
globals().update({name: _FUNCTIONS[name] for name in ("exp2", "expm1", "log1p", "logit", "polygamma", "round")})
expit = _FUNCTIONS["sigmoid"]
multigammaln = _FUNCTIONS["mvlgamma"]


def logsumexp(input: Any, dim: Any, keepdim: bool = False, *, out: Any = None) -> Any:
    """log of the sum of exponentials along dimensions."""
    return _FUNCTIONS["logsumexp"](input, dim, keepdim, out=out)


def softmax(input: Any, dim: int, dtype: Any = None) -> Any:
    """exp(input) divided by its sum along a dimension."""
    return _FUNCTIONS["softmax"](input, dim, dtype=dtype)


def log_softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """The logarithm of softmax."""
    return _FUNCTIONS["log_softmax"](input, dim, dtype=dtype)


__all__ = sorted(name for name in globals() if not name.startswith("_") and name not in ("annotations", "Any"))
_examples.attach_module("special", globals())
