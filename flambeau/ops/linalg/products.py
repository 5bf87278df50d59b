"""Products over chosen dimensions: einsum, tensordot, kron, cross, chains of matrices, distances between rows.

`einsum` contracts its operands two at a time, from left to right: what only one of the two has and nobody needs later
is summed first, then one bmm does the pair. So its gradient is that of permute, reshape and bmm.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from ...creation.factories import eye
from ...settings import warn_once
from ...tensors.shapes import broadcast_shapes, numel, wrap_dim, wrap_dims
from ...tensors.tensor import Tensor
from .. import rules
from ..core import overrides
from ..core.row import FUNCTIONS, Row, public
from ..pointwise.functions import conj
from ..rules import products
from .matmul import bmm, check_tensor, matmul, mm, promote, swapped

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


# --------------------------------------------------------------------------------------------------------- einsum
def _operands_one_by_one(function: Callable) -> Callable:
    """einsum(equation, [a, b]) becomes einsum(equation, a, b) before anybody else sees it, as in PyTorch."""
    @functools.wraps(function)
    def einsum(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 2 and args[0].__class__ is str and args[1].__class__ in (list, tuple):
            args = args[0], *args[1]
        return function(*args, **kwargs)

    overrides.STAND_INS[function] = FUNCTIONS["einsum"] = einsum
    return einsum


@_operands_one_by_one
@public(method=False, out=False)
def einsum(*args: Any) -> Tensor:
    """Sums of products by Einstein's convention: einsum("ij,jk->ik", a, b), or einsum(a, [0, 1], b, [1, 2], [0, 2])."""
    equation, operands = _einsum_arguments(args)
    terms, output = _parse(equation, tuple([t._array.ndim for t in operands]))
    sizes: dict[Any, int] = {}
    for number, (labels, t) in enumerate(zip(terms, operands)):
        for label, n in zip(labels, t._array.shape):
            known = sizes.get(label, 1)
            if n != known and n != 1 and known != 1:
                raise RuntimeError(f"einsum(): subscript {label} has size {n} for operand {number} which does not "
                                   f"broadcast with previously seen size {known}")
            sizes[label] = n if known == 1 else known
    done = [_diagonals(t, labels) for t, labels in zip(operands, terms)]
    while len(done) > 1:
        later = set(output).union(*[labels for _, labels in done[2:]])
        done[:2] = [_contract_pair(*done[0], *done[1], later, sizes)]
    result, labels = done[0]
    gone = [labels.index(x) for x in labels if x not in output]
    if gone:
        result = result.sum(gone)
        labels = [x for x in labels if x in output]
    order = [labels.index(x) for x in output]
    if order != list(range(len(order))):
        result = result.permute(order)
    return result


def _einsum_arguments(args: tuple[Any, ...]) -> tuple[str, list[Tensor]]:
    if not args:
        raise ValueError("einsum(): must specify the equation string and at least one operand, or at least one operand "
                         "and its subscripts list")
    if isinstance(args[0], Tensor):
        equation, operands = _from_sublists(args)
    else:
        equation, operands = args[0], list(args[1:])
    if not isinstance(equation, str):
        raise TypeError(f"einsum(): argument 'equation' must be str, not {type(equation).__name__}")
    if not operands:
        raise RuntimeError("einsum(): must provide at least one operand")
    for i, t in enumerate(operands):
        if not isinstance(t, Tensor):
            raise TypeError(f"einsum(): expected a Tensor as operand {i}, got {type(t).__name__}")
    return equation, operands


def _from_sublists(args: tuple[Any, ...]) -> tuple[str, list[Tensor]]:
    def text(labels):
        out = ""
        for s in labels:
            if s is Ellipsis:
                out += "..."
            elif isinstance(s, int) and 0 <= s < 52:
                out += _LETTERS[s]
            else:
                raise ValueError(f"einsum(): subscript in subscript list is not within the valid range [0, 52): {s}")
        return out

    output = "->" + text(args[-1]) if len(args) % 2 else ""
    pairs = args[:-1] if len(args) % 2 else args
    return ",".join(text(s) for s in pairs[1::2]) + output, list(pairs[::2])


@functools.lru_cache(512)
def _parse(equation: str, ndims: tuple[int, ...]) -> tuple[list[list[Any]], list[Any]]:
    """The labels of each operand and of the result; the dimensions of `...` are numbered from the last one, -1."""
    equation = equation.replace(" ", "")
    left, arrow, right = equation.partition("->")
    parts = left.split(",")
    if len(parts) != len(ndims):
        more = "more" if len(parts) < len(ndims) else "fewer"
        raise RuntimeError(f"einsum(): {more} operands were provided than specified in the equation ({len(ndims)} "
                           f"operands, {len(parts)} terms)")
    terms, width = [], 0
    for i, (part, ndim) in enumerate(zip(parts, ndims)):
        labels, dots = _labels(part, f"operand {i}")
        extra = ndim - len(labels)
        if extra < 0 or (extra and dots is None):
            raise RuntimeError(f"einsum(): the number of subscripts in the equation ({len(labels)}) does not match the "
                               f"number of dimensions ({ndim}) for operand {i}" + ("" if dots is None else
                                                                                   " and its ellipsis"))
        if dots is not None:
            labels[dots:dots] = range(-extra, 0)
            width = max(width, extra)
        terms.append(labels)
    ellipsis = list(range(-width, 0))
    if arrow:
        output, dots = _labels(right, "the output")
        if dots is not None:
            output[dots:dots] = ellipsis
        known = {x for labels in terms for x in labels}
        for x in output:
            if x not in known:
                raise RuntimeError(f"einsum(): output subscript {x} does not appear in the equation for any input operand")
            if output.count(x) > 1:
                raise RuntimeError(f"einsum(): output subscript {x} appears more than once in the output")
    else:
        every = [x for labels in terms for x in labels if isinstance(x, str)]
        output = ellipsis + sorted(x for x in set(every) if every.count(x) == 1)
    return terms, output


def _labels(part: str, where: str) -> tuple[list[Any], int | None]:
    """The letters of one term and the place of its ellipsis."""
    head, dots, tail = part.partition("...")
    for c in head + tail:
        if c not in _LETTERS:
            if c == ".":
                raise RuntimeError(f"einsum(): found '.' for {where} that is not part of any ellipsis, or a second ellipsis")
            raise RuntimeError(f"einsum(): invalid subscript given at {where}: {c!r}; subscripts must be in [a-zA-Z]")
    return list(head + tail), len(head) if dots else None


def _diagonals(t: Tensor, labels: list[Any]) -> tuple[Tensor, list[Any]]:
    """A label that comes twice stands for the diagonal of its dimensions."""
    labels = list(labels)
    i = 0
    while i < len(labels):
        label = labels[i]
        if label in labels[i + 1:]:
            j = labels.index(label, i + 1)
            if t._array.shape[i] != t._array.shape[j]:
                raise RuntimeError(f"einsum(): subscript {label} is repeated for an operand but the sizes don't match, "
                                   f"{t._array.shape[j]} != {t._array.shape[i]}")
            t = t.diagonal(0, i, j)
            labels = [x for k, x in enumerate(labels) if k not in (i, j)] + [label]
            i = 0
        else:
            i += 1
    return t, labels


def _sum_labels(t: Tensor, labels: list[Any], gone: list[Any]) -> tuple[Tensor, list[Any]]:
    if not gone:
        return t, labels
    return t.sum([labels.index(x) for x in gone], dtype=t.dtype), [x for x in labels if x not in gone]


def _contract_pair(a: Tensor, la: list[Any], b: Tensor, lb: list[Any], later: set[Any], sizes: dict[Any, int]):
    """One operand of two: sums what is not needed later. Broadcast dimensions (of length 1) leave their operand."""
    a, la = _drop_broadcast(a, la, b, lb)
    b, lb = _drop_broadcast(b, lb, a, la)
    a, la = _sum_labels(a, la, [x for x in la if x not in later and x not in lb])
    b, lb = _sum_labels(b, lb, [x for x in lb if x not in later and x not in la])
    batch = [x for x in la if x in lb and x in later]
    inner = [x for x in la if x in lb and x not in later]
    left = [x for x in la if x not in lb]
    right = [x for x in lb if x not in la]
    size_a, size_b = dict(zip(la, a._array.shape)), dict(zip(lb, b._array.shape))
    labels = batch + left + right
    if not inner and not (left and right and batch):
        a = _arrange(a, la, batch + left).reshape([size_a[x] for x in batch + left] + [1] * len(right))
        spread = [size_b[x] for x in batch] + [1] * len(left) + [size_b[x] for x in right]
        b = _arrange(b, lb, batch + right).reshape(spread)
        return a * b, labels
    count = numel(tuple(size_a[x] for x in batch))
    rows, cols = numel(tuple(size_a[x] for x in left)), numel(tuple(size_b[x] for x in right))
    depth = numel(tuple(size_a[x] for x in inner))
    x = _arrange(a, la, batch + left + inner)
    y = _arrange(b, lb, batch + inner + right)
    shape = [size_a[k] for k in batch + left] + [size_b[k] for k in right]
    if not batch:
        made = matmul(_shaped(x, (rows, depth)), _shaped(y, (depth, cols)))
    else:
        made = bmm(_shaped(x, (count, rows, depth)), _shaped(y, (count, depth, cols)))
    return _shaped(made, tuple(shape)), labels


def _shaped(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    return t if t._array.shape == shape else t.reshape(shape)


def _drop_broadcast(a: Tensor, la: list[Any], b: Tensor, lb: list[Any]) -> tuple[Tensor, list[Any]]:
    size_b = dict(zip(lb, b._array.shape))
    ones = [x for x, n in zip(la, a._array.shape) if n == 1 and size_b.get(x, 1) != 1]
    for x in ones:
        a = a.squeeze(la.index(x))
        la = [y for y in la if y != x]
    return a, la


def _arrange(t: Tensor, labels: list[Any], wanted: list[Any]) -> Tensor:
    order = [labels.index(x) for x in wanted]
    return t if order == list(range(len(order))) else t.permute(order)


# ---------------------------------------------------------------------------------------------------- tensordot, kron
@public(method=False, out="exact")
def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """Sums products over several dimensions: the last n of a with the first n of b, or two lists of them."""
    check_tensor("tensordot", a=a, b=b)
    dims_a, dims_b = _tensordot_dims(a, b, dims)
    x, y = a._array.shape, b._array.shape
    for p, q in zip(dims_a, dims_b):
        if x[p] != y[q]:  # one of the two may be broadcast
            if x[p] == 1:
                b = b.sum(q, keepdim=True, dtype=b.dtype)
            elif y[q] == 1:
                a = a.sum(p, keepdim=True, dtype=a.dtype)
            else:
                raise RuntimeError(f"contracted dimensions need to match, but first has size {x[p]} in dim {p} and "
                                   f"second has size {y[q]} in dim {q}")
    x, y = a._array.shape, b._array.shape
    free_a = [i for i in range(len(x)) if i not in dims_a]
    free_b = [i for i in range(len(y)) if i not in dims_b]
    depth = numel(tuple(x[i] for i in dims_a))
    shape_a, shape_b = tuple(x[i] for i in free_a), tuple(y[i] for i in free_b)
    left = a.permute(free_a + list(dims_a)).reshape(numel(shape_a), depth)
    right = b.permute(list(dims_b) + free_b).reshape(depth, numel(shape_b))
    return mm(left, right).reshape(shape_a + shape_b)


def _tensordot_dims(a: Tensor, b: Tensor, dims: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, (list, tuple)):
        dims_a, dims_b = dims if len(dims) == 2 else (dims, dims)
        dims_a = [dims_a] if isinstance(dims_a, int) else list(dims_a)
        dims_b = [dims_b] if isinstance(dims_b, int) else list(dims_b)
        if len(dims_a) != len(dims_b):
            raise RuntimeError("tensordot: both dimension lists should have same length, got "
                               f"{len(dims_a)} and {len(dims_b)}")
        return wrap_dims(dims_a, a._array.ndim), wrap_dims(dims_b, b._array.ndim)
    if dims < 0:
        raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
    if dims > min(a._array.ndim, b._array.ndim):
        raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
    return tuple(range(a._array.ndim - dims, a._array.ndim)), tuple(range(dims))


@public
def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product: every element of one times the whole of the other."""
    check_tensor("kron", input=input, other=other)
    n = max(input._array.ndim, other._array.ndim)
    x = (1,) * (n - input._array.ndim) + input._array.shape
    y = (1,) * (n - other._array.ndim) + other._array.shape
    left = input.reshape([m for size in x for m in (size, 1)])
    right = other.reshape([m for size in y for m in (1, size)])
    return (left * right).reshape([p * q for p, q in zip(x, y)])


# -------------------------------------------------------------------------------------------------- trace and cross
_trace = Row("trace", "self", safe=True, shape=products.trace,
             backward=dict(self=lambda grad, self_shape: grad * _eye(*self_shape, grad)))
_cross = Row("linalg_cross", "self other dim", batch=("along", 2), shape=rules.same, backward=dict(
    self=lambda grad, other, dim: _cross(conj(other).expand_as(grad), grad, dim),
    other=lambda grad, self, dim: _cross(grad, conj(self).expand_as(grad), dim)))


def _eye(rows: int, cols: int, like: Tensor) -> Tensor:
    return eye(rows, cols, dtype=like.dtype, device=like.device)


@public(autocast="float32")
def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's diagonal."""
    check_tensor("trace", input=input)
    if input._array.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input._array.ndim}")
    if input._array.dtype.kind == "b":
        raise NotImplementedError("\"trace\" not implemented for 'Bool'")
    return _trace(input)


@public(method=False, toplevel=False, name="linalg_cross", out="exact")
def linalg_cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The vector product of vectors of length 3 along `dim`."""
    check_tensor("linalg.cross", input=input, other=other)
    x, y = input._array.shape, other._array.shape
    if len(x) != len(y):
        raise RuntimeError(f"linalg.cross: inputs must have the same number of dimensions, got {len(x)} and {len(y)}")
    given_dim, dim = dim, wrap_dim(dim, len(x))
    if not x or x[dim] != 3 or y[dim] != 3:
        raise RuntimeError(f"linalg.cross: inputs dimension {given_dim} must have length 3. Got {x[dim] if x else 1} and "
                           f"{y[dim] if y else 1}")
    input, other = promote(input, other)
    shape = broadcast_shapes(x, y)
    return _cross(input.expand(shape), other.expand(shape), dim)


_warned: list[str] = []  # as in PyTorch, once per process


@public(out="exact")
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The vector product; without `dim`, along the first dimension of length 3."""
    check_tensor("cross", input=input, other=other)
    if dim is None:
        if not _warned:
            _warned.append("cross")
            import warnings
            warnings.warn("Using torch.cross without specifying the dim arg is deprecated. Please either pass the dim "
                          "explicitly or simply use torch.linalg.cross. The default value of dim will change to agree with "
                          "that of linalg.cross in a future release.", UserWarning, stacklevel=3)
        shape = broadcast_shapes(input._array.shape, other._array.shape)
        if 3 not in shape:
            raise RuntimeError("no dimension of size 3 in input")
        dim = shape.index(3) - len(shape) if len(shape) != input._array.ndim else shape.index(3)
    return linalg_cross(input, other, dim=dim)


# -------------------------------------------------------------------------------------------------- chains of matrices
@public(method=False, toplevel=False, name="linalg_multi_dot", out="exact")
def multi_dot(tensors: Any) -> Tensor:
    """The product of two or more matrices in the cheapest order; the first and last may be vectors."""
    tensors = list(tensors)
    if len(tensors) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    check_tensor("multi_dot", **{f"tensors[{i}]": t for i, t in enumerate(tensors)})
    first, last = tensors[0]._array.ndim, tensors[-1]._array.ndim
    if first not in (1, 2):
        raise RuntimeError(f"multi_dot(): the first tensor must be 1D or 2D but got {first}D")
    if last not in (1, 2):
        raise RuntimeError(f"multi_dot(): the last tensor must be 1D or 2D but got {last}D")
    chain = list(tensors)
    if first == 1:
        chain[0] = chain[0].unsqueeze(0)
    if last == 1:
        chain[-1] = chain[-1].unsqueeze(-1)
    for i, t in enumerate(chain):
        if t._array.ndim != 2:
            raise RuntimeError(f"multi_dot(): tensor {i} must be 2D but got {t._array.ndim}D")
        if t._array.dtype != chain[0]._array.dtype:
            raise RuntimeError(f"multi_dot(): all tensors must have be the same dtype but tensor 0 is {chain[0].dtype} "
                               f"and tensor {i} {t.dtype}")
    for i in range(len(chain) - 1):
        x, y = chain[i]._array.shape, chain[i + 1]._array.shape
        if x[1] != y[0]:
            raise RuntimeError(f"multi_dot(): tensors {i} and {i + 1} with shapes {list(x)} and {list(y)} cannot be "
                               "multiplied")
    made = _multiply(chain, _best_splits([t._array.shape[0] for t in chain] + [chain[-1]._array.shape[1]]), 0,
                     len(chain) - 1)
    rows, cols = made._array.shape
    return made.view(((rows,) if first == 2 else ()) + ((cols,) if last == 2 else ()))


def _best_splits(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Where to split each run of the chain so that multiplications are fewest (the textbook's table)."""
    n = len(sizes) - 1
    cost = {(i, i): 0 for i in range(n)}
    split = {}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i, j], split[i, j] = min((cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                                          for k in range(i, j))
    return split


def _multiply(chain: list[Tensor], split: dict[tuple[int, int], int], i: int, j: int) -> Tensor:
    if i == j:
        return chain[i]
    k = split[i, j]
    return mm(_multiply(chain, split, i, k), _multiply(chain, split, k + 1, j))


@public(method=False, out=False)
def chain_matmul(*matrices: Tensor, out: Tensor | None = None) -> Tensor:
    """The product of several matrices (the older name of linalg.multi_dot)."""
    warn_once("chain_matmul", "torch.chain_matmul is deprecated and will be removed in a future PyTorch release. Use "
              "torch.linalg.multi_dot instead, which accepts a list of two or more tensors rather than multiple parameters.")
    if len(matrices) == 1 and isinstance(matrices[0], (list, tuple)):
        matrices = tuple(matrices[0])
    if not matrices:
        raise RuntimeError("chain_matmul(): Expected one or more matrices")
    for i, t in enumerate(matrices):
        if t._array.ndim != 2:
            raise RuntimeError(f"chain_matmul(): Tensor {i} must be 2-D, but got {t._array.ndim}-D")
    return matrices[0] if len(matrices) == 1 else multi_dot(list(matrices), out=out)


@public
def matrix_power(input: Tensor, n: int) -> Tensor:
    """A square matrix multiplied with itself n times; the inverse's power for negative n."""
    check_tensor("matrix_power", input=input)
    square(input, "linalg.matrix_power")
    if n == 0:
        return input.clone().copy_(_eye(*input._array.shape[-2:], input))
    if n == 1:
        return input.clone()
    if n < 0:
        from .solve import inv
        return matrix_power(inv(input), -n)
    if n == 2:
        return matmul(input, input)
    if n == 3:
        return matmul(matmul(input, input), input)
    result = None
    power = input
    while n:
        if n & 1:
            result = power if result is None else matmul(result, power)
        n >>= 1
        if n:
            power = matmul(power, power)
    return result


def square(t: Tensor, function: str, name: str = "A") -> None:
    """Demands a batch of square matrices."""
    shape = t._array.shape
    if len(shape) < 2:
        raise RuntimeError(f"{function}: The input tensor {name} must have at least 2 dimensions.")
    if shape[-1] != shape[-2]:
        raise RuntimeError(f"{function}: {name} must be batches of square matrices, but they are {shape[-2]} by "
                           f"{shape[-1]} matrices")


# ---------------------------------------------------------------------------------------------------- cdist
_MODES = {"use_mm_for_euclid_dist_if_necessary": 0, "use_mm_for_euclid_dist": 1, "donot_use_mm_for_euclid_dist": 2}


def _cdist_grad(grad: Tensor, x1: Tensor, x2: Tensor, p: float, dist: Tensor) -> Tensor:
    """The gradient of the first points. Where two points coincide it is 0, the smallest sub-gradient."""
    if p == 0:
        return x1 * 0
    if p == 2:
        zero = dist == 0
        weight = (grad / dist.masked_fill(zero, 1)).masked_fill(zero, 0)
        return weight.sum(-1, keepdim=True) * x1 - matmul(weight, x2)
    gap = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    sign, size = gap.sgn(), gap.abs()
    grad, dist = grad.unsqueeze(-1), dist.unsqueeze(-1)
    if p == 1:
        return (grad * sign).sum(-2)
    if p == math.inf:
        return (grad * sign * (size == dist).to(size.dtype)).sum(-2)
    zero = dist == 0
    base = dist.masked_fill(zero, 1)
    if p < 1:
        # The slope is infinite at a coordinate where the points agree; PyTorch takes 0 there.
        same = size == 0
        steep = size.masked_fill(same, 1).pow(p - 1).masked_fill(same, 0)
    else:
        steep = size.pow(p - 1)
    return (grad * sign * steep * base.pow(1 - p)).masked_fill(zero, 0).sum(-2)


_CDIST_FORMULAS = dict(
    x1=lambda grad, x1, x2, p, result: _cdist_grad(grad, x1, x2, p, result),
    x2=lambda grad, x1, x2, p, result: _cdist_grad(swapped(grad), x2, x1, p, swapped(result)))
_cdist = Row("cdist", "x1 x2 p compute_mode", takes="F", safe=True, batch=("leading", 2, 2), shape=products.distances,
             backward=_CDIST_FORMULAS)
_euclidean = Row("_euclidean_dist", "x1 x2 p compute_mode", takes="F", kernel="cdist", backward=_CDIST_FORMULAS)


@public(method=False, out=False, autocast="float32")
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0,
          compute_mode: str | None = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """The p-norm distances between each row of x1 and each row of x2, batch by batch."""
    check_tensor("cdist", x1=x1, x2=x2)
    for name, t in (("X1", x1), ("X2", x2)):
        if t._array.ndim < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, {name} got: {t._array.ndim}D")
        if not t.is_floating_point():
            raise RuntimeError(f"cdist only supports floating-point dtypes, {name} got: {t.dtype}")
    a, b = x1._array.shape, x2._array.shape
    if a[-1] != b[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {a[-1]} X2: {b[-1]}")
    if p < 0:
        raise RuntimeError(f"cdist only supports non-negative p values, got {p}")
    if isinstance(compute_mode, str) and compute_mode not in _MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    mode = _MODES[compute_mode] if isinstance(compute_mode, str) else compute_mode or 0
    if x1._array.dtype != x2._array.dtype:
        raise RuntimeError(f"cdist: expected X1 and X2 to have the same dtype, but found {x1.dtype} and {x2.dtype}")
    batch = broadcast_shapes(a[:-2], b[:-2])
    x1, x2 = (t if t._array.shape[:-2] == batch else t.expand(*batch, *t._array.shape[-2:]) for t in (x1, x2))
    by_product = p == 2 and (mode == 1 or (mode == 0 and (a[-2] > 25 or b[-2] > 25)))
    return (_euclidean if by_product else _cdist)(x1, x2, float(p), mode)
