"""Stand-ins for values: what is done to a Proxy is written into a graph."""

from __future__ import annotations

import copy
import enum
import operator
from collections.abc import Iterator
from typing import Any

from ..tensors import dtypes as _dtypes
from ..tensors.device import device as _device
from ..tensors.tensor import Tensor
from . import traceback
from .graph import Graph
from .node import Argument, Node, Target, public_form

__all__ = ["Attribute", "GraphAppendingTracer", "ParameterProxy", "Proxy", "Scope", "ScopeContextManager", "TraceError",
           "TracerBase"]

_PLAIN = (str, int, float, bool, complex, bytes, type(None), type(Ellipsis), _dtypes.dtype, _device, range, enum.Enum)


class TraceError(ValueError):
    """The program asked for something that only a value could answer."""


class Scope:
    """The module whose code is being traced: its path and its class."""

    def __init__(self, module_path: str, module_type: Any):
        self.module_path, self.module_type = module_path, module_type


class ScopeContextManager:
    """Another scope while a block runs."""

    def __init__(self, scope: Scope, current_scope: Scope):
        self._scope, self._before = scope, copy.copy(scope)
        scope.module_path, scope.module_type = current_scope.module_path, current_scope.module_type

    def __enter__(self) -> Scope:
        return self._scope

    def __exit__(self, *exc: Any) -> None:
        self._scope.module_path, self._scope.module_type = self._before.module_path, self._before.module_type


class TracerBase:
    """Turns what Python code does with proxies into nodes of `graph`."""

    graph: Graph
    record_stack_traces = False
    check_mutable_operations = False
    trace_asserts = False
    proxy_buffer_attributes = False
    module_stack: dict[str, Any] = {}  # the modules whose code is being traced, outermost first
    scope: Scope

    def create_node(self, kind: str, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Argument],
                    name: str | None = None, type_expr: Any = None) -> Node:
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        if traceback.should_preserve_node_meta:
            node.meta.update(traceback.current_meta)
        if self.module_stack:
            node.meta["nn_module_stack"] = dict(self.module_stack)
        return node

    def proxy(self, node: Node) -> Proxy:
        return Proxy(node, self)

    def create_proxy(self, kind: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any],
                     name: str | None = None, type_expr: Any = None, proxy_factory_fn: Any = None) -> Any:
        """Writes a node down and gives the proxy of its value."""
        made = self.create_node(kind, target, self.create_arg(args), self.create_arg(kwargs), name, type_expr)
        return self.proxy(made) if proxy_factory_fn is None else proxy_factory_fn(made)

    def create_arg(self, a: Any) -> Argument:
        """A value as an argument of a node: proxies become their nodes."""
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            made = [self.create_arg(v) for v in a]
            return type(a)(*made) if hasattr(a, "_fields") else tuple(made)
        if isinstance(a, list):
            return [self.create_arg(v) for v in a]
        if isinstance(a, dict):
            return {k: self.create_arg(v) for k, v in a.items()}
        if isinstance(a, slice):
            return slice(*[self.create_arg(v) for v in (a.start, a.stop, a.step)])
        if isinstance(a, _PLAIN) or callable(a):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def to_bool(self, obj: Proxy) -> bool:
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """Unpacking into a known number of names works; anything else cannot be followed."""
        count = _unpacked()
        if count is None:
            raise TraceError("Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as "
                             "a *args or **kwargs function argument. See the torch.fx docs on pytorch.org for a more detailed "
                             "explanation of what types of control flow can be traced, and check out the Proxy docstring for "
                             "help troubleshooting Proxy iteration errors")
        return (obj[i] for i in range(count))

    def keys(self, obj: Proxy) -> Any:
        return Attribute(obj, "keys")()


def _unpacked() -> int | None:
    """How many names the statement that iterates unpacks into, read off its bytecode."""
    import dis
    import sys
    frame = sys._getframe(3)
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.offset == frame.f_lasti and instruction.opname == "UNPACK_SEQUENCE":
            return instruction.argval
    return None


class GraphAppendingTracer(TracerBase):
    """For adding to a graph that is there already."""

    def __init__(self, graph: Graph):
        self.graph = graph


class Proxy:
    """The value of a node that has not been computed."""

    def __init__(self, node: Node, tracer: TracerBase | None = None):
        self.node = node
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Attribute:
        if k.startswith("__"):
            raise AttributeError(k)
        return Attribute(self, k)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def __len__(self) -> int:
        raise RuntimeError("'len' is not supported in symbolic tracing by default. If you want this call to be recorded, "
                           "please call torch.fx.wrap('len') at module scope")

    def __abs__(self) -> Any:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def keys(self) -> Any:
        return self.tracer.keys(self)

    @classmethod
    def __torch_function__(cls, orig_method: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tracer = _tracer_of((args, kwargs))
        name = getattr(orig_method, "__name__", "")
        if name.startswith("__") and getattr(Tensor, name, None) is orig_method:
            return tracer.create_proxy("call_method", name, args, kwargs)
        return tracer.create_proxy("call_function", public_form(orig_method), args, kwargs)


def _tracer_of(value: Any) -> Any:
    """The tracer of the first proxy in arguments."""
    if isinstance(value, Proxy):
        return value.tracer
    if isinstance(value, (tuple, list)):
        return next((t for t in map(_tracer_of, value) if t is not None), None)
    if isinstance(value, dict):
        return _tracer_of(tuple(value.values()))
    return _tracer_of((value.start, value.stop, value.step)) if isinstance(value, slice) else None


class Attribute(Proxy):
    """`proxy.name`: a method once it is called, an attribute otherwise."""

    def __init__(self, root: Proxy, attr: str):
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """A parameter whose shape may be asked for."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any):
        super().__init__(node, tracer)
        self.param, self.name = param, name

    @property
    def shape(self) -> Any:
        return self.param.shape

    def size(self, *args: Any) -> Any:
        return self.param.size(*args)

    def dim(self) -> int:
        return self.param.dim()

    @property
    def ndim(self) -> int:
        return self.param.ndim

    def numel(self) -> int:
        return self.param.numel()


def _forward(function: Any) -> Any:
    return lambda self, *others: self.tracer.create_proxy("call_function", function, (self, *others), {})


def _reflected(function: Any) -> Any:
    return lambda self, other: self.tracer.create_proxy("call_function", function, (other, self), {})


_TWO = "add sub mul floordiv truediv mod matmul lshift rshift and_ or_ xor pow".split()
for _name in (*_TWO, *"lt le eq ne gt ge getitem neg pos invert".split()):
    setattr(Proxy, f"__{_name.strip('_')}__", _forward(getattr(operator, _name)))
for _name in _TWO:
    setattr(Proxy, f"__r{_name.strip('_')}__", _reflected(getattr(operator, _name)))
Proxy.__hash__ = object.__hash__
