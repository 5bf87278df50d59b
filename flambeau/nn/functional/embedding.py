"""embedding, embedding_bag and one_hot."""

from __future__ import annotations

from ...creation.factories import arange
from ...ops.core import overrides as _overrides
from ...ops.index.embedding import embedding_bag as _bag
from ...ops.index.embedding import lookup, one_hot, renorm_
from ...tensors.tensor import Tensor
from .activations import functional

__all__ = ["embedding", "embedding_bag", "one_hot"]


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
              norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    """The rows of weight with the given numbers. padding_idx: a row without gradient; max_norm: used rows are
    shrunk to this norm first, in place.

    Shapes: Whole numbers (*) and a table (rows, width) to (*, width).

    >>> F.embedding(torch.tensor([2, 0]), torch.arange(6.0).view(3, 2))
    tensor([[4., 5.],
            [0., 1.]])
    """
    if _overrides.active:
        done, value = _overrides.dispatch(embedding, (input, weight), {
            "padding_idx": padding_idx, "max_norm": max_norm, "norm_type": norm_type,
            "scale_grad_by_freq": scale_grad_by_freq, "sparse": sparse})
        if done:
            return value
    if padding_idx is None:
        padding_idx = -1
    else:
        rows = weight.size(0)
        if not -rows <= padding_idx < rows:
            raise AssertionError("Padding_idx must be within num_embeddings")
        if padding_idx < 0:
            padding_idx += rows
    if max_norm is not None:
        renorm_(weight, input.contiguous(), max_norm, norm_type)
    return lookup(weight, input, padding_idx, scale_grad_by_freq, sparse)


_MODES = {"sum": 0, "mean": 1, "max": 2}


@functional
def embedding_bag(input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None,
                  norm_type: float = 2, scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                  per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
                  padding_idx: int | None = None) -> Tensor:
    """Sums, means or maxima of bags of embeddings: rows of a 2-D input, or runs of a 1-D one that start at offsets.

    >>> F.embedding_bag(torch.tensor([[0, 2]]), torch.arange(6.0).view(3, 2), mode="sum")
    tensor([[4., 6.]])
    """
    if weight.dtype.name == "int64" and input.is_floating_point():
        import warnings
        warnings.warn("Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, input, "
                      "...)` is deprecated, and should now be `embedding_bag(input, weight, ...)`.", stacklevel=3)
        weight, input = input, weight
    if per_sample_weights is not None and input.size() != per_sample_weights.size():
        raise ValueError(f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then it must "
                         f"have the same shape as the input ({input.shape})")
    if weight.dim() != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.dim()}")
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError("if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed "
                             f"length sequences. However, found offsets of type {type(offsets)}")
        offsets = arange(0, input.numel(), input.size(1), dtype=input.dtype, device=input.device) if input.size(
            1) else input.new_zeros(input.size(0))
        input = input.reshape(-1)
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.reshape(-1)
    elif input.dim() == 1:
        if offsets is None:
            raise ValueError("offsets has to be a 1D Tensor but got None")
        if offsets.dim() != 1:
            raise ValueError("offsets has to be a 1D Tensor")
    else:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}")
    if mode not in _MODES:
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise ValueError("max mode does not support sparse weights")
    if max_norm is not None:
        renorm_(weight, input, max_norm, norm_type)
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError("embedding_bag: per_sample_weights was not None. per_sample_weights is only supported "
                                  f"for mode='sum' (got mode='{mode}'). Please open a feature request on GitHub.")
    return _bag(weight, input, offsets, scale_grad_by_freq, _MODES[mode], sparse, per_sample_weights,
                include_last_offset, padding_idx)[0]
