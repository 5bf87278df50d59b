"""The old ways of saying how a loss is reduced (size_average, reduce), and the numbers of the new ones."""

from __future__ import annotations

import warnings

NUMBERS = {"none": 0, "mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """0 for none, 1 for mean, 2 for sum."""
    found = NUMBERS.get(reduction)
    if found is None:
        if reduction == "elementwise_mean":
            warnings.warn("reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.", stacklevel=2)
            return 1
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return found


def legacy_get_string(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> str:
    """What size_average= and reduce= mean in terms of reduction=."""
    if size_average is None:
        size_average = True
    if reduce is None:
        reduce = True
    made = "none" if not reduce else "mean" if size_average else "sum"
    if emit_warning:
        warnings.warn(f"size_average and reduce args will be deprecated, please use reduction='{made}' instead.",
                      stacklevel=3)
    return made


def legacy_get_enum(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> int:
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
