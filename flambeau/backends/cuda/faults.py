"""Positions out of range, found by kernels: they write to memory that the host sees too, and the next wait raises.

So nobody waits for a kernel just to know that its indices were in order; the kernel itself stays inside of its arrays. What
the error says is settled at launch: a kernel gets the number of its sentence (`site`), and reports it with the position
(faults.cuh).
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from .driver import machine
from .streams import current

_PLACE = 40  # bits of the position in a report; the number of the sentence is above them
_sentences: list[tuple[type[Exception], str]] = []


@functools.cache
def _word(machine_: Any) -> ctypes.c_long:
    machine_.activate(current.device)
    return ctypes.c_long.from_address(machine_.seen(64))


@functools.cache
def site(kind: type[Exception], sentence: str) -> int:
    """The number of what is raised; {} in the sentence stands for the position."""
    _sentences.append((kind, sentence))
    return len(_sentences)


def address() -> int:
    """Where kernels report to. What earlier ones have reported by now is raised."""
    word = _word(machine())
    if word.value:
        check()
    return ctypes.addressof(word)


def check() -> None:
    """Raises for what has been reported; called when the device has been waited for."""
    word = _word(machine())
    found = word.value
    if found:
        word.value = 0
        kind, sentence = _sentences[(found >> _PLACE) - 1]
        place = found & ((1 << _PLACE) - 1)
        raise kind(sentence.format(place - (1 << _PLACE) if place >> (_PLACE - 1) else place))
