"""Losses that have a kernel of their own; those that PyTorch composes are composed in nn/functional/losses.py.

`reduction` is PyTorch's number: 0 for none, 1 for mean, 2 for sum. As with activations each derivative has a fused form
and, for recorded backward passes, one made of tensor operations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...autograd.modes import no_grad
from ...autograd.node import SavedOutput
from ...autograd.state import CAPTURE, FOLLOW, FORWARD_AD, NO_GRAD, state
from ...autograd.views import edge_of
from ...backends import registry, values
from ...backends.cpu.layers import ctc as _ctc  # noqa: F401  (enters its kernels into the table)
from ...backends.cpu.layers import losses as _kernels  # noqa: F401  (likewise)
from ...backends.cpu.table import KERNELS
from ...creation.factories import ones, tensor
from ...tensors import dtypes as _dtypes
from ...tensors.parameter import Parameter
from ...tensors.shapes import broadcast_shapes
from ...tensors.tensor import Tensor
from .. import rules
from ..core.row import FUNCTIONS, Row, check_on_cpu, public, run, taking, unpack_output, wrapped
from ..pointwise.activations import softplus_
from ..pointwise.families import Pointwise, broadcast_error, promoted
from ..pointwise.functions import sigmoid
from ..reduce.scans import _log_softmax, _log_softmax_grad
from ..rules import layers

ndarray = registry.CPU_ARRAY


def _spread(grad: Tensor, like: Tensor, reduction: int) -> Tensor:
    """The gradient per element of a loss that was reduced."""
    return grad if reduction != 1 else grad / max(like.numel(), 1) if like.numel() else grad


# ------------------------------------------------------------------------------------------------ pairs of one shape
def _pair(name: str, numbers: str, slope: Callable, c: str, both: bool = True, **options: Any) -> Row:
    """A loss of (self, target, reduction, number); slope: its derivative per element, in tensor operations and in C."""
    names = f"grad self target reduction {numbers}"
    Row(f"{name}_backward", names, shape=layers.pairwise_backward, batch=("pair_backward", 0), slopes=(c, 0))

    def formula(grad: Tensor, self: Tensor, target: Tensor, reduction: int, *number: Any) -> Tensor:
        return slope(self, target, *number) * _spread(grad, self, reduction)

    formulas = {"self": taking(names, formula)}
    fused: dict[str, Any] = {"self": f"{name}_backward({', '.join(names.split())})"}
    if both:
        formulas["target"] = taking(names, lambda *given: -formula(*given))
        fused = {"self target": taking(f"needs {names}", functools.partial(_both, f"{name}_backward"))}
    return Row(name, f"self target reduction {numbers}", shape=layers.pairwise, batch=("pair", 0), backward=formulas,
               fused=fused, **options)


def _both(kernel: str, needs: tuple[bool, bool], grad: Tensor, self: Tensor, target: Tensor, *numbers: Any) -> Any:
    made = wrapped(run(kernel, (grad._array, self._array, target._array, *numbers)))
    return made, -made if needs[1] else None


# fmt: off
# Losses with logarithms have no `terms`: a loop is no faster than their own kernel.
_FAR, _NEAR, _CLIPPED = "fabs(a - b)", "atmost(fabs(a - b), c)", "atmost(atleast(a - b, -c), c)"
mse_row = _pair("mse_loss", "", lambda x, y: 2 * (x - y), "2.0 * (a - b)", terms=("(a - b) * (a - b)", 0))
huber_row = _pair("huber_loss", "delta", lambda x, y, delta: (x - y).clamp(-delta, delta), _CLIPPED,
                  terms=(f"{_NEAR} * ({_FAR} - {_NEAR} / 2.0)", 0))
smooth_l1_row = _pair("smooth_l1_loss", "beta", lambda x, y, beta: (x - y).clamp(-beta, beta) / beta, f"{_CLIPPED} / c",
                      node="SmoothL1LossBackward0", terms=(f"{_NEAR} * ({_FAR} - {_NEAR} / 2.0) / c", 0))
soft_margin_row = _pair("soft_margin_loss", "", lambda x, y: -y * sigmoid(-y * x), "-b * sigmoid(-a * b)", both=False)
# fmt: on


def pair(r: Row, input: Tensor, target: Tensor, *rest: Any) -> Tensor:
    """A row over two tensors that are brought to one dtype and shape first."""
    if input._array.dtype is not target._array.dtype:
        common = promoted((input, target))
        input, target = input.to(common), target.to(common)
    if input._array.dtype.kind in "biu":
        from ..core.row import _type_word
        raise NotImplementedError(f'"{r.name}" not implemented for \'{_type_word(input.dtype)}\'')
    if input._array.shape != target._array.shape:
        try:
            shape = broadcast_shapes(input._array.shape, target._array.shape)
        except RuntimeError:
            raise broadcast_error(input._array.shape, target._array.shape) from None
        input, target = input.expand(shape), target.expand(shape)
    return r(input, target, *rest)


# --------------------------------------------------------------------------------------------- binary cross entropy
Row("binary_cross_entropy_backward", "grad self target weight reduction", shape=layers.binary_backward,
    batch=("pair_backward", 1), slopes=("(a - b) / atleast((1.0 - a) * a, 1e-12)", 1))
Row("bce_with_logits_backward", "grad self target weight pos_weight reduction", shape=layers.binary_backward,
    batch=("pair_backward", 2), slopes=("sigmoid(a) - b", 2))


def _times(value: Tensor, weight: Tensor | None) -> Tensor:
    return value if weight is None else value * weight


def _bce_self(grad, self, target, weight, reduction):
    slope = (self - target) / ((1 - self) * self).clamp(min=1e-12)
    return _times(slope, weight) * _spread(grad, self, reduction)


def _logits_self(grad, self, target, weight, pos_weight, reduction):
    if pos_weight is None:
        slope = sigmoid(self) - target
    else:
        positive = pos_weight * target
        slope = (positive + 1 - target) * sigmoid(self) - positive
    return _times(slope, weight) * _spread(grad, self, reduction)


def _logits_target(grad, self, weight, pos_weight, reduction):
    slope = -self if pos_weight is None else (pos_weight - 1) * softplus_(-self, 1.0, 20.0) - self
    return _times(slope, weight) * _spread(grad, self, reduction)


bce_row = Row("binary_cross_entropy", "self target weight reduction", takes="f", safe=False, batch=("pair", 1),
              shape=layers.binary, backward=dict(
    self=_bce_self,
    target=lambda grad, self, target, weight, reduction: _times((-self).log1p() - self.log(), weight) * _spread(
        grad, self, reduction)),
    fused=dict(self="binary_cross_entropy_backward(grad, self, target, weight, reduction)"))
bce_logits_row = Row(
    "binary_cross_entropy_with_logits", "self target weight pos_weight reduction", batch=("pair", 2), kernel="bce_with_logits",
    takes="f", shape=layers.binary,
    backward=dict(self=_logits_self, target=_logits_target),
    fused=dict(self="bce_with_logits_backward(grad, self, target, weight, pos_weight, reduction)"))


# -------------------------------------------------------------------------------------------------- Kullback-Leibler
_kl = Pointwise("kl_term", "self target", c="(b == 0 ? b : b * log(b)) - b * a", node="SubBackward0",
                backward=dict(self=lambda grad, target: -(grad * target)))
_kl_log = Pointwise("kl_log_term", "self target", c="exp(b) * (b - a)", node="MulBackward0",
                    backward=dict(self=lambda grad, target: -(grad * target.exp())))


def kl_terms(input: Tensor, target: Tensor, log_target: bool) -> Tensor:
    """target * (log(target) - input); in one pass where the target is a constant, as in training it mostly is."""
    kind = input._array.dtype
    if kind is target._array.dtype and kind.char in "fd" and not target.requires_grad and not state.mode & FORWARD_AD:
        return (_kl_log if log_target else _kl)(input, target)
    return target.exp() * (target - input) if log_target else target.xlogy(target) - target * input


# --------------------------------------------------------------------------------------------------------- nll_loss
_nll_grad = Row("nll_loss_backward", "grad self_shape target weight reduction ignore_index total", shape=rules.of_shape(1),
                backward=dict(
    grad=lambda grad, self_shape, target, weight, reduction, ignore_index, total: _picked(
        grad, target, weight, reduction, ignore_index, total)))


def _picked(grad, target, weight, reduction, ignore_index, total):
    """What nll_loss_backward does to a gradient is linear: its own derivative picks the elements again."""
    loss, _ = nll_row(grad, target, weight, 0 if reduction == 0 else 2, ignore_index)
    return loss / total if reduction == 1 else loss


def _nll_self(grad, self_shape, target, weight, reduction, ignore_index, result1):
    return _nll_grad(grad, tuple(self_shape), target, weight, reduction, ignore_index, result1.detach())


nll_row = Row("nll_loss", "self target weight reduction ignore_index",
              safe=values.classes(lambda x: x.shape[1 if x.ndim > 1 else 0], 4), shape=layers.nll,
              constant=(1,), backward=dict(self=_nll_self))
nll2d_row = Row("nll_loss2d", "self target weight reduction ignore_index", kernel="nll_loss", constant=(1,),
                node="NllLoss2DBackward0", backward=dict(self=_nll_self))


_smoothed_grad = Row("smoothed_nll_backward", "grad self_shape target weight reduction ignore_index total smoothing",
                     shape=rules.of_shape(1),
                     backward=dict(grad=lambda grad, self_shape, target, weight, reduction, ignore_index, total, smoothing:
                                   _picked_smoothly(grad, target, weight, reduction, ignore_index, total, smoothing)))


def _picked_smoothly(grad, target, weight, reduction, ignore_index, total, smoothing):
    loss, _ = smoothed_row(grad, target, weight, 0 if reduction == 0 else 2, ignore_index, smoothing)
    return loss / total if reduction == 1 else loss


smoothed_row = Row(
    "smoothed_nll", "self target weight reduction ignore_index smoothing", shape=layers.nll, constant=(1,), node="AddBackward0",
    backward=dict(
        self=lambda grad, self_shape, target, weight, reduction, ignore_index, smoothing, result1: _smoothed_grad(
            grad, tuple(self_shape), target, weight, reduction, ignore_index, result1.detach(), smoothing)))


def smooths(x: Tensor, weight: Tensor | None) -> bool:
    """Whether smoothed_row serves. (A program that is captured gets the parts: those it can fuse.)"""
    a = x._array
    return type(a) is ndarray and a.ndim > 1 and a.dtype.char in "fd" and a.size > 0 and not state.mode & FORWARD_AD and (
        weight is None or not weight.requires_grad)


# ---------------------------------------------------------------------------------------------------- cross entropy
# cross_entropy of (N, C) logits in one node: log_softmax and nll_loss, whose two derivatives fuse into one. To a user it looks
# like PyTorch's two nodes; and where the backward pass is recorded, it works like them. The kernel's further results are
# exp(x - maximum), one over their sums, and what the sum was divided by.
def _cross_entropy_self(grad, self_edge, target, weight, reduction, ignore_index, result1, result2, result3):
    log_softmax = _log_softmax_node(self_edge, result1, result2)
    output = unpack_output(log_softmax, log_softmax.saved[0])
    inner = _nll_grad(grad, tuple(output.shape), target, weight, reduction, ignore_index, result3.detach())
    return _log_softmax_grad(inner, output, 1)


def _log_softmax_node(edge: Any, powers: Tensor, inverse: Tensor) -> Any:
    node = _log_softmax.node()
    node.next = (edge, None, None)
    with no_grad():  # where they are too small for the powers, their exp is 0 anyway
        output = (powers * inverse.unsqueeze(1)).log()
    node.shape, node.dtype = output._array.shape, output._array.dtype
    node.saved = (SavedOutput(output, 0), 1)
    return node


def _shown(self: Any) -> Any:
    made = [self._slot_value(name) for name in ("result1", "result2")] if self.saved else [_ones(0, 0), _ones(0)]
    return ((_log_softmax_node(self.next[0], *made), 0),)


def _ones(*shape: int) -> Tensor:
    return ones(*shape)


_cross_entropy = Row(
    "cross_entropy", "self target! weight reduction ignore_index keep", shape=layers.cross_entropy,
    safe=values.classes(lambda x: x.shape[1], 4), constant=(1, 2, 3), node="NllLossBackward0",
    backward=dict(self=_cross_entropy_self),
    fused=dict(self="cross_entropy_backward(grad, result1, result2, target, weight, result3, ignore_index)"))
_cross_entropy.node.next_functions = property(_shown)


def _in_memory(x: Any, y: Any) -> bool:
    """Whether both arrays are in the memory of one device that has the kernel."""
    return type(x) is ndarray is type(y) or (type(x) is type(y) and registry.common([x, y]).NAME in ("cpu", "cuda"))


def fused_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None, reduction: int,
                        ignore_index: int) -> Tensor | None:
    """cross_entropy of plain (N, C) logits and (N,) classes; None when they are not that plain."""
    mode = state.mode
    kind = input.__class__
    x = input._array
    if mode & ~(CAPTURE | FOLLOW) > 1 or not (kind is Tensor or kind is Parameter) or x.ndim != 2 or x.dtype.char not in "fd":
        return None
    if target.__class__ is not Tensor:
        return None
    y = target._array
    if y.ndim != 1 or y.dtype.char != "l" or not _in_memory(x, y) or y.shape[0] != x.shape[0] or not x.size:
        return None
    w = None
    if weight is not None:
        if weight.__class__ is not Tensor or weight.requires_grad:
            return None
        w = weight._array
        if w.dtype is not x.dtype or w.shape != x.shape[1:] or not _in_memory(x, w):
            return None
    keep = not mode & NO_GRAD and (input._node if input._counter is None else edge_of(input)) is not None
    given = x, y, w, reduction, ignore_index, keep
    made = KERNELS["cross_entropy"](*given) if mode < 2 and type(x) is ndarray else (
        registry.backend_of(x).call("cross_entropy", given))
    return _cross_entropy.first(mode & NO_GRAD, made, input, target, weight, reduction, ignore_index, keep)


# ---------------------------------------------------------------------------------------------------------- margins
_multi_grad = Row("multi_margin_loss_backward", "grad self target p margin weight reduction", shape=rules.like_second)
_labels_grad = Row("multilabel_margin_loss_backward", "grad self target reduction", shape=rules.like_second)
multi_margin_row = Row("multi_margin_loss", "self target p margin weight reduction", takes="F", shape=layers.margins,
                       backward=dict(
    self=lambda grad, self, target, p, margin, weight, reduction: _multi_grad(
        grad, self, target, p, margin, weight, reduction)))
multilabel_margin_row = Row("multilabel_margin_loss", "self target reduction", takes="F", shape=layers.label_margins,
                            constant=(1,), backward=dict(
    self=lambda grad, self, target, reduction: _labels_grad(grad, self, target, reduction)))

# -------------------------------------------------------------------------------------------------------------- ctc
_ctc_grad = Row("ctc_loss_backward",
                "grad log_probs targets input_lengths target_lengths loss alpha blank zero_infinity", shape=rules.like_second)
ctc_row = Row("ctc_loss", "log_probs targets input_lengths target_lengths blank zero_infinity", shape=layers.ctc, constant=(1,),
              backward=dict(
                  log_probs=lambda grad, log_probs, targets, input_lengths, target_lengths, blank, zero_infinity,
                  result0, result1: _ctc_grad(grad, log_probs, targets, input_lengths, target_lengths, result0, result1,
                                              blank, zero_infinity)))


def lengths_of(value: Any, like: Tensor, name: str) -> Tensor:
    """Lengths given as a tensor, list or tuple, as an int64 tensor."""
    made = value.to(_dtypes.int64) if isinstance(value, Tensor) else tensor(
        [int(v) for v in value] if isinstance(value, (list, tuple)) else [int(value)], dtype=_dtypes.int64)
    if isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()):
        raise RuntimeError(f"{name} must be integral")
    return made.reshape(-1)


@public(method=False, out=False, autocast="float32")
def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0,
             reduction: int = 1, zero_infinity: bool = False) -> Tensor:
    """The CTC loss; reduction by number (nn.functional.ctc_loss takes its name).

    >>> log_probs = torch.zeros(4, 1, 3).log_softmax(2)
    >>> torch.ctc_loss(log_probs, torch.tensor([[1, 2]]), torch.tensor([4]), torch.tensor([2]))
    tensor(0.8432)
    """
    inputs, lengths = lengths_of(input_lengths, log_probs, "input_lengths"), lengths_of(
        target_lengths, log_probs, "target_lengths")
    batched = log_probs.ndim == 3
    x = log_probs if batched else log_probs.unsqueeze(1)
    if x.ndim != 3:
        raise RuntimeError(f"ctc_loss: log_probs must have 2 or 3 dimensions, got {log_probs.ndim}")
    check_on_cpu("ctc_loss_cpu", x, "F")
    _check_ctc(x, targets, inputs, lengths, blank)
    inputs, lengths = inputs.to(x.device), lengths.to(x.device)
    if x.is_meta:
        inputs, lengths = inputs.to("meta"), lengths.to("meta")
    if not batched and targets.ndim == 2:
        targets = targets.reshape(-1)
    losses, _ = ctc_row(x, targets.to(_dtypes.int64), inputs, lengths, blank, zero_infinity)
    if zero_infinity:
        losses = FUNCTIONS["where"](losses == float("inf"), losses.new_zeros(()), losses)
    if reduction == 1:
        return (losses / lengths.clamp(min=1).to(losses.dtype)).mean()
    if reduction == 2:
        return losses.sum()
    return losses if batched else losses.squeeze(0)


def _check_ctc(x: Tensor, targets: Tensor, inputs: Tensor, lengths: Tensor, blank: int) -> None:
    steps, batch, classes = x.shape
    if not x.is_floating_point():
        raise RuntimeError(f"ctc_loss: expected floating log_probs, got {x.dtype}")
    if targets.is_floating_point() or targets.is_complex():
        raise RuntimeError(f"ctc_loss: expected integer targets, got {targets.dtype}")
    if not 0 <= blank < classes:
        raise RuntimeError(f"blank must be in label range: got {blank} with {classes} labels")
    if inputs.numel() != batch:
        raise RuntimeError(f"input_lengths must be of size batch_size {batch}, got {inputs.numel()}")
    if lengths.numel() != batch:
        raise RuntimeError(f"target_lengths must be of size batch_size {batch}, got {lengths.numel()}")
    if inputs.is_meta or lengths.is_meta:
        return
    for what, given, most in (("input", inputs.tolist(), steps), ("target", lengths.tolist(), None)):
        for b, n in enumerate(given):
            if n < 0 or (most is not None and n > most):
                raise RuntimeError(f"Expected {what}_lengths to have value at most {most} and at least 0, but got "
                                   f"value {n} for batch item {b} (while checking arguments for ctc_loss_cpu)")
    if targets.ndim == 1 and int(lengths.sum()) != targets.numel() and batch:
        raise RuntimeError(f"Expected tensor to have size {int(lengths.sum())} at dimension 0, but got size "
                           f"{targets.numel()} for argument #2 'targets' (while checking arguments for ctc_loss_cpu)")
    if targets.ndim == 2 and batch and (targets.shape[0] != batch or targets.shape[1] < max(lengths.tolist())):
        raise RuntimeError(f"Expected tensor to have size at least {max(lengths.tolist())} at dimension 1, but got "
                           f"size {list(targets.shape)} for argument #2 'targets' (while checking arguments for "
                           "ctc_loss_cpu)")


