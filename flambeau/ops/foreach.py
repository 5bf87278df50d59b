"""`torch._foreach_*`: one operation over lists of tensors, as optimizers and gradient clipping use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tensor import Tensor
from .exports import FOREACH

FUNCTIONS: dict[str, Callable[..., Any]] = {}


def _checked(name: str, tensors: Any) -> tuple[Tensor, ...]:
    """The list of tensors, or an error that says what came instead."""
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(f"{name}(): argument 'self' (position 1) must be tuple of Tensors, not {type(tensors).__name__}")
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise TypeError(f"{name}(): argument 'self' (position 1) must be tuple of Tensors, but found element of type "
                            f"{type(t).__name__} at pos {i}")
    if not tensors:
        raise RuntimeError("Tensor list must have at least one tensor.")
    return tuple(tensors)


def _spread(name: str, value: Any, count: int, many: bool = False) -> list[Any]:
    """One operand per tensor: from a list of as many, from a number or a tensor of one element (many: or of as many)."""
    if isinstance(value, Tensor):
        if value.ndim and many:
            if value.ndim != 1 or value.shape[0] != count:
                raise RuntimeError(f"Expected length of scalars to match input of length {count} but got "
                                   f"{value.shape[0]} instead.")
            return value.tolist()
        if value.numel() != 1 or value.ndim:
            raise RuntimeError(f"scalar tensor expected to be 0 dim but it has {value.ndim} dimensions and "
                               f"{value.numel()} elements.")
        return [value] * count
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        what = "Tensor lists must have the same number of tensors" if value and isinstance(value[0], Tensor) else (
            "Tensor list must have same number of elements as scalar list")
        raise RuntimeError(f"{what}, got {count} and {len(value)}")
    return list(value)


def _add(name: str, function: Callable[..., Any], inplace: Callable[..., Any] | None) -> None:
    function.__name__ = function.__qualname__ = name
    FUNCTIONS[name] = function
    if inplace is not None:
        inplace.__name__ = inplace.__qualname__ = name + "_"
        FUNCTIONS[name + "_"] = inplace


def _unary(op: str) -> None:
    name = f"_foreach_{op}"
    method, changed = getattr(Tensor, op), getattr(Tensor, op + "_", None)

    def each(named: str, tensors: Any, given: tuple[Any, ...]) -> Any:
        tensors = _checked(named, tensors)
        return zip(tensors, *[_spread(named, v, len(tensors)) for v in given])

    def function(self: Any, *given: Any) -> tuple[Tensor, ...]:
        return tuple([method(*args) for args in each(name, self, given)])

    def inplace(self: Any, *given: Any) -> tuple[Tensor, ...]:
        for args in each(name + "_", self, given):
            changed(*args)
        return tuple(self)

    _add(name, function, inplace if changed is not None else None)


def _limited(op: str) -> Callable[..., Any]:
    """maximum and clamp_max take numbers here as well as tensors."""
    tensor_form = getattr(Tensor, op, None)
    if op not in ("maximum", "minimum"):
        return tensor_form
    number_form = Tensor.clamp_min if op == "maximum" else Tensor.clamp_max
    return lambda t, o: tensor_form(t, o) if isinstance(o, Tensor) else number_form(t, o)


def _binary(op: str) -> None:
    name, method = f"_foreach_{op}", _limited(op)

    def operands(self: Any, given: tuple[Any, ...], options: dict[str, Any]) -> tuple[list[Any], list[Any], dict[str, Any]]:
        for keyword in ("scalar", "scalars", "other", "exponent"):
            if keyword in options:
                given = (*given, options.pop(keyword))
        if len(given) != 1:
            raise TypeError(f"{name}(): expected one operand after the list of tensors, got {len(given)}")
        if isinstance(self, (int, float)) and op == "pow":  # a number to the power of each
            exponents = _checked(name, given[0])
            return [t.new_full((), self) if t.is_floating_point() else t.new_tensor(self) for t in exponents], list(
                exponents), options
        tensors = _checked(name, self)
        return list(tensors), _spread(name, given[0], len(tensors)), options

    def function(self: Any, *given: Any, **options: Any) -> tuple[Tensor, ...]:
        tensors, others, options = operands(self, given, options)
        return tuple([method(t, o, **options) for t, o in zip(tensors, others)])

    def inplace(self: Any, *given: Any, **options: Any) -> tuple[Tensor, ...]:
        tensors, others, options = operands(self, given, options)
        for t, o in zip(tensors, others):
            if op in ("maximum", "minimum"):
                t.copy_(method(t, o))
            else:
                getattr(t, op + "_")(o, **options)
        return tuple(self)

    _add(name, function, inplace)


def _ternary(op: str) -> None:
    name = f"_foreach_{op}"

    def triples(self: Any, tensor1: Any, tensor2: Any, scalars: Any) -> Any:
        tensors = _checked(name, self)
        count = len(tensors)
        return zip(tensors, *[_spread(name, v, count, True) for v in (tensor1, tensor2, scalars)])

    def function(self: Any, tensor1: Any, tensor2: Any, value: Any = 1, *, scalars: Any = None) -> tuple[Tensor, ...]:
        return tuple([getattr(t, op)(a, b, value=v)
                      for t, a, b, v in triples(self, tensor1, tensor2, value if scalars is None else scalars)])

    def inplace(self: Any, tensor1: Any, tensor2: Any, value: Any = 1, *, scalars: Any = None) -> tuple[Tensor, ...]:
        for t, a, b, v in triples(self, tensor1, tensor2, value if scalars is None else scalars):
            getattr(t, op + "_")(a, b, value=v)
        return tuple(self)

    _add(name, function, inplace)


_FORMS = {1: _unary, 2: _binary, 3: _ternary}
for _op, _operands in FOREACH.items():
    _FORMS[_operands](_op)


def _foreach_lerp(self: Any, tensors1: Any, weight: Any = None, *, weights: Any = None) -> tuple[Tensor, ...]:
    """lerp, tensor by tensor."""
    tensors = _checked("_foreach_lerp", self)
    ends, parts = (_spread("_foreach_lerp", v, len(tensors)) for v in (tensors1, weight if weights is None else weights))
    return tuple([t.lerp(e, w) for t, e, w in zip(tensors, ends, parts)])


def _foreach_lerp_(self: Any, tensors1: Any, weight: Any = None, *, weights: Any = None) -> tuple[Tensor, ...]:
    """lerp_, tensor by tensor."""
    tensors = _checked("_foreach_lerp_", self)
    ends, parts = (_spread("_foreach_lerp_", v, len(tensors)) for v in (tensors1, weight if weights is None else weights))
    for t, e, w in zip(tensors, ends, parts):
        t.lerp_(e, w)
    return tensors


def _foreach_norm(self: Any, ord: Any = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The norm of each tensor, taken as a vector."""
    from ..linalg import vector_norm
    return tuple([vector_norm(t, ord, dtype=dtype) for t in _checked("_foreach_norm", self)])


def _foreach_powsum(self: Any, ord: Any = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The sum of |x|**ord of each tensor."""
    return tuple([(t if dtype is None else t.to(dtype)).abs().pow(ord).sum() for t in _checked("_foreach_powsum", self)])


def _foreach_mm(self: Any, mat2: Any) -> tuple[Tensor, ...]:
    """Matrix products, pair by pair."""
    tensors = _checked("_foreach_mm", self)
    return tuple([a.mm(b) for a, b in zip(tensors, _spread("_foreach_mm", mat2, len(tensors)))])


def _foreach_clone(self: Any, *, memory_format: Any = None) -> tuple[Tensor, ...]:
    """A copy of each tensor."""
    tensors = _checked("_foreach_clone", self)
    return tuple([t.clone() if memory_format is None else t.clone(memory_format=memory_format) for t in tensors])


def _foreach_copy_(self: Any, src: Any, non_blocking: bool = False) -> tuple[Tensor, ...]:
    """copy_, pair by pair."""
    tensors = _checked("_foreach_copy_", self)
    for t, s in zip(tensors, _spread("_foreach_copy_", src, len(tensors))):
        t.copy_(s)
    return tensors


def _foreach_zero_(self: Any) -> tuple[Tensor, ...]:
    """Fills every tensor with zeros."""
    for t in _checked("_foreach_zero_", self):
        t.zero_()
    return tuple(self)


for _function in (_foreach_lerp, _foreach_lerp_, _foreach_norm, _foreach_powsum, _foreach_mm, _foreach_clone,
                  _foreach_copy_, _foreach_zero_):
    FUNCTIONS[_function.__name__] = _function
NAMES = tuple(FUNCTIONS)


def __getattr__(name: str) -> Any:
    op = name.removeprefix("_foreach_").removesuffix("_")
    if name not in FUNCTIONS and op in FOREACH:  # an operation that was defined after this file was imported
        _FORMS[FOREACH[op]](op)
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    raise AttributeError(f"no function named {name!r}")
