"""Branches and loops as functions: `cond`, `while_loop`, `scan` and `map`.

Here they run as the Python that they stand for, so that autograd, vmap and everything else see plain operations. A compiled
function has them as branches and loops of its program (compiler/capture/control.py), or is divided where the value that
decides is read. What PyTorch's compiler would refuse (branches or steps whose results differ in kind) is refused here too, as
far as the part that ran shows it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ..autograd.function import Function
from ..ops.core.row import FUNCTIONS
from ..tensors.shapes import wrap_dim
from ..tensors.tensor import Tensor
from ..utils import _pytree as pytree

__all__ = ["cond", "map", "scan", "while_loop"]


class _Tied(Function):
    """Tensors as they are, for which operands that had no part in them have a gradient of zeros, not none at all."""

    @staticmethod
    def forward(ctx, count, *tensors):
        ctx.save_for_backward(*tensors[count:])
        ctx.set_materialize_grads(False)
        made = tuple(t.view_as(t) for t in tensors[:count])
        ctx.mark_non_differentiable(*[t for t in made if not t.is_floating_point() and not t.is_complex()])
        return made

    @staticmethod
    def backward(ctx, *grads):
        return None, *grads, *[FUNCTIONS["zeros_like"](t) for t in ctx.saved_tensors]


def _tied(made: Any, operands: Any) -> Any:
    leaves, spec = pytree.tree_flatten(made)
    used = [t for t in pytree.tree_leaves(operands) if isinstance(t, Tensor) and t.requires_grad]
    at = [i for i, t in enumerate(leaves) if isinstance(t, Tensor) and t.requires_grad]
    if not used or not at:
        return made
    for i, t in zip(at, _Tied.apply(len(at), *[leaves[i] for i in at], *used)):
        leaves[i] = t
    return spec.unflatten(leaves)


def _only_tensors(tree: Any, others: tuple[type, ...] = ()) -> bool:
    return all(isinstance(leaf, (Tensor, *others)) and not isinstance(leaf, bool) for leaf in pytree.tree_leaves(tree))


def _controls(function: Callable) -> Callable:
    """Marks what a compiled function's program can have as a branch or a loop of its own (compiler/capture/control.py)."""
    function._controls = True
    return function


@_controls
def cond(pred: Any, true_fn: Callable, false_fn: Callable, operands: Any = ()) -> Any:
    """true_fn(*operands) where pred holds, else false_fn(*operands); pred is a bool or a tensor of one element.

    >>> torch.cond(torch.tensor(True), lambda x: x + 1, lambda x: x - 1, (torch.ones(2),))
    tensor([2., 2.])
    """
    if not isinstance(pred, (bool, int, float, Tensor)) or (isinstance(pred, Tensor) and pred.numel() != 1):
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    if not isinstance(operands, (tuple, list)) or not _only_tensors(operands):
        raise RuntimeError("Expect operands to be a tuple of possibly nested dict/list/tuple that only consists of tensor "
                           f"leaves, but got {operands}.")
    if not isinstance(pred, Tensor):
        warnings.warn("Pred is a Python constant. When used with torch.cond, it specializes on one of the branches. If you "
                      "want torch.cond to preserve two branches, please make the predicate a boolean tensor.", UserWarning,
                      stacklevel=2)
        return true_fn(*operands) if pred else false_fn(*operands)
    return _tied(true_fn(*operands) if bool(pred.item()) else false_fn(*operands), operands)


@_controls
def while_loop(cond_fn: Callable, body_fn: Callable, carried_inputs: Any) -> Any:
    """carried = body_fn(*carried) for as long as cond_fn(*carried) holds.

    >>> count, x = torch.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), torch.ones(2)))
    >>> x
    tensor([8., 8.])
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)) or not _only_tensors(carried_inputs, (int,)):
        raise RuntimeError("Expect carried_inputs to be a tuple of possibly nested dict/list/tuple that only consists of "
                           f"tensor or int leaves, but got {carried_inputs}.")
    carried = tuple(carried_inputs)
    while _holds(cond_fn(*carried)):
        made = body_fn(*carried)
        made = tuple(made) if isinstance(made, (tuple, list)) else (made,)
        _check_alike("carried_inputs", carried, "body_fn_output", made)
        carried = made
    given = {id(leaf) for leaf in pytree.tree_leaves(carried_inputs) if isinstance(leaf, Tensor)}
    return pytree.tree_map(lambda leaf: leaf.clone() if id(leaf) in given else leaf, carried)  # results share no memory


def _holds(value: Any) -> bool:
    if (isinstance(value, Tensor) and value.numel() != 1) or not isinstance(value, (bool, int, Tensor)):
        raise RuntimeError(f"cond_fn should return a boolean scalar tensor or a boolean value but got {value}.")
    return bool(value.item()) if isinstance(value, Tensor) else bool(value)


def _check_alike(first: str, given: Any, second: str, made: Any) -> None:
    a, b = pytree.tree_leaves(given), pytree.tree_leaves(made)
    if len(a) != len(b):
        raise RuntimeError(f"Expected {second} and {first} to have same number of outputs but got {len(b)} and {len(a)}")
    for i, (x, y) in enumerate(zip(a, b)):
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            for what in ("shape", "dtype", "device"):
                if getattr(x, what) != getattr(y, what):
                    raise RuntimeError(f"Expected {first} and {second} to have same metadata but found: pair[{i}] differ in "
                                       f"'{what}: {getattr(x, what)} vs {getattr(y, what)}'")


@_controls
def scan(combine_fn: Callable[[Any, Any], Any], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> Any:
    """(carry, ys): carry, y = combine_fn(carry, x) for each slice x of xs along dim, the ys stacked along that dimension.

    >>> from flambeau.func.control_flow import scan
    >>> total, running = scan(lambda c, x: (c + x, c + x), torch.tensor(0.0), torch.tensor([1.0, 2.0, 3.0]))
    >>> running
    tensor([1., 3., 6.])
    """
    if not callable(combine_fn):
        raise RuntimeError(f"Combine_fn must be a callable, but got {combine_fn}")
    if not isinstance(dim, int):
        raise RuntimeError(f"Dim must be an int, but got {type(dim)}")
    if not isinstance(reverse, bool):
        raise RuntimeError(f"Reverse must be a bool, but got {type(reverse)}")
    if not pytree.tree_leaves(init):
        raise RuntimeError("scan() operator requires init leaves.")
    leaves, spec = pytree.tree_flatten(xs)
    if not leaves:
        return init, []
    if any(not isinstance(x, Tensor) for x in leaves):
        raise RuntimeError("All xs leaves must be a Tensor")
    dim = wrap_dim(dim, leaves[0].ndim)
    if any(x.ndim <= dim or not x.shape[dim] for x in leaves):
        raise RuntimeError("All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0")
    if any(x.shape[dim] != leaves[0].shape[dim] for x in leaves):
        raise RuntimeError(f"All xs leaves must have the same length along dimension {dim}, but got "
                           f"{[x.shape[dim] for x in leaves]}")
    count, carry, made = leaves[0].shape[dim], init, []
    for i in reversed(range(count)) if reverse else range(count):
        result = combine_fn(carry, spec.unflatten([x.select(dim, i) for x in leaves]))
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise RuntimeError("combine_fn needs to produce two pytrees, one for the carries and one for the outputs.")
        _check_alike("init", init, "carry", result[0])
        carry = result[0]
        made.append(result[1])
    return carry, _stacked(made[::-1] if reverse else made, dim)


def _stacked(results: list[Any], dim: int) -> Any:
    leaves, spec = pytree.tree_flatten(results[0])
    columns = zip(*[pytree.tree_leaves(r) for r in results])
    return spec.unflatten([FUNCTIONS["stack"](column, dim) for column in columns]) if leaves else results[0]


@_controls
def map(f: Callable, xs: Any, *args: Any) -> Any:
    """f(x, *args) for each slice x of xs along the first dimension, stacked.

    >>> from flambeau.func import control_flow
    >>> control_flow.map(lambda x, y: x + y, torch.arange(3), torch.tensor(10))
    tensor([10, 11, 12])
    """
    leaves, spec = pytree.tree_flatten(xs)
    if not leaves or any(not isinstance(x, Tensor) for x in leaves):
        raise RuntimeError(f"Mapped xs can only consist of tensors. Got xs {xs}.")
    sizes = [x.shape[0] for x in leaves]
    if any(n != sizes[0] for n in sizes):
        raise RuntimeError(f"Leading dimensions of mapped xs must be consistent. Got shapes {[x.shape for x in leaves]}.")
    if not sizes[0]:
        raise RuntimeError("Leading dimensions of mapped xs cannot be 0.")
    return _stacked([f(spec.unflatten([x[i] for x in leaves]), *args) for i in range(sizes[0])], 0)
