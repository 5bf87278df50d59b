"""How processes that nobody started through mpiexec become one world of MPI's.

MPICH asks its launcher three things when it starts: who am I, where are the others (a table of keys and values), and tell me
when all have got here. It asks over a pipe, in lines of text: the process management interface, version 1. Here a thread of the
process itself answers them out of the rendezvous' store, whatever kind of store that is.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
from typing import Any

from ..stores import Store

__all__ = ["Manager", "node_map"]
_VARIABLES = ("PMI_FD", "PMI_RANK", "PMI_SIZE")


def node_map(hosts: list[str]) -> str:
    """Which ranks share a machine, as MPICH reads it: runs of (node, 1, ranks)."""
    numbers: dict[str, int] = {}
    runs = [(numbers.setdefault(host, len(numbers)), len(list(ranks))) for host, ranks in itertools.groupby(hosts)]
    return "(vector," + ",".join(f"({node},1,{n})" for node, n in runs) + ")"


class Manager:
    """Answers MPICH's questions about a world, one for each process; a `with` block around MPI_Init."""

    def __init__(self, store: Store, rank: int, size: int, hosts: list[str], name: str):
        self.store, self.rank, self.size, self.name = store, rank, size, name
        self.map, self.barriers = node_map(hosts), 0

    def __enter__(self) -> Manager:
        # Numbers of open files, which stay open as long as the process, and not only as long as Python.
        self.ours, self.theirs = (end.detach() for end in socket.socketpair())
        threading.Thread(target=self._serve, name="flambeau pmi", daemon=True).start()
        self.before = {name: os.environ.get(name) for name in ("PMI_PORT", "PMI_ID", *_VARIABLES)}
        for name in self.before:
            os.environ.pop(name, None)
        os.environ.update(zip(_VARIABLES, (str(self.theirs), str(self.rank), str(self.size))))
        return self

    def __exit__(self, *exc: Any) -> None:
        """The pipe stays open: MPI_Finalize asks, too. Processes that this one starts are not of its world."""
        for name, value in self.before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value

    def close(self) -> None:
        """Nobody answers any more. MPICH says farewell once more when the process has left Python: its answer lies ready."""
        try:
            os.write(self.ours, b"cmd=finalize_ack rc=0\n")
        except OSError:
            pass

    def _serve(self) -> None:
        for line in os.fdopen(self.ours, "r", closefd=False):
            words = dict(word.split("=", 1) for word in line.split() if "=" in word)
            answer = getattr(self, f"_{words.get('cmd', '')}", None)
            try:
                said = f"cmd={words.get('cmd')} rc=-1 msg=unknown" if answer is None else answer(words)
                os.write(self.ours, f"{said}\n".encode())
            except OSError:  # the process is ending
                return

    def _init(self, words: dict[str, str]) -> str:
        return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"

    def _get_maxes(self, words: dict[str, str]) -> str:
        return "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024"

    def _get_appnum(self, words: dict[str, str]) -> str:
        return "cmd=appnum appnum=0"

    def _get_my_kvsname(self, words: dict[str, str]) -> str:
        return f"cmd=my_kvsname kvsname={self.name}"

    def _get_universe_size(self, words: dict[str, str]) -> str:
        return f"cmd=universe_size size={self.size}"

    def _put(self, words: dict[str, str]) -> str:
        self.store.set(f"kvs/{words['key']}", words["value"])
        return "cmd=put_result rc=0 msg=success"

    def _get(self, words: dict[str, str]) -> str:
        key = words["key"]
        if key == "PMI_process_mapping":
            return f"cmd=get_result rc=0 msg=success value={self.map}"
        if self.store.check([f"kvs/{key}"]):
            return f"cmd=get_result rc=0 msg=success value={self.store.get(f'kvs/{key}').decode()}"
        return "cmd=get_result rc=-1 msg=key_not_found value=unknown"

    def _barrier_in(self, words: dict[str, str]) -> str:
        """When all have come. Where the store is gone the others are, too, and there is nobody to wait for."""
        self.barriers += 1
        done = f"barrier/{self.barriers}/done"
        try:
            if self.store.add(f"barrier/{self.barriers}", 1) == self.size:
                self.store.set(done, "1")
            self.store.wait([done])
        except (RuntimeError, OSError):
            pass
        return "cmd=barrier_out rc=0"

    def _finalize(self, words: dict[str, str]) -> str:
        return "cmd=finalize_ack rc=0"
