"""The graph of a step as plain data: nodes in forward order, edges, what each node keeps, and the modules around them."""

from __future__ import annotations

import linecache
import math
import re
from dataclasses import dataclass, field
from typing import Any

from ..autograd.node import AccumulateGrad, Edge, Node, Packed, SavedOutput
from ..autograd.views import CopySlices, history_of
from ..backends import registry
from ..ops.core.row import RowNode, SavedList
from ..tensors.dtypes import BY_NUM
from ..tensors.tensor import Tensor, wrap
from . import formulas
from .recorder import Call, calls_of


@dataclass
class Saved:
    """A tensor that a node keeps. storage: the number of the memory that it is in; note: what else is to say about it."""

    slot: str
    shape: list[int]
    dtype: str
    bytes: int
    storage: int
    note: str = ""


@dataclass
class Vertex:
    """One box of the graph. kind: "op", "leaf" (its gradient is wanted), "data" (a tensor without gradient), "output"."""

    kind: str
    title: str
    name: str
    metas: list[tuple[tuple[int, ...], Any]]  # shape and native dtype of each output
    node: Any = None
    formula: str | None = None
    saved: list[Saved] = field(default_factory=list)
    attributes: list[tuple[str, str]] = field(default_factory=list)
    where: tuple[str, int, str, str] | None = None  # file, line, function, text
    group: int = 0
    module: str = ""

    @property
    def bytes(self) -> int:
        """Of all outputs, and so of their gradients."""
        return sum([math.prod(shape) * native.itemsize for shape, native in self.metas])


@dataclass
class Link:
    """What `tail` made goes into `head`; `argument` is what it is called there. The gradient comes back along it."""

    tail: int
    head: int
    argument: str = ""
    output: int = 0
    slot: int = 0  # which of the head's edges it is


@dataclass
class Group:
    """One call of a module (or, unrecorded, the module whose parameters are used)."""

    path: str
    kind: str
    parent: int | None
    call: int = 1


@dataclass
class Storage:
    """Memory that nodes keep."""

    bytes: int
    leaf: bool
    holders: list[int] = field(default_factory=list)
    label: str = ""
    shape: list[int] = field(default_factory=list)


class Graph:
    """All of it, read from the tensors that a pass starts at."""

    def __init__(self, outputs: list[Tensor], model: Any = None):
        self.vertices: list[Vertex] = []
        self.links: list[Link] = []
        self.storages: list[Storage] = []
        self.number: dict[Node, int] = {}
        self._constants: dict[tuple[int, tuple[int, ...]], int] = {}  # storage and shape -> number of the "data" vertex
        self._memory: dict[int, int] = {}     # address -> number of the storage
        self._kept: list[Any] = []            # what was wrapped meanwhile: no address may be given out again
        names = {} if model is None else {id(p): name for name, p in model.named_parameters(remove_duplicate=True)}
        nodes = self._reach(outputs)
        for node in nodes:
            self.number[node] = len(self.vertices)
            self.vertices.append(_leaf(node, names) if node.is_leaf_node else _operation(node))
        for node in nodes:
            self._connect(node)
        for node in nodes:
            if node.is_leaf_node:
                self._storage(node.variable._array, leaf=True)
        for node in nodes:
            self._keeps(node)
        for number, tensor in enumerate(outputs):
            self._output(tensor, number if len(outputs) > 1 else None)
        self.lines_known = any(v.where for v in self.vertices)
        self.groups, self.recorded = _grouped(self, model)

    def _reach(self, outputs: list[Tensor]) -> list[Node]:
        """All nodes, in the order of recording; a leaf comes right before what first reads it."""
        found: dict[Node, None] = {}
        stack = [_end(t)[0] for t in outputs]
        while stack:
            node = stack.pop()
            if node not in found:
                found[node] = None
                stack += [_of(e) for e in node.next if e is not None]
        order: dict[Node, None] = {}
        for node in sorted([n for n in found if not n.is_leaf_node], key=lambda n: n.sequence):
            order.update(dict.fromkeys([_of(e) for e in node.next if e is not None and _of(e).is_leaf_node]))
            order[node] = None
        order.update(dict.fromkeys(found))
        return list(order)

    def _connect(self, node: Node) -> None:
        names = _arguments(node)
        for slot, edge in enumerate(node.next):
            if edge is not None:
                nr = edge.nr if edge.__class__ is Edge else 0
                self.links.append(Link(self.number[_of(edge)], self.number[node], names[slot], nr, slot))

    def _keeps(self, node: Node) -> None:
        """Notes what a node saved; a saved argument that has no history becomes a box of its own, once per tensor."""
        vertex = self.vertices[self.number[node]]
        for slot, argument, value in _saved(node):
            arrays = _arrays(value)
            if arrays is None:
                if value is not None:
                    vertex.attributes.append((slot, _short(value)))
                continue
            for i, (array, note) in enumerate(arrays):
                name = slot if len(arrays) == 1 else f"{slot}[{i}]"
                storage = self._storage(array, label=f"{vertex.title}.{name}", holder=self.number[node])
                tensor = wrap(array)
                vertex.saved.append(Saved(name, list(tensor.shape), dtype_word(array.dtype), array.nbytes, storage,
                                          note or ("also a leaf's" if self.storages[storage].leaf else "")))
                if argument is not None and isinstance(value, Tensor) and value._node is None and node.next[argument] is None:
                    self._data(array, storage, node, slot, argument)

    def _data(self, array: Any, storage: int, node: Node, name: str, slot: int) -> None:
        key = storage, tuple(array.shape)
        number = self._constants.get(key)
        if number is None:
            number = self._constants[key] = len(self.vertices)
            self.vertices.append(Vertex("data", name, "no gradient", [(array.shape, array.dtype)]))
        self.links.append(Link(number, self.number[node], name, 0, slot))

    def _storage(self, array: Any, leaf: bool = False, label: str = "", holder: int | None = None) -> int:
        tensor = wrap(array)
        memory = tensor.untyped_storage()
        self._kept.append(array)
        address = memory.data_ptr() or -id(array)
        number = self._memory.get(address)
        if number is None:
            number = self._memory[address] = len(self.storages)
            self.storages.append(Storage(memory.nbytes(), leaf, [], label, list(tensor.shape)))
        if holder is not None and holder not in self.storages[number].holders:
            self.storages[number].holders.append(holder)
        return number

    def _output(self, tensor: Tensor, number: int | None) -> None:
        node, nr = _end(tensor)
        title = "loss" if number is None and not tensor.shape else "output" if number is None else f"output {number}"
        value = f"{tensor.item():.6g}" if tensor.numel() == 1 and tensor.device.type != "meta" else ""
        self.links.append(Link(self.number[node], len(self.vertices), "", nr))
        self.vertices.append(Vertex("output", title, value, [(tensor._array.shape, tensor._array.dtype)]))


def _of(edge: Any) -> Node:
    return edge.node if edge.__class__ is Edge else edge


def _end(tensor: Tensor) -> tuple[Node, int]:
    edge = history_of(tensor)
    return (edge.node, edge.nr) if edge.__class__ is Edge else (edge, 0)


def dtype_word(native: Any) -> str:
    return str(BY_NUM[native.num]).removeprefix("torch.")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


# ------------------------------------------------------------------------------------------------------ single nodes
def _leaf(node: AccumulateGrad, names: dict[int, str]) -> Vertex:
    leaf = node.variable
    return Vertex("leaf", names.get(id(leaf), "leaf"), "AccumulateGrad", [(leaf._array.shape, leaf._array.dtype)], node,
                  formulas.key_of(node))


def _operation(node: Node) -> Vertex:
    metas = node.outputs if node.outputs is not None else [(node.shape, node.dtype)]
    name = node.name().rpartition("::")[2]
    title = re.sub(r"Backward\d*$", "", name) or name
    if isinstance(node, RowNode):
        title = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", title).lower()
    return Vertex("op", title, name, [meta for meta in metas if meta is not None], node, formulas.key_of(node),
                  where=_where(node))


def _where(node: Node) -> tuple[str, int, str, str] | None:
    """The user's line that recorded a node, if anomaly detection (or `recording`) was on."""
    found = re.match(r'File "(.*)", line (\d+), in (.*)', (node._metadata or {}).get("forward_line", ""))
    if found is None:
        return None
    file, line, function = found[1], int(found[2]), found[3]
    return file, line, function, linecache.getline(file, line).strip()


def _arguments(node: Node) -> list[str]:
    """What the entries of `node.next` are called."""
    if isinstance(node, RowNode):
        names: list[str] = []
        for index, name in enumerate(node.row.args):
            count = len(node.next) - len(node.row.args) + 1 if index in node.row.lists else 1
            names += [name] if index not in node.row.lists else [f"{name}[{i}]" for i in range(count)]
        return names
    if isinstance(node, CopySlices):
        return ["base", *_arguments(node.fn)[1:]] if isinstance(node.fn, RowNode) else ["base", "value"]
    return [str(i) for i in range(len(node.next))]


def _saved(node: Node) -> list[tuple[str, int | None, Any]]:
    """(name, number of the argument that it is or None, value) of everything that a node keeps."""
    if isinstance(node, CopySlices):
        return [(slot, None, value) for slot, _, value in _saved(node.fn)] if node.fn is not None else []
    if isinstance(node, RowNode):
        row = node.row
        plain = not row.lists  # else arguments are not numbered as edges are
        return [(slot, index if kind == "argument" and plain and index < len(node.next) else None, value)
                for slot, (kind, index, _), value in zip(row.slots, row.saving, node.saved or ())]
    kept = (node.ctx._saved if node.ctx is not None else node.saved) or ()
    return [(f"saved {i}", None, value) for i, value in enumerate(kept)]


def _arrays(value: Any) -> list[tuple[Any, str]] | None:
    """The arrays behind a saved value, each with a remark; None if it is no tensor."""
    if isinstance(value, Tensor):
        return [(value._array, "")]
    if isinstance(value, SavedOutput):
        return [(value.array, "its own result")]
    if type(value) in registry.ARRAY_TYPES:
        return [(value, "its own result")]
    if isinstance(value, SavedList):
        return [found for t in value.tensors for found in _arrays(t) or []]
    if isinstance(value, Packed):
        return [(value.value._array, "packed by a hook")] if isinstance(value.value, Tensor) else None
    return None


# ---------------------------------------------------------------------------------------------------------- modules
def _grouped(graph: Graph, model: Any) -> tuple[list[Group], bool]:
    """The modules' calls as a tree, each node given its innermost one; and whether they were recorded."""
    operations = [(v.node.sequence, i) for i, v in enumerate(graph.vertices) if v.kind == "op"]
    calls = calls_of(model)
    last = max([call.end for call in calls], default=0)
    recorded = any(calls[0].start < sequence < last for sequence, _ in operations) if calls else False
    groups = [Group("", "", None)]
    if recorded:
        _by_call(graph, groups, calls, sorted(operations))
    elif model is not None:
        _by_parameters(graph, groups, dict(model.named_modules()))
    _sources(graph, groups)
    return _only_real(graph, groups), recorded


def _by_call(graph: Graph, groups: list[Group], calls: list[Call], operations: list[tuple[int, int]]) -> None:
    """Both lists are in order of time: one walk along them, with the calls under way on a stack."""
    stack, coming, seen = [(math.inf, 0)], 0, {}
    for sequence, number in operations:
        while coming < len(calls) and calls[coming].start < sequence:
            call = calls[coming]
            coming += 1
            while stack[-1][0] < call.start:
                stack.pop()
            seen[call.path] = seen.get(call.path, 0) + 1
            groups.append(Group(call.path, call.kind, stack[-1][1], seen[call.path]))
            stack.append((call.end, len(groups) - 1))
        while stack[-1][0] < sequence:
            stack.pop()
        graph.vertices[number].group = stack[-1][1]


def _by_parameters(graph: Graph, groups: list[Group], modules: dict[str, Any]) -> None:
    """Without a recording: what reads a parameter belongs to the module that has it, through views of it too."""
    known = {"": 0}

    def group_of(path: str) -> int:
        if path not in known:
            parent = group_of(path.rpartition(".")[0])
            known[path] = len(groups)
            groups.append(Group(path, type(modules[path]).__name__, parent))
        return known[path]

    readers: dict[int, list[int]] = {}
    for link in graph.links:
        readers.setdefault(link.tail, []).append(link.head)
    for i, vertex in enumerate(graph.vertices):
        owner = vertex.title.rpartition(".")[0]
        if vertex.kind != "leaf" or owner not in modules:
            continue
        ahead = list(readers.get(i, ()))
        while ahead:
            number = ahead.pop()
            reader = graph.vertices[number]
            if reader.kind == "op" and not reader.group:
                reader.group = group_of(owner)
                if isinstance(reader.node, RowNode) and reader.node.row.view:
                    ahead += readers.get(number, ())


def _sources(graph: Graph, groups: list[Group]) -> None:
    """A leaf or constant is inside what surrounds all its readers: deeper inside, closed modules could form a circle."""
    readers: dict[int, list[int]] = {}
    for link in graph.links:
        if graph.vertices[link.tail].kind in ("leaf", "data"):
            readers.setdefault(link.tail, []).append(graph.vertices[link.head].group)
    for number, around in readers.items():
        common = chain(groups, around[0])
        for other in around[1:]:
            inside = set(chain(groups, other))
            common = [g for g in common if g in inside]
        graph.vertices[number].group = common[0]


def chain(groups: list[Group], number: int | None) -> list[int]:
    """A group and those around it, from the inside out."""
    found = []
    while number is not None:
        found.append(number)
        number = groups[number].parent
    return found


def _only_real(graph: Graph, groups: list[Group]) -> list[Group]:
    """Drops the frames that would surround one box or none; the box keeps the module's name."""
    sizes = [0] * len(groups)
    for vertex in graph.vertices:
        vertex.module = groups[vertex.group].path
        sizes[vertex.group] += 1
    for number in range(len(groups) - 1, 0, -1):  # inner groups come after outer ones
        if sizes[number] == 1:
            sizes[groups[number].parent] += 1
            sizes[number] = 0
        elif sizes[number]:
            sizes[groups[number].parent] += 1
    kept = [n for n in range(len(groups)) if n == 0 or sizes[n]]
    place = {n: i for i, n in enumerate(kept)}

    def home(number: int) -> int:
        return place[next(g for g in chain(groups, number) if g in place)]

    for vertex in graph.vertices:
        vertex.group = home(vertex.group)
    return [Group(g.path, g.kind, None if g.parent is None else home(g.parent), g.call) for g in (groups[n] for n in kept)]
