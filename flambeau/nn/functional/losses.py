"""Losses. Arguments are checked here; the arithmetic is in ops/layers/losses.py, or composed of other operations."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

from ...autograd.modes import no_grad
from ...ops.core import overrides as _overrides
from ...ops.core.row import FUNCTIONS, _type_word, autocast_as, check_dtype
from ...ops.layers import losses as _ops
from ...ops.layers.linear import linear
from ...ops.reduce.scans import log_softmax as _log_softmax
from ...tensors import dtypes as _dtypes
from ...tensors.shapes import broadcast_shapes
from ...tensors.tensor import Tensor
from .. import _reduction
from .activations import functional, logsigmoid
from .distance import pairwise_distance

__all__ = ["l1_loss", "mse_loss", "smooth_l1_loss", "huber_loss", "cross_entropy", "nll_loss", "binary_cross_entropy",
           "binary_cross_entropy_with_logits", "kl_div", "poisson_nll_loss", "gaussian_nll_loss",
           "hinge_embedding_loss", "cosine_embedding_loss", "margin_ranking_loss", "multi_margin_loss",
           "multilabel_margin_loss", "multilabel_soft_margin_loss", "soft_margin_loss", "triplet_margin_loss",
           "triplet_margin_with_distance_loss", "ctc_loss", "linear_cross_entropy"]
_NUMBERS = _reduction.NUMBERS


def _chosen(reduction: str, size_average: Any, reduce: Any) -> str:
    if size_average is not None or reduce is not None:
        return _reduction.legacy_get_string(size_average, reduce)
    return reduction


def _reduce(loss: Tensor, reduction: str) -> Tensor:
    which = _reduction.get_enum(reduction)
    return loss.mean() if which == 1 else loss.sum() if which == 2 else loss


def _warn_sizes(input: Tensor, target: Tensor) -> None:
    if input._array.shape != target._array.shape:
        warnings.warn(f"Using a target size ({target.size()}) that is different to the input size ({input.size()}). "
                      "This will likely lead to incorrect results due to broadcasting. Please ensure they have the "
                      "same size.", stacklevel=4)


def _weighted(loss: Tensor, weight: Tensor, reduction: str) -> Tensor:
    """A loss per element with weights; its mean is over the weights."""
    loss = loss * weight
    if reduction == "mean":
        return loss.sum() / weight.sum()
    return _reduce(loss, reduction)


def _check_weight(input: Tensor, weight: Tensor) -> None:
    if weight.shape != input.shape:
        raise ValueError("Weights and input must have the same size.")


# ----------------------------------------------------------------------------------------------------- of two tensors
@functional(autocast="float32")
def l1_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
            reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """|x - y|."""
    _warn_sizes(input, target)
    reduction = _chosen(reduction, size_average, reduce)
    if weight is not None:
        _check_weight(input, weight)
        return _weighted((input - target).abs(), weight, reduction)
    return _reduce((input - target).abs(), reduction)


@autocast_as("float32")
def mse_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
             reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """(x - y) ** 2."""
    if _overrides.active:
        done, value = _overrides.dispatch(mse_loss, (input, target), {
            "size_average": size_average, "reduce": reduce, "reduction": reduction, "weight": weight})
        if done:
            return value
    if not isinstance(target, Tensor):
        raise TypeError(f"mse_loss(): argument 'target' (position 2) must be Tensor, not {type(target).__name__}")
    _warn_sizes(input, target)
    reduction = _chosen(reduction, size_average, reduce)
    check_dtype("mse_cpu", input.dtype, "bif")
    if weight is not None:
        _check_weight(input, weight)
        return _weighted(_ops.pair(_ops.mse_row, input, target, 0), weight, reduction)
    return _ops.pair(_ops.mse_row, input, target, _reduction.get_enum(reduction))


@functional(autocast="float32")
def smooth_l1_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
                   reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """(x - y) ** 2 / (2 * beta) where |x - y| < beta, |x - y| - beta / 2 elsewhere."""
    _warn_sizes(input, target)
    reduction = _chosen(reduction, size_average, reduce)
    check_dtype("smooth_l1_cpu", input.dtype, "bif")
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    if beta == 0:
        return _reduce((input - target).abs(), reduction)
    return _ops.pair(_ops.smooth_l1_row, input, target, _reduction.get_enum(reduction), beta)


@functional(autocast="float32")
def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0,
               weight: Tensor | None = None) -> Tensor:
    """(x - y) ** 2 / 2 where |x - y| <= delta, delta * (|x - y| - delta / 2) elsewhere."""
    _warn_sizes(input, target)
    check_dtype("huber_cpu", input.dtype, "bif")
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    if weight is not None:
        _check_weight(input, weight)
        return _weighted(_ops.pair(_ops.huber_row, input, target, 0, delta), weight, reduction)
    return _ops.pair(_ops.huber_row, input, target, _reduction.get_enum(reduction), delta)


@functional(autocast="float32")
def soft_margin_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
                     reduction: str = "mean") -> Tensor:
    """log(1 + exp(-y * x)) for y of -1 or 1."""
    reduction = _chosen(reduction, size_average, reduce)
    return _ops.pair(_ops.soft_margin_row, input, target, _reduction.get_enum(reduction))


@functional(autocast="float32")
def kl_div(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
           reduction: str = "mean", log_target: bool = False) -> Tensor:
    """y * (log(y) - x) for log-probabilities x; log_target: y is given as its logarithm."""
    if size_average is not None or reduce is not None:
        reduction = _reduction.legacy_get_string(size_average, reduce)
    elif reduction == "mean":
        warnings.warn("reduction: 'mean' divides the total loss by both the batch size and the support size."
                      "'batchmean' divides only by the batch size, and aligns with the KL div math definition."
                      "'mean' will be changed to behave the same as 'batchmean' in the next major release.", stacklevel=3)
    loss = _ops.kl_terms(input, target, log_target)
    if reduction == "batchmean":
        return loss.sum() / input.size()[0] if input.ndim else loss.sum()
    return _reduce(loss, reduction)


@functional(autocast="float32")
def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool = True, full: bool = False,
                     size_average: bool | None = None, eps: float = 1e-8, reduce: bool | None = None,
                     reduction: str = "mean") -> Tensor:
    """The negative log-likelihood of counts y under a Poisson rate exp(x), or x; full: with Stirling's term."""
    reduction = _chosen(reduction, size_average, reduce)
    if reduction not in _NUMBERS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        loss = loss + stirling.masked_fill(target <= 1, 0)
    return _reduce(loss, reduction)


@functional
def gaussian_nll_loss(input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6,
                      reduction: str = "mean") -> Tensor:
    """The negative log-likelihood of y under a normal distribution of mean x and variance var."""
    if isinstance(var, float):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = input.new_full(input.shape, var)
    elif not var.is_meta and (var < 0).any().item():
        raise ValueError("var has negative entry/entries")
    if var.size() != input.size():
        if input.size()[:-1] == var.size():
            var = var.unsqueeze(-1)
        elif not (input.size()[:-1] == var.size()[:-1] and var.size(-1) == 1) and not _smaller(input, var):
            raise ValueError("var is of incorrect size")
    if reduction not in _NUMBERS:
        raise ValueError(reduction + " is not valid")
    kept = var.clone()
    with _no_grad():
        kept.clamp_(min=eps)
    loss = 0.5 * (kept.log() + (input - target) ** 2 / kept)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduce(loss, reduction)


def _smaller(input: Tensor, var: Tensor) -> bool:
    """Whether var broadcasts to the input's shape."""
    try:
        return broadcast_shapes(tuple(input.shape), tuple(var.shape)) == tuple(input.shape)
    except RuntimeError:
        return False


def _no_grad() -> Any:
    return no_grad()


# ---------------------------------------------------------------------------------------------- binary cross entropy
@functional(autocast="float32")
def binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
                         reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """-(y * log(x) + (1 - y) * log(1 - x)) for probabilities x; logarithms are not below -100."""
    which = _reduction.get_enum(_chosen(reduction, size_average, reduce))
    if target.size() != input.size():
        raise ValueError(f"Using a target size ({target.size()}) that is different to the input size ({input.size()}) "
                         "is deprecated. Please ensure they have the same size.")
    if input.dtype is not target.dtype:
        raise RuntimeError(f"Found dtype {target.dtype.word} but expected {input.dtype.word}")
    if weight is not None:
        weight = weight.expand(broadcast_shapes(tuple(weight.shape), tuple(target.shape)))
    return _ops.bce_row(input, target, weight, which)


@functional(autocast="float32")
def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Tensor | None = None,
                                     size_average: bool | None = None, reduce: bool | None = None,
                                     reduction: str = "mean", pos_weight: Tensor | None = None) -> Tensor:
    """binary_cross_entropy of sigmoid(x), accurately; pos_weight: a factor of the positive examples' part."""
    which = _reduction.get_enum(_chosen(reduction, size_average, reduce))
    if target.size() != input.size():
        raise ValueError(f"Target size ({target.size()}) must be the same as input size ({input.size()})")
    if input.dtype is not target.dtype:
        input, target = _promoted(input, target)
    return _ops.bce_logits_row(input, target, weight, pos_weight, which)


def _promoted(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    common = _dtypes.promote_types(a.dtype, b.dtype)
    return a.to(common), b.to(common)


# -------------------------------------------------------------------------------------------------------- by classes
@functional(autocast="float32")
def nll_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
             ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """-x[class] for log-probabilities x of shape (C), (N, C) or (N, C, d1, ...)."""
    return _nll(input, target, weight, _reduction.get_enum(_chosen(reduction, size_average, reduce)), ignore_index)


def _wrong_target(input: Tensor, target: Tensor) -> RuntimeError:
    """Class numbers that do not have the shape of the input without its classes, in PyTorch's three ways to say so."""
    if input.ndim == 2:
        return RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if input.ndim == 4 and target.ndim == 3:
        return RuntimeError(f"size mismatch (got input: {list(input.shape)} , target: {list(target.shape)}")
    if input.ndim == 4:
        return RuntimeError("only batches of spatial targets supported (3D tensors) but got targets of dimension: "
                            f"{target.ndim}")
    return RuntimeError(f"Expected target size {[input.shape[0], *input.shape[2:]]}, got {list(target.shape)}")


def _nll(input: Tensor, target: Tensor, weight: Tensor | None, which: int, ignore_index: int,
         smoothing: float = 0.0) -> Tensor:
    x, y = input._array, target._array
    if weight is None and not smoothing and x.ndim == 2 and x.dtype.char in "fd" and y.dtype.char == "l" and (
            y.shape == x.shape[:1]):
        return _ops.nll_row(input, target, None, which, ignore_index)[0]  # what most calls bring: nothing to complain about
    if not input.ndim:
        raise ValueError("nll_loss: expected an input of 1 or more dimensions, got a 0-dim tensor")
    if target.is_floating_point() or target.is_complex() or target.dtype is _dtypes.bool_:
        raise RuntimeError(f"expected target dtype to be Long or Byte, but got {target.dtype.word} "
                           "(nll_loss: expected scalar type Long)")
    n, classes = (input.shape[0], input.shape[1]) if input.ndim > 1 else (1, input.shape[0])
    if input.ndim == 1:
        if target.ndim > 1 or target.numel() != 1:
            raise ValueError(f"For 1D input, 1D target must have size 1, but got target size: {target.numel()}")
        target = target.reshape(())
    elif target.ndim == 0 or target.shape[0] != n:
        raise ValueError(f"Expected input batch_size ({n}) to match target batch_size "
                         f"({target.shape[0] if target.ndim else 1}).")
    elif target.shape[1:] != input.shape[2:]:
        raise _wrong_target(input, target)
    if weight is not None:
        if weight.ndim != 1 or weight.numel() != classes:
            raise RuntimeError(f"weight tensor should be defined either for all {classes} classes or no classes but got "
                               f"weight tensor of shape: {list(weight.shape)}")
        if weight.dtype is not input.dtype:
            raise RuntimeError(f"expected scalar type {input.dtype.word} but found {weight.dtype.word}")
    if not input.is_floating_point():
        raise NotImplementedError(f'"nll_loss_out_frame" not implemented for \'{input.dtype.word}\'')
    if smoothing:
        return _ops.smoothed_row(input, target.to(_dtypes.int64), weight, which, ignore_index, smoothing)[0]
    row = _ops.nll_row if input.ndim < 3 else _ops.nll2d_row
    return row(input, target.to(_dtypes.int64), weight, which, ignore_index)[0]


@autocast_as("float32")
def cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
                  ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean",
                  label_smoothing: float = 0.0) -> Tensor:
    """nll_loss of log_softmax(x); the target may also be the probabilities of all classes."""
    if _overrides.active:
        done, value = _overrides.dispatch(cross_entropy, (input, target), {
            "weight": weight, "size_average": size_average, "ignore_index": ignore_index, "reduce": reduce,
            "reduction": reduction, "label_smoothing": label_smoothing})
        if done:
            return value
    if size_average is not None or reduce is not None:
        reduction = _reduction.legacy_get_string(size_average, reduce)
    which = _NUMBERS[reduction] if reduction in _NUMBERS else _reduction.get_enum(reduction)
    if label_smoothing == 0.0:
        if not isinstance(target, Tensor):
            raise TypeError("cross_entropy_loss(): argument 'target' (position 2) must be Tensor, not "
                            f"{type(target).__name__}")
        made = _ops.fused_cross_entropy(input, target, weight, which, ignore_index)
        if made is not None:
            return made
    return _cross_entropy(input, target, weight, which, ignore_index, label_smoothing)


def _cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None, which: int, ignore_index: int,
                   smoothing: float) -> Tensor:
    if not 0.0 <= smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {smoothing}")
    if not input.ndim:
        raise RuntimeError("cross_entropy: expected an input of 1 or more dimensions, got a 0-dim tensor")
    classes = 0 if input.ndim == 1 else 1
    if target.is_floating_point() and input.shape == target.shape:
        return _soft(_log_softmax(input, classes), target, weight, which, smoothing, classes, ignore_index)
    if target.shape == input.shape and not target.is_complex():
        raise RuntimeError(f"Expected floating point type for target with class probabilities, got {target.dtype.word}")
    if target.is_floating_point() and target.ndim == input.ndim > 1 and target.shape[0] != input.shape[0]:
        raise ValueError(f"Expected input batch_size ({input.shape[0]}) to match target batch_size ({target.shape[0]}).")
    if target.is_floating_point() and target.ndim == input.ndim:
        raise RuntimeError(f"Expected target size {list(input.shape)} (class probabilities), got {list(target.shape)}")
    log_probs = _log_softmax(input, classes)
    if smoothing == 0.0 or _ops.smooths(log_probs, weight):
        return _nll(log_probs, target, weight, which, ignore_index, smoothing)
    loss = _nll(log_probs, target, weight, which, ignore_index)
    ignored = target == ignore_index
    spread = -(log_probs if weight is None else log_probs * _by_class(weight, input, classes)).sum(classes)
    spread = spread.masked_fill(ignored, 0.0)
    if which == 1:
        if weight is None:
            total = (~ignored).sum()
        else:
            total = weight.gather(0, target.masked_fill(ignored, 0).flatten()).masked_fill(
                ignored.flatten(), 0.0).sum()
        spread = spread.sum() / total
    elif which == 2:
        spread = spread.sum()
    share = smoothing / input.shape[classes]
    return loss * (1 - smoothing) + spread * share


def _by_class(weight: Tensor, input: Tensor, classes: int) -> Tensor:
    return weight.view([-1 if d == classes else 1 for d in range(input.ndim)])


def _soft(log_probs: Tensor, target: Tensor, weight: Tensor | None, which: int, smoothing: float, classes: int,
          ignore_index: int) -> Tensor:
    """Cross entropy with the probabilities of all classes as target."""
    if ignore_index >= 0:
        raise RuntimeError("ignore_index is not supported for floating point target")
    if smoothing > 0.0:
        target = target * (1 - smoothing) + smoothing / log_probs.shape[classes]
    terms = log_probs * target if weight is None else log_probs * target * _by_class(weight, log_probs, classes)
    if which == 1:
        return -terms.sum() / (log_probs.numel() // max(log_probs.shape[classes], 1) or float("nan"))
    return -terms.sum() if which == 2 else -terms.sum(classes)


@functional
def linear_cross_entropy(input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None,
                         weight: Tensor | None = None, reduction: str = "mean", ignore_index: int | None = None,
                         label_smoothing: float = 0.0, options: Any = None) -> Tensor:
    """cross_entropy of linear(input, linear_weight, linear_bias) with a weight of (C, *out, in_features).

    `options` says how PyTorch cuts the work into pieces to save memory; the result is the same without.

    >>> F.linear_cross_entropy(torch.ones(2, 3), torch.zeros(4, 3), torch.tensor([0, 3]))
    tensor(1.3863)
    """
    if input.ndim not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.ndim}")
    if linear_weight.ndim < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {linear_weight.ndim}")
    features, inner = input.shape[-1], tuple(linear_weight.shape[1:-1])
    if features != linear_weight.shape[-1]:
        raise RuntimeError("expected equal input and linear_weight last dimensions (in_features), got "
                           f"{features} and {linear_weight.shape[-1]}, respectively")
    if linear_bias is not None and tuple(linear_bias.shape) != tuple(linear_weight.shape[:-1]):
        raise RuntimeError(f"expected linear_bias shape {tuple(linear_weight.shape[:-1])}, got {tuple(linear_bias.shape)}")
    if inner and input.ndim == 1:
        raise RuntimeError(f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} requires "
                           f"batched input, (N, {features}), got unbatched input with shape {tuple(input.shape)}")
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = linear(input, linear_weight.reshape(-1, features), bias).reshape(
        *input.shape[:-1], *linear_weight.shape[:-1])
    if target.shape == logits.shape and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    return cross_entropy(logits, target, weight=weight, reduction=reduction,
                         ignore_index=-100 if ignore_index is None else ignore_index, label_smoothing=label_smoothing)


# ------------------------------------------------------------------------------------------------------------ margins
@functional(autocast="float32")
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, size_average: bool | None = None,
                         reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """x where y is 1, max(0, margin - x) where y is -1."""
    zero = input.new_zeros(())
    where = FUNCTIONS["where"]
    apart = where(target != 1, (margin - input).clamp(min=0), zero)
    close = where(target != -1, input, zero)
    return _reduce(apart + close, _chosen(reduction, size_average, reduce))


@functional(autocast="float32")
def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0,
                          size_average: bool | None = None, reduce: bool | None = None,
                          reduction: str = "mean") -> Tensor:
    """1 - cos where y is 1, max(0, cos - margin) where y is -1."""
    if target.ndim not in (0, 1):
        raise RuntimeError(f"0D or 1D target tensor expected, multi-target not supported, got {target.ndim}D")
    if input1.ndim != target.ndim + 1 or input2.ndim != target.ndim + 1:
        raise RuntimeError(f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found inputs "
                           f"with sizes {list(input1.shape)} and {list(input2.shape)}.")
    dim = target.ndim
    dot = (input1 * input2).sum(dim)
    one, two = (input1 * input1).sum(dim) + 1e-12, (input2 * input2).sum(dim) + 1e-12
    cos = dot / (one * two).sqrt()
    zero = cos.new_zeros(())
    where = FUNCTIONS["where"]
    loss = where(target == 1, 1 - cos, zero) + where(target == -1, (cos - margin).clamp(min=0), zero)
    return _reduce(loss, _chosen(reduction, size_average, reduce))


@functional(autocast="float32")
def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0,
                        size_average: bool | None = None, reduce: bool | None = None,
                        reduction: str = "mean") -> Tensor:
    """max(0, -y * (x1 - x2) + margin)."""
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError("margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: "
                           f"{input1.size()}, input2: {input2.size()}, target: {target.size()} ")
    return _reduce((-target * (input1 - input2) + margin).clamp(min=0), _chosen(reduction, size_average, reduce))


@functional(autocast="float32")
def multi_margin_loss(input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
                      size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """The sum over the other classes of max(0, margin - x[y] + x[i]) ** p, divided by their number."""
    which = _reduction.get_enum(_chosen(reduction, size_average, reduce))
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.dim() != 1:
        raise ValueError("weight must be one-dimensional")
    if input.ndim > 2 or (input.ndim and input.shape[-1] == 0):
        raise RuntimeError("Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
                           f"{list(input.shape)}")
    rows = input.shape[0] if input.ndim == 2 else 1
    if target.ndim > 1 or target.numel() != rows:
        raise RuntimeError("multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples "
                           f"(batch size). Expected target size [{rows}], but got {list(target.shape)}. "
                           f"Input has shape {list(input.shape)}.")
    if weight is not None and weight.numel() != (input.shape[-1] if input.ndim else 1):
        raise RuntimeError(f"inconsistent weight size, expected {input.shape[-1] if input.ndim else 1} but got "
                           f"{list(weight.shape)}")
    if target.dtype is not _dtypes.int64:
        raise RuntimeError(f"expected scalar type Long but found {_type_word(target.dtype)}")
    return _ops.multi_margin_row(input, target, p, margin, weight, which)


@functional(autocast="float32")
def multilabel_margin_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
                           reduction: str = "mean") -> Tensor:
    """Hinge loss between all labels of an example (a list that ends at the first -1) and all other classes."""
    which = _reduction.get_enum(_chosen(reduction, size_average, reduce))
    if input.ndim > 2 or (input.ndim and input.shape[-1] == 0):
        raise RuntimeError("Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
                           f"{list(input.shape)}")
    if target.shape != input.shape:
        raise RuntimeError(f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}")
    return _ops.multilabel_margin_row(input, target, which)[0]


@functional
def multilabel_soft_margin_loss(input: Tensor, target: Tensor, weight: Tensor | None = None,
                                size_average: bool | None = None, reduce: bool | None = None,
                                reduction: str = "mean") -> Tensor:
    """The mean over the classes of binary_cross_entropy_with_logits."""
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        loss = loss * weight
    dim = input.dim() - 1
    loss = loss.sum(dim=dim) / input.size(dim)
    return _reduce(loss, _chosen(reduction, size_average, reduce))


@functional(autocast="float32")
def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2,
                        eps: float = 1e-6, swap: bool = False, size_average: bool | None = None,
                        reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """max(0, |a - p| - |a - n| + margin); swap: the nearer of a and p to n counts."""
    reduction = _chosen(reduction, size_average, reduce)
    return _triplet(lambda a, b: pairwise_distance(a, b, p, eps), anchor, positive, negative, margin, swap, reduction)


def _triplet(distance: Callable, anchor: Tensor, positive: Tensor, negative: Tensor, margin: float, swap: bool,
             reduction: str) -> Tensor:
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError("The anchor, positive, and negative tensors are expected to have the same number of "
                           f"dimensions, but got: anchor {anchor.ndim}D, positive {positive.ndim}D, and negative "
                           f"{negative.ndim}D inputs")
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = FUNCTIONS["minimum"](far, distance(positive, negative))
    return _reduce((margin + near - far).clamp(min=0), reduction)


@functional
def triplet_margin_with_distance_loss(anchor: Tensor, positive: Tensor, negative: Tensor, *,
                                      distance_function: Callable | None = None, margin: float = 1.0,
                                      swap: bool = False, reduction: str = "mean") -> Tensor:
    """triplet_margin_loss with a distance of one's own."""
    if reduction not in _NUMBERS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return _triplet(distance_function or pairwise_distance, anchor, positive, negative, margin, swap, reduction)


@functional(autocast="float32")
def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0,
             reduction: str = "mean", zero_infinity: bool = False) -> Tensor:
    """The loss of unaligned sequences (connectionist temporal classification)."""
    return _ops.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, _reduction.get_enum(reduction),
                         zero_infinity)
