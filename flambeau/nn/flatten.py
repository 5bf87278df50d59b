"""Flatten and its inverse."""

from __future__ import annotations

from typing import Any

from ..tensors.tensor import Tensor
from .layer import Layer
from .module import Module

__all__ = ["Flatten", "Unflatten"]


class Flatten(Layer):
    """Joins the dimensions from start_dim to end_dim; by default all but the first.

    Shapes: (batch, *) to (batch, product of *).

    >>> nn.Flatten()(torch.randn(32, 1, 5, 5)).shape
    torch.Size([32, 25])
    """

    start_dim: int = 1
    end_dim: int = -1

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)


class Unflatten(Module):
    """Splits a dimension into several.

    >>> nn.Unflatten(1, (2, 5))(torch.randn(3, 10)).shape
    torch.Size([3, 2, 5])
    """

    __constants__ = ["dim", "unflattened_size"]

    def __init__(self, dim: int | str, unflattened_size: Any):
        super().__init__()
        if isinstance(dim, int):
            self._require_tuple_int(unflattened_size)
        elif isinstance(dim, str):
            self._require_tuple_tuple(unflattened_size)
        else:
            raise TypeError("invalid argument type for dim parameter")
        self.dim, self.unflattened_size = dim, unflattened_size

    def _require_tuple_tuple(self, given: Any) -> None:
        if not isinstance(given, tuple):
            raise TypeError("unflattened_size must be a tuple of tuples, but found type " + type(given).__name__)
        for i, element in enumerate(given):
            if not isinstance(element, tuple):
                raise TypeError("unflattened_size must be tuple of tuples, but found element of type "
                                f"{type(element).__name__} at pos {i}")

    def _require_tuple_int(self, given: Any) -> None:
        if not isinstance(given, (tuple, list)):
            raise TypeError(f"unflattened_size must be a tuple of ints, but found type {type(given).__name__}")
        for i, element in enumerate(given):
            if not isinstance(element, int):
                raise TypeError(f"unflattened_size must be tuple of ints, but found element of type "
                                f"{type(element).__name__} at pos {i}")

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
