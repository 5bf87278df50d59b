"""Initial values of parameters. Everything works in place, records nothing, and draws PyTorch's numbers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

from ..autograd.modes import no_grad
from ..ops.core.overrides import wrap_torch_function
from ..ops.random.factories import randperm
from ..tensors.tensor import Tensor

__all__ = ["calculate_gain", "uniform_", "normal_", "trunc_normal_", "constant_", "ones_", "zeros_", "eye_", "dirac_",
           "xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_", "orthogonal_", "sparse_",
           "uniform", "normal", "constant", "eye", "dirac", "xavier_uniform", "xavier_normal", "kaiming_uniform",
           "kaiming_normal", "orthogonal", "sparse"]

_LINEAR = ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
           "sigmoid")


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which a nonlinearity's layer should scale its weights (param: leaky_relu's negative slope).

    >>> nn.init.calculate_gain("tanh")
    1.6666666666666667
    """
    if nonlinearity in _LINEAR:
        return 1
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "selu":
        return 3.0 / 4
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


def _draw(method: str, tensor: Tensor, *args: Any, generator: Any = None) -> Tensor:
    with no_grad():
        return getattr(tensor, method)(*args, generator=generator)


_overridable = wrap_torch_function(lambda tensor, *args, **kwargs: (tensor,))


@_overridable
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Values from the uniform distribution on [a, b).

    >>> nn.init.uniform_(torch.empty(2))
    tensor([0.4963, 0.7682])
    """
    return _draw("uniform_", tensor, a, b, generator=generator)


@_overridable
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Values from the normal distribution.

    >>> nn.init.normal_(torch.empty(3), std=0.02)
    tensor([ 0.0308, -0.0059, -0.0436])
    """
    return _draw("normal_", tensor, mean, std, generator=generator)


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0,
                  generator: Any = None) -> Tensor:
    """Values from the normal distribution cut off at a and b, by drawing again what does not fit.

    >>> nn.init.trunc_normal_(torch.empty(100)).abs().max() <= 2
    tensor(True)
    """
    if tensor.is_meta:
        return tensor
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn("mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be "
                      "incorrect.", stacklevel=2)
    below = lambda x: (1.0 + math.erf((x - mean) / std / math.sqrt(2.0))) / 2.0
    with no_grad():
        if below(b) - below(a) > 0.3:
            return _redrawn_normal(tensor, mean, std, a, b, generator)
        return _thinned_uniform(tensor, mean, std, a, b, generator)


def _redrawn_normal(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any) -> Tensor:
    """Most normal values lie in [a, b]: those that do not are drawn again. (A full round each time: PyTorch's numbers
    depend on how many are drawn.)"""
    low, high = tensor.new_tensor([a, b]).tolist()  # rounded as the tensor's values are
    tensor.normal_(mean, std, generator=generator)
    while True:
        outside = (tensor < low) | (tensor > high)
        if not outside.any():
            return tensor
        again = tensor.detach().clone().normal_(mean, std, generator=generator)
        tensor.copy_(again.where(outside, tensor))


def _thinned_uniform(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any) -> Tensor:
    """[a, b] lies in a tail: uniform values are kept with the probability of their density over its largest one."""
    peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2
    pending = None
    while pending is None or pending.any():
        drawn = tensor.detach().clone().uniform_(a, b, generator=generator)
        tensor.copy_(drawn if pending is None else drawn.where(pending, tensor))
        density = drawn.sub_(mean).div_(std).pow_(2).mul_(-0.5).sub_(peak)
        refused = tensor.detach().clone().uniform_(generator=generator).log_().gt(density)
        pending = refused if pending is None else refused & pending
    return tensor


@_overridable
def constant_(tensor: Tensor, val: float) -> Tensor:
    """The same value everywhere.

    >>> nn.init.constant_(torch.empty(2), 0.5)
    tensor([0.5000, 0.5000])
    """
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """One everywhere.

    >>> nn.init.ones_(torch.empty(2))
    tensor([1., 1.])
    """
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Zero everywhere.

    >>> nn.init.zeros_(torch.empty(2))
    tensor([0., 0.])
    """
    with no_grad():
        return tensor.zero_()


def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix.

    >>> nn.init.eye_(torch.empty(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    if tensor.ndimension() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with no_grad():
        tensor.zero_()
        tensor.diagonal().fill_(1)
    return tensor


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution weight that passes as many channels through as it can, in each group.

    >>> nn.init.dirac_(torch.empty(1, 1, 3))
    tensor([[[0., 1., 0.]]])
    """
    dimensions = tensor.ndimension()
    if dimensions not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    sizes = tensor.size()
    if sizes[0] % groups != 0:
        raise ValueError("dim 0 must be divisible by groups")
    per_group = sizes[0] // groups
    centre = tuple(n // 2 for n in sizes[2:])
    with no_grad():
        tensor.zero_()
        for g in range(groups):
            for d in range(min(per_group, sizes[1])):
                tensor[(g * per_group + d, d, *centre)] = 1
    return tensor


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """How many inputs feed one output of the layer, and how many outputs one input feeds."""
    if tensor.dim() < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = math.prod(tensor.shape[2:])
    return tensor.size(1) * field, tensor.size(0) * field


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Glorot's uniform distribution: bound gain * sqrt(6 / (fan_in + fan_out)).

    >>> nn.init.xavier_uniform_(torch.empty(2, 3)).shape
    torch.Size([2, 3])
    """
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    bound = math.sqrt(3.0) * (gain * math.sqrt(2.0 / float(fan_in + fan_out)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Glorot's normal distribution: std gain * sqrt(2 / (fan_in + fan_out)).

    >>> nn.init.xavier_normal_(torch.empty(2, 3)).shape
    torch.Size([2, 3])
    """
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / float(fan_in + fan_out)), generator)


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return fan_in if mode == "fan_in" else fan_out


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float | None:
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
        return None
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


@_overridable
def kaiming_uniform_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
                     generator: Any = None) -> Tensor:
    """He's uniform distribution: bound gain * sqrt(3 / fan). a: leaky_relu's negative slope.

    >>> nn.init.kaiming_uniform_(torch.empty(2, 3), a=5 ** 0.5).abs().max() <= 1
    tensor(True)
    """
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    if std is None:
        return tensor
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
                    generator: Any = None) -> Tensor:
    """He's normal distribution: std gain / sqrt(fan). a: leaky_relu's negative slope.

    >>> nn.init.kaiming_normal_(torch.empty(2, 3), nonlinearity="relu").shape
    torch.Size([2, 3])
    """
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor if std is None else normal_(tensor, 0, std, generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """A (semi-)orthogonal matrix; further dimensions are flattened into the second.

    >>> w = nn.init.orthogonal_(torch.empty(3, 3))
    >>> torch.allclose(w @ w.T, torch.eye(3), atol=1e-5)
    True
    """
    if tensor.ndimension() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    from .. import linalg
    rows, columns = tensor.size(0), tensor.numel() // tensor.size(0)
    with no_grad():
        flat = tensor.new_empty((rows, columns)).normal_(0, 1, generator=generator)
        if rows < columns:
            flat.t_()
        q, r = linalg.qr(flat)
        q *= r.diag(0).sign()  # makes the distribution uniform
        if rows < columns:
            q.t_()
        tensor.view_as(q).copy_(q)
        return tensor.mul_(gain)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normal values, of which this fraction is zero in each column.

    >>> (nn.init.sparse_(torch.empty(10, 2), sparsity=0.5) == 0).sum(0)
    tensor([5, 5])
    """
    if tensor.ndimension() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with no_grad():
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            tensor[randperm(rows)[:zeros], column] = 0
    return tensor


def _shown(new: str) -> str:
    """A line for the docstring of an old name."""
    shape, further = {"dirac_": ("3, 3, 3", ""), "constant_": ("3, 3", ", 0.5"), "sparse_": ("3, 3", ", sparsity=0.5")}.get(
        new, ("3, 3", ""))
    return f">>> nn.init.{new[:-1]}(torch.empty({shape}){further}).shape\ntorch.Size([{shape}])"


def _make_deprecate(function: Callable) -> Callable:
    """The old name of an initialiser, without the underscore."""
    new = function.__name__

    def deprecated(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(f"`nn.init.{new[:-1]}` is now deprecated in favor of `nn.init.{new}`.", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    deprecated.__name__ = new[:-1]
    deprecated.__doc__ = f"Old name of {new}.\n\n{_shown(new)}"
    return deprecated


uniform = _make_deprecate(uniform_)
normal = _make_deprecate(normal_)
constant = _make_deprecate(constant_)
eye = _make_deprecate(eye_)
dirac = _make_deprecate(dirac_)
xavier_uniform = _make_deprecate(xavier_uniform_)
xavier_normal = _make_deprecate(xavier_normal_)
kaiming_uniform = _make_deprecate(kaiming_uniform_)
kaiming_normal = _make_deprecate(kaiming_normal_)
orthogonal = _make_deprecate(orthogonal_)
sparse = _make_deprecate(sparse_)
_no_grad_uniform_, _no_grad_normal_, _no_grad_trunc_normal_ = uniform_, normal_, trunc_normal_
_no_grad_fill_, _no_grad_zero_ = constant_, zeros_
