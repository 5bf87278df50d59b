"""`MaskedTensor`: a tensor some of whose elements are not there. Operations keep the mask; reductions leave them out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import masked as _masked
from .ops.core.export import OUT
from .ops.core.overrides import DisableTorchFunctionSubclass
from .tensors import dtypes as _dtypes
from .tensors.tensor import Tensor

__all__ = ["MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor"]

_SHAPES = frozenset("""__getitem__ view reshape transpose t permute unsqueeze squeeze expand expand_as flatten unflatten
    contiguous clone movedim swapaxes swapdims select narrow unfold T mT""".split())
_KEEP = frozenset("""to float double half bfloat16 int long short detach requires_grad_ to_dense cpu type_as positive
    __neg__ __pos__ __abs__ __invert__""".split())
_REDUCTIONS = frozenset("sum mean amin amax argmin argmax prod var std median logsumexp".split())
_ALONG = frozenset("softmax log_softmax softmin cumsum cumprod".split())
_PLAIN = frozenset("""dim size stride numel is_floating_point is_complex is_contiguous element_size __len__ ndimension
    nelement storage_offset get_device is_signed data_ptr backward register_hook retain_grad __get__ __set__ __hash__
    untyped_storage""".split())


def is_masked_tensor(obj: Any, /) -> bool:
    """Whether an object is a MaskedTensor."""
    return isinstance(obj, MaskedTensor)


def _tensors_match(a: Tensor, b: Tensor, exact: bool = True, rtol: float = 1e-5, atol: float = 1e-8) -> bool:
    """Whether two tensors, neither of them masked, are equal (or close)."""
    if is_masked_tensor(a) or is_masked_tensor(b):
        raise ValueError("Neither `a` nor `b` can be a MaskedTensor.")
    if a.layout != b.layout:
        raise ValueError(f"`a` and `b` must have the same layout. Got {a.layout} and {b.layout}")
    b = b.type(a.dtype)
    parts = {"sparse_coo": ("values", "indices"), "sparse_csr": ("crow_indices", "col_indices", "values")}.get(a.layout.name)
    if parts is not None:
        return all(_tensors_match(getattr(a, part)(), getattr(b, part)(), exact) for part in parts)
    return a.dim() == b.dim() and bool((a == b).all() if exact else a.allclose(b, rtol=rtol, atol=atol))


def _masks_match(a: Any, b: Any) -> bool:
    """Whether two masked tensors have equal masks; others always do."""
    return not (is_masked_tensor(a) and is_masked_tensor(b)) or _tensors_match(a.get_mask(), b.get_mask())


class MaskedTensor(Tensor):
    """Data and a mask of the same shape, True where an element is there."""

    _answers_itself = True

    _mask: Tensor

    @staticmethod
    def __new__(cls, data: Tensor, mask: Tensor, requires_grad: bool = False) -> MaskedTensor:
        _check(data, mask)
        made = Tensor._make_subclass(cls, data.detach().clone(), requires_grad)
        made._mask = mask.detach().clone()
        return made

    def __init__(self, data: Tensor, mask: Tensor, requires_grad: bool = False):
        pass  # __new__ did it

    @classmethod
    def _of(cls, data: Tensor, mask: Tensor) -> MaskedTensor:
        """With the data's history."""
        with DisableTorchFunctionSubclass():
            made = data.as_subclass(cls)
        made._mask = mask
        return made

    def get_data(self) -> Tensor:
        """All elements, also those that are masked out."""
        return self.as_subclass(Tensor)

    def get_mask(self) -> Tensor:
        return self._mask

    def to_tensor(self, value: Any) -> Tensor:
        """A plain tensor with a value in place of what is masked out."""
        return self.get_data().masked_fill(self._mask.logical_not(), value)

    @property
    def grad(self) -> Any:
        found = Tensor.grad.__get__(self)
        return None if found is None else MaskedTensor(found, self._mask)

    @grad.setter
    def grad(self, value: Any) -> None:
        Tensor.grad.__set__(self, value)

    def tolist(self) -> Any:
        raise RuntimeError("tolist() of a MaskedTensor: get_data() and get_mask() have plain lists")

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        with DisableTorchFunctionSubclass():
            values, mask = self.get_data().tolist(), self._mask.tolist()
        if self.ndim == 0:
            return f"MaskedTensor({_shown(values, mask)}, {mask})"
        return f"MaskedTensor(\n{_rows(values, mask, 1)}\n)"

    @classmethod
    def __torch_function__(cls, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        return _apply(func, name, args, kwargs or {})


def _check(data: Any, mask: Any) -> None:
    if not isinstance(data, Tensor):
        raise TypeError("data must be a Tensor")
    if not isinstance(mask, Tensor):
        raise TypeError("mask must be a Tensor")
    if is_masked_tensor(data) or is_masked_tensor(mask):
        raise TypeError("data and mask must be plain tensors")
    if mask.dtype is not _dtypes.bool_:
        raise TypeError("mask must have dtype bool.")
    if data.shape != mask.shape:
        raise ValueError("data.size() must equal mask.size()")


def _data(value: Any) -> Any:
    return value.get_data() if is_masked_tensor(value) else value


def _mask_of(values: Any) -> Tensor:
    """The one mask of all masked arguments."""
    masks = [v._mask for v in values if is_masked_tensor(v)]
    for other in masks[1:]:
        if other is not masks[0] and not other.equal(masks[0]):
            raise ValueError("masked tensors with different masks do not combine: their masks must match")
    return masks[0]


def _apply(func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    base = name.rstrip("_") if name.endswith("_") and not name.endswith("__") else name
    with DisableTorchFunctionSubclass():
        if name in _PLAIN:
            return func(*args, **kwargs)
        if base in _REDUCTIONS:
            return _reduced(base, *args, **kwargs)
        if base in _ALONG:
            self, *rest = args
            return MaskedTensor._of(getattr(_masked, base)(self.get_data(), *rest, **kwargs, mask=self._mask), self._mask)
        if "joined" in OUT.get(base, ()):
            parts, *rest = args
            masks = [p._mask if is_masked_tensor(p) else p == p for p in parts]
            return MaskedTensor._of(func([_data(p) for p in parts], *rest, **kwargs), func(masks, *rest, **kwargs))
        if base in _SHAPES:
            self, *rest = args
            return MaskedTensor._of(func(self.get_data(), *rest, **kwargs), func(self._mask, *rest, **kwargs))
        if base == "where":
            condition, left, right = args
            mask = func(condition, _as_mask(left, condition), _as_mask(right, condition))
            return MaskedTensor._of(func(condition, _data(left), _data(right)), mask)
        return _elementwise(func, name, args, kwargs)


def _as_mask(value: Any, like: Tensor) -> Tensor:
    return value._mask if is_masked_tensor(value) else like | True


def _elementwise(func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Pointwise operations keep the mask; a result of another shape is one that masks have no meaning for."""
    mask = _mask_of((*args, *kwargs.values()))
    made = func(*[_data(a) for a in args], **{k: _data(v) for k, v in kwargs.items()})
    if name.endswith("_") and not name.endswith("__") and is_masked_tensor(args[0]):
        return args[0]
    if not isinstance(made, Tensor):
        return made
    if made.shape != mask.shape and name not in _KEEP:
        raise TypeError(f"no implementation found for '{name}' on MaskedTensor")
    return MaskedTensor._of(made, mask)


def _reduced(name: str, self: MaskedTensor, *args: Any, **kwargs: Any) -> MaskedTensor:
    dim, rest = (args[0], args[1:]) if args else (kwargs.pop("dim", None), ())
    if rest:
        kwargs["keepdim"] = rest[0]
    data = self.get_data()
    made = getattr(_masked, name)(data, *([] if dim is None else [dim]), **kwargs, mask=self._mask)
    if dim is None:
        return MaskedTensor._of(made, self._mask.any())
    left = self._mask
    for d in sorted((d % self.ndim for d in (dim if isinstance(dim, (tuple, list)) else (dim,))), reverse=True):
        left = left.any(d, kwargs.get("keepdim", False))
    return MaskedTensor._of(made, left)


def _shown(value: Any, there: bool) -> str:
    if not there:
        return "--"
    return f"{value:8.4f}" if isinstance(value, float) else str(value)


def _rows(values: Any, mask: Any, depth: int) -> str:
    indent = "  " * depth
    if not values or not isinstance(values[0], list):
        cells = [_shown(v, m) if m else "--".rjust(8) for v, m in zip(values, mask)]
        return f"{indent}[{', '.join(cells)}]"
    inner = ",\n".join(_rows(v, m, depth + 1) for v, m in zip(values, mask))
    return f"{indent}[\n{inner}\n{indent}]"


def masked_tensor(data: Tensor, mask: Tensor, requires_grad: bool = False) -> MaskedTensor:
    """A new leaf of copies of data and mask."""
    return MaskedTensor(data, mask, requires_grad)


def as_masked_tensor(data: Tensor, mask: Tensor) -> MaskedTensor:
    """The data with a mask; gradients flow back to it."""
    _check(data, mask)
    return MaskedTensor._of(data, mask)
