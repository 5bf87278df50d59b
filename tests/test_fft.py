"""Fourier transforms, windows and the short-time transform against torch."""

import numpy as np
import pytest
import torch
from compare import Tolerance, same

import flambeau

RNG = np.random.default_rng(2)
ONE = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
MANY = ["fft2", "ifft2", "rfft2", "irfft2", "hfft2", "ihfft2", "fftn", "ifftn", "rfftn", "irfftn", "hfftn", "ihfftn"]


def signal(name, *shape):
    x = RNG.standard_normal(shape)
    real = name.startswith("r") or name.startswith("ih")
    return x if real else x + 1j * RNG.standard_normal(shape)


def transforms_agree(function, x, second=True):
    """Values, gradient and the gradient of the gradient's norm."""
    results = []
    for T in (torch, flambeau):
        t = T.from_numpy(x.copy()).requires_grad_()
        out = function(T, t)
        size = (out * out.conj()).real if out.is_complex() else out * out
        loss = (size * size).sum()
        grad, = T.autograd.grad(loss, t, create_graph=second)
        twice = []
        if second:
            twice = T.autograd.grad((grad * grad.conj()).real.sum() if grad.is_complex() else (grad * grad).sum(), t)
        results.append((out, grad, *twice))
    same(*results, Tolerance(1e-9, 1e-9, of_largest=1e-9))


@pytest.mark.parametrize("norm", [None, "forward", "ortho"])
@pytest.mark.parametrize("n", [None, 3, 4, 7])
@pytest.mark.parametrize("name", ONE)
def test_one_dimension(name, n, norm):
    transforms_agree(lambda T, x: getattr(T.fft, name)(x, n, dim=1, norm=norm), signal(name, 2, 5, 3))


@pytest.mark.parametrize("options", [{}, {"s": (3, 6)}, {"dim": (0, 2)}, {"s": (4, -1), "dim": (1, 0),
                                                                          "norm": "ortho"}])
@pytest.mark.parametrize("name", MANY)
def test_several_dimensions(name, options):
    transforms_agree(lambda T, x: getattr(T.fft, name)(x, **options), signal(name, 3, 4, 5))


def test_integers_become_the_default_float():
    x = np.arange(6)
    assert flambeau.fft.fft(flambeau.from_numpy(x)).dtype is flambeau.complex64
    same(torch.fft.rfft(torch.from_numpy(x)), flambeau.fft.rfft(flambeau.from_numpy(x)), 1e-5)


@pytest.mark.parametrize("name", ["fftshift", "ifftshift"])
def test_shifts(name):
    transforms_agree(lambda T, x: getattr(T.fft, name)(x), signal("r", 3, 4))
    transforms_agree(lambda T, x: getattr(T.fft, name)(x, dim=1), signal("r", 3, 4))


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_frequencies(n):
    same(torch.fft.fftfreq(n, 0.5), flambeau.fft.fftfreq(n, 0.5), 1e-6)
    same(torch.fft.rfftfreq(n), flambeau.fft.rfftfreq(n), 1e-6)


@pytest.mark.parametrize("call, error", [
    (lambda f, x: f.fft(x, 0), RuntimeError), (lambda f, x: f.fft(x, norm="x"), RuntimeError),
    (lambda f, x: f.fft(x, dim=5), IndexError), (lambda f, x: f.fftn(x, dim=(0, 0)), RuntimeError),
    (lambda f, x: f.fftn(x, (2, 2, 2)), RuntimeError), (lambda f, x: f.rfft(x * 1j), RuntimeError),
    (lambda f, x: f.irfftn(x, dim=()), RuntimeError), (lambda f, x: f.fft(3), TypeError)])
def test_errors(call, error):
    for T in (torch, flambeau):
        with pytest.raises(error):
            call(T.fft, T.from_numpy(np.ones((2, 3), "float32")))


def test_node_names():
    x = flambeau.from_numpy(np.ones(4)).requires_grad_()
    assert flambeau.fft.rfft(x).grad_fn.name() == "FftR2CBackward0"
    assert flambeau.fft.irfft(flambeau.fft.rfft(x)).grad_fn.name() == "FftC2RBackward0"
    assert flambeau.fft.ifft(flambeau.fft.fft(x)).grad_fn.name() == "FftC2CBackward0"


@pytest.mark.parametrize("length", [0, 1, 2, 5, 8])
@pytest.mark.parametrize("name", ["hann", "hamming", "blackman", "bartlett", "kaiser"])
def test_windows(name, length):
    for periodic in (True, False):
        same(getattr(torch, name + "_window")(length, periodic), getattr(flambeau, name + "_window")(length, periodic),
             1e-5)
    for sym in (True, False):
        same(getattr(torch.signal.windows, name)(length, sym=sym),
             getattr(flambeau.signal.windows, name)(length, sym=sym), 1e-5)


@pytest.mark.parametrize("name", ["cosine", "exponential", "gaussian", "nuttall", "general_hamming"])
def test_signal_windows(name):
    for length in (0, 1, 2, 7):
        for sym in (True, False):
            same(getattr(torch.signal.windows, name)(length, sym=sym),
                 getattr(flambeau.signal.windows, name)(length, sym=sym), 1e-5)
    with pytest.raises(ValueError):
        getattr(flambeau.signal.windows, name)(-1)


@pytest.mark.parametrize("options", [{}, {"hop_length": 1}, {"center": False}, {"normalized": True},
                                     {"onesided": False},
                                     {"win_length": 3}, {"pad_mode": "constant"}, {"pad_mode": "replicate"}])
def test_stft(options):
    transforms_agree(lambda T, x: T.stft(x, 6, return_complex=True, **options), signal("r", 2, 20))


@pytest.mark.parametrize("options", [{}, {"length": 15}, {"length": 30}, {"normalized": True}, {"center": False}])
def test_istft(options):
    window = np.abs(RNG.standard_normal(6)) + 1
    spectrum = torch.stft(torch.from_numpy(signal("r", 2, 21)), 6, 2, return_complex=True).numpy()
    transforms_agree(lambda T, x: T.istft(x, 6, 2, window=T.from_numpy(window.copy()), **options), spectrum)


def test_stft_and_back():
    x = flambeau.from_numpy(signal("r", 40))
    window = flambeau.hann_window(8, dtype=flambeau.float64)
    there = flambeau.stft(x, 8, window=window, return_complex=True)
    np.testing.assert_allclose(flambeau.istft(there, 8, window=window).numpy(), x.numpy(), atol=1e-12)
