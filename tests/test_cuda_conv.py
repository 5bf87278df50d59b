"""Convolutions on a CUDA device beside the CPU's: by cuDNN (played by NumPy where there is no GPU) and by matrix products."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_host import needs_gxx
from test_cuda import agree
from test_cuda import draw as draw_wide

import flambeau as fl
from flambeau.backends import flags
from flambeau.nn import functional as F

pytestmark = needs_gxx
CASES = {  # image, weight, arguments
    "plain": ((2, 3, 7, 8), (4, 3, 3, 3), {}),
    "strided": ((2, 4, 9, 8), (6, 4, 3, 2), dict(stride=(2, 3), padding=(1, 2), dilation=(2, 1))),
    "grouped": ((3, 4, 6, 6), (6, 2, 3, 3), dict(groups=2, padding=1)),
    "depthwise": ((2, 4, 6, 5), (4, 1, 3, 3), dict(groups=4, padding=1, stride=2)),
    "pointwise": ((2, 4, 5, 5), (3, 4, 1, 1), {}),
    "line": ((2, 3, 11), (4, 3, 3), dict(padding=1, stride=2)),
    "volume": ((2, 2, 5, 6, 4), (3, 2, 2, 3, 2), dict(padding=(1, 0, 1), stride=(1, 2, 1))),
}
TRANSPOSED = {
    "plain": ((2, 4, 5, 5), (4, 3, 3, 3), {}),
    "strided": ((2, 4, 5, 4), (4, 3, 3, 3), dict(stride=2, padding=1, output_padding=1)),
    "grouped": ((2, 4, 5, 4), (4, 2, 3, 2), dict(stride=2, groups=2, dilation=2)),
    "line": ((2, 4, 6), (4, 3, 3), dict(stride=3)),
    "further": ((1, 2, 4), (2, 3, 2), dict(stride=2, dilation=4, output_padding=3)),  # more output padding than a stride
}


def draw(*shape, dtype=fl.float32, seed=0):
    """Numbers whose products add up to about 1: cuDNN's quick algorithms are as good as sums of numbers of that size."""
    return (draw_wide(*shape, dtype=fl.float64, seed=seed) / 8).to(dtype)


@pytest.fixture(params=["cudnn", "products"])
def way(request, cuda):
    with flags.cudnn.flags(enabled=request.param == "cudnn", allow_tf32=False):
        yield cuda


def both(function, *tensors, tolerance=None):
    """The result and all gradients, on the CPU and on the device: values, strides, dtypes."""
    made = []
    for device in ("cpu", "cuda"):
        leaves = [t.detach().to(device).requires_grad_() for t in tensors]
        y = function(*leaves)
        y.backward(draw(*y.shape, seed=9).to(y.dtype).to(device) if y.dtype.is_floating_point else None)
        made.append([y.detach(), *[t.grad for t in leaves]])
    for on_cpu, on_device in zip(*made):
        assert on_device.is_cuda
        assert (on_device.dtype, on_device.shape) == (on_cpu.dtype, on_cpu.shape)
        fl.testing.assert_close(on_device.cpu(), on_cpu, **tolerance or {})
    return made[1]


@pytest.mark.parametrize("name", CASES)
def test_convolution(name, way):
    image, weight, arguments = CASES[name]
    conv = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[len(image)]
    both(lambda x, w, b: conv(x, w, b, **arguments), draw(*image), draw(*weight, seed=1), draw(weight[0], seed=2))


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed(name, way):
    image, weight, arguments = TRANSPOSED[name]
    conv = {3: F.conv_transpose1d, 4: F.conv_transpose2d}[len(image)]
    out = weight[1] * arguments.get("groups", 1)
    both(lambda x, w, b: conv(x, w, b, **arguments), draw(*image), draw(*weight, seed=1), draw(out, seed=2))


@pytest.mark.parametrize("dtype", [fl.float64, fl.float16, fl.bfloat16])
def test_dtypes(dtype, way):
    x, w, b = draw(2, 3, 5, 6, dtype=dtype), draw(4, 3, 3, 3, seed=1, dtype=dtype), draw(4, seed=2, dtype=dtype)
    made = both(lambda x, w, b: F.conv2d(x, w, b, padding=1), x, w, b,
                tolerance=dict(rtol=0.02, atol=0.01) if dtype is not fl.float64 else None)  # two roundings to 8 or 11 bits
    assert all(m.dtype is dtype for m in made)


def test_complex(way):
    x, w = draw(1, 2, 5, 5, dtype=fl.complex64), draw(3, 2, 2, 2, seed=1, dtype=fl.complex64)
    agree(lambda x, w: F.conv2d(x, w), x * (1 + 2j), w * (2 - 1j))


def test_channels_last(way):
    x, w = draw(2, 3, 6, 5).to(memory_format=fl.channels_last), draw(4, 3, 3, 3, seed=1)
    agree(lambda x, w: F.conv2d(x, w, padding=1, stride=2), x, w)
    agree(lambda x, w: F.conv2d(x, w), x.contiguous(), w.to(memory_format=fl.channels_last))
    made = both(lambda x, w: F.conv2d(x, w, padding=1), x, w.to(memory_format=fl.channels_last))
    for tensor in made:
        assert tensor.is_contiguous(memory_format=fl.channels_last)
    agree(lambda x, w: F.conv2d(x, w), x[:, :, 1:, ::2], w)
    volume = draw(1, 2, 4, 5, 3).to(memory_format=fl.channels_last_3d)
    agree(lambda x, w: F.conv3d(x, w), volume, draw(3, 2, 2, 2, 2, seed=1))


def test_nothing_to_convolve(way):
    agree(lambda x, w: F.conv2d(x, w), draw(0, 3, 5, 5), draw(4, 3, 3, 3))
    agree(lambda x, w: F.conv2d(x, w, padding="same"), draw(2, 3, 5, 5), draw(4, 3, 3, 2))


def test_second_derivatives(way):
    def twice(x, w):
        y = F.conv2d(x, w, padding=1).square().sum()
        return fl.autograd.grad(y, (x, w), create_graph=True)[0].square().sum()

    grads = []
    for device in ("cpu", way):
        x, w = (t.to(device).detach().requires_grad_() for t in (draw(1, 2, 4, 4, dtype=fl.float64),
                                                                 draw(2, 2, 3, 3, seed=1, dtype=fl.float64)))
        twice(x, w).backward()
        grads.append((x.grad.cpu(), w.grad.cpu()))
    for on_cpu, on_device in zip(*grads):
        fl.testing.assert_close(on_device, on_cpu)


def test_pieces_of_the_batch(cuda, monkeypatch):
    from flambeau.backends.cuda import conv
    monkeypatch.setattr(conv, "_ROOM", 5000)  # two samples at a time
    with flags.cudnn.flags(enabled=False):
        both(lambda x, w: F.conv2d(x, w, padding=1), draw(5, 2, 6, 6), draw(3, 2, 3, 3, seed=1))


@pytest.mark.parametrize("name", ["float32", "complex64"])
def test_unfold_and_fold(name, cuda):
    dtype = getattr(fl, name)
    x = draw_wide(2, 3, 6, 7, dtype=dtype)
    arguments = dict(kernel_size=(3, 2), dilation=(1, 2), padding=(1, 0), stride=(2, 1))
    agree(lambda x: F.unfold(x, **arguments), x)
    agree(lambda x: F.unfold(x.transpose(2, 3), 2), x)
    agree(lambda x: F.fold(F.unfold(x, **arguments), (6, 7), **arguments), x)


def test_what_cudnn_is_told(cuda, monkeypatch):
    """The switches reach the geometry, by which algorithms are chosen."""
    from flambeau.backends.cuda import conv
    from flambeau.backends.cuda.driver import machine
    seen, convolution = [], machine().convolution
    monkeypatch.setattr(type(machine()), "convolution", lambda self, geometry, device: (
        seen.append(geometry), convolution(geometry, device))[1])
    x, w = draw(1, 2, 4, 4).to(cuda), draw(2, 2, 3, 3).to(cuda)
    with flags.cudnn.flags(allow_tf32=False, benchmark=True, deterministic=True):
        F.conv2d(x, w)
    with flags.cudnn.flags(enabled=False):
        F.conv2d(x, w)
    F.conv2d(x.to(memory_format=fl.channels_last), w)  # so small that TF32 would gain nothing
    monkeypatch.setattr(conv, "_PAYS", 1)
    F.conv2d(x[:, :, 1:].to(memory_format=fl.channels_last), w)
    assert [(g.tf32, g.benchmark, g.deterministic, g.last) for g in seen] == [
        (False, True, True, False), (False, False, False, True), (True, False, False, True)]


def test_what_cudnn_refuses(cuda, monkeypatch):
    """Another order of dimensions first, then products."""
    from flambeau.backends.cuda import cudnn
    from flambeau.backends.cuda.driver import machine
    asked = []

    class Refusing:
        def __init__(self, geometry):
            self.geometry = geometry

        def run(self, *arrays):
            asked.append(self.geometry.last)
            raise cudnn.Unsupported

    monkeypatch.setattr(type(machine()), "convolution", lambda self, geometry, device: Refusing(geometry))
    agree(lambda x, w: F.conv2d(x, w), draw(2, 3, 6, 5).to(memory_format=fl.channels_last), draw(4, 3, 3, 3, seed=1))
    assert asked == [True, False]


class FakeCudnn:
    """Answers as the library does: three algorithms, of which the first is not supported after all and the last is not
    deterministic; a search finds the last one to be the fastest."""

    LISTED = ((7, 0, 0, 1), (3, 0, 1 << 10, 1), (9, 3000, 0, 1), (5, 0, 0, 0))  # algorithm, status, memory, determinism

    def __init__(self):
        self.ran, self.math = [], []

    def __getattr__(self, name):
        return lambda *args: 0

    def _fill(self, listed, count, found):
        for k, (algorithm, status, memory, determinism) in enumerate(listed):
            found[k].algorithm, found[k].status, found[k].memory, found[k].determinism = algorithm, status, memory, determinism
        count._obj.value = len(listed)
        return 0

    def cudnnGetConvolutionForwardAlgorithm_v7(self, *args):
        return self._fill(self.LISTED, *args[-2:])

    def cudnnFindConvolutionForwardAlgorithmEx(self, *args):
        return self._fill(self.LISTED[::-1], *args[-4:-2])

    def cudnnSetConvolutionMathType(self, description, math):
        self.math.append(math)
        return 0

    def cudnnConvolutionForward(self, *args):
        self.ran.append((args[7], args[9].value))
        return 3000 if args[7] == 7 else 0


def test_choice_of_an_algorithm(cuda, monkeypatch):
    from flambeau.backends.cuda import cudnn
    monkeypatch.setattr(cudnn, "_handles", cudnn._Handles())
    monkeypatch.setattr(cudnn.Convolution, "_again", lambda self, *arrays: self._called(
        cudnn._handles.of(self.device), self.chosen, *arrays))  # native code calls no functions of Python's
    arrays = [draw(1, 2, 4, 4).to(cuda)._array] * 3
    geometry = cudnn.Geometry("forward", (1, 2, 4, 4), (2, 2, 3, 3), (1, 2, 2, 2), (1, 1), (0, 0), (1, 1), 1, np.dtype("f"))
    for changes, wanted in ((dict(), (3, 1 << 10)), (dict(benchmark=True), (5, 0)),
                            (dict(benchmark=True, deterministic=True), (3, 1 << 10)), (dict(tf32=False), (3, 1 << 10))):
        fake = FakeCudnn()
        monkeypatch.setattr(cudnn, "library", lambda fake=fake: fake)
        chosen = cudnn.Convolution(geometry._replace(**changes), 0)
        for _ in range(2):
            chosen.run(*arrays)
        assert fake.ran[-2:] == [wanted] * 2
        assert len(fake.ran) == (3 if wanted[0] == 3 and not changes.get("benchmark") else 2)
        assert fake.math[-1] == (0 if changes.get("tf32", True) else 3)
    monkeypatch.setattr(FakeCudnn, "LISTED", ((7, 0, 0, 1),))
    with pytest.raises(cudnn.Unsupported):
        cudnn.Convolution(geometry, 0).run(*arrays)


def test_descriptions():
    """cuDNN takes what it is told, where it is installed: that needs no device."""
    from flambeau.backends.cuda import cudnn
    if cudnn.library() is None:
        pytest.skip("cuDNN is not installed")
    image = cudnn.Geometry("forward", (2, 4, 9, 8), (6, 2, 3, 3), (2, 6, 7, 6), (1, 1), (0, 0), (1, 1), 2, np.dtype("f"))
    for dtype in "fde":
        for last in (False, True):
            made = cudnn.Descriptions(image._replace(dtype=np.dtype(dtype), last=last))
            assert all([handle.value for _, handle in made.made])
    cudnn.Descriptions(cudnn.Geometry("forward", (2, 4, 9, 8, 7), (6, 4, 3, 3, 3), (2, 6, 7, 6, 5), (1, 1, 1), (0, 0, 0),
                                      (1, 1, 1), 1, np.dtype("f")))
