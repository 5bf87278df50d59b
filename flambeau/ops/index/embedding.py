"""Rows of a table by number: embedding, embedding_bag and their gradients, dense or sparse; one_hot."""

from __future__ import annotations

from typing import Any

from ...autograd.state import FOLLOWED, NO_GRAD, looked_at, state
from ...autograd.views import written
from ...backends import registry, values
from ...tensors import dtypes as _dtypes
from ...tensors.parameter import Parameter
from ...tensors.tensor import Tensor
from .. import rules
from ..core.row import CPU_ONLY, FUNCTIONS, Row, public, run, wrapped
from ..rules import layers, moves

ndarray = registry.CPU_ARRAY
_FOLLOWABLE = registry.FOLLOWABLE


# -------------------------------------------------------------------------------------------------------- embedding
def _weight_grad(grad, weight_shape, indices, padding_idx, scale_grad_by_freq, sparse):
    count = weight_shape[0]
    if sparse:
        from ...sparse import of_rows
        rows, values = _rows(grad, indices, count, padding_idx, scale_grad_by_freq)
        return of_rows(rows, values, tuple(weight_shape))
    return _dense(grad, indices, count, padding_idx, scale_grad_by_freq)


def _fused(grad, weight_shape, indices, padding_idx, scale_grad_by_freq, sparse):
    return None if sparse else wrapped(run("embedding_dense_backward", (
        grad._array, indices._array, weight_shape[0], padding_idx, scale_grad_by_freq)))


def _again(grad, indices, padding_idx, scale_grad_by_freq, count):
    """The derivative of embedding_dense_backward looks the rows up again."""
    picked = _embedding(grad, indices, -1, False, False)
    if padding_idx >= 0:
        picked = picked.masked_fill((indices == padding_idx).unsqueeze(-1), 0)
    if scale_grad_by_freq:
        flat = indices.reshape(-1).to(_dtypes.int64)
        times = flat.bincount(minlength=count)[flat].reshape(indices.shape).unsqueeze(-1)
        picked = picked / times.to(grad.dtype)
    return picked


coalesced_rows = Row("coalesced_rows", "places values limit", shape=rules.by_value("coalesce"))
_rows = Row("embedding_rows", "grad indices count padding_idx scale_grad_by_freq",
            dynamic=lambda grad, indices, count, padding_idx, *rest: padding_idx >= 0,
            shape=rules.by_value("the sparse gradient of embedding"))
_dense = Row("embedding_dense_backward", "grad indices count padding_idx scale_grad_by_freq",
             safe=values.positions(1, lambda grad, at, count, *rest: count, again=True), shape=layers.embedding_dense,
             backward=dict(
    grad=lambda grad, indices, padding_idx, scale_grad_by_freq, count: _again(
        grad, indices, padding_idx, scale_grad_by_freq, count)))
_embedding = Row("embedding", "weight indices! padding_idx scale_grad_by_freq sparse",
                 safe=values.positions(1, lambda weight, *rest: weight.shape[0]), shape=layers.embedding,
                 backward=dict(weight=_weight_grad), fused=dict(weight=_fused))


def check_indices(indices: Any, name: str, position: int = 1) -> None:
    if not isinstance(indices, Tensor):
        raise TypeError(f"{name}(): argument 'indices' (position 2) must be Tensor, not {type(indices).__name__}")
    if indices._array.dtype.char not in "li":
        raise RuntimeError(f"Expected tensor for argument #{position} 'indices' to have one of the following scalar "
                           f"types: Long, Int; but got {indices.type()} instead (while checking arguments for {name})")


def lookup(weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False,
           sparse: bool = False) -> Tensor:
    """weight[indices]; plain float tables go straight to the kernel."""
    mode = state.mode
    kind = weight.__class__
    if (mode < 2 or mode in FOLLOWED) and (kind is Parameter or kind is Tensor) and indices.__class__ is Tensor:
        w, i = weight._array, indices._array
        if w.ndim == 2 and i.dtype.char in "li" and w.dtype.char in "fd" and (
                type(w) in (known := CPU_ONLY if mode < 2 else _FOLLOWABLE) and type(i) in known):
            if mode < 2:
                made = _embedding.cpu(w, i, padding_idx, scale_grad_by_freq, sparse)
            else:
                mode &= NO_GRAD
                made = state.follower.call("embedding", (w, i, padding_idx, scale_grad_by_freq, sparse))
            return _embedding.tensor(mode, made, weight, indices, padding_idx, scale_grad_by_freq, sparse)
    check_indices(indices, "embedding")
    if weight.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    return _embedding(weight, indices, padding_idx, scale_grad_by_freq, sparse)


@public(method=False, out=False)
def embedding(weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False,
              sparse: bool = False) -> Tensor:
    """The rows of weight with the given numbers."""
    return lookup(weight, indices, padding_idx, scale_grad_by_freq, sparse)


def _renorm(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Shrinks, in place and unrecorded, the used rows whose norm is above max_norm."""
    check_indices(indices, "embedding_renorm_")
    if not (weight.is_floating_point() or weight.is_complex()):
        raise RuntimeError(f"norm(): input dtype should be either floating point or complex. Got {weight.dtype.word} instead.")
    looked_at(weight._array, "rows of an embedding were measured", writing=True)
    looked_at(indices._array, "rows of an embedding were measured")
    given = weight._array, indices._array.reshape(-1)
    backend = registry.backend_of(given[0])
    if backend.NAME == "cuda":
        backend.call("embedding_renorm", (*given, max_norm, norm_type))
    else:
        _shrink.cpu(*given, max_norm, norm_type)
    written(weight)
    return weight


_shrink = Row("embedding_renorm", "weight indices max_norm norm_type", shape=rules.itself)
renorm_ = public(_renorm, name="embedding_renorm_", method=False, out=False)
FUNCTIONS["embedding_renorm_"] = renorm_


def adam_rows(table: Tensor, average: Tensor, squares: Tensor, places: Tensor, values: Tensor, *rates: Any) -> bool:
    """Adam's step for the rows at some places; False when the tensors are not plain enough for the kernel."""
    arrays = [t._array for t in (table, average, squares, places, values)]
    kind, backend = arrays[0].dtype, registry.common(arrays)
    if kind.char not in "fd" or backend.NAME in ("meta", "pending"):
        return False
    if any([a.dtype is not kind or not a.flags.c_contiguous for a in (*arrays[:3], arrays[4])]):
        return False
    backend.call("sparse_adam", (*arrays, *rates))
    for t in (table, average, squares):
        written(t)
    return True


_adam_rows = Row("sparse_adam", "table average squares places values rate beta1 beta2 eps maximize",
                 safe=values.positions(3, lambda table, *rest: table.shape[0], again=True),
                 writes="table average squares", shape=rules.nothing)


# ------------------------------------------------------------------------------------------------------------- bags
def _bag_weight(grads, weight_shape, indices, per_sample_weights, mode, scale_grad_by_freq, sparse, result1, result2,
                result3):
    grad = grads[0]
    if grad is None:
        return None
    given = (grad, indices, result1.detach(), result2.detach(), result3.detach(), mode, weight_shape[0],
             scale_grad_by_freq, None if per_sample_weights is None else per_sample_weights.detach())
    if not sparse:
        return _bag_dense(*given)
    from ...sparse import of_rows
    return of_rows(*_bag_rows(*given), tuple(weight_shape))


def _bag_samples(grads, weight, indices, result1):
    """Each index's weight multiplies its row: the gradient is their product with the bag's gradient."""
    grad = grads[0]
    if grad is None:
        return None
    bags = result1.detach()
    inside = bags >= 0
    products = grad.index_select(0, bags.clamp(min=0)) * weight.detach().index_select(0, indices)
    return products.sum(-1).masked_fill(~inside, 0)


_BAG = "grad indices bags sizes winners mode count scale_grad_by_freq sample_weights"
_bag_rows = Row("embedding_bag_rows", _BAG, shape=rules.by_value("the sparse gradient of embedding_bag"))
_bag_dense = Row("embedding_bag_backward", _BAG, shape=layers.embedding_bag_backward)
_bag = Row("embedding_bag", "weight indices offsets mode include_last padding_idx per_sample_weights scale_grad_by_freq "
           "sparse", shape=layers.embedding_bag, constant=(1, 2, 3),
           backward=dict(weight=_bag_weight, per_sample_weights=_bag_samples))


@public(method=False, out=False, aliases=("_embedding_bag", "_embedding_bag_forward_only"))
def embedding_bag(weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = 0,
                  sparse: bool = False, per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
                  padding_idx: int | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sums (mode 0), means (1) or maxima (2) of bags of rows; also each index's bag, the bags' sizes, the winners."""
    check_indices(indices, "embedding_bag")
    check_indices(offsets, "embedding_bag", 2)
    if indices.ndim not in (1, 2):
        raise RuntimeError(f"input has to be a 1D or 2D Tensor, but got Tensor of dimension {indices.ndim}")
    if indices.ndim == 1 and offsets.ndim != 1:
        raise RuntimeError(f"offsets has to be a 1D Tensor, but got Tensor of dimension {offsets.ndim}")
    if weight.ndim != 2:
        raise RuntimeError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}")
    if not weight.is_floating_point():
        raise RuntimeError("Expected tensor for argument #1 'weight' to have one of the following scalar types: Half, "
                           f"BFloat16, Float, Double; but got {weight.type()} instead (while checking arguments for "
                           "embedding_bag)")
    if per_sample_weights is not None and per_sample_weights.dtype is not weight.dtype:
        raise RuntimeError("Expected tensor for argument #1 'weight' to have the same type as tensor for argument #1 "
                           f"'per_sample_weights'; but type {weight.type()} does not equal {per_sample_weights.type()} "
                           "(while checking arguments for embedding_bag)")
    if padding_idx is None:
        padding_idx = -1
    elif not -weight.shape[0] <= padding_idx < weight.shape[0]:
        raise RuntimeError(f"padding_idx must be within the number of embeddings, -{weight.shape[0]} through "
                           f"{weight.shape[0] - 1}, but got {padding_idx}")
    elif padding_idx < 0:
        padding_idx += weight.shape[0]
    _check_offsets(indices, offsets, include_last_offset)
    if include_last_offset and (padding_idx >= 0 or mode == 2):  # as in PyTorch the last bag then goes on to the end
        offsets = FUNCTIONS["cat"]((offsets[:-1], offsets.new_tensor([indices.numel()])))
    return _bag(weight, indices.to(_dtypes.int64), offsets.to(_dtypes.int64), mode, include_last_offset, padding_idx,
                per_sample_weights, scale_grad_by_freq, sparse)


def _check_offsets(indices: Tensor, offsets: Tensor, include_last: bool) -> None:
    if include_last and not offsets.numel():
        raise RuntimeError("include_last_offset: number of offset should be at least 1")
    if not offsets.numel() or offsets.is_meta:
        return
    values = offsets.tolist()
    if values[0] != 0:
        raise RuntimeError("offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
                           f"position 0. However, got {values[0]}")
    if values[-1] > indices.numel():
        raise RuntimeError("offsets[-1] can not be greater than input's length: "
                           f"{indices.numel()} but got offsets[-1] of {values[-1]}")


# ---------------------------------------------------------------------------------------------------------- one_hot
_one_hot = Row("one_hot", "self classes", safe=values.positions(0, lambda at, classes: classes), batch="trailing",
               shape=moves.one_hot)


@public(method=False, toplevel=False, out=False)
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """A further dimension with a one at each number's place."""
    if tensor.dtype is not _dtypes.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if not tensor.numel():
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        return tensor.new_zeros((*tensor.shape, num_classes))
    if tensor.is_meta:
        if num_classes <= 0:
            raise NotImplementedError("one_hot: the number of classes of a meta tensor must be given")
        return tensor.new_zeros((*tensor.shape, num_classes))
    if tensor.min().item() < 0:
        raise RuntimeError("Class values must be non-negative.")
    largest = int(tensor.max().item())
    if num_classes == -1:
        num_classes = largest + 1
    elif num_classes < 1:
        raise RuntimeError("num_classes should be positive")
    elif num_classes <= largest:
        raise RuntimeError("Class values must be smaller than num_classes.")
    return _one_hot(tensor, num_classes)
