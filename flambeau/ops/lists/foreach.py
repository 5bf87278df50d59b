"""`torch._foreach_*`: one operation over lists of tensors, as optimizers and gradient clipping use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...tensors.tensor import Tensor
from ..core.export import FOREACH

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


_OPERANDS = ("tensor1", "tensor2", "tensors1", "mat2", "other", "exponent", "scalar", "value", "weight", "scalars", "weights")


def _each(op: str) -> None:
    """The forms of an operation: operands are for all tensors, or lists with one for each; other keywords are for all."""
    name, lists = f"_foreach_{op}", FOREACH[op]
    method, changed = _on_one(getattr(Tensor, op), op), getattr(Tensor, op + "_", None)
    changed = changed and _on_one(changed, op)

    def calls(named: str, self: Any, given: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if options:
            given = (*given, *[options.pop(k) for k in _OPERANDS if k in options])
        if isinstance(self, (int, float)) and op == "pow":  # a number to the power of each
            self = [t.new_full((), self) if t.is_floating_point() else t.new_tensor(self) for t in _checked(named, given[0])]
        tensors = _checked(named, self)
        return zip(tensors, *[_spread(named, v, len(tensors), lists == 3) for v in given])

    def function(self: Any, *given: Any, **options: Any) -> tuple[Tensor, ...]:
        if not given and not options:
            return tuple([method(t) for t in _checked(name, self)])
        return tuple([method(*args, **options) for args in calls(name, self, given, options)])

    def inplace(self: Any, *given: Any, **options: Any) -> Any:
        for args in calls(name + "_", self, given, options):
            if changed is None:
                args[0].copy_(method(*args, **options))
            else:
                changed(*args, **options)
        return self

    _add(name, function, inplace if changed is not None or lists > 1 else None)


def _on_one(method: Callable[..., Any], op: str) -> Callable[..., Any]:
    """A method as it is called here: with `value` in order, and maximum and minimum also of numbers."""
    if FOREACH[op] == 3:
        return lambda t, tensor1, tensor2, value=1: method(t, tensor1, tensor2, value=value)
    number_form = {"maximum": Tensor.clamp_min, "minimum": Tensor.clamp_max}.get(op)
    if number_form is None:
        return method
    return lambda t, o: method(t, o) if isinstance(o, Tensor) else number_form(t, o)


for _op in FOREACH:
    _each(_op)


def _foreach_norm(self: Any, ord: Any = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The norm of each tensor, taken as a vector."""
    from ..reduce.vector_norms import vector_norm
    return tuple([vector_norm(t, ord, dtype=dtype) for t in _checked("_foreach_norm", self)])


def _foreach_powsum(self: Any, ord: Any = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The sum of |x|**ord of each tensor."""
    return tuple([(t if dtype is None else t.to(dtype)).abs().pow(ord).sum() for t in _checked("_foreach_powsum", self)])


def _foreach_clone(self: Any, *, memory_format: Any = None) -> tuple[Tensor, ...]:
    """A copy of each tensor."""
    tensors = _checked("_foreach_clone", self)
    return tuple([t.clone() if memory_format is None else t.clone(memory_format=memory_format) for t in tensors])


def _foreach_copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    """copy_, pair by pair."""
    tensors = _checked("_foreach_copy_", self)
    for t, s in zip(tensors, _spread("_foreach_copy_", src, len(tensors))):
        t.copy_(s)
    return self


def _foreach_zero_(self: Any) -> Any:
    """Fills every tensor with zeros."""
    for t in _checked("_foreach_zero_", self):
        t.zero_()
    return self


for _function in (_foreach_norm, _foreach_powsum, _foreach_clone, _foreach_copy_, _foreach_zero_):
    FUNCTIONS[_function.__name__] = _function
NAMES = tuple(FUNCTIONS)


def __getattr__(name: str) -> Any:
    op = name.removeprefix("_foreach_").removesuffix("_")
    if name not in FUNCTIONS and op in FOREACH:  # an operation that was defined after this file was imported
        _each(op)
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    raise AttributeError(f"no function named {name!r}")
