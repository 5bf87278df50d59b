"""`flambeau check`: what a program needs, read from its text."""

from __future__ import annotations

import pytest

from flambeau.cli import check, names
from flambeau.cli.reading import Reader


def found(text: str) -> dict[str, str]:
    """name -> status of what is not simply there."""
    reader = Reader(text, "program.py")
    return {name: status.word for name, _, status in check.findings(reader) if status.word != names.THERE}


@pytest.mark.parametrize("text, name", [
    ("import torch\ntorch.absent(1)", "torch.absent"),
    ("import torch as t\nt.nn.Absent()", "torch.nn.Absent"),
    ("from torch import nn\nclass M(nn.Module):\n    def f(self): return nn.Absent()", "torch.nn.Absent"),
    ("from torch import nn as layers\nlayers.Absent", "torch.nn.Absent"),
    ("import torch.nn.functional as F\nF.absent", "torch.nn.functional.absent"),
    ("import torch.utils.data\ntorch.utils.data.Absent", "torch.utils.data.Absent"),
    ("import torch.absent.part", "torch.absent.part"),
    ("from torch.absent import x", "torch.absent.x"),
    ("from torch.nn import Linear, Absent", "torch.nn.Absent"),
    ("import torch\nF = torch.nn.functional\nF.absent(1)", "torch.nn.functional.absent"),
    ("def f():\n    import torch\n    return lambda x: torch.absent(x)", "torch.absent"),
    ("import torch\n@torch.absent\ndef f(x=1): pass", "torch.absent"),
    ("import torch\ndef f(x: torch.Absent): pass", "torch.Absent"),
    ("import torch\nclass A(torch.nn.Absent): pass", "torch.nn.Absent"),
    ("import torch\nx = [torch.absent(i) for i in range(3)]", "torch.absent"),
    ("import torch\ngetattr(torch, 'absent')", "torch.absent"),
    ("import torch\nif not hasattr(torch, 'other'): torch.absent", "torch.absent"),
    ("import torch\ntry:\n    torch.ones(1)\nexcept KeyError:\n    torch.absent", "torch.absent"),
    ("import torch\ntorch.zeros(3).absent()", "torch.Tensor.absent"),
    ("import torch\nx = torch.zeros(3)\nx.absent()", "torch.Tensor.absent"),
    ("import torch\ndef f(x: torch.Tensor): return x.absent", "torch.Tensor.absent"),
    ("from torch import Tensor\ndef f(x: 'Tensor'): return x.absent", "torch.Tensor.absent"),
    ("import torch\nx = torch.zeros(3).view(3, 1)\nx.absent()", "torch.Tensor.absent"),
    ("import torch\ntorch.Tensor.absent", "torch.Tensor.absent"),
    ("try:\n    import torch\nexcept ImportError:\n    torch = None\ntorch.absent", "torch.absent")])
def test_what_is_missing_is_found(text, name):
    assert found(text) == {name: names.MISSING}


@pytest.mark.parametrize("text", [
    "import torch\ntorch.nn.functional.relu(torch.ones(2)).sum().backward()",
    "import numpy as torch\ntorch.absent",
    "absent.torch.absent",
    "import torch\ndef f(torch): return torch.absent",
    "import torch\nfor torch in range(3): torch.absent",
    "import torch\nx = torch.zeros(3)\nx = 5\nx.absent",
    "import torch\nx = torch.zeros(3)\nx.absent = 1\nx.absent",
    "import torch\ntorch.absent = len\ntorch.absent([])",
    "import torch\nx = torch.zeros(3).max(0)\nx.absent",
    "try:\n    from torch.absent import x\nexcept ImportError:\n    x = None",
    "try:\n    import torch.absent\nexcept (ValueError, ModuleNotFoundError):\n    pass",
    "import torch\nif hasattr(torch, 'absent'): torch.absent()",
    "import torch\ngetattr(torch, 'absent', None)",
    "import torch\ntorch.ops.mine.made_at_run_time()",
    "import torch\ntorch.float32.itemsize, torch.relu.__name__, torch.backends.cudnn.benchmark",
    "import torch\nx = torch.sparse_coo_tensor([[0]], [1.]).coalesce()"])
def test_nothing_is_said_that_is_not_certain(text):
    assert {name for name, word in found(text).items() if word == names.MISSING} == set()
    assert "torch.Tensor.coalesce" not in found(text)


def test_modules_that_refuse_all_but_some_names():
    """Programs for torchrun decorate their main function with one of them."""
    place = "torch.distributed.elastic.multiprocessing"
    assert found(f"from {place}.errors import record, ChildFailedError\nfrom {place} import start_processes") == {
        f"{place}.errors.ChildFailedError": names.REFUSED, f"{place}.start_processes": names.REFUSED}


def test_what_is_refused_or_partial_says_why():
    assert names.status("torch.quantized_lstm") == (names.REFUSED, "this operation on quantized tensors is not implemented")
    assert names.status("torch.qint8").word == names.REFUSED
    assert names.status("torch.Tensor.to_mkldnn").word == names.REFUSED
    assert names.status("torch.distributed.init_process_group").word == names.THERE
    assert names.status("torch.jit.optimized_execution").word == names.PARTIAL
    assert names.status("torch.nn.Linear") == (names.THERE, "")
    assert names.status("torch.absent.part") == (names.MISSING, "flambeau has no torch.absent")


def test_lines_files_and_modules_beside_the_program(tmp_path, monkeypatch, capsys):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("from . import layers\n")
    (tmp_path / "parts" / "layers.py").write_text("from torch import nn\n\nnn.Absent\n")
    (tmp_path / "beside.py").write_text("import torch\nimport os, json\n\ntorch.no_such\n")
    (tmp_path / "unused.py").write_text("import torch\ntorch.not_read\n")
    (tmp_path / "train.py").write_text("import torch, beside\nfrom parts import layers\n\ntorch.quantized_lstm, torch.ones\n")
    monkeypatch.chdir(tmp_path)
    assert check.main(["train.py"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["train.py:4: torch.quantized_lstm  refused: this operation on quantized tensors is not implemented",
                         "beside.py:4: torch.no_such  missing", "parts/layers.py:3: torch.nn.Absent  missing"]
    assert lines[3].startswith("4 files, 6 names of torch: 3 there, 0 partial, 1 refused, 2 missing")
    assert "docs/coverage.md" in lines[4]


def test_exit_codes(tmp_path, capsys):
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text("import torch\ntorch.ones(1)\n")
    bad.write_text("def f(:\n")
    assert check.main([str(good)]) == 0 and "2 there" in capsys.readouterr().out
    assert check.main([str(bad)]) == 2 and "bad.py:1: this is no Python" in capsys.readouterr().err
    assert check.main([str(tmp_path / "absent.py")]) == 2
    assert check.main(["--all", str(good)]) == 0 and ":2: torch.ones  there" in capsys.readouterr().out


def test_nothing_is_run(tmp_path):
    (tmp_path / "loud.py").write_text("import torch\nraise SystemExit(5)\n")
    assert check.main([str(tmp_path)]) == 0
