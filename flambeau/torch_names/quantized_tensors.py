"""Quantized tensors: integers with a scale and a zero point, for the whole tensor or per channel; and rounding as if quantized.

A QuantizedTensor's `_array` holds the integers. What keeps them as they are (views, copies, indexing) works on them; other
operations say that they are missing: `dequantize()` makes an ordinary tensor.
"""

from __future__ import annotations

from typing import Any

from .autograd.function import Function
from .creation.factories import as_tensor, tensor
from .missing import MissingDtype, qscheme
from .ops.core import overrides as _overrides
from .ops.core.row import public
from .tensors import dtypes as _dtypes
from .tensors.printing import add_suffixes
from .tensors.tensor import Tensor, wrap

_KINDS = {"qint8": (_dtypes.int8, -128, 127), "quint8": (_dtypes.uint8, 0, 255),
          "qint32": (_dtypes.int32, -2**31, 2**31 - 1)}
_SAME = frozenset("""view reshape transpose permute t flatten contiguous clone detach unsqueeze squeeze select narrow chunk
    split unflatten swapaxes swapdims movedim ravel view_as reshape_as expand index_select unbind __getitem__""".split())
_WHOLE = frozenset("clone detach contiguous".split())  # what keeps channels where they are


def _package() -> Any:
    import sys
    return sys.modules[__package__]


class QuantizedTensor(Tensor):
    """A tensor of dtype qint8, quint8 or qint32."""

    _answers_itself = True

    _without_overrides = False
    is_quantized = True
    requires_grad = False
    is_leaf = True
    grad = grad_fn = None

    @property
    def dtype(self) -> Any:
        return self._dtype

    def int_repr(self) -> Tensor:
        return wrap(self._array.copy())

    def qscheme(self) -> qscheme:
        return _package().per_tensor_affine if self._axis is None else _package().per_channel_affine

    def _need(self, channels: bool) -> None:
        if channels is (self._axis is None):
            wanted = "kPerChannelAffine" if channels else "kPerTensorAffine"
            raise RuntimeError(f"Expected quantizer->qscheme() == {wanted} to be true, but got false: the tensor is quantized "
                               f"{'as a whole' if channels else 'per channel'}")

    def q_scale(self) -> float:
        self._need(False)
        return self._scale

    def q_zero_point(self) -> int:
        self._need(False)
        return self._zero_point

    def q_per_channel_scales(self) -> Tensor:
        self._need(True)
        return self._scale.clone()

    def q_per_channel_zero_points(self) -> Tensor:
        self._need(True)
        return self._zero_point.clone()

    def q_per_channel_axis(self) -> int:
        self._need(True)
        return self._axis

    def dequantize(self) -> Tensor:
        scale, zero = _spread(self._scale, self._zero_point, self._axis, self._array.ndim)
        return (wrap(self._array).to(_dtypes.float32) - zero) * scale

    def _with(self, integers: Tensor) -> QuantizedTensor:
        return make(integers, self._dtype, self._scale, self._zero_point, self._axis)

    @property
    def T(self) -> QuantizedTensor:
        return self.permute(*range(self.ndim - 1, -1, -1))

    def numpy(self, **kwargs: Any) -> Any:
        words = {"qint8": "QInt8", "quint8": "QUInt8", "qint32": "QInt32"}
        raise TypeError(f"Got unsupported ScalarType {words[self._dtype.name]}: int_repr() and dequantize() make ordinary "
                        "tensors")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", str(func)), kwargs or {}
        first = args[0] if args else None
        if isinstance(first, QuantizedTensor):
            if name in QuantizedTensor.__dict__:
                return getattr(first, name)(*args[1:], **kwargs)
            if name in _SAME and (first._axis is None or name in _WHOLE):
                made = getattr(wrap(first._array), name)(*args[1:], **kwargs)
                return tuple(map(first._with, made)) if isinstance(made, (tuple, list)) else first._with(made)
        if name in ("equal", "eq", "ne", "allclose") and len(args) > 1:
            return _compared(name, func, args, kwargs)
        if name == "dequantize":
            return type(first)([t.dequantize() for t in first])
        raise NotImplementedError(f"{name}: not implemented for quantized tensors in flambeau; dequantize() makes an ordinary "
                                  "tensor")

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        shown = repr(self.dequantize()) if self.numel() else "tensor([])"
        text = tensor_contents or shown[len("tensor("):-1]
        scheme = [f"scale={self._scale}", f"zero_point={self._zero_point}"]
        scheme += [] if self._axis is None else [f"axis={self._axis}"]
        suffixes = [f"size={tuple(self.shape)}", f"dtype={self.dtype}", f"quantization_scheme={self.qscheme()}", *scheme]
        return add_suffixes("tensor(" + text, suffixes, len("tensor("))

    def __deepcopy__(self, memo: Any) -> QuantizedTensor:
        return self.clone()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return make, (wrap(self._array), self._dtype, self._scale, self._zero_point, self._axis)


def _compared(name: str, func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    both = [a for a in args[:2] if isinstance(a, QuantizedTensor)]
    if name == "equal":
        if len(both) < 2 or (both[0].dtype, both[0]._axis) != (both[1].dtype, both[1]._axis):
            return False
        alike = all([as_tensor(a).equal(as_tensor(b)) for a, b in ((both[0]._scale, both[1]._scale), (
            both[0]._zero_point, both[1]._zero_point))])
        return alike and wrap(both[0]._array).equal(wrap(both[1]._array))
    return func(*[a.dequantize() if isinstance(a, QuantizedTensor) else a for a in args], **kwargs)


def make(integers: Tensor, dtype: Any, scale: Any, zero_point: Any, axis: int | None = None) -> QuantizedTensor:
    """A quantized tensor over integers, which are not copied."""
    _overrides.activate()
    t = object.__new__(QuantizedTensor)
    t._array = integers._array
    t._node = t._counter = None
    t._dtype, t._scale, t._zero_point, t._axis = dtype, scale, zero_point, axis
    return t


def _spread(scale: Any, zero_point: Any, axis: int | None, ndim: int) -> tuple[Any, Any]:
    """Scale and zero point as they are used: of channels, in a shape that lines up with them."""
    if axis is None:
        return scale, zero_point
    shape = [1] * ndim
    shape[axis] = -1
    return scale.to(_dtypes.float32).reshape(shape), zero_point.to(_dtypes.float32).reshape(shape)


def _checked(input: Tensor, dtype: Any) -> tuple[Any, int, int]:
    if not isinstance(dtype, MissingDtype) or dtype.name not in _KINDS:
        if isinstance(dtype, MissingDtype) and dtype.name.startswith("quint"):
            raise NotImplementedError(f"tensors of dtype {dtype} are not implemented in flambeau: qint8, quint8 and qint32 are")
        raise RuntimeError(f"ScalarType {getattr(dtype, 'word', dtype)} is not supported in new_qtensor.")
    if input.dtype is not _dtypes.float32:
        raise RuntimeError(f"Quantize only works on Float Tensor, got {input.dtype.word}")
    return _KINDS[dtype.name]


def _integers(input: Tensor, scale: Any, zero: Any, low: int, high: int) -> Tensor:
    """The nearest whole number to input / scale + zero, within a range, as floats. (PyTorch multiplies with the inverse of the
    scale in single precision, and counts what is not a number as the lowest.)"""
    inverse = as_tensor(scale).to(_dtypes.float32).reciprocal()
    moved = input.detach() * inverse + zero
    if high > 2**24:  # single precision has no room for the ends of 32 bits
        moved = moved.to(_dtypes.float64)
    return moved.round().nan_to_num(float(low), float(high), float(low)).clamp(low, high)


@public(method=False, toplevel=False, out=False, also={"tensors": "input", "scales": "scale", "zero_points": "zero_point"})
def quantize_per_tensor(input: Any, scale: Any, zero_point: Any, dtype: Any) -> Any:
    """The tensor in integers of dtype (qint8, quint8, qint32): x / scale + zero_point, rounded. Of lists: each with its own.

    >>> torch.quantize_per_tensor(torch.tensor([-1.0, 0.26]), 0.1, 3, torch.qint8).int_repr()
    tensor([-7,  6], dtype=torch.int8)
    """
    if isinstance(input, (list, tuple)):
        return tuple([quantize_per_tensor(t, s, z, dtype) for t, s, z in zip(input, scale, zero_point)])
    stored, low, high = _checked(input, dtype)
    scale = float(scale.item() if isinstance(scale, Tensor) else scale)
    zero_point = int(zero_point.item() if isinstance(zero_point, Tensor) else zero_point)
    for wrong, bound in ((zero_point > high, "above upper"), (zero_point < low, "below lower")):
        if wrong:
            raise RuntimeError(f"quantize_tensor_per_tensor_affine zero_point {zero_point} is {bound} bound.")
    return make(_integers(input, scale, zero_point, low, high).to(stored), dtype, scale, zero_point)


def quantize_per_channel(input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: Any) -> QuantizedTensor:
    """The same with a scale and a zero point for each place along a dimension.

    >>> torch.quantize_per_channel(torch.eye(2), torch.tensor([0.5, 0.25]), torch.tensor([0, 1]), 0, torch.quint8).int_repr()
    tensor([[2, 0],
            [1, 5]], dtype=torch.uint8)
    """
    stored, low, high = _checked(input, dtype)
    if not -input.ndim <= axis < input.ndim:
        raise RuntimeError(f"Channel axis out of range in per channel affine quantization. Got: {axis} Expected: [0, "
                           f"{input.ndim})")
    axis %= input.ndim
    for name, given in (("scale", scales), ("zero_points", zero_points)):
        if given.ndim != 1 or given.shape[0] != input.shape[axis]:
            raise RuntimeError(f"length of {name} must equal to channel, expected {input.shape[axis]} got {given.numel()}")
    scale, zero = _spread(scales, zero_points, axis, input.ndim)
    return make(_integers(input, scale, zero, low, high).to(stored), dtype, scales.detach().to(_dtypes.float64),
                zero_points.detach().to(_dtypes.int64), axis)


def quantize_per_tensor_dynamic(input: Tensor, dtype: Any, reduce_range: bool) -> QuantizedTensor:
    """Quantized with the scale and the zero point that fit the range of the tensor (reduce_range: in one bit less).

    >>> torch.quantize_per_tensor_dynamic(torch.tensor([-1.0, 2.0]), torch.quint8, False).q_zero_point()
    85
    """
    from .backends.cpu.linalg.quantized import parameters
    _, low, high = _checked(input, dtype)
    if dtype.name == "qint32":
        raise RuntimeError("dtype QInt32 not supported")
    if reduce_range:
        low, high = low // 2, high // 2
    ends = input.aminmax() if input.numel() else (tensor(0.0), tensor(0.0))
    return quantize_per_tensor(input, *parameters(ends[0].item(), ends[1].item(), low, high), dtype)


def _make_per_tensor_quantized_tensor(input: Tensor, scale: float, zero_point: int) -> QuantizedTensor:
    """A quantized tensor over the given integers.

    >>> torch._make_per_tensor_quantized_tensor(torch.tensor([4], dtype=torch.int8), 0.5, 0).dequantize()
    tensor([2.])
    """
    return make(input.clone(), _of(input), float(scale), int(zero_point))


def _make_per_channel_quantized_tensor(input: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> QuantizedTensor:
    """The same with a scale and a zero point per channel.

    >>> q = torch._make_per_channel_quantized_tensor(torch.tensor([4], dtype=torch.int8), torch.ones(1), torch.zeros(1), 0)
    >>> q.dequantize()
    tensor([4.])
    """
    return make(input.clone(), _of(input), scale.to(_dtypes.float64), zero_point.to(_dtypes.int64), axis)


def _of(integers: Tensor) -> Any:
    for name, (stored, _, _) in _KINDS.items():
        if integers.dtype is stored:
            return getattr(_package(), name)
    raise RuntimeError(f"a quantized tensor holds int8, uint8 or int32, not {integers.dtype}")


# ------------------------------------------------------------------------------------------------- as if it were quantized
class FakeQuantizePerTensorAffineCachemask(Function):
    """Rounds to what integers from low to high can stand for; the gradient passes where nothing was cut off."""

    @staticmethod
    def forward(ctx, input, scale, zero_point, axis, low, high):
        scale, zero = _spread(scale, zero_point, axis, input.ndim)
        inverse = as_tensor(scale).to(_dtypes.float32).reciprocal()
        q = (input.to(_dtypes.float32) * inverse + zero).round()
        ctx.save_for_backward((q >= low) & (q <= high))
        kept = q.nan_to_num(float(low), float(high), float(low)).clamp(low, high)
        return ((kept - zero) * scale).to(input.dtype)

    @staticmethod
    def backward(ctx, grad):
        inside, = ctx.saved_tensors
        return (grad * inside, None, None, None, None, None)


class FakeQuantizePerChannelAffineCachemask(FakeQuantizePerTensorAffineCachemask):
    """The same per channel."""


def _check_range(low: int, high: int) -> None:
    if low > high:
        raise RuntimeError(f"`quant_min` should be less than or equal to `quant_max`, got {low} and {high}.")


def fake_quantize_per_tensor_affine(input: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Tensor:
    """The tensor as it would come back from integers quant_min to quant_max; gradients pass where it is in their range.

    >>> torch.fake_quantize_per_tensor_affine(torch.tensor([0.26, 9.0]), 0.1, 0, -8, 7)
    tensor([0.3000, 0.7000])
    """
    _check_range(quant_min, quant_max)
    scale = float(scale.item() if isinstance(scale, Tensor) else scale)
    zero_point = int(zero_point.item() if isinstance(zero_point, Tensor) else zero_point)
    if not quant_min <= zero_point <= quant_max:
        raise RuntimeError("`zero_point` must be between `quant_min` and `quant_max`.")
    return FakeQuantizePerTensorAffineCachemask.apply(input, scale, zero_point, None, quant_min, quant_max)


def fake_quantize_per_channel_affine(input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int,
                                     quant_max: int) -> Tensor:
    """The same with a scale and a zero point for each place along a dimension.

    >>> scale, zero = torch.tensor([0.1, 1.0]), torch.zeros(2, dtype=torch.int32)
    >>> torch.fake_quantize_per_channel_affine(torch.tensor([0.26, 0.6]), scale, zero, 0, -8, 7)
    tensor([0.3000, 1.0000])
    """
    _check_range(quant_min, quant_max)
    if scale.ndim != 1 or zero_point.ndim != 1:
        raise RuntimeError("scale and zero-point should be 1-D tensors")
    if not 0 <= axis < input.ndim:
        raise RuntimeError(f"`axis` must be between 0 and number of dimensions of input, got {axis}")
    if scale.shape[0] != input.shape[axis] or zero_point.shape[0] != scale.shape[0]:
        raise RuntimeError("dimensions of scale and zero-point are not consistent with input tensor")
    return FakeQuantizePerChannelAffineCachemask.apply(input, scale, zero_point, axis, quant_min, quant_max)
