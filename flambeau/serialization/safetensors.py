"""Files of the safetensors format, through the `safetensors` package (an extra: pip install safetensors)."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

from ..autograd.state import looked_at
from ..backends.cpu.data import checkpoint as _memory
from ..tensors import dtypes as _dtypes
from ..tensors.device import to_device
from ..tensors.dtypes import dtype
from ..tensors.tensor import Tensor, wrap
from .saving import replacing

_DTYPES: dict[str, dtype] = {
    "BOOL": _dtypes.bool_, "U8": _dtypes.uint8, "I8": _dtypes.int8, "U16": _dtypes.uint16, "I16": _dtypes.int16,
    "U32": _dtypes.uint32, "I32": _dtypes.int32, "U64": _dtypes.uint64, "I64": _dtypes.int64, "F16": _dtypes.float16,
    "BF16": _dtypes.bfloat16, "F32": _dtypes.float32, "F64": _dtypes.float64, "F8_E4M3": _dtypes.float8_e4m3fn,
    "F8_E5M2": _dtypes.float8_e5m2, "C64": _dtypes.complex64}


def _package() -> Any:
    try:
        import safetensors
    except ImportError:
        raise RuntimeError("reading and writing .safetensors files needs the safetensors package: "
                           "pip install safetensors") from None
    return safetensors


def save(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """The bytes of a file with these tensors."""
    _package()
    from safetensors.numpy import save as save_arrays
    found = _checked(tensors)
    for tensor in found.values():
        looked_at(tensor._array, "tensors were saved")
    arrays = {name: _memory.for_safetensors(tensor._array) for name, tensor in found.items()}
    return save_arrays(arrays, metadata)


def save_file(tensors: dict[str, Tensor], filename: str | os.PathLike, metadata: dict[str, str] | None = None) -> None:
    """Writes named tensors to a file, which is replaced only when the new one is complete."""
    data = save(tensors, metadata)
    with replacing(os.fspath(filename)) as file:
        file.write(data)


def load(data: bytes) -> dict[str, Tensor]:
    """The tensors of a file's bytes."""
    package = _package()
    try:
        found = package.deserialize(data)
    except package.SafetensorError as error:
        raise RuntimeError(f"this is not a valid safetensors file: {error}") from None
    return {name: _tensor(name, entry) for name, entry in found}


def load_file(filename: str | os.PathLike, device: Any = "cpu") -> dict[str, Tensor]:
    """The tensors of a file, by name."""
    _package()
    with open(filename, "rb") as file:
        found = load(file.read())
    place = to_device(device)
    return found if place.type == "cpu" else {name: tensor.to(place) for name, tensor in found.items()}


def _checked(tensors: Any) -> dict[str, Tensor]:
    """The format has no views: tensors that share memory would silently be separated, so they are refused."""
    if not isinstance(tensors, dict):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors).__name__}")
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(tensor).__name__}")
        if tensor.is_sparse or tensor.device.type != "cpu":
            raise ValueError(f"'{name}' is a {tensor.layout} tensor on {tensor.device}: safetensors files hold dense "
                             "tensors with data, use to_dense() or cpu() before saving")
        if tensor.dtype not in _DTYPES.values():
            raise TypeError(f"'{name}' has dtype {tensor.dtype}, which the safetensors format does not have")
    loose = [name for name, tensor in tensors.items() if not tensor.is_contiguous()]
    if loose:
        raise ValueError(f"You are trying to save non contiguous tensors: {loose}, which is not allowed. Either call "
                         "`.contiguous()` on them before saving, or save with torch.save.")
    areas = sorted((t.data_ptr(), t.data_ptr() + t.nbytes, name) for name, t in tensors.items() if t.numel())
    for (_, stop, first), (start, _, second) in pairwise(areas):
        if start < stop:
            raise RuntimeError("Some tensors share memory, this will lead to duplicate memory on disk and potential "
                               f"differences when loading them again: '{first}' and '{second}'. Save only one of them, "
                               "or clone() the other.")
    return tensors


def _tensor(name: str, entry: dict[str, Any]) -> Tensor:
    kind = _DTYPES.get(entry["dtype"])
    if kind is None:
        raise TypeError(f"'{name}' has the dtype {entry['dtype']}, which flambeau does not have")
    return wrap(_memory.from_bytes(entry["data"], kind.native, tuple(entry["shape"])))


__all__ = ["load", "load_file", "save", "save_file"]
