"""One row per operation: its arguments, kernel, derivative and, for pointwise work, its C expression.

A `Row` is the primitive: called with tensors and plain values in order, it runs the kernel of the tensors' backend and
records a node. The names of a derivative's arguments say what is kept for the backward pass:

    row("mv", "self vec", backward=dict(self=lambda grad, vec: grad.outer(vec.conj()), ...))

`grad` (`grads` where there are several outputs) is what came in; the name of an argument saves that argument, `x_shape`,
`x_dtype` and `x_strides` (in bytes) only that much of it; `result` (`result0`, `result1`...) saves an output.
Formulas are written with tensor operations, so higher derivatives follow by themselves; the engine sums over broadcast
dimensions and casts.

`public` (exports.py, whose names are all here too) turns a Python function over tensors into `flambeau.name`,
`Tensor.name`, `Tensor.name_` and `out=`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...autograd import state as _state
from ...autograd.node import (
    FLOAT32,
    INFERENCE_SAVED,
    Edge,
    Node,
    Packed,
    SavedOutput,
    freed_error,
    modified_error,
    next_sequence,
    saved_result,
    version_of,
)
from ...autograd.state import state
from ...autograd.views import MULTI_OUTPUT, edge_of, mark_view
from ...backends import registry
from ...backends.batched.arrays import BatchedArray, marked
from ...backends.cpu.parallel import LARGE
from ...backends.cpu.table import KERNELS
from ...backends.facts import enter as enter_facts
from ...tensors.dtypes import GRAD_NUMS
from ...tensors.parameter import Parameter
from ...tensors.tensor import Tensor, wrap
from . import generate
from .export import (  # noqa: F401  (families find them here, next to Row)
    _SEQUENCES,
    FUNCTIONS,
    NO_RECORD,
    _type_word,
    alias_of,
    autocast_as,
    check_overlap,
    check_writable,
    enter_inplace,
    export,
    export_inplace,
    fact,
    make_inplace,
    other_names,
    public,
    store,
    write_out,
)

_new = object.__new__
ndarray = registry.CPU_ARRAY
_asarray = registry.cpu.asarray
_WINDOWS, _PLAIN = registry.WINDOWS, {registry.CPU_ARRAY}
ROWS: dict[str, Row] = {}



class Row:
    """A primitive operation (see the module's text)."""

    def __init__(self, name: str, args: str, *, kernel: str | None = None, backward: dict[str, Callable] | None = None,
                 forward: Callable | str | None = None, node: str | None = None, view: bool = False, c: str | None = None,
                 constant: tuple[int, ...] = (), direct: dict[str, str | None] | None = None, **facts: Any):
        self.name = name
        self.args = tuple([a.rstrip("?") for a in args.split()])
        self.optional = frozenset([i for i, a in enumerate(args.split()) if a.endswith("?")])  # None, or not a tensor at all
        self.kernel = kernel or name
        self.view = view
        if view:
            facts["view"] = True
        if facts:                   # shape, batch, writes, safe...: whatever arrays the kernel runs on (backends/facts.py)
            enter_facts(self.kernel, self.args, facts)
        self.c = c
        self.forward = forward      # jvp rule, or "linear" (autograd/forward_mode.py)
        self.constant = constant    # outputs that carry no gradient
        self.direct = direct        # kernels that give a gradient straight from the arrays (see _quick)
        self.backward = backward or {}
        self.slots, self.formulas = _plan(self.args, self.backward)
        self.wants = tuple(a in self.backward for a in self.args)
        self.saves_outputs = any(slot.startswith("result") for slot in self.slots)
        self.targets = tuple([i for i, wanted in enumerate(self.wants) if wanted])
        self.sure = tuple([i for i in self.targets if i not in self.optional])  # tensors, wherever nothing else is said
        self.saving = [_source(self.args, slot, k, self.formulas) for k, slot in enumerate(self.slots)]
        self.frugal = all(kind in ("argument", "shape", "result") for kind, _, _ in self.saving)
        self.node = self._node_class(node or node_name(name)) if backward else None
        self.cpu = KERNELS.get(self.kernel)
        self.blanks = (None,) * (len(self.args) - 1)
        ROWS[name] = self

    def _node_class(self, name: str) -> type:
        members: dict[str, Any] = {"row": self, "__module__": __name__}
        if self.direct is not None:
            members["quick"] = _quick(self)
        given = self.args[1:] if self.view else ()  # of a view: dimensions and sizes
        if all(s in given or (s.rpartition("_")[2] in ("shape", "dtype", "strides") and s not in self.args)
               for s in self.slots):
            members["release"] = _nothing_to_free
        return type(name, (RowNode,), members)

    def __call__(self, *args: Any) -> Any:
        arrays, kinds, lists = [], set(), False
        for a in args:
            if isinstance(a, Tensor):
                a = a._array
                kinds.add(type(a))
            elif a.__class__ in _SEQUENCES and a and a[0].__class__ is not int and any(isinstance(t, Tensor) for t in a):
                a = [t._array if isinstance(t, Tensor) else t for t in a]
                kinds.update([type(t) for t in a if t is not None])
                lists = True
            arrays.append(a)
        mode = state.mode
        follows = registry.following is not None and mode & _state.FOLLOW
        if follows and kinds <= _WINDOWS and kinds:
            made = state.follower.call(self.kernel, tuple(arrays))
        elif follows or kinds - _PLAIN:
            made = _elsewhere(self, arrays)
        else:
            if self.cpu is None:
                self.cpu = KERNELS.get(self.kernel) or _no_kernel(self)
            made = self.cpu(*arrays)
        mode &= ~_state.FOLLOW
        if lists or mode > 1 or type(made) not in _WINDOWS or len(args) != len(self.args) or self.view or (
                made.dtype.num not in GRAD_NUMS or not all([isinstance(args[i], Tensor) for i in self.sure])):
            return self.finish(args, made)
        return self.tensor(mode, made, *args)

    def finish(self, args: tuple[Any, ...], made: Any) -> Any:
        """Wraps what a kernel made, ties views to their base and records the node."""
        if made.__class__ is tuple or made.__class__ is list:
            results = tuple([wrap(m if type(m) is ndarray else _array(m)) for m in made])
            if self.view:
                for r in results:
                    mark_view(r, args[0], MULTI_OUTPUT)
                    if args[0]._view_fn is not None:
                        _chain_view(self, args, r)
        else:
            results = wrap(made if type(made) is ndarray else _array(made))
            if self.view:
                mark_view(results, args[0])
                if args[0]._view_fn is not None:
                    _chain_view(self, args, results)
        mode = state.mode
        if not mode & NO_RECORD and self.node is not None:
            self.record(args, results)
        if mode & _state.FORWARD_AD:
            from ...autograd.forward_mode import propagate
            propagate(self, args, results)
        return results

    def __getattr__(self, name: str) -> Any:
        """What is made when it is first needed: `tensor`, which does what `finish` does for one array in mode 0 or 1, and
        `formulas_applied`, the backward pass."""
        if name not in ("tensor", "formulas_applied"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        made = self.__dict__[name] = (generate.tensor if name == "tensor" else generate.backward)(self)
        return made

    def record(self, args: tuple[Any, ...], results: Any) -> None:
        """Creates the node if an input wants a gradient."""
        edges: list[Any] | None = None
        for i in self.targets:
            if i >= len(args):  # trailing arguments were left out
                break
            a = args[i]
            if isinstance(a, Tensor):
                edge = a._node if a._counter is None else edge_of(a)
                if edge is not None:
                    if edges is None:
                        edges = [None] * len(self.wants)
                    edges[i] = edge
            elif a.__class__ in _SEQUENCES:
                return self._record_lists(args, results)
        if edges is None:
            return None
        for a in args:
            if a.__class__ in _SEQUENCES and a and not isinstance(a[0], int):
                return self._record_lists(args, results)
        return self._attach(edges, None, args, results)

    def _record_lists(self, args: tuple[Any, ...], results: Any) -> None:
        """`record` where an argument is a list of tensors, each with an edge of its own."""
        edges: list[Any] = []
        spans: dict[int, int] | None = None
        for index, (a, takes) in enumerate(zip(args, self.wants)):
            if isinstance(a, Tensor):
                edges.append(edge_of(a) if takes else None)
            elif a.__class__ in _SEQUENCES and a and any(isinstance(t, Tensor) for t in a):
                spans = spans or {}
                spans[index] = len(a)
                edges += [edge_of(t) if takes and isinstance(t, Tensor) else None for t in a]
            else:
                edges.append(None)
        if edges.count(None) == len(edges):
            return
        edges += [None] * (len(self.wants) - len(args))
        self._attach(edges, spans, args, results)

    def _attach(self, edges: list[Any], spans: dict[int, int] | None, args: tuple[Any, ...], results: Any) -> None:
        """Makes the node behind the results."""
        node = _new(self.node)
        node.next = tuple(edges)
        node.sequence = next_sequence()
        if spans is not None:
            node.spans = spans
        if results.__class__ is Tensor:
            array = results._array
            node.shape = array.shape if type(array) is ndarray else marked(array)
            native = array.dtype
            if native is not FLOAT32:
                node.dtype = native
            if native.num in GRAD_NUMS:
                results._node = node
                if results._base is not None:
                    results._seen = results._counter.value
        else:
            _connect(node, results, self.constant)
        if self.saving:
            if spans is None and self.frugal and not state.mode & _state.SAVED_HOOKS:
                self._keep(node, edges, args, results)
            else:
                kept = [self._slot(source, args, results, node) for source in self.saving]
                _save(node, kept, any([v is not None and kind == "argument" and self.wants[index]
                                       for v, (kind, index, _) in zip(kept, self.saving)]))
        if state.mode & _state.ANOMALY:
            from ...autograd.anomaly import remember
            remember(node)

    def _keep(self, node: Node, edges: list[Any], args: tuple[Any, ...], results: Any) -> None:
        """`_save` for rows that keep nothing but arguments, shapes and results, and no list of tensors among them."""
        kept: list[Any] = []
        versions = None
        held = False
        for kind, index, users in self.saving:
            value = None
            for user in users:
                if edges[user] is not None:
                    value = args[index] if kind != "result" else results[index] if results.__class__ is tuple else results
                    break
            if isinstance(value, Tensor):
                if kind == "shape":
                    value = value.shape
                elif kind == "result":
                    value, held = SavedOutput(value, index), True
                else:
                    held = True
                    if value._inference:
                        raise RuntimeError(INFERENCE_SAVED)
                    counter = value._counter
                    if counter is not None and counter.value:
                        versions = versions or [0] * len(self.saving)
                        versions[len(kept)] = counter.value
            elif value.__class__ is list:
                value = tuple(value)
            elif value is not None and kind == "argument" and self.wants[index]:
                held = True  # a number in a tensor's place
            kept.append(value)
        node.saved = tuple(kept)
        if versions is not None:
            node.versions = tuple(versions)
        if not held:
            node.release = _nothing_to_free

    @staticmethod
    def _slot(source: tuple[str, int, tuple[int, ...]], args: tuple[Any, ...], results: Any, node: Node) -> Any:
        """The value to keep for one slot, or None if no wanted formula uses it."""
        kind, index, users = source
        if node.spans is None:
            edges = node.next
            for user in users:
                if edges[user] is not None:
                    break
            else:
                return None
        elif not any(_wants(node, user) for user in users):
            return None
        if kind == "argument":
            value = args[index]
            return tuple(value) if value.__class__ is list else value
        if kind == "result":
            return SavedOutput(results[index] if results.__class__ is tuple else results, index)
        if kind == "needs":
            return tuple(e is not None for e in node.next)
        value = args[index]
        if kind == "shape":
            return value.shape if isinstance(value, Tensor) else tuple([t.shape for t in value])
        return value._array.strides if kind == "strides" else value.dtype

    def __repr__(self) -> str:
        return f"<row {self.name}({', '.join(self.args)})>"


def _source(args: tuple[str, ...], slot: str, k: int, formulas: list[Any]) -> tuple[str, int, tuple[int, ...]]:
    """Where a saved value comes from: (kind, argument or output number, the arguments whose formulas use it)."""
    users = tuple(i for i, _, picks in formulas if k in picks)
    if slot in args:
        return "argument", args.index(slot), users
    if slot == "needs":
        return "needs", 0, users
    if slot.startswith("result"):
        return "result", int(slot[6:] or 0), users
    name, _, kind = slot.rpartition("_")
    return kind, args.index(name), users


def _chain_view(row: Row, args: tuple[Any, ...], view: Tensor) -> None:
    """A view of a view that as_strided cannot express: replayed through both."""
    first, rest = args[0]._view_fn, args[1:]
    if view._array.dtype is args[0]._array.dtype:
        size, stride, offset = view.size(), view.stride(), view.storage_offset()
        view._view_fn = lambda base: first(base).as_strided(size, stride, offset)
    else:
        view._view_fn = lambda base: row(first(base), *rest)


def row(name: str, args: str, **options: Any) -> Row:
    return Row(name, args, **options)


def moving(name: str, args: str, **options: Any) -> Row:
    """The row of a kernel that only moves elements or makes new ones of their kind: no values make it fail."""
    return Row(name, args, safe=True, **options)


def along(name: str, args: str, **options: Any) -> Row:
    """The row of a reduction, scan or sort: its kernel works along the dimensions that an argument called dim or axes names."""
    at = next(i for i, a in enumerate(args.split()) if a in ("dim", "axes"))
    return Row(name, args, batch=("along", at), **options)


def _plan(args: tuple[str, ...], backward: dict[str, Callable]):
    """(names to save, [(argument index, formula, picks)]); a pick is "grad", "grads" or the number of a saved slot."""
    slots: list[str] = []
    formulas = []
    for target, formula in backward.items():
        code = formula.__code__
        picks: list[Any] = []
        for name in code.co_varnames[:code.co_argcount]:
            if name in ("grad", "grads"):
                picks.append(name)
                continue
            known = name in args or name == "needs" or name.startswith("result") or (
                name.rpartition("_")[2] in ("shape", "dtype", "strides") and name.rpartition("_")[0] in args)
            if not known:
                raise TypeError(f"derivative of {target}: unknown name {name!r} (arguments: {', '.join(args)})")
            if name not in slots:
                slots.append(name)
            picks.append(slots.index(name))
        formulas.append((args.index(target), formula, tuple(picks)))
    return tuple(slots), formulas


def node_name(name: str) -> str:
    """add -> AddBackward0, log_softmax -> LogSoftmaxBackward0, log1p -> Log1PBackward0."""
    letters = [c.upper() if i == 0 or name[i - 1] in "_0123456789" else c for i, c in enumerate(name)]
    return "".join(letters).replace("_", "") + "Backward0"


def _array(value: Any) -> Any:
    """Kernels may return NumPy scalars for zero-dim results."""
    return value if type(value) in registry.ARRAY_TYPES else _asarray(value)


def _no_kernel(r: Row):
    raise NotImplementedError(f"{r.name} has no CPU kernel named {r.kernel!r}")


def _elsewhere(r: Row, arrays: list[Any]) -> Any:
    if state.mode & _state.BATCHED:
        for a in arrays:
            if type(a) is BatchedArray:
                return registry.batched.call(r.kernel, tuple(arrays))
    flat = []
    for a in arrays:
        if a.__class__ is list:
            flat += [t for t in a if hasattr(t, "dtype")]
        elif hasattr(a, "dtype") and hasattr(a, "strides"):
            flat.append(a)
    return registry.common(flat).call(r.kernel, tuple(arrays))


def _wants(node: Node, arg: int) -> bool:
    """Whether argument number `arg` (or one of the tensors in it) needs a gradient."""
    spans = node.spans
    if spans is None:
        return node.next[arg] is not None
    start = arg + sum(n - 1 for i, n in spans.items() if i < arg)
    return any(e is not None for e in node.next[start:start + spans.get(arg, 1)])


def _connect(node: Node, results: Any, constant: tuple[int, ...]) -> None:
    """Makes several results outputs of the node."""
    node.outputs = [(marked(r._array), r._array.dtype) for r in results]
    for nr, r in enumerate(results):
        if nr not in constant and r._array.dtype.num in GRAD_NUMS:
            r._node = Edge(node, nr)
            if r._base is not None:
                r._seen = r._counter.value


def _save(node: Node, values: list[Any], held: bool) -> None:
    """held: one of them is in a tensor's place, though it may be a number."""
    mode = state.mode
    versions = None
    for i, v in enumerate(values):
        if isinstance(v, Tensor):
            if v._inference:
                raise RuntimeError(INFERENCE_SAVED)
            if v._counter is not None and v._counter.value:
                versions = versions or [0] * len(values)
                versions[i] = v._counter.value
        elif v.__class__ is tuple and v and isinstance(v[0], Tensor):
            values[i] = SavedList(v)
    if mode & _state.SAVED_HOOKS:
        from ...autograd.saved_tensors import pack
        values = [pack(v, node) if isinstance(v, Tensor) or v.__class__ in (SavedOutput, SavedList) else v for v in values]
    node.saved = tuple(values)
    if versions is not None:
        node.versions = tuple(versions)
    if held or any([isinstance(v, Tensor) or v.__class__ in _HELD for v in values]):
        return
    node.release = _nothing_to_free  # shapes and numbers: a second backward pass may use them again, as in PyTorch


def _nothing_to_free(node: Node | None = None) -> None:
    pass


def note_versions(node: Node, held: int) -> None:
    """Notes the versions of saved arguments that may be tensors or not. held: of how many it is known that they are."""
    for i, v in enumerate(node.saved):
        if isinstance(v, Tensor):
            held = True
            if v._inference:
                raise RuntimeError(INFERENCE_SAVED)
            if v._counter is not None and v._counter.value:
                versions = list(node.versions or [0] * len(node.saved))
                versions[i] = v._counter.value
                node.versions = tuple(versions)
        elif type(v) in _WINDOWS:  # a result
            held = True
    if not held:
        node.release = _nothing_to_free


class SavedList:
    """Several tensors saved under one name (the inputs of a list argument)."""

    __slots__ = ("tensors", "versions")

    def __init__(self, tensors: tuple[Any, ...]):
        self.tensors = tensors
        self.versions = [version_of(t) if isinstance(t, Tensor) else 0 for t in tensors]

    def unpack(self, node: Node) -> tuple[Any, ...]:
        for t, version in zip(self.tensors, self.versions):
            if isinstance(t, Tensor) and version_of(t) != version:
                raise modified_error(node, t, t._array, version, version_of(t), t._counter)
        if Packed in map(type, self.tensors):
            from ...autograd.saved_tensors import unpack as unpack_hooked
            return tuple([unpack_hooked(t, node) if t.__class__ is Packed else t for t in self.tensors])
        return self.tensors


_HELD = (SavedOutput, SavedList, Packed)


def unpack(node: Node, i: int) -> Any:
    """The value saved in slot i, checked against its version."""
    v = node.saved[i]
    if isinstance(v, Tensor):
        counter = v._counter
        if counter is not None:
            expected = node.versions[i] if node.versions is not None else 0
            if counter.value != expected:
                raise modified_error(node, v, v._array, expected, counter.value, counter)
        return v
    kind = v.__class__
    if kind is SavedOutput:
        return unpack_output(node, v)
    if kind is SavedList:
        return v.unpack(node)
    if kind in registry.ARRAY_TYPES and node.row.slots[i] == "result":
        return bare_output(node, v) if node.holder is None else unpack_output(node, saved_result(node, i))
    if kind is Packed:
        from ...autograd.saved_tensors import unpack as unpack_hooked
        return unpack_hooked(v, node)
    return v


def unpack_output(node: Node, v: SavedOutput) -> Tensor:
    """A result that was saved by its own node, as a tensor that continues the graph."""
    if v.counter.value != v.version:
        holder = wrap(v.array)
        holder._node = node if node.outputs is None else Edge(node, v.nr)
        raise modified_error(node, holder, v.array, v.version, v.counter.value, v.counter)
    tensor = wrap(v.array)
    tensor._counter = v.counter
    if node.holder is not None:
        return tensor if state.mode & NO_RECORD else node.holder.saved_output(tensor)
    if node.outputs is None:
        tensor._node = node
    elif v.array.dtype.num in GRAD_NUMS and v.nr not in node.row.constant:
        tensor._node = Edge(node, v.nr)
    return tensor


def bare_output(node: Node, array: Any) -> Tensor:
    """A result that was saved without a counter, since nobody has viewed or changed it so far."""
    tensor = _new(Tensor)
    tensor._array, tensor._node, tensor._counter = array, node, None
    return tensor


def _quick(r: Row) -> Callable:
    """`Node.quick` for a row of one or two arguments with `direct` kernels: the hot path of a plain backward pass.

    direct: per argument a kernel of (gradient, saved value) that does what the formula does, for real arrays of one
    dtype; "" passes the gradient on. It saves wrapping, dispatching and recording: half the time of a small node.
    """
    takes = {index: (formula, picks[1:]) for index, formula, picks in r.formulas}
    frees = bool(r.slots)

    def one(index: int) -> Callable:
        formula, picks = takes[index]
        name = r.direct[r.args[index]]
        if not name:
            return lambda node, saved, grad: grad
        if not picks:
            return lambda node, saved, grad: formula(grad)
        kernel, slot = KERNELS[name], picks[0]

        def step(node, saved, grad):
            value = saved[slot]
            kind = value.__class__
            g = grad._array
            if kind is ndarray:
                y = value
                if y.dtype is not g.dtype or not 1 < g.size < LARGE or g.dtype.char not in "fd":
                    return formula(grad, unpack(node, slot))
            elif kind is float or kind is int:
                if not 1 < g.size < LARGE or g.dtype.char not in "fd":
                    return formula(grad, value)
                y = constant(value, g.dtype)
            else:
                if kind is not Tensor or value._counter is not None:
                    value = unpack(node, slot)  # compares versions
                    if not isinstance(value, Tensor):
                        return formula(grad, value)
                y = value._array
                if y.dtype is not g.dtype or not 1 < g.size < LARGE or g.dtype.char not in "fd" or type(y) is not ndarray:
                    return formula(grad, value)
            if grad.__class__ is not Tensor:
                return formula(grad, unpack(node, slot))
            t = _new(Tensor)
            t._array = kernel(g, y)
            t._node = t._counter = None
            return t

        return step

    if len(r.args) == 1:
        only = one(0)

        def quick(self, grad, keep):
            saved = self.saved
            if saved is None:
                raise freed_error(self)
            made = only(self, saved, grad)
            if not keep and frees:
                self.saved = None
            return (made,)

        return quick
    if not any(r.direct.values()):
        return lambda self, grad, keep: (grad, grad)
    first, second = one(0), one(1)

    def quick(self, grad, keep):
        saved = self.saved
        if saved is None:
            raise freed_error(self)
        a, b = self.next
        made = None if a is None else first(self, saved, grad), None if b is None else second(self, saved, grad)
        if not keep and frees:
            self.saved = None
        return made

    return quick


_constants: dict[Any, Any] = {}


def constant(value: Any, native: Any) -> Any:
    """A Python number as an array without dimensions: NumPy takes twice as long over the number itself."""
    known = _constants.get((value, native))
    if known is None or not value:  # 0.0 and -0.0 are equal as keys
        known = _asarray(value, native)
        if value:
            if len(_constants) > 4096:
                _constants.clear()
            _constants[value, native] = known
    return known


generate.knows(note_versions=note_versions, nothing_to_free=_nothing_to_free, unpack=unpack, constant=constant,
               constants=_constants)


class RowNode(Node):
    """A node whose backward is its row's formulas."""

    row: Row
    spans: dict[int, int] | None = None

    def apply(self, grads: Any) -> Any:
        """The row's formulas. A class that has no better way takes them over when its first node is asked."""
        made = self.row.formulas_applied
        cls = next(c for c in type(self).__mro__ if "row" in c.__dict__)
        if "apply" not in cls.__dict__:
            cls.apply = made
        return made(self, grads)

    def apply_lists(self, grads: Any) -> Any:
        """`apply` where an argument was a list of tensors, each with an edge of its own."""
        spans, results, made = self.spans, [], {}
        values = [unpack(self, i) for i in range(len(self.saved))]
        grad = grads if self.outputs is None else grads[0]
        for index, formula, picks in self.row.formulas:
            if _wants(self, index):
                made[index] = formula(*[values[p] if p.__class__ is int else grad if p == "grad" else grads
                                        for p in picks])
        for index in range(len(self.row.args)):
            count = spans.get(index)
            if count is None:
                results.append(made.get(index))
            else:
                results.extend(made[index] if index in made else [None] * count)
        return [r if e is not None else None for r, e in zip(results, self.next)]

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """As in PyTorch only the arguments that can have a gradient count."""
        pairs, at = [], 0
        for index, name in enumerate(self.row.args):
            count = 1 if self.spans is None else self.spans.get(index, 1)
            if name in self.row.backward:
                pairs += [(e.node, e.nr) if e.__class__ is Edge else (e, 0) for e in self.next[at:at + count]]
            at += count
        return tuple(pairs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_saved_"):
            return self._slot_value(name[7:])
        if name.startswith("_raw_saved_"):
            from ...autograd.saved_tensors import SavedTensor
            return SavedTensor(self, self._slot_number(name[11:], name))
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def _slot_number(self, slot: str, asked: str) -> int:
        slot = {"sizes": "shape"}.get(slot, slot)
        output = {"values": "result0", "indices": "result1", "min": "result0", "max": "result1"}.get(slot, slot)
        for candidate in (slot, slot.replace("_sym_sizes", "_shape"), slot.replace("_sizes", "_shape"), output):
            if candidate in self.row.slots:
                return self.row.slots.index(candidate)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{asked}'")

    def _slot_value(self, slot: str) -> Any:
        if slot in ("scales_d", "scales_h", "scales_w") and "scales" in self.row.slots:
            scales = self._slot_value("scales")  # resizing keeps one tuple for all dimensions
            return scales[("w", "h", "d").index(slot[-1]) * -1 - 1] if scales else None
        if slot == "self_sym_numel" and "self_shape" in self.row.slots:
            return math.prod(self._slot_value("self_shape"))
        number = self._slot_number(slot, f"_saved_{slot}")
        if self.saved is None:
            raise freed_error(self)
        if type(self.saved[number]) in registry.ARRAY_TYPES and self.row.slots[number] == "result":
            saved_result(self, number)  # what the user gets shares the version counter of the result
        return unpack(self, number)

    def __dir__(self):
        return [*object.__dir__(self), *(f"_saved_{s}" for s in self.row.slots)]


__all__ = ["Row", "row", "public", "export", "export_inplace", "make_inplace", "store", "alias_of", "Parameter", "FLOAT32"]
