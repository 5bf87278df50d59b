"""The user's place in a program: the one way to find it, for errors, warnings, version counters and the compiler."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any

_PACKAGE = __name__.partition(".")[0]
_our_files: dict[str, bool] = {}  # file -> whether it belongs to flambeau: asked at every in-place change


def is_ours(frame: FrameType) -> bool:
    """Whether a frame runs flambeau's own code."""
    file = frame.f_code.co_filename
    ours = _our_files.get(file)
    if ours is None:
        ours = _our_files[file] = frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE
    return ours


def user_frame() -> FrameType | None:
    """The innermost frame that is not flambeau's own."""
    frame = sys._getframe(1)
    while frame is not None:  # `is_ours`, written out: a call per frame would show at every in-place change
        file = frame.f_code.co_filename
        ours = _our_files.get(file)
        if ours is None:
            ours = is_ours(frame)
        if not ours:
            break
        frame = frame.f_back
    return frame


def asked_by_user() -> bool:
    """Whether the user's code has called what calls this, if need be through a capture or what looks for overrides."""
    frame: FrameType | None = sys._getframe(2)
    between = f"{_PACKAGE}.compiler.", f"{_PACKAGE}.ops.core.overrides"
    while frame is not None and frame.f_globals.get("__name__", "").startswith(between):
        frame = frame.f_back
    return frame is not None and not is_ours(frame)


def user_frames() -> Iterator[FrameType]:
    """All frames that are not flambeau's own, from the inside out."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not is_ours(frame):
            yield frame
        frame = frame.f_back


def raised_in(trace: TracebackType | None) -> list[tuple[FrameType, int]]:
    """The frames of a traceback with the instruction each was at, from the outside in."""
    found = []
    while trace is not None:
        found.append((trace.tb_frame, trace.tb_lasti))
        trace = trace.tb_next
    return found


def line_of(code: CodeType, instruction: int) -> int | None:
    """The line of the source that an instruction belongs to."""
    line = None
    for start, end, number in code.co_lines():
        if start <= instruction < end:
            line = number
    return line


def location(where: tuple[CodeType, int] | None) -> str:
    """`File "train.py", line 3, in step` and, on a line of its own, the source."""
    if where is None:
        return "a place that is not known"
    code, instruction = where
    line = line_of(code, instruction)
    text = source_line(code.co_filename, line)
    return f'File "{code.co_filename}", line {line}, in {code.co_name}' + (f"\n    {text}" if text else "")


def source_line(file: str, line: int | None) -> str:
    """A line of a source file without its indentation; empty where there is none to be read."""
    return "" if line is None else linecache.getline(file, line).strip()


def place(frame: FrameType | None) -> tuple[CodeType, int] | None:
    """Where a frame is now, as `location` takes it. Unlike the frame it keeps no variables alive."""
    return None if frame is None else (frame.f_code, frame.f_lasti)


def variable_names(wanted: Any, most: int = 3) -> list[str]:
    """Names by which the functions under way know an object, the innermost first. wanted: a predicate of values."""
    names: list[str] = []
    for frame in user_frames():
        for name, value in list(frame.f_locals.items()):
            if name in names or not name.isidentifier() or name.startswith("_"):
                continue
            try:
                found = wanted(value)
            except Exception:  # an object of the user's may do anything when it is looked at
                found = False
            if found:
                names.append(name)
                if len(names) == most:
                    return names
    return names
