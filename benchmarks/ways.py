"""The ways of a compiled call side by side: eager, skip (the Python does not run) and follow (it does), in turns in one run.

    python benchmarks/ways.py                        # all workloads
    python benchmarks/ways.py gpt mnist_cnn          # some
    python benchmarks/ways.py --json ways.json       # the seconds, for a comparison with another version

The limits: following GPT, CNN, ResNet-8 and LSTM within 1.15 of skip, and no step slower than eager when the way is chosen by
`compile` itself ("chosen": a function that cannot be skipped because it counts its calls).
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

from harness import duration, interleave
from workloads import WORKLOADS, made

CLOSE = ("gpt", "mnist_cnn", "resnet8", "lstm_lm")


def counting(step: Any, calls: list[int]) -> Any:
    """The step of a program that counts: an effect, so that its Python has to run."""
    def counted(*inputs: Any) -> Any:
        calls[0] += 1
        return step(*inputs)
    return counted


def contenders(name: str) -> dict[str, Any]:
    import flambeau
    ways = {}
    for way in ("eager", "skip", "follow", "chosen"):
        training = made(name, flambeau)
        step = training.step()
        if way == "skip":
            step = flambeau.compile(step)
        elif way in ("follow", "chosen"):
            step = flambeau.compile(counting(step, [0]))
            if way == "follow":
                step._compiled.paths.pace = None  # follow, whether that pays or not
        ways[way] = training.loop(step)
        for _ in range(100 if way == "chosen" else 12):  # until it has chosen
            ways[way]()
        if way == "skip" and not step._compiled.plans:
            print(f"{name} is not skipped: {step._compiled.reasons}")
    return ways


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import flambeau
    if options.threads:
        flambeau.set_num_threads(options.threads)
    print("| training step | eager | skip | follow | chosen | follow / skip | chosen / eager |", flush=True)
    print("| --- " * 7 + "|", flush=True)
    seconds = {}
    for name in options.workloads:
        seconds[name] = best = interleave(contenders(name), options.rounds, 0.02)
        slow = " **missed**" if name in CLOSE and best["follow"] > 1.15 * best["skip"] else ""
        late = " **missed**" if best["chosen"] > best["eager"] else ""
        print(f"| {WORKLOADS[name][0]} | " + " | ".join(duration(best[w]) for w in ("eager", "skip", "follow", "chosen"))
              + f" | {best['follow'] / best['skip']:.2f}{slow} | {best['chosen'] / best['eager']:.2f}{late} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(seconds))


if __name__ == "__main__":
    main()
