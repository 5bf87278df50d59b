"""Views and in-place changes: who shares a version counter, and how history is rewritten.

A view remembers its base and shares the base's counter. When either is changed in place, the other's recorded history is
out of date. The base's is rewritten at once (`CopySlices`), a view's when it is next needed (`edge_of`), as an
`as_strided` of the base: the geometry of a view relative to its base is always at hand in its array.
"""

from __future__ import annotations

from typing import Any

from . import state as _state
from .node import AccumulateGrad, Edge, Node, VersionCounter, bump, next_sequence
from .state import state

# How a view came to be, where that limits changing it in place.
NO_GRAD_VIEW = "no_grad"
MULTI_OUTPUT = "multi"
CUSTOM_FUNCTION = "custom"
INFERENCE_VIEW = "inference"


def mark_view(view: Any, base: Any, creation: str | None = None) -> Any:
    """Ties a new view to the tensor it was made of."""
    counter = base._counter
    if counter is None:
        counter = base._counter = VersionCounter()
    view._counter = counter
    root = base._base
    view._base = base if root is None else root
    if counter.value:
        view._seen = counter.value
    if creation is None and state.mode:
        if state.mode & _state.INFERENCE:
            creation = INFERENCE_VIEW
        elif state.mode & _state.NO_GRAD:
            creation = NO_GRAD_VIEW
    creation = creation or base._creation
    if creation is not None:
        view._creation = creation
    return view


def edge_of(tensor: Any) -> Node | Edge | None:
    """Where the tensor's gradient goes; brings the history of a view up to date first."""
    base = tensor._base
    if base is not None and tensor._counter.value != tensor._seen:
        refresh(tensor)
    return tensor._node


def refresh(view: Any) -> None:
    """Records a view anew, as a piece of its (changed) base."""
    base = view._base
    view._seen = view._counter.value
    if base._node is None:
        return
    mode = state.mode
    state.mode = mode & ~(_state.NO_GRAD | _state.SAVED_HOOKS)
    try:
        if view._view_fn is not None:
            again = view._view_fn(base)
        else:
            again = base.as_strided(view.size(), view.stride(), view.storage_offset())
    finally:
        state.mode = mode
    view._node = again._node


def check_inplace(tensor: Any, name: str = "") -> None:
    """Refuses in-place changes that autograd could not follow."""
    mode = state.mode
    if tensor._inference and not mode & _state.INFERENCE:
        raise RuntimeError("Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone "
                           "to get a normal tensor before doing inplace update.")
    if mode & _state.NO_GRAD:
        return
    node = edge_of(tensor)
    base = tensor._base
    if base is None:
        if node is not None and node.__class__ is AccumulateGrad:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation. Wrap the "
                               "change in torch.no_grad(), or work on a clone().")
        return
    if base._node is None and node is None and not tensor._creation:
        return
    if base._node.__class__ is AccumulateGrad:
        raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation. Wrap "
                           "the change in torch.no_grad(), or work on a clone().")
    if node.__class__ is AccumulateGrad:  # detached-then-required view of a buffer
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")


def check_creation(tensor: Any) -> None:
    """Refuses to record an in-place change of a view whose making does not allow it."""
    creation = tensor._creation
    if creation is None or tensor._base is None:
        return
    node = tensor._node
    what = f"Output {node.nr if node.__class__ is Edge else 0} of {_name(node)} is a view and is being modified inplace."
    if node is None:
        what = "A view is being modified inplace."
    if creation == MULTI_OUTPUT:
        raise RuntimeError(f"{what} This view is the output of a function that returns multiple views. Such functions do "
                           "not allow the output views to be modified inplace. You should replace the inplace operation "
                           "by an out-of-place one.")
    if creation == NO_GRAD_VIEW:
        raise RuntimeError("A view was created in no_grad mode and is being modified inplace with grad mode enabled. "
                           "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your "
                           "code by moving both the view and the inplace either both inside the no_grad block (if you "
                           "don't want the inplace to be tracked) or both outside (if you want the inplace to be "
                           "tracked).")
    if creation == CUSTOM_FUNCTION:
        raise RuntimeError(f"{what} This view was created inside a custom Function (or because an input was returned "
                           "as-is) and the autograd logic to handle view+inplace would override the custom backward "
                           "associated with the custom Function, leading to incorrect gradients. This behavior is "
                           "forbidden. You can fix this by cloning the output of the custom Function.")
    if creation == INFERENCE_VIEW:
        raise RuntimeError("A view was created in inference mode and is being modified inplace in normal mode. Given "
                           "that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code "
                           "by moving both the view and the inplace either both inside the inference_mode block or both "
                           "outside.")


def _name(node: Any) -> str:
    if node is None:
        return "a view"
    return (node.node if node.__class__ is Edge else node).name()


def set_history(tensor: Any, edge: Node | Edge | None) -> None:
    """After an in-place change: the tensor is now the output of `edge`; a view passes that on to its base."""
    base = tensor._base
    if base is None:
        tensor._node = edge
        move_hooks(tensor)
        return
    if edge is None:
        return
    check_creation(tensor)
    base._node = CopySlices(base, tensor, edge)
    move_hooks(base)
    refresh(tensor)


def move_hooks(tensor: Any) -> None:
    """retain_grad follows the tensor to its new history."""
    if tensor._retains and tensor._node is not None:
        from .hooks import retain
        retain(tensor)


class CopySlices(Node):
    """An in-place change of part of a base, seen from the whole base."""

    def __init__(self, base: Any, view: Any, edge: Node | Edge):
        fn = edge.node if edge.__class__ is Edge else edge
        self.fn = fn
        self.next = (base._node, *fn.next[1:])
        self.sequence = next_sequence()
        self.shape, self.dtype = base._array.shape, base._array.dtype
        if view._view_fn is not None:
            self.view = view._view_fn
        else:
            geometry = (view.size(), view.stride(), view.storage_offset() - base.storage_offset())
            base_geometry = (base.size(), base.stride())
            self.view = lambda whole: _piece(whole, base_geometry, geometry)

    def apply(self, grad: Any) -> Any:
        fn = self.fn
        if fn is None:
            from .node import freed_error
            raise freed_error(self)
        whole = _laid_out_like(grad, self)
        piece = self.view(whole)
        # The change's own node may want the first input's gradient although only the base's is routed.
        inner = fn.apply(piece.clone()) if fn.next[0] is not None or any(e is not None for e in fn.next[1:]) else ()
        first = inner[0] if inner else None
        if first is None:
            piece.zero_()
        else:
            piece.copy_(first)
        return (whole, *inner[1:])

    def release(self) -> None:
        if self.fn is not None:
            self.fn.release()
            self.fn = None


def _laid_out_like(grad: Any, node: CopySlices) -> Any:
    return grad.clone(memory_format="contiguous")


def _piece(whole: Any, base_geometry, geometry):
    """The part of a contiguous gradient that corresponds to a view of the base."""
    size, stride, offset = geometry
    base_size, base_stride = base_geometry
    if tuple(whole.stride()) == tuple(base_stride):
        return whole.as_strided(size, stride, offset + whole.storage_offset())
    # The base is not contiguous: address its gradient through the same dimensions.
    from .strided import map_geometry
    new_stride, new_offset = map_geometry(base_size, base_stride, whole.stride(), size, stride, offset)
    return whole.as_strided(size, new_stride, new_offset + whole.storage_offset())


def written(tensor: Any) -> None:
    """After an in-place change without history (in no_grad mode, or of a tensor without gradient)."""
    if tensor._inference:
        return
    bump(tensor)
