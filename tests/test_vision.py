"""Resizing, grid sampling and rearranging, against torch."""

import numpy as np
import pytest
import torch
from compare import both_raise
from layer_cases import arrays, both_refuse, check_derivatives, derivatives_agree, modules_agree

import flambeau

SHAPES = {1: (2, 3, 7), 2: (2, 3, 5, 6), 3: (2, 2, 4, 3, 5)}
SIZES = {1: [4, 11], 2: [(3, 9), (5, 6), (10, 12)], 3: [(3, 5, 5), (8, 6, 10)]}
MODES = {1: ["linear"], 2: ["bilinear", "bicubic"], 3: ["trilinear"]}


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("align", [None, False, True])
def test_resize(dims, align):
    (x,) = arrays(SHAPES[dims])
    for mode in MODES[dims] if align is not None else ["nearest", "nearest-exact", "area"]:
        for size in SIZES[dims]:
            derivatives_agree(lambda mod, x, m=mode, s=size: mod.nn.functional.interpolate(x, s, mode=m, align_corners=align),
                              x)
        for factor in (2, 0.5, 1.7):
            for recompute in (None, True):
                derivatives_agree(lambda mod, x, m=mode, f=factor, r=recompute: mod.nn.functional.interpolate(
                    x, scale_factor=f, mode=m, align_corners=align, recompute_scale_factor=r), x)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("align", [False, True])
def test_antialias(mode, align):
    (x,) = arrays((2, 3, 9, 11))
    for size in ((4, 5), (13, 7), (9, 11)):
        derivatives_agree(lambda mod, x, s=size: mod.nn.functional.interpolate(x, s, mode=mode, align_corners=align,
                                                                               antialias=True), x)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [False, True])
def test_grid_sample(dims, mode, padding, align):
    (x,) = arrays(SHAPES[dims])
    grid = np.random.default_rng(3).uniform(-1.4, 1.4, (2, *(4,) * dims, dims))
    if mode == "bicubic" and dims == 3:
        both_refuse(lambda mod, x, g: mod.nn.functional.grid_sample(x, g, mode, padding, align), x, grid)
        return
    derivatives_agree(lambda mod, x, g: mod.nn.functional.grid_sample(x, g, mode, padding, align), x, grid)


@pytest.mark.parametrize("align", [False, True])
def test_affine_grid(align):
    for size in ((2, 3, 4, 5), (2, 3, 3, 4, 5), (2, 1, 1, 3)):
        (theta,) = arrays((2, len(size) - 2, len(size) - 1))
        derivatives_agree(lambda mod, t, s=size: mod.nn.functional.affine_grid(t, s, align), theta)


def test_rearranging():
    (x,) = arrays((2, 8, 4, 6))
    derivatives_agree(lambda mod, x: mod.nn.functional.pixel_shuffle(x, 2), x)
    derivatives_agree(lambda mod, x: mod.nn.functional.pixel_unshuffle(x, 2), x)
    derivatives_agree(lambda mod, x: mod.nn.functional.channel_shuffle(x, 4), x)
    derivatives_agree(lambda mod, x: mod.pixel_shuffle(x, 2), x[0])


def test_second_derivatives():
    (x,) = arrays((1, 2, 3, 3))
    functional = lambda name, *args, **options: lambda mod, *t: getattr(mod.nn.functional, name)(*t, *args, **options)
    for mode in ("nearest", "bilinear", "bicubic"):
        check_derivatives(functional("interpolate", (5, 4), mode=mode), x)
    grid = np.random.default_rng(0).uniform(-0.9, 0.9, (1, 2, 2, 2))
    check_derivatives(functional("grid_sample", align_corners=False), x, grid)
    check_derivatives(functional("pixel_shuffle", 1), x)


def test_bytes_and_half():
    image = np.random.default_rng(0).integers(0, 256, (1, 3, 6, 6), dtype=np.uint8)
    for mode in ("nearest", "bilinear"):
        made = [mod.nn.functional.interpolate(mod.from_numpy(image.copy()), (9, 4), mode=mode).numpy().astype(int)
                for mod in (torch, flambeau)]
        assert np.abs(made[0] - made[1]).max() <= (mode != "nearest")
    x = arrays((1, 2, 4, 4), dtype=np.float32)[0]
    made = [mod.nn.functional.interpolate(mod.from_numpy(x.copy()).to(mod.bfloat16), scale_factor=2, mode="bilinear")
            for mod in (torch, flambeau)]
    np.testing.assert_allclose(made[1].float().numpy(), made[0].float().numpy(), 1e-2, 1e-2)


ERRORS = [
    lambda mod: mod.nn.functional.interpolate(mod.ones(1, 1, 4)),
    lambda mod: mod.nn.functional.interpolate(mod.ones(1, 1, 4), 2, 2.0),
    lambda mod: mod.nn.functional.interpolate(mod.ones(1, 1, 4), 2, mode="bilinear"),
    lambda mod: mod.nn.functional.interpolate(mod.ones(1, 1, 4), 2, mode="cubic"),
    lambda mod: mod.nn.functional.interpolate(mod.ones(1, 1, 4, 4), (2, 2, 2)),
    lambda mod: mod.nn.functional.interpolate(mod.ones(1, 1, 4, 4), 2, align_corners=True),
    lambda mod: mod.nn.functional.interpolate(mod.ones(1, 1, 4), 2, mode="linear", antialias=True),
    lambda mod: mod.nn.functional.interpolate(mod.ones(1, 1, 4), 0),
    lambda mod: mod.nn.functional.grid_sample(mod.ones(1, 1, 4, 4), mod.ones(1, 2, 2, 3)),
    lambda mod: mod.nn.functional.grid_sample(mod.ones(1, 1, 4, 4), mod.ones(2, 2, 2, 2)),
    lambda mod: mod.nn.functional.grid_sample(mod.ones(1, 1, 4, 4), mod.ones(1, 2, 2, 2), mode="cubic"),
    lambda mod: mod.nn.functional.affine_grid(mod.ones(1, 2, 2), (1, 1, 2, 2)),
    lambda mod: mod.nn.functional.pixel_shuffle(mod.ones(1, 3, 2, 2), 2),
    lambda mod: mod.nn.functional.pixel_unshuffle(mod.ones(1, 3, 3, 2), 2),
    lambda mod: mod.nn.functional.channel_shuffle(mod.ones(1, 3, 3, 2), 2),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", ERRORS, ids=range(len(ERRORS)))
def test_errors(call):
    both_raise(call)


MODULES = [
    (lambda nn: nn.Upsample(scale_factor=2), (1, 2, 3, 3)),
           (lambda nn: nn.Upsample((4, 5), mode="bilinear"), (1, 2, 3, 3)),
    (lambda nn: nn.UpsamplingNearest2d(scale_factor=3), (1, 2, 3, 3)),
           (lambda nn: nn.UpsamplingBilinear2d(5), (1, 2, 3, 3)),
    (lambda nn: nn.PixelShuffle(2), (1, 4, 3, 3)), (lambda nn: nn.PixelUnshuffle(2), (1, 2, 4, 4)),
    (lambda nn: nn.ChannelShuffle(2), (1, 4, 3, 3)),
]


@pytest.mark.parametrize(("build", "shape"), MODULES, ids=range(len(MODULES)))
def test_modules(build, shape):
    modules_agree(build, *arrays(shape, dtype=np.float32))


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("channels", [1, 3, 6])
def test_bytes(mode, channels):
    """Images of bytes have weights of their own, rounded to whole numbers: the very same values."""
    x = np.random.default_rng(0).integers(0, 256, (2, channels, 7, 9)).astype(np.uint8)
    smooth = [{}] if mode.startswith("nearest") else [{"align_corners": a, "antialias": s} for a in (False, True)
                                                      for s in (False, True)]
    for options in smooth:
        for how in ({"size": (5, 11)}, {"size": (14, 18)}, {"scale_factor": 1.05}, {"scale_factor": 0.5},
                    {"scale_factor": 2.3}, {"size": (7, 20)}):
            ours, theirs = (mod.nn.functional.interpolate(mod.from_numpy(x), mode=mode, **how, **options).numpy()
                            for mod in (flambeau, torch))
            assert np.array_equal(ours, theirs), (how, options)


@pytest.mark.parametrize("mode, shape", [("linear", (1, 1, 8)), ("trilinear", (1, 1, 4, 4, 4))])
def test_bytes_that_are_refused(mode, shape):
    both_raise(lambda mod: mod.nn.functional.interpolate(mod.zeros(shape, dtype=mod.uint8), scale_factor=2, mode=mode))


@pytest.mark.parametrize("mode, shape, size", [("linear", (1, 1, 4096), 5120), ("bilinear", (1, 1, 4096, 2), (5120, 3)),
                                               ("bicubic", (1, 1, 5120, 2), (4096, 3))])
def test_large_dimensions(mode, shape, size):
    """Too large to write the matrix down. (Sizes whose ratio float32 holds exactly: PyTorch computes places in it.)"""
    (x,) = arrays(shape)
    derivatives_agree(lambda mod, x: mod.nn.functional.interpolate(x, size, mode=mode), x)
