"""What a device must provide: one page, checked against every backend by the tests.

A backend is a module with these names. Its arrays are of one type of its own, by which `registry` finds it; they have NumPy's
`shape`, `strides` (in bytes), `dtype`, `ndim` and `size`, and NumPy's views of them (slices, transposes, other shapes) are
views of the device's memory. Where an array's memory cannot be read by the host, nothing above `backends/` may look at its
elements: whoever wants them says `to_cpu`.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

Shape = tuple[int, ...]


class Backend(Protocol):
    """The names of a backend. `dtype` is NumPy's, strides and offsets of tensors count elements."""

    ARRAY: type  # the type of its arrays
    NAME: str    # the type of its device: "cpu", "meta", "cuda"

    # ------------------------------------------------------------------------------------------------------ kernels
    def call(self, name: str, args: tuple[Any, ...]) -> Any:
        """Runs a kernel: arrays and plain values in, an array or several out. What is missing raises with its name."""

    # --------------------------------------------------------------------------------------------------- new arrays
    def empty(self, shape: Shape, dtype: np.dtype) -> Any: ...
    def zeros(self, shape: Shape, dtype: np.dtype) -> Any: ...
    def full(self, shape: Shape, dtype: np.dtype, value: Any) -> Any: ...
    def empty_strided(self, shape: Shape, stride: Shape, dtype: np.dtype) -> Any: ...

    def ordered(self, shape: Shape, order: Any, dtype: np.dtype) -> Any:
        """Dense, with its dimensions in memory in this order, outermost first."""

    def like(self, x: Any, dtype: np.dtype) -> Any:
        """Of the shape of x, and its layout where that is dense."""

    def arange(self, start: Any, step: Any, count: int, dtype: np.dtype) -> Any: ...
    def linspace(self, start: Any, end: Any, steps: int, dtype: np.dtype) -> Any: ...
    def logspace(self, start: Any, end: Any, steps: int, base: Any, dtype: np.dtype) -> Any: ...
    def eye(self, n: int, m: int, dtype: np.dtype) -> Any: ...

    def asarray(self, value: Any, dtype: np.dtype | None = None) -> Any:
        """A number or an array as an array of this device."""

    def check_bytes(self, nbytes: int, shape: Shape) -> None:
        """Raises where so much memory cannot be had."""

    # ------------------------------------------------------------------------------------------ copies and movement
    def copy(self, x: Any, dtype: np.dtype | None = None) -> Any: ...

    def copy_with_layout(self, source: Any, like: Any) -> Any:
        """The elements of one array laid out in memory as another."""

    def write(self, target: Any, source: Any) -> None:
        """target[...] = source, casting as asked; source may overlap target."""

    def fill(self, target: Any, value: Any) -> None: ...
    def to_cpu(self, array: Any) -> Any: ...
    def from_cpu(self, array: Any) -> Any: ...

    # ----------------------------------------------------------------------------------------- memory and geometry
    def device_of(self, array: Any) -> Any: ...
    def strides(self, x: Any) -> Shape: ...
    def storage_offset(self, x: Any) -> int: ...
    def is_contiguous(self, x: Any) -> bool: ...

    def address(self, x: Any) -> int:
        """Where the first element lies."""

    def as_strided(self, x: Any, shape: Shape, stride: Shape, offset: int) -> Any: ...

    def storage_bytes(self, x: Any) -> Any:
        """All bytes of the memory that x is a window onto, as an array."""

    def over_bytes(self, raw: Any, shape: Shape, stride: Shape, offset: int, dtype: np.dtype) -> Any:
        """A window onto such bytes."""

    def resized(self, x: Any, shape: Shape, stride: Shape) -> Any: ...
    def is_shared(self, x: Any) -> bool: ...
    def to_shared(self, x: Any) -> Any: ...
