"""Saved tensors that go through the user's hooks: pack when they are saved, unpack when backward asks for them.

`pack` and `unpack` are called by whatever saves (ops/core/row.py, function.py). A packed output is unpacked without its
history, which is then given back, so that packing an output makes no reference cycle.
"""

from __future__ import annotations

from typing import Any

from ..backends.registry import WINDOWS
from ..tensors.tensor import Tensor, wrap
from . import state as _state
from .errors import freed_error, modified_error
from .node import Edge, Node, Packed, SavedOutput, behind, saved_result, start_counter, version_of
from .state import NO_GRAD, state


def pack(value: Any, node: Node) -> Any:
    """What to keep instead of a tensor (or saved output, or list of tensors) under the innermost pair of hooks."""
    if not state.saved_hooks:
        return value
    pack_hook, unpack_hook = state.saved_hooks[-1]
    if value.__class__.__name__ == "SavedList":
        value.tensors = tuple([pack(t, node) if isinstance(t, Tensor) else t for t in value.tensors])
        return value
    return pack_with(value, node, pack_hook, unpack_hook, as_it_is=True)


def pack_with(value: Any, node: Node, pack_hook: Any, unpack_hook: Any, as_it_is: bool = False) -> Packed:
    """What hooks make of a value; as_it_is: an input goes to the pack hook as the very object that the user has."""
    output = None if isinstance(value, Tensor) else value.nr
    if output is None and as_it_is:
        given = value
    elif output is None:
        given = wrap(value._array)
        given._counter = _counter_of(value)
        given._node = value._node
    else:
        given = wrap(value.array)
        given._counter = value.counter
        given._node = node if node.outputs is None else Edge(node, output)
    packed = Packed(None, unpack_hook, output, None)
    packed.requires = None if output is not None else given._node  # unpacking gives the graph back
    packed.value = _call(pack_hook, given, "pack")
    if output is not None and packed.value is given:
        given._node = None  # or node and packed value would keep each other alive
    return packed


def _counter_of(tensor: Tensor) -> Any:
    if tensor._counter is None:
        start_counter(tensor)
    return tensor._counter


def _call(hook: Any, value: Tensor, which: str) -> Any:
    """Runs a hook without recording, and without hooks on what it computes itself."""
    before, version = state.mode, version_of(value)
    state.mode = (before | NO_GRAD) & ~_state.SAVED_HOOKS
    try:
        result = hook(value)
    finally:
        state.mode = before
    if which == "pack" and version_of(value) != version:
        raise RuntimeError("A saved tensor pack hook is modifying its input in place. Tensors provided as input to "
                           "pack hook cannot be modified by in-place operations as this can lead to unexpected "
                           "side-effects. Please open an issue if you need to perform in-place operations on the "
                           "input to a pack hook.")
    return result


def unpack(packed: Packed, node: Node) -> Tensor:
    """The tensor that unpack gives back, with the place in the graph that the saved one had."""
    if packed.check is not None:
        array, counter, version = packed.check
        if counter.value != version:
            raise modified_error(node, None, array, version, counter.value, counter)
    before = state.mode
    state.mode = (before | NO_GRAD) & ~_state.SAVED_HOOKS
    try:
        value = packed.unpack(packed.value)
    finally:
        state.mode = before
    if not isinstance(value, Tensor):
        raise TypeError(f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                        f"{type(value).__name__}")
    edge = packed.requires
    if packed.output is not None:
        edge = node if node.outputs is None else Edge(node, packed.output)
    if edge is None or value._node is edge:
        return value
    tensor = wrap(value._array)
    tensor._counter = value._counter
    tensor._node = edge
    return tensor


def _saved_tensors_hooks_is_enabled() -> bool:
    """Whether hooks may be installed (see disable_saved_tensors_hooks)."""
    return state.saved_hooks_off is None


class SavedTensor:
    """`grad_fn._raw_saved_x`: a saved tensor before unpacking, on which hooks of its own can be put."""

    def __init__(self, node: Any = None, slot: int = 0):
        if node is None:
            raise RuntimeError("Trying to create a SavedTensor object from Python is forbidden.")
        self._node, self._slot = node, slot

    def _store(self) -> Any:
        saved = _saved_of(self._node)
        if saved is None:
            raise freed_error(behind(self._node), "Calling register_hooks on a saved tensor after it has been freed")
        value = saved[self._slot]
        bare = type(value) in WINDOWS and self._node.row.slots[self._slot] == "result"
        return saved_result(self._node, self._slot) if bare else value

    @property
    def data(self) -> Any:
        """What is kept: what the pack hook returned, or the tensor itself."""
        value = self._store()
        if value.__class__ is Packed:
            return value.value
        return wrap(value.array) if isinstance(value, SavedOutput) else value

    def unpack(self) -> Any:
        """The saved tensor."""
        self._store()
        if isinstance(self._node, Node):
            from ..ops.core.row import unpack as read
            return read(self._node, self._slot)
        return self._node._unpack(self._slot)

    @property
    def unpack_hook(self) -> Any:
        value = self._store()
        return value.unpack if value.__class__ is Packed else None

    def register_hooks(self, pack_hook: Any = None, unpack_hook: Any = None) -> None:
        """Packs this saved tensor now, and unpacks it with unpack_hook from now on."""
        for name, hook in (("pack_hook", pack_hook), ("unpack_hook", unpack_hook)):
            if not callable(hook):
                raise TypeError(f"incompatible function arguments: {name} must be callable, got {type(hook).__name__}")
        value = self._store()
        if value is None:
            raise RuntimeError("Calling register_hooks on a saved tensor with value None is forbidden")
        if value.__class__ is Packed:
            raise RuntimeError("Calling register_hooks on a saved tensor whose hooks have already been set. Hint: "
                               "only one pair of hooks is allowed at a time.")
        packed = pack_with(value, behind(self._node), pack_hook, unpack_hook)
        packed.check = _written_since(self._node, self._slot, value)
        _replace(self._node, self._slot, packed)


def _written_since(node: Any, slot: int, value: Any) -> Any:
    """(array, counter, version at saving): hooks put on later still must not hide a change."""
    if isinstance(value, SavedOutput):
        return value.array, value.counter, value.version
    versions = node.versions if isinstance(node, Node) else node._versions
    return value._array, _counter_of(value), 0 if versions is None else versions[slot]


def _saved_of(node: Any) -> Any:
    return node.saved if isinstance(node, Node) else node._saved


def _replace(node: Any, slot: int, value: Any) -> None:
    saved = list(_saved_of(node))
    saved[slot] = value
    if isinstance(node, Node):
        node.saved = tuple(saved)
    else:
        node._saved = tuple(saved)
