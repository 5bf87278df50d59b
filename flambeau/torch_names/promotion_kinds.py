"""How the dtype of a pointwise result follows from its arguments, as `torch._prims_common` says it."""

from __future__ import annotations

import enum
from typing import Any

from .ops.pointwise.families import promoted
from .tensors import dtypes as _dtypes


class ELEMENTWISE_TYPE_PROMOTION_KIND(enum.Enum):
    """What becomes of the common dtype of the arguments."""

    DEFAULT = (0,)
    NO_OPMATH = (1,)
    INT_TO_FLOAT = (2,)
    ALWAYS_BOOL = (3,)
    COMPLEX_TO_FLOAT = (4,)
    BOOL_TO_LONG = (5,)


_WIDER = {_dtypes.float16: _dtypes.float32, _dtypes.bfloat16: _dtypes.float32, _dtypes.complex32: _dtypes.complex64}


def elementwise_dtypes(*args: Any, type_promotion_kind: ELEMENTWISE_TYPE_PROMOTION_KIND) -> tuple[Any, Any]:
    """(the dtype to compute in, the dtype of the result) of tensors and numbers."""
    kind, kinds = type_promotion_kind, ELEMENTWISE_TYPE_PROMOTION_KIND
    common = promoted([a for a in args if a is not None])
    if kind is kinds.INT_TO_FLOAT and not (common.is_floating_point or common.is_complex):
        common = _dtypes.get_default_dtype()
    if kind is kinds.BOOL_TO_LONG and common is _dtypes.bool_:
        return _dtypes.int64, _dtypes.int64
    computed = common if kind is kinds.NO_OPMATH else _WIDER.get(common, common)
    if kind is kinds.ALWAYS_BOOL:
        return computed, _dtypes.bool_
    return computed, common.to_real() if kind is kinds.COMPLEX_TO_FLOAT else common
