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

# module: how many of its names have no docstring, and how many no example. Lower them; never raise them.
MISSING = {}


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
    assert (len(text), len(example)) == MISSING.get(module), f"without a docstring: {text}\nwithout an example: {example}"


def test_every_example_is_somebodys():
    """An entry of ops/examples.txt whose name is gone would never be seen."""
    from flambeau.ops.core import examples
    for name in list(examples._waiting):
        assert hasattr(flambeau, name), name
    assert not examples._waiting


@pytest.mark.parametrize("name", ["Linear", "Conv2d", "Embedding", "LayerNorm", "Module", "LSTM", "CrossEntropyLoss"])
def test_help_is_useful(name, capsys):
    help(getattr(flambeau.nn, name))
    shown = capsys.readouterr().out
    assert ">>> " in shown and name in shown
