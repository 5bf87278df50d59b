"""What `import flambeau` leaves for later, and the state in which it leaves the collector."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("module", ["ops.attention", "ops.conv", "ops.losses", "ops.rnn", "backends.cpu.ctc"])
def test_what_only_layers_use_waits_for_them(module):
    assert run(f"import sys, flambeau; print('flambeau.{module}' in sys.modules)") == "False"


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
