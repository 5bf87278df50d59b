"""A custom Function's call in the graph: the user's `ctx`, and the node by which the engine knows it.

A user's `ctx` is the object that `grad_fn` shows, and the user may hang any attribute on it (`ctx.shape` is a
favourite). So it is not the engine's node itself: a small `FunctionNode` carries what the engine reads, and owns the
ctx. The ctx refers back weakly and can make its node anew, so neither keeps the other alive in a circle.
"""

from __future__ import annotations

import warnings
import weakref
from typing import Any

from ..creation.factories import zeros
from ..tensors.dtypes import BY_NUM
from ..tensors.tensor import Tensor, wrap
from .errors import freed_error, modified_error
from .node import Edge, Hooks, Node, Packed, shown_edge, version_of
from .state import state

_new = object.__new__
_ref = weakref.ref


class FunctionNode(Node):
    """The engine's side of one call of a custom Function."""

    __slots__ = ("ctx", "dtype", "hooks", "next", "outputs", "sequence", "shape")

    runs_without_gradient = True

    def apply(self, grads: Any) -> Any:
        ctx = self.ctx
        outputs = self.outputs
        if grads is None:
            grads = self._nothing_arrived()
        function = ctx._forward_cls
        backward = function.backward
        if function.vjp is not _no_vjp:
            backward = _vjp_of(function)
        if state.witness is not None:  # a captured call hears of what the user's function reads
            backward = state.witness.call(backward)
        if outputs is None:
            results = backward(ctx, grads)
        else:
            if ctx.materialize_grads and None in grads:
                grads = [_zeros(meta) if g is None and meta is not None else g for g, meta in zip(grads, outputs)]
                if not ctx._materialize_non_diff_grads:
                    grads = [None if i in ctx._constant else g for i, g in enumerate(grads)]
            results = backward(ctx, *grads)
        if results.__class__ is not tuple:
            results = (results,)
        if ctx._positions is not None or len(results) != len(self.next):
            return _sort_out(self, results)
        for r in results:
            if r is not None and not isinstance(r, Tensor):
                raise RuntimeError(f"{self.name()}: expected Variable or None (got {type(r).__name__})")
        return results

    def _nothing_arrived(self) -> Any:
        if self.outputs is not None:
            return [None] * len(self.outputs)
        return _zeros((self.shape, self.dtype)) if self.ctx.materialize_grads else None

    def release(self) -> None:
        self.ctx._saved = None

    def name(self) -> str:
        return self.ctx.name()

    def _hooks(self) -> Hooks:
        if self.hooks is None:
            self.hooks = self.ctx._shared_hooks = Hooks()
        return self.hooks

    @property
    def _metadata(self) -> dict[str, Any] | None:
        return self.ctx._notes

    @property
    def metadata(self) -> dict[str, Any]:
        return self.ctx.metadata


def _zeros(meta: tuple[tuple[int, ...], Any]) -> Tensor:
    return zeros(meta[0], dtype=BY_NUM[meta[1].num])


def _sort_out(node: FunctionNode, results: tuple[Any, ...]) -> list[Any]:
    """Matches what backward returned (one value per argument of forward) with the tensors among the arguments."""
    ctx = node.ctx
    expected = len(ctx.needs_input_grad)
    name = ctx.name()
    if len(results) > expected and all(r is None for r in results[expected:]):
        results = results[:expected]
    if len(results) != expected:
        raise RuntimeError(f"function {name} returned an incorrect number of gradients (expected {expected}, got "
                           f"{len(results)}): backward returns one value per argument of forward, None where there is "
                           "no gradient")
    tensors = range(expected) if ctx._positions is None else ctx._positions
    for i, r in enumerate(results):
        if r is None:
            continue
        if i not in tensors:
            raise RuntimeError(f"function {name} returned a gradient different than None at position {i + 1}, but the "
                               "corresponding forward input was not a Variable")
        if not isinstance(r, Tensor):
            raise RuntimeError(f"{name}: expected Variable or None (got {type(r).__name__})")
    return [results[i] for i in tensors]


def _vjp_of(function: type) -> Any:
    if function.backward is not _no_vjp:
        raise RuntimeError("Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should "
                           "only implement one of them.")
    return function.vjp


class FunctionCtx:
    """What `ctx` offers in forward and setup_context."""

    to_save: tuple[Any, ...] | None = None
    saved_for_forward: tuple[Any, ...] | None = None
    dirty_tensors: tuple[Any, ...] | None = None
    non_differentiable: tuple[Any, ...] | None = None
    materialize_grads = True
    _materialize_non_diff_grads = True
    needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keeps tensors (inputs, outputs, others; None too) for backward. Call once, in forward or setup_context."""
        self.to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Keeps tensors for jvp."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(f"save_for_forward expects all arguments to be tensors; {type(t).__name__} was passed")
        self.saved_for_forward = tensors

    def mark_dirty(self, *args: Any) -> None:
        """Says which inputs forward changed in place; each must also be returned."""
        self.dirty_tensors = args

    def mark_shared_storage(self, *pairs: Any) -> None:
        warnings.warn("`mark_shared_storage` is deprecated. Tensors with shared storages are automatically tracked. "
                      "Note that calls to `set_()` are not tracked", FutureWarning, stacklevel=2)

    def mark_non_differentiable(self, *args: Any) -> None:
        """Says which outputs carry no gradient."""
        self.non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (the default) or None for the outputs that no gradient reached."""
        self.materialize_grads = bool(value)


class BackwardCFunction(FunctionCtx):
    """The base of every `<Name>Backward`: a ctx that is also the `grad_fn` users see."""

    _forward_cls: type
    _graph: Any = None                    # weak reference to the FunctionNode
    _edges: tuple[Any, ...] = ()
    _number = 0
    _metas: Any = None                    # (shape, dtype) of the output, or a list of them
    _positions: tuple[int, ...] | None = None  # which arguments are tensors, when not all are
    _saved: tuple[Any, ...] | None = ()
    _versions: tuple[int, ...] | None = None
    _shared_hooks: Hooks | None = None
    _notes: dict[str, Any] | None = None
    _constant: tuple[int, ...] = ()       # which outputs were marked as not differentiable
    _jvp_saved: tuple[Any, ...] | None = None
    _handed_out = False                   # with clear_saved_tensors_on_access: saved_tensors was read

    # ---------------------------------------------------------------------------------- saved tensors
    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What forward saved, checked against changes since."""
        if self._jvp_saved is not None:
            return self._jvp_saved
        saved = self._saved
        if saved is None:
            raise freed_error(self)
        if self._forward_cls.clear_saved_tensors_on_access:
            return self._take_saved()
        if self._versions is None:  # plain tensors that were never written to: the common case
            for v in saved:
                if v is not None and (v.__class__ is not Tensor or v._counter is not None):
                    break
            else:
                return saved
        return tuple([self._unpack(i) for i in range(len(saved))])

    def _take_saved(self) -> tuple[Any, ...]:
        """What forward saved, which is then let go of."""
        if self._handed_out:
            raise RuntimeError("saved_tensors can only be accessed once when clear_saved_tensors_on_access=True is set on the "
                               "autograd.Function. Either access saved_tensors only once, or set "
                               "clear_saved_tensors_on_access=False.")
        values = tuple([self._unpack(i) for i in range(len(self._saved))])
        self._saved, self._handed_out = (), True
        return values

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors

    @property
    def _raw_saved_tensors(self) -> tuple[Any, ...]:
        from .saved_tensors import SavedTensor
        if self._saved is None:
            raise freed_error(self)
        return tuple([SavedTensor(self, i) for i in range(len(self._saved))])

    def _unpack(self, i: int) -> Any:
        v = self._saved[i]
        if v is None:
            return None
        if isinstance(v, Tensor):
            expected = self._versions[i] if self._versions is not None else 0
            if version_of(v) != expected:
                raise modified_error(self._graph_node(), v, v._array, expected, version_of(v), v._counter)
            return v
        if v.__class__ is Packed:
            from .saved_tensors import unpack
            return unpack(v, self._graph_node())
        node = self._graph_node()
        tensor = wrap(v.array)
        tensor._counter = v.counter
        tensor._node = node if node.outputs is None else Edge(node, v.nr)
        if v.counter.value != v.version:
            raise modified_error(node, tensor, v.array, v.version, v.counter.value, v.counter)
        return tensor

    # ---------------------------------------------------------------------------------- the open graph
    def _graph_node(self) -> FunctionNode:
        node = None if self._graph is None else self._graph()
        return _make_node(self) if node is None else node

    def name(self) -> str:
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        return tuple([shown_edge(e) for e in self._edges])

    @property
    def metadata(self) -> dict[str, Any]:
        if self._notes is None:
            self._notes = {}
        return self._notes

    def _sequence_nr(self) -> int:
        return self._number

    def _set_sequence_nr(self, number: int) -> None:
        self._number = self._graph_node().sequence = number

    @property
    def _input_metadata(self) -> list[Any]:
        return self._graph_node()._input_metadata

    def register_hook(self, hook: Any) -> Any:
        """Calls hook(grad_inputs, grad_outputs) after this node ran; a returned tuple replaces grad_inputs."""
        return self._graph_node().register_hook(hook)

    def register_prehook(self, hook: Any) -> Any:
        """Calls hook(grad_outputs) before this node runs; a returned tuple replaces them."""
        return self._graph_node().register_prehook(hook)

    def apply(self, *grads: Any) -> Any:
        node = self._graph_node()
        return node.apply(list(grads) if node.outputs is not None else grads[0])


def _make_node(ctx: BackwardCFunction) -> FunctionNode:
    """The engine's node of a ctx (again, when the graph that held the first is gone)."""
    node = _new(FunctionNode)
    node.ctx = ctx
    node.next = ctx._edges
    node.sequence = ctx._number
    node.hooks = ctx._shared_hooks
    metas = ctx._metas
    if metas.__class__ is list:
        node.outputs, node.shape, node.dtype = metas, (), None
    else:
        node.outputs = None
        node.shape, node.dtype = metas
    ctx._graph = _ref(node)
    return node


def _no_vjp(ctx: Any, *grad_outputs: Any) -> Any:
    raise NotImplementedError("You must implement either the backward or vjp method for your custom autograd.Function "
                              "to use it with backward mode AD.")
