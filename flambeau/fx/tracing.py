"""Tracing: runs a module with proxies in place of its inputs."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import sys
import warnings
from collections.abc import Callable
from typing import Any

from ..nn.module import Module
from ..ops.core import overrides as _overrides
from ..tensors.parameter import Parameter
from ..tensors.tensor import Tensor
from ..utils import _pytree as pytree
from .codegen import _PyTreeCodeGen, _PyTreeInfo
from .graph import Graph
from .graph_module import GraphModule
from .node import Argument
from .proxy import ParameterProxy, Scope, ScopeContextManager, TracerBase, _tracer_of

__all__ = ["PH", "PHBase", "PHWithMeta", "ProxyableClassMeta", "Tracer", "is_fx_tracing", "symbolic_trace", "wrap"]

_wrapped: dict[tuple[int, str], dict[str, Any]] = {}  # functions that are recorded as one node, by where they stand
_tracing = 0


def is_fx_tracing() -> bool:
    """Whether a trace is going on."""
    return _tracing > 0


def wrap(fn_or_name: str | Callable) -> Any:
    """Makes calls of a function of the calling module one node each, instead of tracing into it. Also a decorator."""
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    names = sys._getframe(1).f_globals
    if sys._getframe(1).f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    _wrapped[id(names), name] = names
    return fn_or_name


def _assert_is_none(value: Any, msg: str) -> None:
    assert value is None, msg


_assert_is_none.__module__ = "torch.fx._symbolic_trace"  # the name that code calls it by


class PHBase:
    """In `concrete_args`: a leaf that stays an input of the graph."""

    def __repr__(self) -> str:
        return "PH"


class PHWithMeta(PHBase):
    """A leaf that stays an input; its attributes go to the node."""

    def __init__(self, ph_key: str | None = None):
        super().__init__()
        self.ph_key = ph_key


PH = PHBase()


def _hint(function: Any, annotation: Any) -> Any:
    """What an annotation means, which may be text."""
    if annotation is inspect.Parameter.empty:
        return None
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, getattr(function, "__globals__", {}))
    except Exception:
        return None


class _Patches:
    """Replaces attributes and global names, and puts them back."""

    def __init__(self) -> None:
        self.undo: list[Callable[[], None]] = []

    def attribute(self, owner: Any, name: str, value: Any) -> None:
        before = vars(owner)[name]
        self.undo.append(lambda: setattr(owner, name, before))
        setattr(owner, name, value)

    def item(self, names: dict[str, Any], name: str, value: Any) -> None:
        missing = object()
        before = names.get(name, missing)
        self.undo.append(lambda: names.pop(name) if before is missing else names.__setitem__(name, before))
        names[name] = value

    def __enter__(self) -> _Patches:
        return self

    def __exit__(self, *exc: Any) -> None:
        while self.undo:
            self.undo.pop()()


def _recorded(function: Callable) -> Callable:
    """The function, which writes a node when one of its arguments is a proxy."""
    @functools.wraps(function)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        tracer = _tracer_of((args, kwargs))
        return function(*args, **kwargs) if tracer is None else tracer.create_proxy("call_function", function, args, kwargs)

    return recorded


class Tracer(TracerBase):
    """Derive from it to decide which modules stay whole (`is_leaf_module`) and how arguments are written down."""

    def __init__(self, autowrap_modules: tuple[Any, ...] = (math,), autowrap_functions: tuple[Callable, ...] = (),
                 param_shapes_constant: bool = False):
        self._autowrap = [*((vars(m), n) for m in autowrap_modules for n in vars(m) if callable(vars(m)[n])
                            and not n.startswith("_"))]
        self._autowrap_functions = set(map(id, autowrap_functions))
        self.param_shapes_constant = param_shapes_constant
        self.root: Module
        self.tensor_attrs: dict[int, str] = {}
        self.module_stack: dict[str, Any] = {}
        self.scope = Scope("", None)

    # --------------------------------------------------------------------------------------------- to be overridden
    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a call of a module is one node. By default those of flambeau.nn are, Sequential apart."""
        from ..nn import Sequential
        return type(m).__module__.startswith(("flambeau.nn", "flambeau.ao.nn")) and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """Where in the root a module stands."""
        for name, module in self.root.named_modules():
            if module is mod:
                return name
        raise NameError("module is not installed as a submodule")

    def call_module(self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a call of a module does: one node for a leaf, its own code otherwise."""
        path = self.path_of_module(m)
        with ScopeContextManager(self.scope, Scope(path, type(m))):
            self.module_stack[path] = (path, type(m))
            try:
                if self.is_leaf_module(m, path):
                    return self.create_proxy("call_module", path, args, kwargs)
                return forward(*args, **kwargs)
            finally:
                self.module_stack.pop(path, None)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """What reading an attribute of a module gives: the proxy of a parameter, else the value."""
        kinds = (Parameter, Tensor) if self.proxy_buffer_attributes else Parameter
        if not isinstance(attr_val, kinds):
            return attr_val
        name = self.tensor_attrs.get(id(attr_val))
        if name is None:
            return attr_val
        if name not in parameter_proxy_cache:
            factory = None
            if self.param_shapes_constant:
                factory = lambda node: ParameterProxy(self, node, name, attr_val)
            parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {}, proxy_factory_fn=factory)
        return parameter_proxy_cache[name]

    def create_arg(self, a: Any) -> Argument:
        """Parameters, buffers and other tensors become get_attr nodes; modules too."""
        if isinstance(a, Tensor):
            name = self.tensor_attrs.get(id(a))
            if name is None:
                free = (f"_tensor_constant{i}" for i in itertools.count())
                name = next(n for n in free if not hasattr(self.root, n))
                setattr(self.root, name, a)
                self.tensor_attrs[id(a)] = name
            return self.create_node("get_attr", name, (), {})
        if isinstance(a, Module):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        return super().create_arg(a)

    # ------------------------------------------------------------------------------------------------------- tracing
    def create_args_for_root(self, root_fn: Callable, is_module: bool, concrete_args: Any = None) -> tuple[Any, list[Any]]:
        """A placeholder for each parameter of the function; concrete_args fixes some of them, or parts of them."""
        parameters = list(inspect.signature(root_fn).parameters.values())
        args: list[Any] = []
        if is_module:
            args.append(self.root)
            parameters = parameters if inspect.ismethod(root_fn) else parameters[1:]
        concrete = concrete_args or {}
        if isinstance(concrete_args, tuple):
            if len(concrete_args) != len(parameters):
                raise RuntimeError(f"Tracing expected {len(parameters)} arguments but got {len(concrete_args)} concrete "
                                   "arguments")
            concrete = {p.name: v for p, v in zip(parameters, concrete_args)}
        numbers = itertools.count(1)
        for p in parameters:
            star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
            default = () if p.default is p.empty else (p.default,)
            if not star and p.name in concrete:
                args.append(pytree.tree_map(lambda v, p=p, d=default: self._specialized(p.name, next(numbers), v, d),
                                            concrete[p.name]))
                continue
            args.append(self.create_proxy("placeholder", star + p.name, default, {}, type_expr=_hint(root_fn, p.annotation)))
        values = args[1:] if is_module else args
        leaves, spec = pytree.tree_flatten(tuple(values))
        if all(child.is_leaf() for child in spec.children_specs):
            return root_fn, args
        return self._nested(root_fn, args[:1] if is_module else [], [p.name for p in parameters], spec), leaves

    def _nested(self, function: Callable, before: list[Any], names: list[str], spec: Any) -> Callable:
        """A function of leaves that gives leaves, for one of nested arguments; the graph's code will translate."""
        def flat(*leaves: Any) -> Any:
            result = self._called(function, [*before, *pytree.tree_unflatten(list(leaves), spec)])
            out, out_spec = pytree.tree_flatten(result)
            self.graph._codegen = _PyTreeCodeGen(_PyTreeInfo(["self", *names] if before else names, spec, out_spec))
            return out

        flat.__wrapped_function__ = function
        return flat

    def _specialized(self, name: str, number: int, value: Any, default: tuple[Any, ...]) -> Any:
        """An argument (or a leaf of one) with one value: the graph still takes it, and checks that it is that one."""
        import flambeau
        proxy = self.create_proxy("placeholder", f"{name}_{number}", default, {})
        if isinstance(value, PHBase):
            if value is not PH:
                for key, attribute in vars(value).items():
                    setattr(proxy.node, key, attribute)
            return proxy
        message = f"{name} has been specialized to have value {value} but got another value"
        if type(value) in (bool, int, float, str):
            flambeau._assert(proxy == value, message)
        elif value is None:
            self.create_proxy("call_function", _assert_is_none, (proxy, message), {})
        else:
            warnings.warn(f"Was not able to add assertion to verify correct input {name} to specialized function. It is up to "
                          "the user to make sure that your inputs match the inputs you specialized the function with.",
                          stacklevel=4)
        return value

    def trace(self, root: Module | Callable[..., Any], concrete_args: Any = None) -> Graph:
        """The graph of what a module (or function) does with its inputs."""
        is_module = isinstance(root, Module)
        if is_module:
            self.root, function = root, type(root).forward
        else:
            self.root, function = Module(), root
        self.graph = Graph(tracer_cls=type(self))
        named = [*self.root.named_buffers(remove_duplicate=False), *self.root.named_parameters(remove_duplicate=False)]
        unregistered = ((f"{path}.{n}".lstrip("."), v) for path, m in self.root.named_modules() for n, v in vars(m).items()
                 if isinstance(v, Tensor))
        self.tensor_attrs = {id(v): n for n, v in reversed([*unregistered, *named])}
        plain = function
        function, args = self.create_args_for_root(function, is_module, concrete_args)
        result = self._run(function, args)
        returned = _hint(plain, getattr(plain, "__annotations__", {}).get("return", inspect.Parameter.empty))
        self.create_node("output", "output", (self.create_arg(result),), {}, type_expr=returned)
        return self.graph

    def _run(self, function: Callable, args: list[Any]) -> Any:
        """Calls the function while modules, their parameters and wrapped functions answer with proxies."""
        global _tracing
        plain_call, plain_getattr = Module.__call__, Module.__getattr__
        cache: dict[str, Any] = {}

        def call(mod: Module, *args: Any, **kwargs: Any) -> Any:
            return self.call_module(mod, lambda *a, **k: plain_call(mod, *a, **k), args, kwargs)

        def get(mod: Module, name: str) -> Any:
            return self.getattr(name, plain_getattr(mod, name), cache)

        with _Patches() as patches, _overrides.always_asked():
            patches.attribute(Module, "__call__", call)
            patches.attribute(Module, "__getattr__", get)
            for (_, name), names in _wrapped.items():
                original = names.get(name) or vars(sys.modules["builtins"])[name]
                patches.item(names, name, _recorded(original))
            for names, name in self._autowrap:
                patches.item(names, name, _recorded(names[name]))
            spaces = getattr(getattr(function, "__wrapped_function__", function), "__globals__", {})
            for name, value in list(spaces.items()):
                if id(value) in self._autowrap_functions:
                    patches.item(spaces, name, _recorded(value))
            _tracing += 1
            try:
                return self._called(function, args)
            finally:
                _tracing -= 1

    @staticmethod
    def _called(function: Callable, args: list[Any]) -> Any:
        """function(*args), each argument by its place among the parameters; *args and **kwargs take one proxy each."""
        if hasattr(function, "__wrapped_function__"):
            return function(*args)
        parameters = list(inspect.signature(function).parameters.values())
        kinds = [p.kind for p in parameters]
        if not any(k in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD) for k in kinds):
            cut = sum(k is not inspect.Parameter.KEYWORD_ONLY for k in kinds)
            return function(*args[:cut], **{p.name: a for p, a in zip(parameters[cut:], args[cut:])})
        if inspect.ismethod(function):
            function, args = function.__func__, [function.__self__, *args]
            parameters = list(inspect.signature(function).parameters.values())
        given = {p.name: a for p, a in zip(parameters, args)}
        code = function.__code__  # parameters stand first among its names: positional, keyword-only, *args, **kwargs
        order = code.co_varnames[:len(given)]
        positional = code.replace(co_argcount=len(given), co_kwonlyargcount=0, co_posonlyargcount=0,
                             co_flags=code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS))
        flat = type(function)(positional, function.__globals__, function.__name__, None, function.__closure__)
        return flat(*[given[name] for name in order])


class ProxyableClassMeta(type):
    """Classes whose making inside a traced program is recorded as one node."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        tracer = _tracer_of((args, kwargs))
        if tracer is not None:
            return tracer.create_proxy("call_function", cls, args, kwargs)
        return super().__call__(*args, **kwargs)


def symbolic_trace(root: Module | Callable[..., Any], concrete_args: Any = None) -> GraphModule:
    """The GraphModule of a module or a function: its graph, and code that does the same."""
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
