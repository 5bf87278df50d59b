"""The native convolutions against the NumPy kernels: all geometries, and the memory that they may not touch."""

from __future__ import annotations

import ctypes
import itertools
import mmap

import numpy as np
import pytest
from compare import Tolerance, native_agrees, products, same, same_elements
from lowered import run_lowered

from flambeau import native
from flambeau.backends.cpu.layers import conv
from flambeau.backends.cpu.shape.windows import out_size
from flambeau.backends.cpu.table import KERNELS

pytestmark = pytest.mark.skipif(native.library("conv") is None, reason="no C compiler")
IMAGES = [(1, 1, 5, 7, 1), (3, 4, 9, 8, 6), (4, 2, 17, 20, 16), (2, 6, 33, 35, 12), (5, 12, 8, 8, 24), (3, 32, 6, 6, 70)]
KERNEL_SIZES = [(1, 1), (3, 3), (2, 3), (5, 1)]
STRIDES = [(1, 1), (2, 2), (1, 3), (3, 2)]


def three(rng, image, kernel, stride, padding, dilation, groups, dtype):
    """The calls of the three kernels for one geometry: (name, arguments, terms in each sum). None if there is no window."""
    n, c, *size, o = image
    out = out_size(tuple(size), kernel, stride, padding, dilation)
    if min(out) < 1:
        return []
    x, g = rng.standard_normal((n, c, *size)).astype(dtype), rng.standard_normal((n, o, *out)).astype(dtype)
    w, bias = rng.standard_normal((o, c // groups, *kernel)).astype(dtype), rng.standard_normal(o).astype(dtype)
    how = stride, padding, dilation, groups
    taps = int(np.prod(kernel))
    return [("conv_forward", (x, w, bias, *how), c * taps), ("conv_forward", (x, w, None, *how), c * taps),
            ("conv_input", (g, w, None, tuple(size), *how), o * taps),
            ("conv_weight", (g, x, kernel, *how), n * int(np.prod(out)))]


def all_agree(calls):
    for name, args, terms in calls:
        native_agrees(name, *args, tolerance=products(terms))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", KERNEL_SIZES)
@pytest.mark.parametrize("stride", STRIDES)
def test_two_dimensions(threads, dtype, kernel, stride):
    rng = np.random.default_rng(1)
    for image, padding, dilation, groups in itertools.product(IMAGES, [(0, 0), (1, 1), (2, 0)], [(1, 1), (2, 1)], (1, 2, None)):
        groups = image[1] if groups is None else groups
        if image[1] % groups == 0 and image[-1] % groups == 0:
            all_agree(three(rng, image, kernel, stride, padding, dilation, groups, dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel,stride,padding,dilation", [(1, 1, 0, 1), (3, 1, 1, 1), (5, 2, 2, 1), (3, 3, 0, 2),
                                                            (4, 5, 7, 1)])
def test_one_dimension(threads, dtype, kernel, stride, padding, dilation):
    rng = np.random.default_rng(2)
    for image in [(1, 1, 9, 1), (3, 4, 30, 6), (2, 20, 100, 18)]:
        all_agree(three(rng, image, (kernel,), (stride,), (padding,), (dilation,), 1, dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("stride,output_padding,dilation", [((1, 1), (0, 0), (1, 1)), ((2, 2), (1, 1), (1, 1)),
                                                            ((3, 1), (2, 0), (1, 2)), ((1, 2), (1, 1), (2, 2))])
def test_transposed(threads, dtype, stride, output_padding, dilation):
    rng = np.random.default_rng(3)
    for (channels, out), groups, padding in itertools.product([(4, 6), (16, 8)], (1, 2), [(0, 0), (1, 2)]):
        x = rng.standard_normal((3, channels, 7, 9)).astype(dtype)
        w = rng.standard_normal((channels, out // groups, 3, 4)).astype(dtype)
        bias = rng.standard_normal(out).astype(dtype)
        all_agree([("convolution", (x, w, bias, stride, padding, dilation, True, output_padding, groups), channels * 12)])


def test_strided_and_half_arguments():
    rng = np.random.default_rng(4)
    x = rng.standard_normal((2, 9, 9, 3)).astype(np.float32).transpose(0, 3, 1, 2)
    w = rng.standard_normal((3, 5, 3, 3)).astype(np.float32).swapaxes(0, 1)
    how = (1, 1), (1, 1), (1, 1), 1
    all_agree([("conv_forward", (x, w, None, *how), 27)])
    half = conv.conv_forward(x.astype(np.float16), w.astype(np.float16), None, *how)
    assert half.dtype == np.float16
    same_elements(conv.conv_forward(x, w, None, *how), half, Tolerance(0, 0.05))


@pytest.mark.parametrize("shape,weight", [((0, 3, 8, 8), (4, 3, 3, 3)), ((2, 0, 8, 8), (4, 0, 3, 3)),
                                          ((2, 3, 8, 8), (0, 3, 3, 3))])
def test_nothing(shape, weight):
    x, w = np.ones(shape, np.float32), np.ones(weight, np.float32)
    made = conv.conv_forward(x, w, None, (1, 1), (0, 0), (1, 1), 1)
    assert made.shape == (shape[0], weight[0], 6, 6) and not made.any()
    assert conv.conv_weight(made, x, (3, 3), (1, 1), (0, 0), (1, 1), 1).shape == weight


def test_nan_stays_in_its_windows(threads):
    x = np.ones((2, 18, 12, 12), np.float32)
    w = np.ones((17, 18, 3, 3), np.float32)
    x[0, 3, 0, 11] = np.nan
    made = conv.conv_forward(x, w, None, (1, 1), (1, 1), (1, 1), 1)
    where = np.isnan(made)
    assert where[0, :, :2, 10:].all() and where.sum() == 17 * 4
    g = np.ones((2, 17, 12, 12), np.float32)
    g[1, 2, 5, 5] = np.inf
    made = conv.conv_input(g, w, None, (12, 12), (1, 1), (1, 1), (1, 1), 1)
    assert np.isinf(made[1, :, 4:7, 4:7]).all() and np.isfinite(made).sum() == made.size - 18 * 9


def guarded(x):
    """x at the very end of mapped memory: one element more would be a page that may not be read."""
    page = mmap.PAGESIZE
    size = (x.nbytes + page - 1) // page * page
    area = mmap.mmap(-1, size + page)
    flat = np.frombuffer(area, np.uint8)
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(flat.ctypes.data + size), page, 0) == 0
    made = flat[size - x.nbytes:size].view(x.dtype).reshape(x.shape)
    made[...] = x
    return made


def test_nothing_beyond_the_arguments_is_read(threads, monkeypatch):
    rng = np.random.default_rng(5)
    monkeypatch.setattr(conv, "_ready", lambda x: x)
    for image, kernel, stride, padding in itertools.product(IMAGES, [(1, 1), (3, 3)], [(1, 1), (2, 2)], [(0, 0), (1, 1)]):
        calls = three(rng, image, kernel, stride, padding, (1, 1), 1, np.float32)
        for name, args, terms in calls:
            with native.off():
                want = KERNELS[name](*args)
            same(want, KERNELS[name](*[guarded(a) if isinstance(a, np.ndarray) else a for a in args]), products(terms), name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bias_gradient_comes_along(threads, dtype):
    rng = np.random.default_rng(6)
    for image in IMAGES:
        name, (g, x, size, *how), terms = three(rng, image, (3, 3), (1, 1), (1, 1), (1, 1), 1, dtype)[3]
        weight, bias = KERNELS["conv_weight_bias"](g, x, size, *how)
        same(KERNELS[name](g, x, size, *how), weight, products(terms))
        same(g.sum((0, 2, 3)), bias, products(terms))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lowerings(dtype):
    rng = np.random.default_rng(7)
    calls = [*three(rng, (3, 4, 9, 8, 6), (3, 3), (2, 1), (1, 1), (1, 1), 2, dtype),
             *three(rng, (2, 3, 20, 5), (3,), (1,), (1,), (2,), 1, dtype)]
    x, w, bias = calls[0][1][:3]
    calls.append(("convolution", (x, w, bias, (1, 1), (0, 1), (1, 1), False, (0, 0), 2), 36))
    g = rng.standard_normal((3, 6, 5, 5)).astype(dtype)
    calls.append(("convolution", (g, w, bias[:4], (2, 2), (0, 1), (1, 1), True, (1, 0), 2), 54))
    calls += [("conv_weight_bias", args, terms) for name, args, terms in calls if name == "conv_weight"]
    for (name, args, terms), made in zip(calls, run_lowered([c[:2] for c in calls])):
        with native.off():
            wants = KERNELS[name](*args)
        same(list(wants) if isinstance(wants, tuple) else [wants], list(made), products(terms), name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("image,kernel,stride,padding,dilation", [
    ((2, 20, 8, 8, 32), (3, 3), (1, 1), (1, 1), (1, 1)), ((3, 12, 16, 16, 40), (5, 5), (1, 1), (2, 2), (1, 1)),
    ((2, 9, 8, 24, 64), (3, 7), (1, 1), (1, 3), (1, 1)), ((2, 7, 8, 16, 33), (3, 3), (1, 1), (2, 2), (2, 2)),
    ((2, 6, 8, 8, 32), (3, 9), (1, 1), (1, 8), (1, 1)), ((2, 32, 16, 16, 20), (3, 3), (2, 2), (1, 1), (1, 1)),
    ((5, 1, 28, 28, 32), (3, 3), (1, 1), (0, 0), (1, 1)), ((3, 1, 18, 21, 11), (3, 3), (1, 1), (1, 1), (1, 1))])
def test_tiles_at_the_edges(threads, dtype, image, kernel, stride, padding, dilation):
    """Steps that see only padding in a tile's first or last position leave it out; nine steps are unrolled."""
    rng = np.random.default_rng(12)
    all_agree(three(rng, image, kernel, stride, padding, dilation, 1, dtype))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [5, 8, 13, 17])
def test_margins_stay_clean(threads, stride, size):
    """The copies of images share their memory: nothing of one may be left in the margins of the next."""
    rng = np.random.default_rng(13)
    x, w = rng.standard_normal((40, 32, size, size)).astype("f"), rng.standard_normal((24, 32, 3, 3)).astype("f")
    how = (stride, stride), (1, 1), (1, 1), 1
    whole = KERNELS["conv_forward"](x, w, None, *how)
    g = rng.standard_normal(whole.shape).astype("f")
    back = KERNELS["conv_input"](g, w, None, (size, size), *how)
    x[::3] = g[::3] = np.nan
    clean = np.arange(40) % 3 != 0
    assert np.array_equal(KERNELS["conv_forward"](x, w, None, *how)[clean], whole[clean])
    assert np.array_equal(KERNELS["conv_input"](g, w, None, (size, size), *how)[clean], back[clean])
