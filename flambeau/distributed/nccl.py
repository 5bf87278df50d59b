"""Collectives of tensors on CUDA devices, by NVIDIA's NCCL, through CuPy.

An operation is put on the current stream of the tensor's device and runs in order with the kernels there: nothing has to wait,
`Work.wait()` only says that later kernels come after it, and they do. The processes find one another through the store.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import native
from ..autograd.modes import no_grad
from ..creation.factories import empty, zeros
from ..ops.pointwise.complex import view_as_real
from ..ops.shape.joining import cat
from ..tensors import dtypes
from ..tensors.tensor import Tensor
from . import reductions
from .engine import Engine
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


def library() -> Any:
    """CuPy's binding."""
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


class NcclEngine(Engine):
    """The collectives of a group over a communicator of NCCL's."""

    device = "cuda"

    def __init__(self, group: Any):
        super().__init__(group)
        try:
            self.nccl = library()
        except ImportError as error:
            raise DistBackendError(f"the backend 'nccl' needs CuPy with NCCL (pip install flambeau[cuda]): {error}") from error
        self.types = {d: getattr(self.nccl, f"NCCL_{_TYPES[d.native.name]}") for d in dtypes.ALL if d.native.name in _TYPES and
                      hasattr(self.nccl, f"NCCL_{_TYPES[d.native.name]}")}
        self.communicator = self.nccl.NcclCommunicator(self.size, self._meeting(), self.rank)

    def _meeting(self) -> Any:
        """A name that the first rank makes up and the others read from the store."""
        if self.size == 1:
            return self.nccl.get_unique_id()
        key = "nccl"
        if self.rank == 0:
            made = self.nccl.get_unique_id()
            self.group.store.set(key, ",".join(map(str, made)))
            return made
        self.group.store.wait([key], self.group.timeout)
        return tuple(int(n) for n in self.group.store.get(key).decode().split(","))

    def close(self) -> None:
        self.communicator.destroy()

    # ------------------------------------------------------------------------------------------------------- helpers
    def _stream(self) -> int:
        from ..cuda import current_stream
        return current_stream().cuda_stream

    def _dense(self, tensor: Tensor) -> Tensor:
        if tensor.device.type != self.device:
            raise RuntimeError(f"No backend type associated with device type {tensor.device.type}: NCCL moves tensors of CUDA "
                               "devices")
        with no_grad():
            return tensor.contiguous()

    def _type(self, tensor: Tensor) -> int:
        if tensor.dtype not in self.types:
            raise NotImplementedError(f"NCCL has no {tensor.dtype}")
        return self.types[tensor.dtype]

    def _bytes(self, tensor: Tensor) -> tuple[int, int]:
        """Address and number of bytes: for operations that only move."""
        return native.pointer(tensor._array) or 0, tensor.numel() * tensor.element_size()

    def _work(self, name: str, start: Callable[[int], None], after: Callable[[], None] | None, result: list[Tensor]) -> Work:
        try:
            start(self._stream())
        except self.nccl.NcclError as error:
            raise self.group.wrong(name, f"NCCL says: {error}") from error
        return Work(self.group, name, None, after, result)

    def _grouped(self, calls: list[Callable[[], None]]) -> None:
        """Sends and receives that belong together: one alone might wait for ever for another."""
        self.nccl.groupStart()
        try:
            for call in calls:
                call()
        finally:
            self.nccl.groupEnd()

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
        if reductions.kind(op) is ReduceOp.AVG:
            values.div_(self.size) if values.dtype.is_floating_point else values.div_(self.size, rounding_mode="trunc")
        target = view_as_real(target) if target.dtype.is_complex else target
        if native.pointer(values._array) != native.pointer(target._array):
            target.copy_(values.reshape(tuple(target.shape)))

    def all_reduce(self, tensor: Tensor, op: Any) -> Work:
        values, how = self._summands(tensor, op)
        at = self._bytes(values)[0]
        return self._work("all_reduce", lambda stream: self.communicator.allReduce(
            at, at, values.numel(), self._type(values), how, stream), lambda: self._combined(tensor, values, op), [tensor])

    def reduce(self, tensor: Tensor, root: int, op: Any) -> Work:
        values, how = self._summands(tensor, op)
        at = self._bytes(values)[0]
        return self._work("reduce", lambda stream: self.communicator.reduce(
            at, at, values.numel(), self._type(values), how, root, stream),
            (lambda: self._combined(tensor, values, op)) if self.rank == root else None, [tensor])

    def reduce_scatter_tensor(self, output: Tensor, tensor: Tensor, op: Any) -> Work:
        values, how = self._summands(tensor, op)
        with no_grad():
            made = empty((values.numel() // self.size,), dtype=values.dtype, device=values.device)
        return self._work("reduce_scatter_tensor", lambda stream: self.communicator.reduceScatter(
            self._bytes(values)[0], self._bytes(made)[0], made.numel(), self._type(values), how, stream),
            lambda: self._combined(output, made, op), [output])

    def reduce_scatter(self, output: Tensor, inputs: list[Tensor], op: Any) -> Work:
        if len({i.numel() for i in inputs}) > 1:
            raise NotImplementedError("reduce_scatter with NCCL: tensors of different sizes are not implemented in flambeau")
        with no_grad():
            return self.reduce_scatter_tensor(output, cat([i.reshape(-1) for i in inputs]), op)

    # ----------------------------------------------------------------------------------------------------- movements
    def _received(self, tensor: Tensor) -> tuple[Tensor, Callable[[], None] | None]:
        if tensor.is_contiguous():
            return tensor, None
        made = empty(tuple(tensor.shape), dtype=tensor.dtype, device=tensor.device)
        return made, lambda: tensor.copy_(made)

    def broadcast(self, tensor: Tensor, root: int) -> Work:
        buffer, back = (self._dense(tensor), None) if self.rank == root else self._received(tensor)
        return self._work("broadcast", lambda stream: self.communicator.bcast(*self._bytes(buffer), self.nccl.NCCL_UINT8, root,
                                                                              stream), back, [tensor])

    def all_gather_into_tensor(self, output: Tensor, tensor: Tensor) -> Work:
        buffer, (made, back) = self._dense(tensor), self._received(output)
        at, count = self._bytes(buffer)
        return self._work("all_gather_into_tensor", lambda stream: self.communicator.allGather(
            at, self._bytes(made)[0], count, self.nccl.NCCL_UINT8, stream), back, [output])

    def all_gather(self, outputs: list[Tensor], tensor: Tensor) -> Work:
        if all(o.numel() == tensor.numel() for o in outputs):
            with no_grad():
                made = empty((self.size, *tensor.shape), dtype=tensor.dtype, device=tensor.device)
            self.all_gather_into_tensor(made, tensor)
            return Work(self.group, "all_gather", None, lambda: [o.copy_(m) for o, m in zip(outputs, made)] and None, outputs)
        return self._exchange("all_gather", outputs, [tensor] * self.size)

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

        def start(stream: int) -> None:
            calls = []
            for rank in range(self.size):
                buffer, made = sent[rank], places[rank][0]
                for call, memory in ((self.communicator.send, buffer), (self.communicator.recv, made)):
                    if memory is not None and memory.numel():
                        calls.append(functools.partial(call, *self._bytes(memory), self.nccl.NCCL_UINT8, rank, stream))
            self._grouped(calls)

        def after() -> None:
            for _, back in places:
                if back is not None:
                    back()

        return self._work(name, start, after, [w for w in wanted if w is not None])

    def barrier(self) -> Work:
        """The host waits, too: that is what people use barriers for."""
        arrived = zeros(1, device=self.device)
        self.all_reduce(arrived, ReduceOp.SUM)
        arrived.item()
        return Work(self.group, "barrier")

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
        return self._work(f"send to rank {self.group.ranks[to]}", lambda stream: self.communicator.send(
            *self._bytes(buffer), self.nccl.NCCL_UINT8, to, stream), None, [tensor])

    def recv(self, tensor: Tensor, source: int | None, tag: int) -> Work:
        self._no_tag(tag)
        if source is None:
            raise ValueError("recv: with NCCL the sender must be named (src)")
        made, back = self._received(tensor)
        work = self._work(f"recv from rank {self.group.ranks[source]}", lambda stream: self.communicator.recv(
            *self._bytes(made), self.nccl.NCCL_UINT8, source, stream), back, [tensor])
        work._source_rank = lambda: self.group.ranks[source]  # type: ignore[attr-defined]
        return work

    def _no_tag(self, tag: int) -> None:
        if tag:
            raise NotImplementedError(f"tag={tag}: NCCL's messages have no tags")


