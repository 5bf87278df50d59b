"""Every example in a shortened form: it runs, and its loss falls."""

from __future__ import annotations

import importlib
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"

# example: (the options of a short run, the share of the first loss that the last ones may be at most)
SHORT = {
    "digits_mlp": ({"steps": 60}, 0.5),
    "two_layer_net": ({"steps": 20}, 0.2),
    "polynomial_regression": ({"steps": 200}, 0.2),
    "word2vec": ({"steps": 150, "files": 60, "vocabulary": 1000}, 0.9),
    "digits_cnn": ({"steps": 40, "epochs": 2}, 0.5),
    "char_lstm": ({"steps": 15, "batch": 8, "length": 32}, 0.85),
    "char_gpt": ({"steps": 15, "batch": 4, "length": 32}, 0.85),
    "vae": ({"steps": 60}, 0.75),
    "graph_network": ({"steps": 60}, 0.5),
}


@pytest.fixture(scope="module", autouse=True)
def beside_the_examples():
    """The examples import `common` from their own folder, as they do when started as programs."""
    sys.path.insert(0, str(EXAMPLES))
    yield
    sys.path.remove(str(EXAMPLES))


def test_every_example_is_in_the_table():
    assert {p.stem for p in EXAMPLES.glob("*.py")} == {*SHORT, "reinforce", "common"}


@pytest.mark.parametrize("name", SHORT)
def test_loss_falls(name, capsys):
    options, share = SHORT[name]
    losses = importlib.import_module(name).main(seed=0, quiet=True, **options)
    assert len(losses) == options["steps"]
    assert all(isinstance(loss, float) and loss == loss for loss in losses)
    last = losses[-5:]
    assert sum(last) / len(last) <= share * losses[0]
    assert capsys.readouterr().out == ""  # quiet means quiet


def test_reinforce_reward_rises():
    losses = importlib.import_module("reinforce").main(steps=25, quiet=True)
    assert sum(losses[-5:]) < 2 * sum(losses[:5])  # minus the reward: at least twice as long upright


@pytest.mark.parametrize("name", ["two_layer_net", "digits_cnn", "char_lstm", "char_gpt", "vae", "graph_network"])
def test_same_seed_same_losses(name):
    main = importlib.import_module(name).main
    options = {**SHORT[name][0], "steps": 3}
    assert main(seed=7, quiet=True, **options) == main(seed=7, quiet=True, **options)


@pytest.mark.parametrize("name,options,expected", [
    ("digits_cnn", ["--epochs", "1"], r"on 297 new ones: \d+\.\d%"),
    ("graph_network", ["--steps", "150"], r"(29|30|31|32) of the 32 members"),
    ("char_lstm", ["--steps", "3", "--sample", "20"], r"\nThe .{20}"),
    ("char_gpt", ["--steps", "3", "--sample", "20"], r"\nThe .{20}"),
    ("word2vec", ["--steps", "5", "--files", "40"], r"file: (\w+, ){5}\w+\n"),
])
def test_as_a_program(name, options, expected):
    """Started from the command line it shows its result and the course of the loss."""
    run = subprocess.run([sys.executable, EXAMPLES / f"{name}.py", *options], capture_output=True, text=True,
                         env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "PYTHONIOENCODING": "utf-8"})
    assert run.returncode == 0, run.stderr
    assert re.search(expected, run.stdout, re.DOTALL), run.stdout
    assert re.search(r"loss [▁▂▃▄▅▆▇█]+  \S+ -> \S+ in \d+ steps", run.stdout), run.stdout


def test_sparkline_shows_the_course():
    common = importlib.import_module("common")
    assert common.sparkline([3, 2, 1, 0], width=4)[0] == "█" and common.sparkline([3, 2, 1, 0], width=4)[-1] == "▁"
    assert len(common.sparkline(range(1000), width=50)) == 50
    assert common.sparkline([1.0, 1.0]) == "▁▁"


def test_png_is_readable(tmp_path, monkeypatch, capsys):
    common = importlib.import_module("common")
    monkeypatch.setattr(common, "PICTURES", tmp_path)
    common.save_png([[0.0, 1.0, 0.5]] * 2, "small", scale=2)
    data = (tmp_path / "small.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n") and struct.unpack(">II", data[16:24]) == (6, 4)
