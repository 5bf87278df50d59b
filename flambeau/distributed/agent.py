"""The launcher's work on one machine: starts workers, ends all when one fails, starts them anew as often as is allowed.

The agent of the first machine serves the store; all agents and workers meet in it. So the death of any worker, rank 0 too,
leaves the others able to say what happened.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from .stores import PrefixStore, Store

__all__ = ["Agent", "AgentGone", "Failure", "Plan", "WorkersFailed"]


@dataclass
class Plan:
    """What to start, and where this machine stands among the others."""

    command: list[str]
    workers: int
    nodes: int = 1
    node: int = 0
    address: str = "127.0.0.1"
    port: int = 0
    run_id: str = "none"
    role: str = "default"
    max_restarts: int = 0
    interval: float = 0.1
    log_dir: str | None = None
    redirects: dict[int, int] = field(default_factory=dict)  # by local rank: 1 stdout, 2 stderr, 3 both, into files
    tee: dict[int, int] = field(default_factory=dict)  # ... into files and to the terminal
    shown: set[int] | None = None  # local ranks whose output is seen; None: all
    signals: list[int] = field(default_factory=list)  # at which the launcher ends its workers, and itself
    grace: float = 2.0  # seconds that a worker has to end after SIGTERM
    virtual: bool = False  # each worker sees one GPU, and takes itself for the machine's first


@dataclass
class Failure:
    """How a worker failed."""

    rank: int
    code: int
    when: float
    text: str = ""

    def cause(self) -> str:
        if self.code < 0:
            return f"killed by {signal.Signals(-self.code).name}"
        return f"exit code {self.code}"


class WorkersFailed(Exception):
    """The job ended badly, after all restarts."""

    def __init__(self, failures: list[Failure]):
        self.failures = failures
        first = failures[0]
        lines = [f"rank {first.rank} failed first ({first.cause()})"]
        if first.text:
            lines.append(first.text.rstrip())
        lines += [f"rank {f.rank}: {f.cause()}, {f.when - first.when:.1f} s later" for f in failures[1:]]
        super().__init__("\n".join(lines))


class AgentGone(Exception):
    """The launcher of another machine has ended: nobody can start its workers anew, or say how they ended."""


class Agent:
    """Runs the workers of one machine."""

    GONE = "a launcher is gone"  # which one: the store says so when its connection breaks

    def __init__(self, plan: Plan, store: Store):
        self.plan, self.store = plan, PrefixStore(f"run {plan.run_id}", store)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.attempt = 0
        if plan.nodes > 1:
            self.store.leave_behind(self.GONE, str(plan.node))
        self.counts = self._counts()

    def _counts(self) -> list[int]:
        """How many workers each machine has."""
        plan = self.plan
        self.store.set(f"workers/{plan.node}", str(plan.workers))
        return [int(self.store.get(f"workers/{n}")) for n in range(plan.nodes)]

    def run(self) -> None:
        """Returns when all workers of all machines have ended well; raises WorkersFailed."""
        for signum in self.plan.signals:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signum, self._told_to_end)
        try:
            while True:
                failures = self._attempt()
                if not failures:
                    if self.plan.nodes > 1:
                        self.store.leave_behind("", "")
                    return
                if self.attempt >= self.plan.max_restarts:
                    raise WorkersFailed(failures)
                self._look()
                self.attempt += 1
                print(f"[flambeau.distributed.run] {WorkersFailed(failures)}\n[flambeau.distributed.run] starting all workers "
                      f"again: restart {self.attempt} of {self.plan.max_restarts}", file=sys.stderr, flush=True)
        finally:
            self._end_workers()

    def _look(self) -> None:
        if self.plan.nodes > 1 and self.store.check([self.GONE]):
            raise AgentGone(f"the launcher of machine {self.store.get(self.GONE).decode()} has ended")

    def _told_to_end(self, signum: int, frame: Any) -> None:
        self._end_workers()
        raise SystemExit(128 + signum)

    # ------------------------------------------------------------------------------------------------------ one attempt
    def _attempt(self) -> list[Failure]:
        """Starts the workers and waits for them; those that failed, the first one first."""
        plan = self.plan
        with tempfile.TemporaryDirectory(prefix="flambeau-run-") as folder:
            self.processes = [self._start(local, folder) for local in range(plan.workers)]
            failed, over = f"failed/{self.attempt}", f"over/{self.attempt}"
            while True:
                codes = [process.poll() for process in self.processes]
                if any(codes):
                    self.store.set(failed, "1")
                    failures = self._failures(codes, folder)
                    self._end_workers()
                    self._tell(failures)
                    return self._heard()
                if self.plan.nodes > 1 and self.store.check([failed]):  # on another machine
                    self._end_workers()
                    self._tell([])
                    return self._heard()
                if all(code == 0 for code in codes):
                    if plan.nodes == 1 or self._everybody(over, failed):
                        return []
                    self._look()
                    self._tell([])
                    return self._heard()
                self._look()
                time.sleep(plan.interval)

    def _everybody(self, over: str, failed: str) -> bool:
        """Whether the workers of all machines have ended well."""
        if self.store.add(over, 1) == self.plan.nodes:
            self.store.set(f"{over}/all", "1")
        while not self.store._wait_any([f"{over}/all", failed, self.GONE], 60.0):
            pass
        return self.store.check([f"{over}/all"])

    def _tell(self, failures: list[Failure]) -> None:
        self.store.set(f"failures/{self.attempt}/{self.plan.node}", json.dumps([vars(f) for f in failures]))

    def _heard(self) -> list[Failure]:
        """The failures on all machines, as far as their agents are still there."""
        found = []
        for node in range(self.plan.nodes):
            key = f"failures/{self.attempt}/{node}"
            self.store._wait_any([key, self.GONE], 10.0)
            if self.store.check([key]):
                found += [Failure(**f) for f in json.loads(self.store.get(key))]
        return sorted(found, key=lambda f: f.when)

    # --------------------------------------------------------------------------------------------------------- workers
    def _rank(self, local: int) -> int:
        return sum(self.counts[:self.plan.node]) + local

    def environment(self, local: int, folder: str) -> dict[str, str]:
        """What a worker is told, in torchrun's names."""
        plan, rank = self.plan, self._rank(local)
        said = {"RANK": rank, "WORLD_SIZE": sum(self.counts), "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": plan.workers,
                "GROUP_RANK": plan.node, "GROUP_WORLD_SIZE": plan.nodes, "ROLE_NAME": plan.role, "ROLE_RANK": rank,
                "ROLE_WORLD_SIZE": sum(self.counts), "MASTER_ADDR": plan.address, "MASTER_PORT": plan.port,
                "TORCHELASTIC_RUN_ID": plan.run_id, "TORCHELASTIC_RESTART_COUNT": self.attempt,
                "TORCHELASTIC_MAX_RESTARTS": plan.max_restarts, "TORCHELASTIC_USE_AGENT_STORE": "True",
                "TORCHELASTIC_ERROR_FILE": os.path.join(folder, f"error-{local}.json")}
        if plan.virtual:
            devices = [d for d in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if d]
            said |= {"LOCAL_RANK": 0, "CUDA_VISIBLE_DEVICES": devices[local] if devices else local}
        threads = max(1, (os.cpu_count() or 1) // plan.workers)  # else every worker would use every core
        return {"OMP_NUM_THREADS": str(threads), **os.environ, **{name: str(value) for name, value in said.items()}}

    def _start(self, local: int, folder: str) -> subprocess.Popen[bytes]:
        streams: dict[str, Any] = {}
        copies: list[tuple[str, BinaryIO | None, Any]] = []
        for bit, name in ((1, "stdout"), (2, "stderr")):
            shown = self.plan.shown is None or local in self.plan.shown
            tee, redirect = self.plan.tee.get(local, 0) & bit, self.plan.redirects.get(local, 0) & bit
            if tee:
                streams[name] = subprocess.PIPE
                copies.append((name, self._log(local, name), getattr(sys, name).buffer if shown else None))
            elif redirect:
                streams[name] = self._log(local, name)
            elif not shown:
                streams[name] = subprocess.DEVNULL
        process = subprocess.Popen(self.plan.command, env=self.environment(local, folder), **streams)
        for name, file, terminal in copies:
            said = (getattr(process, name), file, terminal, f"[{self.plan.role}{local}]:".encode())
            threading.Thread(target=_copy, args=said, daemon=True).start()
        return process

    def _log(self, local: int, name: str) -> BinaryIO:
        if self.plan.log_dir is None:
            self.plan.log_dir = tempfile.mkdtemp(prefix="flambeau-logs-")
        folder = os.path.join(self.plan.log_dir, self.plan.run_id, f"attempt_{self.attempt}", str(local))
        os.makedirs(folder, exist_ok=True)
        return open(os.path.join(folder, f"{name}.log"), "ab")

    def _failures(self, codes: list[int | None], folder: str) -> list[Failure]:
        """Who failed, and in which order: a worker's own note says when, else it was just now."""
        found = []
        for local, code in enumerate(codes):
            if not code:
                continue
            try:
                with open(os.path.join(folder, f"error-{local}.json")) as file:
                    note = json.load(file)
            except (OSError, ValueError):
                note = {}
            found.append(Failure(self._rank(local), code, note.get("time", time.time()), note.get("message", "")))
        return sorted(found, key=lambda f: f.when)

    def _end_workers(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + self.plan.grace
        for process in self.processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _copy(source: BinaryIO, file: BinaryIO | None, terminal: Any, prefix: bytes) -> None:
    for line in source:
        for target, text in ((file, line), (terminal, prefix + line)):
            if target is not None:
                target.write(text)
                target.flush()
