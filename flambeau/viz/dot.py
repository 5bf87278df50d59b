"""`make_dot`: the graph behind a tensor as a picture, with torchviz's call and conventions.

Boxes are tensors or nodes: blue leaves (whose `.grad` a backward pass fills), orange saved tensors, green outputs, darker green
the base of an output that is a view (a dotted line ties them), grey the nodes. Arrows follow the data, from leaves to outputs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..autograd.function_context import BackwardCFunction
from ..autograd.node import AccumulateGrad
from ..tensors.tensor import Tensor
from . import draw

NODE_STYLE = {"align": "left", "fontname": "monospace", "fontsize": "10", "height": "0.2", "ranksep": "0.1", "shape": "box",
              "style": "filled"}
SAVED = "_saved_"
OWN_FORMATS = ("svg", "png", "dot", "gv")


def make_dot(var: Tensor | tuple[Tensor, ...], params: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]] | None = None,
             show_attrs: bool = False, show_saved: bool = False, max_attr_chars: int = 50) -> Dot:
    """The graph of the backward pass from `var`, drawn.

    var: a tensor or a tuple of them. params: names of leaves, `dict(model.named_parameters())` or the pairs themselves.
    show_attrs: what nodes keep, as text, each value cut to max_attr_chars. show_saved: the tensors that nodes keep as boxes of
    their own (those of custom Functions always are).

        >>> import flambeau as torch
        >>> w = torch.ones(2, requires_grad=True)
        >>> graph = torch.viz.make_dot((w * 3).sum(), params={"w": w})
        >>> print(graph.source.splitlines()[-2].strip())  # graph.render("graph.svg") writes the picture
        1 -> 0
    """
    pairs = list(params.items() if isinstance(params, Mapping) else params or ())
    for name, p in pairs:
        if not isinstance(p, Tensor):
            raise TypeError(f"make_dot: params should name tensors, but {name!r} is a {type(p).__name__}")
    outputs = var if isinstance(var, (tuple, list)) else (var,)
    for v in outputs:
        if not isinstance(v, Tensor):
            raise TypeError(f"make_dot: expected a tensor or a tuple of tensors, got {type(v).__name__}")
    reader = _Reader({id(p): name for name, p in pairs}, show_attrs, show_saved, max(max_attr_chars, 3))
    for v in outputs:
        reader.output(v)
    return reader.dot


class _Reader:
    """Walks from outputs to leaves and enters what it meets into a `Dot`."""

    def __init__(self, names: dict[int, str], show_attrs: bool, show_saved: bool, longest: int):
        self.dot, self.names, self.show_attrs, self.show_saved, self.longest = Dot(), names, show_attrs, show_saved, longest
        self.seen: dict[int, Any] = {}  # by id: kept, so that no id is given out again

    def number(self, thing: Any) -> int:
        """The number of the box that stands for a tensor or a node."""
        self.seen.setdefault(id(thing), thing)
        return self.dot._number(id(thing))

    def label(self, tensor: Tensor, name: str = "") -> str:
        name = name or self.names.get(id(tensor), "")
        return f"{name}\n ({', '.join([str(n) for n in tensor.shape])})"

    def output(self, tensor: Tensor) -> None:
        color, below = "darkolivegreen1", None
        while tensor is not None:
            known = id(tensor) in self.seen
            if not known:
                self.dot._node(self.number(tensor), self.label(tensor), color)
                if tensor.grad_fn is not None:
                    self.nodes(tensor.grad_fn)
                    self.dot._edge(self.number(tensor.grad_fn), self.number(tensor))
            if below is not None:
                self.dot._edge(self.number(tensor), self.number(below), style="dotted")
            if known:
                return
            below, tensor, color = tensor, tensor._base, "darkolivegreen3"

    def nodes(self, root: Any) -> None:
        stack = [root]
        while stack:
            fn = stack.pop()
            if id(fn) in self.seen:
                continue
            number, kept = self.number(fn), saved_values(fn) if self.show_saved or self.show_attrs else {}
            if self.show_saved:
                for name, value in kept.items():
                    self.saved(number, name, value)
            if isinstance(fn, AccumulateGrad):
                leaf = fn.variable
                self.dot._node(self.number(leaf), self.label(leaf), "lightblue")
                self.dot._edge(self.number(leaf), number)
            self.dot._node(number, self.title(fn, kept))
            following = [f for f, _ in getattr(fn, "next_functions", ()) if f is not None]
            for f in following:
                self.dot._edge(self.number_of_node(f), number)
            for t in saved_by_function(fn):
                self.dot._edge(self.number(t), number, dir="none")
                self.dot._node(self.number(t), self.label(t), "orange")
            stack += following[::-1]

    def number_of_node(self, fn: Any) -> int:
        """The number of a node that has yet to be visited."""
        return self.dot._number(id(fn))

    def saved(self, number: int, name: str, value: Any) -> None:
        several = isinstance(value, (tuple, list))
        for i, t in enumerate(value if several else [value]):
            if isinstance(t, Tensor):
                self.dot._edge(number, self.number(t), dir="none")
                self.dot._node(self.number(t), self.label(t, f"{name}[{i}]" if several else name), "orange")

    def title(self, fn: Any, kept: dict[str, Any]) -> str:
        name = type(fn).__name__
        if not self.show_attrs or not kept:
            return name
        texts = {k: _attribute(v) for k, v in kept.items()}
        first = max(map(len, texts))
        second = min(max(map(len, texts.values())), self.longest)
        lines = [f"{k:<{first}}: {v if len(v) <= second else v[:second - 3] + '...':>{second}}" for k, v in texts.items()]
        return "\n".join([name, "-" * max(first + second + 2, len(name)), *lines])


def saved_values(fn: Any) -> dict[str, Any]:
    """What a built-in node keeps for the backward pass, by name; a node whose memory was freed keeps nothing."""
    if getattr(fn, "saved", ()) is None:
        return {}
    return {name.removeprefix(SAVED): getattr(fn, name) for name in dir(fn) if name.startswith(SAVED)}


def saved_by_function(fn: Any) -> list[Tensor]:
    """The tensors that a custom Function keeps, unless reading them would take them away."""
    if not isinstance(fn, BackwardCFunction) or fn._saved is None or fn._forward_cls.clear_saved_tensors_on_access:
        return []
    return [t for t in fn.saved_tensors if t is not None]


def _attribute(value: Any) -> str:
    if isinstance(value, Tensor):
        return "[saved tensor]"
    if isinstance(value, (tuple, list)) and any(isinstance(t, Tensor) for t in value):
        return "[saved tensors]"
    return str(value)


class Dot:
    """A graph in Graphviz's language that can draw itself; a notebook shows it.

    Graphviz draws it where its program `dot` is found; otherwise it is drawn here, PNG with the help of Pillow.

    >>> x = torch.ones(2, requires_grad=True)
    >>> dot = torch.viz.make_dot((x * 2).sum(), {"x": x})
    >>> dot.source.startswith("digraph")
    True
    """

    format = "svg"  # what `render` writes unless it is told otherwise

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._labels: dict[int, str] = {}
        self._colors: dict[int, str] = {}
        self._edges: list[tuple[int, int, dict[str, str]]] = []

    def _number(self, key: int) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _node(self, number: int, label: str, color: str = "lightgrey") -> None:
        if self._colors.get(number) != "lightblue":  # a leaf that a node saved is still a leaf
            self._labels[number], self._colors[number] = label, color

    def _edge(self, tail: int, head: int, **attributes: str) -> None:
        self._edges.append((tail, head, attributes))

    @property
    def source(self) -> str:
        """The graph in Graphviz's language."""
        size = max(12, 0.15 * (len(self._labels) + len(self._edges)))  # inches, as torchviz scales it
        head = [f'graph [size="{size:g},{size:g}"]', "node [" + " ".join([f"{k}={v}" for k, v in NODE_STYLE.items()]) + "]"]
        body = []
        for number in sorted(self._labels):
            color = self._colors[number]
            fill = "" if color == "lightgrey" else f" fillcolor={color}"
            body.append(f"{number} [label={_quoted(self._labels[number])}{fill}]")
        for tail, top, attributes in self._edges:
            given = "".join([f" [{k}={v}]" for k, v in attributes.items()])
            body.append(f"{tail} -> {top}{given}")
        return "digraph {\n" + "".join([f"\t{line}\n" for line in [*head, *body]]) + "}\n"

    def _picture(self) -> draw.Picture:
        numbers = sorted(self._labels)
        return draw.picture([self._labels[n] for n in numbers], [self._colors[n] for n in numbers], self._edges)

    def pipe(self, format: str = "svg") -> bytes:
        """The picture as the bytes of a file of this format."""
        if format in ("dot", "gv"):
            return self.source.encode()
        program = shutil.which("dot")
        if program is not None:
            done = subprocess.run([program, f"-T{format}"], input=self.source.encode(), capture_output=True)
            if done.returncode:
                raise RuntimeError(f"Graphviz could not draw the graph as {format!r}: {done.stderr.decode().strip()}")
            return done.stdout
        if format not in OWN_FORMATS:
            raise ValueError("without Graphviz (no program `dot` was found) a graph is written as one of "
                             f"{', '.join(OWN_FORMATS)}; got {format!r}")
        return draw.svg(self._picture()).encode() if format == "svg" else draw.png(self._picture())

    def render(self, filename: str | os.PathLike[str] = "graph", directory: str | os.PathLike[str] | None = None,
               view: bool = False, cleanup: bool = True, format: str | None = None) -> str:
        """Writes the picture to `filename.format` and returns that name.

        A filename that ends in a format (graph.svg) names it by itself; otherwise it is `self.format`, SVG. cleanup=False also
        writes the source beside it, under the bare filename. view: opens it with the system's viewer.
        """
        path = Path(filename) if directory is None else Path(directory) / filename
        if format is None:
            ending = path.suffix[1:].lower()
            format = ending if ending in (*OWN_FORMATS, "pdf", "jpg", "gif") else self.format
        bare = path.with_suffix("") if path.suffix == f".{format}" else path
        target = bare.with_name(f"{bare.name}.{format}")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(self.pipe(format))
        if not cleanup:
            bare.write_text(self.source)
        if view:
            import webbrowser
            webbrowser.open(target.resolve().as_uri())
        return str(target)

    def view(self, filename: str | os.PathLike[str] = "graph", directory: str | os.PathLike[str] | None = None) -> str:
        """Writes the picture as SVG and opens it."""
        return self.render(filename, directory, view=True)

    def save(self, filename: str | os.PathLike[str] = "graph.dot", directory: str | os.PathLike[str] | None = None) -> str:
        """Writes a file by its ending: .dot and .gv the source, .svg and .png the picture; any other ending the source."""
        path = Path(filename) if directory is None else Path(directory) / filename
        path.parent.mkdir(parents=True, exist_ok=True)
        ending = path.suffix[1:].lower()
        path.write_bytes(self.pipe(ending if ending in ("svg", "png") else "dot"))
        return str(path)

    def _repr_svg_(self) -> str:
        return self.pipe("svg").decode()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **options: Any) -> dict[str, str]:
        bundle = {"image/svg+xml": self._repr_svg_, "text/plain": lambda: repr(self)}
        return {kind: make() for kind, make in bundle.items()
                if (not include or kind in include) and kind not in (exclude or ())}

    def __str__(self) -> str:
        return self.source

    def __repr__(self) -> str:
        return f"<graph of {len(self._labels)} boxes and {len(self._edges)} edges>"


def _quoted(text: str) -> str:
    if re.fullmatch(r"[A-Za-z_]\w*", text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
