"""Operations that may still be going on."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable
from typing import Any

from ..autograd.modes import no_grad
from ..futures import Future, collect_all
from .errors import DistBackendError

__all__ = ["Work"]
_LOOK = 0.2  # seconds between looks at what else may have happened: an interrupt, a peer that is gone
_PATIENCE = 4.0  # ... and at processes that have ended in peace, whose last data may still be under way


class Work:
    """An operation that may still be going on. Its results are there after wait().

    `pending` is what moves the data (mpi/requests.py has it; None: it is done), `after` what remains to be done then. What is
    too large to be moved at once has further parts in `later`: each starts one.
    """

    def __init__(self, group: Any = None, name: str = "", pending: Any = None, after: Callable[[], None] | None = None,
                 result: Any = (), check: Any = None, later: tuple[Callable[[], Any], ...] = ()):
        self._group, self._name, self._pending, self._after, self._check = group, name, pending, after, check
        self._result, self._later = list(result), list(later)
        self._error: BaseException | None = None
        self._lock = threading.RLock()
        self._future: Future | None = None
        self._told: Callable[[], None] | None = None
        if pending is None:
            self._finish()

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """Returns when the results are there; raises what went wrong."""
        with self._lock:
            if self._pending is not None:
                try:
                    self._wait(self._group.timeout if timeout is None else timeout)
                except BaseException as error:
                    self._fail(error)
                    raise
            if self._error is not None:
                raise self._error
        self._tell()
        return True

    def _wait(self, timeout: datetime.timedelta) -> None:
        start, limit = time.monotonic(), timeout.total_seconds() if timeout.total_seconds() > 0 else float("inf")
        asked = start + _PATIENCE
        while not self._moved(min(_LOOK, limit)):
            now = time.monotonic()
            self._group.look(self, ended=now > asked)
            asked = now + _PATIENCE if now > asked else asked
            if now - start > limit:
                raise self._group.timed_out(self, limit)
        self._finish()

    def _moved(self, seconds: float | None) -> bool:
        """Whether all data have come, after at most so many seconds (None: now)."""
        try:
            done = self._pending.done() if seconds is None else self._pending.wait(seconds)
        except Exception as error:  # of MPI's: a message of another length, most of all
            if self._check is not None:
                self._check.settle()
            raise self._group.failed(self, error) from error
        if done and self._check is not None:
            self._check.compare()
        if done and self._later:
            self._pending = self._later.pop(0)()
            return self._moved(seconds)
        return done

    def _finish(self) -> None:
        if self._after is not None:
            after, self._after = self._after, None
            with no_grad():
                after()
        self._pending = None  # last: other threads take it for the sign that the results are there
        self.when_over(self._told)

    def when_over(self, tell: Callable[[], None] | None) -> None:
        """Calls a function when the operation is over, well or not."""
        self._told = tell if self._pending is not None else None
        if self._told is None and tell is not None:
            tell()

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, Exception):
            return  # an interrupt: whoever caught it may wait again
        self._error, self._after = error, None
        if self._pending is not None:
            self._pending.drop()
            self._pending = None
        self.when_over(self._told)
        self._tell()

    def _tell(self) -> None:
        """Hands the results to the future, where somebody asked for one."""
        future = self._future
        if future is None or future.done():
            return
        try:
            future.set_result(self._result) if self._error is None else future.set_exception(self._error)
        except RuntimeError:  # another thread was quicker
            pass

    def is_completed(self) -> bool:
        """Whether it is over, well or not."""
        if not self._lock.acquire(blocking=False):  # somebody waits for it
            return self._pending is None
        try:
            if self._pending is not None and self._moved(None):
                self._finish()
        except DistBackendError as error:
            self._fail(error)
        finally:
            done = self._pending is None
            self._lock.release()
        if done:
            self._tell()
        return done

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        """What went wrong."""
        return self._error

    def result(self) -> list[Any]:
        """The tensors that hold the results."""
        return list(self._result)

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> Future:
        """A future of the results. It is done when the operation is, even if nobody waits for it: a thread does."""
        if self._future is None:
            self._future = _WorkFuture(self)
            if getattr(self._pending, "on_device", False):
                self.wait()  # what uses the results comes after them on the device: no thread has to wait
            elif self._pending is not None:
                threading.Thread(target=self._wait_for_future, name="flambeau future", daemon=True).start()
        if self._pending is None:
            self._tell()
        return self._future

    def _wait_for_future(self) -> None:
        try:
            self.wait()
        except Exception:
            pass  # the future has it

    def watch(self) -> Work:
        """Has the data moved while Python computes."""
        if self._pending is not None:
            self._pending.watch()
        started = [start() for start in self._later]
        for pending in started:
            pending.watch()
        self._later = [lambda pending=pending: pending for pending in started]
        return self

    def __repr__(self) -> str:
        return f"<Work {self._name}: {'done' if self._pending is None else 'under way'}>"


class _WorkFuture(Future):
    """The future of an operation; whoever waits for it moves the data."""

    def __init__(self, work: Work):
        super().__init__()
        self._work = work

    def wait(self) -> Any:
        self._work.wait()
        return super().wait()

    def done(self) -> bool:
        return self._ready or (self._work._pending is not None and self._work.is_completed() and self._ready)


class Works(Work):
    """Several operations that are one to the user."""

    def __init__(self, works: list[Work]):
        self.works = works
        super().__init__(result=[t for work in works for t in work._result])

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        for work in self.works:
            work.wait(timeout)
        self._tell()
        return True

    def is_completed(self) -> bool:
        return all([work.is_completed() for work in self.works])

    def is_success(self) -> bool:
        return all([work.is_success() for work in self.works])

    def exception(self) -> BaseException | None:
        return next((work._error for work in self.works if work._error is not None), None)

    def get_future(self) -> Future:
        done = collect_all([work.get_future() for work in self.works])
        return done.then(lambda together: [future.value() for future in together.value()] and self.result())

    def when_over(self, tell: Callable[[], None] | None) -> None:
        (self.works[-1] if self.works else super()).when_over(tell)

    def watch(self) -> Works:
        for work in self.works:
            work.watch()
        return self
