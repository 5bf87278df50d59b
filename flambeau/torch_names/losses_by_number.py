"""Losses and distances that PyTorch has at its top level too, where `reduction` is a number (0 none, 1 mean, 2 sum)."""

from __future__ import annotations

import itertools
from typing import Any

from .nn import functional as F
from .ops.core.row import check_on_cpu
from .tensors.shapes import wrap_dim
from .tensors.tensor import Tensor

_REDUCTIONS = ("none", "mean", "sum")


def _word(reduction: Any) -> str:
    return _REDUCTIONS[reduction] if isinstance(reduction, int) else reduction


def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Any = None, pos_weight: Any = None,
                                     reduction: int = 1) -> Tensor:
    """nn.functional's, with its arguments in this order."""
    return F.binary_cross_entropy_with_logits(input, target, weight, reduction=_word(reduction), pos_weight=pos_weight)


def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 1) -> Tensor:
    """nn.functional's."""
    return F.cosine_embedding_loss(input1, input2, target, margin, reduction=_word(reduction))


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 1) -> Tensor:
    """nn.functional's."""
    return F.hinge_embedding_loss(input, target, margin, reduction=_word(reduction))


def kl_div(input: Tensor, target: Tensor, reduction: int = 1, *, log_target: bool = False) -> Tensor:
    """nn.functional's."""
    return F.kl_div(input, target, reduction=_word(reduction), log_target=log_target)


def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 1) -> Tensor:
    """nn.functional's."""
    return F.margin_ranking_loss(input1, input2, target, margin, reduction=_word(reduction))


def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int) -> Tensor:
    """nn.functional's.

    >>> torch.poisson_nll_loss(torch.zeros(2), torch.tensor([1.0, 2.0]), True, False, 1e-8, 1)
    tensor(1.)
    """
    return F.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=_word(reduction))


def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0,
                        eps: float = 1e-6, swap: bool = False, reduction: int = 1) -> Tensor:
    """nn.functional's."""
    return F.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=_word(reduction))


cosine_similarity, pairwise_distance, pdist = F.cosine_similarity, F.pairwise_distance, F.pdist


def segment_reduce(data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
                   offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: Any = None) -> Tensor:
    """Reduces pieces of data along its first dimension, whose lengths (or offsets) are given.

    >>> torch.segment_reduce(torch.tensor([1.0, 2.0, 3.0]), "sum", lengths=torch.tensor([1, 2]))
    tensor([1., 5.])
    """
    from .ops.shape.joining import stack
    axis = wrap_dim(axis, data.ndim)
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    if lengths is None and offsets is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    if reduce not in ("max", "mean", "min", "sum", "prod"):
        raise RuntimeError(f"segment_reduce(): unsupported reduction {reduce!r}")
    named, given = ("lengths", lengths) if lengths is not None else ("offsets", offsets)
    if axis != given.ndim - 1:
        raise RuntimeError(f"segment_reduce(): Expected axis to be the last dimension of {named} but got {axis}.")
    check_on_cpu("_segment_reduce_cpu", data, "f")
    if data.is_meta:
        count = given.shape[-1] - (lengths is None)
        return stack([data.sum(axis)] * count, axis)
    if lengths is not None:
        if not unsafe:
            _check_lengths(lengths, data.shape[axis])
        offsets = F.pad(lengths.cumsum(-1), (1, 0))
    empty = {"max": float("-inf"), "min": float("inf"), "mean": float("nan"), "sum": 0, "prod": 1}[reduce]
    return _pieces(data, offsets.tolist(), reduce, initial, empty)


def _check_lengths(lengths: Tensor, size: int) -> None:
    if bool((lengths < 0).any()):
        raise RuntimeError("lengths contains negative value!")
    if bool((lengths.sum(-1) != size).any()):
        raise RuntimeError("segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) "
                           f"when !unsafe. The size is {size}, the sums are {lengths.sum(-1).tolist()}")


def _pieces(data: Tensor, offsets: list[Any], reduce: str, initial: Any, empty: float) -> Tensor:
    """Reduces along the first dimension, or, where there is a list of offsets per element of it, the elements one by one."""
    from .ops.shape.joining import stack
    if offsets and isinstance(offsets[0], list):
        return stack([_pieces(piece, own, reduce, initial, empty) for piece, own in zip(data, offsets)])
    return stack([_segment(data[a:b], reduce, initial, empty) for a, b in itertools.pairwise(offsets)])


def _segment(piece: Tensor, reduce: str, initial: Any, empty: float) -> Tensor:
    if not piece.shape[0]:
        return piece.new_full(piece.shape[1:], empty if initial is None else initial)
    if reduce in ("max", "min"):
        made = piece.amax(0) if reduce == "max" else piece.amin(0)
        if initial is None:
            return made
        return made.clamp_min(initial) if reduce == "max" else made.clamp_max(initial)
    if reduce == "prod":
        return piece.prod(0) if initial is None else piece.prod(0) * initial
    total = piece.sum(0) if initial is None else piece.sum(0) + initial
    return total / piece.shape[0] if reduce == "mean" else total


_segment_reduce = segment_reduce
