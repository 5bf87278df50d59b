"""`torch.library`: operations written in Python, called as `torch.ops.namespace.name`.

An operation has a schema, a function that computes it and, perhaps, a backward formula and a function that tells shapes.
There is one device, so the kernel of any device type is the kernel.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .autograd.function import Function
from .autograd.state import state
from .missing import refusal
from .ops.core.namespaces import NAMESPACES, OpNamespace
from .ops.dispatch import calls
from .ops.dispatch.overloads import OpOverload, OpOverloadPacket
from .ops.dispatch.schemas import Schema
from .tensors.tensor import Tensor

__all__ = ["CustomOpDef", "Library", "custom_op", "define", "fallthrough_kernel", "get_ctx", "impl", "impl_abstract",
           "infer_schema", "opcheck", "register_autocast", "register_autograd", "register_fake", "register_kernel",
           "register_torch_dispatch", "register_vmap", "triton_op", "wrap_triton"]

_announced: dict[str, Callable] = {}  # what register_fake said of operations that were not defined yet



def _split(qualname: str) -> tuple[str, str]:
    space, found, name = qualname.partition("::")
    if not found or not space or not name:
        raise ValueError(f"Expected operator name to be of the form 'namespace::name', got {qualname!r}")
    return space, name.partition(".")[0]


def _is_defined(qualname: str) -> bool:
    space, name = _split(qualname)
    return space in NAMESPACES and name in vars(NAMESPACES[space])


def lookup(qualname: Any) -> CustomOpDef:
    """The operation of a name (or the operation itself)."""
    if isinstance(qualname, CustomOpDef):
        return qualname
    if isinstance(qualname, (CustomPacket, CustomOverload)):
        return qualname.definition
    space, name = _split(qualname)
    found = vars(NAMESPACES[space]).get(name) if space in NAMESPACES else None
    if found is None:
        raise RuntimeError(f"operator {qualname} does not exist: define it first")
    return found.definition


# -------------------------------------------------------------------------------------------------------- the schema
_TYPES = {Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str", complex: "complex"}


def _type_word(kind: Any, function: Callable, what: str) -> str:
    """A Python annotation as the schema writes it."""
    import flambeau
    if kind in _TYPES:
        return _TYPES[kind]
    if kind is flambeau.dtype:
        return "ScalarType"
    if kind is flambeau.device:
        return "Device"
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType) and type(None) in inner:
        rest = [t for t in inner if t is not type(None)]
        if len(rest) == 1:
            return f"{_type_word(rest[0], function, what)}?"
        return "Scalar?"
    if origin in (typing.Union, types.UnionType) and set(inner) <= {int, float, bool}:
        return "Scalar"
    if origin in (list, tuple) or getattr(origin, "__name__", "") == "Sequence":
        return f"{_type_word(inner[0], function, what)}[]"
    raise ValueError(f"infer_schema: {what} of {inspect.signature(function)} has the type {kind}, which schemas do not know")


def infer_schema(prototype_function: Callable, /, *, mutates_args: Any, op_name: str | None = None) -> str:
    """The schema that a function's annotations say: `(Tensor x, SymInt n=2) -> Tensor`."""
    signature = inspect.signature(prototype_function)
    hints = typing.get_type_hints(prototype_function)
    parts: list[str] = []
    for i, p in enumerate(signature.parameters.values()):
        if p.name not in hints:
            raise ValueError(f"infer_schema: parameter {p.name} of {signature} has no type annotation")
        word = _type_word(hints[p.name], prototype_function, f"Parameter {p.name}")
        if mutates_args == "unknown" or p.name in mutates_args:
            if not word.startswith("Tensor"):
                raise ValueError(f"infer_schema: only tensors can be mutated, parameter {p.name} is none")
            word = word.replace("Tensor", f"Tensor(a{i}!)", 1)
        if p.kind is p.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        default = "" if p.default is p.empty else f"={_default(p.default)}"
        parts.append(f"{word} {p.name}{default}")
    result = _result_word(hints.get("return", inspect.Parameter.empty), prototype_function)
    return f"{op_name or ''}({', '.join(parts)}) -> {result}"


def _default(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).removeprefix("torch.")


def _result_word(kind: Any, function: Callable) -> str:
    if kind is type(None):
        return "()"
    if kind is inspect.Parameter.empty:
        raise ValueError(f"infer_schema: the function of {inspect.signature(function)} has no return annotation")
    if typing.get_origin(kind) is tuple:
        return f"({', '.join(_type_word(k, function, 'Return') for k in typing.get_args(kind))})"
    return _type_word(kind, function, "Return")


def _parameters(schema: str) -> inspect.Signature:
    """The arguments of `(Tensor x, int n=2, *, float? eps=None) -> Tensor` as a Python signature."""
    inside = schema[schema.index("(") + 1:schema.rindex("->")].rstrip().removesuffix(")")
    found, kind = [], inspect.Parameter.POSITIONAL_OR_KEYWORD
    for part in re.split(r",\s*(?![^\[(]*[\])])", inside) if inside.strip() else ():
        part = part.strip()
        if part == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
            continue
        name, has_default, default = part.rpartition(" ")[2].partition("=")
        value = inspect.Parameter.empty if not has_default else _read_default(default)
        found.append(inspect.Parameter(name, kind, default=value))
    return inspect.Signature(found)


def _read_default(text: str) -> Any:
    import ast
    with contextlib.suppress(ValueError, SyntaxError):
        return ast.literal_eval(text)
    return text


# ------------------------------------------------------------------------------------------------------ the operation
class _Call:
    """One call of an operation: its arguments, taken apart into leaves for the Function and put together again."""

    def __init__(self, op: CustomOpDef, args: tuple[Any, ...], keyword_only: dict[str, Any]):
        self.op, self.shape, self.keyword_only = op, [], keyword_only
        self.leaves: list[Any] = []
        for a in args:
            many = isinstance(a, (list, tuple)) and any(isinstance(v, Tensor) for v in a)
            self.shape.append((type(a), len(a)) if many else None)
            self.leaves += list(a) if many else [a]

    def together(self, leaves: Iterable[Any]) -> tuple[Any, ...]:
        rest = iter(leaves)
        return tuple(next(rest) if s is None else s[0](next(rest) for _ in range(s[1])) for s in self.shape)

    def apart(self, grads: Any) -> list[Any]:
        grads = grads if isinstance(grads, tuple) else (grads,)
        if len(grads) != len(self.shape):
            raise RuntimeError(f"the backward formula of {self.op} has to return {len(self.shape)} values, got {len(grads)}")
        flat: list[Any] = []
        for g, s in zip(grads, self.shape):
            flat += [g] if s is None else [None] * s[1] if g is None else list(g)
        return flat


class _Recorded(Function):
    """Runs an operation's kernel; its gradient is the registered formula."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *leaves: Any) -> Any:
        args = call.together(leaves)
        op = call.op
        output = op._below(args, call.keyword_only)
        ctx.call = call
        _check_aliases(op, leaves, output)
        if op._setup_context is not None:
            more = {"keyword_only_inputs": call.keyword_only} if call.keyword_only else {}
            op._setup_context(ctx=ctx, inputs=args, output=output, **more)
        return tuple(output) if isinstance(output, list) else output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        op = ctx.call.op
        if op._backward is None:
            raise RuntimeError(f"{op} has no derivative: no autograd formula was registered (register_autograd does that)")
        return (None, *ctx.call.apart(op._backward(ctx, *grads)))


def _check_aliases(op: CustomOpDef, leaves: Any, output: Any) -> None:
    made = output if isinstance(output, (tuple, list)) else (output,)
    given = {v.untyped_storage().data_ptr() for v in leaves if isinstance(v, Tensor) and v.numel()} - {0}
    if any(isinstance(v, Tensor) and v.numel() and v.untyped_storage().data_ptr() in given for v in made):
        raise RuntimeError(f"{op._qualname}: what a custom operation returns must not also be an input to it, nor share memory "
                           "with one; return a clone()")


class CustomOpDef:
    """An operation: call it, or `torch.ops.namespace.name`; register_* add what it knows."""

    def __init__(self, qualname: str, schema: str, function: Callable | None = None):
        self._namespace, self._name = _split(qualname)
        self._qualname, self._schema = f"{self._namespace}::{self._name}", schema
        self._init_fn = self._kernel = function or refusal(self._qualname, "no kernel was registered, and it is not computed")
        self._signature = _parameters(schema)
        self._backward = self._setup_context = None
        self._abstract_fn = _announced.pop(self._qualname, None)
        self.__name__ = self._name
        self._handlers: dict[type, Callable] = {}  # of register_torch_dispatch, by class
        space = NAMESPACES.setdefault(self._namespace, OpNamespace(self._namespace))
        setattr(space, self._name, CustomPacket(self))
        self.default = self._opoverload = getattr(space, self._name).default

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        tensors = [v for v in bound.arguments.values() if isinstance(v, Tensor)]
        if self._abstract_fn is not None and tensors and all(t.device.type == "meta" for t in tensors):
            return self._abstract_fn(*bound.args, **bound.kwargs)
        call = _Call(self, bound.args, bound.kwargs)
        return _Recorded.apply(call, *call.leaves)

    def _below(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call below autograd: modes and subclasses are asked before the kernel runs."""
        tensors = list(calls.tensors_in((*args, *kwargs.values())))
        if not calls.listens(tensors):
            return self._kernel(*args, **kwargs)
        values = dict(zip([a.name for a in self._opoverload._schema.arguments], args)) | kwargs
        with calls.Below():
            return calls.below(self._opoverload, values, tensors)

    def register_torch_dispatch(self, torch_dispatch_class: type, fn: Callable | None = None, /) -> Any:
        """What a mode or a subclass does with this operation: fn(mode or class, op, types, args, kwargs). Also a decorator."""
        def register(function: Callable) -> Callable:
            self._handlers[torch_dispatch_class] = function
            return function

        return register if fn is None else register(fn)

    def _on_plain(self, given: dict[str, Any]) -> Any:
        bound = self._signature.bind(**given)
        return self._kernel(*bound.args, **bound.kwargs)

    def register_autograd(self, backward: Callable, /, *, setup_context: Callable | None = None) -> None:
        """backward(ctx, *grads) -> gradients of the inputs; setup_context(ctx, inputs, output) keeps what it needs."""
        self._backward, self._setup_context = backward, setup_context

    def register_kernel(self, device_types: Any, fn: Callable | None = None, /) -> Any:
        """The function that computes it. Also a decorator."""
        def register(function: Callable) -> Callable:
            types_ = (device_types,) if device_types is None or isinstance(device_types, str) else tuple(device_types)
            if None in types_ or "cpu" in types_:
                self._kernel = function
            return function

        return register if fn is None else register(fn)

    def register_fake(self, fn: Callable, /) -> Callable:
        """The function that makes results without values, for meta tensors. A decorator."""
        self._abstract_fn = fn
        return fn

    def register_vmap(self, func: Callable | None = None) -> Any:
        """Does nothing: vmap runs the operation example by example."""
        return (lambda f: f) if func is None else func

    register_autocast = refusal("register_autocast", "casting rules of custom operations are not implemented")

    @contextlib.contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """With False: the function that the operation was made of, for a block."""
        before = self._kernel
        if not enabled:
            self._kernel = self._init_fn
        try:
            yield
        finally:
            self._kernel = before

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __str__(self) -> str:
        return f"{self._namespace}.{self._name}.default"


class CustomPacket(OpOverloadPacket):
    """`torch.ops.namespace.name`, of an operation that was defined here."""

    def __init__(self, definition: CustomOpDef):
        super().__init__(definition._namespace, definition._name)
        self.definition = definition
        self.default = CustomOverload(self, "default", Schema(f"{definition._name}{definition._schema.lstrip()}" if (
            definition._schema.lstrip().startswith("(")) else definition._schema, definition._namespace))
        self.default.definition = definition

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.default(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        definition = self.__dict__.get("definition")
        if hasattr(type(definition), name) or name in vars(definition):
            return getattr(definition, name)
        raise AttributeError(f"The underlying op of '{self}' has no overload name '{name}'")

    def overloads(self) -> list[str]:
        return ["default"]


class CustomOverload(OpOverload):
    """`torch.ops.namespace.name.default`."""

    definition: CustomOpDef

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not state.below:
            return self.definition(*args, **kwargs)
        bound = self.definition._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return self.definition._below(bound.args, bound.kwargs)

    def kernel(self, values: dict[str, Any]) -> Any:
        """The operation on plain tensors."""
        given = {name: values[name] for name in self.definition._signature.parameters if name in values}
        return self.definition._on_plain(given)

    @property
    def fake(self) -> Any:
        return self.definition._abstract_fn

    @property
    def handlers(self) -> dict[type, Callable]:
        return self.definition._handlers

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "definition":
            raise AttributeError(name)
        return getattr(self.definition, name)


def custom_op(name: str, fn: Callable | None = None, /, *, mutates_args: Any, device_types: Any = None,
              schema: str | None = None, tags: Any = None) -> Any:
    """Makes an operation of a function with annotated arguments. Also a decorator."""
    def make(function: Callable) -> CustomOpDef:
        return CustomOpDef(name, schema or infer_schema(function, mutates_args=mutates_args), function)

    return make if fn is None else make(fn)


triton_op = custom_op
wrap_triton = refusal("library.wrap_triton", "Triton kernels are not implemented")


# ------------------------------------------------------------------------------------------- the older ways to say it
class Library:
    """A namespace to define operations in: define("f(Tensor x) -> Tensor"), then impl("f", function, "CPU")."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = ""):
        if kind not in ("DEF", "IMPL", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        self.ns, self.kind = ns, kind

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        name = schema[:schema.index("(")].strip()
        CustomOpDef(f"{self.ns}::{name}", schema[schema.index("("):])
        return name

    def impl(self, op_name: Any, fn: Callable, dispatch_key: str = "", *, with_keyset: bool = False,
             allow_override: bool = False) -> None:
        name = op_name if isinstance(op_name, str) else op_name._name
        op = lookup(name if "::" in name else f"{self.ns}::{name}")
        if dispatch_key == "Meta":
            op._abstract_fn = fn
        elif dispatch_key in ("", "CPU", "CompositeImplicitAutograd", "CompositeExplicitAutograd"):
            op._kernel = fn
        elif dispatch_key not in ("CUDA", "XPU", "MPS"):
            raise NotImplementedError(f"Library.impl: the dispatch key {dispatch_key} is not implemented in flambeau")


def fallthrough_kernel(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("fallthrough_kernel() should never be called.")


def define(qualname: str, schema: str, *, lib: Any = None, tags: Any = ()) -> Any:
    """Defines an operation; impl gives it its function."""
    if not isinstance(qualname, str):
        raise ValueError(f"define(qualname, schema): expected qualname to be instance of str, got {type(qualname)}")
    CustomOpDef(qualname, schema)


def impl(qualname: str, types: Any, func: Callable | None = None, *, lib: Any = None) -> Any:
    """The function of an operation for device types ("default": all). Also a decorator."""
    return lookup(qualname).register_kernel(None if types in ("default", "CompositeExplicitAutograd") else types, func)


def register_kernel(op: Any, device_types: Any, func: Callable | None = None, /, *, lib: Any = None) -> Any:
    return lookup(op).register_kernel(device_types, func)


def register_fake(op: Any, func: Callable | None = None, /, *, lib: Any = None, _stacklevel: int = 1,
                  allow_override: bool = False) -> Any:
    """The function that tells an operation's result from its inputs' shapes. Also a decorator.

    The operation may be defined later: packages describe those of their compiled parts, which cannot be loaded here.
    """
    def register(function: Callable) -> Callable:
        if isinstance(op, str) and not _is_defined(op):
            _announced["::".join(_split(op))] = function
            return function
        return lookup(op).register_fake(function)

    return register if func is None else register(func)


impl_abstract = register_fake


def register_autograd(op: Any, backward: Callable, /, *, setup_context: Callable | None = None, lib: Any = None) -> None:
    lookup(op).register_autograd(backward, setup_context=setup_context)


def register_vmap(op: Any, func: Callable | None = None, /, *, lib: Any = None) -> Any:
    return lookup(op).register_vmap(func)


def register_torch_dispatch(op: Any, torch_dispatch_class: type, func: Callable | None = None, /, *, lib: Any = None) -> Any:
    """What a mode or a subclass does with an operation, in place of its `__torch_dispatch__`. Also a decorator."""
    return lookup(op).register_torch_dispatch(torch_dispatch_class, func)


register_autocast = refusal("library.register_autocast", "casting rules of custom operations are not implemented")
get_ctx = refusal("library.get_ctx", "data-dependent shapes are not implemented")


_TESTS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def opcheck(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, *, test_utils: Any = _TESTS,
            raise_exception: bool = True, atol: Any = None, rtol: Any = None) -> dict[str, str]:
    """Checks an operation against what was said of it, with these arguments. Returns test -> "SUCCESS" or the error.

    test_schema: it changes what its schema says, and nothing else. test_autograd_registration: a gradient that is asked for
    has a formula. test_faketensor: its fake function gives the shapes of the kernel. test_aot_dispatch_dynamic: the graph that
    `make_fx` makes of a call gives the same values.
    """
    wanted = _TESTS if test_utils is None else (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    unknown = [t for t in wanted if t not in _TESTS]
    if unknown:
        raise ValueError(f"opcheck: test_utils {unknown} are none of {list(_TESTS)}")
    definition, found = lookup(op), {}
    for test in wanted:
        try:
            _CHECKS[test](definition, args, kwargs or {}, {"atol": atol, "rtol": rtol})
            found[test] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise OpCheckError(f"opcheck(op, ...): {test} failed with {error} (scroll up for stack trace)") from error
            found[test] = error
    return found


class OpCheckError(Exception):
    """An operation is not what was said of it."""


def _check_schema(op: CustomOpDef, args: Any, kwargs: Any, close: Any) -> None:
    schema = op._opoverload._schema
    bound = op._signature.bind(*args, **kwargs)
    before = {name: v.detach().clone() for name, v in bound.arguments.items() if isinstance(v, Tensor)}
    op(*args, **kwargs)
    for name, old in before.items():
        changed = not bool((bound.arguments[name].detach() == old).all()) and not bool(old.isnan().any())
        if changed and not schema.by_name[name].is_write:
            raise RuntimeError(f"Argument {name} is not defined as mutable but was mutated")


def _check_autograd(op: CustomOpDef, args: Any, kwargs: Any, close: Any) -> None:
    if op._backward is None or op._opoverload._schema.is_mutable:
        return
    made = op(*args, **kwargs)
    results = [t for t in calls.tensors_in((made,)) if t.requires_grad]
    if any([t.requires_grad for t in calls.tensors_in((*args, *kwargs.values()))]) and results:
        sum([r.sum() for r in results]).backward(inputs=[t for t in calls.tensors_in((*args, *kwargs.values())) if t.is_leaf
                                                         and t.requires_grad])


def _check_fake(op: CustomOpDef, args: Any, kwargs: Any, close: Any) -> None:
    from ._subclasses.fake_tensor import FakeTensorMode
    from .utils._pytree import tree_map
    if op._abstract_fn is None:
        return
    mode = FakeTensorMode()
    fakes = tree_map(lambda v: mode.from_tensor(v) if isinstance(v, Tensor) else v, (args, kwargs))
    with mode:
        fake = op(*fakes[0], **fakes[1])
    made = op(*args, **kwargs)
    for real, pretended in zip(calls.tensors_in((made,)), calls.tensors_in((fake,))):
        for what in ("shape", "dtype", "device"):
            if getattr(real, what) != getattr(pretended, what):
                raise AssertionError(f"the fake function of {op} gives the {what} {getattr(pretended, what)}, the kernel "
                                     f"{getattr(real, what)}")
        if real.stride() != pretended.stride():
            raise AssertionError(f"the fake function of {op} gives the strides {pretended.stride()}, the kernel "
                                 f"{real.stride()}")


def _check_graph(op: CustomOpDef, args: Any, kwargs: Any, close: Any) -> None:
    from .fx.experimental.proxy_tensor import get_isolated_graphmodule
    from .testing import assert_close
    from .utils._pytree import tree_leaves
    if op._opoverload._schema.is_mutable:
        return
    graph = get_isolated_graphmodule(op, args, kwargs)
    again = graph(*tree_leaves((args, kwargs)))
    for real, other in zip(calls.tensors_in((op(*args, **kwargs),)), calls.tensors_in((again,))):
        assert_close(other, real, **close)


_CHECKS = dict(zip(_TESTS, (_check_schema, _check_autograd, _check_fake, _check_graph)))
