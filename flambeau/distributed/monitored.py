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
        came = store._wait(["verdict"], seconds + 1.0)
        verdict = store.get("verdict").decode() if came else f"it says nothing. Please check rank {first} logs for faulty rank."
        if verdict:
            raise RuntimeError(f"Rank {own} successfully reached monitoredBarrier, but received errors while waiting for "
                               f"send/recv from rank {first}: {verdict}")
        return
    start, absent, text = time.monotonic(), [], ""
    for rank in group.ranks[1:]:
        left = start + seconds - time.monotonic()
        if left <= 0 and not wait_all_ranks:
            text = f"Rank {own} timed out in monitoredBarrier after {seconds * 1000:.0f} ms, before it knew of rank {rank}"
            break
        if not store._wait([str(rank)], max(0.0, left)):
            absent.append(rank)
            if not wait_all_ranks:
                break
    if absent:
        who = f"Rank{'s' if wait_all_ranks else ''} {', '.join(map(str, absent))}"
        text = f"{who} failed to pass monitoredBarrier in {seconds * 1000:.0f} ms"
    store.set("verdict", text)
    if text:
        raise RuntimeError(f"[Rank {own}]: {text}")
