"""`torch._tensor`: where PyTorch keeps its Tensor class."""

from __future__ import annotations

from .tensor import Tensor

__all__ = ["Tensor"]
