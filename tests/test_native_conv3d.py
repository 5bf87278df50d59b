"""Convolutions of volumes, plane by plane on the native kernels, against the NumPy kernels and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from compare import Tolerance, same

import flambeau
from flambeau import native
from flambeau.backends.cpu.layers import conv, conv3d
from flambeau.backends.cpu.shape.windows import out_size

pytestmark = pytest.mark.skipif(native.library("conv") is None, reason="no C compiler")
GEOMETRIES = [  # batch, channels in and out, groups; size; kernel; stride; padding; dilation
    ((2, 3, 4, 1), (5, 6, 7), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1)),
    ((3, 4, 6, 2), (6, 5, 9), (2, 3, 1), (2, 1, 2), (0, 2, 0), (1, 1, 1)),
    ((1, 2, 2, 1), (9, 4, 4), (3, 2, 2), (3, 1, 1), (2, 1, 0), (2, 1, 2)),
    ((2, 3, 3, 3), (1, 5, 5), (3, 3, 3), (1, 2, 2), (1, 1, 1), (1, 1, 1)),  # one plane: most taps see padding alone
    ((2, 1, 5, 1), (4, 8, 8), (1, 1, 1), (1, 1, 1), (0, 0, 0), (1, 1, 1)),
    ((4, 8, 16, 1), (4, 16, 17), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1)),
]


def calls(geometry, dtype):
    """The three kernels for one geometry: (name, arguments)."""
    (n, c, o, groups), size, kernel, stride, padding, dilation = geometry
    rng = np.random.default_rng(7)
    out = out_size(size, kernel, stride, padding, dilation)
    made = lambda *shape: rng.standard_normal(shape).astype(dtype)
    x, g, w, bias = made(n, c, *size), made(n, o, *out), made(o, c // groups, *kernel), made(o)
    how = stride, padding, dilation, groups
    return [("conv_forward", (x, w, bias, *how)), ("conv_input", (g, w, None, size, *how)),
            ("conv_input", (g, w, made(c), size, *how)), ("conv_weight", (g, x, kernel, *how))]


@pytest.mark.parametrize("room", [1, 1 << 24])  # one sample at a time, and all
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_as_the_numpy_kernels(geometry, dtype, room, monkeypatch):
    monkeypatch.setattr(conv3d, "_ROOM", room)
    for name, args in calls(geometry, dtype):
        got = getattr(conv, name)(*args)
        with native.off():
            want = getattr(conv, name)(*args)
        bound = 8e-6 if dtype is np.float32 else 1.6e-14
        same(want, got, Tolerance(0, bound, of_largest=bound), name)


def test_the_planes_take_the_native_way(monkeypatch):
    """No matrix of windows is made: that took three times as long."""
    monkeypatch.setattr(conv, "Windows", None)
    for geometry in GEOMETRIES:
        for name, args in calls(geometry, np.float32):
            getattr(conv, name)(*args)


def test_folding_is_the_transpose_of_unfolding():
    depth = conv3d.Depth(7, 3, 2, 1, 2, out_size((7,), (3,), (2,), (1,), (2,))[0])
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 7, 4, 5))
    unfolded = depth.unfold(x)
    other = rng.standard_normal(unfolded.shape)
    back = np.empty_like(x)
    depth.fold(other, back)
    assert np.isclose((unfolded * other).sum(), (x * back).sum(), rtol=1e-13)


def test_gradients_as_pytorch():
    (n, c, o, groups), size, kernel, *how = GEOMETRIES[1]
    rng = np.random.default_rng(1)
    given = [rng.standard_normal(s) for s in ((n, c, *size), (o, c // groups, *kernel), (o,))]
    results = []
    for module, make in ((torch, torch.from_numpy), (flambeau, flambeau.from_numpy)):
        leaves = [make(a.copy()).requires_grad_() for a in given]
        made = module.nn.functional.conv3d(*leaves, *how, groups)
        made.square().sum().backward()
        results.append([made.detach().numpy(), *[leaf.grad.numpy() for leaf in leaves]])
    same(*results, 1e-12)
