"""Making tensors from data, shapes and other tensors.

Every factory says where (`device`, or the default device), of what (`dtype`) and in which layout; the arrays themselves
come from that device's backend, which checks sizes before it allocates.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

from ..autograd import state as _state
from ..autograd.cuts import CUT, DATA, note
from ..backends import registry
from ..backends.cpu import creation as _cpu
from ..ops.core.row import FUNCTIONS, _type_word, check_dtype, public
from ..tensors import dtypes as _dtypes
from ..tensors.device import defaults, to_device
from ..tensors.dtypes import dtype as _dtype
from ..tensors.formats import contiguous_format, preserve_format, sparse_coo, sparse_csc, sparse_csr
from ..tensors.interop import asarray as convert
from ..tensors.tensor import Tensor, wrap
from .like import empty_like, full_like, like, ones_like, zeros_like  # noqa: F401  (factories too: they are found here)
from .literals import from_data, from_native
from .options import (
    _deliver,
    _fits,
    _into,
    _keyword,
    _side,
    _sizes,
    _unset,
    check_options,
    element_type,
    factory,
    finish,
    format_order,
    get_default_device,
    pinned_if,
    place,
    read_size,
    scalar,
    set_default_device,
)

__all__ = ["set_default_device", "get_default_device"]


def _sparse_zeros(name: str, shape: Any, dtype: Any, device: Any, requires_grad: bool, layout: Any) -> Any:
    """A sparse tensor without any elements."""
    made = FUNCTIONS["sparse_coo_tensor"](shape, device=device, dtype=element_type(dtype, name) or _dtypes.get_default_dtype())
    made = made if layout is sparse_coo else made.to_sparse(layout=layout)
    return made.requires_grad_(True) if requires_grad else made


# ----------------------------------------------------------------------------------------------- filled with one value
def _filled(name: str, size: tuple[int, ...], value: Any, out: Any, dtype: Any, layout: Any, device: Any,
            requires_grad: Any, pin_memory: Any) -> Tensor:
    if layout is not None or pin_memory:
        if layout in (sparse_coo, sparse_csr, sparse_csc) and not value:
            return _sparse_zeros(name, size, dtype, device, requires_grad, layout)
        check_options(name, layout, pin_memory, True)
    dtype = element_type(dtype, name)
    if out is not None:
        dtype = _into(name, out, dtype, device)
        device = out.device
    native = (dtype or _dtypes.get_default_dtype()).native
    backend = place(device)
    array = backend.zeros(size, native) if value == 0 else backend.full(size, native, value)
    return _deliver(name, pinned_if(pin_memory, array), out, requires_grad)


@public(**factory)
def zeros(*size, out=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False,
          **named) -> Tensor:
    """A tensor of zeros."""
    shape = _sizes("zeros", size, _keyword("zeros", named))
    return _filled("zeros", shape, 0, out, dtype, layout, device, requires_grad, pin_memory)


@public(**factory)
def ones(*size, out=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False,
         **named) -> Tensor:
    """A tensor of ones."""
    shape = _sizes("ones", size, _keyword("ones", named))
    return _filled("ones", shape, 1, out, dtype, layout, device, requires_grad, pin_memory)


@public(**factory)
def full(size, fill_value, *, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False,
         names=None) -> Tensor:
    """A tensor filled with one value; its kind decides the dtype unless one is given."""
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"full(): argument 'size' (position 1) must be tuple of ints, not {type(size).__name__}")
    shape = read_size("full", tuple(size), single=True)
    value = scalar("full", "fill_value", fill_value)
    dtype = element_type(dtype, "full")
    if out is None and dtype is None:
        dtype = _dtypes.of_python(value)
    check_options("full", layout, pin_memory, True)
    if out is not None:
        dtype = _into("full", out, dtype, device)
        device = out.device
    if dtype.itemsize != 2 or not dtype.is_floating_point or math.prod(shape) != 1:  # one number is not looked at there
        _fits(value, dtype)
    return _deliver("full", pinned_if(pin_memory, place(device).full(shape, dtype.native, value)), out, requires_grad)


@public(**factory)
def empty(*size, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False,
          memory_format=contiguous_format, **named) -> Tensor:
    """A tensor of whatever its memory holds."""
    shape = _sizes("empty", size, _keyword("empty", named))
    if layout in (sparse_coo, sparse_csr, sparse_csc):
        return _sparse_zeros("empty", shape, dtype, device, requires_grad, layout)
    check_options("empty", layout, pin_memory, True)
    dtype = element_type(dtype, "empty")
    if out is not None:
        dtype = _into("empty", out, dtype, device)
        if out.shape != shape:
            out.resize_(tuple(shape))
        return _unset(out)
    native = (dtype or _dtypes.get_default_dtype()).native
    backend = place(device)
    if memory_format is contiguous_format or memory_format is None:
        return _unset(finish(pinned_if(pin_memory, backend.empty(shape, native)), requires_grad))
    if memory_format is preserve_format:
        raise RuntimeError("unsupported memory format Preserve: empty() has no tensor to take the format from")
    array = backend.ordered(shape, format_order(memory_format, len(shape)), native)
    return _unset(finish(pinned_if(pin_memory, array), requires_grad))


@public(**factory)
def empty_strided(size, stride, *, dtype=None, layout=None, device=None, requires_grad=False,
                  pin_memory=False) -> Tensor:
    """Uninitialised memory with the given strides."""
    check_options("empty_strided", layout, pin_memory)
    shape = read_size("empty_strided", tuple(size), single=True)
    steps = tuple(int(s) for s in stride)
    if len(shape) != len(steps):
        raise RuntimeError(f"dimensionality of sizes ({len(shape)}) must match dimensionality of strides ({len(steps)})")
    if any(s < 0 for s in steps):
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)} and strides={list(steps)}: "
                           "strides must not be negative")
    native = (element_type(dtype, "empty_strided") or _dtypes.get_default_dtype()).native
    return _unset(finish(place(device).empty_strided(shape, steps, native), requires_grad))


@public(**factory)
def empty_permuted(size, physical_layout, *, dtype=None, layout=None, device=None, requires_grad=False,
                   pin_memory=False) -> Tensor:
    """Uninitialised dense memory whose dimensions lie in the given order, slowest first."""
    check_options("empty_permuted", layout, pin_memory)
    shape, order = read_size("empty_permuted", tuple(size), single=True), tuple(int(d) for d in physical_layout)
    if len(shape) != len(order):
        raise RuntimeError("Number of dimensions in size does not match the length of the physical_layout; i.e. "
                           f"len(size) = {len(shape)} is not equal to len(physical_layout) = {len(order)}")
    for d in order:
        if not 0 <= d < len(shape):
            raise RuntimeError(f"Dimension out of range (expected to be between 0 and {len(shape) - 1}, but got {d}); "
                               "negative dims are currently not supported.")
    if len(set(order)) != len(order):
        raise RuntimeError("Duplicate dim not allowed")
    native = (element_type(dtype, "empty_permuted") or _dtypes.get_default_dtype()).native
    return _unset(finish(place(device).ordered(shape, order, native), requires_grad))


@public(toplevel=False, out=False)
def new_empty_strided(self, size, stride, dtype=None, layout=None, device=None, requires_grad=False,
                      pin_memory=False) -> Tensor:
    """Uninitialised memory with the given strides, of this tensor's dtype and device.

    >>> torch.ones(1).new_empty_strided((2, 2), (1, 2)).stride()
    (1, 2)
    """
    return empty_strided(size, stride, dtype=dtype or self.dtype, layout=layout, device=device or self.device,
                         requires_grad=requires_grad, pin_memory=pin_memory)


# ------------------------------------------------------------------------------------------------------ from data
@public(**factory)
def tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False) -> Tensor:
    """A new leaf with a copy of the data: numbers, nested sequences of them, arrays, other tensors."""
    d = element_type(dtype, "tensor")
    if isinstance(data, Tensor):
        warnings.warn("To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
                      "sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor).",
                      UserWarning, stacklevel=3)
        made = _copied(data, d, device, requires_grad)
        return _noted(made, data) if _state.anomaly_was_on else made
    if pin_memory:
        check_options("tensor", None, pin_memory, True)
    if hasattr(data, "untyped"):
        data = _stored(data, d)
    elif hasattr(data, "__cuda_array_interface__"):
        made = asarray(data, dtype=d, device=device, copy=True)
        return made.requires_grad_(True) if requires_grad else made
    made = finish(pinned_if(pin_memory, _placed(_read(data, d), device)), requires_grad)
    return _noted(made, data) if _state.anomaly_was_on else made


def _noted(made: Tensor, data: Any) -> Tensor:
    """A tensor made of data, which may be values of other tensors: says so if a gradient is asked of it (autograd/cuts.py)."""
    if not _state.state.mode & _state.ANOMALY:
        return made
    if isinstance(data, Tensor) and data.requires_grad:
        return note(made, "new", "torch.tensor(...), which copies values into a new tensor,", CUT)
    return note(made, "new", "a tensor made by torch.tensor(...)", DATA)


def _stored(storage: Any, d: _dtype | None) -> Any:
    """The elements of a storage, as an array of the dtype that was asked for."""
    from ..tensors.storage import TypedStorage
    own = storage.dtype if isinstance(storage, TypedStorage) else d or _dtypes.uint8
    if d is not None and own is not d:
        raise RuntimeError(f"Expected a Storage of type {_type_word(d)} or an UntypedStorage, but got {_type_word(own)}")
    raw = storage.untyped()
    count = raw.nbytes() // own.itemsize
    return raw.array(own.native, (count,), (1,))


def _copied(source: Tensor, d: _dtype | None, device: Any, requires_grad: Any) -> Tensor:
    array = source._array
    backend = registry.backend_of(array)
    made = backend.copy(array, d.native if d is not None else array.dtype)
    if device is not None or defaults.stack or defaults.device is not None:
        made = registry.move(made, place(device))
    return finish(made, requires_grad)


def _placed(array: Any, device: Any) -> Any:
    backend = place(device)
    return array if backend is registry.cpu else registry.move(array, backend)


def _read(data: Any, d: _dtype | None) -> Any:
    """A fresh CPU array of whatever was given."""
    if _cpu.is_array(data):
        from_native(data.dtype)
        return _cpu.copy(_cpu.foreign(data), d.native if d is not None else None)
    if not isinstance(data, (list, tuple, int, float, complex)) and hasattr(data,
                                                                            "__array__") and not _cpu.is_scalar(data):
        found = data.__array__()
        if found.dtype.num in _dtypes.BY_NUM:
            return _cpu.copy(found, d.native if d is not None else None)
    return from_data(data, d)


@public(**factory)
def as_tensor(data, dtype=None, device=None) -> Tensor:
    """The data as a tensor, without a copy where the memory can be shared."""
    d = element_type(dtype, "as_tensor")
    if isinstance(data, Tensor):
        changed = d is not None and d is not data.dtype
        moved = device is not None and to_device(device).type != data.device.type
        if not changed and not moved:
            return data
        return data.to(device=to_device(device) if device is not None else data.device, dtype=d or data.dtype)
    if _cpu.is_array(data):
        from ..tensors.interop import from_numpy
        made = from_numpy(data, _warn=False)
        if d is not None and d is not made.dtype:
            made = wrap(_cpu.copy(made._array, d.native))
        return wrap(_placed(made._array, device))
    if hasattr(data, "__cuda_array_interface__"):
        return asarray(data, dtype=d, device=device)
    return finish(_placed(_read(data, d), device))


@public(**factory)
def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=None) -> Tensor:
    """Any array-like object as a tensor; shares its memory unless copy=True (copy=False insists on sharing)."""
    return convert(obj, element_type(dtype, "asarray"), device, copy, requires_grad)


@public(**factory)
def scalar_tensor(s, *, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False) -> Tensor:
    """A zero-dim tensor of a number, in the default dtype."""
    check_options("scalar_tensor", layout, pin_memory)
    value = scalar("scalar_tensor", "s", s)
    d = element_type(dtype, "scalar_tensor") or _dtypes.get_default_dtype()
    _fits(value, d)
    return finish(place(device).full((), d.native, value), requires_grad)


@public(toplevel=False, out=False)
def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False) -> Tensor:
    """A copy of the data, of this tensor's dtype and device."""
    d = element_type(dtype, "new_tensor") or self.dtype
    device = self.device if device is None else device
    if isinstance(data, Tensor):
        warnings.warn("To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
                      "sourceTensor.detach().clone().requires_grad_(True), rather than "
                      "tensor.new_tensor(sourceTensor).", UserWarning, stacklevel=3)
        return _copied(data, d, device, requires_grad)
    return finish(_placed(_read(data, d), device), requires_grad)


# --------------------------------------------------------------------------------------------------- number sequences
@public(**factory)
def arange(*bounds, start=None, end=None, step=None, out=None, dtype=None, layout=None, device=None,
           requires_grad=False, pin_memory=False) -> Tensor:
    """start, start + step, ... up to but not including end; integers unless a bound is a float."""
    first, last, by = _bounds("arange", bounds, start, end, step)
    d = element_type(dtype, "arange")
    if out is not None:
        d = _into("arange", out, d, device)
        device = out.device
    elif d is None:
        d = _dtypes.get_default_dtype() if any(v.__class__ is float for v in (first, last, by)) else _dtypes.int64
    check_options("arange", layout, pin_memory)
    if d is _dtypes.bool_ or d.is_complex:
        raise NotImplementedError(f'"arange_cpu" not implemented for \'{_type_word(d)}\'')
    first, by, count = _count("arange", first, last, by, d)
    if by == 0:  # a step below 1, cut to an integer
        return _deliver("arange", place(device).full((count,), d.native, first), out, requires_grad, sequence=True)
    return _deliver("arange", place(device).arange(first, by, count, d.native), out, requires_grad, sequence=True)


def _bounds(name: str, bounds: tuple[Any, ...], start: Any, end: Any, step: Any) -> tuple[Any, Any, Any]:
    if len(bounds) == 1 and start is None:
        first, last, by = 0, bounds[0], 1 if step is None else step
        if end is not None:
            first, last = bounds[0], end
    elif len(bounds) == 2 and start is None and end is None:
        (first, last), by = bounds, 1 if step is None else step
    elif len(bounds) == 3 and start is end is step is None:
        first, last, by = bounds
    elif not bounds and end is not None:
        first, last, by = 0 if start is None else start, end, 1 if step is None else step
    else:
        raise TypeError(f"{name}() received an invalid combination of arguments: expected (end), (start, end) or "
                        f"(start, end, step), got {len(bounds)} positional")
    if first.__class__ is last.__class__ is by.__class__ is int:
        return first, last, by
    values = []
    for argument, value in (("start", first), ("end", last), ("step", by)):
        value = scalar(name, argument, value)
        if value.__class__ is complex:
            raise RuntimeError(f"value cannot be converted to type double without overflow: {argument}={value}")
        values.append(int(value) if value.__class__ is bool else value)
    return tuple(values)


def _count(name: str, first: Any, last: Any, by: Any, d: _dtype, inclusive: bool = False) -> tuple[Any, Any, int]:
    """How many steps fit, computed as PyTorch does: exactly for integers, in double precision otherwise."""
    for value in (first, last):
        if value.__class__ is float and (value != value or value in (float("inf"), float("-inf"))):
            raise RuntimeError(f"unsupported range: {first} -> {last}")
    if by == 0:
        raise RuntimeError("step must be nonzero")
    if (by > 0 and last < first) or (by < 0 and last > first):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    integral = not (d.is_floating_point or d.is_complex)
    if inclusive:
        if integral:
            first, last, by = int(first), int(last), int(by)
        return first, by, int((last - first) / by) + 1
    if d is _dtypes.int64:
        first, last, by = int(first), int(last), int(by)
        if by == 0:
            raise ValueError("step must be nonzero")
        return first, by, max(0, -((first - last) // by))
    count = (last - first) / by
    count = max(0, int(count) + (count > int(count)))
    return (int(first), int(by), count) if integral else (first, by, count)


@public(**factory, name="range")
def range_(start=0, end=None, step=1, *, out=None, dtype=None, layout=None, device=None, requires_grad=False) -> Tensor:
    """Like arange, but up to and including end (kept for old programs)."""
    warnings.warn("torch.range is deprecated and will be removed in a future release because its behavior is "
                  "inconsistent with Python's range builtin. Instead, use torch.arange, which produces values in "
                  "[start, end).", UserWarning, stacklevel=3)
    if end is None:
        start, end = 0, start
    first, last, by = _bounds("range", (start, end, step), None, None, None)
    d = element_type(dtype, "range")
    d = _into("range", out, d, device) if out is not None else d or _dtypes.get_default_dtype()
    check_options("range", layout, False)
    first, by, count = _count("range", first, last, by, d, inclusive=True)
    return _deliver("range", place(device).arange(first, by, count, d.native), out, requires_grad, sequence=True)


def _end(name: str, argument: str, value: Any) -> Any:
    """A number; of a tensor without memory only its kind is known."""
    return scalar(name, argument, 0j if value.is_complex() else 0.0) if isinstance(value, Tensor) and value.is_meta else scalar(
        name, argument, value)


def _ends(name: str, start: Any, end: Any, steps: Any, dtype: Any, out: Any, device: Any) -> tuple[Any, Any, int, _dtype]:
    if any(isinstance(v, Tensor) and v.dim() for v in (start, end)):
        dims = [v.dim() if isinstance(v, Tensor) else 0 for v in (start, end)]
        raise RuntimeError(f"{name} only supports 0-dimensional start and end tensors, but got start with {dims[0]} "
                           f"dimension(s) and end with {dims[1]} dimension(s).")
    first, last = [_end(name, "start", start), _end(name, "end", end)]
    if isinstance(steps, (bool, float)) or not hasattr(steps, "__index__"):
        given = ", ".join([type(v).__name__ for v in (start, end, steps)])
        raise TypeError(f"{name}() received an invalid combination of arguments - got ({given}), but expected steps as an int")
    steps = steps.__index__()
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    d = element_type(dtype, name)
    if out is not None:
        d = _into(name, out, d, device)
    elif d is None:
        d = _dtypes.get_default_dtype()
        if complex in (first.__class__, last.__class__):
            d = d.to_complex()
    check_dtype(f"{name}_cpu", d, "ifc")
    return first, last, steps, d


@public(**factory)
def linspace(start, end, steps, *, out=None, dtype=None, layout=None, device=None, requires_grad=False,
             pin_memory=False) -> Tensor:
    """`steps` numbers evenly spaced from start to end, both included."""
    first, last, steps, d = _ends("linspace", start, end, steps, dtype, out, device)
    check_options("linspace", layout, pin_memory)
    backend = place(device if out is None else out.device)
    return _deliver("linspace", backend.linspace(first, last, steps, d.native), out, requires_grad, sequence=True)


@public(**factory)
def logspace(start, end, steps, base=10.0, *, out=None, dtype=None, layout=None, device=None, requires_grad=False,
             pin_memory=False) -> Tensor:
    """base to the power of `steps` numbers evenly spaced from start to end."""
    first, last, steps, d = _ends("logspace", start, end, steps, dtype, out, device)
    check_options("logspace", layout, pin_memory)
    backend = place(device if out is None else out.device)
    base = scalar("logspace", "base", base)
    if steps == 1 and not (d.is_floating_point or d.is_complex):  # PyTorch fills with it, and looks
        try:
            value = float(base) ** float(first)
        except OverflowError:
            value = math.inf
        _fits(value, d)
    array = backend.logspace(first, last, steps, base, d.native)
    return _deliver("logspace", array, out, requires_grad, sequence=True)


@public(**factory)
def eye(n, m=None, *, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False) -> Tensor:
    """Ones on the diagonal, zeros elsewhere."""
    rows = _side("eye", "n", n)
    columns = rows if m is None else _side("eye", "m", m)
    for argument, value in (("n", rows), ("m", columns)):
        if value < 0:
            raise RuntimeError(f"{argument} must be greater or equal to 0, got {value}")
    check_options("eye", layout, pin_memory)
    d = element_type(dtype, "eye")
    d = _into("eye", out, d, device) if out is not None else d or _dtypes.get_default_dtype()
    check_dtype("eye", d, "bifc")
    backend = place(device if out is None else out.device)
    return _deliver("eye", backend.eye(rows, columns, d.native), out, requires_grad)


def _triangle(name: str, row: Any, col: Any, offset: int, dtype: Any, layout: Any, device: Any, lower: bool) -> Tensor:
    row, col = _side(name, "row", row), _side(name, "col", col)
    for argument, value in (("row", row), ("col", col)):
        if value < 0:
            raise RuntimeError(f"{argument} must be non-negative, got {value}")
    d = element_type(dtype, name) or _dtypes.int64
    if d not in (_dtypes.int64, _dtypes.int32):
        raise NotImplementedError(f'"{name}" not implemented for \'{_type_word(d)}\'')
    check_options(name, layout, False)
    if place(device).NAME == "meta":
        return wrap(place(device).empty((2, _triangle_size(row, col, int(offset), lower)), d.native))
    return wrap(_placed(_cpu.tri_indices(row, col, int(offset), d.native, lower), device))


def _triangle_size(row: int, col: int, offset: int, lower: bool) -> int:
    """How many elements the lower (upper) triangle of a matrix has."""
    if not lower:
        return row * col - _triangle_size(row, col, offset - 1, True)
    rising = range(max(0, -offset), min(row, max(0, col - offset)))  # rows whose length is their number + offset + 1
    first, last = (rising[0], rising[-1]) if rising else (0, -1)
    return (first + last + 2 * offset + 2) * len(rising) // 2 + col * max(0, row - max(0, col - offset))


@public(**factory)
def tril_indices(row, col, offset=0, *, dtype=None, layout=None, device=None, pin_memory=None) -> Tensor:
    """Row and column numbers of a matrix's lower triangle, as two rows."""
    return _triangle("tril_indices", row, col, offset, dtype, layout, device, True)


@public(**factory)
def triu_indices(row, col, offset=0, *, dtype=None, layout=None, device=None, pin_memory=None) -> Tensor:
    """Row and column numbers of a matrix's upper triangle, as two rows."""
    return _triangle("triu_indices", row, col, offset, dtype, layout, device, False)


@public(method=False, out=False)
def vander(x, N=None, increasing=False) -> Tensor:
    """The matrix of powers of a vector, highest first unless `increasing`."""
    if x.dim() != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    count = x.shape[0] if N is None else int(N)
    if count < 0:
        raise RuntimeError("N must be non-negative.")
    if not (x.is_floating_point() or x.is_complex()):
        x = x.to(_dtypes.int64)
    shape = (x.shape[0], count)
    out = ones(shape, dtype=x.dtype, device=x.device)
    if count > 1:
        powers = x.unsqueeze(-1).expand(x.shape[0], count - 1).cumprod(-1)
        from ..ops.core.row import FUNCTIONS
        out = FUNCTIONS["cat"]([out[:, :1], powers], 1)
    return out if increasing else out.flip(1)
