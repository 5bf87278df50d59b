"""What data loading asks of NumPy: kinds of data, batches written into shared memory, messages, seeding."""

from __future__ import annotations

import io
import pickle
import threading
from typing import Any

import numpy as np
from numpy import ndarray

from ...dtypes import native
from .. import memory
from . import shared
from .shared import SMALL, Mapped, Pool

ARRAY = ndarray
SCALARS = (np.bool_, np.number, np.object_)
outgoing: Pool | None = None  # in a worker process: where batches are to be written


def is_numeric(x: Any) -> bool:
    """Whether x is a NumPy array or number whose elements a tensor can hold."""
    return isinstance(x, (ndarray, np.generic)) and x.dtype.kind not in "SUO"


def numpy_seed(base_seed: int, worker_id: int) -> tuple[int, ...]:
    """A seed for NumPy's global generator in a worker: PyTorch's, which never meets that of Python's `random`."""
    words = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    return tuple(np.random.SeedSequence(words).generate_state(4).tolist())


def seed_numpy(base_seed: int, worker_id: int) -> None:
    np.random.seed(numpy_seed(base_seed, worker_id))


# ------------------------------------------------------------------------------------------------------------- batches
def stacked(arrays: list[ndarray]) -> ndarray | None:
    """Arrays of one shape and type along a new first dimension (in a worker: in shared memory); None for others."""
    first = arrays[0]
    shape, dtype = first.shape, first.dtype
    if not shape or set(map(type, arrays)) != _PLAIN:
        return None
    if len([a for a in arrays if a.shape == shape and a.dtype is dtype]) != len(arrays):
        return None
    out = _room((len(arrays), *shape), dtype, first.nbytes * len(arrays))
    np.concatenate(arrays, out=out.reshape(len(arrays) * shape[0], *shape[1:]))
    return out


_PLAIN = {ndarray}


def integers(values: Any) -> ndarray | None:
    """Python's integers in an array; None for others, and where one is too large."""
    if set(map(type, values)) == {int}:
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass
    return None


def _room(shape: tuple[int, ...], dtype: np.dtype, nbytes: int) -> ndarray:
    if outgoing is None or nbytes < SMALL:
        return memory.empty(shape, dtype)
    return outgoing.empty(shape, dtype, nbytes)


def rows(columns: list[ndarray], indices: list[int]) -> list[ndarray] | None:
    """The rows `indices` of each column in fresh memory; None where an index is no row's."""
    try:
        chosen = np.array(indices, np.intp)
    except (TypeError, ValueError, OverflowError):
        return None
    if chosen.ndim != 1 or not chosen.size:
        return None
    low, high = chosen.min(), chosen.max()
    if low < 0 or any([high >= len(column) for column in columns]):
        return None
    return [_rows(column, chosen) for column in columns]


def _rows(column: ndarray, chosen: ndarray) -> ndarray:
    nbytes = column.nbytes // max(len(column), 1) * len(chosen)
    # "clip" changes nothing here (all indices are rows), but "raise" would fill a buffer first
    return column.take(chosen, 0, _room((len(chosen), *column.shape[1:]), column.dtype, nbytes), "clip")


# ------------------------------------------------------------------------------------------------------------ messages
class Packer:
    """Pickles batches; arrays and buffers of some size go into the pool's segments, only their places are written."""

    def __init__(self, pool: Pool, reducers: dict[type, Any]):
        self.pool = pool
        self.reducers = reducers

    def pack(self, data: Any) -> bytes:
        file = io.BytesIO()
        places: list[tuple[int, int, int]] = []

        def outside(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes < SMALL:
                return True
            number, offset, _ = self.pool.place(np.frombuffer(raw, np.uint8))
            places.append((number, offset, raw.nbytes))
            return False

        pickler = pickle.Pickler(file, 5, buffer_callback=outside)
        pickler.dispatch_table = self.reducers
        self.pool.in_message.clear()
        try:
            pickler.dump(data)
        except BaseException:
            for number in self.pool.in_message:  # the message will not be sent, so nobody would give them back
                self.pool.give(number)
            raise
        return pickle.dumps(places) + file.getvalue() if places else b"\x00" + file.getvalue()


_reading = threading.local()  # which worker's segments the message that is being read means


def unpack(message: memoryview, mapped: Mapped) -> Any:
    before = getattr(_reading, "mapped", None)
    _reading.mapped = mapped
    try:
        if message[0] == 0:
            return pickle.loads(message[1:])
        file = io.BytesIO(message)
        views = [memoryview(mapped.lease(number, nbytes))[offset:offset + nbytes]
                 for number, offset, nbytes in pickle.load(file)]
        return pickle.load(file, buffers=views)
    finally:
        _reading.mapped = before


def packed_array(x: ndarray, pool: Pool) -> tuple[Any, tuple[Any, ...]]:
    """What a message says of an array, as a function and its arguments."""
    name = x.dtype.name
    if x.nbytes < SMALL:
        return inline_array, (x.tobytes(), x.shape, name)
    number, offset, placed = pool.place(x)
    strides = None if placed.flags.c_contiguous else placed.strides
    return leased_array, (number, offset, placed.nbytes, placed.shape, strides, name)


def inline_array(data: bytes, shape: tuple[int, ...], name: str) -> ndarray:
    return ndarray(shape, native(name), bytearray(data))


def leased_array(number: int, offset: int, nbytes: int, shape: tuple[int, ...], strides: Any, name: str) -> ndarray:
    lease = _reading.mapped.lease(number, nbytes)
    return ndarray(shape, native(name), lease, offset, strides)


def start_sending(announce: Any) -> Pool:
    """From here on this process is a worker: batches are written into shared memory."""
    global outgoing
    outgoing = Pool(announce)
    return outgoing


__all__ = ["ARRAY", "SCALARS", "Packer", "inline_array", "is_numeric", "leased_array", "numpy_seed", "packed_array",
           "rows",
           "seed_numpy", "shared", "stacked", "start_sending", "unpack"]
