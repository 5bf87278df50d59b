"""Native kernels that came with the wheel: one library per instruction set; the best that this processor can run is used.

`tools/wheels.py` makes the folder `prebuilt/`: a manifest, and a library with all that eager mode may ask the toolchain for. A
library is used only if the manifest's digest is that of the sources and flags that are installed, and a request only if the
manifest lists its own digest: what has changed since is built anew, as in a source install. `FLAMBEAU_PREBUILT` names another
folder, 0 none; `FLAMBEAU_MARCH` names the instruction set to use, from here if it is here, built otherwise.
"""

from __future__ import annotations

import functools
import os
import platform
from pathlib import Path
from typing import Any

from .hashing import sha256

HERE = Path(__file__).parent
FOLDER = HERE / "prebuilt"
# What a processor must have for an instruction set, in the words of /proc/cpuinfo; the best first. Names are GCC's for -march.
_V2 = "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3"
_V3 = f"{_V2} avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
_V4 = f"{_V3} avx512f avx512bw avx512cd avx512dq avx512vl"
LEVELS = {"x86_64": {"x86-64-v4": _V4, "x86-64-v3": _V3, "x86-64-v2": _V2}, "aarch64": {"armv8-a": ""}}  # which all have


def features() -> frozenset[str]:
    """What this processor can do and the system lets it do."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    found = next((line.partition(":")[2] for line in lines if line.startswith(("flags", "Features"))), "")
    return frozenset(found.split())


def levels(machine: str, has: frozenset[str]) -> list[str]:
    """The instruction sets that a processor with these features runs, the best first."""
    return [name for name, needs in LEVELS.get(machine, {}).items() if has.issuperset(needs.split())]


def key(source: str, flags: tuple[str, ...]) -> str:
    """The digest under which a request is listed: its text and flags. (Headers are in the digest of all sources.)"""
    return sha256("\0".join((source, *flags)).encode()).hexdigest()[:32]


def sources_digest(flags: tuple[str, ...]) -> str:
    """The digest of all C sources and headers, and of the flags that all are built with."""
    h = sha256(" ".join(flags).encode())
    for path in sorted([*HERE.glob("*.c"), *HERE.glob("*.h")]):
        h.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return h.hexdigest()


class Set:
    """The library for one instruction set, and the requests that it answers."""

    def __init__(self, path: Path, level: str, manifest: dict[str, Any]):
        self.path, self.level, self.compiler = path, level, manifest["compiler"]
        self.in_parts = manifest["in_parts"]  # built with -fwhole-program, part by part, as GCC does here
        self.keys = frozenset(manifest["keys"])

    def find(self, source: str, flags: tuple[str, ...]) -> Path | None:
        return self.path if key(source, flags) in self.keys else None


def choose(folder: Path, digest: str, wanted: list[str]) -> Set | None:
    """The first of the wanted instruction sets that a folder has a library for, if it was made from these sources."""
    import json
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError):
        return None
    if manifest.get("sources") != digest:
        return None
    for level in wanted:
        if level in manifest["levels"] and (path := folder / f"{level}.so").is_file():
            return Set(path, level, manifest)
    return None


@functools.cache
def active() -> Set | None:
    """What this process uses; None where there is nothing for it, and the toolchain builds what is asked for."""
    folder = Path(os.environ.get("FLAMBEAU_PREBUILT") or FOLDER)
    if str(folder) == "0" or os.environ.get("FLAMBEAU_NATIVE") == "0" or not folder.is_dir():
        return None
    from . import toolchain
    machine = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    named = os.environ.get("FLAMBEAU_MARCH")
    able = levels(machine, features())
    return choose(folder, sources_digest(toolchain.FLAGS), [named] if named else able)
