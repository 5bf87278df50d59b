"""One row per operation: its arguments, kernel, derivative and, for pointwise work, its C expression.

A `Row` is the primitive: called with tensors and plain values in order, it runs the kernel of the tensors' backend and
records a node. The names of a derivative's arguments say what is kept for the backward pass:

    row("mv", "self vec", backward=dict(self=lambda grad, vec: grad.outer(vec.conj()), ...))

`grad` (`grads` where there are several outputs) is what came in; the name of an argument saves that argument, `x_shape`,
`x_dtype` and `x_strides` (in bytes) only that much of it; `result` (`result0`, `result1`...) saves an output.
Formulas are written with tensor operations, so higher derivatives follow by themselves; the engine sums over broadcast
dimensions and casts.

A formula may also be the text of a call, "tanh_backward(grad, result)". `fused` says how gradients are made where nobody
records the backward pass, for one argument or several at once:

    fused={"input weight bias": "layer_norm_grad(grad, input, len(normalized_shape), result1, result2, weight, needs)"}

is the call of a kernel on arrays (`needs`: which of them are wanted), one of a pointwise operation is made on tensors, and a
function on tensors may return None to leave it to the formulas. Marks behind an argument's name: `?` a tensor or nothing, `!` a
tensor that has no gradient, `*` a list of tensors; without a mark, what has a formula is a tensor.

`public` (exports.py, whose names are all here too) turns a Python function over tensors into `flambeau.name`,
`Tensor.name`, `Tensor.name_` and `out=`.
"""

from __future__ import annotations

import functools
import keyword
import math
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ...autograd import state as _state
from ...autograd.errors import freed_error, modified_error
from ...autograd.node import (
    FLOAT32,
    INFERENCE_SAVED,
    Edge,
    Node,
    Packed,
    SavedOutput,
    saved_result,
    version_of,
)
from ...autograd.state import state
from ...autograd.views import MULTI_OUTPUT, edge_of, mark_view
from ...backends import registry
from ...backends.batched.arrays import BatchedArray, marked
from ...backends.cpu.parallel import LARGE  # noqa: F401  (as above)
from ...backends.cpu.table import KERNELS
from ...backends.facts import enter as enter_facts
from ...tensors.dtypes import GRAD_NUMS, complex32
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
    check_dtype,
    check_on_cpu,
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
from .generate_backward import backward

_new = object.__new__
ndarray = registry.CPU_ARRAY
_asarray = registry.cpu.asarray
_EAGER = registry.EAGER
_WINDOWS, _FOLLOWABLE, CPU_ONLY = registry.WINDOWS, registry.FOLLOWABLE, frozenset((registry.CPU_ARRAY,))
ROWS: dict[str, Row] = {}
COMPLEX32 = complex32.native


class Row:
    """A primitive operation (see the module's text)."""

    single = False  # whether there is one result for sure

    def __init__(self, name: str, args: str, *, kernel: str | None = None, backward: dict[str, Callable] | None = None,
                 forward: Callable | str | None = None, node: str | None = None, view: bool = False, c: str | None = None,
                 constant: tuple[int, ...] = (), fused: dict[str, Callable | str] | None = None, takes: str | None = None,
                 moves: bool = False, **facts: Any):
        self.name = name
        self.takes = takes          # the kinds of dtype that its first tensor may have (see `check_dtype`); None: any but
        self.moves = moves or view  # complex32, which those take that only move elements
        self.args = tuple([a.rstrip("?*!") for a in args.split()])
        marks = [a[len(name):] for a, name in zip(args.split(), self.args)]
        self.lists = frozenset([i for i, mark in enumerate(marks) if mark == "*"])  # of tensors
        self.kernel = kernel or name
        self.view = view
        if view:
            facts["view"] = True
        if facts:                   # shape, batch, writes, safe...: whatever arrays the kernel runs on (backends/facts.py)
            enter_facts(self.kernel, self.args, facts)
        self.c = c
        self.forward = forward      # jvp rule, or "linear" (autograd/forward_mode.py)
        self.constant = constant    # outputs that carry no gradient
        self.backward = backward or {}
        self.slots, self.formulas, self.fused = _plan(self.args, self.backward, fused or {})
        self.wants = tuple(a in self.backward for a in self.args)
        self.saves_outputs = any(slot.startswith("result") for slot in self.slots)
        self.targets = tuple([i for i, wanted in enumerate(self.wants) if wanted])
        self.sure = tuple([i for i, mark in enumerate(marks) if mark == "!" or (self.wants[i] and not mark)])  # tensors
        self.saving = [_source(self, slot, k) for k, slot in enumerate(self.slots)]
        self.node = self._node_class(node or node_name(name)) if backward else None
        self.cpu = KERNELS.get(self.kernel)
        ROWS[name] = self

    def _node_class(self, name: str) -> type:
        members: dict[str, Any] = {"row": self, "__module__": __name__}
        given = self.args[1:] if self.view else ()  # of a view: dimensions and sizes
        if all(s in given or (s.rpartition("_")[2] in ("shape", "dtype", "strides") and s not in self.args)
               for s in self.slots):
            members["release"] = nothing_to_free
        return type(name, (RowNode,), members)

    def __call__(self, *args: Any) -> Any:
        if self.takes is not None:
            check_dtype(self.name, args[0].dtype, self.takes)
        arrays, kinds, lists = [], set(), False
        for a in args:
            if isinstance(a, Tensor):
                a = a._array
                kinds.add(type(a))
                if a.dtype is COMPLEX32:
                    self.check_half()
            elif a.__class__ in _SEQUENCES and a and a[0].__class__ is not int and any(isinstance(t, Tensor) for t in a):
                a = [t._array if isinstance(t, Tensor) else t for t in a]
                kinds.update([type(t) for t in a if t is not None])
                lists = True
                if any([t is not None and t.dtype is COMPLEX32 for t in a]):
                    self.check_half()
            arrays.append(a)
        mode = state.mode
        follows = registry.following is not None and mode & _state.FOLLOW
        if follows and kinds <= _FOLLOWABLE and kinds:
            made = state.follower.call(self.kernel, tuple(arrays))
        elif follows or kinds - CPU_ONLY:
            quick = _EAGER.get(kinds.pop()) if len(kinds) == 1 and not self.view else None
            made = _elsewhere(self, arrays) if quick is None else quick(self.kernel, *arrays)
        else:
            if self.cpu is None:
                self.cpu = KERNELS.get(self.kernel) or _no_kernel(self)
            made = self.cpu(*arrays)
        mode &= ~_state.FOLLOW
        if lists or mode > 1 or type(made) not in _WINDOWS or len(args) != len(self.args) or self.view or (
                made.dtype.num not in GRAD_NUMS or not all([isinstance(args[i], Tensor) for i in self.sure])):
            return self.finish(args, made)
        return self.tensor(mode, made, *args)

    def check_half(self) -> None:
        """Few kernels serve complex32, as in PyTorch: those that move elements, and whose row says so."""
        if not self.moves and "h" not in (self.takes or ""):
            raise NotImplementedError(f"\"{self.name}_cpu\" not implemented for 'ComplexHalf': convert to complex64 first "
                                      "(cfloat())")

    def finish(self, args: tuple[Any, ...], made: Any) -> Any:
        """Wraps what a kernel made, ties views to their base and records the node."""
        if made.__class__ is tuple or made.__class__ is list:
            results = tuple([wrap(m if type(m) in _WINDOWS else _array(m)) for m in made])
            if self.view:
                for r in results:
                    mark_view(r, args[0], MULTI_OUTPUT)
                    if args[0]._view_fn is not None:
                        _chain_view(self, args, r)
        else:
            results = wrap(made if type(made) in _WINDOWS else _array(made))
            if self.view:
                mark_view(results, args[0])
                if args[0]._view_fn is not None:
                    _chain_view(self, args, results)
        mode = state.mode
        if not mode & NO_RECORD and self.node is not None:
            self.record(results, *args)
        if mode & (_state.FORWARD_AD | _state.ANOMALY):
            self.further(args, results, mode)
        return results

    def further(self, args: tuple[Any, ...], results: Any, mode: int) -> None:
        """What the rarer modes add to a call: forward-mode derivatives, notes for anomaly detection."""
        if mode & _state.FORWARD_AD:
            from ...autograd.forward_mode import propagate
            propagate(self, args, results)
        if mode & _state.ANOMALY:
            from ...autograd.anomaly import watch
            watch(self, args, results if results.__class__ is tuple else (results,), mode)

    def named(self, picks: tuple[Any, ...]) -> list[str]:
        return [p if p.__class__ is str else self.slots[p] for p in picks]

    def __getattr__(self, name: str) -> Any:
        """The code that is made from the row when it is first needed (see _MADE)."""
        if name not in _MADE:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        made = self.__dict__[name] = _MADE[name](self)
        return made

    def __repr__(self) -> str:
        return f"<row {self.name}({', '.join(self.args)})>"


def _source(r: Row, slot: str, k: int) -> tuple[str, int, tuple[int, ...]]:
    """Where a saved value comes from: (kind, argument or output number, the arguments whose gradients use it)."""
    args = r.args
    users = tuple(sorted({*[i for i, _, picks in r.formulas if k in picks],
                          *[i for targets, fused, names in r.fused if slot in names[:len(names) - _missing(fused)]
                            for i in targets]}))
    if slot in args:
        return "argument", args.index(slot), users
    if slot == "needs":
        return "needs", 0, users
    if slot.startswith("result"):
        return "result", int(slot[6:] or 0), users
    name, _, kind = slot.rpartition("_")
    return kind, args.index(name), users


_MADE: dict[str, Callable] = {
    "tensor": generate.tensor,                              # what `finish` does for one array, in mode 0 or 1
    "first": functools.partial(generate.tensor, attach="first"),  # likewise for several arrays, of which only one is shown
    "tensors": generate.tensors,                            # likewise, all of them shown
    "record": generate.record,                              # gives results their node
    "apply": backward}                             # Node.apply


def _missing(fused: Any) -> int:
    """How many of the last arguments a fused derivative can do without."""
    return len(getattr(fused, "__defaults__", None) or ())


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
    return Row(name, args, safe=True, moves=True, **options)


def along(name: str, args: str, **options: Any) -> Row:
    """The row of a reduction, scan or sort: its kernel works along the dimensions that an argument called dim or axes names."""
    at = next(i for i, a in enumerate(args.split()) if a in ("dim", "axes"))
    return Row(name, args, batch=("along", at), **options)


def _plan(args: tuple[str, ...], backward: dict[str, Callable | str], fused: dict[str, Callable | str]) -> tuple[Any, Any, Any]:
    """(names to save, [(argument index, formula, picks)], [(argument indices, fused formula, names)]).

    A pick is "grad", "grads" or the number of a saved slot.
    """
    slots: list[str] = []

    def names_of(target: str, formula: Any) -> tuple[str, ...]:
        code = formula.__code__
        names = code.co_varnames[:code.co_argcount]
        for name in names:
            known = name in args or name in ("grad", "grads", "needs") or name.startswith("result") or (
                name.rpartition("_")[2] in ("shape", "dtype", "strides", "edge") and name.rpartition("_")[0] in args)
            if not known:
                raise TypeError(f"derivative of {target}: unknown name {name!r} (arguments: {', '.join(args)})")
        return names

    formulas, together = [], []
    for target, formula in backward.items():
        formula = Formula(formula) if formula.__class__ is str else formula
        names = names_of(target, formula)
        given = [n for n in names if n in ("grad", "grads") or n.endswith("_edge")]
        slots += [n for n in names if n not in slots and n not in given]
        picks = tuple([n if n in given else slots.index(n) for n in names])
        formulas.append((args.index(target), formula, picks))
    for targets, formula in fused.items():
        formula = Formula(formula) if formula.__class__ is str else formula
        names = names_of(targets, formula)
        slots += [n for n in names if n not in slots and n not in ("grad", "grads", "needs")]
        together.append((tuple([args.index(t) for t in targets.split()]), formula, names))
    return tuple(slots), formulas, together


class Formula:
    """A derivative given as the text of a call, "tanh_backward(grad, result)": of a pointwise operation, or of a kernel."""

    def __init__(self, text: str):
        self.text = text
        names = tuple(dict.fromkeys(n for n in _NAME.findall(text) if not keyword.iskeyword(n)))
        self.__code__ = SimpleNamespace(co_varnames=names, co_argcount=len(names))

    def is_operation(self) -> bool:
        """Whether it is to be called with tensors; a kernel takes arrays."""
        return hasattr(ROWS.get(self.text.partition("(")[0]), "op")

    def operations(self) -> dict[str, Callable]:
        return {name: ROWS[name].op for name in _CALLED.findall(self.text) if name in ROWS}

    def __call__(self, *values: Any) -> Any:
        """As other formulas are called: by forward mode, and for lists of tensors."""
        return eval(self.text, self.operations(), dict(zip(self.__code__.co_varnames, values)))


def taking(names: str, function: Callable) -> Callable:
    """The function as a formula whose arguments have these names."""
    made, given = functools.partial(function), tuple(names.split())
    made.__code__ = SimpleNamespace(co_varnames=given, co_argcount=len(given))
    return made


_NAME, _CALLED = re.compile(r"(?<![\w.])[a-z_]\w*+(?!\()"), re.compile(r"(?<![\w.])[a-z_]\w*(?=\()")


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


def attach(node: Node, results: Any) -> None:
    """Makes the results, one tensor or several, outputs of a node."""
    if results.__class__ is Tensor:
        array = results._array
        node.shape = array.shape if type(array) in _WINDOWS else marked(array)
        node.dtype = array.dtype
        if array.dtype.num in GRAD_NUMS:
            results._node = node
            if results._base is not None:
                results._seen = results._counter.value
    else:
        node.outputs = [(marked(r._array), r._array.dtype) for r in results]
        for nr, r in enumerate(results):
            if nr not in node.row.constant and r._array.dtype.num in GRAD_NUMS:
                r._node = Edge(node, nr)
                if r._base is not None:
                    r._seen = r._counter.value
    if state.mode & _state.ANOMALY:
        from ...autograd.anomaly import remember
        remember(node)


def edges_of(tensors: Any) -> list[Any] | None:
    """Where the gradients of a list of tensors go; None if none of them has a history."""
    edges = [t._node if t._counter is None or t._base is None else edge_of(t) for t in tensors]
    return edges if edges.count(None) < len(edges) else None


def nothing_to_free(node: Node | None = None) -> None:
    pass


def look_over(node: Node, held: bool) -> None:
    """Notes the versions of saved arguments of which it was not known whether they are tensors, and packs them if hooks ask.

    held: something is kept that has to be freed. Shapes and numbers need not: as in PyTorch a second backward pass may use them
    again, except for a number in a tensor's place.
    """
    row, values, versions = node.row, list(node.saved), None
    for i, (v, (kind, index, _)) in enumerate(zip(values, row.saving)):
        if isinstance(v, Tensor):
            held = True
            if v._inference:
                raise RuntimeError(INFERENCE_SAVED)
            if v._counter is not None and v._counter.value:
                versions = versions or list(node.versions or [0] * len(values))
                versions[i] = v._counter.value
        elif kind == "argument" and v.__class__ in _SEQUENCES and v:
            held_list = any([isinstance(t, Tensor) for t in v])
            values[i] = SavedList(tuple(v)) if held_list else tuple(v)
            held |= held_list
        elif kind == "result" or (kind == "argument" and row.wants[index]):
            held |= v is not None
    if state.mode & _state.SAVED_HOOKS:
        from ...autograd.saved_tensors import pack
        values = [pack(v, node) if isinstance(v, Tensor) or v.__class__ in (SavedOutput, SavedList) else v for v in values]
    node.saved = tuple(values)
    if versions is not None:
        node.versions = tuple(versions)
    if not held:
        node.release = nothing_to_free


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


def run(kernel: str, args: tuple[Any, ...]) -> Any:
    """What a kernel makes of arrays, and numbers, where nobody records."""
    mode = state.mode
    if mode == _state.NO_GRAD and all([type(a) is ndarray or a.__class__ in generate.PLAIN for a in args]):
        return KERNELS[kernel](*args)
    if mode == _state.FOLLOW | _state.NO_GRAD and all([type(a) in _FOLLOWABLE or a.__class__ in generate.PLAIN for a in args]):
        return state.follower.call(kernel, args)
    if mode & _state.PROFILE:
        return state.profiler.kernel(kernel, args, _run_anywhere)
    return _run_anywhere(kernel, args)


def _run_anywhere(kernel: str, args: tuple[Any, ...]) -> Any:
    if type(args[0]) in _EAGER and all([type(a) is type(args[0]) or a.__class__ in generate.PLAIN for a in args]):
        return _EAGER[type(args[0])](kernel, *args)
    return registry.common([a for a in args if hasattr(a, "strides")]).call(kernel, args)


def wrapped(made: Any) -> Tensor | None:
    """An array that a kernel made as a tensor without history; None if it made none."""
    return None if made is None else wrap(made if type(made) in _WINDOWS else _array(made))


generate.knows(attach=attach, constant=constant, constants=_constants, edges_of=edges_of,
               look_over=look_over, nothing_to_free=nothing_to_free, run=run, unpack=unpack, wrapped=wrapped)


class RowNode(Node):
    """A node whose backward is its row's formulas."""

    row: Row

    def apply(self, grads: Any) -> Any:
        """The row's formulas, which the class takes over when its first node is asked."""
        made = self.row.apply
        type(self).apply = made
        return made(self, grads)

    def _shown(self) -> list[int]:
        shown, at = [], 0
        for index in range(len(self.row.args)):
            count = len(self.next) - len(self.row.args) + 1 if index in self.row.lists else 1
            if self.row.wants[index]:
                shown += range(at, at + count)
            at += count
        return shown

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_saved_"):
            return self._slot_value(name[7:])
        if name.startswith("_raw_saved_"):
            from ...autograd.saved_tensors import SavedTensor
            return SavedTensor(self, self._slot_number(name[11:], name))
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def _slot_number(self, slot: str, wanted: str) -> int:
        slot = {"sizes": "shape"}.get(slot, slot)
        output = {"values": "result0", "indices": "result1", "min": "result0", "max": "result1"}.get(slot, slot)
        for candidate in (slot, slot.replace("_sym_sizes", "_shape"), slot.replace("_sizes", "_shape"), output):
            if candidate in self.row.slots:
                return self.row.slots.index(candidate)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{wanted}'")

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
