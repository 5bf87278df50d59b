"""The plan of the house (ARCHITECTURE.md): which room may know which. The imports of every file are read."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from types import ModuleType

import pytest

import flambeau
from flambeau.backends import registry
from flambeau.backends.interface import Backend

ROOT = Path(flambeau.__file__).parent
# From the foundation up. A file belongs to the layer that names it, or the longest beginning of its name; "*" is the rest.
LAYERS = [line.split() for line in """
    complete tensors.shapes tensors.formats tensors.return_types tensors.device utils._pytree utils.progress
    native
    backends
    tensors autograd ops.core creation settings streams missing serialization.rebuild func.batching multiprocessing
    ops sparse autograd.functional autograd.finite_differences
    flambeau linalg fft special types futures internals checks functional quantized_tensors utils.hooks utils._foreach_utils
    amp cuda nn.functional nn._reduction
    nn func serialization distributed autograd.gradcheck
    optim distributed.optim ao quantization nn.quantized nn.quantizable nn.qat nn.intrinsic
    compiler
    utils hub autograd.profiler
    *
    """.strip().splitlines()]
LAYERS[5] += ["utils.deterministic", "ops.aten", "ops.dispatch", "__future__"]  # what is there once all operations are


def _name(path: Path) -> str:
    """The module of a file as users import it, without `flambeau.`: the folder torch_names is on the package's path."""
    parts = [p for p in path.relative_to(ROOT).with_suffix("").parts if p not in ("__init__", "torch_names")]
    return ".".join(parts) or "flambeau"


FILES = {_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def _made(module: str) -> bool:
    """Whether it is a module without a file (missing.py)."""
    parent, _, name = module.rpartition(".")
    return bool(parent) and isinstance(getattr(importlib.import_module(f"flambeau.{parent}"), name, None), ModuleType)


def layer(module: str) -> int:
    """The number of the layer that a module is in."""
    found, number = 0, len(LAYERS) - 1
    for n, names in enumerate(LAYERS):
        for name in names:
            if (module == name or module.startswith(name + ".")) and len(name) > found:
                found, number = len(name), n
    return number


def imports(module: str, path: Path) -> list[tuple[str, int]]:
    """The modules of flambeau that a file imports, at its top or inside of a function, with the line."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    package = [] if module == "flambeau" else package
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(n.name.removeprefix("flambeau."), node.lineno) for n in node.names if n.name.split(".")[0] == "flambeau"]
        elif isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] == "flambeau"):
            base = package[:len(package) - node.level + 1] if node.level else []
            base = [*base, *[p for p in (node.module or "").split(".") if p and (node.level or p != "flambeau")]]
            for n in node.names:
                inner = ".".join([*base, n.name])
                found.append((inner if inner in FILES else ".".join(base) or "flambeau", node.lineno))
    return found


@pytest.mark.parametrize("module", FILES)
def test_arrows_point_down(module):
    unknown = [f"line {line}: {name}" for name, line in imports(module, FILES[module])
               if name not in FILES and not _made(name)]
    assert not unknown, f"imports of what is not there: {unknown}"
    own, room = layer(module), module.split(".")[0]
    if module == "flambeau":
        return  # the front door knows all rooms
    upward = [f"line {line}: {name}" for name, line in imports(module, FILES[module])
              if layer(name) > own and name.split(".")[0] != room]
    assert not upward, f"{FILES[module].relative_to(ROOT)} knows what stands on it: {upward}"


def test_every_layer_has_files():
    assert {layer(module) for module in FILES} == set(range(len(LAYERS)))


def test_the_top_has_no_files_but_the_doors():
    files = {p.name for p in ROOT.iterdir() if p.is_file() and p.suffix != ".pyi"}
    assert files == {"__init__.py", "__main__.py", "settings.py", "py.typed"}


def test_names_of_pytorchs_are_found_where_pytorch_has_them():
    import flambeau.hub
    import flambeau.random
    assert flambeau.hub.__name__ == "flambeau.hub"
    assert flambeau.random.manual_seed is flambeau.manual_seed


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_devices_provide_what_the_interface_says(device):
    backend = registry.backend_for(flambeau.device(device))
    wanted = [name for name in (*vars(Backend), *Backend.__annotations__) if not name.startswith("_")]
    assert len(wanted) > 30
    assert [name for name in wanted if not hasattr(backend, name)] == []
