"""A thread per process that learns what happens to the others: who has died, who asks how far this process is.

It sleeps in the store. When a process ends without farewell its connection to the store breaks, and the store says so to all;
when a rank has waited too long it asks, and every process that is alive answers, whatever its main thread is doing.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from .ending import at_end
from .errors import DistError
from .stores import PrefixStore, Store

if TYPE_CHECKING:
    from .groups import ProcessGroup

__all__ = ["Monitor"]
_ANSWERS = 2.0  # seconds that the others have to answer


class Monitor:
    """Looks after the processes of a world."""

    def __init__(self, store: Store, rank: int, size: int):
        self.store, self.rank, self.size = PrefixStore("monitor", store), rank, size
        self.groups: weakref.WeakValueDictionary[str, ProcessGroup] = weakref.WeakValueDictionary()
        self.gone: int | None = None
        self.lost = False  # the store is gone, and with it the launcher or the rank that served it
        self.stopped = False
        self.asked = 0
        self.thread = threading.Thread(target=self._run, name="flambeau monitor", daemon=True)
        self.thread.start()
        at_end(lambda failed: None if failed else self.stop())

    def _run(self) -> None:
        try:
            self.store.leave_behind("gone", str(self.rank))
            while not self.stopped:
                question = f"question/{self.asked + 1}"
                if not self.store._wait_any(["gone", question, f"stop/{self.rank}"], 3600.0):
                    continue
                if self.store.check([f"stop/{self.rank}"]):
                    self.store.leave_behind("", "")
                    return
                if self.store.check(["gone"]):
                    self.gone = int(self.store.get("gone"))
                    return
                self.asked += 1
                for name, group in list(self.groups.items()):
                    self.store.set(f"answer/{self.asked}/{name}/{self.rank}", group.doing())
        except (DistError, OSError):
            self.lost = not self.stopped

    def stop(self) -> None:
        """A farewell: this process ends in peace."""
        if self.stopped:
            return
        self.stopped = True
        try:
            self.store.set(f"stop/{self.rank}", "1")
            self.thread.join(2.0)
        except (DistError, OSError):
            pass

    def look(self, group: ProcessGroup, work: Any) -> None:
        """Raises if a process of the group is gone."""
        where = "" if work is None else f" during {work._name}"
        if self.gone is not None:
            raise group.wrong("process group", f"rank {self.gone} has ended without farewell{where}: it was killed, or failed")
        if self.lost:
            raise group.wrong("process group", f"the process that serves the store (rank 0, or the launcher) has ended{where}")

    def look_for_ended(self, group: ProcessGroup, work: Any) -> None:
        """Raises if a process of the group has ended, though in peace: it will not come to this collective any more."""
        try:
            ended = [r for r in group.ranks if self.store.check([f"stop/{r}"])]
        except DistError:
            return
        if ended:
            raise group.wrong(work._name, f"rank {', '.join(map(str, ended))} has ended, and will not come")

    def ask(self, group: ProcessGroup) -> str:
        """What every rank of a group is doing, as text for an error."""
        try:
            number = self.store.add("questions", 1)
            self.store.set(f"question/{number}", "1")
            lines = []
            for rank in group.ranks:
                key = f"answer/{number}/{group.group_name}/{rank}"
                if self.store._wait([key], _ANSWERS):
                    lines.append(f"  rank {rank}: last was {self.store.get(key).decode()}")
                else:
                    lines.append(f"  rank {rank}: does not answer (it has ended, is stopped, or never came)")
            return "\n".join(lines)
        except DistError as error:
            return f"  (nobody can be asked: {error})"
