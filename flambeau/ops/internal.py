"""Functions of PyTorch's that its compiler and its distributed packages call, by their internal names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..tensors.dtypes import int32, int64, uint8
from ..tensors.shapes import wrap_dim
from ..tensors.tensor import Tensor
from .core.row import FUNCTIONS, public


@public(name="_chunk_cat", method=False, out=True)
def chunk_cat(tensors: Sequence[Tensor], dim: int, num_chunks: int) -> Tensor:
    """Each tensor cut into chunks along dim (the last ones filled up with zeros), and the chunks of all side by side."""
    tensors = list(tensors)
    if num_chunks < 1:
        raise RuntimeError("_chunk_cat expects positive num_chunks")
    if not tensors:
        raise RuntimeError("_chunk_cat expects a non-empty input tensor list")
    if any(t.ndim != tensors[0].ndim for t in tensors):
        if dim < 0:
            raise RuntimeError("_chunk_cat expects non-negative dim when input tensors have different ndims")
        if any(dim >= t.ndim for t in tensors):
            raise RuntimeError("_chunk_cat expects dim < ndim for all input tensors")
    dim = wrap_dim(dim, tensors[0].ndim)
    made = []
    for t in tensors:
        if not t.numel():
            raise RuntimeError("_chunk_cat expects non-empty tensor")
        if t.shape[:dim] != tensors[0].shape[:dim]:
            raise RuntimeError("_chunk_cat expects same sizes of 0,...,dim-1 dimensions for all tensors")
        size = -(-t.shape[dim] // num_chunks) * num_chunks
        if size > t.shape[dim]:
            zeros = t.new_zeros((*t.shape[:dim], size - t.shape[dim], *t.shape[dim + 1:]))
            t = FUNCTIONS["cat"]([t, zeros], dim)
        made.append(t.reshape(*t.shape[:dim], num_chunks, -1))
    return FUNCTIONS["cat"](made, dim + 1)


def _clamped(self: Tensor, indices: Any) -> tuple[Any, ...]:
    """Indices that stay within the tensor, whatever stands in them."""
    made = []
    for d, index in enumerate(indices):
        if index is not None:
            if index.dtype not in (int32, int64):
                raise IndexError("tensors used as indices must be long or int tensors")
            index = index.clamp(-self.shape[d], self.shape[d] - 1)
        made.append(slice(None) if index is None else index)
    return tuple(made)


@public(name="_unsafe_masked_index", method=False, out=False)
def unsafe_masked_index(self: Tensor, mask: Tensor, indices: Any, fill: Any) -> Tensor:
    """self[indices] where the mask is True, else a number; indices out of range count only where the mask is False."""
    if not self.numel():
        shape = FUNCTIONS["broadcast_shapes"](*[i.shape for i in indices if i is not None])
        return self.new_full(shape, fill)
    return self[_clamped(self, indices)].masked_fill(mask.logical_not(), fill)


@public(name="_unsafe_masked_index_put_accumulate", method=False, out=False)
def unsafe_masked_index_put_accumulate(self: Tensor, mask: Tensor, indices: Any, values: Tensor) -> Tensor:
    """self with the values whose mask is True added at indices."""
    if not self.numel():
        return self.clone()
    return self.index_put(_clamped(self, indices), values.masked_fill(mask.logical_not(), 0), accumulate=True)


@public(name="_native_batch_norm_legit", method=False, out=False)
def native_batch_norm_legit(input: Tensor, weight: Tensor | None, bias: Tensor | None, *rest: Any, **options: Any) -> Any:
    """native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps), or without running ones."""
    if isinstance(rest[0] if rest else options.get("running_mean"), bool) or (not rest and "running_mean" not in options):
        rest = (None, None, *rest)
    return FUNCTIONS["native_batch_norm"](input, weight, bias, *rest, **options)


@public(name="_batch_norm_with_update", method=False, out=False)
def batch_norm_with_update(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor, running_var: Tensor,
                           momentum: float, eps: float) -> Any:
    """native_batch_norm in training, with an empty tensor behind its results."""
    made = FUNCTIONS["native_batch_norm"](input, weight, bias, running_mean, running_var, True, momentum, eps)
    return (*made, input.new_empty((0,), dtype=uint8))


@public(name="_upsample_bilinear2d_aa", method=False, out=False)
def upsample_bilinear2d_aa(input: Tensor, output_size: Any, align_corners: bool, scales_h: Any = None, scales_w: Any = None, *,
                           scale_factors: Any = None) -> Tensor:
    """Images resized bilinearly, averaged where they get smaller."""
    from .layers.resample import resize
    factors = list(scale_factors) if scale_factors is not None else scales_h if isinstance(scales_h, (list, tuple)) else (
        None if scales_h is None else [scales_h, scales_w])
    factors = factors or [None, None]
    out = [int(n * f) for n, f in zip(input.shape[2:], factors)] if output_size is None else list(output_size)
    return resize(input, "bilinear", out, bool(align_corners), factors, True)


@public(method=False, toplevel=False, out=False)
def native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The gradient of native_dropout: what was kept, scaled."""
    return grad_output * (mask.to(grad_output.dtype) * scale)
