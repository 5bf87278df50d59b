"""Names for type hints, as PyTorch programs import them."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, TypeAlias

from .tensors.device import device as _device
from .tensors.dtypes import dtype as _dtype
from .tensors.formats import layout as _layout
from .tensors.tensor import Size, Tensor

_int, _float, _bool, _complex = builtins.int, builtins.float, builtins.bool, builtins.complex
_size: TypeAlias = Size | list[int] | tuple[int, ...]
_symsize = _size
_dispatchkey = Any
Number: TypeAlias = int | float | bool
_Number = (int, float, bool)
Device: TypeAlias = _device | str | int | None
FileLike: TypeAlias = Any
Storage: TypeAlias = Any
TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
_TensorOrTensors = TensorOrTensors

__all__ = ["Number", "Device", "FileLike", "Storage", "_device", "_dtype", "_layout", "_size", "_int", "_float",
           "_bool", "_complex", "TensorOrTensors"]
