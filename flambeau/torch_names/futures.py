"""`torch.futures`: a value that another thread will provide."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
__all__ = ["Future", "collect_all", "wait_all"]


class Future(Generic[T]):
    """A value that comes later, or an exception in its place.

    >>> future = torch.futures.Future()
    >>> future.set_result(3)
    >>> future.wait(), future.done()
    (3, True)
    """

    def __init__(self, *, devices: Any = None):
        self._done = threading.Condition()
        self._ready, self._value, self._error, self._callbacks = False, None, None, []

    def done(self) -> bool:
        """Whether the value (or the exception) is there."""
        return self._ready

    def wait(self) -> Any:
        """The value, once it is there; raises the exception if that came."""
        with self._done:
            self._done.wait_for(lambda: self._ready)
        return self.value()

    def value(self) -> Any:
        """The value of a future that is done."""
        if not self._ready:
            raise RuntimeError("Future.value(): the future is not done yet; wait() for it")
        if self._error is not None:
            raise self._error
        return self._value

    def _finish(self, value: Any, error: Any) -> None:
        with self._done:
            if self._ready:
                raise RuntimeError("Future can only be marked completed once: its result was set already")
            self._ready, self._value, self._error = True, value, error
            callbacks, self._callbacks = self._callbacks, []
            self._done.notify_all()
        for callback in callbacks:
            callback(self)

    def set_result(self, result: Any) -> None:
        """Provides the value."""
        self._finish(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Provides an exception instead."""
        if not isinstance(result, BaseException):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._finish(None, result)

    def add_done_callback(self, callback: Callable[[Future], None]) -> None:
        """Calls the function with this future when it is done (at once if it is)."""
        with self._done:
            if not self._ready:
                self._callbacks.append(callback)
                return
        callback(self)

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A future of what the function returns when called with this one."""
        after = Future()

        def run(future: Future) -> None:
            try:
                after.set_result(callback(future))
            except Exception as error:
                after.set_exception(error)

        self.add_done_callback(run)
        return after


def collect_all(futures: list[Future]) -> Future:
    """A future of the list, done when all are."""
    collected, left = Future(), [len(futures)]
    lock = threading.Lock()
    if not futures:
        collected.set_result([])

    def one_less(_: Future) -> None:
        with lock:
            left[0] -= 1
            last = left[0] == 0
        if last:
            collected.set_result(list(futures))

    for future in futures:
        future.add_done_callback(one_less)
    return collected


def wait_all(futures: list[Future]) -> list[Any]:
    """The values of all."""
    return [future.wait() for future in collect_all(futures).wait()]
