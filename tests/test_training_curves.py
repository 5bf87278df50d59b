"""The examples under flambeau and under PyTorch: same program, same seed, same loss curve.

An example is read, `flambeau` becomes `torch` in its import lines and nowhere else, and the program runs again.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parent.parent / "examples"

# The first 20 steps of each; the options only make the step smaller.
CASES = {
    "digits_mlp": {},
    "two_layer_net": {},
    "polynomial_regression": {},
    "word2vec": {"files": 40, "vocabulary": 1000, "batch": 128},
    "digits_cnn": {},
    "char_lstm": {"batch": 8, "length": 32},
    "char_gpt": {"batch": 4, "length": 32},
    "vae": {},
    "graph_network": {},
    "reinforce": {"rounds": 4},
}


def program(name: str, framework: str) -> dict:
    """The names that the example's source defines when its imports come from `framework`."""
    source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    source, replaced = re.subn(r"^(import|from) flambeau\b", rf"\1 {framework}", source, flags=re.MULTILINE)
    assert replaced, f"{name}.py does not import flambeau in lines of their own"
    # A class body looks up its module by name (for pickling, for super()): it needs one of its own.
    names = {"__name__": f"{name}_under_{framework}", "__file__": str(EXAMPLES / f"{name}.py")}
    exec(compile(source, f"{name}.py under {framework}", "exec"), names)
    return names


@pytest.mark.parametrize("name", CASES)
def test_same_curve_as_torch(name, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(torch, "compile", lambda function: function)  # a minute of building for 20 steps
    curves = {framework: program(name, framework)["main"](steps=20, seed=1, quiet=True, **CASES[name])
              for framework in ("flambeau", "torch")}
    assert len(curves["torch"]) == 20
    assert curves["flambeau"] == pytest.approx(curves["torch"], rel=1e-4, abs=1e-9)


def test_the_torch_run_is_really_torch(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    assert program("digits_cnn", "torch")["torch"] is sys.modules["torch"]
    assert program("digits_cnn", "torch")["nn"].__name__ == "torch.nn"
    assert program("digits_cnn", "flambeau")["torch"].__name__ == "flambeau"
