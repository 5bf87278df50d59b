"""The public names of flambeau, module by module: what the API reference shows and tools/docstrings.py counts.

A name that is refused (it raises NotImplementedError, and docs/coverage.md lists it) is not among them.
"""

from __future__ import annotations

import importlib
import inspect
import types
import warnings
from typing import Any

import flambeau
from flambeau.ops import linalg

linalg.load_all()  # until then stand-ins answer to some names

# module: what it is about
MODULES = {
    "torch": "Tensors, their creation, and operations on them.",
    "Tensor": "The methods and attributes of a tensor.",
    "nn": "Layers, containers and losses.",
    "nn.functional": "The functions behind the layers.",
    "nn.init": "First values of parameters.",
    "nn.utils": "Clipping, parametrizations, sequences of different lengths.",
    "optim": "Optimizers.",
    "optim.lr_scheduler": "Learning rates that change as training goes on.",
    "autograd": "Gradients, hooks and custom functions.",
    "autograd.graph": "The graph itself: nodes, saved tensors, edges.",
    "autograd.functional": "Jacobians, Hessians and products with them.",
    "func": "Functions of functions: vmap, grad, jacobians.",
    "linalg": "Linear algebra.",
    "fft": "Fourier transforms.",
    "special": "Special functions.",
    "amp": "Mixed precision.",
    "compiler": "What became of a compiled function, and switches.",
    "distributions": "Probability distributions.",
    "utils.data": "Datasets and loaders.",
    "utils.checkpoint": "Memory against time: activations that are computed again.",
    "viz": "The graph drawn, played and counted.",
    "profiler": "Where the time goes.",
}


def is_refused(value: Any) -> bool:
    return (getattr(value, "__doc__", None) or "").startswith("Not available")


def module(name: str) -> Any:
    """The module, or the class Tensor, that a name of MODULES stands for."""
    if name == "torch":
        return flambeau
    return flambeau.Tensor if name == "Tensor" else importlib.import_module(f"flambeau.{name}")


def public(name: str) -> dict[str, Any]:
    """The functions, classes and properties that a module shows, by name, in order."""
    at = module(name)
    listed = getattr(at, "__all__", None) if name != "torch" else None
    found = {}
    for key in sorted(set(listed or dir(at))):
        if key.startswith("_"):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = inspect.getattr_static(at, key) if isinstance(at, type) else getattr(at, key, None)
        if isinstance(value, (classmethod, staticmethod)):
            value = value.__func__
        if _shown(value, at):
            found[key] = value
    return found


def _shown(value: Any, at: Any) -> bool:
    if is_refused(value) or isinstance(value, types.ModuleType):
        return False
    if isinstance(at, type):
        return callable(value) or isinstance(value, property)
    home = getattr(value, "__module__", "") or ""
    return (inspect.isfunction(value) or inspect.isclass(value)) and home.partition(".")[0] == "flambeau"


def signature(value: Any) -> str:
    """The arguments, as Python writes them, without the names of modules; "" for a property."""
    if isinstance(value, property):
        return ""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    plain = [p.replace(annotation=p.empty) for p in found.parameters.values()]
    if isinstance(value, type) and plain and plain[0].name == "self":
        plain = plain[1:]
    return str(found.replace(parameters=plain, return_annotation=found.empty))
