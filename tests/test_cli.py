"""The command `flambeau`: each subcommand in a process of its own, as a user starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import flambeau
from flambeau.cli import COMMANDS, bench, graph, plot

ROOT = Path(flambeau.__file__).parents[1]


def cli(*arguments: str, code: int = 0, at: Path | None = None) -> subprocess.CompletedProcess:
    done = subprocess.run([sys.executable, "-m", "flambeau.cli", *arguments], capture_output=True, text=True, cwd=at,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_help_names_every_command_and_what_exit_codes_mean():
    text = cli("--help").stdout
    assert all(f"  {name} " in text for name in COMMANDS) and "exit status" in text
    assert cli(code=2).stdout == text  # nothing was asked for
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command):
    assert cli(command, "--help").stdout.startswith(f"usage: flambeau {command}")


def test_a_wrong_command_line_says_what_was_meant():
    assert "did you mean `flambeau demo`?" in cli("dmeo", code=2).stderr
    assert "flambeau run train.py" in cli("train.py", code=2).stderr
    assert "there is no file 'absent.py'" in cli("run", "absent.py", code=2).stderr


# ------------------------------------------------------------------------------------------------------------------- run
PROGRAM = "import sys, torch\nfrom torch import nn\n"


@pytest.mark.parametrize("line, name", [
    ("torch.no_such_function", "torch.no_such_function"), ("nn.NoSuchLayer", "torch.nn.NoSuchLayer"),
    ("from torch.nn import NoSuchLayer", "torch.nn.NoSuchLayer"), ("import torch.no_such.part", "the module torch.no_such"),
    ("torch.ones(2).no_such_method()", "torch.Tensor.no_such_method"), ("torch.Tensor.no_such", "torch.Tensor.no_such")])
def test_a_program_that_needs_what_is_missing_hears_what_and_where_it_is_listed(tmp_path, line, name):
    (tmp_path / "program.py").write_text(PROGRAM + line)
    said = cli("run", "program.py", code=3, at=tmp_path).stderr
    assert f"flambeau does not have {name}. " in said and "docs/coverage.md" in said and "flambeau check program.py" in said
    assert 'File "program.py", line 3' in said and "runpy" not in said


def test_what_a_function_refuses_counts_as_missing_and_the_programs_own_errors_do_not(tmp_path):
    (tmp_path / "refused.py").write_text("import torch\ntorch.quantized_max_pool1d(torch.ones(1), 2)")
    assert "on quantized tensors is not implemented" in cli("run", "refused.py", code=3, at=tmp_path).stderr
    for text in ("raise NotImplementedError('mine')", "{}.absent", "import no_such_package", "1 / 0"):
        (tmp_path / "own.py").write_text(PROGRAM + text)
        assert "coverage.md" not in cli("run", "own.py", code=1, at=tmp_path).stderr
    (tmp_path / "own.py").write_text(PROGRAM + "print(sys.argv[1:]); sys.exit(7)")
    assert cli("run", "own.py", "-x", "1", code=7, at=tmp_path).stdout == "['-x', '1']\n"


# ----------------------------------------------------------------------------------------------------------------- graph
@pytest.mark.parametrize("call", ["loss.backward()", "torch.autograd.backward(loss)", "torch.autograd.backward([loss])",
                                  "out.backward(torch.ones(4, 1))"])
def test_the_first_backward_is_found_with_its_model(call):
    program = ("import flambeau as torch\ndef train():\n    model, other = torch.nn.Linear(3, 1), torch.nn.Linear(1, 1)\n"
               f"    out = model(torch.ones(4, 3)); loss = out.sum()\n    {call}\n    raise AssertionError\n"
               "try: train()\nexcept Exception: raise SystemExit(9)\n")
    seen = []

    class Enough(BaseException):
        pass

    def first(tensors, gradients, model):
        seen.append((tensors, gradients, model))
        raise Enough

    before = flambeau.Tensor.backward, flambeau.autograd.backward
    with pytest.raises(Enough), graph.intercepted(first):
        exec(program, {})
    ([loss], [gradient], model), = seen
    assert loss.grad_fn is not None and (gradient is None) == (loss.dim() == 0)
    assert model.in_features == 3 and model.weight.grad is None and not flambeau.is_anomaly_enabled()
    assert (flambeau.Tensor.backward, flambeau.autograd.backward) == before


def test_a_program_without_a_backward_is_told_so(tmp_path):
    (tmp_path / "forward.py").write_text("import torch\nprint(torch.ones(1).sum())")
    done = cli("graph", "forward.py", code=1, at=tmp_path)
    assert "without a call of backward" in done.stderr and "tensor(1.)" in done.stdout


def test_the_page_knows_the_programs_lines_and_modules(tmp_path):
    (tmp_path / "step.py").write_text("import torch\nmodel = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())\n"
                                      "loss = model(torch.ones(1, 2)).sum()\nloss.backward()\nprint('not reached')\n")
    done = cli("graph", "--out", "page.html", "step.py", at=tmp_path)
    page = (tmp_path / "page.html").read_text()
    assert done.stdout == "" and "page.html" in done.stderr
    assert "step.py" in page and "ReluBackward0" in page and "0.weight" in page and '"Linear"' in page


# --------------------------------------------------------------------------------------------------- demo, bench and info
def test_the_digits_are_learnt_and_drawn(tmp_path):
    said = cli("demo", "digits", "--steps", "60", "--out", "made", at=tmp_path).stdout
    assert "60 steps in" in said and "images per second" in said and "that it never saw" in said
    ElementTree.parse(tmp_path / "made" / "digits_loss.svg")
    assert f"{Path('made', 'digits_loss.svg')}" in said and (tmp_path / "made" / "digits_graph.html").exists()


def test_the_gpt_trains_and_writes(tmp_path):
    said = cli("demo", "--steps", "3", "--eager", at=tmp_path).stdout
    assert "tokens per second" in said and "What it writes now:\n\nThe " in said
    assert (tmp_path / "flambeau-demo" / "gpt_loss.svg").exists()
    assert "at least one step" in cli("demo", "--steps", "0", code=2).stderr


def test_bench_prints_a_row_for_what_was_asked():
    lines = cli("bench", "--rounds", "1", "--only", "3x4").stdout.splitlines()
    assert lines[0].startswith("| what | flambeau |") and lines[2].startswith("| a * b, 3x4")
    assert lines[0].count("|") == lines[1].count("|") == lines[2].count("|")


def test_what_cannot_be_done_is_said_before_the_work(tmp_path):
    assert "no row's name contains 'absent'" in cli("bench", "--only", "absent", code=2).stderr
    (tmp_path / "file").write_text("")
    said = cli("demo", "digits", "--out", "file/folder", at=tmp_path, code=2)
    assert "argument --out" in said.stderr and "step" not in said.stdout
    assert "there is no file 'absent.py'" in cli("check", "absent.py", at=tmp_path, code=2).stderr


def test_minima_are_taken_in_turns():
    order = []
    best = bench.interleave({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 2, least=0)
    assert order == list("aaabbb") + list("aabbaabb") and set(best) == {"a", "b"} and all(v >= 0 for v in best.values())


def test_the_rows_of_jax_are_the_rows():
    text = (Path(bench.__file__).parent / "bench_jax.py").read_text()
    assert all(f'"{row}"' in text for row in bench.ROWS)


def test_info_says_what_is_there():
    said = cli("info").stdout
    for fact in ("flambeau:", "Python:", "packages:", "processor:", "kernels:", "compiler:", "threads:", "cache:", "GPU:"):
        assert fact in said
    assert flambeau.__version__ in said and "numpy" in said


# ---------------------------------------------------------------------------------------------------------------- pictures
def test_a_curve_is_drawn_within_its_axes():
    values = [5.0, 3.0, float("nan"), 2.0, 1.0]
    root = ElementTree.fromstring(plot.curve(values, "a < b"))
    raw, mean = root.findall("{http://www.w3.org/2000/svg}polyline")
    points = [tuple(map(float, p.split(","))) for p in raw.get("points").split()]
    assert len(points) == len(mean.get("points").split()) == 4  # what is not a number is left out
    assert points[0] == (plot.LEFT, plot.TOP) and points[-1] == (plot.WIDTH - plot.RIGHT, plot.HEIGHT - plot.BOTTOM)
    assert "a < b" in "".join(root.itertext())


@pytest.mark.parametrize("values", [[1.0], [2.0, 2.0], [], [float("inf")]])
def test_curves_of_little(values):
    ElementTree.fromstring(plot.curve(values, "little"))


def test_ticks_are_round():
    assert plot.round_numbers(0.3, 4.6) == [1, 2, 3, 4]
    assert plot.round_numbers(0, 0.01) == pytest.approx([0, .002, .004, .006, .008, .01])
