"""What checkpoints ask of NumPy: storages over the bytes of a file."""

from __future__ import annotations

import mmap as _mmap
import os
from typing import Any

import numpy as np
from numpy import ndarray

from ...dtypes import COMPLEX
from .. import arrays, memory

_BYTE = np.dtype(np.uint8)


def raw_bytes(nbytes: int) -> ndarray:
    """Uninitialised memory."""
    return memory.empty((nbytes,), _BYTE)


def zero_bytes(nbytes: int) -> ndarray:
    return np.zeros(nbytes, _BYTE)


def mapped(file: Any, length: int, flags: int | None) -> ndarray:
    """A whole file as bytes that are read when they are touched. Private unless the flag says shared: writes then stay
    in memory."""
    private = flags != getattr(_mmap, "MAP_SHARED", object())
    access = _mmap.ACCESS_COPY if private else _mmap.ACCESS_WRITE
    return np.frombuffer(_mmap.mmap(file.fileno(), length, access=access), _BYTE)


def mapped_file(filename: str, shared: bool, nbytes: int) -> ndarray:
    """The first bytes of a file as a storage; shared: writes go to the file, which is made and lengthened if need be."""
    try:
        file = os.open(filename, os.O_RDWR | os.O_CREAT if shared else os.O_RDONLY)
    except OSError as error:
        mode = "read-write" if shared else "read-only"
        raise RuntimeError(f"unable to open file <{filename}> in {mode} mode: {error.strerror} ({error.errno})") from None
    try:
        size = os.fstat(file).st_size
        if size < nbytes and not shared:
            raise RuntimeError(f"file <{filename}> size <{size}> is smaller than the required mapping size <{nbytes}>")
        if size < nbytes:
            os.ftruncate(file, nbytes)
        if not nbytes:
            return raw_bytes(0)
        access = _mmap.ACCESS_WRITE if shared else _mmap.ACCESS_COPY
        return part(np.frombuffer(_mmap.mmap(file, nbytes, access=access), _BYTE), 0, nbytes)
    finally:
        os.close(file)


def part(source: ndarray, start: int, stop: int) -> ndarray:
    """Some bytes of a mapped file, as a storage of their own."""
    return arrays.share(source[start:stop])


def slice_of(source: ndarray, start: int, stop: int) -> ndarray:
    """Some bytes of a storage, sharing its memory."""
    return source[start:stop]


def swap(raw: ndarray, dtype: np.dtype) -> None:
    """Turns the byte order of every number around, in place."""
    size = dtype.itemsize // 2 if dtype.kind in COMPLEX else dtype.itemsize
    if size > 1:
        items = raw[:raw.nbytes // size * size].reshape(-1, size)
        items[...] = items[:, ::-1].copy()


def from_bytes(data: Any, dtype: np.dtype, shape: tuple[int, ...]) -> ndarray:
    """A fresh array with these bytes."""
    out = memory.empty(shape, dtype)
    out.reshape(-1).view(np.uint8)[...] = np.frombuffer(data, np.uint8)
    return out


def for_safetensors(x: ndarray) -> ndarray:
    """A contiguous array."""
    return np.ascontiguousarray(x).reshape(x.shape)
