"""Pooling of all kinds, against torch."""

import numpy as np
import pytest
import torch
from compare import both_raise
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_cases import arrays, check_derivatives, derivatives_agree, modules_agree

import flambeau

SHAPES = {1: (2, 3, 11), 2: (2, 3, 9, 10), 3: (2, 2, 6, 7, 8)}
MAX = [{}, {"stride": 1}, {"stride": 2, "padding": 1}, {"dilation": 2}, {"stride": 2, "ceil_mode": True},
       {"stride": 2, "padding": 1, "ceil_mode": True, "dilation": 2}]
AVG = [{}, {"stride": 1}, {"stride": 2, "padding": 1}, {"stride": 2, "padding": 1, "count_include_pad": False},
       {"stride": 2, "ceil_mode": True}, {"stride": 2, "ceil_mode": True, "padding": 1, "count_include_pad": False}]


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("options", MAX)
@pytest.mark.parametrize("indices", [False, True])
def test_max_pool(dims, options, indices):
    name = f"max_pool{dims}d"
    call = lambda mod, x: getattr(mod.nn.functional, name)(x, 3, return_indices=indices, **options)
    (x,) = arrays(SHAPES[dims])
    derivatives_agree(call, x)
    derivatives_agree(call, x[0])


def test_first_of_equals_wins_and_nan_spreads():
    x = np.array([[[[1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 2.0, np.nan]]]])
    derivatives_agree(lambda mod, x: mod.nn.functional.max_pool2d(x, 2, return_indices=True), x)
    derivatives_agree(lambda mod, x: mod.nn.functional.max_pool2d(x, 2, 1, padding=1), np.round(arrays((2, 3, 8, 8))[0]))


def test_tiles_without_gradient():
    (x,) = arrays((2, 3, 8, 8), dtype=np.float32)
    with flambeau.no_grad():
        got = flambeau.max_pool2d(flambeau.from_numpy(x), 2)
    np.testing.assert_array_equal(got.numpy(), torch.max_pool2d(torch.from_numpy(x), 2).numpy())
    whole = np.arange(-8, 8).reshape(1, 1, 4, 4)
    np.testing.assert_array_equal(flambeau.max_pool2d(flambeau.from_numpy(whole), 3, 2, 1).numpy(),
                                  torch.max_pool2d(torch.from_numpy(whole), 3, 2, 1).numpy())


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("options", AVG)
def test_avg_pool(dims, options):
    call = lambda mod, x: getattr(mod.nn.functional, f"avg_pool{dims}d")(x, 3, **options)
    (x,) = arrays(SHAPES[dims])
    derivatives_agree(call, x)
    derivatives_agree(call, x[0])


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_any_geometry(data):
    draw = lambda low, high: data.draw(st.integers(low, high))
    kernel = (draw(1, 4), draw(1, 4))
    stride, size = (draw(1, 4), draw(1, 4)), (draw(4, 9), draw(4, 9))
    padding = tuple(draw(0, k // 2) for k in kernel)
    ceil = data.draw(st.booleans())
    (x,) = arrays((2, 2, *size))
    derivatives_agree(lambda mod, x: mod.nn.functional.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil,
                                                                  return_indices=True), x)
    include = data.draw(st.booleans())
    derivatives_agree(lambda mod, x: mod.nn.functional.avg_pool2d(x, kernel, stride, padding, ceil, include), x)


def test_divisor_and_lp():
    (x,) = arrays((2, 3, 6, 6))
    derivatives_agree(lambda mod, x: mod.nn.functional.avg_pool2d(x, 2, divisor_override=3), x)
    for dims in (1, 2, 3):
        (x,) = arrays(SHAPES[dims])
        derivatives_agree(lambda mod, x, dims=dims: getattr(mod.nn.functional, f"lp_pool{dims}d")(x, 2.0, 3, 2), x)


ADAPTIVE = [(1, (2, 3, 10), 4), (1, (3, 10), 1), (2, (2, 3, 7, 9), (3, 4)), (2, (2, 3, 8, 8), (4, None)),
            (2, (2, 3, 8, 8), 1), (2, (2, 3, 4, 4), 7), (2, (3, 5, 6), (2, 3)), (3, (2, 2, 5, 6, 7), (2, 3, 4)),
            (3, (2, 2, 4, 4, 4), (None, 2, 1))]


@pytest.mark.parametrize(("dims", "shape", "size"), ADAPTIVE)
def test_adaptive(dims, shape, size):
    (x,) = arrays(shape)
    derivatives_agree(lambda mod, x: getattr(mod.nn.functional, f"adaptive_avg_pool{dims}d")(x, size), x)
    derivatives_agree(lambda mod, x: getattr(mod.nn.functional, f"adaptive_max_pool{dims}d")(x, size, return_indices=True), x)


@pytest.mark.parametrize("dims", [2, 3])
def test_fractional(dims):
    (x,) = arrays((2, 3, *(9,) * dims))
    samples = np.random.default_rng(3).random((2, 3, dims))
    call = lambda mod, x: getattr(mod.nn.functional, f"fractional_max_pool{dims}d")(
        x, 2, output_size=4, return_indices=True, _random_samples=mod.from_numpy(samples))
    derivatives_agree(call, x)
    for mod in (torch, flambeau):
        mod.manual_seed(0)
    derivatives_agree(lambda mod, x: (mod.manual_seed(5), getattr(mod.nn.functional, f"fractional_max_pool{dims}d")(
        x, 3, output_ratio=(0.5,) * dims))[1], x)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unpool(dims):
    def call(mod, x):
        made, at = getattr(mod.nn.functional, f"max_pool{dims}d")(x, 2, return_indices=True)
        return getattr(mod.nn.functional, f"max_unpool{dims}d")(made, at, 2, output_size=x.shape)

    (x,) = arrays((2, 2, *(5,) * dims))
    derivatives_agree(call, x)


def test_second_derivatives():
    (x,) = arrays((1, 2, 5, 5))
    functional = lambda name, *args, **options: lambda mod, x: getattr(mod.nn.functional, name)(x, *args, **options)
    check_derivatives(functional("max_pool2d", 3, 2, 1), x)
    check_derivatives(functional("avg_pool2d", 2, 2, 1, True), x)
    check_derivatives(functional("adaptive_avg_pool2d", (2, 3)), x)
    check_derivatives(functional("adaptive_max_pool2d", (2, 3)), x)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision(name):
    (x,) = arrays((2, 3, 6, 6), dtype=np.float32)
    for function in ("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"):
        made = [getattr(mod.nn.functional, function)(mod.from_numpy(x.copy()).to(getattr(mod, name)), 2)
                for mod in (torch, flambeau)]
        assert str(made[1].dtype) == str(made[0].dtype)
        np.testing.assert_allclose(made[1].float().numpy(), made[0].float().numpy(), 1e-2, 1e-2)


ERRORS = [
    lambda mod: mod.nn.functional.max_pool2d(mod.ones(5, 5), 2),
    lambda mod: mod.nn.functional.max_pool2d(mod.ones(1, 1, 2, 2), 3),
    lambda mod: mod.nn.functional.max_pool2d(mod.ones(1, 1, 4, 4), 2, padding=2),
    lambda mod: mod.nn.functional.max_pool2d(mod.ones(1, 1, 4, 4), 2, stride=0),
    lambda mod: mod.nn.functional.max_pool2d(mod.ones(1, 1, 4, 4), "2"),
    lambda mod: mod.nn.functional.avg_pool2d(mod.ones(1, 1, 4, 4), 2, divisor_override=0),
    lambda mod: mod.nn.functional.avg_pool2d(mod.ones(1, 1, 4, 4), (2, 2, 2)),
    lambda mod: mod.nn.functional.adaptive_avg_pool2d(mod.ones(4, 4), 2),
    lambda mod: mod.nn.functional.fractional_max_pool2d(mod.ones(1, 1, 4, 4), 2),
    lambda mod: mod.nn.functional.fractional_max_pool2d(mod.ones(1, 1, 4, 4), 2, output_size=9),
    lambda mod: mod.nn.functional.max_unpool2d(mod.ones(1, 1, 2, 2), mod.full((1, 1, 2, 2), 99), 2),
    lambda mod: mod.nn.functional.max_unpool2d(mod.ones(1, 1, 2, 2), mod.ones(1, 1, 2, 2), 2),
    lambda mod: mod.nn.functional.max_unpool2d(mod.ones(1, 1, 2, 2), mod.ones(1, 1, 2, 2).long(), 2,
                                               output_size=(9, 9)),
    lambda mod: mod.nn.FractionalMaxPool2d(2, output_size=2, output_ratio=0.5),
    lambda mod: mod.nn.FractionalMaxPool2d(2, output_ratio=2.0),
]


@pytest.mark.parametrize("call", ERRORS, ids=range(len(ERRORS)))
def test_errors(call):
    both_raise(call)


MODULES = [
    (lambda nn: nn.MaxPool1d(2), 1), (lambda nn: nn.MaxPool2d((2, 3), 2, 1, 1, True, True), 2),
    (lambda nn: nn.MaxPool3d(2, ceil_mode=True), 3), (lambda nn: nn.AvgPool1d(2), 1),
    (lambda nn: nn.AvgPool2d(3, 2, 1, True, False), 2), (lambda nn: nn.AvgPool3d(2, divisor_override=3), 3),
    (lambda nn: nn.LPPool2d(2, 3, 2), 2), (lambda nn: nn.AdaptiveMaxPool2d((2, None), True), 2),
    (lambda nn: nn.AdaptiveAvgPool3d(2), 3), (lambda nn: nn.FractionalMaxPool2d(2, output_ratio=0.5), 2),
    (lambda nn: nn.FractionalMaxPool3d(2, 3), 3),
]


@pytest.mark.parametrize(("build", "dims"), MODULES, ids=range(len(MODULES)))
def test_modules(build, dims):
    modules_agree(build, *arrays(SHAPES[dims], dtype=np.float32))


def test_repr_of_unpool():
    assert repr(flambeau.nn.MaxUnpool2d(2, 3)) == repr(torch.nn.MaxUnpool2d(2, 3))


@pytest.mark.parametrize("kind", ["avg", "max"])
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("output", [1, 2, (None,)])
def test_adaptive_shapes(kind, dims, output):
    """Tensors of too few, too many and empty dimensions."""
    for shape in ((), (3,), (3, 3), (3, 3, 3), (3, 3, 3, 3), (0, 3, 3), (3, 0, 3), (1,) * 6, (1, 0, 3, 3)):
        outcomes = []
        for mod in (flambeau, torch):
            try:
                pool = getattr(mod.nn.functional, f"adaptive_{kind}_pool{dims}d")
                outcomes.append(tuple(pool(mod.ones(shape), output).shape))
            except Exception as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1], shape
