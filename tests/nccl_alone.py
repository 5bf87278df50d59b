"""CuPy's binding of NCCL as one process alone sees it, over whatever plays the GPU: copies, in the order of a stream."""

from __future__ import annotations

from flambeau.backends.cuda import driver

available = True
(NCCL_INT8, NCCL_UINT8, NCCL_INT32, NCCL_UINT32, NCCL_INT64, NCCL_UINT64, NCCL_FLOAT16, NCCL_FLOAT32, NCCL_FLOAT64,
 NCCL_BFLOAT16) = range(10)
NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN = range(4)
_SIZES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2)
_sent: list[tuple[int, int]] = []


class NcclError(RuntimeError):
    pass


def get_unique_id() -> tuple[int, ...]:
    return tuple(range(128))


def groupStart() -> None:
    assert not _sent


def groupEnd() -> None:
    assert not _sent


class NcclCommunicator:
    def __init__(self, size: int, name: tuple[int, ...], rank: int):
        assert (size, rank, name) == (1, 0, get_unique_id())

    def _moved(self, send: int, receive: int, count: int, kind: int, stream: int) -> None:
        if send != receive and count:
            driver.machine().copy(receive, send, count * _SIZES[kind], stream)

    def allReduce(self, send: int, receive: int, count: int, kind: int, op: int, stream: int) -> None:
        self._moved(send, receive, count, kind, stream)

    reduceScatter = allReduce

    def reduce(self, send: int, receive: int, count: int, kind: int, op: int, root: int, stream: int) -> None:
        self._moved(send, receive, count, kind, stream)

    def allGather(self, send: int, receive: int, count: int, kind: int, stream: int) -> None:
        self._moved(send, receive, count, kind, stream)

    def bcast(self, address: int, count: int, kind: int, root: int, stream: int) -> None:
        assert root == 0

    def send(self, address: int, count: int, kind: int, to: int, stream: int) -> None:
        assert to == 0
        _sent.append((address, count * _SIZES[kind]))

    def recv(self, address: int, count: int, kind: int, source: int, stream: int) -> None:
        given, nbytes = _sent.pop(0)
        assert source == 0 and nbytes == count * _SIZES[kind]
        driver.machine().copy(address, given, nbytes, stream)

    def destroy(self) -> None:
        pass
