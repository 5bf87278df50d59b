"""torch.func's transformations beside PyTorch's: per-sample gradients, Hessians, Jacobians, ensembles.

    python benchmarks/func.py                      # all
    python benchmarks/func.py hessian --rounds 50  # only those with one of these words in their names
    python benchmarks/func.py --threads 1          # both on one core

Both sides run the same program in one process, in turns; the best of each counts.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from typing import Any

from harness import Report, interleave

PROGRAMS: dict[str, Callable[[Any], Callable[[], object]]] = {}


def program(name: str) -> Callable:
    def enter(make: Callable) -> Callable:
        PROGRAMS[name] = make
        return make

    return enter


def mlp(t: Any, *sizes: int) -> Any:
    t.manual_seed(0)
    layers = []
    for i, (a, b) in enumerate(itertools.pairwise(sizes)):
        layers += [t.nn.Linear(a, b)] + ([t.nn.Tanh()] if i + 2 < len(sizes) else [])
    return t.nn.Sequential(*layers)


def parameters(module: Any) -> dict[str, Any]:
    return {name: p.detach() for name, p in module.named_parameters()}


def per_sample(t: Any, batch: int, *sizes: int) -> Callable[[], object]:
    model, func = mlp(t, *sizes), t.func
    given, x, y = parameters(model), t.randn(batch, sizes[0]), t.randint(0, sizes[-1], (batch,))

    def loss(weights: Any, sample: Any, target: Any) -> Any:
        made = func.functional_call(model, weights, (sample.unsqueeze(0),))
        return t.nn.functional.cross_entropy(made, target.unsqueeze(0))

    gradients = func.vmap(func.grad(loss), in_dims=(None, 0, 0))
    return lambda: gradients(given, x, y)


@program("per-sample gradients, MLP 32-64-10, batch 256")
def small(t: Any) -> Callable[[], object]:
    return per_sample(t, 256, 32, 64, 10)


@program("per-sample gradients, MLP 784-128-10, batch 256")
def large(t: Any) -> Callable[[], object]:
    return per_sample(t, 256, 784, 128, 10)


@program("per-sample gradients, two convolutions, batch 64")
def convolutions(t: Any) -> Callable[[], object]:
    t.manual_seed(0)
    model = t.nn.Sequential(t.nn.Conv2d(1, 8, 3), t.nn.ReLU(), t.nn.MaxPool2d(2), t.nn.Conv2d(8, 16, 3), t.nn.ReLU(),
                            t.nn.Flatten(), t.nn.Linear(16 * 4 * 4, 10))
    given, x, y, func = parameters(model), t.randn(64, 1, 14, 14), t.randint(0, 10, (64,)), t.func

    def loss(weights: Any, sample: Any, target: Any) -> Any:
        made = func.functional_call(model, weights, (sample.unsqueeze(0),))
        return t.nn.functional.cross_entropy(made, target.unsqueeze(0))

    gradients = func.vmap(func.grad(loss), in_dims=(None, 0, 0))
    return lambda: gradients(given, x, y)


@program("hessian of a two-layer net, 32 inputs")
def hessian(t: Any) -> Callable[[], object]:
    t.manual_seed(0)
    first, second, x = t.randn(64, 32) / 6, t.randn(64) / 8, t.randn(32)
    made = t.func.hessian(lambda v: (t.tanh(first @ v) * second).sum())
    return lambda: made(x)


@program("hessian of a two-layer net's weights (8-8-1)")
def hessian_of_weights(t: Any) -> Callable[[], object]:
    model = mlp(t, 8, 8, 1)
    given, x, y = parameters(model), t.randn(16, 8), t.randn(16, 1)
    made = t.func.hessian(lambda p: ((t.func.functional_call(model, p, (x,)) - y) ** 2).mean())
    return lambda: made(given)


def square(t: Any) -> tuple[Callable, Any]:
    t.manual_seed(0)
    weight, x = t.randn(64, 64) / 8, t.randn(64)
    return (lambda v: t.sin(weight @ t.tanh(weight @ v)) * v), x


@program("jacfwd of a 64x64 function")
def jacfwd(t: Any) -> Callable[[], object]:
    function, x = square(t)
    made = t.func.jacfwd(function)
    return lambda: made(x)


@program("jacrev of a 64x64 function")
def jacrev(t: Any) -> Callable[[], object]:
    function, x = square(t)
    made = t.func.jacrev(function)
    return lambda: made(x)


@program("jacobians of a batch of 32")
def jacobians(t: Any) -> Callable[[], object]:
    function, x = square(t)
    made, batch = t.func.vmap(t.func.jacrev(function)), x.expand(32, 64).clone()
    return lambda: made(batch)


def ensemble_of(t: Any) -> tuple[Any, Any, Any]:
    t.manual_seed(0)
    models = [mlp(t, 64, 64, 10) for _ in range(10)]
    return models[0], *t.func.stack_module_state(models)


@program("ensemble of 10 models, one batch of 64")
def ensemble(t: Any) -> Callable[[], object]:
    base, weights, buffers = ensemble_of(t)
    weights, x = {k: v.detach() for k, v in weights.items()}, t.randn(64, 64)
    made = t.func.vmap(lambda p, b, x: t.func.functional_call(base, (p, b), (x,)), in_dims=(0, 0, None))
    return lambda: made(weights, buffers, x)


@program("ensemble of 10 models, a batch of 64 each")
def ensemble_apart(t: Any) -> Callable[[], object]:
    base, weights, buffers = ensemble_of(t)
    weights, x = {k: v.detach() for k, v in weights.items()}, t.randn(10, 64, 64)
    made = t.func.vmap(lambda p, b, x: t.func.functional_call(base, (p, b), (x,)))
    return lambda: made(weights, buffers, x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--threads", type=int, help="threads to use (all)")
    options = parser.parse_args()
    import torch

    import flambeau
    if options.threads:
        torch.set_num_threads(options.threads)
        flambeau.set_num_threads(options.threads)
    report = Report()
    for name, make in PROGRAMS.items():
        if not options.words or any(w in name for w in options.words):
            best = interleave({"flambeau": make(flambeau), "torch": make(torch)}, options.rounds)
            report.row(name, best["flambeau"], best["torch"], 1.0)


if __name__ == "__main__":
    main()
