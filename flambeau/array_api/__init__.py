"""The Python array API standard (data-apis.org/array-api) over flambeau's tensors.

    xp = tensor.__array_namespace__()

The arrays are plain tensors, so gradients flow through these functions, and the operators of tensors mean what they mean in
PyTorch. What differs from the names and arguments of `flambeau` itself is defined here: thinly, over flambeau's own functions.
docs/array_api.md says what is known to deviate from the standard.
"""

from __future__ import annotations

from types import ModuleType

from .. import (
    bool,
    complex64,
    complex128,
    e,
    float32,
    float64,
    inf,
    int8,
    int16,
    int32,
    int64,
    nan,
    newaxis,
    pi,
    uint8,
    uint16,
    uint32,
    uint64,
)
from . import creation, dtypes, elementwise, fft, info, linalg, reductions, searching, shapes
from .creation import *  # noqa: F403
from .dtypes import *  # noqa: F403
from .elementwise import *  # noqa: F403
from .info import *  # noqa: F403
from .linalg import matmul, matrix_transpose, tensordot, vecdot
from .reductions import *  # noqa: F403
from .searching import *  # noqa: F403
from .shapes import *  # noqa: F403

__array_api_version__ = "2024.12"
VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")  # each has all that the ones before it have

__all__ = ["__array_api_version__", "complex64", "complex128", "e", "float32", "float64", "inf", "int8", "int16", "int32",
           "int64", "nan", "newaxis", "pi", "bool", "uint8", "uint16", "uint32", "uint64", "fft", "linalg", "matmul",
           "matrix_transpose", "tensordot", "vecdot", *creation.__all__, *dtypes.__all__, *elementwise.__all__, *info.__all__,
           *reductions.__all__, *searching.__all__, *shapes.__all__]


def namespace(api_version: str | None = None) -> ModuleType:
    """What `Tensor.__array_namespace__` gives: this module, which serves every version up to its own."""
    if api_version is not None and api_version not in VERSIONS:
        raise ValueError(f"version {api_version!r} of the array API standard is not supported, only {', '.join(VERSIONS)}")
    import sys
    return sys.modules[__name__]


def __dir__() -> list[str]:
    return __all__
