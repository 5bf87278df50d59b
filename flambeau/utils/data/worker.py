"""What runs in a worker process: fetch what is asked for, send it through shared memory, leave when the line is cut."""

from __future__ import annotations

import copyreg
import os
import pickle
import random
import signal
import sys
import threading
from multiprocessing.reduction import ForkingPickler
from typing import Any

from ...backends.cpu.data import loading as _cpu
from ...creation import random as _random
from ...settings import set_num_threads
from ...tensors.parameter import Parameter, _attributes
from ...tensors.tensor import Tensor, wrap
from . import channel as _channel
from .errors import ExceptionWrapper
from .fetch import _IterableDatasetFetcher, _MapDatasetFetcher

__all__ = ["WorkerInfo", "get_worker_info"]

LOOK_FOR_PARENT = 5.0  # seconds; the line tells sooner, unless someone else holds a copy of the parent's end


class WorkerInfo:
    """Which worker this is: `id`, `num_workers`, `seed` and its copy of the `dataset`."""

    id: int
    num_workers: int
    seed: int
    dataset: Any

    def __init__(self, **values: Any):
        self.__dict__.update(values, _keys=tuple(values))

    def __setattr__(self, key: str, value: Any) -> None:
        raise RuntimeError(f"Cannot assign attributes to {type(self).__name__} objects")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={getattr(self, k)}' for k in self._keys)})"


_worker_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker process: which one it is; None in the main process.

    >>> torch.utils.data.get_worker_info() is None
    True
    """
    return _worker_info


class Ended:
    """Sent once when a worker's stream has no more samples."""


ENDED = Ended()


class Job:
    """All that a worker needs to know at its start."""

    def __init__(self, **values: Any):
        self.__dict__.update(values)

    def fetcher(self) -> Any:
        kind = _IterableDatasetFetcher if self.iterable else _MapDatasetFetcher
        return kind(self.dataset, self.auto_collation, self.collate_fn, self.drop_last)


# ------------------------------------------------------------------------------------------------ tensors in messages
def _reducers(pool: Any) -> dict[type, Any]:
    """How the pickler of this worker writes tensors: as places in shared memory. All else as multiprocessing does."""
    def of_tensor(t: Tensor) -> Any:
        if not t.is_leaf:
            raise RuntimeError("Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd "
                               "does not support crossing process boundaries. If you just want to transfer the data, "
                               "call detach() on the tensor before serializing (e.g., putting it on the queue).")
        if t.is_meta or _attributes(t):
            return t.__reduce_ex__(5)
        make, args = _cpu.packed_array(t._array, pool)
        return _made_tensor, (make, args, t.requires_grad)

    return {**copyreg.dispatch_table, **ForkingPickler._extra_reducers, Tensor: of_tensor, Parameter: _of_parameter}


def _of_parameter(p: Parameter) -> Any:
    return p.__reduce_ex__(5)


def _made_tensor(make: Any, args: tuple[Any, ...], requires_grad: bool) -> Tensor:
    made = wrap(make(*args))
    return made.requires_grad_(True) if requires_grad else made


# --------------------------------------------------------------------------------------------------------- the worker
def _generate_state(base_seed: int, worker_id: int) -> tuple[int, ...]:
    """The seed of NumPy's generator in a worker."""
    return _cpu.numpy_seed(base_seed, worker_id)


def _seed(base_seed: int, worker_id: int) -> None:
    seed = base_seed + worker_id
    random.seed(seed)
    _random.default_generator._lock = threading.Lock()  # another thread may have held it when this process was forked
    _random.manual_seed(seed)
    if "numpy" in sys.modules:
        _cpu.seed_numpy(base_seed, worker_id)


def run(job: Job, line: Any) -> None:
    """A worker process's whole life."""
    global _worker_info
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a handler of the main program is not meant for here
    _channel.close_inherited()
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # see iterators.py
        set_num_threads(1)
        _seed(job.base_seed, job.worker_id)
        _worker_info = WorkerInfo(id=job.worker_id, num_workers=job.num_workers, seed=job.base_seed + job.worker_id,
                                  dataset=job.dataset)
        _Server(job, line).serve()
    except (KeyboardInterrupt, EOFError, ConnectionError):
        pass  # the main process raises KeyboardInterrupt itself; or it has hung up, or is gone
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # from here on it ends anyway


class _Server:
    def __init__(self, job: Job, line: Any):
        self.job, self.line = job, line
        self.pool = _cpu.start_sending(line.send_segment)
        self.packer = _cpu.Packer(self.pool, _reducers(self.pool))
        self.where = f"in DataLoader worker process {job.worker_id}"
        self.failure: ExceptionWrapper | None = None
        self.ended = False
        self.fetcher: Any = None
        self._prepare(job.init_fn)

    def _prepare(self, init_fn: Any) -> None:
        try:
            if init_fn is not None:
                init_fn(self.job.worker_id)
            self.fetcher = self.job.fetcher()
        except Exception:
            self.failure = ExceptionWrapper(where=self.where)

    def serve(self) -> None:
        parent = os.getppid()
        while True:
            while not self.line.wait(LOOK_FOR_PARENT):
                if os.getppid() != parent:
                    return
            for kind, message in self.line.arrived():
                if kind == _channel.RESUME:
                    self.ended = False
                    self._prepare(None)
                    self.line.send(_channel.RESUME, b"")
                else:
                    self._answer(*pickle.loads(message))

    def _answer(self, number: int, index: Any, returned: list[int]) -> None:
        for segment in returned:
            self.pool.give(segment)
        if self.ended:
            return  # the main process knows, and waits for no answer
        message = self._packed(number, self._fetched(index))
        self.line.send(_channel.RESULT, message)

    def _fetched(self, index: Any) -> Any:
        if self.failure is not None:
            failure, self.failure = self.failure, None
            return failure
        try:
            return self.fetcher.fetch(index)
        except Exception as error:
            if isinstance(error, StopIteration) and self.job.iterable:
                self.ended = True
                return ENDED
            return ExceptionWrapper(where=self.where)

    def _packed(self, number: int, data: Any) -> bytes:
        try:
            return self.packer.pack((number, data))
        except Exception:  # cannot be pickled
            failure = ExceptionWrapper(where=self.where)
            if isinstance(data, ExceptionWrapper):  # an exception type that the main process could not find
                failure.exc_type, failure.exc_msg = RuntimeError, data.exc_msg
            return self.packer.pack((number, failure))
