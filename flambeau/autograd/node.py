"""The graph: nodes, edges, saved values and version counters.

A `Node` is one recorded operation. `next` holds, per input, where that input's gradient goes: a Node (its output 0), an
`Edge` (another output of it) or None (no gradient wanted). A leaf's node is `AccumulateGrad`.

A tensor points to its node, a node to earlier nodes and to the inputs it saved. A saved *output* is held as a bare
array (`SavedOutput`), not as the tensor that points back to the node: so there are no reference cycles, and the graph
is freed by reference counting alone.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any, NamedTuple

from ..backends import registry
from ..backends.dtypes import native as _native
from ..tensors.device import META
from .frames import user_frame

next_sequence = itertools.count().__next__
FLOAT32 = _native("float32")
_LATEST = 1 << 62  # AccumulateGrad runs as soon as its gradient is complete


_INTERNAL = {"AccumulateGrad", "CopySlices", "CopyBackwards", "Error", "UndefinedGrad"}  # PyTorch qualifies their names


class VersionCounter:
    """How often a storage was written in place; shared by a tensor and its views.

    `where` is the line of Python that wrote last, at the version `at`: compiled programs count without leaving a line.
    """

    __slots__ = ("at", "value", "where")

    def __init__(self):
        self.value = 0
        self.where = None


INFERENCE_SAVED = ("Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
                   "computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and "
                   "use it in autograd, or use no_grad() instead.")


class Edge:
    """An output other than the first of a node."""

    __slots__ = ("node", "nr")

    def __init__(self, node: Node, nr: int):
        self.node, self.nr = node, nr


class SavedOutput:
    """A result that its own node saved: the array and its counter, without the tensor.

    The fast path saves the bare array instead and makes no counter: `start_counter` turns it into one of these when the
    result is first viewed or written to, which for most results is never.
    """

    __slots__ = ("array", "counter", "nr", "version")

    def __init__(self, tensor: Any, nr: int):
        counter = tensor._counter
        if counter is None:
            counter = start_counter(tensor)
        self.array, self.counter, self.version, self.nr = tensor._array, counter, counter.value, nr


def start_counter(tensor: Any) -> VersionCounter:
    """Gives a tensor its version counter; a node that keeps the tensor's array as its own bare result learns of it."""
    node = tensor._node
    if node is not None and node.__class__ is not Edge and node.saved:
        array = tensor._array
        for i, v in enumerate(node.saved):
            if v is array:
                tensor._counter = saved_result(node, i).counter
                return tensor._counter
            known = v.counter if v.__class__ is SavedOutput and v.array is array else (
                v.check[1] if v.__class__ is Packed and v.check is not None and v.check[0] is array else None)
            if known is not None:
                tensor._counter = known
                return known
    counter = tensor._counter = VersionCounter()
    return counter


def saved_result(node: Node, slot: int) -> SavedOutput:
    """The bare array in a slot as a SavedOutput with a counter of its own, which then stays there."""
    made = object.__new__(SavedOutput)
    made.array, made.counter, made.version, made.nr = node.saved[slot], VersionCounter(), 0, 0
    node.saved = (*node.saved[:slot], made, *node.saved[slot + 1:])
    return made


class Node:
    """A recorded operation. Subclasses say what `apply` does with the gradients of the outputs."""

    next: tuple[Any, ...] = ()
    saved: tuple[Any, ...] | None = ()
    versions: tuple[int, ...] | None = None  # of the saved tensors; None: all zero
    sequence = 0
    shape: tuple[int, ...] = ()              # of the output
    dtype: Any = FLOAT32
    outputs: list[tuple[tuple[int, ...], Any]] | None = None  # (shape, dtype) of each, when there are several
    hooks: Any = None                        # a Hooks, once something is registered
    _metadata: dict[str, Any] | None = None
    is_leaf_node = False
    runs_without_gradient = False            # custom Functions are called even if no gradient arrived
    ctx: Any = None                          # what users see instead of this node (custom Functions)
    holder: Any = None                       # the CopySlices that runs this node, while it does

    def apply(self, grads: Any) -> Any:
        """Gradients of the inputs, one per entry of `next`; `grads` is a list when there are several outputs."""
        raise NotImplementedError

    def release(self) -> None:
        """Frees what was saved; a second backward pass then fails with advice."""
        self.saved = None

    def meta(self, nr: int) -> tuple[tuple[int, ...], Any]:
        return self.outputs[nr] if self.outputs is not None else (self.shape, self.dtype)

    # ------------------------------------------------------------------ what a user may ask
    def name(self) -> str:
        name = type(self).__name__
        return f"torch::autograd::{name}" if name in _INTERNAL else name

    def _shown(self) -> list[int]:
        """Which entries of `next` users see: those of arguments that can have a gradient."""
        return list(range(len(self.next)))

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        return tuple([shown_edge(self.next[i]) for i in self._shown()])

    @property
    def metadata(self) -> dict[str, Any]:
        if self._metadata is None:
            self._metadata = {}
        return self._metadata

    def _sequence_nr(self) -> int:
        return self.sequence

    def _set_sequence_nr(self, number: int) -> None:
        self.sequence = number

    requires_grad = True

    def _hooks(self) -> Hooks:
        if self.hooks is None:
            self.hooks = Hooks()
        return self.hooks

    @property
    def _input_metadata(self) -> list[Any]:
        from ..tensors.tensor import wrap
        metas = self.outputs if self.outputs is not None else [(self.shape, self.dtype)]
        return [wrap(registry.backend_for(META).empty(shape, dtype)) for shape, dtype in metas]

    def register_hook(self, hook) -> Any:
        """Calls hook(grad_inputs, grad_outputs) after this node ran; a returned tuple replaces grad_inputs."""
        from .hooks import RemovableHandle
        return RemovableHandle(self._hooks().post, hook)

    def register_prehook(self, hook) -> Any:
        """Calls hook(grad_outputs) before this node runs; a returned tuple replaces them."""
        from .hooks import RemovableHandle
        return RemovableHandle(self._hooks().pre, hook)

    def __call__(self, *grads: Any) -> Any:
        """Runs this node alone: the gradients of its inputs from those of its outputs."""
        expected = 1 if self.outputs is None else len(self.outputs)
        if len(grads) != expected:
            raise TypeError(f"{self.name()}: expected {expected} arguments, got {len(grads)} instead")
        results = self.apply(list(grads) if self.outputs is not None else grads[0])
        results = tuple(results)
        return results[0] if len(results) == 1 else results

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {hex(id(self))}>"


def short_name(node: Node) -> str:
    """AddBackward0 -> Add: how PyTorch's messages call what made a tensor."""
    return node.name().rstrip("0123456789").removesuffix("Backward")


def shown_node(node: Any) -> Any:
    """The object that users see for a node of the graph."""
    return node if node is None or node.ctx is None else node.ctx


def shown_edge(edge: Any) -> tuple[Any, int]:
    """What users see of where a gradient goes: a node and which of its outputs."""
    return (shown_node(edge.node), edge.nr) if edge.__class__ is Edge else (shown_node(edge), 0)


def graph_node(seen: Any) -> Node:
    """The node of the graph for an object that a user holds (the inverse of `shown_node`)."""
    return seen if isinstance(seen, Node) else seen._graph_node()


class GradientEdge(NamedTuple):
    """A place in the graph where a gradient arrives; stands for a tensor in `backward` and `grad`.

    >>> x = torch.ones(2, requires_grad=True)
    >>> edge = torch.autograd.graph.get_gradient_edge(x * 2)
    >>> edge.node.name(), edge.output_nr
    ('MulBackward0', 0)
    """

    node: Any
    output_nr: int
    ownership_token: Any = None  # keeps a custom Function's part of the graph alive


class HookTable(dict):
    """Hooks by the id of their handle; handles refer to the table weakly."""

    __slots__ = ("__weakref__",)


class Hooks:
    """Everything registered on a node, in PyTorch's order of running."""

    __slots__ = ("accumulated", "post", "pre", "retain", "tensor")

    def __init__(self):
        self.tensor = HookTable()         # id -> (output number, hook) of Tensor.register_hook
        self.retain: dict[int, Any] = {}  # output number -> weak reference to the tensor that retains its grad
        self.pre = HookTable()
        self.post = HookTable()
        self.accumulated = HookTable()    # post-accumulate-grad hooks of a leaf


def hooked(node: Any) -> bool:
    """Whether a backward pass through a node (or an edge to one) calls something that was registered there."""
    hooks = getattr(node, "hooks", None)
    return hooks is not None and bool(hooks.tensor or hooks.pre or hooks.post or hooks.accumulated)


class AccumulateGrad(Node):
    """The node of a leaf: adds what arrives to the leaf's `.grad`.

    The leaf owns its node; the node refers to the leaf weakly, and keeps its array, so a leaf that only the graph still
    needs can be given back to a user who asks for `variable`.
    """

    is_leaf_node = True

    def __init__(self, tensor: Any):
        self._variable = weakref.ref(tensor)
        self._array = tensor._array
        self.sequence = _LATEST + next_sequence()

    @property
    def shape(self):
        tensor = self._variable()
        return (self._array if tensor is None else tensor._array).shape

    @property
    def dtype(self):
        tensor = self._variable()
        return (self._array if tensor is None else tensor._array).dtype

    @property
    def variable(self):
        tensor = self._variable()
        return _revive(self) if tensor is None else tensor

    def release(self) -> None:
        pass


def _revive(node: AccumulateGrad):
    from ..tensors.tensor import wrap
    tensor = wrap(node._array)
    tensor._node = node
    node._variable = weakref.ref(tensor)
    return tensor


# ------------------------------------------------------------------------------------------------ saving and unpacking
class Packed:
    """A saved tensor that went through user hooks: what pack returned, and the hook that undoes it."""

    __slots__ = ("check", "counter", "node", "output", "requires", "unpack", "value", "version")

    def __init__(self, value, unpack, output, node, check=None):
        self.value, self.unpack, self.output, self.node, self.check = value, unpack, output, node, check


def version_of(tensor: Any) -> int:
    counter = tensor._counter
    return 0 if counter is None else counter.value


def type_name(d) -> str:
    """PyTorch's legacy class name of a dtype: FloatTensor, LongTensor..."""
    return f"{d.word}Tensor"


def bump(tensor: Any) -> None:
    """Counts an in-place change, and remembers the user's line that made it."""
    counter = tensor._counter
    if counter is None:
        counter = start_counter(tensor)
    counter.value = counter.at = counter.value + 1
    frame = user_frame()
    if frame is not None:
        counter.where = (frame.f_code, frame.f_lasti)
