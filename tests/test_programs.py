"""Unmodified PyTorch programs run on flambeau and print what they print on PyTorch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from programs import run

import flambeau
from flambeau import compat

FOLDER = Path(__file__).parent / "programs"
PROGRAMS = sorted(p.stem for p in FOLDER.glob("*.py") if p.stem not in ("run", "__init__"))
torch.set_num_threads(1)  # tiny programs: more threads only wait for each other
NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?")


@pytest.fixture(autouse=True)
def switches_can_be_set():
    """PyTorch's testing package, imported by other tests of this process, freezes the torch.backends switches."""
    with torch.backends.__allow_nonbracketed_mutation():
        yield


def alike(expected: str, got: str) -> bool:
    """The same words, and numbers within 1e-4 of each other or one unit of the last digit printed."""
    if NUMBER.sub("#", expected).split() != NUMBER.sub("#", got).split():
        return False
    for a, b in zip(NUMBER.findall(expected), NUMBER.findall(got)):
        digits = len(a.partition(".")[2]) if "." in a and "e" not in a.lower() else 7
        if abs(float(a) - float(b)) > 2e-6 + 1e-4 * abs(float(a)) + (1.01 * 10.0 ** -digits if "." in a else 0):
            return False
    return True


@pytest.mark.parametrize("name", PROGRAMS)
def test_prints_what_it_prints_on_torch(name):
    path = str(FOLDER / f"{name}.py")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, got = (run.output(which, path).splitlines() for which in ("torch", "flambeau"))
    assert len(got) == len(expected)
    wrong = [f"torch    {a}\nflambeau {b}" for a, b in zip(expected, got) if not alike(a, b)]
    assert not wrong, "\n".join(wrong[:5])


def test_imports_give_flambeau_while_installed():
    before = sys.modules["torch"], sys.modules["torch.nn"]
    compat.install()
    try:
        import torch as t
        import torch.backends.cudnn as cudnn
        import torch.cuda.amp as amp
        import torch.nn.functional as functional
        from torch.optim.lr_scheduler import StepLR
        assert t is flambeau and functional is flambeau.nn.functional and cudnn is flambeau.backends.cudnn
        assert StepLR is flambeau.optim.lr_scheduler.StepLR
        assert amp is flambeau.cuda.amp
        assert flambeau.nn.__spec__.name == "flambeau.nn"  # an alias leaves the module as it was
        with pytest.raises(ModuleNotFoundError, match=r"torch\.no_such_part"):
            import torch.no_such_part  # noqa: F401
    finally:
        compat.uninstall()
    assert (sys.modules["torch"], sys.modules["torch.nn"]) == before


def python(*arguments: str, code: int = 0) -> str:
    """What a fresh Python prints."""
    env = {**os.environ, "PYTHONPATH": str(Path(flambeau.__file__).parents[1])}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=env)
    assert done.returncode == code, done.stderr
    return done.stdout


def test_command_line_runs_a_script_with_its_arguments(tmp_path):
    (tmp_path / "helper.py").write_text("import torch\nONE = torch.ones(1)\n")
    (tmp_path / "main.py").write_text("import sys, torch.nn as nn\nfrom helper import ONE\n"
                                      "if __name__ == '__main__': print(sys.argv[1:], ONE, nn.__name__)\n")
    assert python("-m", "flambeau", str(tmp_path / "main.py"), "--lr", "3") == "['--lr', '3'] tensor([1.]) flambeau.nn\n"
    assert python("-m", "flambeau", "-c", "import torch; print(torch.__name__, torch.nn.__name__)") == "torch flambeau.nn\n"
    assert python("-m", "flambeau", code=2).startswith("usage")


def test_a_plain_alias_in_sys_modules_is_enough():
    print_name = "import sys, flambeau; sys.modules['torch'] = flambeau; import torch.nn.utils.rnn as r; print(r.__name__)"
    assert python("-c", print_name) == "flambeau.nn.utils.rnn\n"


def test_compile_of_models_and_functions_keeps_what_programs_expect_of_them():
    model = flambeau.nn.Linear(2, 1)
    compiled, double = flambeau.compile(model), flambeau.compile(lambda x: x * 2)
    x = flambeau.ones(3, 2)
    for _ in range(2):
        assert flambeau.allclose(compiled(x), model(x)) and double(x).equal(x * 2)
    assert list(compiled.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"] and compiled.in_features == 2


@pytest.mark.parametrize("call", [lambda: flambeau.onnx.export(None, None), lambda: flambeau.hub.load("a", "b"),
                                  lambda: flambeau.jit.save(None, "f"), lambda: flambeau.export.export(None, ())])
def test_what_is_left_out_says_so(call):
    with pytest.raises(NotImplementedError, match="not implemented"):
        call()
