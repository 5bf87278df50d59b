"""`flambeau.signal.windows`: weights that taper a signal's ends. `sym=False` gives a period of a repeating window."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ..ops.core.row import FUNCTIONS
from ..tensors import dtypes as _dtypes
from ..tensors.formats import strided
from ..tensors.tensor import Tensor

__all__ = ["bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming",
           "hann", "kaiser", "nuttall"]


def _check(name: str, M: int, dtype: Any, layout: Any = None) -> Any:
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    dtype = dtype or _dtypes.get_default_dtype()
    if dtype not in (_dtypes.float32, _dtypes.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
    if layout is not None and layout is not strided:
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    return dtype


def _steps(start: float, stop: float, M: int, dtype: Any, device: Any) -> Tensor:
    """M numbers from start to stop, both included."""
    from ..creation.factories import linspace
    return linspace(start, stop, M, dtype=dtype, device=device)


def _few(M: int, dtype: Any, device: Any, requires_grad: bool) -> Tensor | None:
    """Windows of length 0 and 1."""
    if M > 1:
        return None
    from ..creation.factories import ones
    return ones(M, dtype=dtype, device=device, requires_grad=requires_grad)


def exponential(M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, dtype: Any = None,
                layout: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """exp(-|t - center| / tau)."""
    dtype = _check("exponential_window", M, dtype, layout)
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    if (made := _few(M, dtype, device, requires_grad)) is not None:
        return made
    if center is None:
        center = (M if not sym and M > 1 else M - 1) / 2.0
    k = _steps(-center / tau, (-center + (M - 1)) / tau, M, dtype, device)
    return (-k.abs()).exp().requires_grad_(requires_grad)


def cosine(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
           requires_grad: bool = False) -> Tensor:
    """Half a period of a sine."""
    dtype = _check("cosine", M, dtype, layout)
    if (made := _few(M, dtype, device, requires_grad)) is not None:
        return made
    step = math.pi / (M + 1 if not sym and M > 1 else M)
    start = 0.5
    return _steps(start * step, (start + (M - 1)) * step, M, dtype, device).sin().requires_grad_(requires_grad)


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
             requires_grad: bool = False) -> Tensor:
    """exp(-(t / std)^2 / 2) around the middle."""
    dtype = _check("gaussian", M, dtype, layout)
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    if (made := _few(M, dtype, device, requires_grad)) is not None:
        return made
    start = -(M if not sym and M > 1 else M - 1) / 2.0
    scale = 1 / (std * math.sqrt(2))
    k = _steps(start * scale, (start + (M - 1)) * scale, M, dtype, device)
    return (-k * k).exp().requires_grad_(requires_grad)


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
           requires_grad: bool = False) -> Tensor:
    """I0(beta sqrt(1 - t^2)) / I0(beta)."""
    dtype = _check("kaiser", M, dtype, layout)
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    if (made := _few(M, dtype, device, requires_grad)) is not None:
        return made
    i0 = FUNCTIONS["i0"]
    start = -float(beta)
    step = 2.0 * beta / (M if not sym else M - 1)
    k = _steps(start, min(float(beta), start + (M - 1) * step), M, dtype, device)
    scale = k.new_full((), float(beta))
    return (i0((beta * beta - k * k).clamp(min=0).sqrt()) / i0(scale)).requires_grad_(requires_grad)


def general_cosine(M: int, *, a: Iterable, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
                   requires_grad: bool = False) -> Tensor:
    """The sum of (-1)^i a_i cos(i t)."""
    dtype = _check("general_cosine", M, dtype, layout)
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    a = list(a)
    if not a:
        raise ValueError("Coefficients cannot be empty")
    if (made := _few(M, dtype, device, requires_grad)) is not None:
        return made
    step = 2 * math.pi / (M if not sym else M - 1)
    k = _steps(0, (M - 1) * step, M, dtype, device)
    made = k * 0
    for i, factor in enumerate(a):
        made = made + (k * i).cos() * (factor if i % 2 == 0 else -factor)
    return made.requires_grad_(requires_grad)


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, dtype: Any = None, layout: Any = None,
                    device: Any = None, requires_grad: bool = False) -> Tensor:
    """alpha - (1 - alpha) cos(t)."""
    return general_cosine(M, a=[alpha, 1.0 - alpha], sym=sym, dtype=dtype, layout=layout, device=device,
                          requires_grad=requires_grad)


def hamming(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
            requires_grad: bool = False) -> Tensor:
    """0.54 - 0.46 cos(t)."""
    return general_hamming(M, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def hann(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
         requires_grad: bool = False) -> Tensor:
    """0.5 - 0.5 cos(t)."""
    return general_hamming(M, alpha=0.5, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def blackman(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
             requires_grad: bool = False) -> Tensor:
    """0.42 - 0.5 cos(t) + 0.08 cos(2 t)."""
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, dtype=dtype, layout=layout, device=device,
                          requires_grad=requires_grad)


def nuttall(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
            requires_grad: bool = False) -> Tensor:
    """A sum of four cosines with low side lobes."""
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], sym=sym, dtype=dtype, layout=layout, device=device,
                          requires_grad=requires_grad)


def bartlett(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
             requires_grad: bool = False) -> Tensor:
    """A triangle: 1 - |t|."""
    dtype = _check("bartlett", M, dtype, layout)
    if (made := _few(M, dtype, device, requires_grad)) is not None:
        return made
    step = 2.0 / (M if not sym else M - 1)
    return (1 - _steps(-1, -1 + (M - 1) * step, M, dtype, device).abs()).requires_grad_(requires_grad)
