"""`flambeau info`: what a bug report wants to know: versions, compiler, instruction set, threads, cache, GPU."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

import flambeau

from ..native import prebuilt, toolchain

_PACKAGES = ("numpy", "ml_dtypes", "tqdm", "ziglang", "safetensors", "torch", "jax")


def main(arguments: list[str]) -> int:
    """Exit status: 0."""
    argparse.ArgumentParser("flambeau info", description="Says what flambeau found on this machine.").parse_args(arguments)
    for name, value in facts():
        print(f"{name + ':':<17}{value}")
    return 0


def facts() -> list[tuple[str, str]]:
    """Names and values, in the order in which they are shown."""
    return [("flambeau", f"{flambeau.__version__}, in {Path(flambeau.__file__).parent}"),
            ("Python", f"{platform.python_version()} ({sys.executable})"),
            ("packages", ", ".join(_versions()) or "none"),
            ("system", f"{platform.system()} {platform.machine()}, {'-'.join(platform.libc_ver()) or 'unknown libc'}"),
            ("processor", _processor()),
            *_kernels(),
            ("threads", f"{flambeau.get_num_threads()} of {os.cpu_count()} cores"),
            ("cache", _cache()), ("GPU", _gpu())]


def _versions() -> list[str]:
    found = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())


def _kernels() -> list[tuple[str, str]]:
    if os.environ.get("FLAMBEAU_NATIVE", "1") == "0":
        return [("kernels", "NumPy's: FLAMBEAU_NATIVE=0")]
    command, made = toolchain.compiler(), prebuilt.active()
    march = os.environ.get("FLAMBEAU_MARCH") or "this processor (-march=native)"
    kernels = (f"from the wheel, for {made.level} (by {made.compiler})" if made is not None else
               f"built on first use, for {march}" if command is not None else "NumPy's")
    said = (f"{' '.join(command)} ({toolchain.version_line()})" if command is not None else
            "none (gcc, clang, or `pip install ziglang`): torch.compile runs eagerly")
    return [("kernels", kernels), ("compiler", said)]


def _cache() -> str:
    place = toolchain.folder()
    sizes = [entry.stat().st_size for entry in place.glob("*.so")]
    return f"{place}, {len(sizes)} libraries, {sum(sizes) / 2**20:.1f} MB"


def _gpu() -> str:
    if flambeau.cuda.is_available():
        return ", ".join(flambeau.cuda.get_device_name(n) for n in range(flambeau.cuda.device_count()))
    from ..backends.cuda import driver
    try:
        driver.machine()
    except driver.Unavailable as why:
        return f"none: {why}"
    return "none: the driver has no device"
