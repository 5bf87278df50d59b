"""What PyTorch makes of its composite functions: calls of the operations that modes and subclasses see.

A function here is called as the public one of its name. It may return NotImplemented where the call is an operation as it
stands.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

from ...tensors.formats import contiguous_format, preserve_format
from ...tensors.tensor import Tensor
from .calls import operation as op

LOWERED: dict[str, Callable[..., Any]] = {}


def lowered(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enters a function under the names of public ones."""
    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            LOWERED[name] = function
        return function

    return enter


def _renamed(**names: str) -> None:
    """Functions that are operations of another name."""
    for name, real in names.items():
        LOWERED[name] = functools.partial(op, real)


_renamed(pow_scalar="pow", floor_div="floor_divide", vector_norm="linalg_vector_norm", multiply="mul", subtract="sub",
         divide="div", true_divide="div", greater="gt", less="lt", negative="neg", absolute="abs", concat="cat",
         concatenate="cat", swapaxes="transpose", swapdims="transpose", moveaxis="movedim", special_expit="sigmoid",
         clip="clamp", clip_="clamp_", logsigmoid="log_sigmoid", fix="trunc", arccos="acos", arcsin="asin", arctan="atan",
         multiply_="mul_", subtract_="sub_", divide_="div_", absolute_="abs_", greater_equal="ge", less_equal="le",
         not_equal="ne", special_erf="erf", special_logit="logit", threshold_="threshold_", ger="outer")


def _size(sizes: tuple[Any, ...]) -> list[int]:
    return list(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else list(sizes)


# ---------------------------------------------------------------------------------------------------------- products
@lowered("linear")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, out: Any = None) -> Any:
    if bias is not None and input.ndim == 2:
        return op("addmm", bias, input, op("t", weight))
    if bias is not None and input.ndim > 2 and input.is_contiguous():
        flat = op("view", input, [-1 if input.numel() else 0, input.shape[-1]])
        made = op("addmm", bias, flat, op("t", weight))
        return op("view", made, [*input.shape[:-1], made.shape[1]])
    made = matmul(input, op("t", weight))
    return made if bias is None else op("add", made, bias)


@lowered("matmul", "__matmul__")
def matmul(input: Tensor, other: Tensor, out: Any = None) -> Any:
    """Products of any number of dimensions, as those of vectors, matrices and batches."""
    if out is not None:
        return NotImplemented
    a, b = input.ndim, other.ndim
    if a == 1 and b == 1:
        return op("dot", input, other)
    if a == 2 and b == 1:
        return op("mv", input, other)
    if a == 1 and b == 2:
        return op("squeeze_", op("mm", op("unsqueeze", input, 0), other), 0)
    if a == 2 and b == 2:
        return op("mm", input, other)
    if a >= 3 and b in (1, 2):
        flat = reshape(input, [-1 if input.numel() else math.prod(input.shape[:-1]), input.shape[-1]])
        made = op("mm", flat, other) if b == 2 else op("mv", flat, other)
        return op("_unsafe_view", made, [*input.shape[:-1], *([other.shape[-1]] if b == 2 else [])])
    if b >= 3 and a in (1, 2):
        turned = op("transpose", other, -1, -2)
        flat = reshape(turned, [-1, turned.shape[-1]])
        if a == 1:
            return op("_unsafe_view", op("mv", flat, input), list(turned.shape[:-1]))
        made = op("_unsafe_view", op("mm", flat, op("t", input)), [*turned.shape[:-1], input.shape[0]])
        return op("transpose", made, -1, -2)
    return _batched(input, other)


def _batched(input: Tensor, other: Tensor) -> Tensor:
    from ...tensors.shapes import broadcast_shapes
    x = op("unsqueeze", input, 0) if input.ndim == 1 else input
    y = op("unsqueeze", other, 1) if other.ndim == 1 else other
    batch = list(broadcast_shapes(tuple(x.shape[:-2]), tuple(y.shape[:-2])))
    count = math.prod(batch)
    x = reshape(op("expand", x, [*batch, *x.shape[-2:]]), [count, *x.shape[-2:]])
    y = reshape(op("expand", y, [*batch, *y.shape[-2:]]), [count, *y.shape[-2:]])
    return op("_unsafe_view", op("bmm", x, y), [*batch, x.shape[-2], y.shape[-1]])


@lowered("__rmatmul__", "_rmatmul")
def rmatmul(self: Tensor, other: Tensor) -> Any:
    return matmul(other, self)


@lowered("outer")
def outer(input: Tensor, vec2: Tensor, out: Any = None) -> Any:
    return op("mul", reshape(input, [input.shape[0], 1]), vec2)


# ------------------------------------------------------------------------------------------------------------- views
def viewable(x: Tensor, shape: list[int]) -> bool:
    """Whether x can be shown in another shape without a copy."""
    from ...backends.strides import view_strides
    return view_strides(tuple(x.shape), tuple(x.stride()), tuple(shape)) is not None


def inferred(shape: list[int], count: int) -> list[int]:
    if -1 not in shape:
        return shape
    rest = math.prod([n for n in shape if n != -1])
    return [count // rest if n == -1 and rest else 0 if n == -1 else n for n in shape]


@lowered("reshape")
def reshape(input: Tensor, *shape: Any, **named: Any) -> Tensor:
    size = _size(shape) if shape else list(named["shape"])
    wanted = inferred(size, input.numel())
    if math.prod(wanted) != input.numel():
        raise RuntimeError(f"shape '{size}' is invalid for input of size {input.numel()}")
    if viewable(input, wanted):
        return op("view", input, wanted)
    return op("_unsafe_view", op("clone", input, memory_format=contiguous_format), wanted)


@lowered("flatten")
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    if not input.ndim:
        return reshape(input, [1])
    first, last = start_dim % input.ndim, end_dim % input.ndim
    if first == last:
        return input
    if first > last:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    return reshape(input, [*input.shape[:first], math.prod(input.shape[first:last + 1]), *input.shape[last + 1:]])


@lowered("ravel")
def ravel(input: Tensor) -> Tensor:
    return reshape(contiguous(input), [-1])


@lowered("unflatten")
def unflatten(input: Tensor, dim: int, sizes: Any) -> Tensor:
    dim = dim % input.ndim
    return op("view", input, [*input.shape[:dim], *inferred(list(sizes), input.shape[dim]), *input.shape[dim + 1:]])


@lowered("contiguous")
def contiguous(input: Tensor, memory_format: Any = contiguous_format) -> Tensor:
    return input if input.is_contiguous(memory_format=memory_format) else op("clone", input, memory_format=memory_format)


@lowered("view_as", "reshape_as")
def view_as(input: Tensor, other: Tensor) -> Tensor:
    return reshape(input, list(other.shape)) if not viewable(input, list(other.shape)) else op("view", input, list(other.shape))


@lowered("view")
def view(input: Tensor, *size: Any, **named: Any) -> Any:
    if named or (size and not isinstance(size[0], (int, tuple, list))):
        return NotImplemented
    return op("view", input, _size(size))


@lowered("expand_as")
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    return op("expand", input, list(other.shape))


@lowered("tile")
def tile(input: Tensor, *dims: Any) -> Tensor:
    dims_ = _size(dims)
    return op("repeat", input, [1] * (input.ndim - len(dims_)) + dims_)


@lowered("movedim")
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    source = [source] if isinstance(source, int) else list(source)
    destination = [destination] if isinstance(destination, int) else list(destination)
    source, destination = [s % input.ndim for s in source], [d % input.ndim for d in destination]
    order = [d for d in range(input.ndim) if d not in source]
    for to, came in sorted(zip(destination, source)):
        order.insert(to, came)
    return op("permute", input, order)


@lowered("narrow")
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    start = int(start)
    start = start + input.shape[dim] if start < 0 else start
    return op("slice", input, dim, start, start + length)


@lowered("chunk")
def chunk(input: Tensor, chunks: int, dim: int = 0) -> Any:
    return tuple(op("split", input, max(-(-input.shape[dim] // chunks), 1), dim))


@lowered("split")
def split(input: Tensor, split_size_or_sections: Any = None, dim: int = 0, split_size: Any = None) -> Any:
    sizes = split_size_or_sections if split_size_or_sections is not None else split_size
    return tuple(op("split" if isinstance(sizes, int) else "split_with_sizes", input,
                    sizes if isinstance(sizes, int) else list(sizes), dim))


@lowered("tensor_split")
def tensor_split(input: Tensor, indices_or_sections: Any = None, dim: int = 0, *, indices: Any = None,
                 sections: Any = None) -> Any:
    given = indices_or_sections if indices_or_sections is not None else indices if indices is not None else sections
    size = input.shape[dim]
    if isinstance(given, Tensor):
        given = given.tolist()
    if isinstance(given, int):
        given = [size * i // given if size % given == 0 else min(size % given, i) + size // given * i for i in range(1, given)]
    ends = [0, *given, size]
    return tuple([op("slice", input, dim, a, b) for a, b in itertools.pairwise(ends)])


@lowered("adjoint")
def adjoint(input: Tensor) -> Tensor:
    made = op("transpose", input, -2, -1)
    return op("_conj", made) if input.is_complex() else made


# What `x.T` and its kin do where somebody looks on.
PROPERTIES: dict[str, Callable[[Tensor], Tensor]] = {
    "T": lambda x: op("permute", x, list(range(x.ndim))[::-1]),
    "mT": lambda x: op("transpose", x, -2, -1), "H": lambda x: adjoint(x) if x.ndim else x, "mH": lambda x: adjoint(x),
    "data": lambda x: op("detach", x)}


@lowered("diag")
def diag(input: Tensor, diagonal: int = 0, out: Any = None) -> Any:
    return op("diag_embed", input, diagonal) if input.ndim == 1 else diagonal_copy(input, diagonal)


def diagonal_copy(input: Tensor, diagonal: int) -> Tensor:
    return op("clone", op("diagonal", input, diagonal))


@lowered("hstack")
def hstack(tensors: Any, out: Any = None) -> Any:
    given = [op("unsqueeze", t, 0) if not t.ndim else t for t in tensors]
    return op("cat", given, 0 if given[0].ndim == 1 else 1)


@lowered("vstack", "row_stack")
def vstack(tensors: Any, out: Any = None) -> Any:
    return op("cat", [t if t.ndim > 1 else op("unsqueeze", t, 0) if t.ndim else reshape(t, [1, 1]) for t in tensors], 0)


@lowered("repeat_interleave")
def repeat_interleave(input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: Any = None) -> Any:
    if not isinstance(repeats, int):
        return NotImplemented
    input, dim = (flatten(input), 0) if dim is None else (input, dim % input.ndim)
    wide = op("expand", op("unsqueeze", input, dim + 1), [*input.shape[:dim + 1], repeats, *input.shape[dim + 1:]])
    return flatten(op("clone", wide, memory_format=contiguous_format), dim, dim + 1)


@lowered("pad")
def pad(input: Tensor, pad: Any, mode: str = "constant", value: float | None = None) -> Any:
    return op("constant_pad_nd", input, list(pad), *([] if not value else [value])) if mode == "constant" else NotImplemented


# ---------------------------------------------------------------------------------------------------------- indexing
def _steps(x: Tensor, key: Any) -> tuple[Tensor, list[Any] | None]:
    """The views that a key means, and the tensors that index what is left (None where a dimension stays whole)."""
    import flambeau
    parts = list(key) if isinstance(key, tuple) else [key]
    parts = [flambeau.tensor(k) if isinstance(k, list) else k for k in parts]
    used = sum(map(_taken, parts))
    if used > x.ndim:
        raise IndexError(f"too many indices for tensor of dimension {x.ndim}")
    dim, indices = 0, []
    for k in parts:
        if k is Ellipsis:
            rest = parts[next(i for i, m in enumerate(parts) if m is Ellipsis) + 1:]
            dim += x.ndim - dim - sum(map(_taken, rest))
        elif k is None:
            x = op("unsqueeze", x, dim)
            dim += 1
        elif isinstance(k, slice):
            x = _slice(x, dim, k)
            dim += 1
        elif isinstance(k, Tensor) or isinstance(k, bool):
            if isinstance(k, bool):
                x, k = op("unsqueeze", x, dim), flambeau.tensor([k])
            elif not k.ndim and not _is_mask(k):
                x = op("select", x, dim, int(k))
                continue
            while len(indices) < dim:
                indices.append(None)
            indices.append(k)
            dim += _taken(k)
            while len(indices) < dim:
                indices.append(_SPENT)
        else:
            if not hasattr(k, "__index__"):
                raise TypeError(f"only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid "
                                f"indices (got {type(k).__name__})")
            x = op("select", x, dim, k.__index__())
    return x, [i for i in indices if i is not _SPENT] if indices else None


def _is_mask(k: Any) -> bool:
    import flambeau
    return isinstance(k, Tensor) and k.dtype in (flambeau.bool, flambeau.uint8)


def _taken(k: Any) -> int:
    """How many dimensions a part of a key is about."""
    return 0 if k is None or k is Ellipsis or isinstance(k, bool) else k.ndim if _is_mask(k) else 1


_SPENT = object()  # a dimension that a mask over several has taken along


def _slice(x: Tensor, dim: int, k: slice) -> Tensor:
    start, stop, step = [None if v is None else int(v) for v in (k.start, k.stop, k.step)]
    if step is not None and step <= 0:
        raise ValueError("step must be greater than zero")
    if (start is None or start == 0) and (stop is None or stop >= x.shape[dim]) and step in (None, 1):
        return x
    return op("slice", x, dim, start or 0, 9223372036854775807 if stop is None else stop, step or 1)


@lowered("__getitem__")
def getitem(self: Tensor, key: Any) -> Tensor:
    x, indices = _steps(self, key)
    if indices is not None:
        return op("index", x, indices)
    return op("alias", x) if x is self else x


@lowered("__setitem__")
def setitem(self: Tensor, key: Any, value: Any) -> None:
    import flambeau
    if not isinstance(value, Tensor):
        value = flambeau.tensor(value, dtype=self.dtype, device=self.device)
    x, indices = _steps(self, key)
    if indices is not None:
        op("index_put_", x, indices, value)
    elif x.shape == value.shape:
        op("copy_", x, value)
    elif not value.ndim:
        op("fill_", x, value)
    else:
        while value.ndim > x.ndim and value.shape[0] == 1:
            value = op("squeeze", value, 0)
        op("copy_", x, value)


# -------------------------------------------------------------------------------------------------------- pointwise
@lowered("where")
def where(condition: Tensor, input: Any = None, other: Any = None, out: Any = None) -> Any:
    if input is None:
        return tuple(op("unbind", op("nonzero", condition), 1))
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        return NotImplemented
    input, other = [v if isinstance(v, Tensor) else _scalar(v, o) for v, o in ((input, other), (other, input))]
    return op("where", condition, input, other)


def _scalar(value: Any, beside: Tensor) -> Tensor:
    return op("scalar_tensor", value, dtype=beside.dtype, device=beside.device)


@lowered("__rsub__")
def rsub(input: Tensor, other: Any) -> Any:
    return op("rsub", input, other)


@lowered("__rdiv__", "__rtruediv__", "_rtruediv")
def rdiv(self: Tensor, other: Any) -> Any:
    return op("mul", op("reciprocal", self), other)


@lowered("square")
def square(input: Tensor, out: Any = None) -> Any:
    return op("pow", input, 2)


@lowered("isfinite")
def isfinite(input: Tensor) -> Tensor:
    bounded = op("ne", op("abs", input), math.inf)
    return op("mul", op("eq", input, input), bounded)


@lowered("type_as")
def type_as(input: Tensor, other: Tensor) -> Tensor:
    return to(input, other.dtype)


@lowered("to")
def to(input: Tensor, *args: Any, **kwargs: Any) -> Any:
    """A conversion: the tensor itself where there is nothing to convert."""
    import flambeau
    wanted: dict[str, Any] = {k: v for k, v in kwargs.items() if k in ("dtype", "device", "memory_format") and v is not None}
    copy = kwargs.get("copy", False)
    for i, a in enumerate(args):
        if isinstance(a, Tensor):
            wanted.update(dtype=a.dtype, device=a.device)
        elif isinstance(a, flambeau.dtype):
            wanted["dtype"] = a
        elif isinstance(a, (str, flambeau.device)):
            wanted["device"] = a
        elif isinstance(a, bool):
            copy = copy or (a and i == len(args) - 1 and i >= 2)
    if "device" in wanted:
        wanted["device"] = flambeau.device(wanted["device"])
    same = wanted.get("dtype", input.dtype) is input.dtype and (
        wanted.get("device", input.device).type == input.device.type) and (
        wanted.get("memory_format") in (None, preserve_format) or input.is_contiguous(memory_format=wanted["memory_format"]))
    if same and not copy:
        return input
    if wanted.get("device") == input.device:
        del wanted["device"]
    if wanted.get("dtype") is input.dtype:
        del wanted["dtype"]
    return op("_to_copy", input, **wanted)


def _converter(name: str) -> Callable[..., Any]:
    def convert(input: Tensor, memory_format: Any = preserve_format) -> Tensor:
        import flambeau
        return to(input, getattr(flambeau, name))
    return convert


for _name in "float double half bfloat16 long int short bool cfloat cdouble".split():
    LOWERED[_name] = _converter(_name)


@lowered("cpu")
def cpu(input: Tensor, memory_format: Any = preserve_format) -> Tensor:
    return to(input, device="cpu")


@lowered("item")
def item(self: Tensor) -> Any:
    if self.numel() != 1:
        raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
    return op("_local_scalar_dense", self)


@lowered("tensor", "new_tensor", "as_tensor")
def lift(*args: Any, **kwargs: Any) -> Any:
    """A tensor from Python data: made without anybody looking on, then shown."""
    import flambeau

    from .calls import no_dispatch
    requires = kwargs.pop("requires_grad", False)
    if isinstance(args[0], Tensor) and len(args) > 1:  # new_tensor
        kwargs.setdefault("dtype", args[0].dtype)
        args = args[1:]
    if args and isinstance(args[0], Tensor):
        return NotImplemented
    with no_dispatch():
        made = flambeau.tensor(*args, **kwargs)
    made = op("lift_fresh", made)
    return made.requires_grad_() if requires else made


# -------------------------------------------------------------------------------------------------------- reductions
@lowered("sum_to_size")
def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    wanted = _size(size)
    if list(self.shape) == wanted:
        return self
    if not wanted:
        return op("sum", self)
    lead = self.ndim - len(wanted)
    dims = [*range(lead), *[d for d in range(lead, self.ndim) if wanted[d - lead] == 1 and self.shape[d] != 1]]
    made = op("sum", self, dims, True)
    return made if not lead else op("view", made, wanted)


def _moment(name: str) -> Callable[..., Any]:
    def moment(input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None,
               out: Any = None) -> Any:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if unbiased is not None:
            correction = int(unbiased)
        given = {} if correction is None else {"correction": correction}
        dims = None if dim is None else [dim] if isinstance(dim, int) else list(dim)
        return op(name, input, dims, **given, **({"keepdim": True} if keepdim else {}))
    return moment


for _name in ("var", "std", "var_mean", "std_mean"):
    LOWERED[_name] = _moment(_name)


@lowered("norm")
def norm(input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Any = None, dtype: Any = None) -> Any:
    if p in ("fro", None, 2, 2.0) or isinstance(p, (int, float)):
        dims = None if dim is None else [dim] if isinstance(dim, int) else list(dim)
        return op("linalg_vector_norm", input, 2 if p in ("fro", None) else p, dims, keepdim,
                  **({} if dtype is None else {"dtype": dtype}))
    return NotImplemented


def _softmax(name: str) -> Callable[..., Any]:
    def softmax(input: Tensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None, **rest: Any) -> Tensor:
        return op(name, input if dtype is None else to(input, dtype), _last(input) if dim is None else dim, False)
    return softmax


LOWERED["softmax"], LOWERED["log_softmax"] = _softmax("_softmax"), _softmax("_log_softmax")


def _last(input: Tensor) -> int:
    return 0 if input.ndim in (0, 1, 3) else 1
