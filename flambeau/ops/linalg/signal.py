"""Windows, and the short-time Fourier transform with its inverse."""

from __future__ import annotations

import math
from typing import Any

from ...creation.factories import arange, ones
from ...settings import warn_once
from ...tensors import dtypes as _dtypes
from ...tensors.tensor import Tensor
from ..core.examples import attach_to
from ..core.row import FUNCTIONS, public


# ------------------------------------------------------------------------------------------------------- windows
def _window_dtype(dtype: Any, name: str) -> Any:
    dtype = dtype or _dtypes.get_default_dtype()
    if not dtype.is_floating_point:
        raise RuntimeError(f"{name} expects floating point dtypes, got {dtype}")
    return dtype


def _phase(length: int, name: str, periodic: bool, dtype: Any, device: Any) -> tuple[Tensor | None, int]:
    """0, 1, ... as a tensor, and the number of steps that make a period; None for lengths 0 and 1."""
    if length < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={length}")
    if length < 2:
        return None, length
    return arange(length, dtype=dtype, device=device), length if periodic else length - 1


def _trivial(length: int, dtype: Any, device: Any) -> Tensor:
    return ones(length, dtype=dtype, device=device)


def _cosines(t: Tensor, steps: int, coefficients: tuple[float, ...]) -> Tensor:
    """sum of (-1)^k a_k cos(2 pi k t / steps)."""
    made = 0
    for k, a in enumerate(coefficients):
        term = (t * (2 * math.pi * k / steps)).cos() * (a if k % 2 == 0 else -a) if k else t * 0 + a
        made = made + term
    return made


def _window(name: str, coefficients: Any, extra: tuple[tuple[str, Any], ...] = ()) -> Any:
    """A function torch.<name>(window_length, periodic=True, ...)."""
    names = [n for n, _ in extra]

    def function(window_length, periodic=True, *args, dtype=None, layout=None, device=None, pin_memory=None,
                 requires_grad=False, out=None, **given):
        if len(args) > len(names) or set(given) - set(names):
            raise TypeError(f"{name}() got unexpected arguments")
        values = {**dict(extra), **dict(zip(names, args)), **given}
        kind = _window_dtype(dtype, name)
        wide = _dtypes.float64 if kind is _dtypes.float64 else _dtypes.float32
        t, steps = _phase(window_length, name, periodic, wide, device)
        made = _trivial(window_length, wide, device) if t is None else coefficients(t, steps, **values)
        made = made.to(kind)
        return made.requires_grad_(requires_grad) if out is None else out.copy_(made)

    function.__name__ = function.__qualname__ = name
    function.__module__ = __package__.partition(".")[0]  # where users find it
    function.__doc__ = f"{name}(window_length, periodic=True): a window of weights that tapers a signal's ends."
    attach_to(name, function)
    FUNCTIONS[name] = function
    return function


def _bartlett(t: Tensor, steps: int) -> Tensor:
    ramp = t * (2.0 / steps)
    return FUNCTIONS["where"](t * 2 <= steps, ramp, 2.0 - ramp)


def _kaiser(t: Tensor, steps: int, beta: float) -> Tensor:
    middle = steps / 2
    x = (t - middle) * (1 / middle)
    inside = (1 - x * x).clamp(min=0).sqrt() * beta
    i0 = FUNCTIONS.get("i0")
    return i0(inside) / i0(inside.new_full((), float(beta)))


hann_window = _window("hann_window", lambda t, n: _cosines(t, n, (0.5, 0.5)))
hamming_window = _window("hamming_window", lambda t, n, alpha, beta: _cosines(t, n, (alpha, beta)),
                         (("alpha", 0.54), ("beta", 0.46)))
blackman_window = _window("blackman_window", lambda t, n: _cosines(t, n, (0.42, 0.5, 0.08)))
bartlett_window = _window("bartlett_window", _bartlett)
kaiser_window = _window("kaiser_window", _kaiser, (("beta", 12.0),))


# ----------------------------------------------------------------------------------------------------------- stft
def _check_window(window: Tensor | None, win_length: int, n_fft: int, name: str) -> None:
    if window is not None and (window._array.ndim != 1 or window._array.shape[0] != win_length):
        raise RuntimeError(f"{name}: expected a 1D window tensor of size equal to win_length={win_length}, but got "
                           f"window with size {list(window.shape)}")
    if not 0 < win_length <= n_fft:
        raise RuntimeError(f"{name}: expected 0 < win_length <= n_fft, but got win_length={win_length}, n_fft={n_fft}")


def _full_window(window: Tensor | None, win_length: int, n_fft: int, like: Tensor) -> Tensor | None:
    """The window in the middle of n_fft points; None when it is all ones."""
    if win_length < n_fft:
        if window is None:
            window = like.new_ones(win_length)
        left = (n_fft - win_length) // 2
        parts = [window.new_zeros(left), window, window.new_zeros(n_fft - win_length - left)]
        return FUNCTIONS["cat"](parts)
    return window


def _stft_is_complex(x: Tensor, window: Tensor | None, return_complex: bool | None) -> bool:
    """Whether the spectra are to be complex; warns and refuses as PyTorch does while it changes that."""
    if window is None:
        warn_once("stft window", "A window was not provided. A rectangular window will be applied,which is known to cause "
                  "spectral leakage. Other windows such as torch.hann_window or torch.hamming_window are recommended to reduce "
                  "spectral leakage.To suppress this warning and use a rectangular window, explicitly set "
                  "`window=torch.ones(n_fft, device=<device>)`.")
    if return_complex is None:
        if not (x.is_complex() or (window is not None and window.is_complex())):
            raise RuntimeError("stft requires the return_complex parameter be given for real inputs, and will further "
                               "require that return_complex=True in a future PyTorch release.")
        return True
    if not return_complex:
        warn_once("stft", "stft with return_complex=False is deprecated. In a future pytorch release, stft will return complex "
                  "tensors for all inputs, and return_complex=False will raise an error.\nNote: you can still call "
                  "torch.view_as_real on the complex output to recover the old return format.")
    return return_complex


@public(out=False, autocast="float32")
def stft(input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
         window: Tensor | None = None, center: bool = True, pad_mode: str = "reflect", normalized: bool = False,
         onesided: bool | None = None, return_complex: bool | None = None,
         align_to_window: bool | None = None) -> Tensor:
    """The spectra of overlapping pieces of a signal: (batch, frequencies, pieces)."""
    return_complex = _stft_is_complex(input, window, return_complex)
    x = input
    hop_length = n_fft // 4 if hop_length is None else hop_length
    win_length = n_fft if win_length is None else win_length
    if x._array.ndim not in (1, 2):
        raise RuntimeError(f"stft({list(x.shape)}, n_fft={n_fft}): expected a 1D or 2D tensor")
    if not (x.is_floating_point() or x.is_complex()):
        raise RuntimeError(f"stft: expected a tensor of floating point or complex values, got {x.dtype}")
    single = x._array.ndim == 1
    if single:
        x = x.unsqueeze(0)
    if center:
        x = _pad_ends(x, n_fft // 2, pad_mode)
    length = x._array.shape[1]
    if not 0 < n_fft <= length:
        raise RuntimeError(f"stft: expected 0 < n_fft <= {length}, but got n_fft={n_fft}")
    if hop_length <= 0:
        raise RuntimeError(f"stft: expected hop_length > 0, but got hop_length={hop_length}")
    _check_window(window, win_length, n_fft, "stft")
    window = _full_window(window, win_length, n_fft, x)
    frames = x.unfold(-1, n_fft, hop_length)
    if window is not None:
        frames = frames * window
    complex_ = frames.is_complex()
    if onesided is None:
        onesided = not complex_
    if onesided and complex_:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    from .fft import fft, rfft
    made = (rfft if onesided else fft)(frames, norm="ortho" if normalized else None).transpose(1, 2)
    if single:
        made = made.squeeze(0)
    return made if return_complex else FUNCTIONS["view_as_real"](made)


def _pad_ends(x: Tensor, pad: int, mode: str) -> Tensor:
    """A batch of signals with `pad` more points at both ends."""
    n = x._array.shape[-1]
    if not pad:
        return x
    cat = FUNCTIONS["cat"]
    if mode == "constant":
        zeros = x.new_zeros((*x._array.shape[:-1], pad))
        return cat([zeros, x, zeros], -1)
    if mode == "reflect":
        if pad >= n:
            raise RuntimeError("Argument #4: Padding size should be less than the corresponding input dimension, but "
                               f"got: padding ({pad}, {pad}) at dimension 2 of input {[1, *x.shape]}")
        return cat([x.narrow(-1, 1, pad).flip(-1), x, x.narrow(-1, n - 1 - pad, pad).flip(-1)], -1)
    if mode == "replicate":
        shape = (*x._array.shape[:-1], pad)
        return cat([x.narrow(-1, 0, 1).expand(shape), x, x.narrow(-1, n - 1, 1).expand(shape)], -1)
    if mode == "circular":
        if pad > n:
            raise RuntimeError("Padding value causes wrapping around more than once.")
        return cat([x.narrow(-1, n - pad, pad), x, x.narrow(-1, 0, pad)], -1)
    raise NotImplementedError(f"Unrecognised padding mode {mode}")


def _overlap_add(frames: Tensor, hop: int, length: int) -> Tensor:
    """(batch, pieces, points) laid `hop` apart and summed: (batch, length)."""
    batch, frame_count, points = frames._array.shape
    index = (arange(frame_count, device=frames.device).unsqueeze(1) * hop + arange(points, device=frames.device)).reshape(-1)
    return frames.new_zeros((batch, length)).index_add(1, index, frames.reshape(batch, frame_count * points))


@public(out=False)
def istft(input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
          window: Tensor | None = None, center: bool = True, normalized: bool = False, onesided: bool | None = None,
          length: int | None = None, return_complex: bool = False) -> Tensor:
    """The signal with these short-time spectra, by least squares where pieces overlap."""
    if window is None:
        warn_once("istft window", "A window was not provided. A rectangular window will be applied.Please provide the same "
                  "window used by stft to make the inversion lossless.To suppress this warning and use a rectangular window, "
                  "explicitly set `window=torch.ones(n_fft, device=<device>)`.")
    x = input
    hop_length = n_fft // 4 if hop_length is None else hop_length
    win_length = n_fft if win_length is None else win_length
    if not x.is_complex():
        raise RuntimeError("istft requires a complex-valued input tensor matching the output from stft with "
                           f"return_complex=True, got {x.dtype}.")
    if x._array.ndim not in (2, 3):
        raise RuntimeError(f"istft({list(x.shape)}): expected a tensor with 2 or 3 dimensions, but got {x._array.ndim}")
    if not x._array.size:
        raise RuntimeError("istft: input tensor cannot be empty.")
    single = x._array.ndim == 2
    if single:
        x = x.unsqueeze(0)
    frequencies = x._array.shape[1]
    if onesided is None:
        onesided = frequencies != n_fft
    expected = n_fft // 2 + 1 if onesided else n_fft
    if frequencies != expected:
        raise RuntimeError("istft: expected the frequency dimension (3rd to the last) of the input tensor to match "
                           f"n_fft {'/ 2 + 1 ' if onesided else ''}when onesided={onesided}, but got {frequencies}")
    if not 0 < hop_length <= win_length:
        raise RuntimeError(f"istft: expected 0 < hop_length <= win_length, but got hop_length={hop_length}, "
                           f"win_length={win_length}")
    _check_window(window, win_length, n_fft, "istft")
    if onesided and return_complex:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    if window is not None and window.is_complex() and not return_complex:
        raise RuntimeError("Complex windows are incompatible with return_complex=False")
    full = _full_window(window, win_length, n_fft, x.real)
    if full is None:
        full = x.real.new_ones(n_fft)
    return _inverse(x.transpose(1, 2), n_fft, hop_length, full, center, normalized, onesided, length, return_complex, single)


def _inverse(x: Tensor, n_fft: int, hop: int, window: Tensor, center: bool, normalized: bool, onesided: bool,
             length: int | None, return_complex: bool, single: bool) -> Tensor:
    from .fft import ifft, irfft
    norm = "ortho" if normalized else None
    if return_complex:
        frames = ifft(x, norm=norm)
    else:
        half = x if onesided else x.narrow(-1, 0, n_fft // 2 + 1)
        frames = irfft(half, n_fft, norm=norm)
    frame_count = x._array.shape[1]
    total = n_fft + hop * (frame_count - 1)
    signal = _overlap_add(frames * window, hop, total)
    envelope = _overlap_add((window * window).expand(1, frame_count, n_fft), hop, total)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else total - n_fft // 2 if center else total
    end = min(end, total)
    signal, envelope = signal.narrow(1, start, end - start), envelope.narrow(1, start, end - start)
    if not float(envelope.abs().min()) > 1e-11:
        raise RuntimeError("window overlap add min: 1, window overlap add max: 0: the window is zero somewhere in "
                           "every piece, so the signal cannot be recovered")
    signal = signal / envelope
    if single:
        signal = signal.squeeze(0)
    if length is not None and length > end - start:
        shape = (*signal._array.shape[:-1], length - (end - start))
        signal = FUNCTIONS["cat"]([signal, signal.new_zeros(shape)], -1)
    return signal
