"""Views and in-place changes: who shares a version counter, and how history is rewritten.

A view remembers its base and shares the base's counter. When either is changed in place, the other's recorded history
is out of date. The base's is rewritten at once (`CopySlices`), a view's when it is next needed (`edge_of`), as an
`as_strided` of the base: the geometry of a view relative to its base is always at hand in its array.
"""

from __future__ import annotations

from typing import Any

from ..backends.batched.arrays import marked
from . import state as _state
from .node import AccumulateGrad, Edge, Node, bump, next_sequence, short_name, start_counter
from .state import state

# How a view came to be, where that limits changing it in place.
NO_GRAD_VIEW = "no_grad"
MULTI_OUTPUT = "multi"
CUSTOM_FUNCTION = "custom"
INFERENCE_VIEW = "inference"
_UNRECORDED = (NO_GRAD_VIEW, INFERENCE_VIEW)


def mark_view(view: Any, base: Any, creation: str | None = None) -> Any:
    """Ties a new view to the tensor it was made of."""
    if base._inference:  # inference tensors keep no record of views
        view._inference = True
        return view
    counter = base._counter
    if counter is None:
        counter = start_counter(base)
    view._counter = counter
    root = base._base
    view._base = base if root is None else root
    if counter.value:
        view._seen = counter.value
    mode = state.mode
    if mode & (_state.INFERENCE | _state.NO_GRAD):
        if view._inference:  # a view of a normal tensor is one itself
            view._inference = False
        creation = INFERENCE_VIEW if mode & _state.INFERENCE else NO_GRAD_VIEW
    creation = creation or base._creation
    if creation is not None:
        view._creation = creation
    return view


def history_of(tensor: Any) -> Node | Edge | None:
    """What made the tensor; brings the history of a view up to date first."""
    base = tensor._base
    if base is not None and tensor._counter.value != tensor._seen:
        refresh(tensor)
    return tensor._node


def outdated(tensor: Any) -> bool:
    """Whether a tensor's node does not tell its history: a view of a base that has one, which the view was not given (yet)."""
    base = tensor._base
    return base is not None and base._node is not None and (tensor._node is None or tensor._counter.value != tensor._seen)


def edge_of(tensor: Any) -> Node | Edge | None:
    """Where the gradient of a tensor goes that an operation is recorded of: `history_of`, or a dead end."""
    base = tensor._base
    if base is not None:
        if tensor._counter.value != tensor._seen:
            refresh(tensor)
        if tensor._node is None and base._node is not None and tensor._creation in _UNRECORDED:
            return DeadEnd(tensor)
    return tensor._node


class DeadEnd(Node):
    """Where a gradient ends that came to a view made without recording, of a tensor that requires grad.

    Such a view requires grad and has no history: PyTorch records what is made of it, and its gradient goes nowhere.
    """

    def __init__(self, view: Any):
        self.shape, self.dtype = view._array.shape, view._array.dtype
        self.sequence = next_sequence()  # two of them may be ready at once, and one has to come first

    def apply(self, grads: Any) -> Any:
        return ()


def refresh(view: Any) -> None:
    """Records a view anew, as a piece of its (changed) base."""
    base = view._base
    if base._node is None:
        view._seen = view._counter.value
        return
    if view._creation is not None:
        check_creation(view, "and its base or another view of its base has been modified inplace")
    view._seen = view._counter.value
    mode = state.mode
    state.mode = mode & ~(_state.NO_GRAD | _state.SAVED_HOOKS | _state.DISPATCH)
    state.dispatch_off += 1
    try:
        if view._view_fn is not None:
            again = view._view_fn(base)
        else:
            again = base.as_strided(view.size(), view.stride(), view.storage_offset())
    finally:
        state.mode = mode
        state.dispatch_off -= 1
    old, view._node = view._node, again._node
    move_hooks(view, old)


def check_inplace(tensor: Any, name: str = "") -> None:
    """Refuses in-place changes that autograd could not follow."""
    mode = state.mode
    if tensor._inference and not mode & _state.INFERENCE:
        raise RuntimeError("Inplace update to inference tensor outside InferenceMode is not allowed. You can make a "
                           "clone to get a normal tensor before doing inplace update.")
    if mode & _state.SAVED_HOOKS:  # someone may have saved it and allowed changes
        from .graph import before_write
        before_write(tensor)
    if mode & _state.NO_GRAD:
        return
    node = history_of(tensor)
    base = tensor._base
    if base is not None and (node is not None or base._node is not None):
        check_creation(tensor)
        if base._node.__class__ is AccumulateGrad:
            raise _leaf_error(tensor, True)
    if node is not None and node.__class__ is AccumulateGrad:
        raise _leaf_error(tensor, False)


def _leaf_error(tensor: Any, view: bool) -> RuntimeError:
    from .errors import leaf_error
    return leaf_error(tensor, view)


def check_creation(tensor: Any, change: str = "and is being modified inplace") -> None:
    """Refuses to record an in-place change of a view whose making does not allow it."""
    creation = tensor._creation
    if creation is None or tensor._base is None:
        return
    node = tensor._node
    made_by = "" if node is None else f"Output {node.nr if node.__class__ is Edge else 0} of {_name(node)}"
    what = f"{made_by or 'A tensor'} is a view {change}."
    if creation == MULTI_OUTPUT:
        raise RuntimeError(f"{what} This view is the output of a function that returns multiple views. Such functions "
                           "do not allow the output views to be modified inplace. You should replace the inplace "
                           "operation by an out-of-place one.")
    nested = f"{made_by} is a view of a view which" if made_by and node.__class__ is not AccumulateGrad else "A view"
    if creation == NO_GRAD_VIEW:
        raise RuntimeError(f"{nested} was created in no_grad mode {change} with grad mode enabled. "
                           "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify "
                           "your code by moving both the view and the inplace either both inside the no_grad block (if "
                           "you don't want the inplace to be tracked) or both outside (if you want the inplace to be "
                           "tracked).")
    if creation == CUSTOM_FUNCTION:
        raise RuntimeError(f"{what} This view was created inside a custom Function (or because an input was returned "
                           "as-is) and the autograd logic to handle view+inplace would override the custom backward "
                           "associated with the custom Function, leading to incorrect gradients. This behavior is "
                           "forbidden. You can fix this by cloning the output of the custom Function.")
    if creation == INFERENCE_VIEW:
        raise RuntimeError(f"{nested} was created in inference mode {change} in normal mode. Given "
                           "that this use case is ambiguous and error-prone, it is forbidden. You can clarify your "
                           "code by moving both the view and the inplace either both inside the inference_mode block (if "
                           "you don't want the inplace to be tracked) or both outside (if you want the inplace to be "
                           "tracked).")


def _name(node: Any) -> str:
    if node is None:
        return "a view"
    return short_name(node.node if node.__class__ is Edge else node)


def set_history(tensor: Any, edge: Node | Edge | None) -> None:
    """After an in-place change: the tensor is now the output of `edge`; a view passes that on to its base."""
    base = tensor._base
    if base is None:
        old, tensor._node = tensor._node, edge
        move_hooks(tensor, old)
        return
    if edge is None:
        return
    check_creation(tensor)
    old, base._node = base._node, CopySlices(base, tensor, edge)
    move_hooks(base, old)
    old = tensor._node
    refresh(tensor)
    move_hooks(tensor, old)


def reshaped(tensor: Any, view: Any) -> Any:
    """After an in-place change of geometry alone (`t_`, `unsqueeze_`...): the tensor becomes what `view` is."""
    tensor._array = view._array
    written(tensor)
    if view._node is not None:
        old, tensor._node = tensor._node, view._node
        move_hooks(tensor, old)
    if tensor._base is not None:
        tensor._seen = tensor._counter.value
    return tensor


def move_hooks(tensor: Any, old: Node | Edge | None) -> None:
    """retain_grad follows the tensor to its new history."""
    if tensor._retains and tensor._node is not None:
        from .hooks import retain
        node, nr = (old.node, old.nr) if old.__class__ is Edge else (old, 0)
        if node is not None and node.hooks is not None:
            reference = node.hooks.retain.get(nr)
            if reference is not None and reference() is tensor:
                del node.hooks.retain[nr]
        retain(tensor)


class CopySlices(Node):
    """An in-place change of part of a base, seen from the whole base.

    Where the change's own node takes the old view as its first input, that node runs in here on the view's part of the
    gradient, and the result goes straight into the base's gradient. Otherwise (the change was composed of several
    operations) the view's part is sent to the change as to any other input.
    """

    def __init__(self, base: Any, view: Any, edge: Node | Edge):
        fn, nr = (edge.node, edge.nr) if edge.__class__ is Edge else (edge, 0)
        self.sequence = next_sequence()
        self.shape, self.dtype = marked(base._array), base._array.dtype
        self.layout = None if base.is_contiguous() else base.stride()
        if fn.next and _same(fn.next[0], view._node) and fn.outputs is None:
            self.fn, self.next = fn, (base._node, *fn.next[1:])
        else:
            self.fn, self.next = Passed(nr), (base._node, edge)
        self.base = base.size(), base.stride(), base.storage_offset(), base.dtype
        if view._view_fn is not None:
            self.view = view._view_fn
        else:
            size, stride, offset = view.size(), view.stride(), view.storage_offset() - base.storage_offset()
            self.view = lambda full: full.as_strided(size, stride, offset + full.storage_offset())

    def apply(self, grad: Any) -> Any:
        fn = self.fn
        if fn is None:
            from .errors import freed_error
            raise freed_error(self)
        if state.mode & _state.DISPATCH:  # by the operations that PyTorch copies it with
            full = grad.new_empty_strided(*self.base[:2]).copy_(grad)
        else:
            full = grad.clone(memory_format="contiguous") if self.layout is None else _laid_out(grad, self.layout)
        part = self.view(full)
        fn.holder = self
        try:
            inner = fn.apply(part.clone())
        finally:
            del fn.holder
        first = inner[0]
        if first is None:
            part.zero_()
        else:
            part.copy_(first)
        return (full, *inner[1:])

    def saved_output(self, tensor: Any) -> Any:
        """The changed view, saved by the change's own node: its history is that of a piece of the changed base."""
        size, stride, offset, dtype = self.base
        if dtype is not tensor.dtype:
            tensor = tensor.view(dtype)
        full = tensor.as_strided(size, stride, offset)
        full._base, full._node = None, self
        return self.view(full)

    def release(self) -> None:
        if self.fn is not None:
            self.fn.release()
            self.fn = None


class Passed(Node):
    """Stands in for a change that is a graph of its own: its part of the gradient goes there, not to the base."""

    def __init__(self, nr: int):
        self.nr = nr

    def apply(self, grad: Any) -> Any:
        return None, grad


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    return a.__class__ is Edge and b.__class__ is Edge and a.node is b.node and a.nr == b.nr


def _laid_out(grad: Any, stride: tuple[int, ...]) -> Any:
    """A copy of a gradient with the given strides, so that views of the base can be taken of it alike."""
    from ..ops.core.row import ROWS
    return ROWS["clone_strided"](grad, stride)


def written(tensor: Any) -> None:
    """After an in-place change without history (in no_grad mode, or of a tensor without gradient)."""
    if tensor._inference:
        return
    bump(tensor)
