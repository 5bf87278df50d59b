"""Collectives of tensors on CUDA devices, by NVIDIA's NCCL, through CuPy.

An operation runs on a stream of NCCL's own, after what the tensor's device was given so far, and beside what it is given next:
so gradients travel while the backward pass goes on. `Work.wait()` lets the current stream wait, not the thread, and what comes
next on it finds the results. The processes find one another through the store.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from .. import native
from ..autograd.modes import no_grad
from ..creation.factories import empty, zeros
from ..ops.pointwise.complex import view_as_real
from ..ops.shape.joining import cat
from ..tensors import dtypes
from ..tensors.tensor import Tensor
from . import reductions
from .engine import Engine, address
from .errors import DistBackendError
from .reductions import ReduceOp
from .work import Work

__all__ = ["NcclEngine", "available"]

_TYPES = {"bool": "UINT8", "uint8": "UINT8", "int8": "INT8", "int32": "INT32", "uint32": "UINT32", "int64": "INT64",
          "uint64": "UINT64", "float16": "FLOAT16", "bfloat16": "BFLOAT16", "float32": "FLOAT32", "float64": "FLOAT64"}
_OPS = {ReduceOp.SUM: "SUM", ReduceOp.AVG: "SUM", ReduceOp.PREMUL_SUM: "SUM", ReduceOp.PRODUCT: "PROD", ReduceOp.MIN: "MIN",
        ReduceOp.MAX: "MAX"}
_OPS_OF_BOOL = {ReduceOp.SUM: "MAX", ReduceOp.MAX: "MAX", ReduceOp.BOR: "MAX", ReduceOp.PRODUCT: "MIN", ReduceOp.MIN: "MIN",
                ReduceOp.BAND: "MIN"}
_NEWER = {"6": "another process has failed or is gone", "7": "the operation is still in progress"}  # CuPy does not know them


def library() -> Any:
    """CuPy's binding. It looks for the library by name, and finds what is loaded: a wheel's, too."""
    from ..backends.cuda.driver import Unavailable, shared_library
    with contextlib.suppress(Unavailable):
        shared_library("libnccl", (2,), "library of collectives")
    from cupy.cuda import nccl
    return nccl


@functools.cache
def available() -> bool:
    """Whether CuPy is installed with NCCL, and there is a GPU."""
    import importlib.util
    if importlib.util.find_spec("cupy") is None:
        return False
    try:
        from ..cuda import is_available
        return is_available() and bool(getattr(library(), "available", False))
    except Exception:  # an installation without a driver fails in many ways
        return False


class Lane:
    """Where NCCL works on a device: a stream of its own, unless what the device does is being written down as a graph."""

    def __init__(self, index: int):
        from .. import cuda
        from ..backends.cuda import driver, streams
        self.index, self.machine, self.current = index, driver.machine(), streams.current
        self.own = cuda.Stream(index)
        self.mark = self.machine.new_event(False)  # where an operation may begin: known to the stream as soon as it waits
        self.spare: list[int] = []                 # events that nobody refers to any more
        self.side: Any = None

    def begin(self) -> int:
        """The stream for an operation, on which it comes after all that the device was given."""
        self.machine.activate(self.index)
        here = self.current.streams.get(self.index, 0)
        self.side = None if self.current.capture is not None else self.own
        if self.side is None:
            return here
        self.machine.record(self.mark, here)
        self.machine.wait(self.own.cuda_stream, self.mark)
        return self.own.cuda_stream

    def use(self, tensor: Tensor) -> None:
        """Memory that an operation reads or writes is not given away before it is done."""
        if self.side is not None:
            tensor.record_stream(self.side)

    def end(self) -> Passed | None:
        """The event after the operation; None where all later work comes after it anyway."""
        if self.side is None:
            return None
        made = Passed(self, self.spare.pop() if self.spare else self.machine.new_event(False))
        self.machine.record(made.handle, self.own.cuda_stream)
        return made

    def place(self) -> str:
        """Which GPU of which machine it is."""
        from ..cuda import get_device_properties
        return f"GPU {get_device_properties(self.index).uuid} of {socket.gethostname()}"


class Passed:
    """A point on NCCL's stream."""

    __slots__ = ("handle", "lane")

    def __init__(self, lane: Lane, handle: int):
        self.lane, self.handle = lane, handle

    def query(self) -> bool:
        return self.lane.machine.has_passed(self.handle)

    def follow(self) -> None:
        """The current stream waits for it."""
        lane = self.lane
        lane.machine.activate(lane.index)
        lane.machine.wait(lane.current.streams.get(lane.index, 0), self.handle)

    def __del__(self) -> None:
        self.lane.spare.append(self.handle)


class Queued:
    """An operation on NCCL's stream, as Work knows what is pending. host: whoever waits is the thread, which then notices
    processes that are gone, and the time."""

    on_device = True

    def __init__(self, lane: Any, communicator: Any, host: bool):
        self.lane, self.communicator, self.host, self.over = lane, communicator, host, False
        self.event: Passed | None = None

    def done(self) -> bool:
        return self.event is None or self.event.query()

    def wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.host and not self.done():
            if time.monotonic() > deadline:
                return False
            time.sleep(1e-4)
        if self.event is not None:
            self.event.follow()
        self.over = True
        return True

    def watch(self) -> None:
        """The device needs nobody to look after it."""

    def drop(self) -> None:
        """What does not end holds up all that comes after it, and the end of the process."""
        if not self.over:
            self.communicator.abort()


class NcclEngine(Engine):
    """The collectives of a group over communicators of NCCL's, one for each device that tensors come from."""

    device = "cuda"

    def __init__(self, group: Any):
        super().__init__(group)
        try:
            self.nccl = library()
        except ImportError as error:
            raise DistBackendError(f"the backend 'nccl' needs CuPy with NCCL (pip install flambeau[cuda]): {error}") from error
        if not getattr(self.nccl, "available", False):
            raise DistBackendError("the backend 'nccl' needs NVIDIA's library of collectives, libnccl.so.2, which was not "
                                   "found: pip install flambeau[cuda] brings it")
        self.types = {d: getattr(self.nccl, f"NCCL_{_TYPES[d.native.name]}") for d in dtypes.ALL if d.native.name in _TYPES and
                      hasattr(self.nccl, f"NCCL_{_TYPES[d.native.name]}")}
        self.links: dict[int, tuple[Any, Lane]] = {}
        self.waits_on_host = os.environ.get("TORCH_NCCL_BLOCKING_WAIT", "0") == "1"
        self.bundle: list[Queued] | None = None  # operations of an open group

    # ------------------------------------------------------------------------------------------------------- meeting
    def _link(self, index: int) -> tuple[Any, Lane]:
        """The communicator for a device, and where it works."""
        found = self.links.get(index)
        if found is None:
            lane = Lane(index)
            found = self.links[index] = self._asked("init_process_group", self._communicator, lane), lane
        return found

    def _communicator(self, lane: Lane) -> Any:
        number = len(self.links)
        if self.size > 1:
            self._apart(number, lane.place())
        return self.nccl.NcclCommunicator(self.size, self._meeting(number), self.rank)

    def _apart(self, number: int, place: str) -> None:
        """All ranks come here, each with a GPU of its own: NCCL would wait for ever, or fail without saying why."""
        said = self.group.tell(f"nccl place {number}", place, self.group.timeout.total_seconds())
        silent = [rank for rank, text in said.items() if text == "(says nothing)"]
        if silent:
            raise self.group.wrong("nccl", f"ranks {silent} did not come within {self.group.timeout}")
        sharing = [rank for rank, text in said.items() if text == place]
        if len(sharing) > 1:
            raise self.group.wrong("nccl", f"ranks {sharing} use the same device, {place}: NCCL wants a GPU for each process. "
                                   "Choose one with torch.cuda.set_device(local_rank), or take the backend 'gloo', which "
                                   "carries tensors of a GPU through the host's memory")

    def _meeting(self, number: int) -> Any:
        """A name that the first rank makes up and the others read from the store."""
        if self.size == 1:
            return self.nccl.get_unique_id()
        key = f"nccl {number}"
        if self.rank == 0:
            made = self.nccl.get_unique_id()
            self.group.store.set(key, ",".join(map(str, made)))
            return made
        self.group.store.wait([key], self.group.timeout)
        return tuple(int(n) for n in self.group.store.get(key).decode().split(","))

    def close(self) -> None:
        for communicator, _ in self.links.values():
            communicator.destroy()

    # ------------------------------------------------------------------------------------------------------- helpers
    def _dense(self, tensor: Tensor) -> Tensor:
        self._ready(tensor)
        with no_grad():
            return tensor.contiguous()

    def _ready(self, tensor: Tensor) -> None:
        if tensor.device.type != self.device:
            raise RuntimeError(f"No backend type associated with device type {tensor.device.type}: NCCL moves tensors of CUDA "
                               "devices")

    def _type(self, tensor: Tensor) -> int:
        if tensor.dtype not in self.types:
            raise NotImplementedError(f"NCCL has no {tensor.dtype}")
        return self.types[tensor.dtype]

    def _bytes(self, tensor: Tensor) -> tuple[int, int]:
        """Address and number of bytes: for operations that only move."""
        return address(tensor), tensor.numel() * tensor.element_size()

    def _asked(self, name: str, call: Callable[..., Any], *args: Any) -> Any:
        """What NCCL answers; its errors with the operation's name."""
        try:
            return call(*args)
        except (self.nccl.NcclError, KeyError) as error:
            said = _NEWER.get(str(error), error)
            raise self.group.wrong(name, f"NCCL says: {said} (NCCL_DEBUG=WARN prints more)") from error

    def _work(self, name: str, memory: list[Tensor], start: Callable[[Any, int], None], after: Callable[[], None] | None,
              result: list[Tensor], host: bool = False) -> Work:
        """Starts an operation. memory: what it reads and writes."""
        communicator, lane = self._link(memory[0].device.index or 0)
        queued = Queued(lane, communicator, host or self.waits_on_host)
        self._asked(name, start, communicator, lane.begin())
        for tensor in memory:
            lane.use(tensor)
        if self.bundle is None:
            queued.event = lane.end()
        else:
            self.bundle.append(queued)
        return Work(self.group, name, queued, after, result)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Messages that belong together: one alone might wait for ever for another."""
        self.bundle = []
        self.nccl.groupStart()
        try:
            yield
        finally:
            started, self.bundle = self.bundle, None
            self._asked("batch_isend_irecv", self.nccl.groupEnd)
            for queued in started:
                queued.event = queued.lane.end()

    # --------------------------------------------------------------------------------------------------- reductions
    def _summands(self, tensor: Tensor, op: Any) -> tuple[Tensor, int]:
        kind, factor = reductions.kind(op), reductions.factor(op)
        names = _OPS_OF_BOOL if tensor.dtype is dtypes.bool_ else _OPS
        if kind not in names:
            raise NotImplementedError(f"NCCL has no {kind} of {tensor.dtype}")
        with no_grad():
            values = self._dense(tensor)
            values = view_as_real(values) if values.dtype.is_complex else values
            values = values if factor is None else values * factor
        return values, getattr(self.nccl, f"NCCL_{names[kind]}")

    def _combined(self, target: Tensor, values: Tensor, op: Any) -> None:
        if reductions.kind(op) is ReduceOp.AVG and self.size > 1:
            values.div_(self.size) if values.dtype.is_floating_point else values.div_(self.size, rounding_mode="trunc")
        target = view_as_real(target) if target.dtype.is_complex else target
        if native.pointer(values._array) != native.pointer(target._array):
            target.copy_(values.reshape(tuple(target.shape)))

    def all_reduce(self, tensor: Tensor, op: Any) -> Work:
        values, how = self._summands(tensor, op)
        at, kind = self._bytes(values)[0], self._type(values)
        return self._work("all_reduce", [values], lambda to, stream: to.allReduce(at, at, values.numel(), kind, how, stream),
                          lambda: self._combined(tensor, values, op), [tensor])

    def reduce(self, tensor: Tensor, root: int, op: Any) -> Work:
        values, how = self._summands(tensor, op)
        at, kind = self._bytes(values)[0], self._type(values)
        return self._work("reduce", [values], lambda to, stream: to.reduce(at, at, values.numel(), kind, how, root, stream),
                          (lambda: self._combined(tensor, values, op)) if self.rank == root else None, [tensor])

    def reduce_scatter_tensor(self, output: Tensor, tensor: Tensor, op: Any) -> Work:
        values, how = self._summands(tensor, op)
        self._ready(output)
        kind = self._type(values)
        with no_grad():
            made = empty((values.numel() // self.size,), dtype=values.dtype, device=values.device)
        return self._work("reduce_scatter_tensor", [values, made], lambda to, stream: to.reduceScatter(
            self._bytes(values)[0], self._bytes(made)[0], made.numel(), kind, how, stream),
            lambda: self._combined(output, made, op), [output])

    def reduce_scatter(self, output: Tensor, inputs: list[Tensor], op: Any) -> Work:
        if len({i.numel() for i in inputs}) > 1:
            raise NotImplementedError("reduce_scatter with NCCL: tensors of different sizes are not implemented in flambeau")
        with no_grad():
            return self.reduce_scatter_tensor(output, cat([i.reshape(-1) for i in inputs]), op)

    # ----------------------------------------------------------------------------------------------------- movements
    def _received(self, tensor: Tensor) -> tuple[Tensor, Callable[[], None] | None]:
        self._ready(tensor)
        if tensor.is_contiguous():
            return tensor, None
        with no_grad():
            made = empty(tuple(tensor.shape), dtype=tensor.dtype, device=tensor.device)
        return made, lambda: tensor.copy_(made)

    def broadcast(self, tensor: Tensor, root: int) -> Work:
        buffer, back = (self._dense(tensor), None) if self.rank == root else self._received(tensor)
        return self._work("broadcast", [buffer], lambda to, stream: to.bcast(*self._bytes(buffer), self.nccl.NCCL_UINT8, root,
                                                                             stream), back, [tensor])

    def all_gather_into_tensor(self, output: Tensor, tensor: Tensor) -> Work:
        made, back = self._received(output)
        return self._gathered("all_gather_into_tensor", made, tensor, back, [output])

    def _gathered(self, name: str, made: Tensor, tensor: Tensor, after: Callable[[], None] | None,
                  result: list[Tensor]) -> Work:
        buffer = self._dense(tensor)
        at, count = self._bytes(buffer)
        return self._work(name, [buffer, made], lambda to, stream: to.allGather(
            at, self._bytes(made)[0], count, self.nccl.NCCL_UINT8, stream), after, result)

    def all_gather(self, outputs: list[Tensor], tensor: Tensor) -> Work:
        if any(o.numel() != tensor.numel() for o in outputs):
            return self._exchange("all_gather", outputs, [tensor] * self.size)
        for output in outputs:
            self._ready(output)
        with no_grad():
            made = empty((self.size, *tensor.shape), dtype=tensor.dtype, device=tensor.device)
        return self._gathered("all_gather", made, tensor, lambda: [o.copy_(m) for o, m in zip(outputs, made)] and None, outputs)

    def gather(self, tensor: Tensor, outputs: list[Tensor] | None, root: int) -> Work:
        sent: list[Tensor | None] = [tensor if r == root else None for r in range(self.size)]
        return self._exchange("gather", outputs or [None] * self.size, sent)

    def scatter(self, tensor: Tensor, inputs: list[Tensor] | None, root: int) -> Work:
        wanted: list[Tensor | None] = [tensor if r == root else None for r in range(self.size)]
        return self._exchange("scatter", wanted, inputs or [None] * self.size)

    def all_to_all(self, outputs: list[Tensor], inputs: list[Tensor]) -> Work:
        return self._exchange("all_to_all", outputs, inputs)

    def all_to_all_single(self, output: Tensor, tensor: Tensor, output_rows: list[int], input_rows: list[int]) -> Work:
        return self._exchange("all_to_all_single", list(output.split(output_rows)), list(tensor.split(input_rows)))

    def _exchange(self, name: str, wanted: list[Any], given: list[Any]) -> Work:
        """given[r] goes to rank r, wanted[r] comes from it; None: nothing does."""
        sent = [None if g is None else self._dense(g) for g in given]
        places = [(None, None) if w is None else self._received(w) for w in wanted]
        memory = [m for m in (*sent, *[made for made, _ in places]) if m is not None]

        def start(to: Any, stream: int) -> None:
            self.nccl.groupStart()
            try:
                for rank in range(self.size):
                    for call, moved in ((to.send, sent[rank]), (to.recv, places[rank][0])):
                        if moved is not None and moved.numel():
                            call(*self._bytes(moved), self.nccl.NCCL_UINT8, rank, stream)
            finally:
                self.nccl.groupEnd()

        def after() -> None:
            for _, back in places:
                if back is not None:
                    back()

        return self._work(name, memory, start, after, [w for w in wanted if w is not None])

    def barrier(self) -> Work:
        """The host waits, too: that is what people use barriers for."""
        arrived = zeros(1, device=self.device)
        at, kind = self._bytes(arrived)[0], self._type(arrived)
        how = self.nccl.NCCL_SUM
        work = self._work("barrier", [arrived], lambda to, stream: to.allReduce(at, at, 1, kind, how, stream), None, [],
                          host=True)
        work.wait()
        return work

    def agree(self, what: str) -> Work:
        """All ranks come here; the store knows whether they came for the same."""
        self.group.told += 1
        said = self.group.tell(f"agree/{self.group.told}", what, self.group.timeout.total_seconds())
        if len(set(said.values())) > 1:
            lines = "\n".join(f"  rank {rank}: {text}" for rank, text in said.items())
            raise self.group.wrong(what, f"ranks do different things:\n{lines}")
        return Work(self.group, what)

    # -------------------------------------------------------------------------------------------------- one to another
    def send(self, tensor: Tensor, to: int, tag: int) -> Work:
        self._no_tag(tag)
        buffer = self._dense(tensor)
        return self._work(f"send to rank {self.group.ranks[to]}", [buffer], lambda link, stream: link.send(
            *self._bytes(buffer), self.nccl.NCCL_UINT8, to, stream), None, [tensor])

    def recv(self, tensor: Tensor, source: int | None, tag: int) -> Work:
        self._no_tag(tag)
        if source is None:
            raise ValueError("recv: with NCCL the sender must be named (src)")
        made, back = self._received(tensor)
        work = self._work(f"recv from rank {self.group.ranks[source]}", [made], lambda link, stream: link.recv(
            *self._bytes(made), self.nccl.NCCL_UINT8, source, stream), back, [tensor])
        work._source_rank = lambda: self.group.ranks[source]  # type: ignore[attr-defined]
        return work

    def _no_tag(self, tag: int) -> None:
        if tag:
            raise NotImplementedError(f"tag={tag}: NCCL's messages have no tags")
