"""Capture: a function runs once, and every kernel call is written down while it really happens.

For that time every array that is read from a tensor is of the type `Traced`: the same memory, seen through a subclass of
NumPy's array. (Something stands in front of `Tensor._array` meanwhile, which exchanges a tensor's array when the capturing
thread first asks for it (slot.py). So the work does not depend on how many tensors there are, and other threads see nothing of
it.) Operations send arrays of another type to that type's backend (backends/registry.py), which here is backend.py: it runs the
CPU kernel and notes the call. Windows onto memory (views) are recognised by their addresses, so nothing has to be noted for
them. A NumPy function that reaches a Traced array by another way, or a look at a value, ends the capture.
"""

from __future__ import annotations

import bisect
import linecache
import weakref
from typing import Any

import numpy as np
from numpy import ndarray

from ...amp.autocast_mode import _settings as autocast
from ...autograd.frames import user_frame
from ...autograd.node import hooked, next_sequence, version_of
from ...autograd.state import CAPTURE, state
from ...backends import registry
from ...backends.cpu import backend as cpu
from ...backends.cpu.arrays import Storage as Memory
from ...backends.cpu.arrays import strides as element_strides
from ...backends.facts import DYNAMIC
from ...backends.pending import PendingArray
from ...creation.random import device_generators
from ...native import pointer
from ...tensors.tensor import Tensor
from ..ir.parts import CONSTANT, INPUT, TEMPORARY, Number, Op, Storage, Value, values_in
from ..run import pages
from . import slot
from .kernel_calls import _CHECKED, _by_value, _checked, _has_number, _is_view, changed_by
from .memory import _dead, _unseen, bytes_of, span
from .symbolic import SymFloat, extreme, loads
from .traced import PLAIN, TRACED, active, scalar, stripped, traced
from .trees import comparable, flatten

_get, _set = slot.SLOT.__get__, slot.SLOT.__set__  # where a tensor keeps its array


class Uncapturable(RuntimeError):
    """With fullgraph=True: the function does something that a program of kernel calls cannot repeat."""


def refuse(reason: str, where: tuple[str, int] | None) -> None:
    """Raises for what divides a function that is to be one program: a way of the Python that depends on a tensor's value. (An
    `assert` does not choose between ways.)"""
    if where is None or not linecache.getline(*where).lstrip().startswith("assert "):
        raise Uncapturable(f"compile(fullgraph=True): {reason}" + (f" ({where[0]}, line {where[1]})" if where else ""))


class Refused(BaseException):
    """What is tried beforehand (control.py) does something that must not happen in a mere trial."""

    times = 0  # also those that a function has caught itself

    def __init__(self, reason: str):
        super().__init__(reason)
        Refused.times += 1


class Recorder:
    """What one capture has seen so far."""

    def __init__(self, strict: bool = False) -> None:
        self.ops: list[Op] = []
        self.storages: list[Storage] = []
        self._starts: list[int] = []              # addresses of the storages that have bytes, sorted
        self._by_start: list[Storage] = []
        self.used: set[int] = set()               # storages that an operation refers to
        self._large: list[Storage] = []           # temporaries whose pages can be given back when they die
        self._since = 0                           # bytes of them since that was last tried
        self.numbers: list[Any] = []              # how a call reads its n-th number: (container, key, index)
        self._number_of: dict[Any, int] = {}
        self.number_values: list[float] = []      # what was read during capture
        self.asked: set[int] = set()              # those of them that Python has looked at: they are floats, and stay so
        self.counts: list[tuple[Any, Any]] = []   # Python numbers that go up by one at each call
        self.number_guards: list[tuple[Any, bool]] = []
        self.transient: str | None = None         # why this run is not like the following ones
        self.cleared: dict[int, Any] = {}         # leaves whose gradient was dropped before it was looked at
        self.grad_found: dict[int, Any] = {}      # leaves whose gradient was looked at first
        self.leaves: dict[int, Any] = {}          # leaves whose gradient may have changed
        self.optimizers: list[Any] = []
        self.failed: tuple[str, Any] | None = None  # why the capture was given up, and the user's line
        self.strict = strict
        self.mode = state.mode
        self.first_sequence = 0                   # nodes with a smaller number were there before
        self.swapped: list[Any] = []              # (tensor, its array, the Traced one that it has meanwhile)
        self.assigned: list[Any] = []             # weak references to tensors that were given a Traced array
        self.abroad: set[int] = set()             # tensors that other threads made meanwhile
        self.versions: list[Any] = []             # (tensor that was there before, its version and node then)
        self.inner: list[Any] = []                # (tensor, the one whose memory it lies inside of)
        self.placed: dict[int, Storage] = {}      # inputs of which it matters where in their storage they begin
        self.born: list[Any] = []                 # tensors that the call made
        self.replaced: list[Any] = []             # tensors that it gave other memory
        self.joint: Any = None                    # the backward pass of the results, where they are still part of a graph
        self.invoked: Any = None                  # the function and its arguments
        self.given: Any = None                    # what these are, taken apart
        self.casts: Any = None                    # what autocast around the call has cast so far
        self.device = False                       # whether memory of a CUDA device was met
        self.trial: int | None = None             # of a function that is only tried: the number of the first storage of its own
        self.pinned: set[int] = set()             # storages that must not change for the rest of it, nor be its result
        self.reached: set[Any] = set()            # nodes of backward passes that freed their graph

    def fail(self, reason: str, refused: bool = False) -> None:
        self._no_trial(reason)
        frame = user_frame()
        where = None if frame is None else (frame.f_code.co_filename, frame.f_lineno)
        self.failed = reason, where
        state.recorder = None
        if refused and self.strict:
            refuse(reason, where)

    # --------------------------------------------------------------------------------- what the rest of flambeau says
    def _no_trial(self, reason: str) -> None:
        if self.trial is not None:
            raise Refused(reason)

    def look(self, array: Any, reason: str, writing: bool = False, refused: bool = False) -> None:
        """Somebody reads an array's elements, or may write to them: only those of a constant are the same at each call."""
        if writing or array.__class__ not in PLAIN:
            self.fail(reason, refused)
        elif array.size:
            storage = self.value(array).storage
            if storage.kind is not CONSTANT or not _unseen(storage):
                self.fail(reason, refused)

    def place_asked(self, array: Any) -> None:
        """Somebody asks where in its storage an array begins: that of an argument may begin elsewhere at the next call."""
        storage = self.known(array) if array.size else None
        if storage is not None and storage.kind is INPUT:
            self.placed[storage.id] = storage

    def picked(self, row: Any, tensor: Any, position: Any) -> Any:
        """tensor[position], of which the program knows the position: a copy in place of a window, as long as neither changes.
        None outside of a trial, in which nobody but the trial can change them."""
        if self.trial is None or not tensor._array.ndim:
            return None
        made = row(tensor, [position])
        self.pinned |= {self.value(t._array).storage.id for t in (tensor, made) if t._array.size}
        return made

    def backward_starts(self, nodes: Any, keep_graph: bool) -> None:
        """A backward pass is about to run through these nodes."""
        if state.witness is not None and any(n.hooks is not None and hooked(n) for n in nodes):
            state.witness.fail("a hook runs in the backward pass")
        if not self.joint and any(not n.is_leaf_node and n.sequence < self.first_sequence for n in nodes):
            self.fail("a backward pass goes through operations that were recorded outside of the compiled function")
        elif not keep_graph:
            self.reached.update(nodes)

    def loaded(self, tensor: Any) -> Any:
        """The number in a zero-dim tensor; a captured program reads it at each run, where it is used."""
        if tensor._array.dtype.char not in "fdlqi" or tensor.is_cuda or tensor.is_neg():
            return tensor.item()
        value = self.value(tensor._array)
        number = stripped(tensor._array).item()
        return number if value.storage.kind is CONSTANT else SymFloat(number, ("load", value))

    def counted(self, states: dict[str, Any], key: str) -> Any:
        """A count kept as a Python number: read by each call, and one more after it."""
        self._no_trial("a count is kept")
        before = states[key]
        states[key] = before + 1
        self.counts.append((states, key))
        return self.number(states, key, None, float(before)) + 1

    def extreme(self, which: str, a: Any, b: Any) -> Any:
        """max or min of two numbers, without a branch on them."""
        return extreme(which, a, b)

    def optimizer_step(self, optimizer: Any, step: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A step of an optimizer: its hyper-parameters are numbers that each call reads."""
        from .optimizers import captured_step
        self._no_trial("an optimizer makes a step")
        return captured_step(optimizer, step, args, kwargs)

    # ------------------------------------------------------------------------------------------------- memory
    def _enter(self, storage: Storage) -> Storage:
        self.storages.append(storage)
        if storage.nbytes:
            at = bisect.bisect_right(self._starts, storage.start)
            self._starts.insert(at, storage.start)
            self._by_start.insert(at, storage)
        return storage

    def new_storage(self, kind: str, array: ndarray) -> Storage:
        bare = stripped(array)
        device = bare.__class__ is not ndarray
        memory = registry.backend_of(bare).Storage(bare) if device else Memory(array)
        start, nbytes = memory.address, memory.nbytes
        at = pointer(array) or 0
        if not array.size:  # says nothing about the memory that it is an empty window onto
            start, nbytes = at, 0
        elif not start <= at <= start + nbytes:
            start, nbytes = at, array.nbytes
        at = bisect.bisect_left(self._starts, start + nbytes) - 1
        if not device and nbytes and at >= 0 and self._by_start[at].start + self._by_start[at].nbytes > start:
            self.fail("a view reaches beyond the tensor that it is made of")
        made = self._enter(Storage(len(self.storages), kind, start, nbytes, (array, memory.owner)))
        made.device = device
        self.device |= device
        if device and kind is TEMPORARY and nbytes:  # its memory is used again as in the plain call: there is not much of it
            made.hold, made.alive = None, weakref.ref(memory.owner)
        if kind is TEMPORARY and nbytes >= _LARGE and not device:
            self._since += nbytes
            if self._since > _SWEPT:
                self._give_back()
            self._large.append(made)
        return made

    def _give_back(self) -> None:
        """Returns the pages of dead temporaries to the system. Their addresses stay taken, as they tell storages apart."""
        self._since, large, self._large = 0, self._large, []
        for storage in large:
            if _dead(storage):
                pages.give_back(storage.start, storage.nbytes)
            else:
                self._large.append(storage)

    def known(self, array: ndarray) -> Storage | None:
        address = pointer(array) or 0
        at = bisect.bisect_right(self._starts, address) - 1
        if at >= 0:
            storage = self._by_start[at]
            if storage.alive is not None and storage.alive() is None:  # another one may lie there by now
                del self._starts[at], self._by_start[at]
                return self.known(array)
            if address < storage.start + storage.nbytes:
                return storage
        return None

    def value(self, array: ndarray) -> Value:
        """The window that an array is; unknown memory is a constant (that of tensors was claimed when they were met)."""
        storage = self.known(array) if array.size else None
        if storage is None:
            if array.__class__ in PLAIN and array.size:
                self.fail("a tensor's memory belongs to no tensor that was there before")
            storage = self.new_storage(CONSTANT, array)
        elif storage.kind is INPUT:
            start, end = span(array)
            if start < storage.start or end > storage.start + storage.nbytes:
                self.fail("a view reaches beyond the tensor that it is made of")
        return Value(storage, (pointer(array) or 0) - storage.start if array.size else 0, array.shape, element_strides(array),
                     array.dtype)

    def value_of(self, tensor: Any) -> Value:
        """The window of a tensor after the capture."""
        return self.value(tensor._array)

    def adopt(self, array: ndarray) -> ndarray:
        """A plain array that just became a tensor: a constant, unless its memory is known."""
        if array.size and self.known(array) is None:
            self.new_storage(CONSTANT, array)
        return traced(array)

    # -------------------------------------------------------------------------------------------------- calls
    def arguments(self, args: Any) -> list[Any]:
        made = []
        for a in args:
            if isinstance(a, ndarray):
                made.append(self.value(a))
            elif a.__class__ is SymFloat:
                made.append(Number(a.expression))
            elif a.__class__ in (list, tuple):
                made.append(a.__class__(self.arguments(a)))
            else:
                made.append(a)
        return made

    def call(self, name: str, args: tuple[Any, ...], backend: Any = cpu) -> Any:
        """Runs a kernel of a backend and notes it."""
        values = self.arguments(args)
        if name in DYNAMIC and _by_value(name, values) and not self._folds(values, []):
            self.fail(f"the shape of the result of '{name}' depends on values")
        if self.failed is not None:
            return backend.call(name, tuple([stripped(a) for a in args]))
        written = changed_by(name, values)
        foldable = self._folds(values, written)
        if not foldable:
            self._before_writing(written)
        if _CHECKED and backend is cpu:
            made = _checked(name, [stripped(a) for a in args], [v.key for v in written], self)
        else:
            made = backend.call(name, tuple([stripped(a) for a in args]))
        if made is False:  # the kernel does not serve these arrays; the caller knows another way
            return False
        if made is None or made is True:
            if not written and backend is not cpu:
                self.fail(f"nothing says what '{name}' changes")
            if not foldable:
                self._note(name, values, [], written)
            return made
        return self._result(name, values, made, written, foldable)

    def made(self, name: str, args: list[Any], made: ndarray) -> ndarray:
        """Notes a kernel-like step whose result is already there."""
        values = self.arguments(args)
        return self._result(name, values, made, [], self._folds(values, []))

    def write(self, target: ndarray, value: Any, backend: Any = cpu) -> None:
        """Notes and does target[...] = value."""
        if value.__class__ is SymFloat:
            value = scalar(value, target.dtype)
        elif not isinstance(value, ndarray):
            value = np.asarray(value, target.dtype)
        values = self.arguments([target, value])
        foldable = self._folds(values, values[:1])
        if not foldable:
            self._before_writing(values[:1])
        backend.write(stripped(target), stripped(value))
        if not foldable:
            self._note("copy_into", values, [], values[:1])

    def draw_into(self, words: ndarray, out: ndarray, name: str, args: tuple[Any, ...], backend: Any) -> None:
        """Notes and does a draw into an array of a CUDA device."""
        values = self.arguments([words, out, name, args])
        self._before_writing(values[:2])
        backend.draw_into(stripped(words), stripped(out), name, stripped(args))
        self._note("draw_into", values, [], values[:2])

    def _folds(self, values: list[Any], written: list[Value]) -> bool:
        """Whether a call computes a constant: nothing but constants goes in, and no earlier operation is disturbed."""
        if any(v.storage.id in self.used for v in written):
            return False
        return not _has_number(values) and all(v.storage.kind is CONSTANT for v in values_in(values))

    def _before_writing(self, written: list[Value]) -> None:
        for v in written:
            storage = v.storage
            if self.trial is not None and (
                    storage.kind is INPUT or storage.id < self.trial or storage.id in self.pinned):
                raise Refused("it changes a tensor from outside, or draws random numbers")
            if storage.kind is CONSTANT:  # from here on it changes at every call
                storage.kind = TEMPORARY
                storage.init = bytes_of(storage)

    def _result(self, name: str, values: list[Any], made: Any, written: list[Value], foldable: bool) -> Any:
        several = made.__class__ in (tuple, list)
        results = [m if m is None or isinstance(m, ndarray) else np.asarray(m) for m in (made if several else (made,))]
        outs, fresh = [], False
        for r in results:
            if r is None:
                continue
            storage = self.known(r) if r.size else None
            if storage is None:
                storage = self.new_storage(CONSTANT if foldable else TEMPORARY, r)
                fresh = True
            offset = (pointer(r) or 0) - storage.start if r.size else 0
            outs.append(Value(storage, offset, r.shape, element_strides(r), r.dtype))
        if not foldable and (fresh or written):
            self._note(name, values, [o for o in outs if not _is_view(o, values)], written)
        back = [None if r is None else traced(r) for r in results]
        return made.__class__(back) if several else back[0]

    def _note(self, name: str, values: list[Any], outs: list[Value], written: list[Value]) -> None:
        frame = user_frame()
        where = None if frame is None else (frame.f_code.co_filename, frame.f_lineno)
        op = Op(name, values, outs, written, where)
        self.ops.append(op)
        for v in (*op.reads, *op.writes):
            self.used.add(v.storage.id)

    # ------------------------------------------------------------------------------------------------ numbers
    def number(self, container: Any, key: Any, index: int | None, value: float) -> SymFloat:
        """A number that each call reads from container[key] (or its index-th item)."""
        n = self._number_of.setdefault((id(container), key, index), len(self.numbers))
        if n == len(self.numbers):
            self.numbers.append((container, key, index))
            self.number_values.append(value)
        made = SymFloat(value, ("input", n))
        made.origin = value
        return made

    def guard_number(self, expression: Any, outcome: bool) -> None:
        if next(loads(expression), None) is not None:
            self.fail("Python uses a number that the program computes")
        elif (expression, outcome) not in self.number_guards:
            self.number_guards.append((expression, outcome))

    # ---------------------------------------------------------------------------------------- tensors' arrays
    def begin(self, arguments: Any = ()) -> None:
        """From here on the arrays of tensors are Traced when this thread reads them."""
        device_generators.ready()
        self.given = self._arguments()
        self.casts, autocast.casts = autocast.casts, {}  # those it casts now are of no use outside, nor the others here
        state.recorder = self
        self.first_sequence = next_sequence()
        state.mode |= CAPTURE
        self.in_front = self._read, self._assign
        slot.put_in_front(*self.in_front)
        for tensor in arguments:  # in their order: the same program has the same text wherever they lie
            self._read(tensor)

    def _read(self, tensor: Any) -> Any:
        """tensor._array; other threads, and this one after the capture was given up, see plain arrays only."""
        array = _get(tensor)
        kind = array.__class__
        if kind in PLAIN:
            return array if active() is self else stripped(array)
        if kind is PendingArray:
            return self._read_bits(array)
        if active() is self and (kind in TRACED or _learn(kind)) and not tensor.is_sparse:
            return self._meet(tensor, array)
        if active() is self and registry.backend_of(array).NAME == "meta":
            self.fail("a tensor on the meta device")  # there is no memory to know it by
        return array

    def _read_bits(self, array: PendingArray) -> Any:
        """An array with a conjugate or negative bit: the call's own is a window onto a Traced one."""
        if active() is not self:
            return array.over(stripped(array.window))
        if array.window.__class__ not in PLAIN:
            self.fail("a tensor with a conjugate or negative bit was there before")
        return array

    def _assign(self, tensor: Any, array: Any) -> None:
        """tensor._array = array"""
        before = _array_of(tensor)
        if array.__class__ is PendingArray:
            if before is not None:
                self.fail("a tensor is given a conjugate or negative bit")
            elif active() is self and array.window.__class__ in TRACED:
                array = array.over(self.adopt(array.window))
            self.assigned.append(weakref.ref(tensor))
        elif active() is not self:
            array = stripped(array)
            if before is None:
                self.abroad.add(id(tensor))
        else:
            if before.__class__ in TRACED:
                self._meet(tensor, before)  # `end` shall see that it has other memory now
            if array.__class__ in TRACED:
                array = self.adopt(array)
            if array.__class__ in PLAIN:
                self.assigned.append(weakref.ref(tensor))
        _set(tensor, array)

    def _meet(self, tensor: Any, array: ndarray) -> Any:
        """A tensor that was there before is looked at for the first time."""
        if id(tensor) in self.abroad or slot.made_abroad(tensor):
            self.fail("a tensor was made by another thread")
        made = traced(array)
        self.swapped.append((tensor, array, made))
        self.versions.append((tensor, version_of(tensor), tensor._node))
        _set(tensor, made)
        if array.size:
            self._claim(tensor, array)
        return made

    def _claim(self, tensor: Any, array: ndarray) -> None:
        """The memory of a tensor that was there before is an input: just that part which the tensor shows, as at the next call
        other tensors over the same storage may lie elsewhere. One that lies inside of another is a window onto it."""
        start, end = span(array)
        at = bisect.bisect_left(self._starts, end) - 1
        if at < 0 or self._by_start[at].start + self._by_start[at].nbytes <= start:
            made = self._enter(Storage(len(self.storages), INPUT, start, end - start, (array, None)))
            made.source, made.device = tensor, array.__class__ is not ndarray
            self.device |= made.device
            return
        storage = self._by_start[at]
        below = self._by_start[at - 1] if at else None
        if storage.kind is not INPUT or (storage.start > start and storage.id in self.used) or (
                below is not None and below.start + below.nbytes > start):
            self.fail("tensors share a part of their memory")
            return
        if storage.start > start or storage.start + storage.nbytes < end:  # they overlap in part: one piece of memory
            end = max(end, storage.start + storage.nbytes)
            self._starts[at] = storage.start = min(start, storage.start)
            storage.nbytes = end - storage.start
            self.inner.append((tensor, storage.source))
        elif storage.source is not tensor:
            self.inner.append((tensor, storage.source))
            if _rank(tensor) > _rank(storage.source) and (storage.start, storage.nbytes) == (start, end - start):
                self.inner = [(t, tensor if of is storage.source else of) for t, of in self.inner if t is not tensor]
                self.inner.append((storage.source, tensor))
                storage.source = tensor

    def end(self) -> None:
        """Everything is as it was; `born` are the new tensors, `replaced` those that have other memory now."""
        if slot.take_away():
            self.in_front = None
            autocast.casts = self.casts
        state.mode &= ~CAPTURE
        if state.mode != self.mode and self.failed is None:
            self.failed = "the call leaves another grad mode behind", None
        if self.given != self._arguments() and self.failed is None:
            self.failed = "the call changes a list or dict that it was given", None
        state.recorder = None
        for tensor, array, new in self.swapped:
            if tensor._array is new:
                tensor._array = array
            else:
                self.replaced.append(tensor)
        self.swapped = []
        for reference in self.assigned:
            tensor = reference()
            if tensor is None:
                continue
            array = tensor._array
            if array.__class__ in PLAIN:
                self.born.append(tensor)
                tensor._array = stripped(array)
            elif array.__class__ is PendingArray:
                self.born.append(tensor)
                tensor._array = array.over(stripped(array.window))
        self.assigned = []

    def made_so_far(self) -> set[int]:
        """The ids of the tensors that the call has made so far."""
        return {id(reference()) for reference in self.assigned} - {id(tensor) for tensor, _, _ in self.swapped}

    def _arguments(self) -> Any:
        """The arguments' containers as they are now: their shape, and what is in them."""
        leaves: list[Any] = []
        shape = None if self.invoked is None else flatten([list(self.invoked[1]), self.invoked[2]], leaves)
        return None if shape is None else comparable(shape), list(map(id, leaves))

    def release(self) -> None:
        """The memory and the arguments of the captured run are not needed any more."""
        for storage in self.storages:
            storage.source = None
            if storage.kind is not CONSTANT:
                storage.hold = None

    # -------------------------------------------------------------------------------------------- gradients
    def forget_born_leaves(self) -> None:
        """Leaves that the call made live and die inside it: their gradients are nobody's business."""
        born = {id(t) for t in self.born}
        self.leaves = {i: leaf for i, leaf in self.leaves.items() if i not in born}
        self.grad_found = {i: found for i, found in self.grad_found.items() if i not in born}
        self.cleared = {}

    def grad_seen(self, leaf: Any) -> None:
        """A leaf's gradient is looked at: whether it was there at the start matters, unless it was dropped since."""
        if id(leaf) not in self.cleared and id(leaf) not in self.grad_found:
            self.grad_found[id(leaf)] = leaf, leaf._grad

    def grad_touched(self, leaf: Any) -> None:
        self._no_trial("a gradient is set")
        self.grad_seen(leaf)
        self.leaves[id(leaf)] = leaf

    def grad_cleared(self, leaf: Any) -> None:
        self._no_trial("a gradient is dropped")
        if id(leaf) not in self.grad_found:
            self.cleared[id(leaf)] = leaf
        self.leaves[id(leaf)] = leaf


_LARGE = 1 << 16  # bytes of temporaries that are worth a system call
_SWEPT = 1 << 22  # bytes of new ones after which the old ones are looked at


def _rank(tensor: Any) -> int:
    """Of several tensors over one memory, which one stands for it at later calls: parameters first, views last."""
    return (4 if tensor.__class__ is not Tensor else 0) + (2 if tensor._base is None else 0) + (1 if tensor._node is not None
                                                                                              else 0)


def _learn(kind: type) -> bool:
    """Whether arrays of a type can be traced: those of a CUDA device, once there is one."""
    if registry.ARRAY_TYPES.get(kind) is None or registry.ARRAY_TYPES[kind].NAME != "cuda":
        return False
    from . import device  # noqa: F401  (enters them)
    return kind in TRACED


def _array_of(tensor: Any) -> Any:
    """What a tensor keeps as its array; None where it has none yet."""
    try:
        return _get(tensor)
    except AttributeError:
        return None
