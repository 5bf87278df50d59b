"""Activations. Those that are used most do their own dispatch; the rest go through `functional`."""

from __future__ import annotations

import warnings
from typing import Any

from ...creation.factories import empty_like, zeros_like
from ...ops.core import overrides as _overrides
from ...ops.core.row import FUNCTIONS, _type_word, make_inplace, public, write_out
from ...ops.pointwise import activations as _ops
from ...ops.pointwise.functions import relu as _relu
from ...ops.reduce.scans import log_softmax as _log_softmax
from ...ops.reduce.scans import softmax as _softmax
from ...tensors.dtypes import finfo
from ...tensors.tensor import Tensor

__all__ = ["relu", "relu_", "relu6", "leaky_relu", "leaky_relu_", "elu", "elu_", "selu", "selu_", "celu", "celu_",
           "gelu", "silu", "mish", "hardtanh", "hardtanh_", "hardswish", "hardsigmoid", "hardshrink", "softshrink",
           "tanhshrink", "softplus", "softsign", "sigmoid", "tanh", "logsigmoid", "prelu", "rrelu", "rrelu_", "glu",
           "threshold", "threshold_", "softmax", "log_softmax", "softmin", "gumbel_softmax"]


def functional(function: Any = None, **options: Any) -> Any:
    """A function of this namespace alone; overrides of its arguments are asked first."""
    return public(function, method=False, toplevel=False, out=False, **options)


def functional_with_out(function: Any) -> Any:
    """The same for a function that can write its result into a tensor given as `out`."""
    return public(function, method=False, toplevel=False)


def _inplace(name: str, function: Any) -> Any:
    return make_inplace(name, function)


# ------------------------------------------------------------------------------------------------------------- relu
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0).

    >>> F.relu(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    if _overrides.active:
        done, value = _overrides.dispatch(relu, (input,), {"inplace": inplace})
        if done:
            return value
    return input.relu_() if inplace else _relu(input)


relu_ = Tensor.relu_
threshold_ = FUNCTIONS["threshold_"]
selu_ = FUNCTIONS["selu_"]
celu_ = FUNCTIONS["celu_"]
rrelu_ = FUNCTIONS["rrelu_"]
prelu = FUNCTIONS["prelu"]
hardshrink = FUNCTIONS["hardshrink"]


@functional
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where it is above the threshold, value elsewhere.

    >>> F.threshold(torch.tensor([0.5, 2.0]), 1.0, 0.0)
    tensor([0., 2.])
    """
    return threshold_(input, threshold, value) if inplace else _ops.threshold(input, threshold, value)


@functional
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x, 0), 6).

    >>> F.relu6(torch.tensor([-1.0, 3.0, 8.0]))
    tensor([0., 3., 6.])
    """
    return hardtanh_(input, 0.0, 6.0) if inplace else _ops.hardtanh(input, 0.0, 6.0)


@functional
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """x limited to [min_val, max_val].

    >>> F.hardtanh(torch.tensor([-2.0, 0.5, 2.0]))
    tensor([-1.0000,  0.5000,  1.0000])
    """
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    if input.dtype.name == "bool" or (min_val < 0 and not input.is_signed()):
        raise RuntimeError(f"hardtanh: cannot limit {input.dtype} to [{min_val}, {max_val}]")
    return hardtanh_(input, min_val, max_val) if inplace else _ops.hardtanh(input, min_val, max_val)


hardtanh_ = _inplace("hardtanh", lambda x, min_val=-1.0, max_val=1.0: _ops.hardtanh(x, min_val, max_val))


@functional
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """max(x, 0) + negative_slope * min(x, 0).

    >>> F.leaky_relu(torch.tensor([-1.0, 2.0]), 0.1)
    tensor([-0.1000,  2.0000])
    """
    return leaky_relu_(input, negative_slope) if inplace else _ops.leaky_relu_(input, negative_slope)


leaky_relu_ = _inplace("leaky_relu", lambda x, negative_slope=0.01: (
    _ops.leaky_relu_ if negative_slope >= 0 else _ops.leaky_changed)(x, negative_slope))


@functional
def rrelu(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False,
          inplace: bool = False) -> Tensor:
    """leaky_relu with slopes drawn from [lower, upper] in training and their mean otherwise.

    >>> F.rrelu(torch.tensor([-1.0, 2.0]))
    tensor([-0.2292,  2.0000])
    """
    return rrelu_(input, lower, upper, training) if inplace else _ops.rrelu(input, lower, upper, training)


# -------------------------------------------------------------------------------------------------------- exponential
@functional
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """max(0, x) + min(0, alpha * (exp(x) - 1)).

    >>> F.elu(torch.tensor([-1.0, 1.0]))
    tensor([-0.6321,  1.0000])
    """
    return elu_(input, alpha) if inplace else _ops.elu_row(input, alpha, 1.0, 1.0)


elu_ = _inplace("elu", lambda x, alpha=1.0: (_ops.elu_row if alpha >= 0 else _ops.elu_changed)(x, alpha, 1.0, 1.0))


@functional
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """elu scaled so that mean and variance are kept.

    >>> F.selu(torch.tensor([-1.0, 1.0]))
    tensor([-1.1113,  1.0507])
    """
    return selu_(input) if inplace else _ops.selu(input)


@functional
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)).

    >>> F.celu(torch.tensor([-1.0, 1.0]))
    tensor([-0.6321,  1.0000])
    """
    return celu_(input, alpha) if inplace else _ops.celu(input, alpha)


def gelu(input: Tensor, *, approximate: str = "none", out: Tensor | None = None) -> Tensor:
    """x times the probability that a normal number is below x; approximate="tanh": by a formula with tanh.

    >>> F.gelu(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1587,  0.0000,  0.8413])
    >>> F.gelu(torch.tensor([1.0]), approximate="tanh")
    tensor([0.8412])
    """
    if _overrides.active:
        given = {"approximate": approximate} if out is None else {"approximate": approximate, "out": out}
        done, value = _overrides.dispatch(gelu, (input,), given)
        if done:
            return value
    if approximate != "none" and approximate != "tanh":
        raise RuntimeError("approximate argument must be either none or tanh.")
    made = _ops.gelu_(input, approximate)
    return made if out is None else write_out("gelu", out, made, (input,), {})


@functional
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x).

    >>> F.silu(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 0.7311])
    """
    return _silu_inplace(input) if inplace else _ops.silu_(input)


@functional
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * tanh(softplus(x)).

    >>> F.mish(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 0.8651])
    """
    return _mish_inplace(input) if inplace else _ops.mish_(input)


@functional_with_out
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above the threshold.

    >>> F.softplus(torch.tensor([0.0, 1.0]))
    tensor([0.6931, 1.3133])
    """
    return _ops.softplus_(input, beta, threshold)


@functional_with_out
def logsigmoid(input: Tensor) -> Tensor:
    """log(1 / (1 + exp(-x))).

    >>> F.logsigmoid(torch.tensor([0.0]))
    tensor([-0.6931])
    """
    return _ops.log_sigmoid_(input)


@functional()
def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x)).

    >>> F.sigmoid(torch.tensor([0.0]))
    tensor([0.5000])
    """
    return input.sigmoid()


@functional()
def tanh(input: Tensor) -> Tensor:
    """(exp(x) - exp(-x)) / (exp(x) + exp(-x)).

    >>> F.tanh(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 0.7616])
    """
    return input.tanh()


# --------------------------------------------------------------------------------------------------------- piecewise
@functional
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * relu6(x + 3) / 6.

    >>> F.hardswish(torch.tensor([-4.0, 1.0, 4.0]))
    tensor([-0.0000, 0.6667, 4.0000])
    """
    return _hardswish_inplace(input) if inplace else _ops.hardswish_(input)


@functional
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """relu6(x + 3) / 6.

    >>> F.hardsigmoid(torch.tensor([-4.0, 0.0, 4.0]))
    tensor([0.0000, 0.5000, 1.0000])
    """
    return _hardsigmoid_inplace(input) if inplace else _ops.hardsigmoid_(input)


_silu_inplace = _inplace("silu", _ops.silu_)
_mish_inplace = _inplace("mish", _ops.mish_)
_hardswish_inplace = _inplace("hardswish", _ops.hardswish_)
_hardsigmoid_inplace = _inplace("hardsigmoid", _ops.hardsigmoid_)


@functional_with_out
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards zero by lambd; zero where |x| <= lambd.

    >>> F.softshrink(torch.tensor([-1.0, 0.2, 1.0]))
    tensor([-0.5000,  0.0000,  0.5000])
    """
    if lambd < 0:
        raise RuntimeError(f"lambda must be in range [0, {finfo(input.dtype).max:.6g}] for input dtype "
                           f"{_type_word(input.dtype)}, but found {lambd}")
    return _ops.softshrink_row(input, lambd)


@functional
def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x).

    >>> F.tanhshrink(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 0.2384])
    """
    return input - input.tanh()


@functional
def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|).

    >>> F.softsign(torch.tensor([-1.0, 1.0]))
    tensor([-0.5000,  0.5000])
    """
    return input / (input.abs() + 1)


@functional
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along dim times the sigmoid of the second.

    >>> F.glu(torch.tensor([1.0, 2.0, 0.0, 0.0]))
    tensor([0.5000, 1.0000])
    """
    if input.dim() == 0:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    if not input.is_floating_point():
        raise NotImplementedError(f"\"glu_cpu\" not implemented for '{_type_word(input.dtype)}'")
    return _ops.glu(input, dim)


# ----------------------------------------------------------------------------------------------------------- softmax
def _get_softmax_dim(name: str, ndim: int, stacklevel: int) -> int:
    warnings.warn(f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an "
                  "argument.", stacklevel=stacklevel)
    return 0 if ndim in (0, 1, 3) else 1


@functional
def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(x) / sum(exp(x)) along dim.

    >>> F.softmax(torch.tensor([1.0, 2.0, 3.0]), dim=0)
    tensor([0.0900, 0.2447, 0.6652])
    """
    if dim is None:
        dim = _get_softmax_dim("softmax", input.dim(), _stacklevel + 1)
    return FUNCTIONS["softmax"](input, dim) if dtype is None else _softmax(input, dim, dtype=dtype)


@functional
def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """log(softmax(x)) along dim.

    >>> F.log_softmax(torch.tensor([0.0, 0.0]), dim=0)
    tensor([-0.6931, -0.6931])
    """
    if dim is None:
        dim = _get_softmax_dim("log_softmax", input.dim(), _stacklevel + 1)
    return FUNCTIONS["log_softmax"](input, dim) if dtype is None else _log_softmax(input, dim, dtype=dtype)


@functional
def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """softmax(-x) along dim.

    >>> F.softmin(torch.tensor([1.0, 2.0, 3.0]), dim=0)
    tensor([0.6652, 0.2447, 0.0900])
    """
    if dim is None:
        dim = _get_softmax_dim("softmin", input.dim(), _stacklevel + 1)
    return _softmax(-input, dim, dtype=dtype)


@functional
def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A sample of the Gumbel-softmax distribution; hard: one-hot, with the gradient of the soft one.

    >>> F.gumbel_softmax(torch.zeros(1, 4), hard=True).sum()
    tensor(1.)
    """
    if eps != 1e-10:
        warnings.warn("`eps` parameter is deprecated and has no effect.", stacklevel=2)
    noise = -empty_like(logits.detach()).exponential_().log()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    return zeros_like(soft.detach()).scatter_(dim, index, 1.0) - soft.detach() + soft
