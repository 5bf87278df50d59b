"""What the files of linear algebra share: argument checks, and a derivative by replaying a composition."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...autograd import grad as autograd_grad
from ...autograd.state import FORWARD_AD, NO_GRAD, looked_at, mode_bits, state
from ...backends.batched.arrays import innermost
from ...backends.cpu.table import KERNELS
from ...tensors.shapes import broadcast_shapes
from ...tensors.tensor import Tensor
from ..core.row import Row, _type_word, public


def linalg(function: Callable | None = None, **options: Any) -> Any:
    """Exports a function for flambeau.linalg alone; its first argument is also called `input`, `A` or `x`."""
    if function is None:
        return functools.partial(linalg, **options)
    own = function.__code__.co_varnames[:function.__code__.co_argcount]
    first = {other: own[0] for other in ("input", "A", "x", "a", "self") if other not in own}
    return public(function, **{"method": False, "toplevel": False, "out": "castable", "also": first, **options})


def matrix_row(name: str, args: str, **options: Any) -> Row:
    """The row of a kernel that takes any number of dimensions before those of the matrices."""
    return Row(name, args, **{"batch": "leading", **options})


def check_matrix(t: Any, function: str, name: str = "A") -> None:
    """Demands a tensor of at least two dimensions."""
    if not isinstance(t, Tensor):
        raise TypeError(f"{function}(): argument '{name}' (position 1) must be Tensor, not {type(t).__name__}")
    if t._array.ndim < 2:
        raise RuntimeError(f"{function}: The input tensor {name} must have at least 2 dimensions: expected a tensor with 2 or "
                           f"more dimensions, got shape {list(t._array.shape)}.")


def check_floating(t: Tensor, function: str, low_precision: bool = False, kernel: str | None = None,
                   always: bool = False) -> None:
    """Demands float32, float64 or a complex dtype.

    kernel: where PyTorch finds out only at its kernel of this name that there is none for a half type (always: for any dtype).
    """
    d = t.dtype
    char = t._array.dtype.char
    if char in "fdFD":
        return
    if kernel and ((d.is_floating_point and not low_precision) or always):
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{_type_word(d)}'")
    if not (d.is_floating_point or d.is_complex):
        raise RuntimeError(f"{function}: Expected a floating point or complex tensor as input. Got {_type_word(d)}")
    if not low_precision:
        raise RuntimeError(f"{function}: Low precision dtypes not supported. Got {_type_word(d)}")


def check_square(t: Any, function: str, name: str = "A", **options: Any) -> None:
    """Demands square matrices. options: as for `check_floating`."""
    check_matrix(t, function, name)
    check_floating(t, function, **options)
    rows, cols = t._array.shape[-2:]
    if rows != cols:
        raise RuntimeError(f"{function}: {name} must be batches of square matrices, but they are {rows} by {cols} matrices")


def check_same(a: Tensor, b: Tensor, function: str) -> None:
    if a._array.dtype != b._array.dtype:
        raise RuntimeError(f"{function}: Expected A and B to have the same dtype, but found A of type "
                           f"{_type_word(a.dtype)} and B of type {_type_word(b.dtype)} instead")


def check_info(info: Tensor, name: str) -> None:
    """Raises PyTorch's LinAlgError for the first matrix that a LAPACK-like kernel could not do."""
    if info.is_cpu:
        looked_at(info._array, "the outcome of a decomposition was checked")
        KERNELS["linalg_check_info"](innermost(info._array), name)


def recording(*tensors: Tensor) -> bool:
    """Whether an operation on these tensors will be recorded."""
    if state.mode & FORWARD_AD and any(t._tangent is not None for t in tensors):
        return True
    return not state.mode & NO_GRAD and any(t.requires_grad for t in tensors)


def batch_of(*tensors: Tensor) -> tuple[int, ...]:
    return broadcast_shapes(*[t._array.shape[:-2] for t in tensors])


def diagonal(t: Tensor) -> Tensor:
    return t.diagonal(0, -2, -1)


def embed(t: Tensor) -> Tensor:
    """A vector as the diagonal of a matrix."""
    return t.diag_embed()


def replay(function: Callable[..., Tensor], inputs: tuple[Tensor, ...], grads: Any) -> list[Tensor | None]:
    """The gradients of function(*inputs), got by recording it again with tensor operations.

    Inputs stay in the graph when a second derivative is being recorded; otherwise they are taken as fresh leaves.
    """
    again = not state.mode & NO_GRAD
    if again:
        leaves = [t if t.requires_grad else t.detach().requires_grad_() for t in inputs]
    else:
        leaves = [t.detach().requires_grad_() for t in inputs]
    with mode_bits(clear=NO_GRAD):
        outputs = function(*leaves)
        outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        pairs = [(o, g) for o, g in zip(outputs, grads) if g is not None and o.requires_grad]
        if not pairs:  # nothing depends on the inputs
            return [t * 0 for t in inputs]
        return list(autograd_grad([o for o, _ in pairs], leaves, [g for _, g in pairs], create_graph=again,
                                  allow_unused=True))


def name_outputs(row: Any, names: str) -> None:
    """Lets a node show its saved outputs under PyTorch's names (`_saved_Q`), besides `_saved_result0`..."""
    for nr, name in enumerate(names.split()):
        slot = f"result{nr}" if f"result{nr}" in row.slots else "result"
        if slot in row.slots:
            setattr(row.node, f"_saved_{name}", property(lambda self, slot=slot: self._slot_value(slot)))
