"""`monitored_barrier`: rank 0 sees who comes, over the store, which works when nothing else does."""

from __future__ import annotations

import time

from .groups import ProcessGroup
from .stores import PrefixStore

__all__ = ["monitored"]


def monitored(group: ProcessGroup, seconds: float, wait_all_ranks: bool) -> None:
    """Rank 0 of the group waits for each rank and tells all how it ended; the others wait for that."""
    group.told += 1
    store = PrefixStore(f"monitored/{group.told}", group.store)
    first, own = group.ranks[0], group.ranks[group.rank()]
    if group.rank():
        store.set(str(own), "1")
        if not store._wait(["verdict"], seconds + 1.0):
            raise RuntimeError(f"Rank {own} successfully reached monitoredBarrier, but received errors while waiting for "
                               f"rank {first}. Please check rank {first} logs for faulty rank.")
        verdict = store.get("verdict").decode()
        if verdict:
            raise RuntimeError(f"Rank {own} successfully reached monitoredBarrier, but: {verdict}")
        return
    start, absent = time.monotonic(), []
    for rank in group.ranks[1:]:
        if not store._wait([str(rank)], max(0.0, start + seconds - time.monotonic())):
            absent.append(rank)
            if not wait_all_ranks:
                break
    text = f"Rank {', '.join(map(str, absent))} failed to pass monitoredBarrier in {seconds * 1000:.0f} ms" if absent else ""
    store.set("verdict", text)
    if text:
        raise RuntimeError(f"[Rank {own}]: {text}")
