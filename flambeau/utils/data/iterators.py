"""The iterators behind a DataLoader: one makes the batches itself, the other has worker processes make them.

The second keeps `prefetch_factor` tasks with every worker, handed out in turns, and gives the results in the order of
the tasks. Each worker has a line of its own (see channel.py), and one poll watches all lines and all processes: a
result, an end and a death are all noticed at once.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import time
import warnings
from collections import deque
from collections.abc import Iterator
from typing import Any

from ...backends.cpu.data import loading as _cpu
from ...tensors.pinning import has_device
from . import channel as _channel
from . import worker as _worker
from ._utils.pin_memory import pin_memory as pinned
from .errors import ExceptionWrapper
from .sampler import drawn_seed

__all__ = ["_BaseDataLoaderIter", "_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"]

GRACE = 5.0  # seconds that a worker has to finish its batch and leave before it is terminated
UNREAD = 1 << 16  # bytes of tasks on the way to a worker: fits its socket's buffer, so that sending never blocks


class _BaseDataLoaderIter:
    def __init__(self, loader: Any):
        self._dataset = loader.dataset
        self._dataset_kind = loader._dataset_kind
        self._IterableDataset_len_called = loader._IterableDataset_len_called
        self._auto_collation = loader._auto_collation
        self._drop_last = loader.drop_last
        self._index_sampler = loader._index_sampler
        self._num_workers = loader.num_workers
        self._timeout = loader.timeout
        self._collate_fn = loader.collate_fn
        self._persistent_workers = loader.persistent_workers
        self._pin_memory = bool(loader.pin_memory) and has_device()
        if loader.pin_memory and not self._pin_memory:
            warnings.warn("'pin_memory' argument is set as true but no accelerator is found, then device pinned memory "
                          "won't be used.", stacklevel=4)
        self._sampler_iter = iter(self._index_sampler)
        self._base_seed = drawn_seed(loader.generator)  # also without workers: PyTorch takes it too
        self._num_yielded = 0

    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self._sampler_iter = iter(self._index_sampler)
        self._num_yielded = 0
        self._IterableDataset_len_called = loader._IterableDataset_len_called

    def _next_index(self) -> Any:
        return next(self._sampler_iter)

    def _next_data(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not implement _next_data")

    def __next__(self) -> Any:
        data = self._next_data()
        self._num_yielded += 1
        promised = self._IterableDataset_len_called
        if promised is not None and self._dataset_kind and self._num_yielded > promised:
            self._warn_of_length(promised)
        return pinned(data) if self._pin_memory else data

    next = __next__

    def _warn_of_length(self, promised: int) -> None:
        text = (f"Length of IterableDataset {self._dataset} was reported to be {promised} (when accessing "
                f"len(dataloader)), but {self._num_yielded} samples have been fetched. ")
        if self._num_workers > 0:
            text += ("For multiprocessing data-loading, this could be caused by not properly configuring the "
                     "IterableDataset replica at each worker: get_worker_info() says which part is a worker's own.")
        warnings.warn(text, stacklevel=3)

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __getstate__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    def __init__(self, loader: Any):
        super().__init__(loader)
        if self._timeout != 0 or self._num_workers != 0:
            raise AssertionError("timeout and num_workers need worker processes: got "
                                 f"timeout={self._timeout}, num_workers={self._num_workers}")
        from .dataloader import _DatasetKind
        self._dataset_fetcher = _DatasetKind.create_fetcher(
            self._dataset_kind, self._dataset, self._auto_collation, self._collate_fn, self._drop_last)

    def _next_data(self) -> Any:
        return self._dataset_fetcher.fetch(next(self._sampler_iter))


class _Helper:
    """A worker process as the main process sees it."""

    def __init__(self, context: Any, job: _worker.Job):
        self.line, theirs = _channel.line()
        try:
            self.process = context.Process(target=_worker.run, args=(job, theirs), daemon=True)
            with _without_interrupts():
                self.process.start()
        except BaseException:
            self.line.close()
            raise
        finally:
            theirs.close()  # or the line would not tell of the worker's death
        self.mapped = _cpu.shared.Mapped()
        self.active = True      # its stream has not ended
        self.tasks = 0          # handed to it and not yet answered
        self.unread = 0         # bytes of those, as far as they were sent
        self.costs: deque[int] = deque()
        self.backlog: deque[tuple[int, Any]] = deque()

    def ask(self, number: int, index: Any) -> None:
        self.tasks += 1
        self.backlog.append((number, index))
        self.pump()

    def pump(self) -> None:
        """Sends what the worker's buffer holds for certain. Were sending to block here while the worker blocks sending
        a large result, both would wait for ever."""
        while self.backlog and (not self.unread or self.unread < UNREAD):
            message = pickle.dumps((*self.backlog[0], self.mapped.take_returned()), 5)
            cost = len(message) + 1024  # what the system adds to each
            self.backlog.popleft()
            self.unread += cost
            self.costs.append(cost)
            try:
                self.line.send(_channel.TASK, message)
            except ConnectionError:
                return  # it has died: noticed and reported when its answer is waited for

    def answered(self) -> None:
        self.tasks -= 1
        if self.costs:
            self.unread -= self.costs.popleft()
        self.pump()

    def forget_tasks(self) -> None:
        self.tasks = self.unread = 0
        self.costs.clear()
        self.backlog.clear()


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    _helpers: list[_Helper] = []
    _shutdown = True  # nothing to end yet: so __del__ knows when __init__ did not get far

    def __init__(self, loader: Any):
        super().__init__(loader)
        self._prefetch_factor = loader.prefetch_factor
        self._in_order = loader.in_order
        if self._num_workers <= 0 or self._prefetch_factor <= 0:
            raise AssertionError(f"num_workers and prefetch_factor must be positive, got {self._num_workers} and "
                                 f"{self._prefetch_factor}")
        self._pid = os.getpid()
        self._poll = select.poll()
        self._by_fd: dict[int, _Helper] = {}
        self._by_sentinel: dict[int, _Helper] = {}
        self._helpers = []
        self._workers: list[Any] = []  # the processes; programs look at them after the end, too
        self._shutdown = False
        try:
            self._start(loader)
            self._reset(loader, first_iter=True)
        except BaseException:
            self._shutdown_workers()
            raise

    def _start(self, loader: Any) -> None:
        import multiprocessing
        context = loader.multiprocessing_context or multiprocessing
        for i in range(self._num_workers):
            job = _worker.Job(dataset=self._dataset, iterable=bool(self._dataset_kind), collate_fn=self._collate_fn,
                              auto_collation=self._auto_collation, drop_last=self._drop_last,
                              base_seed=self._base_seed, init_fn=loader.worker_init_fn, worker_id=i,
                              num_workers=self._num_workers)
            helper = _Helper(context, job)
            self._helpers.append(helper)
            self._workers.append(helper.process)
            self._by_fd[helper.line.fileno()] = helper
            self._by_sentinel[helper.process.sentinel] = helper
            self._poll.register(helper.line, select.POLLIN)
            self._poll.register(helper.process.sentinel, select.POLLIN)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Starts an epoch: workers of an earlier one first finish what they were told, and say so."""
        super()._reset(loader, first_iter)
        self._sent = self._taken = 0              # numbers of the next task to hand out and of the next result to give
        self._tasks: dict[int, _Helper] = {}      # tasks without an answer
        self._results: dict[int, Any] = {}        # answers that are not yet taken
        self._ended_by: dict[int, _Helper] = {}   # whose stream had ended at a task
        self._turn = 0
        self._resuming = 0
        if not first_iter:
            self._resume()
        for helper in self._helpers:
            helper.active = True
        for _ in range(self._prefetch_factor * self._num_workers):
            self._hand_out()

    def _resume(self) -> None:
        for helper in self._helpers:
            helper.forget_tasks()
            try:
                helper.line.send(_channel.RESUME, b"")
            except ConnectionError:
                self._report([helper])
        self._resuming = len(self._helpers)
        while self._resuming:
            self._receive()

    # --------------------------------------------------------------------------------------------------- handing out
    def _hand_out(self) -> None:
        """The next task goes to the next worker in turn."""
        helper = self._next_helper()
        if helper is None:
            return
        try:
            index = next(self._sampler_iter)
        except StopIteration:
            return
        self._turn = (self._helpers.index(helper) + 1) % self._num_workers
        self._tasks[self._sent] = helper
        number, self._sent = self._sent, self._sent + 1
        helper.ask(number, index)

    def _next_helper(self) -> _Helper | None:
        active = sum([h.active for h in self._helpers])
        for i in range(self._num_workers):
            helper = self._helpers[(self._turn + i) % self._num_workers]
            # without an order to keep, a slow worker is not given more than its share
            if helper.active and (self._in_order or
                                  helper.tasks < self._prefetch_factor * self._num_workers // active):
                return helper
        return None

    # ----------------------------------------------------------------------------------------------------- receiving
    def _next_data(self) -> Any:
        if self._shutdown:
            raise StopIteration
        while True:
            number = self._next_number()
            if number is None:
                if not self._persistent_workers:
                    self._shutdown_workers()
                raise StopIteration
            if number in self._results:
                return self._delivered(number)
            self._receive()

    def _next_number(self) -> int | None:
        """The task whose result is next (there or not); None when all have been given."""
        if not self._in_order and self._results:
            return next(iter(self._results))
        while self._taken < self._sent:
            number = self._taken
            data = self._results.get(number)
            if isinstance(data, _worker.Ended):
                self._retire(number)
            elif number in self._results or (number in self._tasks and self._tasks[number].active):
                return number
            else:  # asked of a stream that had ended, or given already
                self._tasks.pop(number, None)
            self._taken += 1
        return None

    def _retire(self, number: int) -> None:
        """The worker of this task has no more samples; its place in the rounds goes to the others."""
        del self._results[number]
        self._ended_by.pop(number).active = False
        self._hand_out()

    def _delivered(self, number: int) -> Any:
        data = self._results.pop(number)
        if number == self._taken:
            self._taken += 1
        self._hand_out()
        if isinstance(data, ExceptionWrapper):
            data.reraise()
        return data

    def _receive(self) -> None:
        """Waits until something happens, and takes note of it."""
        events = self._poll.poll(self._timeout * 1000 if self._timeout > 0 else None)
        if not events:
            self._shutdown_workers()
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
        dead = []
        for fd, _ in events:
            helper = self._by_fd.get(fd)
            if helper is None:
                dead.append(self._by_sentinel[fd])
                continue
            try:
                messages = list(helper.line.arrived())
            except (EOFError, ConnectionError):
                dead.append(helper)
                continue
            for kind, message in messages:
                self._note(helper, kind, message)
        if dead and len(dead) == len(events):  # nothing else to read: what a dying worker sent is taken first
            self._report(dead)

    def _note(self, helper: _Helper, kind: int, message: memoryview) -> None:
        if kind == _channel.SEGMENT:
            helper.mapped.add(*helper.line.segment(message))
        elif kind == _channel.RESUME:
            self._resuming -= 1
        else:
            try:
                number, data = _cpu.unpack(message, helper.mapped)
            except BaseException:  # whose answer it was is not known, so waiting for it would never end
                self._shutdown_workers()
                raise
            if self._resuming:
                return  # of the epoch before
            helper.answered()
            self._tasks.pop(number, None)
            if isinstance(data, _worker.Ended):
                if self._in_order:
                    self._ended_by[number] = helper
                else:
                    helper.active = False
                    self._hand_out()
                    return
            self._results[number] = data

    # -------------------------------------------------------------------------------------------------------- ending
    def _report(self, dead: list[_Helper]) -> None:
        gone = {id(h): h for h in dead}.values()
        told = []
        for helper in gone:
            helper.process.join(10)  # it ends: its line is cut first
            told.append(_how_it_ended(helper.process))
        pids = ", ".join(str(h.process.pid) for h in gone)
        self._shutdown_workers()
        raise RuntimeError(f"DataLoader worker (pid(s) {pids}) exited unexpectedly ({'; '.join(told)})")

    def _shutdown_workers(self) -> None:
        """Ends all workers and waits until they are gone. Their shared memory has no names: it goes with its users."""
        if self._shutdown or self._pid != os.getpid():  # a forked child has a copy of this object, but not the workers
            return
        self._shutdown = True
        self._tasks, self._results = {}, {}
        for helper in self._helpers:
            helper.line.hang_up()
        deadline = time.monotonic() + GRACE
        for helper in self._helpers:
            _end(helper.process, deadline)
        self._helpers = []  # and with them what is mapped and not in use

    def __del__(self):
        try:
            self._shutdown_workers()
        except (AttributeError, TypeError):  # the interpreter is being taken down; daemonic workers end with it
            pass


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ctrl-C reaches this thread afterwards, and a worker started meanwhile when it is ready to leave without a word."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(process: Any, deadline: float) -> None:
    process.join(max(deadline - time.monotonic(), 0.01))
    for stronger in (process.terminate, process.kill):
        if process.is_alive():
            stronger()
            process.join(GRACE)


def _how_it_ended(process: Any) -> str:
    code = process.exitcode
    if code is None:
        return f"DataLoader worker (pid {process.pid}) hung up"
    if code < 0:
        name = signal.Signals(-code).name
        return f"DataLoader worker (pid {process.pid}) is killed by signal: {signal.strsignal(-code)} ({name})"
    return f"DataLoader worker (pid {process.pid}) left with exit code {code}"
