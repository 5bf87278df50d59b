"""`torch._tensor`: where PyTorch keeps its Tensor class."""

from __future__ import annotations

from .serialization.rebuild import _rebuild_from_type_v2  # noqa: F401  (the name that files call)
from .tensors.tensor import Tensor

__all__ = ["Tensor"]
