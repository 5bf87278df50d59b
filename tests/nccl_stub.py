"""CuPy's binding of NCCL, played by MPI over the host's memory: what NcclEngine asks for is done between real processes."""

from __future__ import annotations

from typing import Any

available = True
(NCCL_INT8, NCCL_UINT8, NCCL_INT32, NCCL_UINT32, NCCL_INT64, NCCL_UINT64, NCCL_FLOAT16, NCCL_FLOAT32, NCCL_FLOAT64,
 NCCL_BFLOAT16) = range(10)
NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN = range(4)
_SIZES = {NCCL_INT8: 1, NCCL_UINT8: 1, NCCL_INT32: 4, NCCL_UINT32: 4, NCCL_INT64: 8, NCCL_UINT64: 8, NCCL_FLOAT32: 4,
          NCCL_FLOAT64: 8}
_open: list[Any] | None = None


class NcclError(RuntimeError):
    pass


class Lane:
    """The host's memory has no streams: what was asked for is done."""

    def __init__(self, index: int):
        pass

    def begin(self) -> int:
        return 0

    def use(self, tensor: Any) -> None:
        pass

    def end(self) -> None:
        return None

    def place(self) -> str:
        import os
        return f"process {os.getpid()}"


def get_unique_id() -> tuple[int, ...]:
    return tuple(range(128))


def groupStart() -> None:
    global _open
    assert _open is None
    _open = []


def groupEnd() -> None:
    global _open
    from mpi4py import MPI
    started, _open = _open, None
    MPI.Request.Waitall([start() for start in started])


class NcclCommunicator:
    def __init__(self, size: int, name: Any, rank: int):
        from mpi4py import MPI
        assert name == get_unique_id()
        self.MPI, self.world = MPI, MPI.COMM_WORLD.Dup()
        assert (self.world.size, self.world.rank) == (size, rank)
        names = ("INT8_T", "UINT8_T", "INT32_T", "UINT32_T", "INT64_T", "UINT64_T", None, "FLOAT", "DOUBLE", None)
        self.types = [name and getattr(MPI, name) for name in names]
        self.ops = [MPI.SUM, MPI.PROD, MPI.MAX, MPI.MIN]

    def _at(self, address: int, count: int, kind: int) -> list[Any]:
        return [self.MPI.buffer.fromaddress(address, count * _SIZES[kind]), count, self.types[kind]]

    def allReduce(self, send: int, receive: int, count: int, kind: int, op: int, stream: int) -> None:
        assert send == receive
        self.world.Allreduce(self.MPI.IN_PLACE, self._at(receive, count, kind), self.ops[op])

    def reduce(self, send: int, receive: int, count: int, kind: int, op: int, root: int, stream: int) -> None:
        mine = self.world.rank == root
        self.world.Reduce(self.MPI.IN_PLACE if mine else self._at(send, count, kind),
                          self._at(receive, count, kind) if mine else None, self.ops[op], root)

    def reduceScatter(self, send: int, receive: int, count: int, kind: int, op: int, stream: int) -> None:
        whole = self._at(send, count * self.world.size, kind)
        self.world.Reduce_scatter_block([whole[0], count, whole[2]], self._at(receive, count, kind), self.ops[op])

    def allGather(self, send: int, receive: int, count: int, kind: int, stream: int) -> None:
        whole = self._at(receive, count * self.world.size, kind)
        self.world.Allgather(self._at(send, count, kind), [whole[0], count, whole[2]])

    def bcast(self, address: int, count: int, kind: int, root: int, stream: int) -> None:
        self.world.Bcast(self._at(address, count, kind), root)

    def send(self, address: int, count: int, kind: int, to: int, stream: int) -> None:
        self._start(lambda: self.world.Isend(self._at(address, count, kind), to))

    def recv(self, address: int, count: int, kind: int, source: int, stream: int) -> None:
        self._start(lambda: self.world.Irecv(self._at(address, count, kind), source))

    def _start(self, call: Any) -> None:
        if _open is None:
            call().Wait()
        else:
            _open.append(call)

    def destroy(self) -> None:
        self.world.Free()
