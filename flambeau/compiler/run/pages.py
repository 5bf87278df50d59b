"""Memory that stays reserved while its pages go back to the operating system."""

from __future__ import annotations

import ctypes
import mmap

_DONTNEED = getattr(mmap, "MADV_DONTNEED", None)
_advise = getattr(ctypes.CDLL(None), "madvise", None) if _DONTNEED is not None else None
if _advise is not None:
    _advise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


def give_back(start: int, nbytes: int) -> None:
    """Drops the whole pages inside of this piece of memory, whose content is not needed any more."""
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (start + nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if _advise is not None and last > first:
        _advise(first, last - first, _DONTNEED)
