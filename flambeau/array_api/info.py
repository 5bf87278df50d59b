"""What the namespace can do: for programs that ask first."""

from __future__ import annotations

from typing import Any

import flambeau

from ..tensors.device import to_device
from .dtypes import KINDS

__all__ = ["__array_namespace_info__"]


class Info:
    """The answers of `__array_namespace_info__()`."""

    def capabilities(self) -> dict[str, Any]:
        """Which optional behaviour there is, and the largest number of dimensions."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> flambeau.device:
        """Where arrays are made when nothing is said."""
        return flambeau.get_default_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, flambeau.dtype]:
        """The dtypes of arrays when nothing is said."""
        real = flambeau.get_default_dtype()
        complex = flambeau.complex128 if real is flambeau.float64 else flambeau.complex64
        return {"real floating": real, "complex floating": complex, "integral": flambeau.int64, "indexing": flambeau.int64}

    def devices(self) -> list[flambeau.device]:
        """The devices on which arrays have values."""
        return [to_device("cpu")]

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, flambeau.dtype]:
        """The dtypes of the standard by name; with `kind`, those of a kind or of several."""
        kinds = ("bool", "numeric") if kind is None else kind if isinstance(kind, tuple) else (kind,)
        for wanted in kinds:
            if wanted not in KINDS:
                raise ValueError(f"unknown kind of dtype: {wanted!r} (there are {', '.join(KINDS)})")
        return {str(dtype).removeprefix("torch."): dtype for wanted in kinds for dtype in KINDS[wanted]}


def __array_namespace_info__() -> Info:
    """An object that tells which devices, dtypes and optional behaviour there are."""
    return Info()
