"""What operations do with nested tensors: on all values at once where the parts do not matter, else part by part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ops.core.row import FUNCTIONS, ROWS
from ..ops.pointwise.families import Pointwise
from ..ops.pointwise.special import SPECIAL
from ..tensors.tensor import Tensor
from .tensor import HANDLERS, NestedTensor, jagged, of_parts

handler = HANDLERS


def _nested(x: Any) -> bool:
    return isinstance(x, NestedTensor)


def _same(a: NestedTensor, b: NestedTensor) -> bool:
    """Whether two have parts of the same sizes in the same places."""
    if a._ragged is not None:
        return a._ragged is b._ragged and a._at == b._at
    return b._ragged is None and a._sizes == b._sizes


def _each(function: Callable, *given: Any) -> NestedTensor:
    """A function of the parts of nested tensors; other arguments are the same for all."""
    first = next(x for x in given if _nested(x))
    columns = [x.parts() if _nested(x) else [x] * len(first) for x in given]
    return of_parts([function(*row) for row in zip(*columns)], first.layout, first._at)


# ------------------------------------------------------------------------------------------------------ element by element
def _operand(x: Any, like: NestedTensor, name: str) -> Any:
    """What takes part in an operation on the values of `like`."""
    if _nested(x):
        if not _same(like, x):
            raise RuntimeError(f"cannot call binary pointwise function {name} with nested tensors of different structure: "
                               "their ragged dimensions must be the same (from one tensor, or made with the same offsets)")
        return x._held_values
    if not isinstance(x, Tensor) or not x.ndim:
        return x
    if like._ragged is None:
        return None
    at, n = like._at, like.dim()
    if x.ndim < n - at:                  # the dimensions after the ragged one
        return x
    x = x.reshape((1,) * (n - x.ndim) + tuple(x.shape))
    if x.shape[at] != 1:
        return None
    if x.shape[0] == 1:
        return x.squeeze(0)
    if at != 1 or not like._ragged.dense:
        return None
    return x.squeeze(1).index_select(0, like._ragged.owners())


def _pointwise(name: str, function: Callable) -> Callable:
    def applied(*args: Any, **kwargs: Any) -> NestedTensor:
        like = next(x for x in (*args, *kwargs.values()) if _nested(x))
        given = [_operand(x, like, name) for x in args]
        named = {k: _operand(x, like, name) for k, x in kwargs.items()}
        if any(new is None and x is not None for new, x in zip(given, args)):  # parts of their own shapes meet a dense tensor
            return _each(lambda *parts: function(*parts, **kwargs), *[
                x if not isinstance(x, Tensor) or _nested(x) or x.ndim < like.dim() else _rows(x, like) for x in args])
        made = function(*given, **named)
        return type(made)(*map(like._rebuilt, made)) if isinstance(made, tuple) else like._rebuilt(made)

    return applied


def _rows(x: Tensor, like: NestedTensor) -> NestedTensor:
    """A dense tensor as one part for each of another's."""
    return of_parts(list(x.expand(len(like), *x.shape[1:]).unbind(0)))


def _plain(name: str) -> Callable:
    """The function (or method) of a name, for ordinary tensors."""
    return FUNCTIONS.get(name) or getattr(Tensor, name)


for _row in list(ROWS.values()):
    _name = _row.name
    if isinstance(_row, Pointwise) and (_name in FUNCTIONS or hasattr(Tensor, _name)):
        HANDLERS[_name] = _pointwise(_name, _plain(_name))
for _name, _function in SPECIAL.items():
    HANDLERS.setdefault(_function.__name__, _pointwise(_name, _function))
for _operator, _name in {"__add__": "add", "__radd__": "add", "__mul__": "mul", "__rmul__": "mul", "__sub__": "sub",
                         "__truediv__": "div", "__pow__": "pow", "__neg__": "neg", "__abs__": "abs", "__gt__": "gt",
                         "__lt__": "lt", "__ge__": "ge", "__le__": "le", "__eq__": "eq", "__ne__": "ne",
                         "__and__": "bitwise_and", "__or__": "bitwise_or", "__invert__": "bitwise_not",
                         "__rsub__": "rsub", "__rdiv__": "__rdiv__", "__rtruediv__": "__rdiv__", "__rpow__": "__rpow__",
                         "float_power": "float_power"}.items():
    HANDLERS[_operator] = _pointwise(_name, _plain(_name))


def _on_values(*names: str) -> None:
    """Functions of one tensor that treat every element, or every last dimension, alike."""
    for name in names:
        def applied(x: NestedTensor, *args: Any, _name: str = name, **kwargs: Any) -> NestedTensor:
            return x._rebuilt(_plain(_name)(x._held_values, *args, **kwargs))
        HANDLERS[name] = applied


# What keeps elements where they are but is no pointwise row: conversions, copies, limits.
_on_values(*"""to type float double half bfloat16 int long short char byte bool cpu detach clone clamp fill positive conj real
    isposinf isneginf isreal""".split())


def _through_functional() -> None:
    """Activations of nn.functional, and dropout: on the values."""
    from ..nn import functional
    from ..nn.functional import activations
    for name in (*activations.__all__, "dropout"):
        if not name.endswith(("_", "softmax", "softmin", "glu", "prelu")):
            function = getattr(functional, name)
            HANDLERS[name] = lambda x, *args, _f=function, **kwargs: x._rebuilt(_f(x._held_values, *args, **kwargs))


_through_functional()


@handler("where")
def _where(condition: Any, input: Any, other: Any) -> NestedTensor:
    return _pointwise("where", FUNCTIONS["where"])(condition, input, other)


@handler("masked_select")
def _masked_select(input: NestedTensor, mask: NestedTensor) -> NestedTensor:
    return of_parts([FUNCTIONS["masked_select"](*pair) for pair in zip(input.parts(), mask.parts())], input.layout)


@handler("masked_fill")
def _masked_fill(input: NestedTensor, mask: Any, value: Any) -> NestedTensor:
    return _pointwise("masked_fill", FUNCTIONS["masked_fill"])(input, mask, value)


for _name in [name for name in FUNCTIONS if name.endswith("_like")]:
    HANDLERS[_name] = lambda x, *args, _n=_name, layout=None, **kwargs: x._rebuilt(_plain(_n)(x._held_values, *args, **kwargs))


# ------------------------------------------------------------------------------------------------------------- reductions
def _inner_dims(x: NestedTensor, dims: Any) -> tuple[list[int], bool, bool]:
    """Dimensions of each part (counted from its own first), and whether the ragged one and the batch are among them."""
    wrapped = [x._wrapped(d) for d in ((dims,) if isinstance(dims, int) else dims)]
    ragged = x._ragged is not None and x._at in wrapped
    return [d - 1 for d in wrapped if d and not (ragged and d == x._at)], ragged, 0 in wrapped


def _reduction(name: str) -> Callable:
    def reduced(x: NestedTensor, dim: Any = None, keepdim: bool = False, **options: Any) -> Any:
        function = _plain(name)
        if isinstance(dim, Tensor) or "other" in options:  # max and min of two
            return _pointwise(name, function)(x, dim if dim is not None else options["other"])
        if dim is None:
            values = x._held_values if x._ragged is None or x._ragged.dense else x.contiguous()._held_values
            return function(values, **options)
        if x._ragged is None:
            if not keepdim:
                raise RuntimeError("NestedTensor always requires keepdim=True for now.")
            inner = _inner_dims(x, dim)[0]
            return _each(lambda part: function(part, inner if len(inner) > 1 else inner[0], True, **options), x)
        inner, ragged, batch = _inner_dims(x, dim)
        if batch and ragged:  # all parts together
            values = x._held_values if x._ragged.dense else x.contiguous()._held_values
            along = [*inner, x._at - 1]
            made = function(values, along if len(along) > 1 else along[0], keepdim, **options)
            return made.unsqueeze(0) if keepdim else made
        if batch:
            raise RuntimeError(f"{name}(): a nested tensor cannot be reduced over its batch dimension alone: use unbind()")
        if not ragged:
            return jagged(function(x._held_values, inner if len(inner) > 1 else inner[0], keepdim, **options), x._ragged,
                          x._at if keepdim else x._at - sum(d + 1 < x._at for d in inner))
        along = [*inner, x._at - 1]
        made = [function(part, along if len(along) > 1 else along[0], keepdim, **options) for part in x.parts()]
        if isinstance(made[0], tuple):
            return type(made[0])(*[FUNCTIONS["stack"](column) for column in zip(*made)])
        return FUNCTIONS["stack"](made)

    return reduced


HANDLERS.update(sum=_reduction("sum"), mean=_reduction("mean"), prod=_reduction("prod"), amax=_reduction("amax"),
                amin=_reduction("amin"), max=_reduction("max"), min=_reduction("min"), all=_reduction("all"),
                any=_reduction("any"), var=_reduction("var"), std=_reduction("std"), logsumexp=_reduction("logsumexp"),
                argmax=_reduction("argmax"), argmin=_reduction("argmin"))


def _softly(name: str, x: NestedTensor, dim: int, dtype: Any) -> NestedTensor:
    d = x._wrapped(dim)
    if not d:
        raise RuntimeError(f"{name}(): not supported when reducing across the batch dimension for NestedTensor")
    if x._ragged is not None and d != x._at:
        return x._rebuilt(FUNCTIONS[name](x._held_values, d - 1, dtype=dtype))
    made = [FUNCTIONS[name](part, d - 1, dtype=dtype) for part in x.parts()]
    if x._ragged is None:
        return of_parts(made)
    return jagged(FUNCTIONS["cat"](made, d - 1), x._ragged, x._at) if x._ragged.dense else of_parts(made, x.layout, x._at)


for _name in ("softmax", "log_softmax"):
    HANDLERS[_name] = lambda x, dim, _stacklevel=3, dtype=None, _n=_name: _softly(_n, x, dim, dtype)


# ------------------------------------------------------------------------------------------------------ layers, products
@handler("linear")
def _linear(input: NestedTensor, weight: Tensor, bias: Tensor | None = None) -> NestedTensor:
    function = FUNCTIONS.get("linear")
    if function is None:
        from ..nn.functional import linear as function
    if input._ragged is not None and input._at < input.dim() - 1:
        return input._rebuilt(function(input._held_values, weight, bias))
    return _each(lambda part: function(part, weight, bias), input)


@handler("matmul", "__matmul__", "bmm", "mm")
def _matmul(input: Any, other: Any = None, *, mat2: Any = None, out: Any = None) -> Any:
    other = mat2 if other is None else other
    if _nested(input) and not _nested(other):
        if input._ragged is None:
            raise RuntimeError("Expected both to be nested, but got a nested self and non-nested other")
        if input._at < input.dim() - 1 and other.ndim <= 2:
            return input._rebuilt(FUNCTIONS["matmul"](input._held_values, other))
        return of_parts([FUNCTIONS["matmul"](a, b) for a, b in zip(input.parts(), other.unbind(0))], input.layout, input._at)
    if not _nested(input):
        return of_parts([FUNCTIONS["matmul"](a, b) for a, b in zip(input.unbind(0), other.parts())], other.layout, other._at)
    made = [FUNCTIONS["matmul"](a, b) for a, b in zip(input.parts(), other.parts())]
    if len({tuple(m.shape) for m in made}) == 1 and input._ragged is not None and input._at == input.dim() - 1:
        return FUNCTIONS["stack"](made)  # the ragged dimension was summed over
    return of_parts(made, input.layout, input._at)


@handler("layer_norm")
def _layer_norm(input: NestedTensor, normalized_shape: Any, weight: Any = None, bias: Any = None,
                eps: float = 1e-5) -> NestedTensor:
    from ..nn import functional
    return _normed(functional.layer_norm, input, normalized_shape, weight, bias, eps)


def _normed(function: Callable, x: NestedTensor, shape: Any, *args: Any) -> NestedTensor:
    count = 1 if isinstance(shape, int) else len(shape)
    if x._ragged is not None and x._at < x.dim() - count:
        return x._rebuilt(function(x._held_values, shape, *args))
    return _each(lambda part: function(part, shape, *args), x)


@handler("rms_norm")
def _rms_norm(input: NestedTensor, normalized_shape: Any, weight: Any = None, eps: Any = None) -> NestedTensor:
    from ..nn import functional
    return _normed(functional.rms_norm, input, normalized_shape, weight, eps)


@handler("embedding")
def _embedding(input: NestedTensor, weight: Tensor, *args: Any, **kwargs: Any) -> NestedTensor:
    from ..nn.functional import embedding
    if input._ragged is None:
        return _each(lambda part: embedding(part, weight, *args, **kwargs), input)
    return jagged(embedding(input._held_values, weight, *args, **kwargs), input._ragged, input._at)


@handler("scaled_dot_product_attention")
def _attention(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
               scale: float | None = None, enable_gqa: bool = False) -> NestedTensor:
    """Attention within each part, which has no padding to look at."""
    if attn_mask is not None:
        raise RuntimeError("_validate_sdpa_nested_preconditions: Masked attention is not supported for nested tensors")
    from ..nn.functional import scaled_dot_product_attention as attend
    made = [attend(q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), None, dropout_p, is_causal, scale=scale,
                   enable_gqa=enable_gqa).squeeze(0) for q, k, v in zip(query.parts(), key.parts(), value.parts())]
    if query._ragged is None:
        return of_parts(made)
    return jagged(FUNCTIONS["cat"](made, query._at - 1), query._ragged, query._at) if query._ragged.dense else (
        of_parts(made, query.layout, query._at))


# ----------------------------------------------------------------------------------------------------------------- shapes
def _moved(x: NestedTensor, change: Callable, at: int) -> NestedTensor:
    """A view of the values, whose ragged dimension is now dimension `at`."""
    return jagged(change(x._held_values), x._ragged, at) if x._ragged is not None else _each(change, x)


@handler("transpose", "swapaxes", "swapdims")
def _transpose(x: NestedTensor, dim0: int, dim1: int) -> NestedTensor:
    a, b = x._wrapped(dim0), x._wrapped(dim1)
    if a == b:
        return x
    if not a or not b:
        raise RuntimeError("Transpose is not supported on the batch dimension for jagged NT")
    at = b if x._at == a else a if x._at == b else x._at
    return _moved(x, lambda v: v.transpose(a - 1, b - 1), at)


@handler("permute")
def _permute(x: NestedTensor, *dims: Any) -> NestedTensor:
    order = [x._wrapped(d) for d in (dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims)]
    if order[0] or sorted(order) != list(range(x.dim())):
        raise RuntimeError(f"permute(): the batch dimension of a nested tensor stays the first, got {order}")
    return _moved(x, lambda v: v.permute([d - 1 for d in order[1:]]), order.index(x._at))


@handler("unsqueeze")
def _unsqueeze(x: NestedTensor, dim: int) -> NestedTensor:
    n = x.dim() + 1
    d = dim % n
    if not d:
        raise RuntimeError("unsqueeze(): a nested tensor takes no dimension before its batch dimension")
    return _moved(x, lambda v: v.unsqueeze(d - 1), x._at + (d <= x._at))


@handler("squeeze")
def _squeeze(x: NestedTensor, dim: Any) -> NestedTensor:
    d = x._wrapped(dim)
    if d == 0 or (x._ragged is not None and d == x._at):
        return x
    return _moved(x, lambda v: v.squeeze(d - 1), x._at - (d < x._at and x._held_values.shape[d - 1] == 1))


@handler("unflatten")
def _unflatten(x: NestedTensor, dim: int, sizes: Any) -> NestedTensor:
    d = x._wrapped(dim)
    return _moved(x, lambda v: v.unflatten(d - 1, sizes), x._at + (len(sizes) - 1 if d < x._at else 0))


@handler("flatten")
def _flatten(x: NestedTensor, start_dim: int = 0, end_dim: int = -1) -> NestedTensor:
    start, end = x._wrapped(start_dim), x._wrapped(end_dim)
    if start <= x._at <= end and start != end:
        raise RuntimeError("flatten(): the ragged dimension of a nested tensor cannot be joined with others")
    return _moved(x, lambda v: v.flatten(start - 1, end - 1), x._at - (end - start if end < x._at else 0))


@handler("view", "reshape")
def _view(x: NestedTensor, *sizes: Any) -> NestedTensor:
    """New sizes of the dimensions around the ragged one, whose place -1 (or its own size) takes."""
    wanted = list(sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes)
    if wanted[0] not in (len(x), -1):
        raise RuntimeError(f"view(): the batch dimension of a nested tensor stays as it is ({len(x)}), got {wanted[0]}")
    if x._ragged is None:
        return of_parts([part.reshape([part.shape[i] if n == -1 and i < part.ndim else n for i, n in enumerate(wanted[1:])])
                         for part in x.parts()])
    at = next((i for i, n in enumerate(wanted) if i and (n == -1 or n is x._ragged.name)), None)
    if at is None:
        raise RuntimeError(f"view(): cannot view shape {x.shape} as {wanted}: -1 or the ragged size must stand for the ragged "
                           "dimension")
    inner = [x._held_values.shape[x._at - 1] if i == at else n for i, n in enumerate(wanted)][1:]
    return jagged(x._held_values.reshape(inner), x._ragged, at)


@handler("select")
def _select(x: NestedTensor, dim: int, index: int) -> Any:
    d = x._wrapped(dim)
    if d == 0:
        return x.parts()[index]
    if x._ragged is not None and d == x._at:
        raise RuntimeError("select(): not supported for the ragged dimension of a nested tensor")
    return _moved(x, lambda v: v.select(d - 1, index), x._at - (d < x._at))


@handler("__getitem__")
def _get_item(x: NestedTensor, index: Any) -> Any:
    index = index if isinstance(index, tuple) else (index,)
    if isinstance(index[0], int):
        part = x.parts()[index[0]]
        return part[index[1:]] if len(index) > 1 else part
    if index[0] == slice(None) or index[0] is Ellipsis:
        return _each(lambda part: part[index[1:] if index[0] == slice(None) else index], x)
    raise NotImplementedError("a nested tensor takes a number or `:` as its first index")


@handler("narrow")
def _narrow(x: NestedTensor, dim: int, start: int, length: int) -> NestedTensor:
    d = x._wrapped(dim)
    if d == 0 or (x._ragged is not None and d == x._at):
        raise RuntimeError("narrow(): only supported for dimensions of one size of a nested tensor")
    return _moved(x, lambda v: v.narrow(d - 1, start, length), x._at)


def _chunks(name: str) -> Callable:
    def cut(x: NestedTensor, size: Any = None, dim: int = 0, *, chunks: Any = None, split_size: Any = None) -> Any:
        size = next(s for s in (size, chunks, split_size) if s is not None)
        d = x._wrapped(dim)
        if d == 0 and name == "chunk" and x._ragged is not None:
            parts, step = x.parts(), -(-len(x) // size)
            return tuple(of_parts(parts[i:i + step], x.layout, x._at) for i in range(0, len(parts), step))
        if d == 0 or x._ragged is None or d == x._at:
            raise RuntimeError(f"{name}(): only supported along dimensions of one size of a jagged tensor")
        return tuple(jagged(v, x._ragged, x._at) for v in getattr(x._held_values, name)(size, d - 1))

    return cut


HANDLERS["chunk"], HANDLERS["split"] = _chunks("chunk"), _chunks("split")


@handler("cat", "concat", "concatenate")
def _cat(tensors: Any, dim: int = 0, *, out: Any = None) -> NestedTensor:
    first = tensors[0]
    d = first._wrapped(dim)
    if d == 0:
        return of_parts([part for t in tensors for part in t.parts()], first.layout, first._at)
    if all(_same(first, t) for t in tensors) and first._ragged is not None and d != first._at:
        return first._rebuilt(FUNCTIONS["cat"]([t._held_values for t in tensors], d - 1))
    return _each(lambda *parts: FUNCTIONS["cat"](parts, d - 1), *tensors)


for _name in "unbind to_padded_tensor contiguous size dim numel is_contiguous values offsets lengths".split():
    HANDLERS[_name] = getattr(NestedTensor, _name)
