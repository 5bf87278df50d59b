"""What `import flambeau` and a first step leave for later, and the state in which the import leaves the collector."""

from __future__ import annotations

import importlib.util
import marshal
import os
import subprocess
import sys

import pytest

FIRST_STEP = """
import sys, flambeau as torch
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
optimizer = torch.optim.Adam(model.parameters())
torch.nn.functional.cross_entropy(model(torch.randn(5, 4)), torch.randint(0, 3, (5,))).backward()
optimizer.step()
"""


def run(code: str, *options: str, **env: str) -> str:
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | env).stdout.strip()


@pytest.mark.parametrize("module", ["ops.layers.attention", "ops.layers.conv", "ops.layers.losses", "ops.layers.rnn",
                                    "backends.cpu.layers.ctc", "nn", "optim"])
def test_what_only_layers_use_waits_for_them(module):
    assert importlib.util.find_spec(f"flambeau.{module}"), "the test names what is not there"
    assert run(f"import sys, flambeau; print('flambeau.{module}' in sys.modules)") == "False"


def test_a_first_step_imports_what_it_needs():
    modules = run(FIRST_STEP + "print(*sys.modules)").split()
    waiting = {f"flambeau.{m}" for m in ("ops.layers.attention", "ops.layers.conv", "ops.layers.pooling", "ops.layers.resample",
                                         "ops.layers.normalization", "optim.rules", "compiler", "fx", "distributed")}
    assert all(importlib.util.find_spec(name) for name in waiting)
    assert not waiting.intersection(modules)


def test_functions_that_wait_are_seen_and_found():
    assert run("import flambeau.nn.functional as F; print(set(F.__all__) <= set(dir(F)) and 'conv2d' in vars(F))") == "True"
    assert run("from flambeau.nn.functional import *; print(conv2d.__name__, layer_norm.__name__)") == "conv2d layer_norm"
    assert run("import flambeau.nn.functional as F; print('>>>' in F.conv2d.__doc__)") == "True"


def texts(folder: object) -> list[str]:
    return [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if name.startswith("texts.")]


SUM = "import flambeau as f; print((f.ones(3) * 2 + 1).sum().item())"


def test_generated_code_is_kept_where_python_keeps_code(tmp_path):
    prefix = {"PYTHONPYCACHEPREFIX": str(tmp_path)}
    assert run(SUM, "-B", **prefix) == "9.0" and not texts(tmp_path)
    assert run(SUM, PYTHONDONTWRITEBYTECODE="", **prefix) == "9.0"
    [file] = texts(tmp_path)
    before = os.stat(file).st_mtime_ns
    count = "import flambeau; from flambeau.ops.core import kept; print(len(kept._fresh), len(kept._kept) > 20)"
    assert run(count, PYTHONDONTWRITEBYTECODE="", **prefix) == "0 True"
    assert os.stat(file).st_mtime_ns == before  # nothing new, nothing written


@pytest.mark.parametrize("damage", [b"", b"nonsense", importlib.util.MAGIC_NUMBER + b"nonsense",
                                    importlib.util.MAGIC_NUMBER + marshal.dumps({("def call(): pass", "file"): 1})])
def test_kept_code_that_is_damaged_is_made_anew(tmp_path, damage):
    prefix = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    run(SUM, **prefix)
    [file] = texts(tmp_path)
    size = os.stat(file).st_size
    with open(file, "wb") as stream:
        stream.write(damage)
    assert run(SUM, **prefix) == "9.0"
    assert os.stat(file).st_size >= size


def test_kept_code_is_that_of_its_text(tmp_path):
    """Under another text's name, or from another file, nothing is found."""
    from flambeau.ops.core import kept
    assert kept.code("def call(): return 1\n", "here 1") is kept.code("def call(): return 1\n", "here 1")
    space: dict = {}
    exec(kept.code("def call(): return 2\n", "here 1"), space)
    assert space["call"]() == 2
    assert kept.code("def call(): return 1\n", "here 2").co_filename == "here 2"


def test_the_version_of_a_compiler_is_asked_once(tmp_path, monkeypatch):
    from flambeau.native import toolchain
    asked, compiler = tmp_path / "asked", tmp_path / "mycc"
    compiler.write_text(f"#!/bin/sh\necho x >> {asked}\necho mycc 1\n")
    compiler.chmod(0o755)
    (tmp_path / "cache").mkdir(mode=0o700)
    monkeypatch.setattr(toolchain, "folder", lambda: tmp_path / "cache")
    fresh = toolchain._version.__wrapped__
    assert [fresh((str(compiler),)) for _ in range(3)] == ["mycc 1\n"] * 3
    assert asked.read_text() == "x\n"
    compiler.write_text(compiler.read_text().replace("mycc 1", "mycc 22"))  # another size
    assert fresh((str(compiler),)) == "mycc 22\n"
    assert "No such file" in fresh((str(tmp_path / "none"),))


def test_names_whose_family_waits_are_there():
    assert run("import flambeau as f; print(f.lstm.__name__, f.gru_cell.__name__, f.ctc_loss.__name__)") == (
        "lstm gru_cell ctc_loss")


def test_losses_work_without_layers():
    assert run("import flambeau as f; x = f.zeros(3, 1, 2); one = f.tensor([1]); "
               "print(f.ctc_loss(x, f.ones(1, 1).long(), f.tensor([3]), one).shape)") == "torch.Size([])"


def test_the_collector_goes_on_as_before():
    """What the import made is old, not out of the collector's sight, and nothing is collected right away."""
    assert run("import gc, flambeau; print(gc.isenabled(), gc.get_freeze_count())") == "True 0"
    assert run("import gc; gc.disable(); import flambeau; print(gc.isenabled())") == "False"
    assert run("import gc; gc.freeze(); import flambeau; print(gc.get_freeze_count() > 100)") == "True"  # the user's own
    assert run("import gc, flambeau; print(gc.get_count()[1:])") == "(0, 0)"  # no walk over all of it at the end


def test_operations_ask_nobody_because_a_class_of_tensors_exists():
    """Libraries import distributed tensors to compare classes with; every operation would look for one among its arguments."""
    assert run("import flambeau.distributed.tensor, flambeau.distributed._functional_collectives\n"
               "from flambeau.ops.core import overrides; print(overrides.active)") == "False"
