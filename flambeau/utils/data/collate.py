"""Batches out of samples: `default_collate` puts tensors side by side through any nesting of containers."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

from ...autograd.state import NO_GRAD, state
from ...backends.cpu.data import loading as _cpu
from ...creation.factories import as_tensor, tensor
from ...ops.shape.joining import stack
from ...tensors import dtypes as _dtypes
from ...tensors.tensor import Tensor, wrap
from . import worker as _worker

__all__ = ["default_collate", "default_convert", "collate", "default_collate_fn_map"]

_PLAIN = {Tensor}
np_str_obj_array_pattern = re.compile(r"[SaUO]")  # the kinds of NumPy arrays that make no tensors
default_collate_err_msg_format = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}")


def default_convert(data: Any) -> Any:
    """The same nesting with NumPy arrays and numbers as tensors; what is neither array nor container stays.

    >>> import numpy
    >>> from flambeau.utils.data import default_convert
    >>> default_convert(numpy.zeros(2))
    tensor([0., 0.], dtype=torch.float64)
    """
    kind = type(data)
    if isinstance(data, Tensor):
        return data
    if _cpu.is_numeric(data):
        return as_tensor(data)
    if isinstance(data, Mapping):
        return _rebuilt_mapping(data, {key: default_convert(data[key]) for key in data})
    if isinstance(data, tuple):
        made = [default_convert(d) for d in data]
        return kind(*made) if hasattr(data, "_fields") else made
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _rebuilt_sequence(data, [default_convert(d) for d in data])
    return data


def _rebuilt_mapping(like: Any, items: dict[Any, Any]) -> Any:
    """The items in a mapping of like's type, with what else it carries; a dict where that type cannot be made."""
    try:
        if isinstance(like, MutableMapping):
            made = copy.copy(like)
            made.update(items)
            return made
        return type(like)(items)
    except TypeError:
        return items


def _rebuilt_sequence(like: Any, items: list[Any]) -> Any:
    try:
        if isinstance(like, MutableSequence):
            made = copy.copy(like)
            for i, item in enumerate(items):
                made[i] = item
            return made
        return type(like)(items)
    except TypeError:
        return items


def collate(batch: Any, *, collate_fn_map: dict[Any, Callable] | None = None) -> Any:
    """One batch of a list of samples: by the map's function for the samples' type, else container by container."""
    first = batch[0]
    kind = type(first)
    if collate_fn_map is not None:
        if kind in collate_fn_map:
            return collate_fn_map[kind](batch, collate_fn_map=collate_fn_map)
        for types, function in collate_fn_map.items():
            if isinstance(first, types):
                return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        return _rebuilt_mapping(first, {key: collate([d[key] for d in batch], collate_fn_map=collate_fn_map)
                                        for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return kind(*[collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch)])
    if isinstance(first, Sequence):
        if len(set(map(len, batch))) > 1:
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch)]
        return columns if isinstance(first, tuple) else _rebuilt_sequence(first, columns)
    raise TypeError(default_collate_err_msg_format.format(kind))


def collate_tensor_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    """Tensors along a new first dimension; in a worker process straight into memory that the main process sees."""
    # no subclass, no history (spelled out: asking 64 tensors for requires_grad costs 10 us)
    if state.mode <= NO_GRAD and set(map(type, batch)) == _PLAIN:
        arrays = [t._array for t in batch if t._node is None and (t._base is None or t._base._node is None)]
        made = _cpu.stacked(arrays) if len(arrays) == len(batch) else None
        if made is not None:
            return _sendable(wrap(made))
    return _sendable(stack(batch, 0))


def _sendable(made: Tensor) -> Tensor:
    """In a worker that is not a DataLoader's own (which has its pool of shared memory): moved into shared memory."""
    if _worker._worker_info is not None and _cpu.outgoing is None and not made.requires_grad:
        made.share_memory_()
    return made


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    if not _cpu.is_numeric(batch[0]):
        raise TypeError(default_collate_err_msg_format.format(batch[0].dtype))
    return collate([as_tensor(b) for b in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    return as_tensor(batch)


def collate_float_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    return tensor(batch, dtype=_dtypes.float64)


def collate_int_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    made = _cpu.integers(batch)
    return tensor(batch) if made is None else wrap(made)


def collate_str_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return batch


default_collate_fn_map: dict[Any, Callable] = {
    Tensor: collate_tensor_fn, _cpu.ARRAY: collate_numpy_array_fn, _cpu.SCALARS: collate_numpy_scalar_fn,
    float: collate_float_fn, int: collate_int_fn, str: collate_str_fn, bytes: collate_str_fn}


def default_collate(batch: Any) -> Any:
    """A batch of samples: tensors and arrays stacked, numbers in a tensor, strings in a list, containers kept.

    >>> from flambeau.utils.data import default_collate
    >>> default_collate([(1, 2.0), (3, 4.0)])
    [tensor([1, 3]), tensor([2., 4.], dtype=torch.float64)]
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)
