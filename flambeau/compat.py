"""Lets a program that says `import torch` run on flambeau: `install()`, or `python -m flambeau program.py`.

A finder on `sys.meta_path` answers every import of `torch` or `torch.something` with flambeau's module of that name, the
very same object, so that `torch.nn.Linear is flambeau.nn.Linear`. It is in place as soon as flambeau is imported but does
nothing until `torch` means flambeau: after `install()`, or after `sys.modules["torch"] = flambeau`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

_OWN = __package__ or "flambeau"


def _target(name: str) -> ModuleType | None:
    """flambeau's module for a name of PyTorch's, or None where flambeau has none."""
    own = _OWN + name[len("torch"):]
    try:
        return importlib.import_module(own)
    except ModuleNotFoundError as error:
        if error.name is None or not (own + ".").startswith(error.name + "."):
            raise  # the module is there, but something that it needs is not
        return None


# Helpers of PyTorch's own tests. They are Python over the public names: where PyTorch is installed, its files run on flambeau.
_PYTORCHS_OWN = ("torch.testing._internal", "torch.testing._comparison", "torch._vendor")


def _installed(name: str) -> Any:
    """How to import the file of that name in the installed PyTorch; None where there is none."""
    for folder in sys.path:
        stem = os.path.join(folder, *name.split("."))
        for file, below in ((os.path.join(stem, "__init__.py"), [stem]), (stem + ".py", None)):
            if os.path.exists(file):
                return importlib.util.spec_from_file_location(name, file, submodule_search_locations=below)
    return None


class _Alias:
    """Loads a module of PyTorch's name by handing out flambeau's, untouched."""

    def __init__(self, module: ModuleType):
        self.module = module
        self.before = module.__spec__, getattr(module, "__loader__", None)

    def create_module(self, spec: Any) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__, module.__loader__ = self.before  # the import system has just written the alias's own
        # Below a module that is no package (cuda.amp) nothing is searched: what is there must be known by name.
        below = module.__name__ + "."
        for name, child in list(sys.modules.items()):
            if name.startswith(below):
                sys.modules.setdefault("torch" + name[len(_OWN):], child)

    def get_code(self, fullname: str) -> Any:
        """What `python -m torch.something` runs."""
        return self.before[1].get_code(self.module.__name__)


class _Finder:
    """Finds `torch` and all that is below it, while `torch` means flambeau."""

    def __init__(self) -> None:
        self.installed = False
        self.hidden: dict[str, ModuleType] = {}  # a real torch that was imported before install()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        if not (name == "torch" or name.startswith("torch.")):
            return None
        if not self.installed and sys.modules.get("torch") is not sys.modules.get(_OWN):
            return None
        if name.startswith(_PYTORCHS_OWN) and (found := _installed(name)) is not None:
            return found
        module = _target(name)
        if module is None:
            raise ModuleNotFoundError(f"No module named {name!r}: flambeau has no {_OWN + name[5:]}", name=name)
        return importlib.util.spec_from_loader(name, _Alias(module), is_package=hasattr(module, "__path__"))


class _LateFinder:
    """Asked after all others: private modules of PyTorch's have stand-ins (internals.py)."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        if not name.startswith(_OWN + "."):
            return None
        from . import internals
        return internals.spec(name)


def _torch_modules() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name == "torch" or name.startswith("torch.")}


_finder = _Finder()
sys.meta_path.insert(0, _finder)
sys.meta_path.append(_LateFinder())


def install() -> None:
    """From now on `import torch` gives flambeau. A real torch that is imported already is set aside until uninstall()."""
    if _finder.installed:
        return
    present = _torch_modules()
    _finder.hidden = {} if present.get("torch") is sys.modules[_OWN] else present
    for name in present:
        del sys.modules[name]
    _finder.installed = True
    importlib.import_module("torch")


def uninstall() -> None:
    """`import torch` means PyTorch again, where it is there."""
    if not _finder.installed:
        return
    for name in _torch_modules():
        del sys.modules[name]
    sys.modules.update(_finder.hidden)
    _finder.hidden, _finder.installed = {}, False
