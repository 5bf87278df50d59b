"""Examples for the docstrings of operations, from ops/examples.txt: most operations are rows and have no docstring of their own.

An entry is a name (`exp`, `Tensor.view`) and lines of a Python session; entries are apart by an empty line. The tests run them
all (tests/test_docstrings.py).
"""

from __future__ import annotations

import os
from typing import Any

from ...tensors.tensor import Tensor

_waiting: dict[str, str] = {}  # of functions that are defined when they are first asked for


def attach(functions: dict[str, Any]) -> None:
    """Adds the examples to the docstrings of functions and methods that are there. (It takes half a millisecond.)"""
    with open(os.path.join(os.path.dirname(os.path.dirname(__file__)), "examples.txt"), encoding="utf-8") as file:
        text = file.read()
    methods = vars(Tensor)
    for entry in text.split("\n\n"):
        name, _, example = entry.partition("\n")
        found = methods.get(name[7:]) if name.startswith("Tensor.") else functions.get(name)
        if found is None:
            _waiting[name] = example
        else:
            _add(found, example)


def attach_to(name: str, function: Any) -> None:
    """Adds the example of a function that was defined later."""
    example = _waiting.pop(name, None)
    if example is not None:
        _add(function, example)


def _add(function: Any, example: str) -> None:
    doc = function.__doc__ or ""
    if "\n    " in doc:  # as far to the right as the rest of it
        example = "    " + example.replace("\n", "\n    ")
    function.__doc__ = f"{doc.rstrip()}\n\n{example}" if doc else example
