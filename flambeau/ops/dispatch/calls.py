"""A call on its way down: from the public function through autograd to modes, subclasses and, at last, the kernel.

While a mode is entered, or an argument's class has `__torch_dispatch__`, `overrides` offers every call of a public function to
`offer`. It is taken apart into the operations that PyTorch's dispatcher knows (lowering.py), and each of them

    call           records its node (derivatives.py has the formulas, made of such calls again), and asks
    below          the innermost mode, then the classes of the arguments, and then
    run_operation  runs the function on plain tensors, as in a program without any of this.

A handler runs below autograd: what it calls is not recorded, and goes on from `below`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...autograd.node import Edge, Node, bump, next_sequence, version_of
from ...autograd.state import AUTOCAST, DISPATCH, FORWARD_AD, INFERENCE, NO_GRAD, SAVED_HOOKS, mode_bits, state
from ...autograd.views import MULTI_OUTPUT, NO_GRAD_VIEW, check_inplace, edge_of, set_history
from ...tensors.dtypes import GRAD_NUMS
from ...tensors.shapes import MOST_DIMS
from ...tensors.tensor import Tensor
from ..core import overrides
from ..core.export import FUNCTIONS
from ..core.row import unpack
from . import schemas
from .schemas import NoFit

_PREFIXES = ("linalg", "fft", "special")


# ------------------------------------------------------------------------------------------------------- who is asked
def tensors_in(values: Any, depth: int = MOST_DIMS) -> Iterator[Tensor]:
    """The tensors among arguments, those in lists too (a list may hold itself: no deeper than tensors have dimensions)."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif value.__class__ in (list, tuple) and depth:
            yield from tensors_in(value, depth - 1)


def _subclasses(tensors: Any) -> list[Tensor]:
    """One tensor for each class that has a say, subclasses before their superclasses."""
    found: list[Tensor] = []
    for t in tensors:
        kind = type(t)
        if kind._dispatches and all([kind is not type(o) for o in found]):
            found.insert(next((i for i, o in enumerate(found) if issubclass(kind, type(o))), len(found)), t)
    return found


def listens(tensors: Any) -> bool:
    """Whether anybody would be asked about a call."""
    if state.dispatch_off:
        return False
    return bool(state.dispatch_modes) or any([type(t)._dispatches for t in tensors])


# ------------------------------------------------------------------------------------------------- from public functions
def offer(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
    """A call of a public function: (True, result), or (False, None) where nobody listens or its own body is to run."""
    tensors = list(tensors_in((*args, *kwargs.values())))
    if not listens(tensors):
        return False, None
    if state.mode & FORWARD_AD and any([t._tangent is not None for t in tensors]):
        return _dual(function, tensors)
    name = _name_of(function)
    if name is None:
        return False, None
    from .lowering_layers import LOWERED  # (which has those of lowering.py too)
    lowered = LOWERED.get(name)
    try:
        if lowered is not None:
            result = lowered(*args, **kwargs)
            if result is not NotImplemented:
                return True, result
        entry, values = schemas.resolve(name, args, {k: v for k, v in kwargs.items() if v is not None or k != "out"})
    except NoFit:
        return False, None  # the function's own body runs, and says what is wrong with the call if anything is
    result = call(_overload(name, entry.overload), values)
    return True, tuple(result) if result.__class__ is list else result


def _dual(function: Callable[..., Any], tensors: list[Tensor]) -> tuple[bool, Any]:
    """Tensors with a tangent: modes do not see what is done with them, and subclasses cannot have one."""
    if any([type(t)._dispatches for t in tensors]):
        raise NotImplementedError(f"{function.__name__}: forward-mode AD through tensors with __torch_dispatch__ is not "
                                  "implemented")
    return False, None


def _name_of(function: Callable[..., Any]) -> str | None:
    """The name that PyTorch's dispatcher has for a function, or that `lowering` knows; None for one that is no operation."""
    name = getattr(function, "__name__", None)
    if name in _ALWAYS or name is None:
        return None
    if name.startswith("is_") or name.startswith("register_"):
        return None
    for prefix in _PREFIXES:
        if (getattr(function, "__module__", "") or "").endswith(f".{prefix}") and schemas.is_known(f"{prefix}_{name}"):
            return f"{prefix}_{name}"
    return name


# Not operations: their bodies run, and call what is.
_ALWAYS = frozenset("backward grad requires_grad_ retain_grad __len__ __iter__ numpy tolist _assert storage untyped_storage "
                    "multi_head_attention_forward get_device data_ptr".split())


def _overload(name: str, overload: str) -> Any:
    from .overloads import packet
    return getattr(packet("aten", name), overload)


def operation(name: str, *args: Any, **kwargs: Any) -> Any:
    """Calls an operation by name, as a public function would be: recorded, seen by all."""
    entry, values = schemas.resolve(name, args, kwargs)
    return call(_overload(name, entry.overload), values)


def scalar(name: str, x: Tensor, number: Any) -> Tensor:
    """The overload of a tensor and a number: `x * 2` in C++, where Python would make the number a tensor."""
    return call_overload(_overload(name, "Scalar"), (x, number), {})


def call_overload(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch.ops.aten.add.Tensor(x, y)`, called by a user or a handler."""
    if op._schema is None:
        return function_named(op._opname)(*args, **kwargs)
    try:
        values = op._schema.bind(args, kwargs, loosely=False)
    except NoFit as error:
        raise RuntimeError(f"{op._name}() {error}: expected {op._schema}") from None
    return call(op, values)


# ------------------------------------------------------------------------------------------------------------- autograd
def call(op: Any, values: dict[str, Any]) -> Any:
    """An operation, recorded where one of its arguments requires grad."""
    tensors = list(tensors_in(values.values()))
    if not listens(tensors):
        return run_operation(op, values)
    if state.below:
        return below(op, values, tensors)
    written = [values[a.name] for a in op._schema.arguments if a.is_write and isinstance(values.get(a.name), Tensor)]
    recording = not state.mode & (NO_GRAD | INFERENCE)
    for target in written:
        check_inplace(target)
    needed = recording and any([t.requires_grad for t in tensors])
    node = None
    if needed:
        from .rules import node_for
        node = node_for(op, values, bool(written))
    versions = [version_of(t) for t in written]
    with Below():
        result = below(op, values, tensors)
    if written:
        for target, version in zip(written, versions):
            if version_of(target) == version and not target._inference:
                bump(target)  # a handler wrote into what the tensor stands for
        result = _in_place(op, written, result, node)
    else:
        result = _distinct(result, tensors, op)
        if recording:
            _as_recorded(result)
    if node is not None:
        node.made(result, written[0] if written else None)
    return result


class Below:
    """Inside, autograd does not record: what handlers call goes on below it."""

    def __enter__(self) -> None:
        state.below += 1
        self.bits = mode_bits(set=NO_GRAD, clear=AUTOCAST | SAVED_HOOKS)
        self.bits.__enter__()

    def __exit__(self, *exc: Any) -> None:
        self.bits.__exit__(*exc)
        state.below -= 1


def _in_place(op: Any, written: list[Tensor], result: Any, node: Any) -> Any:
    """What an operation that writes returns: the tensors that it wrote."""
    if len(written) == 1 and op._schema.returns and len(op._schema.returns) == 1:
        return written[0]
    return tuple(written) if len(op._schema.returns) == len(written) else result


def _distinct(result: Any, tensors: list[Tensor], op: Any) -> Any:
    """A handler may return what it was given: then the result is another tensor over the same memory."""
    if op._opname not in _RETURNS_ITSELF and isinstance(result, Tensor) and any([result is t for t in tensors]):
        with Below():
            return _detached(result)
    return result


_RETURNS_ITSELF = ("lift_fresh", "detach")


def _as_recorded(result: Any) -> None:
    """Views were made below autograd, where nothing is recorded; that is not what the user did."""
    several = isinstance(result, (list, tuple))
    for r in result if several else (result,):
        if isinstance(r, Tensor) and r._creation == NO_GRAD_VIEW:
            r._creation = MULTI_OUTPUT if several and len(result) > 1 else r._base._creation


class DispatchNode(Node):
    """A recorded operation whose formulas are calls of operations again. (Subclasses are named as PyTorch's nodes.)"""

    rule: Any = None

    def take(self, op: Any, rule: Any, values: dict[str, Any], edges: dict[str, Any], saved: dict[str, Any]) -> None:
        """What is known before the operation runs. edges: where the gradients of its arguments go, by name."""
        self.op, self.rule, self.values = op, rule, {k: v for k, v in values.items() if not _holds_tensor(v)}
        self.counts = {k: len(e) if e.__class__ is list else None for k, e in edges.items()}
        self.next = tuple([e for edge in edges.values() for e in (edge if edge.__class__ is list else [edge])])
        self.sequence = next_sequence()
        self.slots, kept = [], []
        for name, value in saved.items():
            self.slots.append(name)
            kept.append(value)
        self.saved = tuple(kept)
        self.versions = tuple([version_of(v) if isinstance(v, Tensor) else 0 for v in kept])
        self.shapes = {k: list(v.shape) if isinstance(v, Tensor) else [None if t is None else list(t.shape) for t in v]
                       for k, v in values.items() if _holds_tensor(v)}
        self.dtypes = {k: v.dtype for k, v in values.items() if isinstance(v, Tensor)}
        self.all = values if rule.keeps_all else None

    def made(self, result: Any, target: Tensor | None) -> None:
        """The results are known: they become this node's, and those that formulas need are kept."""
        results = list(result) if isinstance(result, (list, tuple)) else [result]
        if not any([isinstance(r, Tensor) for r in results]):
            return
        arrays = [r._array if isinstance(r, Tensor) else None for r in results]
        if not isinstance(result, (list, tuple)):
            self.shape, self.dtype = arrays[0].shape, arrays[0].dtype
        else:
            self.outputs = [((), self.dtype) if a is None else (a.shape, a.dtype) for a in arrays]
        self._keep_results(results)
        for nr, r in enumerate(results):
            if isinstance(r, Tensor) and r._array.dtype.num in GRAD_NUMS and nr not in self.rule.constant:
                edge = self if self.outputs is None else Edge(self, nr)
                if target is not None and r is target:
                    set_history(r, edge)
                else:
                    r._node = edge
                    if r._base is not None:
                        r._seen = r._counter.value
        self._pack()

    def _keep_results(self, results: list[Any]) -> None:
        wanted = self.rule.results_wanted(set(self.counts))
        with Below():
            kept = {f"result{nr}": results[nr] if nr in self.rule.constant else _detached(results[nr])
                    for nr in sorted(wanted) if nr < len(results)}
        self.slots += list(kept)
        self.saved = (*self.saved, *kept.values())
        self.versions = (*self.versions, *[version_of(v) for v in kept.values()])

    def _pack(self) -> None:
        if state.mode & SAVED_HOOKS and state.saved_hooks:
            from ...autograd.saved_tensors import pack
            self.saved = tuple([pack(v, self) if isinstance(v, Tensor) else v for v in self.saved])

    def value(self, name: str) -> Any:
        """What a formula calls by this name."""
        if name == "result":
            name = "result0"
        if name in self.slots:
            at = self.slots.index(name)
            found = unpack(self, at)
            if not name.startswith("result") or not isinstance(found, Tensor) or int(name[6:]) in self.rule.constant:
                return found
            with Below():
                found = _detached(found)
            if not state.mode & NO_GRAD:
                nr = int(name[6:])
                found._node = self if self.outputs is None else Edge(self, nr)
            return found
        stem, _, kind = name.rpartition("_")
        if kind == "shape" and stem in self.shapes:
            return self.shapes[stem]
        if kind == "dtype" and stem in self.dtypes:
            return self.dtypes[stem]
        if name in self.values:
            return self.values[name]
        schema = self.op._schema.by_name.get(name)
        return None if schema is None else schema.default_value

    def apply(self, grads: Any) -> Any:
        if self.saved is None:
            from ...autograd.errors import freed_error
            raise freed_error(self)
        found = self.rule.gradients(self, grads, list(self.counts))
        flat: list[Any] = []
        for name, count in self.counts.items():
            g = found.get(name)
            flat += [g] if count is None else list(g) if g is not None else [None] * count
        return tuple(flat)

    def release(self) -> None:
        if self.saved:
            self.saved = None
        self.all = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_saved_"):
            return self.value(name[7:])
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


def _holds_tensor(value: Any) -> bool:
    return isinstance(value, Tensor) or (value.__class__ in (list, tuple) and any([isinstance(v, Tensor) for v in value]))


def _detached(tensor: Any) -> Any:
    if not isinstance(tensor, Tensor):
        return tensor
    return below(_overload("detach", "default"), {"self": tensor}, [tensor])


def edges_of(values: dict[str, Any], names: Any) -> dict[str, Any]:
    """Where the gradients of the named arguments go; only of those that want one."""
    found: dict[str, Any] = {}
    for name in names:
        value = values.get(name)
        if isinstance(value, Tensor):
            if value._array.dtype.num in GRAD_NUMS and (edge := edge_of(value)) is not None:
                found[name] = edge
        elif value.__class__ in (list, tuple):
            edges = [edge_of(v) if isinstance(v, Tensor) else None for v in value]
            if any([e is not None for e in edges]):
                found[name] = edges
    return found


# ------------------------------------------------------------------------------------------------------ below autograd
def below(op: Any, values: dict[str, Any], tensors: list[Tensor]) -> Any:
    """Asks the innermost mode, then the classes of the arguments; nobody: the plain function."""
    if state.dispatch_off:
        return run_operation(op, values)
    asked = _subclasses(tensors)
    modes = state.dispatch_modes
    if not asked and not modes:
        return run_operation(op, values)
    from .bits import resolved
    done, result = resolved(op, values, tensors)
    if done:
        return result
    kinds = tuple([type(t) for t in asked])
    args, kwargs = op._schema.shown(values)
    if modes:
        with WithoutInnermost() as mode:
            known = op.handlers.get(type(mode))
            result = mode.__torch_dispatch__(op, kinds, args, kwargs) if known is None else known(mode, op, kinds, args, kwargs)
        if result is not NotImplemented:
            return result
    for t in asked:
        known = op.handlers.get(type(t))
        result = (type(t).__torch_dispatch__(op, kinds, args, kwargs) if known is None else
                  known(type(t), op, kinds, args, kwargs))
        if result is not NotImplemented:
            return result
    names = ", ".join([f"{k.__module__}.{k.__qualname__}" for k in kinds])
    raise TypeError(f"Multiple dispatch failed for '{op}'; all __torch_dispatch__ handlers returned NotImplemented: [{names}]")


class WithoutInnermost:
    """The innermost mode, which does not see what its own handler calls."""

    def __enter__(self) -> Any:
        self.mode = state.dispatch_modes.pop()
        self.bits = state.mode
        if not state.dispatch_modes:
            state.mode &= ~DISPATCH
        return self.mode

    def __exit__(self, *exc: Any) -> None:
        state.dispatch_modes.append(self.mode)
        state.mode |= DISPATCH


def run_operation(op: Any, values: dict[str, Any]) -> Any:
    """The operation on plain tensors."""
    if op.kernel is not None:  # a custom operation
        return op.kernel(values)
    from .backward import backward_kernel
    from .kernels import KERNELS
    found = KERNELS.get(f"{op._opname}.{op._overloadname}") or KERNELS.get(op._opname) or backward_kernel(op._opname)
    schema = op._schema
    args = [values[a.name] if a.name in values else a.default_value for a in schema.positional]
    kwargs = {a.name: values[a.name] for a in schema.arguments if a.kwarg_only and a.name in values}
    if found is not None:
        return found(*args, **kwargs)
    while args and schema.positional[len(args) - 1].name not in values:
        args.pop()
    return function_named(op._opname)(*args, **_given(kwargs))


def _given(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keywords that say something: a function may lack those that only PyTorch's dispatcher has."""
    return {k: v for k, v in kwargs.items() if not (v is None or (k == "pin_memory" and v is False))}


def function_named(name: str) -> Callable[..., Any]:
    """The function of flambeau's that computes an operation."""
    import flambeau

    from .. import internal
    for prefix in _PREFIXES:
        space = getattr(flambeau, prefix)
        if name.startswith(prefix + "_") and hasattr(space, name[len(prefix) + 1:]):
            return getattr(space, name[len(prefix) + 1:])
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    for space in (flambeau, flambeau.Tensor, flambeau.nn.functional, internal, flambeau._C._nn):
        if hasattr(space, name):
            return getattr(space, name)
    raise NotImplementedError(f"torch.ops.aten.{name}: flambeau has no operation of this name")


# --------------------------------------------------------------------------------------------------------------- on and off
def enter(mode: Any) -> None:
    """A mode is entered: calls ask from now on."""
    overrides.dispatching(True)
    state.dispatch_modes.append(mode)
    state.mode |= DISPATCH


def leave() -> Any:
    mode = state.dispatch_modes.pop()
    if not state.dispatch_modes:
        state.mode &= ~DISPATCH
    overrides.dispatching(False)
    return mode


class no_dispatch:
    """Inside, neither modes nor subclasses are asked."""

    def __enter__(self) -> None:
        self.before = state.mode & DISPATCH
        state.dispatch_off += 1
        state.mode &= ~DISPATCH

    def __exit__(self, *exc: Any) -> None:
        state.dispatch_off -= 1
        state.mode |= self.before
