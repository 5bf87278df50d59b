"""Custom differentiable functions: `Function`, written with `forward(ctx, ...)` or with `setup_context`."""

from __future__ import annotations

import functools
import inspect
import warnings
from typing import Any

from ..backends.batched.arrays import marked
from ..tensors.dtypes import GRAD_NUMS
from ..tensors.tensor import Tensor, wrap
from .function_context import BackwardCFunction, FunctionCtx, FunctionNode, _new, _no_vjp, _ref
from .function_recording import _among, _further, _record, _save, _SavedResult, _unrecorded
from .function_tools import (  # noqa: F401
    DelayedError,
    Error,
    UndefinedGrad,
    _iter_tensors,
    _iter_tensors_permissive,
    _nested_map,
)
from .node import next_sequence
from .state import BATCHED, FORWARD_AD, NO_GRAD, state
from .views import edge_of


def _no_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
    raise NotImplementedError("setup_context is not implemented.")


_OF_A_NODE = frozenset("next_functions name register_hook register_prehook _register_hook_dict _sequence_nr "
                       "_set_sequence_nr _input_metadata".split())


class Function(FunctionCtx):
    """A differentiable operation written by the user.

    Subclasses have static methods `forward(ctx, *args)` (or `forward(*args)` and `setup_context(ctx, inputs, output)`),
    `backward(ctx, *grads)` and, for forward mode, `jvp(ctx, *tangents)`. It is run with `apply`.

    >>> class Cube(torch.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x ** 3
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         [x] = ctx.saved_tensors
    ...         return grad * 3 * x ** 2
    >>> x = torch.tensor([2.0], requires_grad=True)
    >>> Cube.apply(x).backward()
    >>> x.grad
    tensor([12.])
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
        if state.transforms:
            state.transforms[-1].check_function(cls, args)
        ctx = _new(cls._backward_cls)
        setup = cls.setup_context
        if setup is not _no_setup:
            if kwargs or _has_defaults(cls.forward):
                args, kwargs = _bind(cls.forward, args, kwargs)
        edges, needs = [], []
        for a in args:
            edge = None
            if isinstance(a, Tensor):
                edge = a._node if a._counter is None else edge_of(a)
                edges.append(edge)
            needs.append(edge is not None)
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
        if True not in needs or mode & NO_GRAD:
            out = _unrecorded(ctx, args, out)
        elif (out.__class__ is Tensor and ctx.dirty_tensors is None and ctx.non_differentiable is None
              and out._counter is None and out._array.dtype.num in GRAD_NUMS and not _among(out, args)):
            _record_one(ctx, args, edges, out, mode)
        else:
            out = _record(ctx, args, tuple(edges), out)
        if mode > 1:
            out = _further(ctx, args, out, mode)
        if ctx.saved_for_forward is not None:  # only jvp wants it; an output in it would point back here
            ctx.saved_for_forward = None
        return out


def _record_one(ctx: Any, args: tuple[Any, ...], edges: list[Any], out: Tensor, mode: int) -> None:
    """Records a call whose only result is a fresh tensor: what `_record` does, without a look at what cannot be."""
    node = _new(FunctionNode)
    node.ctx = ctx
    node.outputs = node.hooks = None
    node.next = ctx._edges = tuple(edges)
    node.sequence = ctx._number = next_sequence()
    array = out._array
    node.shape, node.dtype = ctx._metas = marked(array), array.dtype
    out._node = node
    ctx._graph = _ref(node)
    if len(edges) != len(args):
        ctx._positions = tuple([i for i, a in enumerate(args) if isinstance(a, Tensor)])
    if ctx.to_save is not None:
        if mode < 2 and len(ctx.to_save) == 1 and ctx.to_save[0] is out:
            ctx._saved, ctx.to_save = (_SavedResult(out, 0),), None
        else:
            _save(ctx, node, (out,))


Function._backward_cls = type("FunctionBackward", (BackwardCFunction,), {"_forward_cls": Function})


def _has_defaults(forward: Any) -> bool:
    code = getattr(forward, "__code__", None)
    return code is None or bool(forward.__defaults__ or forward.__kwdefaults__)


def _bind(forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """All arguments by position, defaults filled in: what setup_context gets as `inputs`."""
    bound = inspect.signature(forward).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args, bound.kwargs


class InplaceFunction(Function):
    """Kept for old code: a Function told at construction whether to work in place."""

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace


class NestedIOFunction(Function):
    """Kept for old code: Functions over nested lists of tensors.

    >>> issubclass(torch.autograd.function.NestedIOFunction, torch.autograd.Function)
    True
    """

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


__all__ = ["FunctionCtx", "BackwardCFunction", "Function", "once_differentiable", "InplaceFunction", "NestedIOFunction"]
for _public in (FunctionCtx, BackwardCFunction):
    _public.__module__ = __name__  # where users find it
