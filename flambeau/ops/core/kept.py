"""Code of generated texts, kept from one process to the next.

Python keeps the code of modules in `__pycache__`; that of the texts which generate.py makes is kept beside it, and by the same
rules: nothing is written under `-B` (PYTHONDONTWRITEBYTECODE), PYTHONPYCACHEPREFIX moves it, another Python or another `-O` has
a file of its own. A text is found by itself and the name of its file, so code can never be that of another text. What a process
had to compile it adds when it ends; where the file cannot be read or written it is done without, as Python does.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import marshal
import os
import sys
from types import CodeType

LIMIT = 4000  # texts, several times as many as there are: rows that programs make up themselves could go on for ever
_MAGIC = importlib.util.MAGIC_NUMBER
_kept: dict[tuple[str, str], CodeType] | None = None
_fresh: dict[tuple[str, str], CodeType] = {}


def _file() -> str | None:
    try:
        return importlib.util.cache_from_source(os.path.join(os.path.dirname(__file__), "texts.py"))
    except NotImplementedError:  # a Python that keeps no code
        return None


def _read() -> dict[tuple[str, str], CodeType]:
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
        if file := _file():
            with open(file, "rb") as stream:
                if stream.read(len(_MAGIC)) == _MAGIC:
                    return dict(marshal.loads(stream.read()))
    return {}


def code(text: str, file: str) -> CodeType:
    """The code of a text, which tracebacks say to be that of a file."""
    global _kept
    if _kept is None:
        _kept = _read()
    found = _kept.get((text, file))
    if found is None:
        if not _fresh and not sys.dont_write_bytecode:
            atexit.register(_write, os.getpid())
        found = _fresh[text, file] = _kept[text, file] = compile(text, file, "exec", dont_inherit=True)
    return found


def _write(process: int) -> None:
    file = _file()
    if file is None or os.getpid() != process:  # a child that was forked leaves it to its parent
        return
    everything = _read() | _fresh  # another process may have written meanwhile
    if len(everything) > LIMIT:
        return
    beside = f"{file}.{process}"
    try:
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(beside, "wb") as stream:
            stream.write(_MAGIC + marshal.dumps(everything))
        os.replace(beside, file)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside)
