"""`cond`, `while_loop`, `scan` and `map` in a captured call: one operation each, with others inside of it (ir/parts.py: Inner).

The functions that they are given are tried, once each: their kernels run, on memory of their own, and are noted. In a trial
nothing may be done that anybody else can see; what would, ends it by `Refused` before it happens, and the call runs as the
Python that it stands for. (That looks at the value that decides, so the call is not skipped; a scan's turns become part of the
program one by one.) What a loop really does is then done by its operations (passes/control.py: run_inner).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...autograd.frames import user_frame
from ...autograd.state import NO_GRAD, state
from ...tensors.tensor import Tensor, wrap
from ..ir.parts import CONSTANT, INPUT, KINDS, SCALAR, TEMPORARY, Inner, Op, Slice, Storage, Value
from ..passes.control import touched, whole
from .memory import _copy_in_place
from .traced import PLAIN, active, stripped, traced
from .tracing import Refused
from .trees import comparable, containers, flatten, unflatten

_FEWEST = 5  # turns of a loop; fewer are parts of the program one by one
_PLAIN_LEAVES = (int, float, bool, str, type(None))


class Tried:
    """What a function did in a trial: its operations and results. first: the number of the first storage that it made."""

    def __init__(self, w: Any, function: Any, args: Any):
        recorder, self.first = active(), len(active().storages)
        mark, outer, mode, refused = len(recorder.ops), recorder.trial, state.mode, Refused.times
        recorder.trial = self.first
        w.trials += 1
        born, given = w.born, w.given
        w.born, w.given = {}, given | born  # what the call has made before is not the trial's to change
        try:
            made = w.call(function)(*args)
            if Refused.times != refused:
                raise Refused("something was refused when it was tried")
            if state.mode != mode or recorder.device:
                raise Refused("the mode is changed" if state.mode != mode else "it works on a CUDA device")
        except Exception as error:  # for the Python to raise, where it is not only a trial
            raise Refused(f"{type(error).__name__} is raised when it is tried") from None
        finally:
            w.trials -= 1
            w.born, w.given = born | w.born, given
            recorder.trial, self.ops = outer, recorder.ops[mark:]
            del recorder.ops[mark:]
            state.mode = mode
        self.made = made
        self.leaves: list[Any] = []
        self.shape = flatten(made, self.leaves)

    def own(self, storage: Storage) -> bool:
        return storage.id >= self.first and storage.kind in (TEMPORARY, CONSTANT)

    def values(self, known: Any = ()) -> list[Value | None]:
        """The results that are tensors as windows; they must be the trial's own, or among the known storages."""
        return [self._value(leaf, known) if isinstance(leaf, Tensor) else _plain(leaf) for leaf in self.leaves]

    def _value(self, tensor: Any, known: Any) -> Value:
        array = tensor._array
        if type(tensor) is not Tensor or array.__class__ not in PLAIN or not array.size:
            raise Refused("a result is empty, or a tensor of another kind")
        if tensor._node is not None:
            raise Refused("a result requires a gradient")
        value = active().value(array)
        if (not self.own(value.storage) or value.storage.id in active().pinned) and value.storage.id not in known:
            raise Refused("a result is a tensor from outside")
        if not value.dense:
            raise Refused("a result has gaps or repeats in its memory")
        return value


def _plain(leaf: Any) -> None:
    if type(leaf) not in _PLAIN_LEAVES:
        raise Refused("a result is neither a tensor nor a plain value")


def _where() -> tuple[str, int] | None:
    frame = user_frame()
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def _usable(tensors: list[Any]) -> bool:
    """Whether these are tensors that a loop can carry: plain ones, on the CPU, no gradient of which is asked for."""
    return not active().device and all([
        type(t) is Tensor and t._array.__class__ in PLAIN and t._array.size > 0 and (
            t._node is None or bool(state.mode & NO_GRAD)) for t in tensors])


def _new(array: Any) -> tuple[Any, Value]:
    """Memory of the program's own, as a tensor and as a window."""
    recorder = active()
    storage = recorder.new_storage(TEMPORARY, array)
    recorder.used.add(storage.id)
    return wrap(traced(array)), recorder.value(array)


def _copied(target: Value, source: Value) -> Op:
    return Op("copy_into", [target, source], [], [target], _where())


def _note(kernel: str, inner: Inner, args: list[Value], outs: list[Value], writes: list[Value]) -> Op:
    """Enters the operation. args: what it is given besides the memory that its bodies read."""
    recorder, own = active(), {s.id for s in inner.results} | {part.storage.id for part in inner.slices}
    params = {v.storage.id: v.storage for v in args}
    for body, first in inner.bodies:
        for s in touched(body).values():
            outside = s.kind in (INPUT, CONSTANT) or s.id < first
            if outside and s.kind is not SCALAR and s.nbytes and s.id not in own:
                params[s.id] = s
    given = {v.storage.id for v in args}
    inner.bodies = [body for body, _ in inner.bodies]
    inner.params = [v.storage for v in args] + [s for s in params.values() if s.id not in given]
    op = Op(kernel, [*args, *[whole(s) for s in inner.params[len(args):]]], outs, writes, _where())
    op.inner = inner
    recorder.ops.append(op)
    recorder.used.update(v.storage.id for v in (*op.reads, *op.writes))
    return op


def _run(op: Op) -> None:
    """Does a loop's work, unless the loop is part of a trial: nobody knows whether it would end."""
    recorder = active()
    if recorder.trial is None:
        from ..run.program import array_at, run_kernel
        try:
            run_kernel(op, lambda v: array_at(v.storage.start + v.offset, v), recorder.number_values)
        except Exception as error:  # for the Python to raise at its line
            raise Refused(f"a turn raises {type(error).__name__}") from None


def _result(w: Any, shape: Any, leaves: list[Any]) -> Any:
    made = unflatten(shape, iter(leaves))
    for container in containers(made):
        w.made(container)
    return made


class Plain(Exception):
    """There is nothing to try: the Python raises an error, or does not look at a value."""


def _tried_or(plain: Callable[..., Any], fails: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Where a trial is refused, the Python runs; fails: and looks at a value, so the capture ends."""
    def around(handler: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            recorder = active()
            mark, reason, times = len(recorder.ops), None, Refused.times
            try:
                return handler(*args, **kwargs)
            except Plain:
                pass
            except Refused as refused:
                reason, Refused.times = str(refused), times
            except Exception as error:  # wrong arguments; and a defect of ours must not become the user's
                reason = f"{type(error).__name__}: {error}"
            del recorder.ops[mark:]
            if fails and reason is not None:
                recorder.fail(f"in a branch or a loop: {reason}")
            return plain(*args, **kwargs)
        return call
    return around


# ------------------------------------------------------------------------------------------------------------- branches
def cond(w: Any, plain: Any, *args: Any, **kwargs: Any) -> Any:
    @_tried_or(plain, True)
    def call(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
        recorder = active()
        if not isinstance(pred, Tensor) or type(operands) not in (list, tuple) or not _usable([pred]) or pred.numel() != 1 or (
                recorder.value(pred._array).storage.kind is CONSTANT):
            raise Plain
        if pred._array.dtype.char not in KINDS:
            raise Refused("the predicate is of half precision, or complex")
        ways = [Tried(w, function, operands) for function in (true_fn, false_fn)]
        first, second = [way.values() for way in ways]
        a, b = ways
        if comparable(a.shape) != comparable(b.shape) or not all(map(_alike, first, second, a.leaves, b.leaves)):
            raise Refused("the results of the branches differ in kind")
        if any(len({v.storage.id for v in way if v is not None}) < sum(v is not None for v in way) for way in (first, second)):
            raise Refused("results share memory")
        taken = ways[0 if stripped(pred._array).any() else 1]
        leaves, outs = list(taken.leaves), []
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                leaves[i], value = _new(_copy_in_place(stripped(leaf._array)))
                outs.append(value)
                for way, some in zip(ways, (first, second)):
                    way.ops.append(_copied(value, some[i]))
        if outs:
            inner = Inner([(way.ops, way.first) for way in ways], [], [v.storage for v in outs])
            op = _note("cond", inner, [recorder.value(pred._array)], outs, [])
            if any([o.inner is not None for o in taken.ops]):  # a loop in there has not run yet
                _run(op)
        return _result(w, taken.shape, leaves)
    return call(*args, **kwargs)


def _alike(a: Value | None, b: Value | None, x: Any, y: Any) -> bool:
    if a is None or b is None:
        return a is b and type(x) is type(y) and x == y
    return a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype


# ---------------------------------------------------------------------------------------------------------------- loops
class Carried:
    """What goes from turn to turn: memory of the program's own, which begins as a copy of what is given."""

    def __init__(self, tree: Any):
        self.leaves: list[Any] = []
        self.shape = flatten(tree, self.leaves)
        if not _usable(self.leaves):
            raise Refused("what is carried is not made of plain tensors, or requires gradients")
        recorder = active()
        self.values: list[Value] = []
        for i, leaf in enumerate(self.leaves):
            source = recorder.value(leaf._array)
            if not source.dense:
                raise Refused("what is carried has gaps or repeats in its memory")
            self.leaves[i], value = _new(_copy_in_place(stripped(leaf._array)))
            self.values.append(value)
            recorder.ops.append(_copied(value, source))
        self.tree = unflatten(self.shape, iter(self.leaves))
        self.ids = {v.storage.id for v in self.values}

    def next(self, made: list[Value | None]) -> list[Op]:
        """What puts the results of a turn in place for the next one: as if all were put there at once."""
        if len(made) != len(self.values) or not all([v is not None and (v.shape, v.strides, v.dtype) == (c.shape, c.strides,
                                                     c.dtype) for v, c in zip(made, self.values)]):
            raise Refused("a turn gives other kinds of tensors than it was given")
        moves, puts = [], []
        for value, place in zip(made, self.values):
            if value.key == place.key:
                continue
            if value.storage.id in self.ids:  # another one's place
                array = np.empty(place.shape, place.dtype)
                aside = active().value(_kept(np.ndarray(place.shape, place.dtype, array, 0, [
                    s * place.dtype.itemsize for s in place.strides])))
                moves.append(_copied(aside, value))
                value = aside
            puts.append(_copied(place, value))
        return [*moves, *puts]


def _kept(array: Any) -> Any:
    active().new_storage(TEMPORARY, array)
    return array


def while_loop(w: Any, plain: Any, *args: Any, **kwargs: Any) -> Any:
    @_tried_or(plain, True)
    def call(cond_fn: Any, body_fn: Any, carried_inputs: Any) -> Any:
        if type(carried_inputs) not in (list, tuple) or not carried_inputs:
            raise Plain
        carried = Carried(tuple(carried_inputs))
        asked = Tried(w, cond_fn, carried.tree)
        test = asked.values(carried.ids)
        if len(test) != 1 or test[0] is None or test[0].size != 1 or test[0].storage.kind is CONSTANT or (
                test[0].dtype.char not in KINDS):
            raise Refused("what decides about another turn is no tensor of one element")
        turn = Tried(w, body_fn, carried.tree)
        again = carried.next(turn.values(carried.ids))
        places = [v.storage for v in carried.values]
        inner = Inner([(asked.ops, asked.first), ([*turn.ops, *again], turn.first)], [], places, test[0])
        _run(_note("while_loop", inner, [whole(s) for s in places], [], carried.values))
        return _result(w, carried.shape, carried.leaves)
    return call(*args, **kwargs)


def _turns(w: Any, function: Callable[..., Any], carried: Carried | None, xs: Any, backwards: bool,
           more: tuple[Any, ...] = ()) -> tuple[list[Any], Tried]:
    """A loop over the first dimension of all tensors of xs. function: (carry,) slices, more arguments -> (carry,) results.
    Returns the results, stacked, and what the trial of one turn gave."""
    leaves: list[Any] = []
    shape, recorder = flatten(xs, leaves), active()
    leaves = [x.contiguous() for x in leaves]
    count = leaves[0].shape[0]
    slices, parts = [], []
    for x in leaves:
        tensor, value = _new(stripped(x._array)[count - 1 if backwards else 0, ...].copy(order="C"))
        source = recorder.value(x._array)
        parts.append(tensor)
        slices.append(Slice(value.storage, source.storage, source.offset, value.nbytes))
    given = unflatten(shape, iter(parts))
    turn = Tried(w, function, [given, *more] if carried is None else [carried.tree, given])
    ids = {s.storage.id for s in slices} | (carried.ids if carried is not None else set())
    made = turn.values(ids)
    back = [] if carried is None else made[:len(carried.values)]
    ops, stacked, outs = list(turn.ops), [], []
    for value in made[len(back):]:
        if value is None or not value.contiguous:
            raise Refused("a result of a turn is no plain tensor")
        tensor, whole_value = _new(np.zeros((count, *value.shape), value.dtype))
        part = recorder.value(_kept(np.empty(value.shape, value.dtype)))
        slices.append(Slice(part.storage, whole_value.storage, 0, part.nbytes))
        ops.append(_copied(part, value))
        stacked.append(tensor)
        outs.append(whole_value)
    if carried is not None:
        ops += carried.next(back)
    places = [] if carried is None else carried.values
    inner = Inner([(ops, turn.first)], [], [v.storage for v in (*outs, *places)], None, count, slices, backwards)
    sources = {s.of.id: s.of for s in slices[:len(leaves)]}
    _run(_note("scan", inner, [whole(s) for s in (*sources.values(), *[v.storage for v in places])], outs, places))
    return stacked, turn


def _loops(leaves: list[Any], dim: int) -> bool:
    """Whether a loop over a dimension of these is worth being one, and no error is to be raised."""
    return bool(leaves) and _usable(leaves) and all([-x.ndim <= dim < x.ndim for x in leaves]) and len(
        {x.shape[dim] for x in leaves}) == 1 and leaves[0].shape[dim] >= _FEWEST


def scan(w: Any, plain: Any, *args: Any, **kwargs: Any) -> Any:
    @_tried_or(plain, False)
    def call(combine_fn: Any, init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> Any:
        leaves: list[Any] = []
        shape = flatten(xs, leaves)
        if type(dim) is not int or type(reverse) is not bool or not _loops(leaves, dim):
            raise Plain
        dim %= leaves[0].ndim
        carried = Carried(init)
        if not carried.leaves:
            raise Plain
        moved = unflatten(shape, iter([x.movedim(dim, 0) for x in leaves]))
        stacked, turn = _turns(w, combine_fn, carried, moved, reverse)
        if turn.shape[0] not in (tuple, list) or len(turn.shape[1]) != 2 or (
                comparable(turn.shape[1][0]) != comparable(carried.shape)):
            raise Refused("a turn does not give what is carried and a result")
        stacked = [y.movedim(0, dim).contiguous() if dim else y for y in stacked]
        return _result(w, (tuple, [carried.shape, turn.shape[1][1]]), [*carried.leaves, *stacked])
    return call(*args, **kwargs)


def map_(w: Any, plain: Any, *args: Any, **kwargs: Any) -> Any:
    @_tried_or(plain, False)
    def call(f: Any, xs: Any, *more: Any) -> Any:
        leaves: list[Any] = []
        flatten(xs, leaves)
        if not _loops(leaves, 0) or not all([x.ndim for x in leaves]):
            raise Plain
        stacked, turn = _turns(w, f, None, xs, False, more)
        return _result(w, turn.shape, stacked)
    return call(*args, **kwargs)


HANDLERS: dict[str, Callable[..., Any]] = {"cond": cond, "while_loop": while_loop, "scan": scan, "map": map_}
