"""Losses as layers: each holds its options and calls the function of the same name."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import Any

from ..tensors.tensor import Tensor
from . import _reduction
from . import functional as F
from .layer import Layer

__all__ = ["L1Loss", "NLLLoss", "NLLLoss2d", "PoissonNLLLoss", "GaussianNLLLoss", "KLDivLoss", "MSELoss", "BCELoss",
           "BCEWithLogitsLoss", "HingeEmbeddingLoss", "MultiLabelMarginLoss", "SmoothL1Loss", "HuberLoss",
           "SoftMarginLoss", "CrossEntropyLoss", "MultiLabelSoftMarginLoss", "CosineEmbeddingLoss", "MarginRankingLoss",
           "MultiMarginLoss", "TripletMarginLoss", "TripletMarginWithDistanceLoss", "CTCLoss", "LinearCrossEntropyLoss",
           "LinearCrossEntropyOptions"]


class _Loss(Layer, inputs="input, target"):
    """Annotations name what else the function takes; `__init__` stays written out, for its order of arguments is history."""

    reduction: str
    _layer_shown = ()
    _layer_shapes = "Any shape, twice; a number."

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"):
        super().__init__()
        if size_average is not None or reduce is not None:
            self.reduction = _reduction.legacy_get_string(size_average, reduce)
        else:
            self.reduction = reduction


class _WeightedLoss(_Loss):
    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean"):
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


# ----------------------------------------------------------------------------------------------------- of two tensors
class L1Loss(_Loss, function=F.l1_loss):
    pass


class MSELoss(_Loss, function=F.mse_loss):
    pass


class SmoothL1Loss(_Loss, function=F.smooth_l1_loss):
    beta: float

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
                 beta: float = 1.0):
        super().__init__(size_average, reduce, reduction)
        self.beta = beta


class HuberLoss(_Loss, function=F.huber_loss):
    delta: float

    def __init__(self, reduction: str = "mean", delta: float = 1.0):
        if not isinstance(delta, (float, int)):
            raise TypeError(f"delta must be a float or int, got: {type(delta)}")
        super().__init__(reduction=reduction)
        self.delta = delta


class SoftMarginLoss(_Loss, function=F.soft_margin_loss):
    pass


class KLDivLoss(_Loss, function=F.kl_div, shapes="Any shape, twice; a number. The input holds logarithms."):
    log_target: bool

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
                 log_target: bool = False):
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target


class PoissonNLLLoss(_Loss, function=F.poisson_nll_loss, inputs="log_input, target"):
    log_input: bool
    full: bool
    eps: float

    def __init__(self, log_input: bool = True, full: bool = False, size_average: bool | None = None, eps: float = 1e-8,
                 reduce: bool | None = None, reduction: str = "mean"):
        super().__init__(size_average, reduce, reduction)
        self.log_input, self.full, self.eps = log_input, full, eps


class GaussianNLLLoss(_Loss, function=F.gaussian_nll_loss, inputs="input, target, var",
                      shapes="Any shape, three times; a number."):
    full: bool
    eps: float

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"):
        super().__init__(None, None, reduction)
        self.full, self.eps = full, eps


# ------------------------------------------------------------------------------------------------------- by classes
class NLLLoss(_WeightedLoss, function=F.nll_loss, shapes="(batch, classes) and (batch); a number."):
    ignore_index: int

    def __init__(self, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
                 reduce: bool | None = None, reduction: str = "mean"):
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index


class NLLLoss2d(NLLLoss):
    """Old name of NLLLoss.

    Shapes: (batch, classes, height, width) and (batch, height, width); a number.

    >>> nn.NLLLoss2d()(torch.zeros(1, 4, 2, 2), torch.zeros(1, 2, 2, dtype=torch.long)).shape
    torch.Size([])
    """

    def __init__(self, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
                 reduce: bool | None = None, reduction: str = "mean"):
        warnings.warn("NLLLoss2d has been deprecated. Please use NLLLoss instead as a drop-in replacement and see "
                      "https://pytorch.org/docs/main/nn.html#torch.nn.NLLLoss for more details.", FutureWarning, stacklevel=2)
        super().__init__(weight, size_average, ignore_index, reduce, reduction)


class CrossEntropyLoss(_WeightedLoss, function=F.cross_entropy):
    """nll_loss of log_softmax(x); targets are classes or probabilities of all classes.

    Shapes: (batch, classes) and (batch), or (batch, classes, *) and (batch, *); a number.

    >>> logits = torch.zeros(3, 5, requires_grad=True)
    >>> loss = nn.CrossEntropyLoss()(logits, torch.tensor([1, 0, 4]))
    >>> loss.backward()
    >>> loss.item(), logits.grad.shape
    (1.6094379425048828, torch.Size([3, 5]))
    """

    ignore_index: int
    label_smoothing: float

    def __init__(self, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
                 reduce: bool | None = None, reduction: str = "mean", label_smoothing: float = 0.0):
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing


@dataclasses.dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """How PyTorch cuts linear_cross_entropy into pieces. flambeau accepts the options; its result needs none.

    >>> nn.LinearCrossEntropyOptions(batch_chunk_size=8).batch_chunk_size
    8
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None

    def __post_init__(self):
        if self.acc_policy not in ("auto", "accurate", "balanced", "compact"):
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")
        name, _, factor = (self.chunking_method or "auto").partition(":")
        if name not in ("auto", "aspect_ratio") or (factor and (not factor.isdigit() or int(factor) < 1)):
            raise ValueError(f"invalid chunking_method: {self.chunking_method!r}")


class LinearCrossEntropyLoss(_WeightedLoss):
    """cross_entropy of a linear layer of its own.

    >>> loss = nn.LinearCrossEntropyLoss(4, 10)
    >>> loss(torch.ones(3, 4), torch.tensor([0, 1, 9])).shape
    torch.Size([])
    """

    __constants__ = ["num_classes", "out_features", "reduction", "ignore_index", "label_smoothing"]

    def __init__(self, in_features: int, num_classes: int, *, out_features: tuple[int, ...] = (), bias: bool = False,
                 device: Any = None, dtype: Any = None, reduction: str = "mean", weight: Tensor | None = None,
                 ignore_index: int | None = None, label_smoothing: float = 0.0,
                 options: LinearCrossEntropyOptions | None = None):
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise RuntimeError(f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}")
        if not 0 <= label_smoothing <= 1:
            raise RuntimeError(f"expected label_smoothing to be in range [0, 1], got {label_smoothing}")
        super().__init__(weight, None, None, reduction)

        from .linear import Linear
        self.num_classes, self.out_features = num_classes, tuple(out_features)
        self.ignore_index, self.label_smoothing, self.options = ignore_index, label_smoothing, options
        self.linear = Linear(in_features, num_classes * math.prod(self.out_features), bias=bias, device=device, dtype=dtype)

    def extra_repr(self) -> str:
        return (f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
                f"out_features={self.out_features}, bias={self.linear.bias is not None}, reduction={self.reduction}, "
                f"ignore_index={self.ignore_index}, label_smoothing={self.label_smoothing}, options={self.options}")

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        shape = (self.num_classes, *self.out_features)
        weight, bias = self.linear.weight, self.linear.bias
        return F.linear_cross_entropy(
            input, weight.reshape(*shape, weight.shape[-1]), target,
            linear_bias=None if bias is None else bias.reshape(shape), weight=self.weight, reduction=self.reduction,
            ignore_index=self.ignore_index, label_smoothing=self.label_smoothing, options=self.options)


class BCELoss(_WeightedLoss, function=F.binary_cross_entropy):
    pass


class BCEWithLogitsLoss(_Loss, function=F.binary_cross_entropy_with_logits):
    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean", pos_weight: Tensor | None = None):
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)


# ------------------------------------------------------------------------------------------------------------ margins
class HingeEmbeddingLoss(_Loss, function=F.hinge_embedding_loss):
    margin: float

    def __init__(self, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean"):
        super().__init__(size_average, reduce, reduction)
        self.margin = margin


class MultiLabelMarginLoss(_Loss, function=F.multilabel_margin_loss, shapes="(batch, classes) twice; a number."):
    pass


class MultiLabelSoftMarginLoss(_WeightedLoss, function=F.multilabel_soft_margin_loss,
                               shapes="(batch, classes) twice; a number."):
    pass


class CosineEmbeddingLoss(_Loss, function=F.cosine_embedding_loss, inputs="input1, input2, target",
                          shapes="(batch, features) twice and (batch); a number."):
    margin: float

    def __init__(self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean"):
        super().__init__(size_average, reduce, reduction)
        self.margin = margin


class MarginRankingLoss(_Loss, function=F.margin_ranking_loss, inputs="input1, input2, target",
                        shapes="(batch) three times; a number."):
    margin: float

    def __init__(self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean"):
        super().__init__(size_average, reduce, reduction)
        self.margin = margin


class MultiMarginLoss(_WeightedLoss, function=F.multi_margin_loss, shapes="(batch, classes) and (batch); a number."):
    p: float
    margin: float

    def __init__(self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, size_average: bool | None = None,
                 reduce: bool | None = None, reduction: str = "mean"):
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ValueError("only p == 1 and p == 2 supported")
        if weight is not None and weight.dim() != 1:
            raise ValueError(f"weight must be None or have 1 dimension, got {weight.dim()}")
        self.p, self.margin = p, margin


class TripletMarginLoss(_Loss, function=F.triplet_margin_loss, inputs="anchor, positive, negative",
                        shapes="(batch, features) three times; a number."):
    margin: float
    p: float
    eps: float
    swap: bool

    def __init__(self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False,
                 size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"):
        super().__init__(size_average, reduce, reduction)
        if margin <= 0:
            raise ValueError(f"TripletMarginLoss: expected margin to be greater than 0, got {margin} instead")
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap


class TripletMarginWithDistanceLoss(_Loss, function=F.triplet_margin_with_distance_loss, inputs="anchor, positive, negative",
                                    shapes="(batch, features) three times; a number."):
    margin: float
    swap: bool
    distance_function: Callable

    def __init__(self, *, distance_function: Callable | None = None, margin: float = 1.0, swap: bool = False,
                 reduction: str = "mean"):
        super().__init__(None, None, reduction)
        if margin <= 0:
            raise ValueError(f"TripletMarginWithDistanceLoss: expected margin to be greater than 0, got {margin} instead")
        if distance_function is None:
            from .distance import PairwiseDistance
            distance_function = PairwiseDistance()
        self.distance_function, self.margin, self.swap = distance_function, margin, swap


class CTCLoss(_Loss, function=F.ctc_loss, inputs="log_probs, targets, input_lengths, target_lengths"):
    """The loss of unaligned sequences.

    Shapes: (length, batch, classes) logarithms of probabilities, (batch, target length), two times (batch); a number.

    >>> logits = torch.zeros(6, 1, 3).log_softmax(2)
    >>> nn.CTCLoss()(logits, torch.tensor([[1, 2]]), torch.tensor([6]), torch.tensor([2])).shape
    torch.Size([])
    """

    blank: int
    zero_infinity: bool

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False):
        super().__init__(reduction=reduction)
        self.blank, self.zero_infinity = blank, zero_infinity
