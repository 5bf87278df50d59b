"""What `fully_shard` may be told: in which precision, and where parameters are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["CPUOffloadPolicy", "MixedPrecisionPolicy", "OffloadPolicy"]


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """param_dtype: of gathered parameters, and of all that is computed with them; reduce_dtype: in which gradients are added up
    over the processes; output_dtype: of the module's outputs; cast_forward_inputs: whether inputs are cast to param_dtype.
    None leaves things as they are."""

    param_dtype: Any = None
    reduce_dtype: Any = None
    output_dtype: Any = None
    cast_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """Nothing is moved elsewhere."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Pieces of parameters, gradients and optimizer state are kept in the host's memory."""

    pin_memory: bool = True
