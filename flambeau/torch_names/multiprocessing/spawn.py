"""Several processes running one function; the first failure ends all of them and is raised here with its traceback."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["ProcessContext", "ProcessException", "ProcessExitedException", "ProcessRaisedException", "SpawnContext",
           "spawn", "start_processes"]


class ProcessException(Exception):
    """One of the processes failed: `error_index` says which, `error_pid` its process id."""

    def __init__(self, msg: str, error_index: int, pid: int):
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.pid = self.error_pid = pid

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """The function raised; the text holds its traceback."""


class ProcessExitedException(ProcessException):
    """The process left by itself or was killed."""

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None):
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


def _run(fn: Callable[..., Any], i: int, args: tuple[Any, ...], errors: Any) -> None:
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        pass  # the parent gets it too
    except Exception:
        text = traceback.format_exc()[-30000:]  # fits the pipe: nobody reads it before this process has ended
        errors.send_bytes(text.encode(errors="replace")[-50000:])
        sys.exit(1)


class ProcessContext:
    """The running processes: `join` waits for them, `pids` names them."""

    def __init__(self, processes: list[Any], errors: list[Any]):
        self.processes = processes
        self._errors = errors
        self.sentinels = {process.sentinel: index for index, process in enumerate(processes)}

    def pids(self) -> list[int]:
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits for the processes: True when all have ended well, False when one was still running after `timeout`.
        Where one has failed, the others are ended (with SIGTERM, and after the grace period with SIGKILL) and its
        failure is raised."""
        if not self.sentinels:
            return True
        failed = None
        for sentinel in multiprocessing.connection.wait(self.sentinels.keys(), timeout=timeout):
            index = self.sentinels.pop(sentinel)
            self.processes[index].join()
            if self.processes[index].exitcode != 0:
                failed = index
                break
        if failed is None and self.sentinels:
            return False
        try:
            if failed is not None:
                self._end_all(grace_period)
                self._raise(failed)
        finally:
            for pipe in self._errors:
                pipe.close()
        return True

    def _end_all(self, grace_period: float | None) -> None:
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        deadline = None if grace_period is None else time.monotonic() + grace_period
        for process in self.processes:
            process.join(None if deadline is None else max(deadline - time.monotonic(), 0))
            if process.is_alive():
                process.kill()
                process.join()

    def _raise(self, index: int) -> None:
        process = self.processes[index]
        try:
            text = self._errors[index].recv_bytes().decode(errors="replace")
        except EOFError:  # it said nothing
            text = None
        if text is not None:
            raise ProcessRaisedException(f"\n\n-- Process {index} terminated with the following error:\n{text}", index,
                                         process.pid)
        code = process.exitcode
        if code < 0:
            name = signal.Signals(-code).name
            raise ProcessExitedException(f"process {index} terminated with signal {name}", index, process.pid, code, name)
        raise ProcessExitedException(f"process {index} terminated with exit code {code}", index, process.pid, code)


class SpawnContext(ProcessContext):
    """What `spawn(join=False)` returns."""


def start_processes(fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True,
                    daemon: bool = False, start_method: str = "spawn") -> ProcessContext | None:
    """Runs fn(i, *args) in nprocs processes, i being 0, 1, ...; see `spawn`."""
    start = multiprocessing.get_context(start_method)
    processes: list[Any] = []
    errors: list[Any] = []
    for i in range(nprocs):
        ours, theirs = start.Pipe(duplex=False)
        process = start.Process(target=_run, args=(fn, i, args, theirs), daemon=daemon)
        process.start()
        theirs.close()
        processes.append(process)
        errors.append(ours)
    made = SpawnContext(processes, errors)
    if not join:
        return made
    while not made.join():
        pass
    return None


def spawn(fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
          start_method: str = "spawn") -> ProcessContext | None:
    """Runs fn(i, *args) in nprocs fresh processes. With join (the default) waits for all of them, and raises what the
    first one that fails raised; without, returns a context whose `join` does."""
    if start_method != "spawn":
        warnings.warn(f"This method only supports start_method=spawn (got: {start_method}).\nTo use a different "
                      "start_method use:\n\t\t torch.multiprocessing.start_processes(...)", FutureWarning, stacklevel=2)
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")


