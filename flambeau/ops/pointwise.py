"""Pointwise operations, one row each: name, C expression, derivative."""

from __future__ import annotations

from typing import Any

from .elementwise import binary, compare, unary


def conj(x: Any) -> Any:
    """The complex conjugate where that makes a difference."""
    if x.__class__ is complex:
        return x.conjugate()
    return x.conj() if hasattr(x, "is_complex") and x.is_complex() else x


# fmt: off
mul = binary("mul", "a * b", (lambda grad, other: grad * conj(other), lambda grad, self: grad * conj(self)), aliases=("multiply",))
_add = binary("add", "a + b", (lambda grad: grad, lambda grad: grad))
_sub = binary("sub", "a - b", (lambda grad: grad, lambda grad: -grad))
neg = unary("neg", "-a", lambda grad: -grad, kind="same", aliases=("negative",))
exp = unary("exp", "exp(a)", lambda grad, result: grad * conj(result))
tanh = unary("tanh", "tanh(a)", lambda grad, result: grad * conj(1 - result * result))
sin = unary("sin", "sin(a)", lambda grad, self: grad * conj(self.cos()))
cos = unary("cos", "cos(a)", lambda grad, self: -grad * conj(self.sin()))
eq = compare("eq", "a == b")
from ..tensor import Tensor
Tensor.__mul__ = Tensor.__rmul__ = mul
Tensor.__add__ = _add
Tensor.__sub__ = _sub
Tensor.__neg__ = neg
Tensor.__rsub__ = lambda self, other: neg(self) + other
