"""Runs one of PyTorch's own test files on flambeau.

    PYTHONPATH=. python tools/pytorch_tests.py path/to/test_view_ops.py [unittest arguments, e.g. -k transpose]

In the process `import torch` gives flambeau, and `torch.testing._internal.*` (TestCase, make_tensor, the decorators)
comes from the installed PyTorch's Python files, which then run on flambeau. Modules of PyTorch's that flambeau does not
have and that the testing package imports are replaced by empty ones; `--verbose-stubs` names what was asked of them.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import pathlib
import runpy
import sys
import types
from typing import Any
from unittest.mock import MagicMock

FROM_PYTORCH = ("torch.testing._internal", "torch.testing._comparison", "torch.testing._utils", "torch.utils._import_utils",
                "torch._vendor")
VERBOSE = "--verbose-stubs" in sys.argv


def site_packages() -> pathlib.Path:
    """Where the installed PyTorch is, without importing it."""
    return pathlib.Path(importlib.util.find_spec("torch").origin).parents[1]


def said(what: str) -> None:
    if VERBOSE:
        print("stub:", what, file=sys.stderr)


class Stub(types.ModuleType):
    """An empty module: every name in it is a class whose instances are False."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        said(f"{self.__name__}.{name}")
        if self.__name__.startswith(("torch._refs", "torch._prims")):
            made = MagicMock(name=name)
            setattr(self, name, made)
            return made
        made = type(name, (), {"__new__": lambda cls, *a, **k: False, "is_dsl_available": staticmethod(lambda *a: False)})
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """torch.x is flambeau.x, PyTorch's file, or a stub, in this order of what there is."""

    def __init__(self, site: pathlib.Path):
        self.site = site

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "torch" and not name.startswith("torch."):
            return None
        if name.startswith(FROM_PYTORCH):
            stem = self.site.joinpath(*name.split("."))
            for file, package in ((stem / "__init__.py", True), (stem.with_suffix(".py"), False)):
                if file.exists():
                    return importlib.util.spec_from_file_location(
                        name, file, submodule_search_locations=[str(stem)] if package else None)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        ours = "flambeau" + spec.name[len("torch"):]
        try:
            return importlib.import_module(ours)
        except ModuleNotFoundError:
            said(f"module {spec.name}")
            return Stub(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        if not hasattr(module, "__path__"):
            module.__path__ = []  # PyTorch has packages where flambeau has files


def install() -> None:
    """Makes `import torch` give flambeau."""
    finder = Finder(site_packages())
    import flambeau._C as compiled
    import flambeau._utils as utils
    import flambeau.cpu as cpu
    import flambeau.testing
    import flambeau.utils
    sys.meta_path.insert(0, finder)  # before flambeau.compat's, which knows no stubs
    known = compiled.__getattr__

    def ask(name: str) -> Any:
        try:
            return known(name)
        except AttributeError:
            if name.startswith("__"):
                raise
            return getattr(stubs, name)

    stubs = Stub("torch._C")
    compiled.__getattr__ = ask
    compiled._get_privateuse1_backend_name = lambda: "privateuseone"
    compiled._TorchFunctionState = enum.Enum("_TorchFunctionState", "ENABLED SUBCLASSES_DISABLED ALL_DISABLED")
    compiled._get_torch_function_state = lambda: compiled._TorchFunctionState.ENABLED
    compiled.ScriptDict, compiled.ScriptList = type("ScriptDict", (), {}), type("ScriptList", (), {})
    utils._is_privateuse1_backend_available = lambda: False
    for name in ("_is_avx2_supported", "_is_avx512_supported", "_is_amx_tile_supported", "_is_vnni_supported"):
        if not hasattr(cpu, name):
            setattr(cpu, name, lambda: False)
    flambeau.utils.cpp_extension = sys.modules["torch.utils.cpp_extension"] = Stub("torch.utils.cpp_extension")
    dynamo = importlib.import_module("torch._dynamo")
    dynamo.config = sys.modules["torch._dynamo.config"] = MagicMock(suppress_errors=False)
    for name in ("compiled_autograd", "trace_rules", "eval_frame"):
        if not hasattr(dynamo, name):
            setattr(dynamo, name, MagicMock())
    flambeau.utils._mode_utils = types.SimpleNamespace(no_dispatch=contextlib.nullcontext)
    compiled._DisableFuncTorch = contextlib.nullcontext
    flambeau.torch = flambeau
    flambeau.cuda.jiterator = MagicMock()
    flambeau.backends.python_native = MagicMock(available_dsls=[])
    flambeau.testing._utils = importlib.import_module("torch.testing._utils")


def main() -> None:
    arguments = [a for a in sys.argv[1:] if a != "--verbose-stubs"]
    if not arguments:
        raise SystemExit(__doc__)
    install()
    file = pathlib.Path(arguments[0]).resolve()
    sys.argv = [str(file), *arguments[1:]]
    sys.path.insert(0, str(file.parent))
    runpy.run_path(str(file), run_name="__main__")


if __name__ == "__main__":
    main()
