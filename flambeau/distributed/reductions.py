"""How values of several processes are combined."""

from __future__ import annotations

import warnings
from enum import Enum
from typing import Any

__all__ = ["ReduceOp", "reduce_op", "supports_complex"]


class ReduceOp(Enum):
    """How values of several processes are combined."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)


class PremulSum:
    """A sum of values that each process multiplies by its factor (a number or a tensor of one element) first."""

    def __init__(self, factor: Any):
        self.op, self.factor = ReduceOp.PREMUL_SUM, factor

    def __eq__(self, other: object) -> bool:
        return other is self or other is ReduceOp.PREMUL_SUM

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<ReduceOp.PREMUL_SUM: {self.factor}>"


ReduceOp.RedOpType = ReduceOp  # PyTorch's type of the members
_INTEGRAL = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


def _make_nccl_premul_sum(factor: Any) -> PremulSum:
    """The operation that multiplies by `factor` and sums. PyTorch has it with NCCL only; here every backend does it."""
    return PremulSum(factor)


def supports_complex(reduceOp: ReduceOp) -> bool:
    """Whether the operation means something for complex numbers."""
    return kind(reduceOp) in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PREMUL_SUM)


def kind(op: Any) -> ReduceOp:
    """The operation without its factor."""
    if isinstance(op, ReduceOp):
        return op
    if isinstance(op, PremulSum):
        return ReduceOp.PREMUL_SUM
    raise TypeError(f"op: expected a ReduceOp, got {type(op).__name__} {op!r}")


def factor(op: Any) -> Any:
    """What each process multiplies its values by; None for nothing."""
    if op is ReduceOp.PREMUL_SUM:
        raise ValueError("ReduceOp.PREMUL_SUM needs a factor: torch.distributed._make_nccl_premul_sum(factor)")
    return op.factor if isinstance(op, PremulSum) else None


def check(op: Any, dtype: Any, name: str) -> ReduceOp:
    """The operation, where it can be done with tensors of that dtype."""
    found = kind(op)
    if dtype.is_complex and not supports_complex(found):
        raise ValueError(f"{name} does not support {found} on complex tensors")
    if found in _INTEGRAL and (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError(f"Cannot use {found} with non-integral dtype")
    return found


class _OldNames:
    """`reduce_op.SUM`: what ReduceOp was called once."""

    def __getattribute__(self, name: str) -> Any:
        warnings.warn("`torch.distributed.reduce_op` is deprecated, please use `torch.distributed.ReduceOp` instead",
                      FutureWarning, stacklevel=2)
        return getattr(ReduceOp, name)


reduce_op = _OldNames()
