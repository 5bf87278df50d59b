"""Events as files: the JSON that chrome://tracing and Perfetto read, and stacks for flame graphs."""

from __future__ import annotations

import gzip
import json
import os
import socket
import sys
from collections.abc import Iterable
from typing import Any

from .events import MEMORY_EVENT_NAME


def _category(e: Any) -> str:
    return "user_annotation" if e.is_user_annotation else "cpu_op"


def _arguments(e: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"External id": e.id}
    if e.sequence_nr >= 0:
        made |= {"Sequence number": e.sequence_nr, "Fwd thread id": e.fwd_thread or 0}
    if e.input_shapes:
        made |= {"Input Dims": e.input_shapes, "Concrete Inputs": [repr(v) if v is not None else "" for v in e.concrete_inputs]}
    if e.stack:
        made["Call stack"] = ";".join(e.stack)
    if e.flops:
        made["flops"] = e.flops
    return made


def _flows(events: Iterable[Any], place: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """Arrows from the operation that made a node to the event of that node in the backward pass."""
    made, number = {}, 0
    for e in events:
        if e.sequence_nr < 0:
            continue
        if e.scope == 0 and not e.fwd_thread:
            made[e.sequence_nr] = e  # the innermost of several
        elif e.scope == 1 and e.sequence_nr in made:
            number += 1
            flow = {**place, "cat": "fwdbwd", "name": "fwdbwd", "id": number}
            yield {**flow, "ph": "s", "tid": made[e.sequence_nr].thread, "ts": made[e.sequence_nr].time_range.start}
            yield {**flow, "ph": "f", "bp": "e", "tid": e.thread, "ts": e.time_range.start}


def trace_events(events: Iterable[Any]) -> list[dict[str, Any]]:
    """The events in the form of the Trace Event Format; times are in microseconds."""
    place = {"pid": os.getpid()}
    threads = sorted({e.thread for e in events})
    made: list[dict[str, Any]] = [{**place, "ph": "M", "name": "process_name", "tid": 0, "ts": 0,
                                   "args": {"name": os.path.basename(sys.executable) or "python"}}]
    made += [{**place, "ph": "M", "name": "thread_name", "tid": t, "ts": 0, "args": {"name": f"thread {t}"}} for t in threads]
    for e in events:
        if e.name == MEMORY_EVENT_NAME:
            made.append({**place, "ph": "i", "s": "t", "cat": "cpu_instant_event", "name": e.name, "tid": e.thread,
                         "ts": e.time_range.start, "args": {"Bytes": e.cpu_memory_usage, "Device Type": 0}})
            continue
        made.append({**place, "ph": "X", "cat": _category(e), "name": e.trace_name, "tid": e.thread, "ts": e.time_range.start,
                     "dur": e.cpu_time_total, "args": _arguments(e)})
    return [*made, *_flows(events, place)]


def write_trace(path: str, events: Iterable[Any], **about: Any) -> None:
    """Writes all events, and what is to be said about them, as one JSON object."""
    path = os.fspath(path)
    whole = {"schemaVersion": 1, "deviceProperties": [], "host_name": socket.gethostname(), "displayTimeUnit": "ms", **about,
             "traceName": path, "traceEvents": trace_events(events)}
    with gzip.open(path, "wt") if path.endswith(".gz") else open(path, "w") as file:
        json.dump(whole, file)


_ONE_WORD = str.maketrans(" ;\t\n", "____")


def write_stacks(path: str, events: Iterable[Any], metric: str) -> None:
    with open(path, "w") as file:
        for e in events:
            spent = int(getattr(e, metric))
            if e.stack and spent > 0:
                file.write(";".join([line.translate(_ONE_WORD) for line in reversed(e.stack)]) + f" {spent}\n")
