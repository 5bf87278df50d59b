"""cond, while_loop and scan compiled, beside the same loops written in Python: eager, unrolled by compile, and PyTorch's.

    python benchmarks/control.py [--rounds 40]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import duration, interleave

from flambeau.func.control_flow import scan


def halving(t: Any) -> tuple[Callable, Callable, Any]:
    """(with functions, in Python, argument)"""
    def python(x: Any) -> Any:
        turns = t.tensor(0)
        while x.abs().sum() > 1:
            turns, x = turns + 1, x / 2
        return turns, x

    def functional(x: Any) -> Any:
        return t.while_loop(lambda n, x: x.abs().sum() > 1, lambda n, x: (n + 1, x / 2), (t.tensor(0), x))
    return functional, python, t.tensor(np.random.RandomState(0).randn(1000).astype("f4"))


def branching(t: Any) -> tuple[Callable, Callable, Any]:
    return (lambda x: t.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,)), lambda x: x * 2 if x.sum() > 0 else x - 1,
            t.tensor(np.random.RandomState(0).randn(1000).astype("f4")))


def recurrent(steps: int, batch: int, width: int) -> Callable[[Any], tuple[Callable, Callable, Any]]:
    def made(t: Any) -> tuple[Callable, Callable, Any]:
        random = np.random.RandomState(0)
        w = t.tensor((random.randn(width, width) * 0.1).astype("f4"))

        def python(x: Any) -> Any:
            state, states = t.zeros(batch, width), []
            for v in x:
                state = t.tanh(state @ w + v)
                states.append(state)
            return state, t.stack(states)

        def turn(state: Any, v: Any) -> Any:
            state = t.tanh(state @ w + v)
            return state, state.clone()

        def functional(x: Any) -> Any:
            return scan(turn, t.zeros(batch, width), x)
        return functional, python, t.tensor(random.randn(steps, batch, width).astype("f4"))
    return made


WORK = {"while_loop: 1,000 floats halved 10 times": halving, "cond: 1,000 floats": branching,
        "scan: 200 steps of an RNN, 1 x 16": recurrent(200, 1, 16),
        "scan: 200 steps of an RNN, 16 x 64": recurrent(200, 16, 64)}


def measured(name: str, make: Any, rounds: int) -> None:
    import torch

    import flambeau
    functional, python, x = make(flambeau)
    theirs, given = make(torch)[1:]
    compiled, unrolled, first = flambeau.compile(functional), flambeau.compile(python), []
    for fn in (compiled, unrolled):
        start = time.perf_counter()
        fn(x)
        first.append(time.perf_counter() - start)
    work = {"compiled": lambda: compiled(x), "unrolled": lambda: unrolled(x), "eager": lambda: functional(x),
            "torch": lambda: theirs(given)}
    found = interleave(work, rounds)
    print(f"| {name} | {' | '.join(duration(found[k]) for k in work)} | {' | '.join(map(duration, first))} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    print("| | compiled | Python, compiled | functions, eager | PyTorch's Python | first call | Python's |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, make in WORK.items():
        measured(name, make, rounds)


if __name__ == "__main__":
    main()
