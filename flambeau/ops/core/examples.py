"""Examples for the docstrings of operations, from ops/examples.txt: most are rows, which have no docstring to write in.

An entry is a name (`exp`, `Tensor.view`, `linalg.solve`) and lines of a Python session. Before these may stand a sentence, for
a function that has no docstring. Entries are apart by an empty line. The tests run them all (tests/test_docstrings.py).
"""

from __future__ import annotations

import os
from typing import Any

from ...tensors.tensor import Tensor

ENTRIES: dict[str, str] = {}  # kept, for functions that are defined when they are first asked for


def attach(functions: dict[str, Any]) -> None:
    """Adds the examples to the docstrings of functions and methods that are there. (It takes half a millisecond.)"""
    with open(os.path.join(os.path.dirname(os.path.dirname(__file__)), "examples.txt"), encoding="utf-8") as file:
        text = file.read()
    methods = vars(Tensor)
    for entry in text.split("\n\n"):
        name, _, example = entry.partition("\n")
        found = methods.get(name[7:]) if name.startswith("Tensor.") else functions.get(name)
        ENTRIES[name] = example
        if found is not None:
            _add(found, example)


def attach_module(module: str, functions: dict[str, Any]) -> None:
    """Adds the examples of a module that was imported later: entries as `linalg.solve`."""
    for name in [n for n in ENTRIES if n.startswith(module) and n.rpartition(".")[0] == module]:
        if name.rpartition(".")[2] in functions:
            attach_to(name, functions[name.rpartition(".")[2]])


def attach_to(name: str, function: Any) -> None:
    """Adds the example of a function that was defined later."""
    example = ENTRIES.get(name)
    if example is not None:
        _add(function, example)


def _add(function: Any, example: str) -> None:
    doc = function.__doc__ or ""
    if ">>>" in doc:  # the function has another name, too
        return
    if not example.startswith(">>>"):
        sentence, _, example = example.partition("\n")
        doc = doc or sentence
    if "\n    " in doc:  # as far to the right as the rest of it
        example = "    " + example.replace("\n", "\n    ")
    function.__doc__ = f"{doc.rstrip()}\n\n{example}"
