"""What a custom Function's call leaves in the graph: its outputs, in-place changes and saved tensors."""

from __future__ import annotations

import warnings
from typing import Any

from ..backends.batched.arrays import marked
from ..tensors.dtypes import GRAD_NUMS
from ..tensors.tensor import Tensor, wrap
from . import state as _state
from .function_context import BackwardCFunction, FunctionNode, _make_node
from .node import INFERENCE_SAVED, AccumulateGrad, Edge, SavedOutput, bump, next_sequence
from .state import FORWARD_AD, INFERENCE, NO_GRAD, SAVED_HOOKS, state
from .views import CUSTOM_FUNCTION, NO_GRAD_VIEW, check_creation, mark_view, set_history


def _among(tensor: Tensor, args: tuple[Any, ...]) -> bool:
    for a in args:
        if a is tensor:
            return True
    return False


def _unrecorded(ctx: BackwardCFunction, args: tuple[Any, ...], out: Any) -> Any:
    """The outputs when there is nothing to record: none of them requires grad, none is an input object."""
    ctx.to_save = None
    dirty = ctx.dirty_tensors or ()

    def unrecorded(o: Any) -> Any:
        if not isinstance(o, Tensor):
            return o
        if _among(o, dirty):
            if not o._inference:
                bump(o)
            return o
        if _among(o, args):
            viewed = state.mode & FORWARD_AD and o.__class__ is Tensor  # jvp must then return a view, too
            return mark_view(wrap(o._array), o, CUSTOM_FUNCTION) if viewed else o.detach()
        if o._node is not None:
            return _strip(o)
        if o._creation == NO_GRAD_VIEW and not state.mode & NO_GRAD:
            o._creation = CUSTOM_FUNCTION
        return o

    return tuple([unrecorded(o) for o in out]) if isinstance(out, tuple) else unrecorded(out)


def _strip(o: Tensor) -> Tensor:
    return o.detach() if o._node.__class__ is AccumulateGrad else o.detach_() if hasattr(o, "detach_") else o.detach()


def _record(ctx: BackwardCFunction, args: tuple[Any, ...], edges: tuple[Any, ...], out: Any) -> Any:
    """Any call that is not one plain new tensor: several outputs, in-place changes, inputs and views returned."""
    dirty, constant = ctx.dirty_tensors or (), ctx.non_differentiable or ()
    outs = out if isinstance(out, tuple) else (out,)
    if not any(isinstance(o, Tensor) for o in outs):
        return out
    dirty = tuple([d for d in dirty if _check_dirty(d, args, outs)])
    ctx._edges = edges
    ctx._number = next_sequence()
    metas = [(marked(o._array), o._array.dtype) if isinstance(o, Tensor) else None for o in outs]
    ctx._metas = metas if isinstance(out, tuple) and len(outs) > 1 else metas[0]
    if len(edges) != len(args):
        ctx._positions = tuple([i for i, a in enumerate(args) if isinstance(a, Tensor)])
    if constant:
        ctx._constant = tuple([nr for nr, o in enumerate(outs) if _among(o, constant)])
    node = _make_node(ctx)
    made = []
    for nr, o in enumerate(outs):
        if isinstance(o, Tensor):
            edge = node if node.outputs is None else Edge(node, nr)
            o = _output(o, edge, args, dirty, constant)
        made.append(o)
    if ctx.to_save is not None:
        _save(ctx, node, outs, tuple(made))
    return tuple(made) if isinstance(out, tuple) else made[0]


def _check_dirty(tensor: Any, args: tuple[Any, ...], outs: tuple[Any, ...]) -> bool:
    """Whether a tensor given to mark_dirty is an input that was rightly changed in place."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"mark_dirty can only accept variables, but argument is of type {type(tensor).__name__}")
    if not _among(tensor, args):
        if tensor._base is not None:
            raise RuntimeError("ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that have been "
                               "mutated should be passed to ctx.mark_dirty().")
        warnings.warn("Only input Tensors should be given to ctx.mark_dirty(). If a Tensor is not an input, there is "
                      "no need to pass it to mark_dirty().", stacklevel=4)
        return False
    if not _among(tensor, outs):
        raise RuntimeError("Some elements marked as dirty during the forward method were not returned as output. The "
                           "inputs that are modified inplace must all be outputs of the Function.")
    base = tensor._base
    check_creation(tensor)
    if tensor._node.__class__ is AccumulateGrad:
        raise RuntimeError("a leaf Variable that requires grad has been used in an in-place operation.")
    if base is not None and base._node.__class__ is AccumulateGrad:
        raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")
    if base is not None and len(outs) > 1:
        raise RuntimeError("If your Function modifies inplace an input that is a view of another Tensor, your "
                           "Function cannot return more than one Tensor. This is not supported by the current "
                           "autograd engine. You should either make sure the input is not a view (using .clone() for "
                           "example) or make your Function only return one Tensor (potentially splitting it into two "
                           "Functions: one doing the inplace that returns a single Tensor and a second one that does "
                           "the other operations).")
    return True


def _output(o: Tensor, edge: Any, args: tuple[Any, ...], dirty: tuple[Any, ...], constant: tuple[Any, ...]) -> Tensor:
    """Makes one tensor that forward returned an output of the node."""
    if _among(o, constant) or o._array.dtype.num not in GRAD_NUMS:
        if _among(o, args) and not _among(o, dirty):
            return o.detach()
        o._node = None
        return o
    if _among(o, dirty):
        bump(o)
        set_history(o, edge)
        return o
    if _among(o, args):  # returned as it came: the caller gets a view, so that the input keeps its own history
        source, o = o, wrap(o._array)
        mark_view(o, source, CUSTOM_FUNCTION)
    elif o._base is not None:
        o._creation = CUSTOM_FUNCTION
    o._node = edge
    if o._base is not None:
        o._seen = o._counter.value
    return o


def _save(ctx: BackwardCFunction, node: FunctionNode, outs: tuple[Any, ...],
          made: tuple[Any, ...] | None = None) -> None:
    """Keeps what save_for_backward was given: outputs as bare arrays (no cycle), others with their version."""
    values: list[Any] = []
    versions = None
    for i, v in enumerate(ctx.to_save):
        if isinstance(v, Tensor):
            if v._inference:
                raise RuntimeError(INFERENCE_SAVED)
            if _among(v, outs):
                nr = next(k for k, o in enumerate(outs) if o is v)
                shown = v if made is None else made[nr]
                if made is None or (shown._node is not None and (shown is not v or shown._base is None)):
                    v = _SavedResult(shown, nr)
            if isinstance(v, Tensor) and v._counter is not None and v._counter.value:
                versions = versions or [0] * len(ctx.to_save)
                versions[i] = v._counter.value
        elif v is not None:
            raise TypeError(f"save_for_backward can only save variables, but argument {i} is of type {type(v).__name__}")
        values.append(v)
    ctx.to_save = None
    if state.mode & SAVED_HOOKS:
        from .saved_tensors import pack
        values = [v if v is None else pack(v, node) for v in values]
    ctx._saved = tuple(values)
    if versions is not None:
        ctx._versions = tuple(versions)


class _SavedResult(SavedOutput):
    """An output saved by its own custom Function."""

    __slots__ = ()


def _further(ctx: BackwardCFunction, args: tuple[Any, ...], out: Any, mode: int) -> Any:
    """What the rarer modes add to a call: anomaly records, forward-mode derivatives."""
    if mode & _state.ANOMALY and ctx._metas is not None:
        from .anomaly import remember
        remember(ctx._graph_node())
    if mode & FORWARD_AD and not mode & INFERENCE:
        from .forward_mode import custom_function
        out = custom_function(ctx, args, out)
    return out
