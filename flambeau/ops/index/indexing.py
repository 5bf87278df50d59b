"""`x[key]`, `x[key] = value` and the operations that work on positions in the flattened tensor.

Basic keys (numbers, slices, None, ...) are a chain of the views `select`, `slice` and `unsqueeze`; index tensors and
masks go to the rows `index` and `index_put`. Operations along one dimension (gather, scatter...) are in scatter.py, those
with masks in masks.py.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

from ...autograd import state as _state
from ...autograd.node import bump
from ...autograd.state import FOLLOW, FOLLOWED, state
from ...autograd.views import edge_of, mark_view
from ...backends import registry, values
from ...backends.batched.arrays import BatchedArray
from ...backends.cpu.creation import item_fits as _item_fits
from ...backends.dtypes import COMPLEX
from ...creation.factories import tensor
from ...settings import alert_not_deterministic
from ...tensors import dtypes as _dtypes
from ...tensors.parameter import Parameter
from ...tensors.tensor import Tensor, wrap
from .. import rules
from ..core import overrides as _overrides
from ..core.row import ROWS, Row, _type_word, public
from ..rules import moves
from ..shape.joining import stack
from ..shape.views import _select, _slice, viewable
from ..shape.writing import write_row, writing

ndarray = registry.CPU_ARRAY
_asarray = registry.cpu.asarray
_INT64 = _dtypes.int64.native
_INDEX_DTYPES = (_dtypes.int64, _dtypes.int32, _dtypes.uint8, _dtypes.bool_)
_WHOLE = (slice(None),) * 64
_BASIC = frozenset((int, slice, type(None), type(Ellipsis)))


# ---------------------------------------------------------------------------------------------------------------- rows
def index_backward(grad: Tensor, shape: Any, indices: Any) -> Tensor:
    """The gradient put back where the index took from; a mask takes every element at most once."""
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype is _dtypes.int64:
        return added_rows(grad, indices[0], shape)
    once = all(i is None or i.dtype is _dtypes.bool_ for i in indices)
    return write_row(grad.new_zeros(shape), index_put_row, (list(indices), grad, not once))


def _without(grad: Tensor, indices: Any, accumulate: bool) -> Tensor:
    return grad if accumulate else index_put_row(grad, list(indices), grad.new_zeros(()), False)


def _put_there(grad: Tensor, indices: Any, shape: tuple[int, ...]) -> Tensor:
    """The gradient of what was put; that of the same at each place of a mask is summed over all, so its shape is known."""
    arrays = [None if i is None else i._array for i in indices]
    if not values.by_one_mask(grad._array, arrays, shape):
        return index_row(grad, list(indices))
    at = next(i for i, mask in enumerate(indices) if mask is not None)
    mask = indices[at].reshape((*indices[at].shape, *[1] * (grad.ndim - at - indices[at].ndim)))
    made = grad.masked_fill(mask.logical_not(), 0)
    return made.flatten(at, at + indices[at].ndim - 1) if indices[at].ndim else made.unsqueeze(at)


added_rows = Row("added_rows", "source index shape", safe=values.positions(1, lambda grad, at, shape: shape[0], again=True),
                 shape=rules.of_shape(2), backward={
    "source": lambda grad, index: index_row(grad, [index])}, forward="linear")
index_row = Row("index", "self indices", moves=True, safe=values.BY_DIMENSION, dynamic=values.has_masks, shape=moves.indexed,
                backward={
    "self": lambda grad, self_shape, indices: index_backward(grad, self_shape, indices)}, forward="linear")
index_put_row = Row("index_put", "self indices values accumulate", moves=True, dynamic=values.puts_by_values, safe=values.PUT,
                    apart=True, lenient=True, shape=moves.index_put, backward={
    "self": lambda grad, indices, accumulate: _without(grad, indices, accumulate),
    "values": lambda grad, indices, values_shape: _put_there(grad, indices, values_shape)}, forward="linear")
_take = Row("take", "self index", safe=values.positions(1, lambda x, at: x.size, wraps=True), shape=rules.first_as(1),
            backward={
    "self": lambda grad, self_shape, index: grad.new_zeros(self_shape).put_(index, grad, True)}, forward="linear")
_put = Row("put", "self index source accumulate", apart=True, shape=rules.alike, backward={
    "self": lambda grad, index, accumulate: grad if accumulate else grad.put(index, _zeros_at(grad, index)),
    "source": lambda grad, index, source_shape: grad.take(index).reshape(source_shape)})


def _zeros_at(grad: Tensor, index: Tensor) -> Tensor:
    return grad.new_zeros(index.shape)


# ---------------------------------------------------------------------------------------------------------- x[key]
def getitem(self: Tensor, key: Any) -> Tensor:
    """x[key]. One number, one slice, or a basic key of a tensor without gradient is one NumPy view."""
    mode = state.mode
    if (mode < 2 or mode in FOLLOWED) and viewable(self):
        array, kind, mode = self._array, key.__class__, mode & _state.NO_GRAD
        if kind is int:
            if array.ndim and -array.shape[0] <= key < array.shape[0]:
                return _select.tensor(mode, array[key, ...], self, 0, key)
        elif kind is slice:
            if array.ndim and key.step is None and _integer_bounds(key):
                size = array.shape[0]
                start, stop, _ = key.indices(size)
                stop = stop if stop > start else start
                return _slice.tensor(mode, array[start:stop], self, 0, start, stop, 1)
        elif kind is Tensor and array.ndim and key._array.ndim and key._array.dtype.char == "l" and (
                key._array.__class__ is array.__class__):
            return index_row(self, [key])
        elif kind is tuple:
            if mode or edge_of(self) is None:
                made = _basic_view(array, key)
                if made is not None:
                    return mark_view(wrap(made), self)
            elif (steps := _basic_steps(array.shape, key)) is not None:
                view = self
                for r, given, part in steps:
                    view = r.tensor(mode, view._array[part], view, *given)
                return view
    if _overrides.active:
        done, value = _overrides.dispatch(Tensor.__getitem__, (self, key), {})
        if done:
            return value
    if state.recorder is not None and _position(key):
        made = state.recorder.picked(index_row, self, key)
        if made is not None:
            return made
    view, indices = resolve(self, key)
    if indices:
        return index_row(view, indices)
    return ROWS["alias"](self) if view is self else view


def _position(key: Any) -> bool:
    """Whether a key is a tensor that holds a number."""
    return key.__class__ is Tensor and not key._array.ndim and key._array.dtype.char in "lihb"


def _step(view: Tensor, name: str, given: dict[str, Any], key: tuple[Any, ...]) -> Tensor:
    """One view of a chain: as a NumPy key where nothing special is going on, else as the row."""
    mode, array = state.mode, view._array
    if (mode < 2 or mode in FOLLOWED) and viewable(view):
        made, r = array[key], ROWS[name]
        return r.tensor(mode & _state.NO_GRAD, _settled(made) if None in key else made, view, *given.values())
    return ROWS[name](view, *given.values())


def _integer_bounds(key: slice) -> bool:
    return (key.start is None or key.start.__class__ is int) and (key.stop is None or key.stop.__class__ is int)


def _basic_view(array: Any, key: tuple[Any, ...]) -> Any:
    """The view that a key of numbers, slices, None and ... means; None if it is not that simple or out of range."""
    dots = False
    for k in key:
        kind = k.__class__
        if kind not in _BASIC:
            return None
        if kind is slice:
            step = k.step
            if not _integer_bounds(k) or (step is not None and (step.__class__ is not int or step < 1)):
                return None
        elif k is Ellipsis:
            dots = True
    try:
        made = array[key] if dots else array[(*key, ...)]  # with ... NumPy gives a view even of a single element
    except IndexError:
        return None
    return _settled(made) if None in key else made


def _settled(made: Any) -> Any:
    return registry.backend_of(made).settled(made)


def _basic_steps(shape: tuple[int, ...], key: tuple[Any, ...]) -> list[Any] | None:
    """The views that a key of numbers and slices means: their rows, arguments and NumPy keys. None: not that simple."""
    steps: list[Any] = []
    dim = 0
    if len(key) > len(shape):
        return None
    for k, size in zip(key, shape):
        if k.__class__ is int and -size <= k < size:
            steps.append((_select, (dim, k), (*_WHOLE[:dim], k, ...)))
            continue
        if k.__class__ is not slice or k.step is not None:
            return None
        if k.start is not None or k.stop is not None:
            if not _integer_bounds(k):
                return None
            start, stop, _ = k.indices(size)
            if start != 0 or stop != size:
                stop = stop if stop > start else start
                steps.append((_slice, (dim, start, stop, 1), (*_WHOLE[:dim], slice(start, stop))))
        dim += 1
    return steps or None


def resolve(self: Tensor, key: Any) -> tuple[Tensor, list[Any]]:
    """The view that the basic part of a key means, and the index tensors to apply to it (None: a whole dimension)."""
    items = _items(key)
    single = len(items) == 1
    ndim = self.dim()
    specified = sum([_consumes(k) for k in items])
    if ndim == 0 and single and specified == 1 and not isinstance(items[0], (slice, Tensor)):
        raise IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in "
                         "C++ to convert a 0-dim tensor to a number")
    if ndim == 0 and single and isinstance(items[0], slice):
        raise IndexError("slice() cannot be applied to a 0-dim tensor.")
    if specified > ndim:
        raise IndexError(f"too many indices for tensor of dimension {ndim}")
    view, dim, source_dim = self, 0, 0
    found: dict[int, Tensor] = {}
    for k in items:
        if k is Ellipsis:
            dim += ndim - specified
            source_dim += ndim - specified
        elif k is None:
            view = _step(view, "unsqueeze", {"dim": dim}, (*_WHOLE[:dim], None, ...))
            dim += 1
        elif isinstance(k, slice):
            view = _sliced(view, dim, k, single)
            dim += 1
            source_dim += 1
        elif isinstance(k, Tensor) and (k.dim() or (type(k._array) is BatchedArray and not _is_truth(k))):
            found[dim] = k
            dim += _consumes(k)
            source_dim += _consumes(k)
        elif _is_truth(k):
            view = _step(view, "unsqueeze", {"dim": dim}, (*_WHOLE[:dim], None, ...))
            found[dim] = wrap(_asarray([0] if bool(k) else [], _INT64))
            dim += 1
        else:
            view = _selected(view, dim, source_dim, k)
            source_dim += 1
    if found and type(view._array) is not ndarray:
        found = {d: i.to(view.device) for d, i in found.items()}  # positions may be given on the CPU
    return view, _slots(found)


def _slots(found: dict[int, Tensor]) -> list[Any]:
    """Index tensors by dimension as a list with None for whole dimensions; a mask stands for all its dimensions."""
    out: list[Any] = []
    at = 0
    for dim in sorted(found):
        out += [None] * (dim - at)
        out.append(found[dim])
        at = dim + _consumes(found[dim])
    return out


def _items(key: Any) -> list[Any]:
    """The parts of a key, with lists and arrays as tensors."""
    if isinstance(key, tuple):
        return [_item(k) for k in key]
    if isinstance(key, list) and _stands_for_tuple(key):
        warnings.warn("Using a non-tuple sequence for multidimensional indexing is deprecated and will be changed in "
                      "pytorch 2.9; use x[tuple(seq)] instead of x[seq]. In pytorch 2.9 this will be interpreted as "
                      "tensor index, x[torch.tensor(seq)], which will result either in an error or a different result",
                      UserWarning, stacklevel=4)
        return [_item(k) for k in key]
    return [_item(key)]


def _stands_for_tuple(key: list[Any]) -> bool:
    return len(key) < 32 and any(
        k is None or k is Ellipsis or isinstance(k, (slice, Tensor, list, tuple, range)) for k in key)


def _item(k: Any) -> Any:
    """One part of a key: None, ..., slice, bool, an integer or a tensor."""
    if k is None or k is Ellipsis or k.__class__ in (int, bool) or isinstance(k, (slice, int)):
        return k
    if isinstance(k, Tensor):
        if k.dtype not in _INDEX_DTYPES and not (k.dim() == 0 and k._array.dtype.kind in "iu"):
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        if k.dtype is _dtypes.uint8 and k.dim():
            warnings.warn("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.",
                          UserWarning, stacklevel=5)
        return k
    if type(k) is ndarray or (getattr(k, "ndim", None) == 0 and hasattr(k, "dtype")):
        return _item(wrap(_asarray(k).copy() if state.mode & FOLLOW else _asarray(k)))  # its owner may change it
    if hasattr(k, "__index__"):
        return k
    if isinstance(k, (float, complex)) or not hasattr(k, "__len__"):
        raise IndexError("only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid "
                         f"indices (got {type(k).__name__})")
    if isinstance(k, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(k).__name__}'")
    made = tensor(list(k), dtype=None if len(k) else _dtypes.int64)
    # Other numbers in a list are cut to integers.
    return _item(made if made.dtype in _INDEX_DTYPES else made.to(_dtypes.int64))


def _is_truth(k: Any) -> bool:
    return k is True or k is False or (isinstance(k, Tensor) and k.dtype in (_dtypes.bool_, _dtypes.uint8))


def _consumes(k: Any) -> int:
    """How many dimensions of the tensor a part of a key uses up."""
    if k is None or k is Ellipsis or k is True or k is False:
        return 0
    if isinstance(k, Tensor) and k.dtype in (_dtypes.bool_, _dtypes.uint8):
        return k.dim()
    return 1


def _selected(view: Tensor, dim: int, source_dim: int, k: Any) -> Tensor:
    i = int(k.item()) if isinstance(k, Tensor) else k.__index__()
    size = view._array.shape[dim]
    if not -size <= i < size:
        raise IndexError(f"index {i} is out of bounds for dimension {source_dim} with size {size}")
    return _step(view, "select", {"dim": dim, "index": i}, (*_WHOLE[:dim], i, ...))


def _sliced(view: Tensor, dim: int, k: slice, single: bool) -> Tensor:
    step = 1 if k.step is None else _bound(k.step)
    if step == 0:
        raise ValueError("slice step cannot be zero")
    if step < 0:
        raise ValueError("step must be greater than zero")
    size = view._array.shape[dim]
    start, stop, _ = slice(_bound(k.start), _bound(k.stop)).indices(size)
    if start == 0 and stop == size and step == 1 and not single:
        return view
    given = {"dim": dim, "start": start, "end": max(start, stop), "step": step}
    return _step(view, "slice", given, (*_WHOLE[:dim], slice(start, max(start, stop), step)))


def _bound(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(value.item())
    try:
        return value.__index__()
    except AttributeError:
        raise TypeError("slice indices must be integers or None or have an __index__ method") from None


# ------------------------------------------------------------------------------------------------------ x[key] = value
def setitem(self: Tensor, key: Any, value: Any) -> None:
    """x[key] = value, through the same views and rows as x[key]."""
    if _written_directly(self, key, value):
        return
    if _overrides.active:
        done, _ = _overrides.dispatch(Tensor.__setitem__, (self, key, value), {})
        if done:
            return
    if not isinstance(value, (Tensor, int, float, complex)):
        raise TypeError(f"can't assign a {_type_path(value)} to a {self.type()}")
    if state.recorder is not None and _position(key) and self._array.ndim and type(self._array) is type(key._array):
        view, indices = self, [key]  # the program looks at the position
        value = value.to(self.dtype) if isinstance(value, Tensor) else value
    else:
        view, indices = (self, ()) if _names_all(self, key) else resolve(self, key)
    if indices:
        if not _has_false(key):
            _put_values(view, indices, value)
        return
    if isinstance(value, Tensor):
        value = _without_leading_ones(value, view.dim())
    else:
        value = number_for(self.dtype, value, halves=False)
    if isinstance(value, Tensor) and (value.dim() or view is not self):
        view.copy_(value)
    elif isinstance(value, Tensor) or view is not self:
        view.fill_(value)
    else:
        view.fill_(wrap(_asarray(value, self._array.dtype)).to(self.device))  # which PyTorch's graph shows


def _names_all(self: Tensor, key: Any) -> bool:
    """Whether a key is nothing but slices over all there is, `...` at the end: no view is made of it."""
    parts = key if key.__class__ is tuple else (key,)
    if parts and parts[-1] is ...:
        parts = parts[:-1]
    shape = self._array.shape
    return len(parts) <= len(shape) and all([
        k.__class__ is slice and k.indices(n) == (0, n, 1) for k, n in zip(parts, shape)])


def _has_false(key: Any) -> bool:
    return any(k is False for k in (key if isinstance(key, tuple) else (key,)))


def _type_path(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _put_values(view: Tensor, indices: list[Any], value: Any) -> None:
    if not isinstance(value, Tensor):
        value = wrap(_asarray(number_for(view.dtype, value, halves=False), view._array.dtype))
    elif value.dim():
        value = _without_leading_ones(value, 0)
    write_row(view, index_put_row, (indices, matched(view, indices, value), False))


def _without_leading_ones(value: Tensor, ndim: int) -> Tensor:
    """Length-1 dimensions in front of a value do not count, however many there are."""
    shape = value._array.shape
    first = 0
    while len(shape) - first > ndim and shape[first] == 1:
        first += 1
    return value.reshape(shape[first:]) if first else value


def matched(self: Tensor, indices: list[Any], values: Tensor) -> Tensor:
    """Values of the target's dtype; a zero-dim value under masks alone may have another."""
    if values.dtype is not self.dtype:
        if values.dim() == 0 and all(i is None or i.dtype is _dtypes.bool_ for i in indices):
            return values.to(self.dtype)
        index_put_row(self.detach(), indices, self.new_zeros(values.shape), False)  # a wrong shape is reported first
        raise RuntimeError("Index put requires the source and destination dtypes match, got "
                           f"{_type_word(self.dtype)} for the destination and {_type_word(values.dtype)} for the source.")
    return values


def _written_directly(self: Tensor, key: Any, value: Any) -> bool:
    """Writes a number or a tensor at a basic key where no gradient is involved; False if that is not the case."""
    mode, array = state.mode, self._array
    if mode > 1 or self._inference or self._creation or type(array) is not ndarray or 0 in array.strides or not (
            self.__class__ is Tensor or self.__class__ is Parameter):
        return False
    kind = value.__class__
    if kind is float or kind is int:
        char = array.dtype.char
        if char in "fd":
            if not -3e38 < value < 3e38:
                return False
        elif char != "l" or kind is float or not -(1 << 63) <= value < 1 << 63:
            return False
    elif kind is Tensor:
        value = value._array if mode & _state.NO_GRAD or edge_of(value) is None else None
        if value is None or type(value) is not ndarray or (value.dtype.kind in COMPLEX and array.dtype.kind not in COMPLEX):
            return False
    else:
        return False
    if not mode and (edge_of(self) is not None or (self._base is not None and self._base._node is not None)):
        return False
    target = _basic_view(array, key if key.__class__ is tuple else (key,))
    if target is None or not array.ndim:
        return False
    try:
        target[...] = value
    except ValueError:
        return False  # the shapes do not fit: the slow way says so in PyTorch's words
    bump(self)
    return True


_RANGES = {"float16": 65504.0, "bfloat16": 3.3895e38, "float32": 3.4028235e38}


def number_for(dtype: Any, value: Any, halves: bool = True) -> Any:
    """A Python number as an element of dtype; RuntimeError if it does not fit.

    halves=False: too large a number for a half type becomes infinite, as it does in x[key] = number.
    """
    error = RuntimeError(f"value cannot be converted to type {dtype.scalar_word} without overflow")
    if dtype.is_complex:
        return value
    if isinstance(value, complex):
        if value.imag:
            raise error
        value = value.real
    if dtype is _dtypes.bool_:
        return bool(value)
    if dtype.is_floating_point:
        if (isinstance(value, float) and math.isinf(value)) or value != value:
            return float(value)
        if abs(value) > _RANGES.get(dtype.name, math.inf):
            if halves or dtype.itemsize > 2:
                raise error
            return math.copysign(math.inf, value)
        return float(value)
    if not _item_fits(value, dtype.native):
        raise error
    value, info = int(value), _dtypes.iinfo(dtype)
    return value % (info.max + 1) if value < 0 and not info.min else value


Tensor.__getitem__ = getitem
Tensor.__setitem__ = setitem


# --------------------------------------------------------------------------------------------------- public operations
def _index_list(indices: Any, name: str) -> list[Any]:
    if isinstance(indices, Tensor) or not isinstance(indices, (tuple, list)):
        raise TypeError(f"{name}(): argument 'indices' must be tuple of Tensors, not {type(indices).__name__}")
    out = []
    for i in indices:
        if i is not None and not isinstance(i, Tensor):
            i = _item(i if isinstance(i, (list, tuple)) else [i])
        elif i is not None:
            _item(i)
        out.append(i)
    return out


@public(toplevel=False, method=False, out=False)
def index(input: Tensor, indices: Any) -> Tensor:
    """aten's index: one tensor or None per dimension."""
    return index_row(input, _index_list(indices, "index"))


@writing(inplace="function")
def index_put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Any:
    """input with input[indices] replaced by values, or with values added to it."""
    found = _index_list(indices, "index_put")
    return index_put_row, found, matched(input, found, values), bool(accumulate)


def _check_long(name: str, index: Any) -> None:
    if not isinstance(index, Tensor):
        raise TypeError(f"{name}(): argument 'index' must be Tensor, not {type(index).__name__}")
    if index.dtype is not _dtypes.int64:
        raise RuntimeError(f"{name}(): Expected a long tensor for index, but got {_type_word(index.dtype)}")


@public(out="exact apart")
def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements by their position in the flattened tensor."""
    _check_long("take", index)
    if input.numel() == 0 and index.numel():
        raise IndexError("take(): tried to take from an empty tensor")
    return _take(input, index)


@writing
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Any:
    """input with the elements at flat positions replaced by those of source (or added to)."""
    _check_long("put_", index)
    if source.dtype is not input.dtype:
        raise RuntimeError(f"put_(): self and source expected to have the same dtype, but got self.dtype = "
                           f"{input.dtype.word} and source.dtype = {source.dtype.word}")
    if index.numel() and not input.numel():
        raise IndexError("put_(): Tried to put elements into an empty tensor")
    if index.numel() != source.numel():
        raise IndexError("put_(): Expected source and index to have the same number of elements, but got "
                         f"source.numel() = {source.numel()}, index.numel() = {index.numel()}")
    if not accumulate:
        alert_not_deterministic("put_")
    return _put, index, source, bool(accumulate)


@public(method=False, out=False)
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """The coordinates, in a tensor of the given shape, of positions in its flattened form."""
    if not isinstance(indices, Tensor) or indices._array.dtype.kind not in "iu":
        kind = indices.dtype if isinstance(indices, Tensor) else type(indices).__name__
        raise TypeError(f"expected 'indices' to be integer dtype, but got {kind}")
    if not isinstance(shape, (int, tuple, list)):
        raise TypeError(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    for n in sizes:
        if not isinstance(n, int):
            raise TypeError(f"expected 'shape' sequence to only contain ints, but got {type(n)}")
    if any(n < 0 for n in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {tuple(sizes)}")
    out: list[Tensor] = []
    step, indices = 1, indices.long()
    for n in reversed(sizes):
        out.append((indices // step if step != 1 else indices) % n)
        step *= n
    if not out:
        return ()
    return stack(out[::-1], -1).unbind(-1)  # views of one tensor, as PyTorch's are


from . import masks, scatter  # noqa: E402,F401  (they need the rows above)
