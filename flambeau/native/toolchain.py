"""From C source to a loaded shared library: finding a compiler, building, and the cache on disk.

What came built with the wheel (prebuilt.py) is taken before a compiler is asked for.

A library is cached under a name that is the digest of all that makes it: source, headers, compiler, flags and CPU. Files are
written elsewhere and renamed into place, so processes that build the same thing at once do not disturb each other; a file
that does not match its recorded digest is built again. The folder is the user's own (`FLAMBEAU_CACHE` moves it): one that
belongs to somebody else is not used, and one that others may write to is closed to them first. A library's time of change is
that of its last use: those that nobody has used for longest go when the folder outgrows `FLAMBEAU_CACHE_LIMIT` megabytes.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
import re
import stat
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from . import prebuilt
from .hashing import sha256
from .notice import building

HERE = Path(__file__).parent
FLAGS = ("-O3", "-std=gnu11", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-w")
# Without AVX, GCC moves words through MMX registers and leaves them so: long doubles, NumPy's for one, are NaN from then on.
_NO_MMX = ("-mno-mmx",) if platform.machine() in ("x86_64", "AMD64") else ()
_LEAN = ("-Wl,--as-needed",) if sys.platform.startswith("linux") else ()
TIMEOUT = 900.0   # seconds that a compiler may take, on the busiest machine
LIMIT = 512       # megabytes of libraries on disk
IN_USE = 600.0    # seconds for which a library is kept after its last use, whatever the limit
EVERY = 3600.0    # seconds between two looks at the folder's size
_building: dict[str, threading.Lock] = {}
_OURS = re.compile(r"\w+-[0-9a-f]{32}\.so")


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
            found = _which(words[0])
            if found:
                return (found, *words[1:])
    try:
        import ziglang  # noqa: F401  (a wheel that carries a C compiler)
    except ImportError:
        return None
    return (sys.executable, "-m", "ziglang", "cc")


def _which(command: str) -> str | None:
    """Where a program is, as `shutil.which` says, but never in the current folder. (What shutil imports would take longer.)"""
    places = [""] if os.path.dirname(command) else filter(None, os.get_exec_path())
    for path in (os.path.join(place, command) for place in places):
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def usable() -> bool:
    """Whether there can be native kernels at all: some came with the wheel, or there is a compiler."""
    return prebuilt.active() is not None or compiler() is not None


@functools.cache
def hint() -> None:
    """Says once what is missed without a compiler: all kernels, or only those of `compile`."""
    if os.environ.get("FLAMBEAU_NATIVE", "1") == "0":
        return
    missed = ("compile runs eagerly" if prebuilt.active() is not None else
              "everything works, on NumPy, but large operations take several times as long, and compile runs eagerly")
    warnings.warn(f"flambeau found no C compiler (cc, gcc or clang): {missed}. `pip install ziglang` brings one.",
                  RuntimeWarning, stacklevel=3)


@functools.cache
def _machine() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        wanted = [line for line in lines if line.startswith(("vendor_id", "model name", "flags", "Features", "CPU part"))]
    except OSError:
        wanted = [platform.processor()]
    return "\n".join([platform.machine(), platform.system(), *wanted])


@functools.cache
def _version(command: tuple[str, ...]) -> str:
    """What a compiler says of itself. One that is a file is asked again when that changes: the answer is kept on disk."""
    if not command:
        return ""
    note = None
    with contextlib.suppress(OSError):
        real = os.path.realpath(command[0])
        info = os.stat(real)
        what = repr((command, real, info.st_size, info.st_mtime_ns, info.st_ino))
        note = folder() / f"compiler-{sha256(what.encode()).hexdigest()[:32]}"
        if len(command) == 1 and (said := note.read_text()):
            return said
    import subprocess
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    if note is not None and len(command) == 1 and done.returncode == 0:
        with contextlib.suppress(OSError):
            beside = note.with_suffix(f".{os.getpid()}")
            beside.write_text(done.stdout)
            os.replace(beside, note)
    return done.stdout


def version_line() -> str:
    """What the compiler says of itself, in one line."""
    return _version(compiler() or ()).partition("\n")[0]


@functools.cache
def folder() -> Path:
    """Where built libraries are kept: FLAMBEAU_CACHE, or the user's cache folder, or (when neither can be used) a new one."""
    wanted = os.environ.get("FLAMBEAU_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    place = Path(wanted) if wanted else Path(base) / "flambeau"
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = place.stat()
        if hasattr(os, "getuid") and info.st_uid != os.getuid():
            raise OSError("it belongs to another user")
        if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            place.chmod(0o700)
        probe = place / f"probe-{os.getpid()}-{threading.get_ident()}"  # what may be written, only writing tells
        os.close(os.open(probe, os.O_CREAT | os.O_WRONLY, 0o600))
        probe.unlink()
        return place
    except OSError as error:
        warnings.warn(f"flambeau cannot keep compiled code in {place} ({error}); it is built anew in every process. "
                      "FLAMBEAU_CACHE names another folder.", RuntimeWarning, stacklevel=3)
        return _own_folder()


def _own_folder() -> Path:
    import atexit
    import shutil
    import tempfile
    made = tempfile.mkdtemp(prefix="flambeau-")
    atexit.register(shutil.rmtree, made, True)
    return Path(made)


@functools.cache
def is_gcc() -> bool:
    return "Free Software Foundation" in _version(compiler() or ())


@functools.cache
def _headers() -> bytes:
    """The text of our headers, which a source may include."""
    return b"".join(path.read_bytes() for path in sorted(HERE.glob("*.h")))


def digest(source: str, flags: tuple[str, ...]) -> str:
    h = sha256()
    for part in (source, " ".join(flags), " ".join(compiler() or ()), _version(compiler() or ()), _machine()):
        h.update(part.encode() + b"\0")
    if "#include \"" in source:
        h.update(_headers())
    return h.hexdigest()[:32]


def _wide() -> tuple[str, ...]:
    """Compilers think that the widest vectors slow a CPU down. On Intel's with AVX-512 steps take a tenth to a third less with
    them; on AMD's products take half as long again, and loops the same."""
    return ("-mprefer-vector-width=512",) if "GenuineIntel" in _machine() else ()


def _flags(extra: tuple[str, ...]) -> tuple[str, ...]:
    """All flags, less what other compilers than GCC do not know. `FLAMBEAU_MARCH` names the CPU to build for: x86-64-v3..."""
    cpu = os.environ.get("FLAMBEAU_MARCH") or "native"
    if "ziglang" in (compiler() or ()):
        cpu = cpu.replace("-", "_")  # as Zig spells them
    return tuple(f for f in (*FLAGS, f"-march={cpu}", *_wide(), *_NO_MMX, *extra) if is_gcc() or not f.startswith("-fno-tree-"))


def _target(source: str, name: str, flags: tuple[str, ...]) -> Path:
    return folder() / f"{name}-{digest(source, flags)}.so"


def in_parts() -> bool:
    """Whether sources are built in parts: only GCC can tell which functions of a source are to be seen from outside."""
    made = prebuilt.active()
    return made.in_parts if made is not None else is_gcc()


def cached(source: str, name: str, extra: tuple[str, ...] = ()) -> bool:
    """Whether `build` would find the library on disk."""
    made = prebuilt.active()
    return (made is not None and made.find(source, extra) is not None) or _target(source, name, _flags(extra)).exists()


def build_all(requests: list[tuple[str, str, tuple[str, ...]]]) -> list[Path]:
    """`build` for several at a time, as many as there are cores. All have ended when this returns or raises."""
    made: list[Any] = [None] * len(requests)
    todo = [i for i, (source, name, extra) in enumerate(requests) if not cached(source, name, extra)]
    for i in {*range(len(requests))}.difference(todo):
        made[i] = build(*requests[i])
    todo.reverse()  # taken from the end

    def work() -> None:
        while True:
            try:
                i = todo.pop()
            except IndexError:
                return
            try:
                made[i] = build(*requests[i])
            except BaseException as error:  # raised below, by the thread that asked
                made[i] = error

    helpers = [threading.Thread(target=work, daemon=True) for _ in range(min(_cores(), len(todo)) - 1)]
    for helper in helpers:
        helper.start()
    try:
        work()
    finally:  # an interrupt ends it early
        todo.clear()
        for helper in helpers:
            helper.join()
    for result in made:
        if isinstance(result, BaseException):
            raise result
    return made


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def build(source: str, name: str, extra: tuple[str, ...] = ()) -> Path:
    """The shared library of a C source: from the wheel, from the cache, or fresh. Raises BuildError."""
    made = prebuilt.active()
    if made is not None and (found := made.find(source, extra)) is not None:
        return found
    command = compiler()
    if command is None:
        raise BuildError("no C compiler was found: `pip install ziglang` brings one")
    flags = _flags(extra)
    target = _target(source, name, flags)
    with _building.setdefault(target.name, threading.Lock()):  # another thread may be at it
        if _intact(target):
            return target
        try:
            with building:
                _compile(command, flags, source, target)
        except OSError as error:  # the disk is full, the folder went away...
            place, target = target.parent, _own_folder() / target.name
            warnings.warn(f"flambeau could not write to its cache folder {place}: {error}", RuntimeWarning, stacklevel=3)
            _compile(command, flags, source, target)
    if _prune_is_due(target.parent):
        prune(target.parent)
    return target


def _intact(target: Path) -> bool:
    """Whether a cached file is there and is the one that was written. If so, it counts as used."""
    try:
        with contextlib.suppress(PermissionError):
            os.utime(target)  # before it is read: `prune` in another process looks at this
        return target.with_suffix(".sum").read_text() == sha256(target.read_bytes()).hexdigest()
    except OSError:
        return False


def _compile(command: tuple[str, ...], flags: tuple[str, ...], source: str, target: Path) -> None:
    import subprocess
    import tempfile
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as work:
        text, made = Path(work, "source.c"), Path(work, "library.so")
        text.write_text(source)
        # The compiler's OpenMP runtime is not needed: runtime.h brings its own. One without OpenMP builds for one core.
        openmp = ("-Xclang", "-fopenmp") if "clang" in _version(command) else ("-fopenmp", *_LEAN)
        for options in ((*flags, *openmp), flags):
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
        check.write_text(sha256(made.read_bytes()).hexdigest())
        os.replace(made, target)
        os.replace(check, target.with_suffix(".sum"))


def _prune_is_due(place: Path) -> bool:
    """Whether nobody has looked after a folder for a while; from now on somebody has. Looking takes 0.1 s for 20,000 files."""
    mark = place / "pruned"
    with contextlib.suppress(OSError):
        if mark.exists() and time.time() - mark.stat().st_mtime < EVERY:
            return False
        mark.touch()
    return True


def prune(place: Path) -> None:
    """Makes room where a folder holds more libraries than it may: those used longest ago go, a quarter of the limit at least.

    Another process may do the same, or be about to load one of them: that one has just been used, and stays.
    """
    try:
        limit = float(os.environ.get("FLAMBEAU_CACHE_LIMIT", LIMIT)) * 2**20
    except ValueError:
        limit = LIMIT * 2**20
    now, total, found = time.time(), 0, []
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                info = entry.stat(follow_symlinks=False)
                if entry.name.startswith("build-") and now - info.st_mtime > 2 * TIMEOUT + IN_USE:
                    import shutil
                    shutil.rmtree(entry.path, ignore_errors=True)  # left behind by a process that was killed
                elif _OURS.fullmatch(entry.name):
                    found.append((info.st_mtime_ns, info.st_size, entry.path))
                    total += info.st_size
    if total <= limit:
        return
    for used, size, path in sorted(found):
        if total <= 0.75 * limit or now - used / 1e9 < IN_USE:
            return
        with contextlib.suppress(OSError):
            if os.stat(path).st_mtime_ns == used:  # still
                os.unlink(path)
                os.unlink(path.removesuffix("so") + "sum")
        total -= size


def knows_python() -> bool:
    """Whether objects of this Python on this machine lie in memory as sources take for granted that do without its headers."""
    known = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
    return known and not {*"td"}.intersection(sys.abiflags)  # "t": without the interpreter's lock, "d": a debug build


def interpreter(*names: str) -> list[int]:
    """The addresses of functions of Python's C interface, for sources that do without its headers."""
    return [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in names]


def load(path: Path, private: bool = False) -> ctypes.CDLL:
    """Opens a library; what it exports can be used by libraries loaded later, unless it is private."""
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL if private else ctypes.RTLD_GLOBAL)
