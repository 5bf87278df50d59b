"""Runs the tests as on other machines: other BLAS kernels and instruction sets, one core, other programs on every core.

    python tools/machines.py                                  # all tests on every machine of the table below
    python tools/machines.py -m busy -m "one core"            # on some of them
    python tools/machines.py -m "x86-64-v2" -- -n 1 tests/test_linalg.py   # what follows goes to pytest

Results agree to rounding wherever they are computed, and nothing in the tests depends on time: so all of it has to pass.
Machines that this one cannot stand in for (AVX-512 on a CPU without it) are left out.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

ROOT = Path(__file__).parents[1]
BUSY = "while True: sum(range(10**6))"


def machines() -> dict[str, dict[str, str]]:
    """Name -> environment of those that this machine can stand in for."""
    has = lambda *names: any(__cpu_features__.get(name) for name in names)  # names changed between versions of NumPy
    wide = [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]
    found: dict[str, dict[str, str]] = {"this one": {}, "busy": {}, "one core": {}, "many threads": {"OMP_NUM_THREADS": "7"}}
    if platform.machine() not in ("x86_64", "AMD64"):
        return found
    avx2, avx512 = has("AVX2"), has("AVX512_SKX")
    for kernels, there in (("Nehalem", True), ("Haswell", avx2), ("Zen", avx2), ("SkylakeX", avx512)):
        if there:
            found[f"OpenBLAS {kernels}"] = {"OPENBLAS_CORETYPE": kernels}
    found["NumPy baseline"] = {"NPY_DISABLE_CPU_FEATURES": " ".join(wide)}
    found["NumPy AVX2"] = {"NPY_DISABLE_CPU_FEATURES": " ".join(n for n in wide if "512" in n or n == "X86_V4")}
    for level, there in (("x86-64-v2", True), ("x86-64-v3", avx2), ("x86-64-v4", avx512)):
        if there:
            found[level] = {"FLAMBEAU_MARCH": level}
    if avx2:
        found["PyTorch AVX2"] = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "COMPATIBLE"}
        found["all of 2013"] = {**found["OpenBLAS Haswell"], **found["NumPy AVX2"], **found["x86-64-v3"]}
        found["all of 2008"] = {**found["OpenBLAS Nehalem"], **found["NumPy baseline"], **found["x86-64-v2"]}
    return found


@contextmanager
def standing_in(name: str) -> Iterator[None]:
    """What an environment does not say: which cores there are, and who else uses them."""
    cores = os.sched_getaffinity(0)
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in cores] if name == "busy" else []
    if name == "one core":
        os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        for other in others:
            other.kill()
            other.wait()


def main() -> None:
    known = machines()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-m", "--machine", action="append", choices=known, help="may be given several times")
    parser.add_argument("pytest", nargs="*", default=["-n", "2", "--dist", "loadfile"], help="after --: arguments of pytest")
    options = parser.parse_args()
    outcomes = {}
    for name in options.machine or known:
        print(f"==== {name} {known[name] or ''}", flush=True)
        start = time.monotonic()
        with standing_in(name):
            done = subprocess.run([sys.executable, "-m", "pytest", *options.pytest], cwd=ROOT,
                                  env={**os.environ, **known[name]})
        outcomes[name] = f"{'passed' if not done.returncode else 'FAILED'} in {time.monotonic() - start:.0f} s"
    for name, outcome in outcomes.items():
        print(f"{name:20} {outcome}")
    raise SystemExit(any("FAILED" in outcome for outcome in outcomes.values()))


if __name__ == "__main__":
    main()
