"""Custom differentiable functions: `Function`, written with `forward(ctx, ...)` or with `setup_context`.

A user's `ctx` is the object that `grad_fn` shows, and the user may hang any attribute on it (`ctx.shape` is a
favourite). So it is not the engine's node itself: a small `FunctionNode` carries what the engine reads, and owns the
ctx. The ctx refers back weakly and can make its node anew, so neither keeps the other alive in a circle.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from typing import Any

from ..backends.batched.arrays import marked
from ..tensors.dtypes import GRAD_NUMS
from ..tensors.tensor import Tensor, wrap
from . import state as _state
from .node import (
    INFERENCE_SAVED,
    AccumulateGrad,
    Edge,
    Hooks,
    Node,
    Packed,
    SavedOutput,
    bump,
    face,
    freed_error,
    modified_error,
    next_sequence,
    version_of,
)
from .state import BATCHED, FORWARD_AD, INFERENCE, NO_GRAD, SAVED_HOOKS, state
from .views import CUSTOM_FUNCTION, NO_GRAD_VIEW, check_creation, edge_of, mark_view, set_history

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
    from ..creation.factories import zeros
    from ..tensors.dtypes import BY_NUM
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
    if function.backward is not Function.backward:
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
        return tuple([(face(e.node), e.nr) if e.__class__ is Edge else (face(e), 0) for e in self._edges])

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


# --------------------------------------------------------------------------------------------------- Function
def _no_vjp(ctx: Any, *grad_outputs: Any) -> Any:
    raise NotImplementedError("You must implement either the backward or vjp method for your custom autograd.Function "
                              "to use it with backward mode AD.")


def _no_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
    raise NotImplementedError("setup_context is not implemented.")


_OF_A_NODE = frozenset("next_functions name register_hook register_prehook _register_hook_dict _sequence_nr "
                       "_set_sequence_nr _input_metadata".split())


class Function(FunctionCtx):
    """A differentiable operation written by the user.

    Subclasses have static methods `forward(ctx, *args)` (or `forward(*args)` and `setup_context(ctx, inputs, output)`),
    `backward(ctx, *grads)` and, for forward mode, `jvp(ctx, *tangents)`. It is run with `apply`.
    """

    generate_vmap_rule = False
    clear_saved_tensors_on_access = False
    _backward_cls: type[BackwardCFunction]

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        cls._backward_cls = type(f"{cls.__name__}Backward", (BackwardCFunction,), {"_forward_cls": cls})

    def __init__(self, *args: Any, **kwargs: Any):
        warnings.warn(f"{self.__class__} should not be instantiated. Methods on autograd functions are all static, so "
                      "you should invoke them on the class itself. Instantiating an autograd function will raise an "
                      "error in a future version of PyTorch.", DeprecationWarning, stacklevel=2)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("Legacy autograd function with non-static forward method is deprecated. Please use "
                           "new-style autograd function with static forward method.")

    def __getattr__(self, name: str) -> Any:
        if name == "metadata":
            raise RuntimeError("You attempted to access the anomaly metadata of a custom autograd function but the underlying "
                               "PyNode has already been deallocated.  The most likely reason this occurred is because you "
                               "assigned x.grad_fn to a local variable and then let the original variable get deallocated.  "
                               "Don't do that!  If you really have no way of restructuring your code so this is the case, "
                               "please file an issue reporting that you are affected by this.")
        if name in _OF_A_NODE:
            raise RuntimeError(f"Attribute '{name}' is invalid for this instance of _C._FunctionBase. Accessing this attribute "
                               "directly on an instance of autograd.Function is a legacy access pattern that is no longer "
                               "supported. For examples on how to use new-style autograd functions, see "
                               "https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function ")
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    setup_context = staticmethod(_no_setup)
    backward = staticmethod(_no_vjp)
    vjp = staticmethod(_no_vjp)

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        raise NotImplementedError("You must implement the jvp function for custom autograd.Function to use it with "
                                  "forward mode AD.")

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        raise NotImplementedError("To use autograd.Function with vmap, you must either override the vmap staticmethod "
                                  "or set generate_vmap_rule=True.")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Runs forward and records the call. (This is the hot path of custom functions.)"""
        mode = state.mode
        if mode & BATCHED and state.levels:
            made = state.levels[-1].run_function(cls, args, kwargs)
            if made is not NotImplemented:
                return made
        ctx = _new(cls._backward_cls)
        setup = cls.setup_context
        if setup is not _no_setup:
            if kwargs or _has_defaults(cls.forward):
                args, kwargs = _bind(cls.forward, args, kwargs)
        edges = []
        needs = []
        wanted = False
        for a in args:
            if isinstance(a, Tensor):
                edge = a._node if a._counter is None else edge_of(a)
                edges.append(edge)
                if edge is not None:
                    wanted = True
                    needs.append(True)
                else:
                    needs.append(False)
            else:
                needs.append(False)
        ctx.needs_input_grad = tuple(needs)
        state.mode = (mode | NO_GRAD) & ~FORWARD_AD
        forward = cls.forward
        if state.witness is not None:
            forward = state.witness.call(forward)
            setup = setup if setup is _no_setup else state.witness.call(setup)
        try:
            if setup is _no_setup:
                out = forward(ctx, *args, **kwargs)
            else:
                out = forward(*args, **kwargs)
                setup(ctx, args, out)
        finally:
            state.mode = mode
        if not wanted or mode & NO_GRAD:
            out = _unrecorded(ctx, args, out)
        elif (out.__class__ is Tensor and ctx.dirty_tensors is None and ctx.non_differentiable is None
              and out._counter is None and out._array.dtype.num in GRAD_NUMS and not _among(out, args)):
            node = _new(FunctionNode)
            node.ctx = ctx
            node.outputs = node.hooks = None
            node.next = ctx._edges = tuple(edges)
            node.sequence = ctx._number = next_sequence()
            array = out._array
            node.shape, node.dtype = ctx._metas = marked(array), array.dtype
            out._node = node
            ctx._graph = _ref(node)
            if len(edges) != len(needs):
                ctx._positions = tuple([i for i, a in enumerate(args) if isinstance(a, Tensor)])
            if ctx.to_save is not None:
                if mode < 2 and len(ctx.to_save) == 1 and ctx.to_save[0] is out:
                    ctx._saved, ctx.to_save = (_SavedResult(out, 0),), None
                else:
                    _save(ctx, node, (out,))
        else:
            out = _record(ctx, args, tuple(edges), out)
        if mode > 1:
            out = _further(ctx, args, out, mode)
        if ctx.saved_for_forward is not None:  # only jvp wants it; an output in it would point back here
            ctx.saved_for_forward = None
        return out


Function._backward_cls = type("FunctionBackward", (BackwardCFunction,), {"_forward_cls": Function})


def _has_defaults(forward: Any) -> bool:
    code = getattr(forward, "__code__", None)
    return code is None or bool(forward.__defaults__ or forward.__kwdefaults__)


def _bind(forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """All arguments by position, defaults filled in: what setup_context gets as `inputs`."""
    import inspect
    bound = inspect.signature(forward).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args, bound.kwargs


def _among(tensor: Tensor, args: tuple[Any, ...]) -> bool:
    for a in args:
        if a is tensor:
            return True
    return False


def _unrecorded(ctx: BackwardCFunction, args: tuple[Any, ...], out: Any) -> Any:
    """The outputs when there is nothing to record: none of them requires grad, none is an input object."""
    ctx.to_save = None
    dirty = ctx.dirty_tensors or ()

    def plain(o: Any) -> Any:
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

    return tuple([plain(o) for o in out]) if isinstance(out, tuple) else plain(out)


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
            raise TypeError(f"save_for_backward can only save variables, but argument {i} is of type "
                            f"{type(v).__name__}")
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


class InplaceFunction(Function):
    """Kept for old code: a Function told at construction whether to work in place."""

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace


class NestedIOFunction(Function):
    """Kept for old code: Functions over nested lists of tensors."""

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("NestedIOFunction relied on instance-style Functions, which are gone from PyTorch "
                                  "too: flatten the inputs and use torch.autograd.Function")


def once_differentiable(function: Any) -> Any:
    """Decorates a `backward` that is not itself differentiable: differentiating through it fails with a message."""

    @functools.wraps(function)
    def backward(ctx: Any, *args: Any) -> Any:
        mode = state.mode
        state.mode = mode | NO_GRAD
        try:
            outputs = function(ctx, *args)
        finally:
            state.mode = mode
        if mode & NO_GRAD or not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            return outputs
        several = isinstance(outputs, tuple)
        made = outputs if several else (outputs,)
        raising = DelayedError("trying to differentiate twice a function that was marked with "
                               "@once_differentiable", len(made))
        made = raising(*[o.detach().requires_grad_(True) if isinstance(o, Tensor) else o for o in made])
        return (made,) if several and len(outputs) == 1 else made

    return backward


class DelayedError:
    """Makes tensors that look differentiable, and fail with the message when a gradient reaches them."""

    def __init__(self, message: str, num_inputs: int = 1):
        self.message = message

    def __call__(self, *values: Any) -> Any:
        """The values, as outputs of the failing node (a single one not in a tuple)."""
        node = Error(self.message)
        node.next = tuple([edge_of(v) if isinstance(v, Tensor) else None for v in values])
        node.sequence = next_sequence()
        node.outputs = [(v._array.shape, v._array.dtype) if isinstance(v, Tensor) else None for v in values]
        made = []
        for nr, v in enumerate(values):
            if isinstance(v, Tensor):
                v = v.detach()
                v._node = Edge(node, nr)
            made.append(v)
        return made[0] if len(made) == 1 else tuple(made)


class Error(Node):
    """Fails when it is reached in a backward pass."""

    def __init__(self, message: str):
        self.message = message

    def apply(self, grads: Any) -> Any:
        raise RuntimeError(self.message)


class UndefinedGrad:
    """An identity whose backward passes no gradient on (PyTorch's own tests ask for it)."""

    def __call__(self, *inputs: Tensor) -> Any:
        made = []
        for x in inputs:
            node = UndefinedGradBackward()
            node.next = (edge_of(x),)
            node.sequence = next_sequence()
            node.shape, node.dtype = x._array.shape, x._array.dtype
            y = x.detach().clone()
            y._node = node
            made.append(y)
        return made[0] if len(made) == 1 else tuple(made)


class UndefinedGradBackward(Node):
    def apply(self, grads: Any) -> Any:
        return (None,)


class Resize(Function):
    """Another shape of the same number of elements (kept from PyTorch's first Functions)."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, sizes: Any) -> Tensor:
        ctx.input_size = tensor.size()
        if tensor.is_contiguous():
            return wrap(tensor._array).reshape(sizes)
        return tensor.contiguous().reshape(sizes)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad.contiguous().view(ctx.input_size), None


def _is_setup_context_defined(function: Any) -> bool:
    return function is not _no_setup


def _iter_tensors(value: Any) -> Any:
    """The tensors in nested tuples, lists and dicts, in order (PyTorch's private name)."""
    from .finite_differences import iter_tensors
    return iter_tensors(value)


_iter_tensors_permissive = _iter_tensors


def _nested_map(condition: Any, fn: Any, condition_msg: str | None = None) -> Any:
    """A function that applies `fn` to what meets the condition inside nested tuples, lists and dicts."""
    def mapped(value: Any) -> Any:
        if condition(value):
            return fn(value)
        if isinstance(value, (list, tuple)):
            made = [mapped(v) for v in value]
            return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
        if isinstance(value, dict):
            return {key: mapped(v) for key, v in value.items()}
        if value is None:
            return None
        raise ValueError(f"Auto nesting doesn't know how to process an input object of type {type(value).__name__}"
                         + (f". Accepted types: {condition_msg}, or lists/tuples of them" if condition_msg else ""))

    return mapped


__all__ = ["FunctionCtx", "BackwardCFunction", "Function", "once_differentiable", "InplaceFunction", "NestedIOFunction"]
