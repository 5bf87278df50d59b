"""From C source to a loaded shared library: finding a compiler, building, and the cache on disk.

A library is cached under a name that is the digest of all that makes it: source, headers, compiler, flags and CPU. Files are
written elsewhere and renamed into place, so processes that build the same thing at once do not disturb each other; a file
that does not match its recorded digest is built again. The folder is the user's own (`FLAMBEAU_CACHE` moves it): one that
belongs to somebody else is not used, and one that others may write to is closed to them first.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

HERE = Path(__file__).parent
FLAGS = ("-O3", "-march=native", "-std=gnu11", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-w")
_LEAN = ("-Wl,--as-needed",) if sys.platform.startswith("linux") else ()
TIMEOUT = 300.0
seconds_building = 0.0  # spent in the compiler by this process


_building: dict[str, threading.Lock] = {}


class BuildError(RuntimeError):
    """The C compiler failed; the message holds what it said."""


@functools.cache
def compiler() -> tuple[str, ...] | None:
    """The command that compiles C, or None. `FLAMBEAU_CC` (then `CC`) is asked first; FLAMBEAU_NATIVE=0 switches all off."""
    if os.environ.get("FLAMBEAU_NATIVE", "1") == "0":
        return None
    for name in (os.environ.get("FLAMBEAU_CC"), os.environ.get("CC"), "cc", "gcc", "clang"):
        if name:
            words = name.split()
            found = shutil.which(words[0])
            if found:
                return (found, *words[1:])
    try:
        import ziglang  # noqa: F401  (a wheel that carries a C compiler)
    except ImportError:
        return None
    return (sys.executable, "-m", "ziglang", "cc")


@functools.cache
def hint() -> None:
    """Says once what is missed without a compiler."""
    if os.environ.get("FLAMBEAU_NATIVE", "1") != "0":
        warnings.warn("flambeau found no C compiler (cc, gcc, clang, or the ziglang wheel): everything works, on NumPy, but "
                      "large operations and flambeau.compile are several times slower", RuntimeWarning, stacklevel=3)


@functools.cache
def _machine() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        wanted = [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))]
    except OSError:
        wanted = [platform.processor()]
    return "\n".join([platform.machine(), platform.system(), *wanted])


@functools.cache
def _version(command: tuple[str, ...]) -> str:
    try:
        return subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)


@functools.cache
def folder() -> Path:
    """Where built libraries are kept: FLAMBEAU_CACHE, or the user's cache folder, or (when neither can be used) a new one."""
    asked = os.environ.get("FLAMBEAU_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    place = Path(asked) if asked else Path(base) / "flambeau"
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = place.stat()
        if hasattr(os, "getuid") and info.st_uid != os.getuid():
            raise OSError("it belongs to another user")
        if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            place.chmod(0o700)
        with tempfile.TemporaryFile(dir=place):
            pass
        return place
    except OSError as error:
        warnings.warn(f"flambeau cannot keep compiled code in {place} ({error}); it is built anew in every process. "
                      "FLAMBEAU_CACHE names another folder.", RuntimeWarning, stacklevel=3)
        return _own_folder()


def _own_folder() -> Path:
    import atexit
    made = tempfile.mkdtemp(prefix="flambeau-")
    atexit.register(shutil.rmtree, made, True)
    return Path(made)


def _headers(source: str) -> bytes:
    """The text of our headers, which a source may include."""
    return b"".join(path.read_bytes() for path in sorted(HERE.glob("*.h"))) if "#include \"" in source else b""


def digest(source: str, flags: tuple[str, ...]) -> str:
    h = hashlib.sha256()
    for part in (source, " ".join(flags), " ".join(compiler() or ()), _version(compiler() or ()), _machine()):
        h.update(part.encode() + b"\0")
    h.update(_headers(source))
    return h.hexdigest()[:32]


def build(source: str, name: str, extra: tuple[str, ...] = ()) -> Path:
    """The shared library of a C source, from the cache or fresh. Raises BuildError."""
    global seconds_building
    command = compiler()
    if command is None:
        raise BuildError("no C compiler was found")
    flags = (*FLAGS, *extra)
    key = digest(source, flags)
    place = folder()
    target = place / f"{name}-{key}.so"
    with _building.setdefault(key, threading.Lock()):  # another thread may be at it
        if _intact(target):
            return target
        start = time.perf_counter()
        try:
            _compile(command, flags, source, target)
        except OSError as error:  # the disk is full, the folder went away...
            target = _own_folder() / target.name
            warnings.warn(f"flambeau could not write to its cache folder {place}: {error}", RuntimeWarning, stacklevel=3)
            _compile(command, flags, source, target)
        seconds_building += time.perf_counter() - start
    return target


def _intact(target: Path) -> bool:
    """Whether a cached file is there and is the one that was written."""
    try:
        return target.with_suffix(".sum").read_text() == hashlib.sha256(target.read_bytes()).hexdigest()
    except OSError:
        return False


def _compile(command: tuple[str, ...], flags: tuple[str, ...], source: str, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as work:
        text, made = Path(work, "source.c"), Path(work, "library.so")
        text.write_text(source)
        # GCC's OpenMP runtime is not needed: runtime.h brings its own. A compiler without OpenMP builds for one core.
        for options in ((*flags, "-fopenmp", *_LEAN), flags):
            call = [*command, *options, f"-I{HERE}", str(text), "-o", str(made), "-lm"]
            try:
                done = subprocess.run(call, capture_output=True, text=True, timeout=TIMEOUT)
            except subprocess.SubprocessError as error:
                raise BuildError(f"the C compiler {command[0]} did not finish: {error}") from None
            if done.returncode == 0 and made.exists():
                break
        else:
            raise BuildError(f"the C compiler {' '.join(command)} failed with status {done.returncode}:\n{done.stderr[-2000:]}")
        check = Path(work, "library.sum")
        check.write_text(hashlib.sha256(made.read_bytes()).hexdigest())
        os.replace(made, target)
        os.replace(check, target.with_suffix(".sum"))


def load(path: Path, private: bool = False) -> ctypes.CDLL:
    """Opens a library; what it exports can be used by libraries loaded later, unless it is private."""
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL if private else ctypes.RTLD_GLOBAL)
