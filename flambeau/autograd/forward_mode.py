"""Forward-mode derivatives of the rows: how a tangent goes through an operation.

No row needs a rule of its own. A row's backward formulas are linear in the incoming gradient u, u -> J^H u; the
derivative of *that* map, applied to the tangents v, is J v. So the reverse-mode formulas of the table give forward
mode too. Linear rows and views are simply applied to their tangents.
"""

from __future__ import annotations

from typing import Any

from ..tensors.dtypes import GRAD_NUMS
from ..tensors.tensor import Tensor, wrap
from .engine import fit
from .passes import grad as differentiate
from .state import FORWARD_AD, NO_GRAD, SAVED_HOOKS, grad_enabled, state

_LISTS = (list, tuple)


def tangent_of(tensor: Tensor) -> Tensor | None:
    """The tensor's tangent at the current level; those of levels that ended no longer count."""
    pair = tensor._tangent
    return pair[1] if pair is not None and pair[0] == getattr(state, "forward_id", None) else None


def set_tangent(tensor: Tensor, tangent: Tensor | None) -> None:
    if tangent is not None:
        tensor._tangent = (state.forward_id, tangent)
    elif tensor._tangent is not None:
        tensor._tangent = None


class _computing_tangents:
    """Computes tangents: recording as the user has it, without hooks on saved tensors and without further tangents."""

    def __init__(self, record: bool):
        self.record = record

    def __enter__(self) -> None:
        self.before, self.probing = state.mode, state.probing
        state.probing = True
        mode = self.before & ~(FORWARD_AD | SAVED_HOOKS)
        state.mode = mode & ~NO_GRAD if self.record else mode | NO_GRAD

    def __exit__(self, *exc: Any) -> None:
        state.mode, state.probing = self.before, self.probing


def _tensors(args: Any) -> list[Tensor]:
    found = []
    for a in args:
        if isinstance(a, Tensor):
            found.append(a)
        elif a.__class__ in _LISTS:
            found += [t for t in a if isinstance(t, Tensor)]
    return found


def propagate(row: Any, args: tuple[Any, ...], results: Any) -> None:
    """Gives the results of a row their tangents (called by Row.finish)."""
    if not any(t._tangent is not None and tangent_of(t) is not None for t in _tensors(args)):
        return
    outs = results if results.__class__ is tuple else (results,)
    takes = [nr not in row.constant and o._array.dtype.num in GRAD_NUMS for nr, o in enumerate(outs)]
    if not any(takes) or not row.backward:
        return
    if row.view or row.forward == "linear":
        tangents = _apply_linear(row, args)
    else:
        tangents = _transpose_twice(row, args, results, outs, takes)
    for o, t, taken in zip(outs, tangents, takes):
        if taken and t is not None:
            set_tangent(o, t)


def _apply_linear(row: Any, args: tuple[Any, ...]) -> tuple[Tensor, ...]:
    def swap(a: Any, name: str) -> Any:
        if name not in row.backward:
            return a
        if isinstance(a, Tensor):
            tangent = tangent_of(a)
            return a.new_zeros(a.shape) if tangent is None else tangent
        if a.__class__ in _LISTS and any(isinstance(t, Tensor) for t in a):
            return type(a)([swap(t, name) for t in a])
        return a if isinstance(a, (bool, type(None))) or not isinstance(a,
                                                                        (int, float, complex)) or name != "other" else 0

    with _computing_tangents(grad_enabled()):
        try:
            made = row(*[swap(a, name) for a, name in zip(args, row.args)])
        except RuntimeError:  # a view that the tensor has and its tangent, with other strides, has not
            if not row.view or tangent_of(args[0]).stride() == args[0].stride():
                raise
            set_tangent(args[0], _laid_out_as(args[0], tangent_of(args[0])))
            made = row(*[swap(a, name) for a, name in zip(args, row.args)])
    return made if made.__class__ is tuple else (made,)


def _laid_out_as(tensor: Tensor, tangent: Tensor) -> Tensor:
    """The tangent in memory of its own, in the order of the tensor's."""
    order = sorted(range(tensor.dim()), key=lambda d: -tensor.stride(d))
    back = sorted(range(tensor.dim()), key=order.__getitem__)
    return tangent.permute(order).contiguous().permute(back)


def _transpose_twice(row: Any, args: tuple[Any, ...], results: Any, outs: tuple[Any, ...],
                     takes: list[bool]) -> list[Any]:
    record = grad_enabled()
    with _computing_tangents(True):
        # Any probe will do, the map being linear; ones, because some formulas take the logarithm of the gradient on
        # the way.
        probes = [o.new_ones(o.shape).requires_grad_(True) if taken else None for o, taken in zip(outs, takes)]
        pulled, tangents = [], []
        values = _values(row, args, results)
        for index, formula, picks in row.formulas:
            wanted = _tensors((args[index],))
            if not any(tangent_of(t) is not None for t in wanted):
                continue
            got = formula(*[values[p] if p.__class__ is int else probes[0] if p == "grad" else list(probes)
                            for p in picks])
            got = got if isinstance(args[index], (list, tuple)) else (got,)
            for t, g in zip(args[index] if isinstance(args[index], (list, tuple)) else (args[index],), got):
                tangent = tangent_of(t) if isinstance(t, Tensor) else None
                if tangent is None or g is None:
                    continue
                g = fit(g, t._array.shape, t._array.dtype, _Named(row), index)
                if g.requires_grad:
                    pulled.append(g)
                    tangents.append(tangent)
        real = [p for p in probes if p is not None]
        if not pulled:
            made = [None] * len(real)
        else:
            made = list(differentiate(pulled, real, tangents, create_graph=record, allow_unused=True))
    found = iter(made)
    return [_or_zeros(next(found), o) if taken else None for o, taken in zip(outs, takes)]


def _or_zeros(tangent: Tensor | None, like: Tensor) -> Tensor:
    return like.new_zeros(like.shape) if tangent is None else tangent


class _Named:
    """Stands for the node in an error message."""

    def __init__(self, row: Any):
        self.row = row

    def name(self) -> str:
        return f"forward-mode derivative of {self.row.name}"


def _values(row: Any, args: tuple[Any, ...], results: Any) -> list[Any]:
    """What the formulas' names stand for: arguments and results with their history but without tangents."""
    values = []
    for name in row.slots:
        if name == "needs":
            values.append(_needs(args))
        elif name.startswith("result"):
            values.append(_bare(results[int(name[6:] or 0)] if results.__class__ is tuple else results))
        elif name in row.args:
            values.append(_bare(args[row.args.index(name)]))
        else:
            source, _, what = name.rpartition("_")
            value = args[row.args.index(source)]
            if what == "shape":
                values.append(value.shape if isinstance(value, Tensor) else tuple([t.shape for t in value]))
            else:
                values.append(value._array.strides if what == "strides" else value.dtype)
    return values


def _needs(args: tuple[Any, ...]) -> tuple[bool, ...]:
    flat: list[bool] = []
    for a in args:
        if a.__class__ in _LISTS and any(isinstance(t, Tensor) for t in a):
            flat += [isinstance(t, Tensor) and tangent_of(t) is not None for t in a]
        else:
            flat.append(isinstance(a, Tensor) and tangent_of(a) is not None)
    return tuple(flat)


def _bare(value: Any) -> Any:
    if isinstance(value, Tensor) and value._tangent is not None:
        primal = wrap(value._array)
        primal._node = value._node
        return primal
    if value.__class__ in _LISTS and any(isinstance(t, Tensor) for t in value):
        return tuple([_bare(t) for t in value])
    return value


def store_tangent(target: Tensor, result: Tensor) -> None:
    """After an in-place change: the target has the result's tangent."""
    _replace(target, tangent_of(result))


def copied(target: Tensor, args: tuple[Any, ...]) -> None:
    """After copy_ or fill_: the target has the (broadcast) tangent of what was written, if that has one."""
    new = next((t for t in (tangent_of(a) for a in args if isinstance(a, Tensor)) if t is not None), None)
    if new is not None:
        with _computing_tangents(grad_enabled()):
            new = new.to(target.dtype).expand(target.shape).clone()
    elif tangent_of(target) is not None:
        new = target.new_zeros(target.shape)
    _replace(target, new)


def _replace(target: Tensor, new: Tensor | None) -> None:
    """A view's tangent is a view of its base's: the change is written there."""
    old, base = tangent_of(target), target._base
    if base is not None and old is not None:
        with _computing_tangents(grad_enabled()):
            old.zero_() if new is None else old.copy_(new)
        return
    if base is not None and new is not None and tangent_of(base) is None:
        with _computing_tangents(False):
            full = base.new_zeros(base.shape)
            part = full.as_strided(target.size(), target.stride(), target.storage_offset() - base.storage_offset())
            part.copy_(new)
        set_tangent(base, full)
        new = part
    set_tangent(target, new)


def custom_function(ctx: Any, args: tuple[Any, ...], out: Any) -> Any:
    """Runs the jvp of a custom Function when an input has a tangent."""
    tangents = [tangent_of(a) if isinstance(a, Tensor) else None for a in args]
    saved, ctx.saved_for_forward = ctx.saved_for_forward, None
    if all(t is None for t in tangents):
        return out
    if ctx.materialize_grads:
        tangents = [a.new_zeros(a.shape) if t is None and isinstance(a,
                                                                     Tensor) and a._array.dtype.num in GRAD_NUMS else t
                    for a, t in zip(args, tangents)]
    ctx._jvp_saved = saved or ()
    versions = [0 if t is None else t._version for t in tangents]
    try:
        with _computing_tangents(grad_enabled()):
            made = ctx._forward_cls.jvp(ctx, *tangents)
    finally:
        ctx._jvp_saved = None
    outs, made = (v if isinstance(v, tuple) else (v,) for v in (out, made))
    if len(made) != len(outs):
        raise RuntimeError(f"Function's jvp returned an invalid number of forward gradients (expected {len(outs)} but got "
                           f"{len(made)})")
    for i, (o, t) in enumerate(zip(outs, made)):
        if t is None:
            continue
        constant = any(o is c for c in ctx.non_differentiable or ())
        if constant or not isinstance(o, Tensor) or o._array.dtype.num not in GRAD_NUMS:
            raise RuntimeError(f"Function's jvp returned a gradient at position {i}, but  the corresponding forward output is "
                               "not a differentiable Tensor.You should return None at that position instead.")
        if not isinstance(t, Tensor):
            raise TypeError(f"{ctx._forward_cls.__name__}.jvp must return Tensors or None, got {type(t).__name__}")
        if t._array.shape != o._array.shape:
            raise RuntimeError(f"{ctx._forward_cls.__name__}.jvp: a tangent has shape {list(t.shape)}, its output "
                               f"{list(o.shape)}")
        _check_shared(ctx, o, t, args, tangents, versions)
        set_tangent(o, t)
    return out


def _check_shared(ctx: Any, out: Tensor, tangent: Tensor, args: Any, tangents: list[Any], versions: list[int]) -> None:
    """A jvp must treat tangents as forward treated the tensors: change them in place, or return views of them."""
    if any(out is d for d in ctx.dirty_tensors or ()):
        at = next(k for k, a in enumerate(args) if a is out)
        if tangents[at]._version == versions[at]:
            raise RuntimeError("An inplace custom Function is not modifying the forward mode gradients inplace. If the forward "
                               "is modifying an input inplace, then the jvp function must modify the corresponding gradient "
                               "inplace.")
        if tangent is not tangents[at]:
            raise RuntimeError("An inplace custom Function is not returning the forward mode gradients as-is. If the forward "
                               "is modifying an input inplace, then the jvp function must modify the gradient inplace and "
                               "return it as-is.")
        return
    base = out._base
    for a, given in zip(args, tangents):
        if base is None or given is None or not (a is base or a._base is base):
            continue
        if tangent._base is None:
            raise RuntimeError("A custom Function's forward is returning a view (or an input as-is) but the jvp is not "
                               "returning a view.")
        if tangent._base is not (given if given._base is None else given._base):
            same = "" if given._base is None else "same base as the "
            raise RuntimeError("A custom Function is returning a view but the jvp is not returning a view of the "
                               f"{same}given grad input.")
        return
