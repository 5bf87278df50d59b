"""A wheel in a fresh virtual environment without a compiler: how long until it works, beside torch.

    python benchmarks/install.py dist/flambeau-*-x86_64.whl                        # beside the torch of this Python
    python benchmarks/install.py dist/flambeau-*-x86_64.whl --torch other/python

Every process starts cold: an empty cache of kernels, and a PATH on which there is no C compiler. Of each time the smallest
of some runs, taken in turns, is shown.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
BACKWARD = """
import {torch} as torch
model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.Flatten(),
                            torch.nn.Linear(16 * 30 * 30, 10))
loss = torch.nn.functional.cross_entropy(model(torch.randn(64, 3, 32, 32)), torch.arange(64) % 10)
loss.backward()
"""
SMALL = """
import {torch} as torch
x = torch.randn(3, requires_grad=True)
(x.tanh() ** 2).sum().backward()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--torch", default=sys.executable, help="a Python that has torch (default: this one)")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        place = Path(work, "fresh")
        venv.create(place, with_pip=True)
        python, start, before = str(place / "bin" / "python"), time.perf_counter(), os.times()
        subprocess.run([python, "-m", "pip", "install", "--quiet", str(options.wheel)], check=True)
        taken, after = time.perf_counter() - start, os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        print(f"| pip install, with NumPy and ml_dtypes | {taken:.1f} s, {used:.1f} s of them at work | |")
        print(f"| wheel | {options.wheel.stat().st_size / 2**20:.1f} MB | |")
        size = sum(f.stat().st_size for f in place.glob("lib/python*/site-packages/flambeau/**/*") if f.is_file())
        print(f"| flambeau on disk | {size / 2**20:.0f} MB | |")
        print("| from a cold start | flambeau | torch | ratio |", flush=True)
        for what, our_program, their_program in programs(Path(work)):
            best = {"ours": float("inf"), "theirs": float("inf")}
            for _ in range(options.rounds):
                best["ours"] = min(best["ours"], seconds(python, our_program, Path(work)))
                best["theirs"] = min(best["theirs"], seconds(options.torch, their_program, Path(work)))
            ours, theirs = best.values()
            print(f"| {what} | {ours:.2f} s | {theirs:.2f} s | {ours / theirs:.2f} |", flush=True)


def programs(work: Path) -> list[tuple[str, list[str], list[str]]]:
    """(what, arguments of our Python, arguments of torch's)."""
    example = work / "examples"
    example.mkdir()
    for path in (ROOT / "examples").glob("*.py"):
        (example / path.name).write_text(path.read_text().replace("import flambeau as torch", "import torch"))
    (example / "data").symlink_to(ROOT / "examples" / "data")

    def both(text: str) -> tuple[list[str], list[str]]:
        return ["-c", text.format(torch="flambeau")], ["-c", text.format(torch="torch")]

    return [("import", *both("import {torch}")), ("import and a small backward", *both(SMALL)),
            ("import and backward of a small CNN", *both(BACKWARD)),
            ("examples/digits_mlp.py", [str(ROOT / "examples" / "digits_mlp.py"), "--quiet"],
             [str(example / "digits_mlp.py"), "--quiet"])]


def seconds(python: str, arguments: list[str], work: Path) -> float:
    """How long a process takes that finds no compiler and no cache."""
    with tempfile.TemporaryDirectory(dir=work) as cache:
        env = {**os.environ, "PATH": str(work), "FLAMBEAU_CACHE": cache, "FLAMBEAU_CC": "", "CC": "", "PYTHONPATH": ""}
        start = time.perf_counter()
        subprocess.run([python, *arguments], check=True, env=env, stdout=subprocess.DEVNULL, cwd=work)
        taken = time.perf_counter() - start
        if os.listdir(cache):
            raise SystemExit(f"something was built for {arguments}")
        return taken


if __name__ == "__main__":
    main()
