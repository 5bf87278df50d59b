"""`flambeau bench`: flambeau and every peer that is installed, in turns, as a table of times and ratios."""

from __future__ import annotations

import argparse
import gc
import importlib
import time
from collections.abc import Callable
from importlib import util
from typing import Any

from ..utils.progress import progress

Call = Callable[[], Any]
_ABOUT = """Measures some operations and a training step with flambeau and with those of PyTorch and JAX that are installed, all
in one process and in turns; the minimum over all rounds is what counts, since others' work can only make a turn longer.
A ratio below 1 means that flambeau is the quicker one."""
REST = 0.012  # seconds before a turn: the others' worker threads spin for up to 9 ms after their last call


def main(arguments: list[str]) -> int:
    """Exit status: 0, or 2 for a wrong command line."""
    parser = argparse.ArgumentParser("flambeau bench", description=_ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="turns of each contender (default: 15)")
    parser.add_argument("--only", metavar="WORD", default="", help="only rows whose name contains this")
    parser.add_argument("--threads", type=int, help="threads for flambeau and torch (default: all cores)")
    options = parser.parse_args(arguments)
    rows = [row for row in ROWS if options.only.lower() in row.lower()]
    if not rows:
        parser.error(f"no row's name contains '{options.only}'; there are: {'; '.join(ROWS)}")
    if options.rounds < 1:
        parser.error("argument --rounds: at least one round")
    contenders = _contenders(options.threads)
    print(f"| {' | '.join(['what', 'flambeau', *[f'{peer} | ratio' for peer in list(contenders)[1:]]])} |")
    print("| --- " * (2 * len(contenders)) + "|")
    for row in progress(rows, "measuring", unit="row"):
        best = interleave({name: make(row) for name, make in contenders.items()}, options.rounds)
        ours = best["flambeau"]
        cells = [f"{duration(best[peer])} | {ours / best[peer]:.2f}" for peer in list(contenders)[1:]]
        print(f"| {row} | {' | '.join([duration(ours), *cells])} |", flush=True)
    if len(contenders) == 1:
        print("No peer is installed: `pip install torch` or `pip install jax` to compare.")
    return 0


def _contenders(threads: int | None) -> dict[str, Callable[[str], Call]]:
    """Name -> a function that makes the call of a row."""
    import flambeau
    count = threads or flambeau.get_num_threads()
    flambeau.set_num_threads(count)
    found: dict[str, Callable[[str], Call]] = {"flambeau": lambda row: ROWS[row](flambeau)}
    if util.find_spec("torch") is not None:
        torch = importlib.import_module("torch")  # a peer here, as JAX is
        torch.set_num_threads(count)
        found["torch"] = lambda row: ROWS[row](torch)
    if util.find_spec("jax") is not None:
        from . import bench_jax
        found["JAX (jit)"] = bench_jax.make
    return found


def interleave(calls: dict[str, Call], rounds: int, least: float = 0.004) -> dict[str, float]:
    """Seconds per call of each: the minimum over rounds of at least so many seconds, taken in turns."""
    repeats, best = {}, dict.fromkeys(calls, float("inf"))
    for name, call in calls.items():
        call()  # builds and compiles
        call()
        start = time.perf_counter()
        call()
        repeats[name] = max(1, int(least / max(time.perf_counter() - start, 1e-7)))
    enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, call in calls.items():
                time.sleep(REST)
                call()
                start = time.perf_counter()
                for _ in range(repeats[name]):
                    call()
                best[name] = min(best[name], (time.perf_counter() - start) / repeats[name])
    finally:
        if enabled:
            gc.enable()
    return best


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, scale in (("s", 1), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


# ------------------------------------------------------------------------------------------------------------------ rows
def _overhead(m: Any) -> Call:
    a, b = m.rand(3, 4), m.rand(3, 4, requires_grad=True)
    return lambda: a * b


def _chain(m: Any) -> Call:
    x, c = m.rand(4, 8, requires_grad=True), m.rand(4, 8)

    def run() -> None:
        y = x
        for _ in range(5):
            y = (y * c + x).tanh()
        y.sum().backward()
        x.grad = None
    return run


def _on(name: str, *sizes: tuple[int, ...]) -> Callable[[Any], Call]:
    """An operation on random arrays of certain sizes."""
    def make(m: Any) -> Call:
        arrays, function = [m.rand(*size) for size in sizes], getattr(m, name)
        return lambda: function(*arrays, **({"dim": -1} if name == "softmax" else {}))
    return make


def _convolution(m: Any) -> Call:
    x, w = m.rand(8, 16, 32, 32), m.rand(32, 16, 3, 3, requires_grad=True)

    def run() -> None:
        m.nn.functional.conv2d(x, w, padding=1).sum().backward()
        w.grad = None
    return run


def _step(compiled: bool) -> Callable[[Any], Call]:
    """A step of SGD on a small network. torch.compile would need a C++ compiler, and minutes: PyTorch's is the plain step."""
    def make(m: Any) -> Call:
        model = m.nn.Sequential(m.nn.Linear(64, 128), m.nn.ReLU(), m.nn.Linear(128, 10))
        optimizer = m.optim.SGD(model.parameters(), lr=0.01)
        x, y = m.rand(128, 64), m.randint(0, 10, (128,))

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = m.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss
        run = m.compile(step) if compiled and m.__name__ == "flambeau" else step
        return lambda: run(x, y)
    return make


ROWS: dict[str, Callable[[Any], Call]] = {
    "a * b, 3x4, recorded": _overhead,
    "15 small operations and backward": _chain,
    "a + b, 1 M": _on("add", (1000, 1000), (1000, 1000)),
    "exp, 1 M": _on("exp", (1000, 1000)),
    "sum, 1 M": _on("sum", (1000, 1000)),
    "softmax, 1000x1000": _on("softmax", (1000, 1000)),
    "matmul, 512x512": _on("matmul", (512, 512), (512, 512)),
    "conv2d 3x3, forward and backward": _convolution,
    "training step of an MLP": _step(False),
    "training step of an MLP, compiled (torch: not)": _step(True),
}
