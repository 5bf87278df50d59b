"""`explore`: one HTML file with the graph of a step, in which the forward and the backward pass can be played."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ..autograd.views import history_of
from ..nn.module import Module
from ..tensors.tensor import Tensor
from . import formulas, layout
from .graph import Graph, Vertex, chain, dtype_word
from .observe import Pass, Story, tell, watch
from .recorder import recording

_PAGE = Path(__file__).with_name("page")
_SCRIPTS = ("data.js", "place.js", "story.js", "draw.js", "panel.js", "main.js")


def explore(loss: Tensor | Sequence[Tensor] | Callable[[], Tensor], model: Module | None = None,
            path: str | os.PathLike[str] | None = "graph.html", *, gradient: Any = None, title: str | None = None) -> Explored:
    """Writes one HTML file, which needs nothing else, with the graph that `loss` was computed by.

    loss: a tensor (or several), or a function that computes it. A function is called here, under `recording(model)`, so that
    the page knows the line and the module of each node; for a tensor that was computed outside of `recording` it says that they
    are unknown. model: gives names to leaves and modules. path: the file, or None for none. gradient: of the loss, where it has
    more than one element, as for `backward`. title: of the page.

    To see the gradients, a backward pass runs here. It leaves every `.grad` as it is and keeps the graph, so that the program
    can go on with `loss.backward()`. Hooks that the program has registered on tensors and nodes run once more; those that wait
    for a leaf's `.grad` do not.

        viz.explore(lambda: loss_fn(model(x), y), model, "step.html")

    >>> net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    >>> explored = torch.viz.explore(net(torch.ones(4, 2)).mean(), net, path="step.html")
    """
    if callable(loss) and not isinstance(loss, Tensor):
        with recording(model):
            loss = loss()
    outputs = list(loss) if isinstance(loss, (tuple, list)) else [loss]
    for t in outputs:
        if not isinstance(t, Tensor):
            raise TypeError(f"explore: expected a tensor, several, or a function that returns one, got {type(t).__name__}")
        if history_of(t) is None:
            raise RuntimeError("explore: the tensor does not require grad and does not have a grad_fn, so there is no graph "
                               "behind it. (Was it computed under no_grad, or detached?)")
    if not outputs:
        raise ValueError("explore: expected at least one tensor")
    graph = Graph(outputs, model)
    given = None if gradient is None else tuple(gradient) if isinstance(gradient, (tuple, list)) else (gradient,)
    seen = watch(graph, outputs, given)
    data = _data(graph, seen, tell(graph, seen), title or ("A step" if model is None else type(model).__name__))
    data["gradientGiven"] = given is not None
    made = Explored(data)
    if path is not None:
        made.save(path)
    return made


class Explored:
    """An explored graph. `data` is what the page shows, as plain data; a notebook shows the page itself.

    >>> x = torch.ones(2, requires_grad=True)
    >>> [vertex["kind"] for vertex in torch.viz.explore((x * 2).sum(), path="graph.html").data["vertices"]]
    ['leaf', 'op', 'op', 'output']
    """

    def __init__(self, data: dict[str, Any]):
        self.data = data
        self.path: str | None = None

    @property
    def html(self) -> str:
        """The page, whole."""
        # A script ends at "</" whatever surrounds it, and "<!--" hides its end.
        data = json.dumps(self.data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
        scripts = "\n".join([(_PAGE / name).read_text("utf-8") for name in _SCRIPTS])
        page = (_PAGE / "explore.html").read_text("utf-8")
        parts = {"title": escape(self.data["title"]), "style": (_PAGE / "style.css").read_text("utf-8"), "data": data,
                 "script": scripts}
        return re.sub(r"\{\{(title|style|data|script)\}\}", lambda found: parts[found[1]], page)

    def save(self, path: str | os.PathLike[str]) -> str:
        """Writes the page to a file and returns its name."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(self.html, "utf-8")
        self.path = str(target)
        return self.path

    def open(self) -> None:
        """Shows the file in the web browser."""
        import webbrowser
        if self.path is None:
            raise RuntimeError("the graph was not written to a file yet: call save(path) first")
        webbrowser.open(Path(self.path).resolve().as_uri())

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.html)}" style="width:100%;height:720px;border:0"></iframe>'

    def __repr__(self) -> str:
        return f"<explored graph of {len(self.data['vertices'])} nodes{f', in {self.path}' if self.path else ''}>"


# ------------------------------------------------------------------------------------------------------- what the page gets
def _data(graph: Graph, seen: Pass, story: Story, title: str) -> dict[str, Any]:
    files: dict[str, int] = {}
    told = {"forward": 0, "seed": 1, "backward": 2, "accumulate": 3}
    groups = [{"path": g.path, "kind": g.kind, "parent": g.parent, "call": g.call, "rows": rows, "links": links}
              for g, (rows, links) in zip(graph.groups, _rows(graph))]
    texts = {v.formula: formulas.describe(v.node) for v in graph.vertices if v.formula is not None}
    return {
        "title": title, "linesKnown": graph.lines_known, "modulesRecorded": graph.recorded,
        "vertices": [_vertex(v, files, seen.gradients.get(i)) for i, v in enumerate(graph.vertices)],
        "links": [[e.tail, e.head, e.argument, e.output, seen.sent.get(i)] for i, e in enumerate(graph.links)],
        "groups": groups, "formulas": texts, "files": list(files),
        "storages": [[s.bytes, s.leaf, s.label, s.shape, *life] for s, life in zip(graph.storages, story.lives)],
        "steps": [[told[kind], number] for kind, number in story.steps],
        "memory": [story.kept, story.moving, story.gathered]}


def _vertex(v: Vertex, files: dict[str, int], gradients: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"kind": v.kind, "title": v.title, "name": v.name, "group": v.group, "module": v.module,
                            "shapes": [list(shape) for shape, _ in v.metas], "dtypes": [dtype_word(d) for _, d in v.metas],
                            "bytes": v.bytes}
    if v.formula is not None:
        made["formula"] = v.formula
    if v.saved:
        made["saved"] = [[s.slot, s.shape, s.dtype, s.bytes, s.storage, s.note] for s in v.saved]
    if v.attributes:
        made["attributes"] = v.attributes
    if v.where is not None:
        file, line, function, text = v.where
        here = os.path.relpath(file) if file.startswith(os.getcwd() + os.sep) else file
        made["where"] = [files.setdefault(here, len(files)), line, function, text]
    if gradients is not None:
        made["gradients"] = gradients
    return made


def _rows(graph: Graph) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
    """Per group: the rows of what it holds, and which neighbours are linked.

    A vertex is its number, a group its number behind all vertices, a lane the number of its source behind all groups.
    """
    groups, vertices = graph.groups, graph.vertices
    items: list[dict[int, int]] = [{} for _ in groups]  # of each group: what it holds, numbered
    for i, v in enumerate(vertices):
        items[v.group].setdefault(i, len(items[v.group]))
    for i, g in enumerate(groups):
        if g.parent is not None:
            items[g.parent].setdefault(len(vertices) + i, len(items[g.parent]))
    edges: list[dict[tuple[int, int], None]] = [{} for _ in groups]
    ways: list[dict[tuple[int, int | None, int | None], None]] = [{} for _ in groups]
    around = [chain(groups, number)[::-1] for number in range(len(groups))]

    def item(number: int, group: list[int], level: int) -> int:
        """What a vertex is part of, seen from the group at that level around it."""
        inner = number if level + 1 == len(group) else len(vertices) + group[level + 1]
        return items[group[level]][inner]

    for link in graph.links:
        outer, inner = around[vertices[link.tail].group], around[vertices[link.head].group]
        common = sum([a == b for a, b in zip(outer, inner)]) - 1
        tail, head = item(link.tail, outer, common), item(link.head, inner, common)
        edges[outer[common]][tail, head] = None
        ways[outer[common]][link.tail, tail, head] = None
        for level in range(common + 1, len(outer)):
            ways[outer[level]][link.tail, item(link.tail, outer, level), None] = None
        for level in range(common + 1, len(inner)):
            ways[inner[level]][link.tail, None, item(link.head, inner, level)] = None
    for number in range(len(groups)):
        names = list(items[number])
        made = layout.arrange(len(names), list(edges[number]), list(ways[number]))
        code = len(vertices) + len(groups)
        yield ([[code + i[1] if i.__class__ is tuple else names[i] for i in row] for row in made.rows],
               [[n for pair in level for n in pair] for level in made.links])
