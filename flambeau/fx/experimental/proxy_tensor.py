"""`make_fx`: a function as the graph of the operations below autograd that it calls, those of backward passes too."""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
from collections.abc import Callable, Iterator
from typing import Any

from ...autograd.state import state
from ...nn.module import Module
from ...tensors.tensor import Tensor
from ...utils import _pytree as pytree
from ...utils._python_dispatch import TorchDispatchMode
from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node

__all__ = ["ProxyTorchDispatchMode", "disable_proxy_modes_tracing", "get_isolated_graphmodule", "get_proxy_mode", "make_fx",
           "maybe_disable_fake_tensor_mode"]

_VALUE = ("It appears that you're trying to get value out of a tracing tensor with {} - erroring out! It's likely that this is "
          "caused by data-dependent control flow or similar. It may be possible to trace this with dynamic shapes; try setting "
          "tracing_mode='symbolic' in your make_fx call.")


class ProxyTorchDispatchMode(TorchDispatchMode):
    """Writes every operation on the traced tensors into a graph, and runs it."""

    def __init__(self, graph: Graph, root: Module, decompositions: dict[Any, Callable]):
        super().__init__()
        self.graph, self.root, self.decompositions = graph, root, decompositions
        self.made: dict[int, tuple[Tensor, Node]] = {}  # id of a tensor -> the tensor, so that the id stays its own; its node
        self.constants: dict[int, tuple[Tensor, str]] = {}

    def track(self, tensor: Tensor, node: Node) -> None:
        """From now on the tensor is what the node computes."""
        self.made[id(tensor)] = tensor, node

    def node_of(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) in self.made:
            return self.made[id(value)][1]
        if id(value) not in self.constants:
            prefix = "_param_constant" if isinstance(value, _parameter()) else "_tensor_constant"
            number = sum([name.startswith(prefix) for _, name in self.constants.values()])
            name = f"{prefix}{number}"
            self.constants[id(value)] = value, name
            setattr(self.root, name, value) if prefix == "_param_constant" else self.root.register_buffer(name, value)
        return self.graph.get_attr(self.constants[id(value)][1])

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in self.decompositions:
            with self:
                made = self.decompositions[func](*args, **kwargs)
            if made is not NotImplemented:
                return made
        traced = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor) and id(t) in self.made]
        if func._opname == "_local_scalar_dense" and traced:
            raise RuntimeError(_VALUE.format(func))
        made = func(*args, **kwargs)
        if not pytree.tree_any(lambda x: isinstance(x, Tensor), made):
            return made
        given = pytree.tree_map(self.node_of, (args, kwargs))
        target = func._overloadpacket if func._opname != "lift_fresh" else _lifted()._overloadpacket
        node = self.graph.create_node("call_function", func if func._opname != "lift_fresh" else _lifted(), given[0], given[1],
                                      name=target.__name__.rstrip("_") if target.__name__.endswith("__") else target.__name__)
        if func._opname == "lift_fresh" and made is args[0]:
            made = made.detach()
        self._note(made, node)
        for a, value in zip(func._schema.positional, args):
            if a.is_write and isinstance(value, Tensor):
                self.track(value, node)
        return made

    def _note(self, made: Any, node: Node) -> None:
        if isinstance(made, Tensor):
            node.meta["val"] = made
            node.meta["tensor_meta"] = {"shape": made.shape, "dtype": made.dtype}
            self.track(made, node)
        elif isinstance(made, (tuple, list)):
            node.meta["val"] = made
            for i, value in enumerate(made):
                if value is not None:
                    self._note(value, self.graph.call_function(operator.getitem, (node, i)))


@functools.cache
def _lifted() -> Any:
    from ...ops import aten
    return aten.lift_fresh_copy.default


@functools.cache
def _parameter() -> type:
    from ...tensors.parameter import Parameter
    return Parameter


def get_proxy_mode() -> ProxyTorchDispatchMode | None:
    """The tracing that is under way, if any."""
    return next((m for m in reversed(state.dispatch_modes) if isinstance(m, ProxyTorchDispatchMode)), None)


@contextlib.contextmanager
def disable_proxy_modes_tracing() -> Iterator[Any]:
    """Inside, nothing is written into a graph."""
    modes = state.dispatch_modes
    kept = list(modes)
    modes[:] = [m for m in modes if not isinstance(m, ProxyTorchDispatchMode)]
    try:
        yield None
    finally:
        modes[:] = kept


@contextlib.contextmanager
def maybe_disable_fake_tensor_mode() -> Iterator[Any]:
    from ..._subclasses.fake_tensor import unset_fake_temporarily
    with unset_fake_temporarily() as mode:
        yield mode


def make_fx(f: Callable, decomposition_table: dict[Any, Callable] | None = None, tracing_mode: str = "real",
            _allow_non_fake_inputs: bool = False, *, pre_dispatch: bool = False, record_module_stack: bool = False,
            _allow_fake_constant: bool = False, _error_on_data_dependent_ops: bool = True, **more: Any) -> Callable[..., Any]:
    """The function that traces f with the arguments it is called with, and returns the GraphModule.

    tracing_mode: "real" runs on the arguments, "fake" on tensors without elements. decomposition_table: operation -> a function
    that is traced in its place.
    """
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise ValueError(f"Expected tracing_mode to be one of 'real', 'fake', 'symbolic', got {tracing_mode}")
    if tracing_mode == "symbolic":
        raise NotImplementedError("make_fx: tracing_mode='symbolic' (sizes as symbols) is not implemented in flambeau: use "
                                  "'fake'")
    if pre_dispatch:
        raise NotImplementedError("make_fx: pre_dispatch=True is not implemented in flambeau")

    @functools.wraps(f)
    def traced(*args: Any) -> GraphModule:
        return _trace(f, args, decomposition_table or {}, tracing_mode, _allow_non_fake_inputs)

    return traced


def _trace(f: Callable, args: tuple[Any, ...], decompositions: dict[Any, Callable], how: str, mixed: bool) -> GraphModule:
    graph, root = Graph(), Module()
    mode = ProxyTorchDispatchMode(graph, root, decompositions)
    leaves, spec = pytree.tree_flatten(args)
    fake: Any = contextlib.nullcontext()
    if how == "fake":
        from ..._subclasses.fake_tensor import FakeTensorMode, is_fake
        known = [t.fake_mode for t in leaves if is_fake(t)]
        fake = known[0] if known else FakeTensorMode(allow_non_fake_inputs=True)
        leaves = [fake.from_tensor(v) if isinstance(v, Tensor) else v for v in leaves]
    else:
        leaves = [v.detach().requires_grad_(v.requires_grad) if isinstance(v, Tensor) else v for v in leaves]
    for name, value in zip(_names(f, args, len(leaves)), leaves):
        node = graph.placeholder(f"{name}_1")
        if isinstance(value, Tensor):
            node.meta["val"] = value
            mode.track(value, node)
    with fake, mode:
        made = f(*pytree.tree_unflatten(leaves, spec))
    graph.output(pytree.tree_map(mode.node_of, tuple(made) if isinstance(made, tuple) else made))
    name = getattr(f, "__name__", type(f).__name__)
    if len(leaves) == len(args):
        return GraphModule(root, graph, name)
    traced = _OfTrees(root, graph, name)
    traced._in_spec = spec
    return traced


class _OfTrees(GraphModule):
    """A graph whose placeholders are the leaves of the arguments."""

    _in_spec: Any = None

    def __call__(self, *args: Any) -> Any:
        leaves, spec = pytree.tree_flatten(args)
        if self._in_spec is not None and spec != self._in_spec:
            raise ValueError(f"the function was traced with arguments of the structure {self._in_spec}, not {spec}")
        return super().__call__(*leaves)


def _names(f: Callable, args: tuple[Any, ...], count: int) -> list[str]:
    """The names of the placeholders: those of the function's arguments; of one that is made of several tensors, numbers."""
    try:
        parameters = [] if isinstance(f, Module) else list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(plain) >= len(args) == count and all([not isinstance(a, (tuple, list, dict)) for a in args]):
        return plain[:count]
    return [f"arg{i}" if i else "arg0" for i in range(count)]


def get_isolated_graphmodule(func: Callable, args: Any, kwargs: Any, tracing_mode: str = "real",
                             decomposition_table: Any = None) -> GraphModule:
    """The graph of a call, whatever tracing is under way."""
    leaves, spec = pytree.tree_flatten((args, kwargs))

    def flat(*values: Any) -> Any:
        inner_args, inner_kwargs = pytree.tree_unflatten(list(values), spec)
        return func(*inner_args, **inner_kwargs)

    with disable_proxy_modes_tracing():
        return make_fx(flat, decomposition_table, tracing_mode)(*leaves)
