"""`associative_scan`: running results of an associative function, in a logarithmic number of calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ops.core.row import FUNCTIONS
from ..tensors.shapes import wrap_dim
from ..tensors.tensor import Tensor
from ..utils import _pytree as pytree
from .batching import vmap

__all__ = ["associative_scan"]


def _interleaved(even: Tensor, odd: Tensor) -> Tensor:
    """even[0], odd[0], even[1], ...: even may be one longer."""
    pairs = FUNCTIONS["stack"]([even[:len(odd)], odd], 1).flatten(0, 1)
    return pairs if len(even) == len(odd) else FUNCTIONS["cat"]([pairs, even[len(odd):]])


def _scan(combine: Callable, xs: list[Tensor]) -> list[Tensor]:
    """Scans along the first dimension: neighbours are combined, the pairs scanned, and what lies between them filled in."""
    count = len(xs[0])
    if count < 2:
        return xs
    odd = _scan(combine, combine([x[:count - 1:2] for x in xs], [x[1::2] for x in xs]))
    if count == 2:
        return [_interleaved(x[:1], o) for x, o in zip(xs, odd)]
    between = combine([o[:(count - 1) // 2] for o in odd], [x[2::2] for x in xs])
    return [_interleaved(FUNCTIONS["cat"]([x[:1], b]), o) for x, b, o in zip(xs, between, odd)]


def _check(combine_fn: Any, leaves: list[Any], dim: Any, reverse: Any, combine_mode: str) -> None:
    if not callable(combine_fn):
        raise ValueError(f"Combine_fn must be a callable, but got {combine_fn}")
    if not isinstance(dim, int):
        raise ValueError("Dim must be an int, but got " + str(type(dim)))
    if not isinstance(reverse, bool):
        raise RuntimeError("Reverse must be a bool, but got " + str(type(reverse)))
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}")
    if any(not isinstance(x, Tensor) for x in leaves):
        raise ValueError("xs leaves must be a Tensor")
    if combine_mode == "pointwise":
        raise ValueError("For combine_mode='pointwise', all input tensors need to be on CUDA or XPU")
    if not leaves:
        raise ValueError("Expected at least 1 xs leaf")
    if any(x.ndim <= dim or not x.shape[dim] for x in leaves):
        raise ValueError("All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0")


def associative_scan(combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False,
                     combine_mode: str = "pointwise") -> Any:
    """x0, f(x0, x1), f(f(x0, x1), x2), ... along a dimension of all tensors of a tree, for an associative f of two trees."""
    leaves, spec = pytree.tree_flatten(xs)
    if leaves and isinstance(leaves[0], Tensor) and isinstance(dim, int):
        dim = wrap_dim(dim, leaves[0].ndim)
    _check(combine_fn, leaves, dim, reverse, combine_mode)
    each = vmap(combine_fn)

    def combine(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
        return pytree.tree_leaves(each(spec.unflatten(left), spec.unflatten(right)))

    moved = [x.movedim(dim, 0) for x in leaves]
    made = _scan(combine, [x.flip(0) for x in moved] if reverse else moved)
    return spec.unflatten([(x.flip(0) if reverse else x).movedim(0, dim) for x in made])
