"""Builds wheels that carry the native kernels: `make wheels`, or

    python tools/wheels.py                     # all targets, into dist/
    python tools/wheels.py x86_64              # one
    python tools/wheels.py --objects build/o   # where compiled objects are kept between runs

All that eager mode may ask the toolchain for (every part of every C source, every pointwise expression for every element
type) is compiled once per instruction set and linked into one library, which `flambeau/native/prebuilt.py` chooses at load.
x86-64 is compiled by GCC where it is installed, as a source install would; linking is done by the `ziglang` wheel against an
old glibc, so that the wheel runs on systems older than this one. aarch64 is compiled and linked by ziglang. The wheel's tag
is made from the glibc versions that the libraries really ask for.
"""

from __future__ import annotations

import argparse
import base64
import concurrent.futures
import hashlib
import importlib
import itertools
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
os.environ["FLAMBEAU_PREBUILT"] = "0"  # what is asked for, not what is there

import flambeau  # noqa: E402
from flambeau import native  # noqa: E402
from flambeau.backends.cpu.pointwise import loops  # noqa: E402
from flambeau.native import prebuilt, toolchain  # noqa: E402

GLIBC = "2.28"  # what linking is done against: RHEL 8, Debian 10, Ubuntu 20.04 and later
# Arguments that make expressions differ (see the functions that give them): all cases, and for `round` the usual decimals.
VARIANTS: dict[str, list[tuple]] = {
    "round_decimals": [(None, d) for d in range(-3, 9)],
    "pow": [(None, e) for e in (None, -2, -1, -0.5, 0, 0.5, 1, 2, 3, 4, 0.0, 1.0, 2.0, 3.0, -1.0, -2.0)],
    "nan_to_num": [(None, *given) for given in itertools.product((None, 1.0), repeat=3)],
    "clamp": [(None, 0, 0), (None, None, 0), (None, 0, None)],
    "gelu": [(None, "none"), (None, "tanh")], "gelu_backward": [(None, None, "none"), (None, None, "tanh")],
    "logit": [(None, None), (None, 0.1)]}


class Target(NamedTuple):
    """A machine to build for: how the compiler is called, and whether it is GCC, which builds sources in parts."""

    machine: str
    compiler: tuple[str, ...]
    link: tuple[str, ...]
    gcc: bool
    libraries: tuple[str, ...] = ()

    def flags(self, level: str) -> tuple[str, ...]:
        cpu = level if self.gcc else level.replace("-", "_")  # as Zig spells them
        march = (f"-march={cpu}", "-mno-mmx") if self.machine == "x86_64" else ()  # toolchain.py says why
        shared = [f for f in toolchain.FLAGS if f != "-shared"]
        openmp = ("-fopenmp",) if self.gcc else ("-Xclang", "-fopenmp")
        return (*shared, *march, *openmp, "-DFL_TOGETHER", f"-I{toolchain.HERE}", "-c")


def target(machine: str) -> Target:
    zig = (sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-gnu.{GLIBC}")
    gcc = shutil.which("gcc")
    if machine == "x86_64" and gcc is not None and os.uname().machine == "x86_64":
        # GCC calls glibc's sines of whole vectors, which are in a library of their own that Zig does not know.
        vectors = subprocess.run([gcc, "-print-file-name=libmvec.so.1"], capture_output=True, text=True).stdout.strip()
        return Target(machine, (gcc,), zig, True, (vectors,))
    return Target(machine, zig, zig, False)


# ---------------------------------------------------------------------------------------------------------------- requests
_BY_NAME = re.compile(r'toolchain\.build\(\(toolchain\.HERE / "\w+\.c"\)\.read_text\(\), "(\w+)"(?:, \((.*?),\))?\)')


def helpers() -> dict[str, tuple[str, ...]]:
    """The sources that Python code loads by name, with their flags."""
    texts = (path.read_text() for path in sorted(Path(flambeau.__file__).parent.rglob("*.py")))
    return {name: tuple(flags.replace('"', "").split()) for text in texts for name, flags in _BY_NAME.findall(text)}


def requests(in_parts: bool) -> list[native.Request]:
    """All that eager mode may ask `toolchain.build` for, each once."""
    toolchain.in_parts = lambda: in_parts
    by_name = helpers()
    found = [(toolchain.HERE.joinpath(f"{name}.c").read_text(), name, flags) for name, flags in by_name.items()]
    for path in sorted(toolchain.HERE.glob("*.c")):
        if path.stem not in by_name:
            family = native.Family(path.stem)
            found += [family.request(part) for part in family.parts]
    return list(dict.fromkeys([*found, *pointwise()]))


def pointwise() -> Iterator[native.Request]:
    """The loops of every expression for every element type."""
    for module in pkgutil.walk_packages(flambeau.ops.__path__, "flambeau.ops."):
        importlib.import_module(module.name)  # rows enter their expressions
    for kernel in loops.kernels():
        for arguments in VARIANTS.get(kernel, [()]):
            e = loops.expression(kernel, arguments)
            for dtype in (*loops.SUFFIXES, *loops.HALVES) if e is not None else ():
                if loops.suits(e, dtype):
                    yield loops.Loops(kernel, e, dtype).source, "pointwise", loops.FLAGS


# ---------------------------------------------------------------------------------------------------------------- building
def compile_all(made_for: Target, level: str, wanted: list[native.Request], folder: Path) -> list[Path]:
    """An object per request; those that are there from an earlier run are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    version = subprocess.run([*made_for.compiler, "--version"], capture_output=True, text=True).stdout
    headers = hashlib.sha256(toolchain._headers()).hexdigest()

    def one(request: native.Request) -> Path:
        source, name, extra = request
        flags = (*made_for.flags(level), *(f for f in extra if made_for.gcc or not f.startswith("-fno-tree-")))
        digest = hashlib.sha256("\0".join((source, *flags, version, headers)).encode()).hexdigest()[:24]
        path = folder / f"{name}-{digest}.o"
        if not path.exists():
            text = path.with_suffix(".c")
            text.write_text(source)
            partial = path.with_suffix(".tmp.o")
            done = subprocess.run([*made_for.compiler, *flags, str(text), "-o", str(partial)], capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{name} for {level}:\n{done.stderr[-3000:]}")
            partial.rename(path)
            text.unlink()
        return path

    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        made = []
        for n, path in enumerate(pool.map(one, wanted), 1):
            made.append(path)
            if sys.stderr.isatty() or n % 100 == 0 or n == len(wanted):
                print(f"{level}: {n}/{len(wanted)} compiled", end="\r" if sys.stderr.isatty() else "\n", file=sys.stderr)
    return made


def link(made_for: Target, objects: list[Path], path: Path) -> None:
    """One library of all objects; what is not there is an error now, and not when a user loads it."""
    with tempfile.NamedTemporaryFile("w", suffix=".rsp") as names:
        names.write("\n".join(map(str, objects)))
        names.flush()
        subprocess.run([*made_for.link, "-shared", "-Wl,-z,defs", "-Wl,--gc-sections", "-s", f"@{names.name}", "-o", str(path),
                        "-lm", "-lpthread", *made_for.libraries], check=True)


def glibc_needed(path: Path) -> tuple[int, int]:
    """The newest glibc version that a library asks for. (Version names are plain text in its string table.)"""
    found = [tuple(map(int, v.split(b"."))) for v in re.findall(rb"\0GLIBC_(\d+\.\d+)(?:\.\d+)?(?=\0)", path.read_bytes())]
    return max(found, default=(2, 5))


# ------------------------------------------------------------------------------------------------------------------- wheels
def plain_wheel(out: Path) -> Path:
    """The wheel without kernels."""
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir",
                    str(out), str(ROOT)], check=True)
    return next(out.glob("flambeau-*-py3-none-any.whl"))


def with_kernels(plain: Path, added: dict[str, bytes], tag: str, out: Path) -> Path:
    """A wheel with more files, under a tag for one kind of machine."""
    path = out / plain.name.replace("any", tag)
    lines = []
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new:
        def put(name: str, data: bytes) -> None:
            info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))  # the same wheel from the same sources
            info.external_attr, info.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            new.writestr(info, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(data)}")

        for name in old.namelist():
            data = old.read(name)
            if name.endswith(".dist-info/WHEEL"):
                text = data.decode().replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
                data = text.replace("Tag: py3-none-any", f"Tag: py3-none-{tag}").encode()
            if name.endswith(".dist-info/RECORD"):
                record = name
            else:
                put(name, data)
        for name, data in added.items():
            put(name, data)
        new.writestr(zipfile.ZipInfo(record, (2020, 1, 1, 0, 0, 0)), "\n".join([*lines, f"{record},,"]) + "\n")
    return path


def build(machine: str, objects: Path, out: Path, plain: Path, only: list[str] | None = None) -> Path:
    """The wheel for a machine, with all its instruction sets or some of them."""
    made_for = target(machine)
    wanted = requests(made_for.gcc)
    levels = [level for level in prebuilt.LEVELS[machine] if not only or level in only]
    added, newest = {}, (2, 5)
    for level in levels:
        made = compile_all(made_for, level, wanted, objects / machine / level)
        library = objects / machine / f"{level}.so"
        link(made_for, made, library)
        newest = max(newest, glibc_needed(library))
        added[f"flambeau/native/prebuilt/{level}.so"] = library.read_bytes()
        print(f"{machine} {level}: {len(made)} objects, {library.stat().st_size / 2**20:.1f} MB, glibc {newest[0]}.{newest[1]}")
    version = subprocess.run([*made_for.compiler, "--version"], capture_output=True, text=True).stdout.partition("\n")[0]
    manifest = {"sources": prebuilt.sources_digest(toolchain.FLAGS), "levels": levels, "in_parts": made_for.gcc,
                "compiler": version, "keys": sorted(prebuilt.key(source, extra) for source, _, extra in wanted)}
    added["flambeau/native/prebuilt/manifest.json"] = json.dumps(manifest).encode()
    return with_kernels(plain, added, f"manylinux_{newest[0]}_{newest[1]}_{machine}", out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machines", nargs="*", default=list(prebuilt.LEVELS), help="x86_64, aarch64 (default: both)")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--objects", type=Path, default=ROOT / "build" / "kernels")
    parser.add_argument("--levels", nargs="+", help="only these instruction sets (default: all of prebuilt.LEVELS)")
    options = parser.parse_args()
    unknown = set(options.levels or ()).difference(*(prebuilt.LEVELS[machine] for machine in options.machines))
    if unknown:
        parser.error(f"unknown instruction set {unknown.pop()!r}")
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        plain = plain_wheel(Path(work))
        for machine in options.machines:
            path = build(machine, options.objects, options.out, plain, options.levels)
            print(f"{path}: {path.stat().st_size / 2**20:.1f} MB")


if __name__ == "__main__":
    main()
