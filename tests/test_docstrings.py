"""Docstrings: their examples run and give what they show, and names that have one keep it."""

from __future__ import annotations

import doctest
import sys
import warnings
from pathlib import Path

import pytest

import flambeau

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import docstrings  # noqa: E402
import public_names  # noqa: E402

# module: how many of its names may be without a docstring, and how many without an example. Lower them; never raise them.
MISSING = {
    "torch": (24, 123), "Tensor": (3, 49), "nn": (0, 13), "nn.functional": (3, 23), "nn.init": (0, 11),
    "nn.utils": (0, 7), "optim": (0, 0), "optim.lr_scheduler": (0, 1), "autograd": (1, 6), "autograd.graph": (0, 5),
    "autograd.functional": (0, 0), "func": (0, 3), "linalg": (0, 3), "fft": (0, 0), "special": (0, 0), "amp": (0, 3),
    "compiler": (0, 26), "distributions": (0, 20), "utils.data": (0, 3), "utils.checkpoint": (0, 16), "viz": (0, 5),
    "profiler": (1, 9),
}


@pytest.fixture
def as_before():
    """What examples set for the whole process is set back."""
    state = flambeau.get_rng_state()
    yield
    flambeau.set_rng_state(state)
    flambeau.set_default_dtype(flambeau.float32)
    flambeau.set_printoptions(profile="default")


@pytest.mark.parametrize("module", public_names.MODULES)
def test_examples_run(module, tmp_path, monkeypatch, as_before):
    monkeypatch.chdir(tmp_path)
    reports, seen = [], set()
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    for name, value in public_names.public(module).items():
        text = value.__doc__ or ""
        if ">>>" not in text or id(value) in seen:
            continue
        seen.add(id(value))
        names = {"torch": flambeau, "nn": flambeau.nn, "F": flambeau.nn.functional}
        test = doctest.DocTestParser().get_doctest(text, names, f"{module}.{name}", None, None)
        flambeau.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runner.run(test, out=reports.append)
    assert not reports, "\n".join(reports)


@pytest.mark.parametrize("module", public_names.MODULES)
def test_no_more_names_without(module):
    text, example = docstrings.without_text(module), docstrings.without_example(module)
    texts, examples = MISSING[module]
    assert len(text) <= texts, f"without a docstring: {text}"
    assert len(example) <= examples, f"without an example: {example}"


def test_every_example_is_somebodys():
    """An entry of ops/examples.txt whose name is gone would never be seen."""
    from flambeau.ops.core import examples
    for name in examples.ENTRIES:
        module, _, function = name.rpartition(".")
        assert ">>>" in getattr(public_names.module(module or "torch"), function).__doc__, name


@pytest.mark.parametrize("name", ["Linear", "Conv2d", "Embedding", "LayerNorm", "Module", "LSTM", "CrossEntropyLoss"])
def test_help_is_useful(name, capsys):
    help(getattr(flambeau.nn, name))
    shown = capsys.readouterr().out
    assert ">>> " in shown and name in shown
