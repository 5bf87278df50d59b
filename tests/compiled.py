"""Runs one program eagerly and compiled from the same seed, and compares everything that a user can see afterwards."""

from __future__ import annotations

import warnings

from compare import Tolerance, same

import flambeau as torch
from flambeau import nn, optim


def seen(value):
    """A value as plain data that later calls cannot change."""
    if isinstance(value, torch.Tensor):
        return ("tensor", str(value.dtype), value.requires_grad, value.detach().to_dense().numpy().copy())
    if isinstance(value, nn.Module):
        return {name: (seen(t), seen(getattr(t, "grad", None) if t.is_leaf else None))
                for name, t in (*value.named_parameters(), *value.named_buffers())}
    if isinstance(value, optim.Optimizer):
        return seen(value.state_dict())
    if isinstance(value, dict):
        return {k: seen(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(seen, value)]
    return value if isinstance(value, (bool, int, float, str, bytes, type(None))) else type(value).__name__


def same_seen(expected, got, rtol=1e-5, where="result"):
    """Asserts that two seen values agree: numbers to rtol, elements of arrays to rtol of the largest, for programs add in
    another order (float16: two units in the last place; rtol=0: every bit), everything else exactly."""
    def tolerance(dtype):
        bound = 2e-3 if dtype == "float16" and rtol else rtol
        return Tolerance(bound if dtype == "float" else 2 * bound, 0.0, of_largest=bound)

    same(expected, got, tolerance, where)


def programs(fn) -> int:
    """How many programs a compiled function has that answer calls without its Python."""
    return sum(map(len, fn._compiled.plans.values()))


def way(fn) -> str:
    """How a compiled function's calls went: "skip" (after captures, programs answer, and no Python runs), "follow" (the Python
    runs, and the kernels come from programs), "skip and follow", or "eager"."""
    paths = fn._compiled.paths
    if paths.stopped is not None:
        return "eager"
    return " and ".join(["skip"] * bool(programs(fn)) + ["follow"] * bool(paths.runs)) or "eager"


def why(fn) -> str:
    """For messages of failed tests: the way, and what kept captures from becoming programs."""
    paths = fn._compiled.paths
    return f"{way(fn)}; {paths.runs} programs run in {paths.calls} followed calls, {paths.stopped}; {fn._compiled.reasons}"


def trace(build, calls, wrap):
    """What can be seen after each call.

    build() -> (function, parts...). A call is the function's arguments, or a function that makes them from the parts.
    """
    torch.manual_seed(0)
    function, *parts = build()
    fn = wrap(function)
    history = []
    for call in calls:
        args = call(*parts) if callable(call) else call
        result = fn(*args)
        history.append([seen(result), seen(args), seen(parts), seen(torch.get_rng_state())])
    return history, fn


def agree(build, calls, programs_at_most=None, rtol=1e-5, goes="skip", **options):
    """Asserts that the compiled function does what the eager one does, without a warning, that its calls go the way that is
    said (see `way`), and with no more programs than that. Returns it."""
    expected, _ = trace(build, calls, lambda f: f)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got, fn = trace(build, calls, lambda f: torch.compile(f, **options))
    same_seen(expected, got, rtol, "call")
    said = [str(w.message) for w in caught if "flambeau" in str(w.message)]
    assert not said, said
    assert way(fn) == goes and (programs_at_most is None or programs(fn) <= programs_at_most), (programs(fn), why(fn))
    return fn
