"""Docstrings: every public name has one with an example, which runs and gives what it shows."""

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
def test_every_name_says_what_it_is_and_shows_it(module):
    assert not docstrings.without_text(module), "these have no docstring"
    assert not docstrings.without_example(module), "these have no example; most belong into flambeau/ops/examples.txt"


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
