"""linear and bilinear: the matrix product, its bias and the transposition of the weight in one node."""

from __future__ import annotations

from typing import Any

from ...autograd.node import shown_edge
from ...autograd.state import FOLLOW, FOLLOWED, NO_GRAD, state
from ...backends import registry
from ...backends.cpu.layers import linear as _kernels
from ...backends.dtypes import COMPLEX
from ...tensors.parameter import Parameter
from ...tensors.tensor import Tensor, wrap
from ..core import overrides as _overrides
from ..core.row import CPU_ONLY, ROWS, Row, autocast_as, public, wrapped, write_out
from ..linalg.matmul import addmm, cannot_multiply, matmul
from ..rules import products

ndarray = registry.CPU_ARRAY
_FOLLOWABLE, _EAGER = registry.FOLLOWABLE, registry.EAGER


def _flat(x: Tensor) -> Tensor:
    return x if x.ndim == 2 else x.reshape(-1, x.shape[-1])


def _fused(grad, needs, mat1=None, weight=None):
    """All three gradients with one look at the arrays; in a call that is followed what the formulas do, without tensors."""
    g, (for_bias, for_input, for_weight) = grad._array, needs
    x, w = mat1._array if for_weight else None, weight._array if for_input else None
    if state.mode == NO_GRAD and type(g) is ndarray:
        return [wrapped(m) for m in _kernels.linear_backward(g, x, w, for_bias)]
    if state.mode == NO_GRAD and type(g) in _EAGER:
        return _gradients(_EAGER[type(g)], g, x, w, for_bias) if g.dtype.kind not in COMPLEX else None
    if state.mode != FOLLOW | NO_GRAD or type(g) not in _FOLLOWABLE:
        return None
    return _gradients(lambda name, *args: state.follower.call(name, args), g, x, w, for_bias)


def _gradients(call: Any, g: Any, x: Any, w: Any, for_bias: bool) -> list[Tensor | None]:
    """For the bias, for x if there is w, for w if there is x."""
    flat = _rows(g)
    made: list[Any] = [None, None, None]
    if for_bias:
        made[0] = wrap(call("sum", flat, (0,), False, None))
    if w is not None:
        inputs = call("mm", flat, w)
        made[1] = wrap(inputs if g.ndim == 2 else inputs.reshape(*g.shape[:-1], w.shape[1]))
    if x is not None:
        made[2] = wrap(call("mm", flat.T, _rows(x)))
    return made


_FORMULAS = dict(
    bias=lambda grad: _flat(grad).sum(0),
    mat1=lambda grad, weight: matmul(grad, weight.conj()),
    weight=lambda grad, mat1: matmul(_flat(grad).t(), _flat(mat1).conj()))
# What PyTorch calls the node of each case: a matrix or more dimensions, with and without a bias.
_ROWS = {(matrix, has_bias): Row(
             f"linear_{i}", "bias? mat1 weight", kernel="linear", shape=products.affine, node=node, backward=_FORMULAS,
             fused={"bias mat1 weight": _fused})
         for i, (matrix, has_bias, node) in enumerate([
             (True, True, "AddmmBackward0"), (True, False, "MmBackward0"),
             (False, True, "ViewBackward0"), (False, False, "UnsafeViewBackward0")])}


def _rows(x: Any) -> Any:
    """An array as a matrix, in a call that is followed or on another device."""
    if x.ndim == 2:
        return x
    shape = x.size // max(x.shape[-1], 1), x.shape[-1]
    if type(x) in _EAGER:
        return (x if x.flags.c_contiguous else _EAGER[type(x)]("copied", x)).reshape(shape)
    return x.reshape(shape) if type(x) is not ndarray or x.flags.c_contiguous else registry.backend_of(x).reshaped(x, shape)


def _transposition(edge: Any) -> Any:
    """PyTorch's node for weight.t(), shown to who walks the graph."""
    if edge is None:
        return None
    node = ROWS["t"].node()
    node.next = (edge,)
    return node


def _shown(self: Any) -> Any:
    bias, mat1, weight = self.next
    pairs = [shown_edge(bias), shown_edge(mat1)]
    pairs.append((_transposition(weight), 0))
    return tuple(pairs if type(self).__name__ in ("AddmmBackward0", "ViewBackward0") else pairs[1:])


for _row in _ROWS.values():
    _row.node.next_functions = property(_shown)
_compute, _AFFINE = _kernels.linear, _ROWS[True, True]


@autocast_as("lower")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias. Plain float tensors go straight to BLAS."""
    if out is not None:
        return _into(out, input, weight, bias)
    mode = state.mode
    kind, kind_of = input.__class__, weight.__class__
    if (mode < 2 or mode in FOLLOWED) and (kind is Tensor or kind is Parameter) and (
            kind_of is Parameter or kind_of is Tensor):
        x, w = input._array, weight._array
        native = x.dtype
        if type(x) in _EAGER and mode < 2:
            if type(w) is type(x) and w.ndim == 2 and x.ndim > 1 and native is w.dtype and x.shape[-1] == w.shape[1] and (
                    native.kind != "b" and (bias is None or _fits(bias, w))):
                made = _EAGER[type(x)]("linear", None if bias is None else bias._array, x, w)
                return _ROWS[x.ndim == 2, bias is not None].tensor(mode, made, bias, input, weight)
        elif w.ndim == 2 and x.ndim > 1 and native is w.dtype and native.char in "fd" and x.shape[-1] == w.shape[1] and (
                type(x) in (known := CPU_ONLY if mode < 2 else _FOLLOWABLE) and type(w) in known and (mode < 2 or x.size)):
            b = None if bias is None else bias._array
            if b is not None and (b.dtype is not native or b.shape != w.shape[:1] or type(b) not in known or (
                    bias.__class__ is not Parameter and bias.__class__ is not Tensor)):
                return _general(input, weight, bias)
            if mode < 2:
                made = _compute(b, x, w)
            else:
                mode &= NO_GRAD
                made = state.follower.call("linear", (b, x, w))
            row = _AFFINE if b is not None and x.ndim == 2 else _ROWS[x.ndim == 2, b is not None]
            return row.tensor(mode, made, bias, input, weight)
    return _general(input, weight, bias)


def _fits(bias: Tensor, w: Any) -> bool:
    """Whether a bias is one for the outputs of a weight, and nothing out of the ordinary."""
    b = bias._array
    return type(b) is type(w) and b.dtype is w.dtype and b.shape == w.shape[:1] and (
        bias.__class__ is Parameter or bias.__class__ is Tensor)


def _into(out: Tensor, *args: Any) -> Tensor:
    if _overrides.active:
        done, value = _overrides.dispatch(linear, args, {"out": out})
        if done:
            return value
    return write_out("linear", out, linear(*args), args, {})


def _general(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if _overrides.active:
        done, value = _overrides.dispatch(linear, (input, weight, bias), {})
        if done:
            return value
    for position, (name, value) in enumerate((("input", input), ("weight", weight)), 1):
        if not isinstance(value, Tensor):
            raise TypeError(f"linear(): argument '{name}' (position {position}) must be Tensor, not {type(value).__name__}")
    if input.device != weight.device and input.ndim and weight.ndim:
        raise registry.two_devices([input._array, weight._array])
    if weight.ndim not in (1, 2):
        raise RuntimeError(f"linear: expected a weight of 1 or 2 dimensions, got shape {list(weight.shape)}")
    if bias is None:
        return matmul(input, weight.t())
    if bias.ndim and bias.shape[-1] not in (1, weight.shape[0]):
        raise RuntimeError(f"linear: the bias of shape {list(bias.shape)} does not fit the {weight.shape[0]} outputs of a "
                           f"weight of shape {list(weight.shape)}")
    if input.ndim == 2 and weight.ndim == 2 and bias.ndim <= 2:
        return addmm(bias, input, weight.t())
    if input.ndim > 2 and weight.ndim == 2 and bias.ndim == 1 and input.is_contiguous():
        if input.shape[-1] != weight.shape[1]:
            rows = input.numel() // max(input.shape[-1], 1)
            raise cannot_multiply(rows, input.shape[-1], weight.shape[1], weight.shape[0])
        return addmm(bias, input.reshape(-1, input.shape[-1]), weight.t()).view(*input.shape[:-1], weight.shape[0])
    return matmul(input, weight.t()) + bias


@public(method=False, out=False)
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x1 . W[k] . x2 + bias[k] for each output k."""
    if input1.ndim != input2.ndim:
        raise RuntimeError(f"bilinear(): input dimensions do not match: got {input1.ndim} and {input2.ndim}")
    if input1.shape[:-1] != input2.shape[:-1]:
        raise RuntimeError(f"bilinear(): input batch dimensions do not match: got {list(input1.shape)} and "
                           f"{list(input2.shape)}")
    for name, x, i in (("input1", input1, 1), ("input2", input2, 2)):
        if x.shape[-1] != weight.shape[i]:
            raise RuntimeError(f"bilinear(): {name} size does not match weight size: got {x.shape[-1]} but expected "
                               f"{weight.shape[i]}")
    if bias is not None and bias.shape[0] != weight.shape[0]:
        raise RuntimeError(f"bilinear(): bias size does not match weight size: got {bias.shape[0]} but expected "
                           f"{weight.shape[0]}")
    outputs, first, second = weight.shape
    left, right = input1.reshape(-1, first), input2.reshape(-1, second)
    # (n, i) x (i, k * j) -> (n, k, j), then its product with x2 along j.
    halfway = matmul(left, weight.permute(1, 0, 2).reshape(first, outputs * second)).view(-1, outputs, second)
    made = matmul(halfway, right.unsqueeze(-1)).squeeze(-1).view(*input1.shape[:-1], outputs)
    return made if bias is None else made + bias
