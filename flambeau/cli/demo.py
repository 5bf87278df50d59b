"""`flambeau demo [gpt|digits]`: a training that one can watch: compiled, with its speed, and files to look at afterwards."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flambeau

from ..utils.progress import on_terminal, progress
from . import plot

DEMOS = {"gpt": "a character GPT, on the text of Python's own language reference (about a minute)",
         "digits": "a small network on images of handwritten digits (seconds)"}
_ABOUT = "Trains on this machine's CPU, with the whole step compiled:\n" + "\n".join(
    f"  {name:7} {text}" for name, text in DEMOS.items())


@dataclass
class Task:
    """What a demo trains. batch() draws the inputs of a step; loss_of(*inputs) is compiled with backward and update."""

    about: str
    model: Any
    optimizer: Any
    schedule: Any
    batch: Callable[[], tuple[Any, ...]]
    loss_of: Callable[..., Any]
    unit: str           # what is counted: tokens, images
    per_step: int       # how many of them a step sees
    ending: Callable[[], str]  # what the trained model can do, as text


def main(arguments: list[str]) -> int:
    """Exit status: 0, or 2 for a wrong command line."""
    parser = argparse.ArgumentParser("flambeau demo", description=_ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="?", choices=DEMOS, default="gpt")
    parser.add_argument("--steps", type=_count, help="how many steps (by default what fits the description)")
    parser.add_argument("--seed", type=int, default=0, help="where random numbers start (default: 0)")
    parser.add_argument("--out", type=Path, default=Path("flambeau-demo"), help="the folder for files (default: flambeau-demo)")
    parser.add_argument("--eager", action="store_true", help="do not compile the step")
    options = parser.parse_args(arguments)
    try:  # before the training, not after it
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"argument --out: {error}")
    if options.which == "gpt":
        from .demo_gpt import STEPS, make
    else:
        from .demo_digits import STEPS, make
    flambeau.manual_seed(options.seed)
    steps = options.steps or STEPS
    task = make(steps)
    print(task.about)
    losses = train(task, steps, compiled=not options.eager)
    print(f"\n{task.ending()}\n")
    curve = options.out / f"{options.which}_loss.svg"
    curve.write_text(plot.curve(losses, f"{options.which}: loss by step"))
    page = options.out / f"{options.which}_graph.html"
    flambeau.viz.explore(lambda: task.loss_of(*task.batch()), task.model, page)
    print(f"how the loss went:   {curve}\nthe graph of a step: {page}  (open it in a browser)")
    return 0


def train(task: Task, steps: int, compiled: bool = True) -> list[float]:
    """Takes the steps, with a live line on a terminal and a few lines elsewhere, and prints how quick it was."""
    def step(*inputs: Any) -> Any:
        task.optimizer.zero_grad()
        loss = task.loss_of(*inputs)
        loss.backward()
        flambeau.nn.utils.clip_grad_norm_(task.model.parameters(), 1.0)
        task.optimizer.step()
        return loss.detach()

    run = flambeau.compile(step) if compiled else step
    losses: list[float] = []
    begun = settled = time.perf_counter()
    lines = {steps * k // 10 for k in range(1, 11)} if not on_terminal() else set()
    with progress(None, "training", steps * task.per_step, task.unit) as bar:
        for n in range(1, steps + 1):
            losses.append(run(*task.batch()).item())
            task.schedule.step()
            bar.set_postfix_str(f"step {n}/{steps}  loss {losses[-1]:.3f}", refresh=False)
            bar.update(task.per_step)
            if n == _WARM:
                settled = time.perf_counter()
            if n in lines:
                print(f"step {n}/{steps}  loss {losses[-1]:.3f}", flush=True)
    now = time.perf_counter()
    counted, since = (steps - _WARM, settled) if steps > _WARM else (steps, begun)
    print(f"{steps} steps in {now - begun:.1f} s: loss {losses[0]:.3f} -> {losses[-1]:.3f}, "
          f"{counted * task.per_step / (now - since):,.0f} {task.unit}s per second"
          + (" (without the first steps, in which the program is compiled)" if compiled and steps > _WARM else ""))
    return losses


_WARM = 4  # steps before the speed is taken: the first is eager, the next are captured and compiled


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least one step")
    return value
