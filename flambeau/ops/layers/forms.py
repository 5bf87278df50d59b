"""Functions that exist for one, two and three dimensions: one is written, with name and number first, and these made of it."""

from __future__ import annotations

import inspect
import linecache
import os
from collections.abc import Callable, Iterable
from typing import Any

from ..core.row import public

_HERE = os.path.splitext(os.path.abspath(__file__))[0]  # tracebacks and the compiler see whose code it is
_PLACES = {1: "length", 2: "height, width", 3: "*volume"}


def in_dimensions(name: str, dims: Iterable[int] = (1, 2, 3), **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorates function(name, dims, ...): there are `max_pool1d(...)`, `max_pool2d(...)`, ... in its place, as a tuple.

    name: with braces for the number. options: of `public`; a dict says them by dims. Braces in the docstring: the dimensions.
    """
    def decorate(function: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
        made = []
        for n in dims:
            own = {key: value.get(n) if isinstance(value, dict) else value for key, value in options.items()}
            made.append(public(_form(function, name.format(n), n), **own))
        return tuple(made)

    return decorate


def _form(function: Callable[..., Any], name: str, dims: int) -> Callable[..., Any]:
    """The function `name(...)` that calls function(name, dims, ...), as text."""
    signature = inspect.signature(function)
    taken = [p.replace(annotation=p.empty) for p in list(signature.parameters.values())[2:]]
    shown = signature.replace(parameters=taken, return_annotation=signature.empty)
    text = f"def {name}{shown}:\n    return general({name!r}, {dims}, {', '.join([p.name for p in taken])})\n"
    file = f"{_HERE} {name}"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    space = {**function.__globals__, "general": function}
    exec(compile(text, file, "exec"), space)
    made = space[name]
    made.__doc__ = (function.__doc__ or "").replace("{}", _PLACES[dims])
    made.__annotations__ = {k: v for k, v in function.__annotations__.items() if k not in ("name", "dims")}
    return made
