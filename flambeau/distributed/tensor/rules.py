"""Rules: elements, products, lookups. (`rules_shape.py` has views and reductions.)"""

from __future__ import annotations

from typing import Any

from ...backends.facts import POINTWISE
from ...nn import functional as F
from ...ops.core.export import FUNCTIONS
from ...tensors.dtypes import dtype
from ...utils._pytree import tree_map
from . import random, rules_shape  # noqa: F401  (they enter themselves)
from .dispatch import RULES, bound, distributed_in, everywhere, execute, gathered, rule, without_partial
from .dtensor import DTensor, as_dtensor, local_of, moved
from .layout import is_partial, local_geometry
from .moves import redistributed, shared
from .placement_types import Partial, Replicate, Shard


# --------------------------------------------------------------------------------------------------- element by element
def _broadcast(shapes: list[Any]) -> tuple[int, ...]:
    ndim = max(map(len, shapes))
    padded = [(1,) * (ndim - len(s)) + tuple(s) for s in shapes]
    made = []
    for column in zip(*padded):
        sizes = {n for n in column if n != 1}
        if len(sizes) > 1:
            raise RuntimeError(f"The sizes of DTensors do not match: {[list(s) for s in shapes]}")
        made.append(sizes.pop() if sizes else 1)
    return tuple(made)


def aligned(x: DTensor, out: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """The placements of an operand that broadcasts to a result with these."""
    wants = []
    for p in out:
        dim = p.dim - (len(shape) - x.ndim) if isinstance(p, Shard) else -1
        if dim >= 0 and x.shape[dim] == shape[p.dim]:
            wants.append(p if dim == p.dim else type(p)(dim) if type(p) is Shard else Shard(dim))
        else:
            wants.append(Replicate())
    return tuple(wants)


@rule
def pointwise(func: Any, args: Any, kwargs: Any) -> Any:
    """As the first operand that is cut says; summands are added first."""
    given = distributed_in(args, kwargs)
    shape = _broadcast([t.shape for t in given])
    out: list[Any] = [Replicate()] * given[0].device_mesh.ndim
    for t in given:
        for i, p in enumerate(t.placements):
            if isinstance(p, Shard) and isinstance(out[i], Replicate):
                dim = p.dim + len(shape) - t.ndim
                if t.shape[p.dim] == shape[dim]:
                    out[i] = p if dim == p.dim else Shard(dim)
    return execute(func, args, kwargs, [aligned(t, out, shape) for t in given], out, lambda made: shape)


# Elements by themselves, though no single kernel of that kind computes them.
for _names in (("masked_fill", "clamp_min", "clamp_max", "round"), ("hardtanh", "selu", "relu6", "logsigmoid"),
               ("softsign", "tanhshrink", "float_power", "positive"), ("bool", "int", "long", "rdiv")):
    for _name in _names:
        RULES[_name] = pointwise


def _kept(func: Any, args: Any, kwargs: Any) -> Any:
    """What is true of pieces, and of summands: copies, and casts that keep fractions."""
    x = args[0]
    if is_partial(x.placements) and any(d.__class__ is dtype and not (d.is_floating_point or d.is_complex)
                                        for d in (*args[1:], *kwargs.values())):
        return pointwise(func, args, kwargs)
    return execute(func, args, kwargs, [x.placements], x.placements, lambda made: x.shape)


for _name in ("detach", "clone", "contiguous", "alias", "to"):
    RULES[_name] = _kept
for _name in ("float", "double", "half", "bfloat16"):
    RULES[_name] = _kept
for _name in ("cpu", "cuda", "type", "pin_memory"):
    RULES[_name] = _kept


@rule
def zeros_like(func: Any, args: Any, kwargs: Any) -> Any:
    """New tensors lie as the old one does, but are no summands: a one on every process would be many."""
    x = args[0]
    out = [Replicate() if p.is_partial() else p for p in x.placements]
    return execute(func, args, kwargs, [x.placements], out, lambda made: x.shape)


RULES["ones_like"] = RULES["empty_like"] = RULES["full_like"] = zeros_like


@rule
def add(func: Any, args: Any, kwargs: Any) -> Any:
    """Summands of one kind stay summands."""
    given = distributed_in(args, kwargs)
    first = given[0].placements
    if len(given) == 2 and is_partial(first) and first == given[1].placements and given[0].shape == given[1].shape:
        shape = given[0].shape
        return execute(func, args, kwargs, [first, first], first, lambda made: shape)
    return pointwise(func, args, kwargs)


RULES["sub"] = add


@rule
def in_place(func: Any, args: Any, kwargs: Any) -> Any:
    """The target stays where it is; the other operands come to it."""
    target, name = args[0], func.__name__
    if not isinstance(target, DTensor):
        raise RuntimeError(f"{name}: a DTensor cannot be written into a plain tensor")
    if is_partial(target.placements) and name != "zero_":
        raise NotImplementedError(f"{name} on a DTensor with summands, {target.placements}, is not implemented: redistribute "
                                  "it")
    known = RULES.get(name[:-1])
    if known not in (None, pointwise, add, _kept) or (known is None and not _elementwise(name[:-1])):
        raise NotImplementedError(f"{name} is not implemented for DTensors in flambeau: use {name[:-1]}")
    shape, local = target.shape, local_of(target)

    def piece(t: Any) -> Any:
        if t is target:
            return local
        if not isinstance(t, DTensor):
            return t
        want = aligned(t, target.placements, shape)
        cut = [i for i, p in enumerate(target.placements) if isinstance(p, Shard) and isinstance(want[i], Replicate)]
        return shared(local_of(moved(t, want)), t.device_mesh, cut)

    made = func(*tree_map(piece, args), **tree_map(piece, kwargs))
    target._array, target._node, target._counter = made._array, made._node, made._counter
    for name in ("_base", "_seen"):
        if name in made.__dict__:
            target.__dict__[name] = made.__dict__[name]
    return target


def _elementwise(name: str) -> bool:
    return name in POINTWISE or name in ("zero", "fill", "copy", "clamp")


@rule
def backward(func: Any, args: Any, kwargs: Any) -> Any:
    """Each process starts at its piece; of summands the gradient is that of the sum."""
    named = bound(func, args, kwargs, ("self", "gradient", "retain_graph", "create_graph", "inputs"))
    x, gradient = named.pop("self"), named.pop("gradient", None)
    if gradient is not None:
        goal = tuple([Replicate() if p.is_partial() else p for p in x.placements])
        gradient = local_of(moved(gradient, goal))
    if named.get("inputs") is not None:
        raise NotImplementedError("DTensor.backward(inputs=...) is not implemented in flambeau")
    return func(local_of(x), gradient, **named)


@rule
def grad(func: Any, args: Any, kwargs: Any) -> Any:
    raise NotImplementedError("autograd.grad of DTensors is not implemented in flambeau: call backward() and read .grad")


def _number(func: Any, args: Any, kwargs: Any) -> Any:
    return func(args[0].full_tensor(), *args[1:], **kwargs)


RULES["item"] = RULES["tolist"] = _number


@rule
def numpy(func: Any, args: Any, kwargs: Any) -> Any:
    raise RuntimeError("DTensor: take full_tensor() or to_local() to NumPy")


@rule
def is_contiguous(func: Any, args: Any, kwargs: Any) -> bool:
    return func(local_of(args[0]), *args[1:], **kwargs)


# ------------------------------------------------------------------------------------------------------------- products
def _product(a: Any, b: Any, pa: Any, pb: Any, ndim: int) -> tuple[Any, Any, Any]:
    """(placement of a, of b, of a @ b) along one dimension of the mesh; both have two dimensions or more."""
    row, inner, lead = a.ndim - 2, b.ndim - 2, ndim - a.ndim
    def batch(x: Any, p: Any, other: Any) -> Any:
        dim = p.dim - (x.ndim - other.ndim)
        return Shard(dim) if dim >= 0 and other.shape[dim] == x.shape[p.dim] else Replicate()

    if isinstance(pa, Shard):
        if pa.dim < row:
            return pa, batch(a, pa, b), Shard(pa.dim + lead)
        if pa.dim == row and not (isinstance(pb, Shard) and pb.dim == inner + 1 and b.shape[-1] > a.shape[-2]):
            return pa, Replicate(), Shard(ndim - 2)
        if pa.dim == row + 1 and not (isinstance(pb, Shard) and pb.dim > inner):
            return pa, Shard(inner), Partial()
    if isinstance(pb, Shard):
        if pb.dim < inner:
            return batch(b, pb, a), pb, Shard(pb.dim + ndim - b.ndim)
        if pb.dim == inner + 1:
            return Replicate(), pb, Shard(ndim - 1)
        return Shard(row + 1), pb, Partial()
    if isinstance(pa, Partial) and isinstance(pb, Replicate) and pa.reduce_op == "sum":
        return pa, pb, pa
    if isinstance(pb, Partial) and isinstance(pa, Replicate) and pb.reduce_op == "sum":
        return pa, pb, pb
    return Replicate(), Replicate(), Replicate()


@rule
def matmul(func: Any, args: Any, kwargs: Any) -> Any:
    a, b = args[:2]
    if a.ndim < 2 or b.ndim < 2:
        return everywhere(func, args, kwargs)
    ndim = max(a.ndim, b.ndim)
    found = [_product(a, b, pa, pb, ndim) for pa, pb in zip(a.placements, b.placements)]
    wa, wb, out = ([f[k] for f in found] for k in range(3))
    shape = (*_broadcast([a.shape[:-2], b.shape[:-2]]), a.shape[-2], b.shape[-1]) if ndim > 2 else (a.shape[0], b.shape[1])
    return execute(func, args, kwargs, [wa, wb], out, lambda made: shape)


RULES["mm"] = RULES["bmm"] = matmul


@rule
def addmm(func: Any, args: Any, kwargs: Any) -> Any:
    beta, alpha = kwargs.get("beta", 1), kwargs.get("alpha", 1)
    made = FUNCTIONS["matmul"](args[1], args[2])
    made = made if alpha == 1 else made * alpha
    return made if beta == 0 else made + (args[0] if beta == 1 else args[0] * beta)


@rule
def linear(func: Any, args: Any, kwargs: Any) -> Any:
    """(input, weight, bias). Where the product is of summands, one process adds the bias."""
    named = bound(func, args, kwargs, ("input", "weight", "bias"))
    x, w, bias = named["input"], named["weight"], named.get("bias")
    wants, out = [], []
    for px, pw in zip(x.placements, w.placements):
        if isinstance(pw, Shard) and pw.dim == 0 and not (isinstance(px, Shard) and px.dim < x.ndim - 1
                                                          and w.shape[0] < x.numel() // x.shape[-1]):
            wants.append((Replicate(), pw, Shard(0)))
            out.append(Shard(x.ndim - 1))
        elif isinstance(px, Shard) and px.dim < x.ndim - 1:
            wants.append((px, Replicate(), Replicate()))
            out.append(px)
        elif (isinstance(pw, Shard) and pw.dim == 1) or isinstance(px, Shard):
            wants.append((Shard(x.ndim - 1), Shard(1), Replicate()))
            out.append(Partial())
        else:
            wants.append((Replicate(),) * 3)
            out.append(Replicate())
    shape = (*x.shape[:-1], w.shape[0])
    wx, ww, wb = ([w[k] for w in wants] for k in range(3))
    if bias is not None and not is_partial(out):
        return execute(func, (x, w, bias), {}, [wx, ww, wb], out, lambda made: shape)
    made = execute(func, (x, w), {}, [wx, ww], out, lambda made: shape)
    return made if bias is None else _biased(made, bias, wb)


def _biased(made: DTensor, bias: DTensor, want: list[Any]) -> DTensor:
    """Summands plus a bias: as a summand of its own, which one process has."""
    mesh = made.device_mesh
    target = [Partial() if o.is_partial() else w for o, w in zip(made.placements, want)]
    source = moved(bias, tuple(want))
    local = redistributed(local_of(source), mesh, bias.shape, source.placements, target)
    cut = [i for i, (o, t) in enumerate(zip(made.placements, target)) if isinstance(o, Shard) and isinstance(t, Replicate)]
    return as_dtensor(local_of(made) + shared(local, mesh, cut), mesh, made.placements, made.shape)


# ---------------------------------------------------------------------------------------------------------------- lookups
@rule
def embedding(func: Any, args: Any, kwargs: Any) -> Any:
    """Rows of a table. Cut by rows: each process looks up those that it has, and zeros for the others."""
    named = bound(func, args, kwargs, ("input", "weight", "padding_idx", "max_norm"))
    places, table = named["input"], named["weight"]
    if named.get("max_norm") is not None or named.get("sparse") or named.get("scale_grad_by_freq"):
        return everywhere(func, args, kwargs)
    by_rows = [i for i, p in enumerate(table.placements) if isinstance(p, Shard) and p.dim == 0]
    wants, out = [], []
    for pi, pt in zip(places.placements, table.placements):
        if isinstance(pt, Shard):
            wants.append((Replicate(), pt))
            out.append(Partial() if pt.dim == 0 else Shard(places.ndim))
        else:
            wants.append((pi if isinstance(pi, Shard) else Replicate(), Replicate()))
            out.append(wants[-1][0])
    shape = (*places.shape, table.shape[1])
    wi, wt = ([w[k] for w in wants] for k in range(2))
    if not by_rows:
        return execute(func, args, kwargs, [wi, wt], out, lambda made: shape)
    if len(by_rows) > 1 or named.get("padding_idx") is not None:
        return everywhere(func, args, kwargs)
    return _own_rows(places, table, wi, wt, out, shape)


def _own_rows(places: DTensor, table: DTensor, wi: Any, wt: Any, out: Any, shape: Any) -> DTensor:
    mesh = table.device_mesh
    local = local_of(moved(table, tuple(wt)))
    (rows, _), (start, _) = local_geometry(table.shape, mesh, wt)
    found = local_of(moved(places, tuple(wi))) - start
    foreign = (found < 0) | (found >= rows)
    split = [i for i, (a, b) in enumerate(zip(wi, wt)) if isinstance(b, Replicate) and not isinstance(a, Replicate)]
    if rows:
        made = F.embedding(found.masked_fill(foreign, 0), shared(local, mesh, split))
        made = made.masked_fill(foreign.unsqueeze(-1), 0)
    else:
        made = local.sum(0) + FUNCTIONS["zeros"]((*found.shape, local.shape[1]), dtype=local.dtype, device=local.device)
    return as_dtensor(made, mesh, out, shape)


# --------------------------------------------------------------------------------------------------------- attention, losses
@rule
def scaled_dot_product_attention(func: Any, args: Any, kwargs: Any) -> Any:
    """Batches and heads are apart from each other; queries, keys and values have to be cut alike."""
    given = distributed_in(args, kwargs)
    first, dropout = given[0], kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0)
    alike = len(given) == 3 and all(t.placements == first.placements for t in given)
    heads = alike and all(t.shape[:-2] == first.shape[:-2] for t in given)
    if not heads or dropout or any(not (isinstance(p, Replicate) or (p.is_shard() and p.dim < first.ndim - 2))
                                   for p in first.placements):
        return everywhere(func, args, kwargs)
    shape = (*first.shape[:-1], given[2].shape[-1])
    return execute(func, args, kwargs, [first.placements] * 3, first.placements, lambda made: shape)


@rule
def mse_loss(func: Any, args: Any, kwargs: Any) -> Any:
    """The mean, or sum, of what each process computes of its piece."""
    reduction = kwargs.get("reduction", "mean")
    if len(args) != 2 or kwargs.get("weight") is not None or kwargs.get("size_average") is not None or kwargs.get(
            "reduce") is not None or reduction not in ("mean", "sum") or args[0].shape != args[1].shape:
        return everywhere(func, args, kwargs)
    each = (args[0] - args[1]).square()
    return each.mean() if reduction == "mean" else each.sum()


def norm_of(x: DTensor, order: float) -> DTensor:
    """The norm of all elements, of the pieces' norms."""
    x = without_partial(x)
    local = local_of(x).abs()
    if order == 2:
        made = local.square().sum()
    elif order == float("inf"):
        made = local.max() if local.numel() else local.sum()
    else:
        made = local.pow(order).sum()
    op = "max" if order == float("inf") else "sum"
    out = tuple([Partial(op) if isinstance(p, Shard) else p for p in x.placements])
    total = without_partial(as_dtensor(made, x.device_mesh, out, ()))
    return total if order == float("inf") else total.sqrt() if order == 2 else total.pow(1 / order)


@rule
def vector_norm(func: Any, args: Any, kwargs: Any) -> Any:
    named = bound(func, args, kwargs, ("x", "ord", "dim", "keepdim"))
    order = named.get("ord", 2)
    if named.get("dim") is not None or named.get("keepdim") or named.get("dtype") is not None or order in (0, float("-inf")):
        return everywhere(func, args, kwargs)
    return norm_of(args[0], order)


@rule
def norm(func: Any, args: Any, kwargs: Any) -> Any:
    named = bound(func, args, kwargs, ("x", "p", "dim", "keepdim"))
    if named.get("dim") is not None or named.get("keepdim") or named.get("dtype") is not None or named.get("p", "fro") not in (
            "fro", 2, 2.0):
        return everywhere(func, args, kwargs)
    return norm_of(args[0], 2)


@rule
def layer_norm(func: Any, args: Any, kwargs: Any) -> Any:
    """Over the last dimensions, which have to be whole."""
    named = bound(func, args, kwargs, ("input", "normalized_shape", "weight", "bias", "eps"))
    x = named["input"]
    count = len(named["normalized_shape"])
    x = gathered(x, range(x.ndim - count, x.ndim))
    whole = (Replicate(),) * x.device_mesh.ndim
    others = distributed_in(args[1:], kwargs)
    return execute(func, (x, *args[1:]), kwargs, [x.placements, *[whole] * len(others)], x.placements, lambda made: x.shape)


RULES["rms_norm"] = layer_norm
