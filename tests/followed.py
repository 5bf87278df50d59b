"""Runs functions eagerly and followed (the Python runs, the kernels come from native programs), and compares."""

import contextlib
import io
import warnings

import numpy as np
from compiled import same_seen, seen

import flambeau as torch
from flambeau import nn, optim
from flambeau.compiler.follow.paths import Paths


def follow(function, exact=False, fullgraph=False):
    """The function, followed at each call."""
    paths = Paths(function, getattr(function, "__name__", "f"), exact, fullgraph, False)
    paths.pace = None

    def call(*args, **kwargs):
        return paths.call(args, kwargs)
    call.paths = paths
    return call


def history(build, calls, wrap):
    """What can be seen after each call: the result or the error, what was printed, and what build() names."""
    torch.manual_seed(0)
    function, args_of, *parts = build()
    fn = wrap(function)
    found = []
    for n in range(calls):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            try:
                result = seen(fn(*args_of(n)))
            except (RuntimeError, ValueError, IndexError, StopIteration, ZeroDivisionError) as error:
                result = [type(error).__name__, str(error)]
        shown = [p() if callable(p) and not isinstance(p, nn.Module) else p for p in parts]
        found.append([result, said.getvalue(), seen(shown), seen(torch.get_rng_state())])
    return found, fn


def agree(build, calls=8, rtol=1e-5, builds=None, interpreted=None, runs=1, **options):
    """Asserts that following does what eager mode does, and that native programs did the work. Returns the Paths."""
    expected, _ = history(build, calls, lambda f: f)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        got, fn = history(build, calls, lambda f: follow(f, **options))
    same_seen(expected, got, rtol, "call")
    paths = fn.paths
    assert paths.runs >= runs, (paths.runs, paths.interpreted, paths.reasons)
    if builds is not None:
        assert paths.builds == builds, (paths.builds, paths.reasons)
    if interpreted is not None:
        assert paths.interpreted <= interpreted, paths.interpreted
    return paths


def task(width=8, kind=optim.SGD, **options):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 1))
    return net, kind(net.parameters(), **{"lr": 0.05, **options})


def batch(n):
    make = np.random.RandomState(n)
    return torch.tensor(make.randn(6, 4).astype(np.float32)), torch.tensor(make.randn(6, 1).astype(np.float32))


def stepped(net, opt, x, y):
    opt.zero_grad()
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    opt.step()
    return loss
