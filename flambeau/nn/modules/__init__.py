"""PyTorch's module paths (`nn.modules.conv`, `nn.modules.batchnorm`...): the same objects under the names that programs
import them by. There is no code here."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

from ...complete import CompleteModule, show_complete, table_of

_PARENT = __name__.rpartition(".")[0]
# PyTorch's file -> the files of flambeau.nn where its names stand
_ALIASES = {
    **{name: (name,) for name in """adaptive conv distance dropout flatten fold lazy loss padding pooling rnn transformer
       upsampling""".split()},
    "module": ("module", "hooks", "state_dict", "parameter"), "container": ("containers",), "linear": ("linear", "containers"),
    "batchnorm": ("norm",), "instancenorm": ("norm",), "normalization": ("norm",), "_functions": ("norm",),
    "activation": ("activation", "attention_layer"), "sparse": ("embedding",), "pixelshuffle": ("shuffle",),
    "channelshuffle": ("shuffle",),
}


class _Alias(CompleteModule):
    """Finds its names in other modules, when they are asked for."""

    def __getattr__(self, name: str) -> Any:
        owner = self._owner(name)
        if owner is None:
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        return getattr(owner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Some programs replace what they find (the tables of global hooks): it is replaced where it stands."""
        owner = self._owner(name)
        if owner is None:
            super().__setattr__(name, value)
        else:
            setattr(owner, name, value)
            table_of(self).pop(name, None)

    def _owner(self, name: str) -> types.ModuleType | None:
        """The module that defines a name."""
        if name.startswith("__") and name != "__all__":
            return None
        modules = (importlib.import_module(f"{_PARENT}.{file}") for file in table_of(self)["_files"])
        return next((module for module in modules if hasattr(module, name)), None)


def _make(name: str, files: tuple[str, ...]) -> types.ModuleType:
    alias = _Alias(f"{__name__}.{name}", f"The names of PyTorch's nn.modules.{name}.")
    table_of(alias)["_files"] = files
    sys.modules[alias.__name__] = alias
    return alias


globals().update({name: _make(name, files) for name, files in _ALIASES.items()})


def __getattr__(name: str) -> Any:
    parent = sys.modules[_PARENT]
    if name == "__all__":
        classes = {n: c for n in parent.__all__ if isinstance(c := getattr(parent, n), type)}
        return [n for n, c in classes.items() if issubclass(c, parent.Module) or n.endswith("Options")]
    if name in parent.__all__:
        return getattr(parent, name)
    if name == "utils":
        return importlib.import_module(f"{__name__}.utils")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


show_complete(__name__)
