"""The kernels of a program on a CUDA device, called one after the other: to write them down as a graph, or to do their work."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.cuda import backend as cuda
from ...backends.cuda import casts
from ...backends.cuda.arrays import at_address, windows
from ...backends.cuda.driver import machine
from ...backends.cuda.streams import current
from ...backends.cuda.table import INTO, KERNELS
from ...native import pointer
from ..capture.symbolic import loads
from ..ir.parts import CONSTANT, SCALAR, Number, Op, Storage, Value
from .program import argument, array_at, run_kernel


class Pass:
    """One time through the operations. table: addresses by `place`; blocks: those of the device's temporaries, as they come."""

    def __init__(self, place: dict[int, int], table: Any, numbers: Any, blocks: dict[int, Any]):
        self.place, self.table, self.numbers, self.blocks = place, table, numbers, blocks
        self.copies = self.misfits = 0  # results that were made elsewhere than they belong, or otherwise

    def array(self, v: Value) -> Any:
        s = v.storage
        if not s.device:
            return array_at(self.table[self.place[s.id]] + v.offset, v) if v.size else np.empty(v.shape, v.dtype)
        if not v.size:
            return windows.empty(v.shape, v.dtype)
        return over(self.block(s), v)

    def block(self, s: Storage) -> Any:
        found = self.blocks.get(s.id)
        if found is None and s.id in self.place:
            return at_address(self.table[self.place[s.id]], s.nbytes)
        if found is None:  # a temporary, of which a window is written first
            found = self.blocks[s.id] = windows.storage(s.nbytes)
        return found

    def ranges(self, storages: list[Storage]) -> set[tuple[int, int]]:
        """(address, bytes) of the device's memory that is in use for some storages."""
        found = {s.id: s for s in storages if s.device and s.nbytes and (s.id in self.blocks or s.id in self.place)}
        return {(pointer(self.block(s)), s.nbytes) for s in found.values()}

    def _targets(self, op: Op) -> list[Any] | None:
        """Where the results of an operation belong, if that is memory which is there, or a part of more, and its kernel can
        write to such."""
        if (op.kernel not in INTO and op.kernel not in _OWN) or all([
                o.covers_storage and o.storage.id not in self.blocks for o in op.outs]):
            return None
        return [self.array(o) for o in op.outs]

    def fill(self, s: Storage, image: Any) -> None:
        """Puts what a temporary holds at the start into it; None: zeros."""
        if not s.device:
            target = array_at(self.table[self.place[s.id]], _bytes_of(s))
            target[...] = 0 if image is None else image
            return
        to = pointer(self.block(s))
        machine().activate(current.device)
        if image is None:
            machine().clear(to, s.nbytes, current.stream)
        else:
            machine().copy(to, pointer(image), s.nbytes, current.stream)

    def call(self, op: Op) -> list[int | None]:
        """Runs an operation; the addresses of what its kernel made for each of `outs`."""
        if not any([v.storage.device for v in (*op.reads, *op.writes)]):
            run_kernel(op, self.array, self.numbers)
            return []
        args = [argument(a, self.array, self.numbers) for a in op.args]
        made = performed(op, args, self._targets(op))
        results = [m for m in (made if made.__class__ in (tuple, list) else (made,)) if m is not None and m is not True]
        if len(results) != len(op.outs):  # some are views of arguments: those are in place already
            given = {id(windows.owner(a)) for a in _arrays(args)}
            results = [r for r in results if not isinstance(r, cuda.ARRAY) or id(windows.owner(r)) not in given]
        return [self._keep(out, result) for out, result in zip(op.outs, results, strict=True)]

    def _keep(self, out: Value, result: Any) -> int | None:
        if not out.size:
            return None
        if not out.storage.device:
            np.copyto(self.array(out), result, casting="unsafe")
            return None
        start, owner = pointer(result), windows.owner(result)
        fits = start - pointer(owner) == out.offset and getattr(owner, "used", owner.nbytes) >= out.storage.nbytes and (
            result.strides == tuple([s * out.dtype.itemsize for s in out.strides]))
        self.misfits += not fits
        if out.storage.id not in self.place and out.storage.id not in self.blocks:
            self.blocks[out.storage.id] = owner if fits else windows.storage(out.storage.nbytes)
        target = self.array(out)
        if pointer(target) != start:
            cuda.copied(result, target)
            self.copies += 1
        return start if fits else None


class Repeated:
    """A live operation of a graph: the same arrays again, with the numbers of the run."""

    def __init__(self, op: Op, work: Pass):
        """work: where its arrays are. Numbers in lists are looked for at each run."""
        self.op, self.nested = op, any([a.__class__ in (list, tuple) and _has_number(a) for a in op.args])
        fresh = lambda a: a.__class__ is Number or (a.__class__ is Value and a.storage.kind is SCALAR) or (
            a.__class__ in (list, tuple) and self.nested)
        self.changing = [(k, a) for k, a in enumerate(op.args) if fresh(a)]
        self.args = [a if fresh(a) else argument(a, work.array, work.numbers) for a in op.args]
        self.array, self.numbers = work.array, work.numbers

    def run(self) -> None:
        args = list(self.args)
        for k, a in self.changing:
            args[k] = argument(a, self.array, self.numbers)
        performed(self.op, args)


def performed(op: Op, args: list[Any], into: list[Any] | None = None) -> Any:
    """Runs the kernel of an operation. into: see table.INTO."""
    made = KERNELS[op.kernel](*args, into=into) if into is not None and op.kernel in INTO else _run(op, args, into)
    if made is False:
        raise RuntimeError(f"the kernel '{op.kernel}' does not take what it took before")
    return made


_OWN = ("fused", "cast", "casts")  # operations of programs alone, which can write to windows


def _run(op: Op, args: list[Any], into: list[Any] | None) -> Any:
    if op.kernel == "copy_into":
        return cuda.write(*args)
    if op.kernel == "draw_into":
        return cuda.draw_into(*args)
    if op.kernel == "fused":
        work, inputs, targets = args
        made = into or [windows.empty_strided(o.shape, o.strides, o.dtype) for o in op.outs]
        work.run([*made, *targets, *inputs])
        return made
    if op.kernel in ("cast", "_to_copy"):
        out = op.outs[0]
        return cuda.copied(args[0], windows.empty_strided(out.shape, out.strides, out.dtype) if into is None else into[0])
    if op.kernel == "casts":
        made = into or [windows.empty_strided(o.shape, o.strides, o.dtype) for o in op.outs]
        casts.run(args[0], made)
        return made
    if op.kernel == "reshape_copy":
        return cuda.duplicate(args[0], "C").reshape(op.outs[0].shape)
    return cuda.call(op.kernel, tuple(args))


def over(block: Any, v: Value) -> Any:
    """A window onto a block that is its storage."""
    return windows.over(block, v.shape, v.dtype, v.offset, [s * v.dtype.itemsize for s in v.strides])


def beside(array: Any, v: Value, delta: int) -> Any:
    """A window onto the memory of an input that begins `delta` bytes from an array."""
    block = windows.owner(array)
    start = pointer(array) - pointer(block) + delta + v.offset
    return windows.over(block, v.shape, v.dtype, start, [s * v.dtype.itemsize for s in v.strides])


def _arrays(args: Any) -> list[Any]:
    return [a for x in args for a in (_arrays(x) if x.__class__ in (list, tuple) else (x,)) if isinstance(a, cuda.ARRAY)]


def _bytes_of(s: Storage) -> Value:
    return Value(s, 0, (s.nbytes,), (1,), np.dtype(np.uint8))


def is_live(op: Op) -> bool:
    """Whether an operation depends on what the host knows at each run."""
    return _has_number(op.args) or any([v.storage.kind is SCALAR or (not v.storage.device and v.storage.kind is not CONSTANT)
                                        for v in (*op.reads, *op.writes)])


def _has_number(args: Any) -> bool:
    return any([a.__class__ is Number or (a.__class__ in (list, tuple) and _has_number(a)) for a in args])


def loads_memory(op: Op) -> bool:
    """Whether one of its numbers is read from a tensor's memory."""
    def of(args: Any) -> bool:
        return any([(a.__class__ is Number and next(loads(a.expression), None) is not None)
                    or (a.__class__ in (list, tuple) and of(a)) for a in args])
    return of(op.args) or any([v.storage.kind is SCALAR and next(loads(v.storage.expression), None) is not None
                               for v in op.reads])


def overwrites(op: Op, s: Storage) -> bool:
    """Whether an operation writes all of a storage without reading it."""
    if any([v.storage is s for v in op.reads if not any([v is w for w in op.writes])]):
        return False
    return any([w.storage is s and w.covers_storage and (op.kernel in ("copy_into", "draw_into") or w in op.outs)
                for w in op.writes])
