"""Complex numbers: parts, conjugates, angles, and the views between complex and real tensors."""

from __future__ import annotations

from typing import Any

from ...autograd.state import state
from ...backends import pending, registry
from ...tensors import dtypes as _dtypes
from ...tensors.tensor import Tensor
from .. import rules
from ..core.row import FUNCTIONS, Row, _type_word, check_dtype, moving, public
from .families import Pointwise, unary
from .functions import masked, nothing


def _parts(grad: Any) -> tuple[Any, Any]:
    if grad.is_complex():
        return grad.real, grad.imag
    return grad, nothing(grad)


def _sgn_self(grad: Any, self: Any, result: Any) -> Any:
    """Only turning counts: the part of the gradient along the value itself drops out."""
    if not self.is_complex():
        return nothing(grad)
    size = self.abs()
    turned = grad / size - result * (grad / self).real
    return masked(turned, size != 0)


def _angle_self(grad: Any, self: Any) -> Any:
    if not self.is_complex():
        return nothing(grad)
    size = self.real * self.real + self.imag * self.imag
    return masked(complex_(-self.imag, self.real) / size * grad, size != 0)


def _conj(x: Any) -> Any:
    return x.conj() if x.is_complex() else x


class Flip(Row):
    """The row of a view that differs from its tensor in a bit alone: no kernel runs (backends/pending.py)."""

    def __init__(self, name: str, args: str, *, conj: bool = False, neg: bool = False, **options: Any):
        super().__init__(name, args, view=True, **options)
        self.conj, self.neg = conj, neg

    def __call__(self, tensor: Any) -> Any:
        made = pending.flipped(tensor._array, self.conj, self.neg)
        if state.mode < 2 and not tensor._inference:
            return self.tensor(state.mode, made, tensor)
        return self.finish((tensor,), made)


# fmt: off
sgn = unary("sgn", takes="bifch", backward=_sgn_self, kind="same", inplace=True, c="(a > 0) - (a < 0)")
_angle = Pointwise("angle", "self", kind="float", backward=dict(self=_angle_self))
_conj_view = Flip("conj_view", "self", conj=True, node="ConjBackward0", backward=dict(self=lambda grad: _conj(grad)))
_neg_view = Flip("neg_view", "self", neg=True, backward=dict(self=lambda grad: grad.neg()))
_conj_physical = Pointwise("conj_physical", "self", kernel="conj", kind="same", takes="ch", safe=True, forward="linear",
                           backward=dict(
    self=lambda grad: _conj_physical(grad) if grad.is_complex() else grad))
_complex = moving("complex", "real imag", batch="pointwise", shape=rules.complex_pair, backward=dict(
    real=lambda grad: _parts(grad)[0], imag=lambda grad: _parts(grad)[1]))
_polar = moving("polar", "abs angle", batch="pointwise", shape=rules.complex_pair, backward=dict(
    abs=lambda grad, result: grad * _conj(result.sgn()), angle=lambda grad, result: grad * _conj(result * 1j)))
_real = Row("real", "self", batch="trailing", view=True, node="SelectBackward0", backward=dict(
    self=lambda grad: complex_(grad, nothing(grad))))
_imag = Row("imag", "self", batch="trailing", view=True, node="SelectBackward0", backward=dict(
    self=lambda grad: complex_(nothing(grad), grad)))
_view_as_real = Row("view_as_real", "self", batch="trailing", view=True, backward=dict(
    self=lambda grad: view_as_complex(grad.contiguous())))
_view_as_complex = Row("view_as_complex", "self", batch="trailing", view=True, backward=dict(
    self=lambda grad: view_as_real(grad.contiguous() if grad.is_complex() else complex_(grad, nothing(grad)))))
# fmt: on


# -------------------------------------------------------------------------------------------------------- views
def _shown_as(base: Any, array: Any) -> Any:
    """The view of a base that shows what an array over its memory does."""
    backend = registry.backend_of(array)
    return base.as_strided(array.shape, backend.strides(array), backend.storage_offset(array))


def _viewed(source: Any, row: Row) -> Any:
    """A view whose dtype or bits differ from its base's: it remembers how to be made again (see autograd/views.py)."""
    before = source._view_fn
    view = row(source)
    if before is not None:
        view._view_fn = lambda base: _viewed(before(base), row)
    elif source._base is not None:
        array = source._array  # whose geometry is asked for if need be
        view._view_fn = lambda base: _viewed(_shown_as(base, array), row)
    else:
        view._view_fn = lambda base: _viewed(base, row)
    return view


@public(method=False, out=False)
def real(input: Any) -> Any:
    """The real part, as a view."""
    return _viewed(input, _real) if input.is_complex() else input


@public(method=False, out=False)
def imag(input: Any) -> Any:
    """The imaginary part, as a view."""
    if not input.is_complex():
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return _viewed(input, _imag)


Tensor.real = property(real, lambda self, value: real(self).copy_(value), doc="The real part, as a view.")
Tensor.imag = property(imag, lambda self, value: imag(self).copy_(value), doc="The imaginary part, as a view.")


@public(method=False, out=False)
def view_as_real(input: Any) -> Any:
    """A complex tensor as a real one with a last dimension of size 2, over the same memory."""
    if not input.is_complex():
        raise RuntimeError("view_as_real is only supported for complex tensors")
    if is_conj(input):
        raise RuntimeError("view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate tensor so "
                           "you can view it as real, use self.resolve_conj(); however, be warned that the resulting tensor "
                           "will NOT alias the original.")
    return _viewed(input, _view_as_real)


@public(method=False, out=False, autocast="float32")
def view_as_complex(input: Any) -> Any:
    """A real tensor with a last dimension of size 2 as a complex one, over the same memory."""
    if input.dtype not in (_dtypes.float32, _dtypes.float64, _dtypes.float16):
        raise RuntimeError(f"view_as_complex is only supported for half, float and double tensors, but got a tensor of "
                           f"scalar type: {input.dtype}")
    if input.ndim == 0:
        raise RuntimeError("Input tensor must have one or more dimensions")
    if input.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    *strides, last = input.stride()
    if last != 1:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    if any(s % 2 for s, n in zip(strides, input.shape) if n > 1):
        raise RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension")
    if input.storage_offset() % 2:
        raise RuntimeError("Tensor must have a storage_offset divisible by 2")
    return _viewed(input, _view_as_complex)


# --------------------------------------------------------------------------------------------------- conjugates
@public(out=False)
def conj(input: Any) -> Any:
    """The complex conjugate, as a view: whoever reads its elements conjugates them. A real tensor is its own."""
    return _viewed(input, _conj_view) if input.is_complex() else input


@public(inplace="function", out="exact")
def conj_physical(input: Any) -> Any:
    """The complex conjugate, computed."""
    return _conj_physical(input) if input.is_complex() else input


@public(out=False)
def resolve_conj(input: Any) -> Any:
    """A copy with conjugated elements where `is_conj()`, else the tensor itself."""
    return input.clone() if is_conj(input) else input


@public(out=False)
def resolve_neg(input: Any) -> Any:
    """A copy with negated elements where `is_neg()`, else the tensor itself."""
    return input.clone() if is_neg(input) else input


@public(out=False)
def is_conj(input: Any) -> bool:
    """Whether the tensor is a view whose elements are conjugated when they are read."""
    return pending.bits(input._array)[0]


@public(out=False)
def is_neg(input: Any) -> bool:
    """Whether the tensor is a view whose elements are negated when they are read."""
    return pending.bits(input._array)[1]


@public(name="_neg_view", out=False)
def neg_view(input: Any) -> Any:
    """The negative, as a view: whoever reads its elements negates them."""
    if input.dtype is _dtypes.bool_:
        raise RuntimeError("Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, "
                           "use the `~` or `logical_not()` operator instead.")
    return _viewed(input, _neg_view)


@public
def angle(input: Any) -> Any:
    """The argument of a complex number; 0 or pi for real ones."""
    return _angle(input)


def _two_floats(name: str, first: Any, second: Any) -> None:
    names = ("abs", "angle") if name == "polar" else ("real", "imag")
    for i, t in enumerate((first, second)):
        if not isinstance(t, Tensor):
            raise TypeError(f"{name}(): argument '{names[i]}' (position {i + 1}) must be Tensor, not {type(t).__name__}")
    for t in (first, second):
        if not t.is_floating_point() or t.dtype is _dtypes.bfloat16:
            raise RuntimeError("Expected both inputs to be Half, Float or Double tensors but got "
                               f"{_type_word(first.dtype)} and {_type_word(second.dtype)}")
    if first.dtype is not second.dtype:
        raise RuntimeError(f"Expected object of scalar type {_type_word(first.dtype)} but got scalar type "
                           f"{_type_word(second.dtype)} for second argument")


@public(name="complex", method=False, out="strict")
def complex_(real: Any, imag: Any) -> Any:
    """real + 1j * imag."""
    _two_floats("complex", real, imag)
    return _complex(real, imag)


@public(method=False, autocast="float32", out="strict")
def polar(abs: Any, angle: Any) -> Any:
    """abs * exp(1j * angle)."""
    _two_floats("polar", abs, angle)
    check_dtype("polar_cpu", abs.dtype, "F")
    return _polar(abs, angle)


# --------------------------------------------------------------------------------------------------- what it holds
@public(out=False)
def isreal(input: Any) -> Any:
    """Whether each element's imaginary part is zero."""
    if input.is_complex():
        return input.imag == 0
    from ...creation.like import ones_like
    return ones_like(input, dtype=_dtypes.bool_)


def _kind_question(name: str) -> None:
    method = getattr(Tensor, name)

    def function(input):
        if not isinstance(input, Tensor):
            raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
        return method(input)

    function.__name__ = function.__qualname__ = name
    function.__module__, function.__doc__ = __package__.partition(".")[0], f"Tensor.{name} as a function."
    FUNCTIONS[name] = function


for _name in ("is_complex", "is_floating_point", "is_signed", "is_inference"):
    _kind_question(_name)
