"""Rules: views, joining, reductions and all else that works along dimensions."""

from __future__ import annotations

import math
from typing import Any

from ...ops.core.export import FUNCTIONS
from .dispatch import RULES, bound, distributed_in, everywhere, execute, gathered, rule, wrapped
from .dtensor import DTensor, as_dtensor, local_of, moved
from .layout import local_geometry
from .placement_types import Partial, Replicate, Shard


def _dims(dim: Any, ndim: int) -> list[int]:
    """Dimensions counted from the front; all, if none is named."""
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return list(range(ndim))
    return [d % max(ndim, 1) for d in (dim if isinstance(dim, (tuple, list)) else [dim])]


def _moved_dims(x: DTensor, new_place: Any) -> tuple[Any, ...]:
    """Placements after dimensions changed places: new_place(dim) is where one went."""
    return tuple([Shard(new_place(p.dim)) if isinstance(p, Shard) else p for p in x.placements])


def _plain_shards(x: DTensor) -> DTensor:
    """Without strided cuts, which only their own dimension can keep."""
    if all(type(p) in (Shard, Replicate, Partial) for p in x.placements):
        return x
    return moved(x, tuple([p if type(p) in (Shard, Replicate, Partial) else Replicate() for p in x.placements]))


# ----------------------------------------------------------------------------------------------------------------- views
@rule
def permute(func: Any, args: Any, kwargs: Any) -> Any:
    x = _plain_shards(args[0])
    order = kwargs.get("dims", args[1] if len(args) == 2 and not isinstance(args[1], int) else args[1:])
    order = [d % x.ndim for d in order]
    shape = [x.shape[d] for d in order]
    return execute(func, (x, order), {}, [x.placements], _moved_dims(x, order.index), lambda made: shape)


@rule
def transpose(func: Any, args: Any, kwargs: Any) -> Any:
    named = bound(func, args, kwargs, ("x", "dim0", "dim1"))
    ndim, a, b = args[0].ndim, named["dim0"], named["dim1"]
    order = list(range(ndim))
    order[a % ndim], order[b % ndim] = order[b % ndim], order[a % ndim]
    return FUNCTIONS["permute"](args[0], order)


RULES["swapaxes"] = RULES["swapdims"] = transpose


@rule
def t(func: Any, args: Any, kwargs: Any) -> Any:
    return FUNCTIONS["permute"](args[0], [1, 0]) if args[0].ndim == 2 else args[0]


@rule
def unsqueeze(func: Any, args: Any, kwargs: Any) -> Any:
    named = bound(func, args, kwargs, ("x", "dim"))
    x = _plain_shards(args[0])
    dim = named["dim"] % (x.ndim + 1)
    shape = (*x.shape[:dim], 1, *x.shape[dim:])
    return execute(func, (x, dim), {}, [x.placements], _moved_dims(x, lambda d: d + (d >= dim)), lambda made: shape)


@rule
def squeeze(func: Any, args: Any, kwargs: Any) -> Any:
    named = bound(func, args, kwargs, ("x", "dim"))
    x = args[0]
    gone = [d for d in _dims(named.get("dim"), x.ndim) if x.shape[d] == 1]
    return x.reshape([n for d, n in enumerate(x.shape) if d not in gone])


@rule
def expand(func: Any, args: Any, kwargs: Any) -> Any:
    x = _plain_shards(args[0])
    sizes = list(kwargs.get("size", args[1] if len(args) == 2 and not isinstance(args[1], int) else args[1:]))
    more = len(sizes) - x.ndim
    shape = [x.shape[d - more] if n == -1 else n for d, n in enumerate(sizes)]
    x = gathered(x, [d for d in range(x.ndim) if x.shape[d] != shape[d + more]], partial=False)
    out = _moved_dims(x, lambda d: d + more)
    local = local_geometry(shape, x.device_mesh, [p if isinstance(p, Shard) else Replicate() for p in out])[0]
    return execute(func, (x, local), {}, [x.placements], out, lambda made: shape)


def _factors(source: Any, target: Any) -> list[tuple[list[int], list[int]]]:
    """Groups of dimensions of two shapes that have the same elements."""
    groups, i, j = [], 0, 0
    while i < len(source) or j < len(target):
        a, b = [], []
        n = m = 1
        if i < len(source):
            a.append(i)
            n, i = source[i], i + 1
        if j < len(target):
            b.append(j)
            m, j = target[j], j + 1
        while n != m:
            if n < m and i < len(source):
                a.append(i)
                n, i = n * source[i], i + 1
            elif j < len(target):
                b.append(j)
                m, j = m * target[j], j + 1
            else:
                raise RuntimeError(f"shape '{list(target)}' is invalid for input of size {math.prod(source)}")
        groups.append((a, b))
    return groups


def _reshaped(func: Any, x: DTensor, target: list[int]) -> DTensor:
    """A cut dimension stays one if it is the first of those that are joined, and its pieces hold whole rows of the others."""
    if -1 in target:
        known = -math.prod(target)
        target = [x.numel() // known if n == -1 else n for n in target]
    if math.prod(target) != x.numel():
        raise RuntimeError(f"shape '{target}' is invalid for input of size {x.numel()}")
    x = _plain_shards(x)
    if not x.numel():
        return everywhere(func, (x, target), {})
    place = {}
    for a, b in _factors(x.shape, target):
        a = [d for d in a if x.shape[d] != 1] or a
        b = [d for d in b if target[d] != 1] or b
        if a and b:
            place[a[0]] = b[0]
    wants = []
    for p in x.placements:
        parts = math.prod(x.device_mesh.shape[k] for k, q in enumerate(x.placements) if q == p)
        kept = isinstance(p, Shard) and p.dim in place and target[place[p.dim]] % parts == 0 and x.shape[p.dim] % parts == 0
        same = isinstance(p, Shard) and p.dim in place and target[place[p.dim]] == x.shape[p.dim]
        wants.append(p if kept or same or (isinstance(p, Partial) and p.reduce_op == "sum") else Replicate())
    x = moved(x, tuple(wants))
    out = _moved_dims(x, place.__getitem__)
    local = local_geometry(target, x.device_mesh, [p if isinstance(p, Shard) else Replicate() for p in out])[0]
    return execute(func, (x, local), {}, [x.placements], out, lambda made: target)


@rule
def reshape(func: Any, args: Any, kwargs: Any) -> Any:
    sizes = kwargs.get("shape", args[1] if len(args) == 2 and not isinstance(args[1], int) else args[1:])
    if kwargs.get("dtype") is not None or not isinstance(sizes, (tuple, list)):
        return everywhere(func, args, kwargs)
    return _reshaped(FUNCTIONS["reshape"], args[0], list(sizes))


RULES["view"] = reshape


@rule
def flatten(func: Any, args: Any, kwargs: Any) -> Any:
    named = bound(func, args, kwargs, ("x", "start_dim", "end_dim"))
    x = args[0]
    if not x.ndim:
        return x.reshape((1,))
    first, last = named.get("start_dim", 0) % x.ndim, named.get("end_dim", -1) % x.ndim
    return x.reshape((*x.shape[:first], math.prod(x.shape[first:last + 1]), *x.shape[last + 1:]))


@rule
def unflatten(func: Any, args: Any, kwargs: Any) -> Any:
    named = bound(func, args, kwargs, ("x", "dim", "sizes"))
    x, dim = args[0], named["dim"] % args[0].ndim
    sizes = list(named["sizes"])
    if -1 in sizes:
        sizes[sizes.index(-1)] = x.shape[dim] // -math.prod(sizes)
    return x.reshape((*x.shape[:dim], *sizes, *x.shape[dim + 1:]))


def _cut_along(func: Any, args: Any, kwargs: Any, names: tuple[str, ...], least: bool) -> Any:
    """split, chunk and unbind: along a dimension that is whole."""
    named = bound(func, args, kwargs, names)
    dim = named.get("dim", 0) % args[0].ndim
    x = gathered(_plain_shards(args[0]), [dim], partial=False)
    out = _moved_dims(x, lambda d: d - (least and d > dim))
    sizes = {d - (least and d > dim): n for d, n in enumerate(x.shape) if d != dim}
    return execute(func, (x, *args[1:]), kwargs, [x.placements], out, sizes)


@rule
def split(func: Any, args: Any, kwargs: Any) -> Any:
    return _cut_along(func, args, kwargs, ("x", "split_size", "dim"), False)


@rule
def chunk(func: Any, args: Any, kwargs: Any) -> Any:
    return _cut_along(func, args, kwargs, ("x", "chunks", "dim"), False)


@rule
def unbind(func: Any, args: Any, kwargs: Any) -> Any:
    return _cut_along(func, args, kwargs, ("x", "dim"), True)


@rule
def getitem(func: Any, args: Any, kwargs: Any) -> Any:
    """Whole dimensions stay cut; what is indexed has to be whole."""
    x, index = _plain_shards(args[0]), args[1]
    index = index if isinstance(index, tuple) else (index,)
    if any(not (i is None or i is Ellipsis or (isinstance(i, (int, slice)) and not isinstance(i, bool))) for i in index):
        return everywhere(func, args, kwargs)
    count = sum(isinstance(i, (int, slice)) for i in index)
    if Ellipsis not in index:
        index = (*index, Ellipsis)
    at = next(k for k, i in enumerate(index) if i is Ellipsis)
    index = (*index[:at], *[slice(None)] * (x.ndim - count), *index[at + 1:])
    place, touched, dim, new = {}, [], 0, 0
    for i in index:
        if i is None:
            new += 1
            continue
        if i != slice(None):
            touched.append(dim)
        if isinstance(i, slice):
            place[dim] = new
            new += 1
        dim += 1
    x = gathered(x, touched, partial=False)
    sizes = {place[d]: x.shape[d] for d in place}
    return execute(func, (x, index), {}, [x.placements], _moved_dims(x, place.__getitem__), sizes)


@rule
def cat(func: Any, args: Any, kwargs: Any) -> Any:
    named = bound(func, args, kwargs, ("tensors", "dim"))
    tensors = [_plain_shards(t) for t in named["tensors"]]
    dim = named.get("dim", 0) % tensors[0].ndim
    first = gathered(tensors[0], [dim]).placements
    shape = list(tensors[0].shape)
    shape[dim] = sum(t.shape[dim] for t in tensors)
    return execute(func, (tensors, dim), {}, [first] * len(tensors), first, lambda made: shape)


@rule
def stack(func: Any, args: Any, kwargs: Any) -> Any:
    named = bound(func, args, kwargs, ("tensors", "dim"))
    tensors = [_plain_shards(t) for t in named["tensors"]]
    dim = named.get("dim", 0) % (tensors[0].ndim + 1)
    first = gathered(tensors[0], []).placements
    shape = (*tensors[0].shape[:dim], len(tensors), *tensors[0].shape[dim:])
    out = [Shard(p.dim + (p.dim >= dim)) if isinstance(p, Shard) else p for p in first]
    return execute(func, (tensors, dim), {}, [first] * len(tensors), out, lambda made: shape)


# ------------------------------------------------------------------------------------------------------------ reductions
def _without(shape: Any, dims: list[int], keepdim: bool) -> list[int]:
    return [1 if d in dims else n for d, n in enumerate(shape) if keepdim or d not in dims]


def _after(dims: list[int], keepdim: bool) -> Any:
    """Where a dimension is after others were reduced."""
    return lambda d: d if keepdim else d - sum(k < d for k in dims)


def _sum(func: Any, args: Any, kwargs: Any) -> Any:
    """Each process adds up its piece: the sums are summands."""
    named = bound(func, args, kwargs, ("x", "dim", "keepdim"))
    x = _plain_shards(args[0])
    dims, keepdim = _dims(named.get("dim"), x.ndim), bool(named.get("keepdim", False))
    x = moved(x, tuple([Replicate() if isinstance(p, Partial) and p.reduce_op != "sum" else p for p in x.placements]))
    after = _after(dims, keepdim)
    out = [Partial() if p.is_partial() or (isinstance(p, Shard) and p.dim in dims) else
           Shard(after(p.dim)) if isinstance(p, Shard) else p for p in x.placements]
    shape = _without(x.shape, dims, keepdim)
    made = FUNCTIONS["sum"](local_of(x), dims, keepdim, dtype=named.get("dtype")) if x.ndim else local_of(x).sum()
    return wrapped(made, x.device_mesh, out, lambda _: shape)


@rule
def mean(func: Any, args: Any, kwargs: Any) -> Any:
    named = bound(func, args, kwargs, ("x", "dim", "keepdim"))
    x = args[0]
    if named.get("dtype") is not None:
        x = x.to(named["dtype"])
    if not (x.is_floating_point() or x.is_complex()):
        return everywhere(func, args, kwargs)
    dims = _dims(named.get("dim"), x.ndim)
    total = FUNCTIONS["sum"](x, dims, bool(named.get("keepdim", False)))
    count = math.prod(x.shape[d] for d in dims)
    spec = total._spec
    return as_dtensor(local_of(total) / count, spec.mesh, spec.placements, spec.shape)


def _reduction(names: tuple[str, ...] = ("x", "dim", "keepdim")) -> Any:
    """A reduction whose pieces cannot be put together: along dimensions that are whole."""
    def reduced(func: Any, args: Any, kwargs: Any) -> Any:
        named = bound(func, args, kwargs, names)
        dim = named.get("dim")
        if dim is None or isinstance(dim, DTensor):
            return everywhere(func, args, kwargs)
        dims, keepdim = _dims(dim, args[0].ndim), bool(named.get("keepdim", False))
        x = gathered(_plain_shards(args[0]), dims)
        shape = _without(x.shape, dims, keepdim)
        out = _moved_dims(x, _after(dims, keepdim))
        return execute(func, (x, *args[1:]), kwargs, [x.placements], out, lambda made: shape)

    return reduced


def _scan(func: Any, args: Any, kwargs: Any) -> Any:
    """The shape stays: along a dimension that is whole."""
    named = bound(func, args, kwargs, ("x", "dim"))
    dim = named.get("dim")
    if not isinstance(dim, int) or len(distributed_in(args, kwargs)) > 1:
        return everywhere(func, args, kwargs)
    x = gathered(_plain_shards(args[0]), [dim % args[0].ndim])
    return execute(func, (x, *args[1:]), kwargs, [x.placements], x.placements, lambda made: x.shape)


RULES["sum"] = _sum
for _names in (("amax", "amin", "logsumexp"), ("argmax", "argmin", "prod"), ("max", "min"), ("all", "any")):
    for _name in _names:
        RULES[_name] = _reduction()
for _name in ("softmax", "log_softmax", "cumsum", "cumprod"):
    RULES[_name] = _scan
