"""Lets a program that says `import torch` run on flambeau: `install()`, or `python -m flambeau program.py`.

A finder on `sys.meta_path` answers every import of `torch` or `torch.something` with flambeau's module of that name, the
very same object, so that `torch.nn.Linear is flambeau.nn.Linear`. It is in place as soon as flambeau is imported but does
nothing until `torch` means flambeau: after `install()`, or after `sys.modules["torch"] = flambeau`.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

_OWN = __package__ or "flambeau"
STANDS_FOR = "2.13.0+flambeau"  # the version of PyTorch that programs see; libraries choose their ways by it


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
        below = module.__spec__.name + "."
        for name, child in list(sys.modules.items()):
            if name.startswith(below):
                sys.modules.setdefault("torch" + name[len(_OWN):], child)

    def get_code(self, fullname: str) -> Any:
        """What `python -m torch.something` runs."""
        return self.before[1].get_code(self.module.__name__)


# -------------------------------------------------------------------------------------------------- child processes
def _say_it_to_spawned(module: ModuleType) -> None:
    """Lets processes that multiprocessing spawns take `torch` for flambeau, as this one does."""
    own_command_line = module.get_command_line
    folder = os.path.dirname(os.path.dirname(os.path.abspath(sys.modules[_OWN].__file__)))
    first = f"import sys; sys.path.append({folder!r}); import {_OWN}.as_torch; "

    def get_command_line(**kwargs: Any) -> list[str]:
        line = own_command_line(**kwargs)
        if _finder.installed and "-c" in line:
            program = line.index("-c") + 1
            line[program] = first + line[program]
        return line

    module.get_command_line = get_command_line


def _say_it_to_server(module: ModuleType) -> None:
    module.set_forkserver_preload([f"{_OWN}.as_torch"])


_STARTING = {"multiprocessing.spawn": _say_it_to_spawned, "multiprocessing.forkserver": _say_it_to_server}


def _with_children(name: str, path: Sequence[str] | None) -> Any:
    """How to import one of the standard modules that start processes."""
    spec = importlib.machinery.PathFinder.find_spec(name, path)
    if spec is not None and spec.loader is not None:
        run = spec.loader.exec_module

        def execute(module: ModuleType) -> None:
            run(module)
            _STARTING[name](module)

        spec.loader.exec_module = execute
    return spec


class _Finder:
    """Finds `torch` and all that is below it, while `torch` means flambeau."""

    def __init__(self) -> None:
        self.installed = False
        self.hidden: dict[str, ModuleType] = {}  # a real torch that was imported before install()
        self.version = ""  # flambeau's own, while PyTorch's is shown

    def in_charge(self) -> bool:
        """Whether `torch` means flambeau at present."""
        return self.installed or sys.modules.get("torch") is sys.modules.get(_OWN)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        if self.installed and name in _STARTING:
            return _with_children(name, path)
        if not (name == "torch" or name.startswith("torch.")) or not self.in_charge():
            return None
        if name.startswith(_PYTORCHS_OWN) and (found := _installed(name)) is not None:
            return found
        module = _target(name)
        if module is None:
            return None  # the other finders look in flambeau's folder, and find nothing there either
        return importlib.util.spec_from_loader(name, _Alias(module), is_package=hasattr(module, "__path__"))


    def find_distributions(self, context: Any = None) -> Any:
        """Answers `importlib.metadata.version("torch")`, by which libraries learn whether and which PyTorch is there."""
        if self.in_charge() and (context is None or context.name in (None, "torch")):
            yield _distribution()


def _distribution() -> Any:
    """What is known of the installed package `torch`, for importlib.metadata."""
    from importlib.metadata import Distribution

    class TorchDistribution(Distribution):
        """A distribution without files: its texts are written here."""

        texts = {"METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {STANDS_FOR}\n", "top_level.txt": "torch\n"}

        def read_text(self, filename: str) -> str | None:
            return self.texts.get(filename)

        def locate_file(self, path: Any) -> Any:
            return os.path.join(os.path.dirname(sys.modules[_OWN].__file__), path)

    return TorchDistribution()


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


def _show_version(shown: str) -> None:
    """Makes this the `__version__` of the module that both `flambeau` and `torch` are."""
    from . import version
    from .torch_version import TorchVersion
    version.__version__ = shown
    sys.modules[_OWN].__version__ = TorchVersion(shown)


def _show_names(root: str, parameter: str) -> None:
    """Names the module, and the classes by whose `__module__` libraries tell whose tensors they were given."""
    own = sys.modules[_OWN]
    own.__name__ = root
    for name in ("Tensor", "Size", "device", "dtype", "finfo", "iinfo", "Generator"):
        getattr(own, name).__module__ = root
    sys.modules[f"{_OWN}.tensors.parameter"].Parameter.__module__ = parameter


def install() -> None:
    """From now on `import torch` gives flambeau. A real torch that is imported already is set aside until uninstall()."""
    if _finder.installed:
        return
    present = _torch_modules()
    _finder.hidden = {} if present.get("torch") is sys.modules[_OWN] else present
    for name in present:
        del sys.modules[name]
    _finder.installed = True
    for name, say in _STARTING.items():
        if name in sys.modules:
            say(sys.modules[name])
    _finder.version = str(sys.modules[_OWN].__version__)
    _show_version(STANDS_FOR)
    importlib.import_module("torch")
    _show_names("torch", "torch.nn.parameter")


def uninstall() -> None:
    """`import torch` means PyTorch again, where it is there."""
    if not _finder.installed:
        return
    for name in _torch_modules():
        del sys.modules[name]
    sys.modules.update(_finder.hidden)
    _finder.hidden, _finder.installed = {}, False
    _show_names(_OWN, f"{_OWN}.nn.parameter")
    _show_version(_finder.version)
