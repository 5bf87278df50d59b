"""Type checkers know flambeau: the stubs are those of today's names, a typed program passes, and a wrong one does not."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "tests" / "typed_program.py"
WRONG = """import flambeau as torch
x = torch.ones(2)
number: int = x + 1
x.no_such_method()
torch.no_such_function()
torch.relu()
x.grad.norm()
x.max(0).no_such_field
torch.nn.Linear(2)
"""


def test_stubs_are_up_to_date():
    """`python tools/stubs.py` writes them."""
    done = subprocess.run([sys.executable, ROOT / "tools" / "stubs.py", "--check"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Away from the source: what is imported from there is somebody else's code, as for users."""
    made = tmp_path_factory.mktemp("typed")
    shutil.copy(PROGRAM, made / "program.py")
    (made / "wrong.py").write_text(WRONG)
    (made / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)], "typeCheckingMode": "standard"}))
    return made


def wrong_lines(output: str) -> set[int]:
    return {int(line) for line in re.findall(r"wrong\.py:(\d+).*error", output)}


def test_mypy_strict(folder):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", "cache",
                           "program.py", "wrong.py"], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "MYPYPATH": str(ROOT)})
    assert "program.py" not in done.stdout and ".pyi" not in done.stdout, done.stdout
    assert wrong_lines(done.stdout) == set(range(3, 10)), done.stdout + done.stderr


def test_pyright(folder):
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    program = shutil.which("basedpyright", path=places)  # the same checks as a wheel, which brings all that it needs
    if program is None:
        pytest.skip("basedpyright is not installed")
    done = subprocess.run([program, "program.py"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run([program, "wrong.py"], cwd=folder, capture_output=True, text=True)
    assert wrong_lines(done.stdout) >= set(range(3, 10)), done.stdout + done.stderr


def test_the_program_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    from typed_program import train
    losses = train(steps=2)
    assert len(losses) == 4 and losses[-1] < losses[0]
