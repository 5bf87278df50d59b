"""dtype, device and memory-format conversion; clone, detach, and writing one tensor into another."""

from __future__ import annotations

from typing import Any

from ...autograd import state as _state
from ...autograd.cuts import inherit, note
from ...autograd.node import bump, start_counter, type_name
from ...autograd.state import NO_GRAD, state
from ...autograd.views import check_creation, check_inplace, set_history, written
from ...backends import registry
from ...backends.cpu.creation import item_fits as _item_fits
from ...backends.dtypes import COMPLEX
from ...backends.pending import window_of
from ...backends.strides import CHANNEL_ORDER
from ...backends.strides import format_strides as dense_format
from ...tensors import dtypes as _dtypes
from ...tensors import pinning
from ...tensors.device import CPU, to_device
from ...tensors.device import device as _device
from ...tensors.formats import contiguous_format, memory_format, preserve_format
from ...tensors.parameter import Parameter
from ...tensors.shapes import broadcast_shapes
from ...tensors.tensor import Tensor, wrap, wrap_as
from .. import rules
from ..core.row import NO_RECORD, Row, alias_of, check_overlap, check_writable, moving, public, row
from ..rules import moves

ndarray = registry.CPU_ARRAY
_FEW = 1 << 15
_LARGEST = 3e38  # of single precision, nearly
_REAL = frozenset((bool, int, float))

# fmt: off
_clone = moving("clone", "self format", copies=True, batch="cloned", shape=moves.copy,
                backward={"self": lambda grad: grad}, forward="linear")
_to_copy = moving("_to_copy", "self dtype format", copies=True, batch="cloned", shape=moves.copy_as,
                  node="ToCopyBackward0", forward="linear",
                  backward={"self": lambda grad: grad})
_move = row("_move", "self origin dtype", node="ToCopyBackward0", backward={"self": lambda grad, origin: grad.to(origin)})
_copy = row("copy", "self src", batch="filled", node="CopyBackwards",
            backward={"self": lambda grad: _zeros(grad), "src": lambda grad: grad})
_fill_number = moving("fill_number", "self value", batch="filled", shape=rules.alike, kernel="fill", node="FillBackward2",
                      backward={"self": lambda grad: _zeros(grad)})
_fill_tensor = row("fill_tensor", "self value", moves=True, kernel="fill", node="FillBackward3",
                   backward={"self": lambda grad: _zeros(grad), "value": lambda grad: grad.sum()})
_zero = row("zero", "self", node="ZeroBackward0", backward={"self": lambda grad: _zeros(grad)})
_fill_copy_number = row("fill", "self value", moves=True, node="FillBackward0", backward={"self": lambda grad: _zeros(grad)})
_fill_copy_tensor = row("fill_copy_tensor", "self value", moves=True, kernel="fill", node="FillBackward1",
                        backward={"self": lambda grad: _zeros(grad), "value": lambda grad: grad.sum()})
# fmt: on


def _zeros(grad: Tensor) -> Tensor:
    from ...creation.like import zeros_like
    return zeros_like(grad)


# ------------------------------------------------------------------------------------------------ memory formats
def format_name(fmt: Any, default: str = "preserve") -> str:
    """"preserve", "contiguous", "channels_last" or "channels_last_3d"."""
    if fmt is None:
        return default
    name = fmt.name if isinstance(fmt, memory_format) else fmt
    if not isinstance(name, str):
        raise TypeError(f"memory_format must be torch.memory_format, not {type(fmt).__name__}")
    return name.removesuffix("_format")


def check_format(name: str, ndim: int) -> None:
    order = CHANNEL_ORDER.get(name)
    if order is not None and len(order) != ndim:
        raise RuntimeError(f"required rank {len(order)} tensor to use {name} format, got a tensor of {ndim} dimensions")


def format_strides(shape: tuple[int, ...], name: str) -> tuple[int, ...]:
    """The strides of a dense tensor in the given format."""
    check_format(name, len(shape))
    return dense_format(shape, name)


def suggested_format(tensor: Tensor) -> str:
    """The format that the strides look like: a channels-last one, or contiguous."""
    shape, strides = tensor._array.shape, tensor.stride()
    for name, order in CHANNEL_ORDER.items():
        if len(shape) == len(order) and strides[1] and _like_order(shape, strides, order):
            return name
    return "contiguous"


def _like_order(shape, strides, order) -> bool:
    low = 0
    for i in reversed(order):
        if shape[i] == 0 or strides[i] < low or (i == 0 and low == strides[1]):
            return False
        low = strides[i] * max(shape[i], 1)
    return True


def _is_contiguous(self: Tensor, memory_format: Any = contiguous_format) -> bool:
    """Whether the elements lie in memory in the order of the format, without gaps."""
    name = format_name(memory_format, "contiguous")
    if name in ("contiguous", "preserve"):
        array = self._array
        return array.flags.c_contiguous if type(array) in registry.WINDOWS else registry.backend_of(array).is_contiguous(array)
    shape, strides, order = self._array.shape, self.stride(), CHANNEL_ORDER[name]
    if len(shape) != len(order):
        return False
    expected = 1
    for i in reversed(order):
        if shape[i] != 1:
            if strides[i] != expected:
                return False
            expected *= shape[i]
    return True


is_contiguous = public(_is_contiguous, name="is_contiguous", toplevel=False, out=False)


@public(toplevel=False, out=False)
def contiguous(self: Tensor, memory_format: Any = contiguous_format) -> Tensor:
    """The tensor itself if it is contiguous in the given format, else a copy that is."""
    if memory_format is contiguous_format and type(self._array) in registry.WINDOWS and self._array.flags.c_contiguous:
        return self
    name = format_name(memory_format, "contiguous")
    check_format(name, self._array.ndim)
    return self if _is_contiguous(self, memory_format) else _clone(self, name)


@public
def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy with its own memory, through which gradients flow."""
    name = format_name(memory_format)
    check_format(name, input._array.ndim)
    return _clone(input, name)


# --------------------------------------------------------------------------------------------------------- detach
@public(out=False)
def detach(input: Tensor) -> Tensor:
    """The same memory without history; in-place changes of either are noticed by both."""
    if input._counter is None:
        start_counter(input)
    made = wrap(input._array)
    made._counter = input._counter
    if made._inference is not input._inference:
        made._inference = input._inference
    if _state.anomaly_was_on and state.mode & _state.ANOMALY:
        note(made, "detach", "detach()") if input.requires_grad else inherit(made, input)
    return made


def _detach_(self: Tensor) -> Tensor:
    """Cuts the tensor off its history, in place."""
    if self._base is not None:
        raise RuntimeError("Can't detach views in-place. Use detach() instead. If you are using "
                           "DistributedDataParallel (DDP) for training, and gradient_as_bucket_view is set as True, "
                           "gradients are views of DDP buckets, and so detach_() cannot be called on these gradients.")
    if self._counter is None:
        start_counter(self)  # its node may have saved it: later changes must be noticed
    self._node = None
    self._retains = False
    self._tangent = None
    return self


public(_detach_, name="detach_", out=False)


# ------------------------------------------------------------------------------------------------------ conversion
_warned: list[str] = []  # as in PyTorch, once per process


def convert(self: Tensor, dtype: Any, device: Any, copy: bool = False, memory_format: Any = None,
            non_blocking: bool = False) -> Tensor:
    """What `to` comes down to: self when nothing changes, else a copy."""
    name = format_name(memory_format)
    native = self._array.dtype if dtype is None else dtype.native
    if device is not None and device != self.device and (device := registry.placed(device)) != self.device:
        return _moved(self, native, device, name, non_blocking)
    if native is self._array.dtype or native == self._array.dtype:
        if not copy and (name == "preserve" or name == suggested_format(self)):
            return self
    check_format(name, self._array.ndim)
    if self._array.dtype.kind in COMPLEX and native.kind not in "cWb" and not _warned:
        _warned.append("complex")
        import warnings
        warnings.warn("Casting complex values to real discards the imaginary part", UserWarning, stacklevel=3)
    if state.mode <= NO_GRAD and self.__class__ is Tensor and type(self._array) is ndarray and (
            not self.requires_grad and _to_copy.cpu is not None):
        return wrap(_to_copy.cpu(self._array, native, name))  # nothing to record: images and labels on their way in
    if state.mode == NO_GRAD and self.__class__ is Tensor and type(self._array) in registry.EAGER:
        return wrap(registry.EAGER[type(self._array)]("_to_copy", self._array, native, name))
    return _to_copy(self, native, name)


def _moved(self: Tensor, native: Any, device: Any, name: str, non_blocking: bool) -> Tensor:
    target = registry.backend_for(device)
    if self.device.type == "meta":
        raise NotImplementedError("Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() "
                                  "instead of torch.nn.Module.to() when moving module from meta to a different device.")
    if device.type == "meta":
        strides = self.stride() if name == "preserve" else format_strides(self._array.shape, name)
        return _move.finish((self, self.device, native), target.empty_strided(self._array.shape, strides, native))
    before = state.mode
    state.mode |= NO_GRAD  # the copies before and behind it belong to the one that is recorded
    try:
        soon = non_blocking and target.NAME == "cuda" and pinning.is_pinned(self._array)
        array = target.from_pinned(self._array) if soon else registry.move(self._array, target)
        if array.dtype != native or name != "preserve":
            array = _to_copy(wrap(array), native, name)._array
    finally:
        state.mode = before
    return _move.finish((self, self.device, native), array)


@public(toplevel=False, out=False)
def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """to(dtype), to(device, dtype) or to(other): a tensor of that dtype on that device; self if it already is."""
    dtype, device, non_blocking, copy, fmt = parse_to(args, kwargs)
    return convert(self, dtype, device, copy, fmt, non_blocking)


def parse_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, bool, bool, Any]:
    """(dtype, device, non_blocking, copy, memory_format) of any of `to`'s call forms."""
    given, kwargs = kwargs, dict(kwargs)
    fmt = kwargs.pop("memory_format", None)
    dtype = device = None
    rest = list(args)
    if (rest and isinstance(rest[0], Tensor)) or "other" in kwargs or "tensor" in kwargs:
        other = rest.pop(0) if rest else kwargs.pop("other" if "other" in kwargs else "tensor")
        dtype, device = other.dtype, other.device
    elif rest and isinstance(rest[0], _dtypes.dtype):
        dtype = rest.pop(0)
    elif rest and (rest[0] is None or (isinstance(rest[0], (str, _device, int)) and not isinstance(rest[0], bool))):
        first = rest.pop(0)
        device = None if first is None else to_device(first)
        if rest:
            dtype = rest.pop(0)
    if "device" in kwargs:
        where = kwargs.pop("device")
        device = device if where is None else to_device(where)
    dtype = kwargs.pop("dtype", None) or dtype
    flags = {"non_blocking": False, "copy": False, **dict(zip(("non_blocking", "copy"), rest)), **kwargs}
    if (dtype is not None and not isinstance(dtype, _dtypes.dtype)) or len(rest) > 2 or len(flags) > 2 or not all(
            isinstance(flag, bool) for flag in (*rest, *kwargs.values())):
        raise _wrong_to(args, given)
    return dtype, device, flags["non_blocking"], flags["copy"], fmt


def _wrong_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError:
    kinds = [type(a).__name__ for a in args] + [f"{name}={type(value).__name__}" for name, value in kwargs.items()]
    tail = "bool non_blocking = False, bool copy = False, *, torch.memory_format memory_format = None)"
    return TypeError(f"to() received an invalid combination of arguments - got ({', '.join(kinds)}), but expected one of:\n"
                     f" * (torch.device device = None, torch.dtype dtype = None, {tail}\n"
                     f" * (torch.dtype dtype, {tail}\n * (Tensor tensor, {tail}\n")


def _cast(name: str, dtype: Any) -> None:
    native = dtype.native
    common_target = native.char in "fdl"

    def method(self: Tensor, memory_format: Any = None) -> Tensor:
        x = self._array
        if common_target and type(x) is ndarray and x.dtype.kind in "biu" and 1 < x.size < _FEW and memory_format is None and (
                state.mode < 2 and x.flags.c_contiguous and 1 not in x.shape and native is not x.dtype) and (
                    self.__class__ is Tensor):
            return wrap(x.astype(native))  # small pictures and labels: no history to look for
        return convert(self, dtype, None, False, memory_format)

    method.__doc__ = f"The tensor as {dtype.name}."
    public(method, name=name, toplevel=False, out=False)


for _name, _type in {"float": _dtypes.float32, "double": _dtypes.float64, "half": _dtypes.float16, "int": _dtypes.int32,
                     "bfloat16": _dtypes.bfloat16, "long": _dtypes.int64, "short": _dtypes.int16, "char": _dtypes.int8,
                     "byte": _dtypes.uint8, "bool": _dtypes.bool_, "chalf": _dtypes.complex32,
                     "cfloat": _dtypes.complex64, "cdouble": _dtypes.complex128}.items():
    _cast(_name, _type)


@public(toplevel=False, out=False)
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """The tensor with the dtype and device of another."""
    return convert(self, other.dtype, other.device)


_LEGACY = {f"torch.{type_name(d)}": d for d in set(_dtypes.BY_NUM.values())}


def _type(self: Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """Without argument the name of the tensor's type ("torch.FloatTensor"); with one, the tensor as that type."""
    if dtype is None:
        place = "" if self.device.type == "cpu" else f"{self.device.type}."
        return f"torch.{place}{type_name(self.dtype)}"
    where = None
    if isinstance(dtype, str):
        on_cuda, dtype = dtype.startswith("torch.cuda."), dtype.replace("torch.cuda.", "torch.", 1)
        if dtype not in _LEGACY:
            raise ValueError(f"invalid type: '{dtype}'")
        dtype, where = _LEGACY[dtype], _device("cuda") if on_cuda else CPU
    elif not isinstance(dtype, _dtypes.dtype):
        found = getattr(dtype, "dtype", None)  # the legacy classes, torch.DoubleTensor...
        if not isinstance(found, _dtypes.dtype):
            raise TypeError(f"type(): dtype must be a type, str, or dtype object, not {type(dtype).__name__}")
        where = _device("cuda") if getattr(dtype, "is_cuda", False) else CPU
        dtype = found
    return convert(self, dtype, where)


public(_type, name="type", toplevel=False, out=False)


@public(toplevel=False, out=False)
def cpu(self: Tensor, memory_format: Any = preserve_format) -> Tensor:
    """The tensor in CPU memory."""
    return convert(self, None, CPU, False, memory_format)


@public(toplevel=False, out=False)
def cuda(self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = preserve_format) -> Tensor:
    """The tensor on a CUDA device.

    >>> x = torch.ones(2).cuda() if torch.cuda.is_available() else torch.ones(2)
    >>> x.sum().item()
    2.0
    """
    return convert(self, None, _device("cuda") if device is None else to_device(device), False, memory_format, non_blocking)


@public(toplevel=False, out=False)
def is_pinned(self: Tensor, device: Any = None) -> bool:
    """Whether the memory is page-locked.

    >>> torch.ones(2).is_pinned()
    False
    """
    return pinning.is_pinned(self._array)


@public(toplevel=False, out=False)
def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """A copy in page-locked memory, the tensor itself if it is there; needs an accelerator.

    >>> x = torch.ones(2).pin_memory() if torch.cuda.is_available() else torch.ones(2)
    >>> x.sum().item()
    2.0
    """
    return self if pinning.is_pinned(self._array) else wrap_as(type(self), pinning.pinned(self._array))


@public(toplevel=False, out=False)
def record_stream(self: Tensor, s: Any) -> None:
    """Says that a stream uses the tensor's memory: nobody else gets it before what is in the stream now is done.

    >>> if torch.cuda.is_available():
    ...     torch.ones(2, device="cuda").record_stream(torch.cuda.current_stream())
    """
    backend = registry.backend_of(self._array)
    if backend.NAME != "cuda":
        raise NotImplementedError(f"record_stream is of tensors on CUDA devices, not on {self.device}")
    backend.record_stream(self._array, s.cuda_stream)


# ----------------------------------------------------------------------------------------------- writing in place
def _unrecorded(target: Tensor) -> bool:
    """Whether a plain CPU tensor can be overwritten without a look at the graph."""
    mode = state.mode
    kind = target.__class__
    return mode < 2 and (kind is Tensor or kind is Parameter) and type(target._array) is ndarray and (
        target._array.flags.c_contiguous and not target._inference and (
            mode == 1 or (target._node is None and target._base is None)))


def _overwrite(target: Tensor, operation: Row, args: tuple[Any, ...], value: Any) -> Tensor:
    """target[...] = value (an array or number that is known to fit), recorded as the given row."""
    check_inplace(target)
    if operation is _copy:  # one value for all may be written to elements that share memory
        check_writable(target)
    before = None if state.mode & NO_RECORD else alias_of(target)
    if before is not None and any(isinstance(a, Tensor) and a.requires_grad for a in args):
        check_creation(target)
    registry.write(target._array, value)
    written(target)
    if before is not None:
        after = wrap(target._array)
        operation.record(after, before, *args)
        if after._node is not None:
            set_history(target, after._node)
    if target._tangent is not None or any(isinstance(a, Tensor) and a._tangent is not None for a in args):
        from ...autograd.forward_mode import copied
        copied(target, args)
    return target


def _copy_(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """Writes the elements of src, broadcast and converted, into self."""
    if not isinstance(src, Tensor):
        if not isinstance(src, (int, float, complex)):
            raise TypeError(f"copy_(): argument 'other' (position 1) must be Tensor, not {type(src).__name__}")
        src = wrap(registry.cpu.asarray(src))
    if self is src:
        return self
    shape = self._array.shape
    if self._array.base is not None or src._array.base is not None:
        check_overlap(window_of(self._array), (window_of(src._array),))
    if src._array.shape == shape and type(src._array) is ndarray and _unrecorded(self) and (
            state.mode == 1 or (src._node is None and src._base is None)) and self._tangent is None:
        registry.cpu.write(self._array, src._array)
        bump(self)
        return self
    if src._array.shape != shape and broadcast_shapes_or_raise(shape, src._array.shape) != shape:
        raise RuntimeError(f"output with shape {list(shape)} doesn't match the broadcast shape "
                           f"{list(broadcast_shapes(shape, src._array.shape))}")
    if src.device != self.device:
        if self.device.type == "meta":
            return self
        src = convert(src, None, self.device)  # of a meta tensor: says that there is nothing to copy
    return _overwrite(self, _copy, (src,), src._array)


def broadcast_shapes_or_raise(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """broadcast_shapes with the message that operations on two tensors give."""
    from .families import broadcast_error
    try:
        return broadcast_shapes(a, b)
    except RuntimeError:
        raise broadcast_error(a, b) from None


public(_copy_, name="copy_", toplevel=False, out=False)


@public(out=False)
def fill(input: Tensor, value: Any) -> Tensor:
    """A tensor like input, filled with value."""
    if isinstance(value, Tensor):
        _check_fill(value)
        return _fill_copy_tensor(input, value)
    return _fill_copy_number(input, value)


def _check_fill(value: Tensor) -> None:
    if value._array.ndim:
        raise RuntimeError("fill_ only supports 0-dimension value tensor but got tensor with "
                           f"{value._array.ndim} dimensions.")


def _fill_(self: Tensor, value: Any) -> Tensor:
    """Writes one value into every element."""
    if value.__class__ in (float, int) and _unrecorded(self) and self._array.dtype.char in "fd" and abs(value) < _LARGEST:
        self._array.fill(value)
        bump(self)
        return self
    if isinstance(value, Tensor):
        _check_fill(value)
        return _overwrite(self, _fill_tensor, (value,), value._array)
    if not isinstance(value, (bool, int, float, complex)) and not hasattr(value, "__float__"):
        raise TypeError(f"fill_(): argument 'value' (position 1) must be Number, not {type(value).__name__}")
    return _overwrite(self, _fill_number, (value,), filler(self, value))


def filler(self: Tensor, value: Any) -> Any:
    """A number as a zero-dim array that can be written into self; it must fit, fractions are cut."""
    from .families import number
    if isinstance(value, complex) and not self.is_complex():
        if value.imag:
            raise RuntimeError("value cannot be converted to type "
                               f"{self.dtype.name} without overflow: it has an imaginary part")
        value = value.real
    native = self._array.dtype
    one_half = self._array.size == 1 and native.itemsize == 2 and self.is_floating_point()  # PyTorch does not look at it
    if value.__class__ in _REAL and not one_half and not _item_fits(value, native):  # (others belong to a compiled call)
        raise RuntimeError(f"value cannot be converted to type {self.dtype.scalar_word} without overflow: {value}")
    return number(int(value) if native.kind in "iu" else value, native)


def _zero_(self: Tensor) -> Tensor:
    """Writes zeros."""
    if _unrecorded(self):
        self._array.fill(0)
        bump(self)
        return self
    return _overwrite(self, _zero, (), 0)


public(_fill_, name="fill_", out=False)
public(_zero_, name="zero_", out=False)

__all__ = ["clone", "detach", "to", "contiguous", "convert", "parse_to", "format_name", "format_strides"]
