"""Programs on a CUDA device: the captured kernel calls as one CUDA graph, launched at each run.

The graph is made when the program first runs: the kernels are called once more while the device's work is written down
(backends/cuda/graphs.py), with memory of the graph's own for everything between. What is at another address at the next run
(a new batch, a new result) has a place of its own in the graph from then on, and is copied there and back; parameters, state
and gradients are used where they are.

Some operations depend on what the host knows: numbers that change (learning rates), counts and generators' words in the host's
memory. These are `live`: before each launch they run again on the host, which moves what they move there, and what they ask
of the device is put in the place of those nodes of the graph that they made. Operations on the CPU alone are live, too.
Nothing waits for the device.

Where the device's work cannot be written down (a kernel looks at values), the kernels are called one by one at each run.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.cuda import backend as cuda
from ...backends.cuda import graphs, memory
from ...backends.cuda.arrays import CudaArray, at_address, upload, windows
from ...backends.cuda.branches import Part
from ...backends.cuda.driver import machine
from ...backends.cuda.memory import Block
from ...backends.cuda.streams import current
from ...backends.registry import OutOfMemoryError
from ...native import pointer, toolchain
from ..ir.parts import CONSTANT, INPUT, SCALAR, TEMPORARY, Op, Storage, Value, new_numbers
from ..passes.arena import laid_out
from ..passes.cleanup import reads_of, simplified
from ..passes.even import evened
from ..passes.flat import computed_again, fused
from ..passes.gather import gathered
from ..passes.images import channels_last
from ..passes.narrow import narrowed
from ..passes.placing import overlaid, placed
from ..render.template import Family
from .device_kernels import Pass, Repeated, is_live, loads_memory, over, overwrites
from .program import array_at

_SPARE = 1 << 28  # bytes of unused memory that are given back before a graph takes its own
_UNSHARED = 1 << 26  # bytes up to which nothing shares memory: what does cannot run at the same time
_FOREVER = 1 << 60
_TRIES = 2        # times that memory is planned: the first time a library may still be choosing what to do
_FIRST = 3        # the first place in the table, as in programs of the CPU
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)


class _Recording(graphs.Capture):
    """A capture that notes what is asked for and when it is given back, or hands out memory that was chosen before."""

    def __init__(self, pool: graphs.Pool, places: list[tuple[int, int]] | None):
        """places: (address, bytes) of all that will be asked for, in order; None: memory comes from the pool."""
        super().__init__(pool)
        self.now, self.count = [-1], 0         # the operation that runs; how often memory was asked for
        self.log: list[tuple[int, int]] = []   # (address, bytes) of what the operation asked for
        self.lives: list[list[int]] = []       # bytes, the operation that asked for them, the last during which they were held
        self._places, self._refs = None if places is None else iter(places), []
        self.parts: list[Part] | None = []     # what operations became; None: a library has its own order
        self._before = 0

    def part(self, work: Pass, reads: list[Storage], writes: list[Storage]) -> None:
        """What was written down since the last call is one operation, which touches this memory and what it asked for."""
        if self.parts is None:
            return
        try:
            nodes = graphs.nodes_since(self, self._before)
        except graphs.NotRecordable:
            self.parts = None
            return
        self._before = nodes[-1] if nodes else self._before
        self.parts.append(Part(nodes, work.ranges(reads), work.ranges(writes) | {r for r in self.log if r[1]}))

    def block(self, nbytes: int) -> Block:
        if self._places is None:
            made, now = super().block(nbytes), self.now
            self.lives.append(life := [nbytes, now[0], _FOREVER])
            if nbytes:  # (nothing is one block for all)
                self._refs.append(weakref.ref(made, lambda _: life.__setitem__(2, now[0])))
        else:
            address, size = next(self._places, (0, -1))
            if size != nbytes:
                raise _OtherMemory("work asked for other memory than before")
            made = at_address(address, nbytes)
        self.log.append((pointer(made), nbytes))
        self.count += 1
        return made


def _give_back() -> None:
    """Returns unused memory to the driver, if it is much."""
    pages = memory.of(current.device)
    if pages.reserved - pages.allocated > _SPARE:
        pages.release()


def _put_back(words: list[tuple[int, bytes]]) -> None:
    for address, was in words:
        ctypes.memmove(address, was, len(was))


class _OtherMemory(RuntimeError):
    """The second time, operations do not ask for the memory that they asked for the first time."""


class GraphProgram:
    """Runs a list of operations on the device; to its callers what `Program` is."""

    def __init__(self, ops: list[Op], kept: list[Storage], given: list[Storage], numbers: int, exact: bool = False,
                 family: Family | None = None):
        start = time.perf_counter()
        self.lock = threading.Lock()
        self.captured = len(ops)
        brought = {s.id for s in (*kept, *given)}
        self.ops = simplified(ops, brought)
        if any([not s.device for s in (*kept, *given) if s.kind is TEMPORARY and s.nbytes]):
            raise toolchain.BuildError("a result is on the CPU, other work on a CUDA device")
        if any(map(loads_memory, self.ops)):
            raise toolchain.BuildError("a number is read from a tensor's memory")
        if not exact:
            new_numbers.restart(False)
            channels_last(self.ops, brought)
            for rewritten in (narrowed, evened, overlaid, placed, computed_again, fused, gathered):
                self.ops = rewritten(self.ops, brought, is_live)
        self._places(kept, given)
        self.numbers = (ctypes.c_double * max(1, numbers))()
        self.live = list(map(is_live, self.ops))
        self.graph: graphs.Graph | None = None
        self.pool: graphs.Pool | None = None
        self.arena: Block | None = None        # the memory of what is between the operations
        self.refused: str | None = None        # why there is no graph
        self.held: list[Any] = []              # memory that live operations read
        self.stand_ins: dict[int, Block] = {}  # place -> memory of the graph's own for what is elsewhere at each run
        self.outputs = {self.place[s.id] for s in kept if s.kind is TEMPORARY and s.nbytes}
        self.moving: set[int] = set()
        self.groups: list[Any] = []
        self.calls: list[Op] = []
        self.arena_bytes = self.unshared_bytes = 0
        self.error: BaseException | None = None
        me = weakref.ref(self)
        self.entry = self.function = _ENTRY(lambda table, numbers: me()._entered())
        self.seconds_planning, self.seconds_building = time.perf_counter() - start, 0.0

    # ------------------------------------------------------------------------------------------------- layout
    def _places(self, kept: list[Storage], given: list[Storage]) -> None:
        """Numbers in the table of addresses for all memory but the device's own temporaries."""
        found = {v.storage.id: v.storage for op in self.ops for v in (*reads_of(op), *op.writes)}
        brought = {s.id for s in (*kept, *given)}
        self.spots: dict[int, Storage] = {}    # place -> storage
        for s in {s.id: s for s in (*found.values(), *kept, *given)}.values():
            if s.kind is not SCALAR and (s.kind is not TEMPORARY or not s.device or s.id in brought):
                self.spots[_FIRST + len(self.spots)] = s
        self.place = {s.id: number for number, s in self.spots.items()}
        self.inputs = [s for s in self.spots.values() if s.kind is INPUT]
        self.constants = [s for s in self.spots.values() if s.kind is CONSTANT]
        self.written = {w.storage.id for op in self.ops for w in op.writes if w.storage.kind is INPUT}
        self.last = {v.storage.id: i for i, op in enumerate(self.ops) for v in (*op.reads, *op.writes)}
        self.counts = [(n, s.nbytes) for n, s in self.spots.items() if not s.device and s.id in self.written]
        self.on_host = any([not s.device and s.kind is not CONSTANT for s in self.spots.values()])
        self.table = (ctypes.c_void_p * (_FIRST + len(self.spots)))()
        self._host: list[np.ndarray] = []      # the CPU's temporaries
        for number, s in self.spots.items():
            if s.kind is CONSTANT:
                self.table[number] = s.start
            elif s.kind is TEMPORARY and s.id not in brought:
                self._host.append(np.zeros(max(s.nbytes, 1), np.uint8))
                self.table[number] = pointer(self._host[-1])
        fresh = {s.id: s for s in (*found.values(), *kept)}.values()
        self._inits([s for s in fresh if s.init is not None and not any([s is g for g in given])])

    def _inits(self, storages: list[Storage]) -> None:
        """What temporaries hold before the program's first write, where that does not overwrite them: by the operation before
        which they are filled, an image of it each, None for zeros."""
        self.inits: dict[int, list[tuple[Storage, Any]]] = {}
        for s in storages:
            first = next((i for i, op in enumerate(self.ops) if any([v.storage is s for v in (*op.reads, *op.writes)])), -1)
            if first >= 0 and overwrites(self.ops[first], s):
                continue
            image = np.frombuffer(s.init, np.uint8) if s.init.strip(b"\0") else None
            self.inits.setdefault(first, []).append((s, upload(image) if s.device and image is not None else image))

    # --------------------------------------------------------------------------------------------- what plans ask for
    ARRAY = CudaArray
    undoes = False

    def expect(self, fresh: set[int]) -> None:
        """Says which storages will lie elsewhere at each run."""
        self.moving |= {self.place[i] for i in fresh if i in self.place and self.place[i] in self.outputs}

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: Any) -> Any:
        """Memory for a result."""
        return windows.empty(shape, dtype)

    @staticmethod
    def raw(nbytes: int) -> Any:
        """Memory for a gradient, whose array lies right over it."""
        return windows.storage(nbytes)

    zeros = staticmethod(cuda.zeros)

    @staticmethod
    def contiguous(x: Any) -> Any:
        return x if x.flags.c_contiguous else cuda.duplicate(x, "C")

    def held(self, v: Value) -> Any:
        """A copy of what is in memory that the caller brought."""
        return over(at_address(self.address(v.storage), v.storage.nbytes), v).copy()

    @staticmethod
    def window(raw: Any, v: Value) -> Any:
        """A window onto the given memory of its storage."""
        block = windows.owner(raw)
        start = (pointer(raw) or 0) - (pointer(block) or 0)
        return windows.over(block, v.shape, v.dtype, start + v.offset, [s * v.dtype.itemsize for s in v.strides])

    @staticmethod
    def constant(v: Value) -> Any:
        """A copy of a constant."""
        if not v.storage.device:
            return array_at(v.storage.start + v.offset, v).copy()
        return over(at_address(v.storage.start, v.storage.nbytes), v).copy()

    def tell(self, listener: Callable[..., None] | None) -> None:
        """Parts of a graph are not timed."""

    def address(self, storage: Storage) -> int:
        return self.table[self.place[storage.id]]

    # ------------------------------------------------------------------------------------------------- running
    def _entered(self) -> int:
        """The program as native code calls it."""
        try:
            self.run()
            return 0
        except BaseException as error:
            self.error = error
            return 1

    def run(self) -> None:
        """One run; the caller has filled the table and the numbers, and holds `lock`."""
        inside = current.capture is not None  # of a graph that the user makes: the kernels become part of that
        if self.refused is None and not inside:
            self._make_fit()
        if self.refused is not None or inside:
            self._perform(self.table)
            return
        stream = current.stream
        for number, block in self.stand_ins.items():
            if number not in self.outputs:
                machine().copy(pointer(block), self.table[number], self.spots[number].nbytes, stream)
        self.graph.launch()
        for number, block in self.stand_ins.items():
            if number in self.outputs or self.spots[number].id in self.written:
                machine().copy(self.table[number], pointer(block), self.spots[number].nbytes, stream)

    def _make_fit(self) -> None:
        """Makes the graph fit to where everything is now, and to the numbers of this run."""
        now, where = self.table[:], (current.device, current.stream)
        if self.graph is not None and where == self.where:
            moved = {n for n in self.resting if now[n] != self.baked[n]}
            if not moved:
                words = self._words()
                try:
                    self._again()
                except graphs.NotRecordable as error:  # live operations do not do what they did: from now on without a graph
                    _put_back(words)
                    self._do_without(str(error))
                return
            self.moving |= moved
        elif self.graph is not None:
            self.pool = self.arena = None
        self.graph, self.where, self.baked = None, where, now
        self.resting = [n for n, s in self.spots.items() if s.device and s.nbytes and n not in self.moving]
        try:
            self._record()
        except OutOfMemoryError:
            raise
        except RuntimeError as error:
            self._do_without(str(error))

    def _do_without(self, why: str) -> None:
        """No graph: kernels are called one by one."""
        self.graph, self.pool, self.arena, self.stand_ins, self.refused = None, None, None, {}, why

    def _words(self) -> list[tuple[int, bytes]]:
        """What the program changes in the host's memory (counts, generators' words), as it is now."""
        return [(self.table[n], ctypes.string_at(self.table[n], nbytes)) for n, nbytes in self.counts]

    # ------------------------------------------------------------------------------------------------ the graph
    def _record(self) -> None:
        """Writes the program down twice: the first time shows which memory becomes a result, and how long the rest is needed;
        then each piece gets its place."""
        _give_back()
        self.pool = self.pool or graphs.Pool()
        for number in self.moving - self.stand_ins.keys():
            self.stand_ins[number] = self.pool.block(self.spots[number].nbytes)
        table = self._graph_table()
        for _ in range(_TRIES):
            self._attempt(table, None, graphs.Pool())
            places = self._planned(table)
            with contextlib.suppress(_OtherMemory):
                self.graph = self._attempt(table, places, self.pool)
                break
        else:
            self.arena, self.graph = None, self._attempt(table, None, self.pool)
        self.graph.prepare()
        self.seen = self.numbers[:]
        self._bind()

    def _attempt(self, table: list[Any], places: list[tuple[int, int]] | None, pool: graphs.Pool) -> graphs.Graph:
        """Writes the program down. The host's counts and words move with what becomes the program's graph, and not before."""
        words, graph = self._words(), None
        try:
            graph = self._noted(table, places, pool)
        finally:
            if graph is None or pool is not self.pool:
                _put_back(words)
        return graph

    def _graph_table(self) -> list[Any]:
        """Addresses as the graph has them."""
        table = self.table[:]
        for number, block in self.stand_ins.items():
            table[number] = pointer(block)
        return table

    def _noted(self, table: list[Any], places: list[tuple[int, int]] | None, pool: graphs.Pool) -> graphs.Graph:
        self.taken: list[list[tuple[int, int]]] = []  # what each operation asks for
        self.asked: list[int] = []                    # how often memory was asked for before it
        self.found: list[list[int | None]] = []       # where its results are
        self.in_place: list[bool] = []                # whether these are where they belong without another copy
        self.nodes: list[int] = []                    # of live operations
        self.plain = True                             # whether these are kernels of our own, launched by us, and nothing else
        self.bound: dict[int, Any] = {}               # the memory of temporaries that these touch
        with _Recording(pool, places) as capture:
            self._perform(table, capture)
            capture.now[0] = len(self.ops)
        self.lives = capture.lives
        if pool is self.pool and capture.parts:
            capture.graph.untie(capture.parts)
        return capture.graph

    def _planned(self, table: list[Any]) -> list[tuple[int, int]]:
        """Places for all that the operations asked for. Results that the caller wants at a place are made there, found by the
        number of the allocation that becomes one; the rest shares memory where its times of use allow it."""
        chosen: dict[int, int] = {}
        for op, taken, found, first in zip(self.ops, self.taken, self.found, self.asked):
            for out, at in zip(op.outs, found):
                number = self.place.get(out.storage.id)
                if number is None or at is None or sum([o.storage is out.storage for o in op.outs]) > 1:
                    continue
                wanted = at - out.offset, out.storage.nbytes
                if wanted in taken:  # (of several at one address the last)
                    chosen[first + len(taken) - 1 - taken[::-1].index(wanted)] = table[number]
        rest = [k for k in range(len(self.lives)) if k not in chosen and self.lives[k][0]]
        lives = [tuple(self.lives[k]) for k in rest]
        if sum([nbytes for nbytes, *_ in lives]) <= _UNSHARED:
            lives = [(nbytes, 0, _FOREVER) for nbytes, *_ in lives]
        offsets, self.arena_bytes, self.unshared_bytes = laid_out(lives, memory.LINE)
        self.arena = None
        _give_back()
        self.arena = self.pool.block(self.arena_bytes, exactly=True)
        base = pointer(self.arena) or 0
        chosen.update({k: base + offset for k, offset in zip(rest, offsets)})
        return [(chosen.get(k, base), life[0]) for k, life in enumerate(self.lives)]

    def _again(self) -> None:
        """Live operations once more: what they leave on the host, and new numbers for the nodes that they made."""
        if not self.repeats or (not self.on_host and self.numbers[:] == self.seen):
            return
        if any([self.table[n] != address for n, address in self.hosts]):
            self._bind()
        self.graph.alternate()
        quick = self.redirected
        with quick or graphs.Again(self.graph, self.pieces) as again:
            for repeat in self.repeats:
                repeat()
        if quick is None:
            self.graph.retarget(self.nodes, again.graph)
            self.held = [again.held, *self.held[:1]]  # (the other instance may still be running)
        self.seen = self.numbers[:]

    def _bind(self) -> None:
        """What live operations do at each run, as their memory is now."""
        work = Pass(self.place, self._graph_table(), self.numbers, self.bound)
        some = [i for i, live in enumerate(self.live) if live]
        self.hosts = [(n, self.table[n]) for n, s in self.spots.items() if not s.device]
        self.pieces = [piece for i in some for piece in self.taken[i]]
        self.redirected = graphs.Redirected(self.graph, self.pieces, self.nodes) if self.plain else None
        self.repeats = [Repeated(self.ops[i], work).run if self.in_place[i] else functools.partial(work.call, self.ops[i])
                        for i in some]

    # -------------------------------------------------------------------------------------------- the operations
    def _perform(self, table: Any, capture: _Recording | None = None) -> None:
        """Calls the kernels of all operations, in their order, on memory at the addresses of a table."""
        work = Pass(self.place, table, self.numbers, {})
        for s, image in self.inits.get(-1, ()):
            work.fill(s, image)
        if capture is not None:
            capture.part(work, [], [s for s, _ in self.inits.get(-1, ())])
        for i, op in enumerate(self.ops):
            if capture is not None:
                capture.now[0] = i
            for s, image in self.inits.get(i, ()):
                work.fill(s, image)
            if capture is None:
                work.call(op)
            else:
                self._note(i, work, capture)
                capture.part(work, [v.storage for v in reads_of(op)],
                             [*[v.storage for v in op.writes], *[s for s, _ in self.inits.get(i, ())]])
            for v in (*op.reads, *op.writes):
                if self.last[v.storage.id] == i:
                    work.blocks.pop(v.storage.id, None)

    def _note(self, i: int, work: Pass, capture: _Recording) -> None:
        op = self.ops[i]
        capture.log, capture.live = [], self.live[i]
        self.asked.append(capture.count)
        before, copies, work.misfits = graphs.last_node(capture), work.copies, 0
        launched = graphs.launches()
        self.found.append(work.call(op))
        self.taken.append(capture.log)
        self.in_place.append(work.copies == copies and any([v.storage.device for v in op.writes]))
        if self.live[i]:
            if work.misfits:
                raise graphs.NotRecordable(f"'{op.kernel}' does not lay its result out as before")
            nodes = graphs.nodes_since(capture, before)
            self.plain &= len(nodes) == graphs.launches() - launched
            self.nodes += nodes
            for v in (*op.reads, *op.writes):
                if v.storage.id in work.blocks:
                    self.bound[v.storage.id] = at_address(pointer(work.blocks[v.storage.id]), v.storage.nbytes)
