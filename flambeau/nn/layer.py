"""Layers that hold options and hand them to one function: such a layer is a row, and its code is written from it.

    class ELU(Layer, function=F.elu):
        alpha: float = 1.0
        inplace: bool = False

has the `__init__(self, alpha=1.0, inplace=False)` that sets the two, the `forward(self, input)` that returns
`F.elu(input, self.alpha, self.inplace)` and the `extra_repr` that shows them; `inspect.getsource` prints them.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import sys
import types
from collections.abc import Callable, Container, Iterable
from typing import Any, dataclass_transform

from ..tensors.tensor import Tensor
from . import functional as F
from .module import Module

_HERE = os.path.splitext(os.path.abspath(__file__))[0] + "d"  # tracebacks and the compiler see whose code it is
_IN_ANNOTATIONS = {"Any": Any, "Callable": Callable, "Tensor": Tensor}


class Spatial(Module):
    """Families of layers for one to three dimensions: `class Conv2d(_Conv, dims=2, function=F.conv2d)`."""

    _dims: int
    _function: Any

    def __init_subclass__(cls, dims: int | None = None, function: Callable | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if dims is not None:
            cls._dims = dims
        if function is not None:
            cls._function = staticmethod(function)


class _Times:
    """In a docstring: `{times[8]}` is 8, `8, 8` or `8, 8, 8`."""

    def __init__(self, dims: int):
        self.dims = dims

    def __getitem__(self, number: Any) -> str:
        return ", ".join([str(number)] * self.dims)


def family(name: str, bases: Callable[[int], tuple[type, ...]], doc: str, dims: Iterable[int] = (1, 2, 3),
           options: Callable[[int], dict[str, Any]] = lambda n: {"dims": n}) -> tuple[Any, ...]:
    """Classes for one, two and three dimensions that differ in nothing else: "MaxPool{n}d" names them, and their text is one.

    bases and options (of `__init_subclass__`) by the number of dimensions. In the docstring {n} is the number, {size} names the
    dimensions, {new} those of a result.
    """
    made = []
    for n in dims:
        sizes = ["depth", "height", "width"][-n:] if n > 1 else ["length"]
        text = doc.format(n=n, size=", ".join(sizes), new=", ".join([f"new {size}" for size in sizes]), times=_Times(n))
        body = {"__doc__": text, "__module__": sys._getframe(1).f_globals["__name__"]}
        made.append(types.new_class(name.format(n=n), bases(n), options(n), lambda space, body=body: space.update(body)))
    return tuple(made)


def _documented(cls: type, function: Callable, inputs: int, shapes: str) -> str:
    """The docstring of a layer, from that of its function."""
    text, _, example = inspect.cleandoc(function.__doc__).partition("\n\n>>> ")
    source, _, result = example.partition("\n")
    call = ast.parse(source, mode="eval").body
    given, options = call.args[:inputs], [*call.args[inputs:], *call.keywords]
    first, rest = [", ".join([ast.get_source_segment(source, part) for part in parts]) for parts in (given, options)]
    return f"{text}\n\nShapes: {shapes}\n\n>>> nn.{cls.__name__}({rest})({first})\n{result.partition('>>> ')[0].strip()}"


@dataclass_transform()
class Layer(Module):
    """A subclass annotates its options in the order in which `__init__` takes them.

    function: what forward calls, with `inputs` and the options (and `training`, where the function asks for it). A class that
    has no docstring gets the function's, with `shapes` and its example: F.elu(x, 0.5) is nn.ELU(0.5)(x).
    `_layer_prepare`, if a class has one, runs at the end of `__init__`. `_layer_shown`: what extra_repr shows, if not
    all options (`inplace` only where it is True).
    """

    _layer_options: dict[str, Any] = {}  # their annotations
    _layer_defaults: dict[str, Any] = {}
    _layer_inputs = "input"
    _layer_shapes = "Any shape, kept."
    _layer_shown: tuple[str, ...] | None = None

    def __init_subclass__(cls, function: Callable | None = None, inputs: str | None = None, shapes: str = "",
                          **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.__module__.startswith("flambeau."):
            return  # a program's own class annotates what it likes
        if function is not None and cls.__doc__ is None and function.__doc__:
            cls.__doc__ = _documented(cls, function, (inputs or cls._layer_inputs).count(",") + 1,
                                      shapes or cls._layer_shapes)
        own = {name: kind for name, kind in inspect.get_annotations(cls).items() if not name.startswith("_")}
        cls._layer_inputs = inputs or cls._layer_inputs
        methods = {}
        if own:
            cls._layer_options = {**cls._layer_options, **own}
            cls.__constants__ = list(cls._layer_options)
        if own and "__init__" not in cls.__dict__:
            cls._layer_defaults = {**cls._layer_defaults, **{name: cls.__dict__[name] for name in own if name in cls.__dict__}}
            for name in own.keys() & cls.__dict__.keys():
                delattr(cls, name)
            text = _init(cls._layer_options, cls._layer_defaults, hasattr(cls, "_layer_prepare"))
            methods["__init__"] = text, {**cls._layer_options, "return": "None"}
        if function is not None:
            result = "Any" if "return_indices" in cls._layer_options else "Tensor"
            annotations = {**dict.fromkeys(cls._layer_inputs.split(", "), "Tensor"), "return": result}
            methods["forward"] = _forward(function, cls._layer_inputs, cls._layer_options), annotations
        for name, (text, annotations) in methods.items():
            made = _compiled(cls, name, text)
            made.__annotations__ = annotations
            setattr(cls, name, made)

    def extra_repr(self) -> str:
        names = self._layer_options if self._layer_shown is None else self._layer_shown
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names if name != "inplace" or self.inplace)


def _init(options: dict[str, Any], defaults: dict[str, Any], prepared: bool) -> str:
    arguments = [f"{name}={defaults[name]!r}" if name in defaults else name for name in options]
    sets = [f"self.{name} = {name}" for name in options]
    body = ["Module.__init__(self)", *sets, *["self._layer_prepare()"] * prepared]
    return "\n    ".join([f"def __init__({', '.join(['self', *arguments])}):", *body]) + "\n"


def _forward(function: Callable, inputs: str, options: Container[str]) -> str:
    code = inspect.unwrap(function).__code__
    skipped, called = False, [inputs]
    for place, name in enumerate(code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]):
        if name in options or name == "training":
            called.append(f"{name}=self.{name}" if skipped or place >= code.co_argcount else f"self.{name}")
        elif place >= len(inputs.split(", ")):
            skipped = True
    return f"def forward(self, {inputs}):\n    return F.{function.__name__}({', '.join(called)})\n"


def _compiled(cls: type, name: str, text: str) -> Any:
    file = f"{_HERE} {cls.__name__}.{name}"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    space: dict[str, Any] = {"__name__": cls.__module__, "F": F, "Module": Module, **_IN_ANNOTATIONS}
    exec(compile(text, file, "exec", 0, True), space)
    made = space[name]
    made.__qualname__ = f"{cls.__qualname__}.{name}"
    return made
