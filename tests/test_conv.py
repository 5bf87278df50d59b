"""Convolutions, their transposes, unfold and fold, against torch."""

import numpy as np
import pytest
import torch
from compare import Tolerance, both_raise
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_cases import arrays, check_derivatives, derivatives_agree, modules_agree

import flambeau

CONV = [  # dims, input, weight, arguments
    (1, (2, 3, 9), (4, 3, 3), {}),
    (1, (3, 9), (4, 3, 3), {"stride": 2, "padding": 1}),
    (1, (2, 4, 10), (6, 2, 3), {"groups": 2, "dilation": 2}),
    (2, (2, 3, 7, 8), (4, 3, 3, 2), {}),
    (2, (3, 7, 8), (4, 3, 3, 3), {"padding": 1}),
    (2, (2, 3, 7, 8), (4, 3, 3, 3), {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}),
    (2, (2, 4, 7, 7), (6, 2, 3, 3), {"groups": 2, "padding": 1}),
    (2, (2, 4, 7, 7), (4, 1, 3, 3), {"groups": 4, "padding": 1}),
    (2, (2, 4, 7, 7), (4, 1, 3, 3), {"groups": 4, "stride": 2}),
    (2, (2, 4, 7, 7), (8, 1, 3, 3), {"groups": 4}),
    (2, (2, 4, 5, 5), (3, 4, 1, 1), {}),
    (2, (2, 4, 5, 5), (3, 4, 1, 1), {"stride": 2}),
    (2, (2, 3, 6, 6), (4, 3, 3, 3), {"padding": "same"}),
    (2, (2, 3, 6, 6), (4, 3, 2, 4), {"padding": "same", "dilation": 2}),
    (2, (2, 3, 6, 6), (4, 3, 2, 4), {"padding": "valid"}),
    (2, (1, 2, 20, 20), (3, 2, 3, 3), {}),
    (2, (0, 2, 6, 6), (3, 2, 3, 3), {}),
    (3, (2, 2, 4, 5, 6), (3, 2, 2, 3, 2), {}),
    (3, (2, 2, 4, 5, 6), (3, 2, 2, 3, 2), {"stride": 2, "padding": 1}),
    (3, (2, 4, 4, 4, 4), (4, 1, 2, 2, 2), {"groups": 4}),
]
TRANSPOSED = [
    (1, (2, 3, 5), (3, 4, 3), {}),
    (1, (3, 5), (3, 4, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    (2, (2, 3, 4, 5), (3, 4, 3, 2), {}),
    (2, (2, 4, 4, 5), (4, 3, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2}),
    (2, (2, 4, 4, 4), (4, 1, 3, 3), {"groups": 4, "stride": 2}),
    (2, (2, 3, 4, 4), (3, 2, 3, 3), {"dilation": 3, "output_padding": 2}),
    (3, (2, 3, 3, 3, 3), (3, 2, 2, 3, 2), {"stride": 2, "dilation": 2}),
]


@pytest.mark.parametrize(("dims", "shape", "weight", "options"), CONV)
@pytest.mark.parametrize("bias", [True, False])
def test_convolution(dims, shape, weight, options, bias):
    inputs = arrays(shape, weight, (weight[0],))[:3 if bias else 2]
    derivatives_agree(lambda mod, *t: getattr(mod.nn.functional, f"conv{dims}d")(*t, **options), *inputs)


@pytest.mark.parametrize(("dims", "shape", "weight", "options"), TRANSPOSED)
def test_transposed(dims, shape, weight, options):
    inputs = arrays(shape, weight, (weight[1] * options.get("groups", 1),))
    derivatives_agree(lambda mod, *t: getattr(mod.nn.functional, f"conv_transpose{dims}d")(*t, **options), *inputs)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_geometry(data):
    """Random sizes, strides, paddings, dilations and groups, in both directions."""
    draw = lambda low, high: data.draw(st.integers(low, high))
    groups = draw(1, 3)
    kernel, stride, padding, dilation = [[draw(low, 3) for _ in range(2)] for low in (1, 1, 0, 1)]
    size = [d * (k - 1) + 1 + draw(0, 6) for d, k in zip(dilation, kernel)]
    n, each, out = draw(1, 3), draw(1, 2), draw(1, 3)
    options = dict(stride=stride, padding=padding, dilation=dilation, groups=groups)
    inputs = arrays((n, each * groups, *size), (out * groups, each, *kernel), (out * groups,))
    derivatives_agree(lambda mod, *t: mod.conv2d(*t, **options), *inputs)
    if min((s - 1) * t - 2 * p + d * (k - 1) + 1 for s, t, p, d, k in zip(size, stride, padding, dilation, kernel)) > 0:
        inputs = arrays((n, each * groups, *size), (each * groups, out, *kernel), (out * groups,))
        derivatives_agree(lambda mod, *t: mod.conv_transpose2d(*t, **options), *inputs)


def test_many_samples_share_the_cores():
    """Large enough for two threads and several pieces of the batch."""
    inputs = arrays((17, 8, 20, 20), (16, 8, 3, 3), (16,), dtype=np.float32)
    derivatives_agree(lambda mod, x, w, b: mod.conv2d(x, w, b, padding=1), *inputs, tolerance=Tolerance(1e-4, 1e-3))
    inputs = arrays((40, 32, 5, 5), (48, 32, 3, 3), dtype=np.float32)
    derivatives_agree(lambda mod, x, w: mod.conv2d(x, w, padding=1), *inputs, tolerance=Tolerance(1e-4, 1e-3))


def test_complex():
    pair = [a + 1j * b for a, b in zip(arrays((2, 2, 5, 5), (3, 2, 2, 2)), arrays((2, 2, 5, 5), (3, 2, 2, 2), seed=1))]
    results = []
    for mod in (torch, flambeau):
        x, w = [mod.from_numpy(a.copy()).requires_grad_(True) for a in pair]
        y = mod.conv2d(x, w)
        (y * y.conj()).real.sum().backward()
        results.append([t.detach().resolve_conj().numpy() for t in (y, x.grad, w.grad)])
    for expected, got in zip(*results):
        np.testing.assert_allclose(got, expected, 1e-9, 1e-9)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision_rounds_once(name):
    x, w = arrays((2, 16, 8, 8), (8, 16, 3, 3), dtype=np.float32)
    made = [mod.conv2d(mod.from_numpy(x.copy()).to(getattr(mod, name)), mod.from_numpy(w.copy()).to(getattr(mod, name)))
            for mod in (torch, flambeau)]
    np.testing.assert_allclose(made[1].float().numpy(), made[0].float().numpy(), 1e-2, 1e-2)


@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1}, {"groups": 2}])
def test_second_derivatives(options):
    groups = options.get("groups", 1)
    check_derivatives(lambda mod, x, w, b: mod.conv2d(x, w, b, **options), *arrays((2, 2, 4, 4), (2, 2 // groups, 2, 2), (2,)))
    check_derivatives(lambda mod, x, w: mod.conv_transpose2d(x, w, **options), *arrays((2, 2, 3, 3), (2, 1, 2, 2)))


def test_layouts_that_are_not_contiguous():
    x, w = arrays((2, 5, 6, 3), (4, 3, 3, 3))
    derivatives_agree(lambda mod, x, w: mod.conv2d(x.permute(0, 3, 1, 2), w), x, w)
    derivatives_agree(lambda mod, x, w: mod.conv2d(x[:, :, ::2, 1:], w.transpose(2, 3)), *arrays((2, 3, 9, 6), (4, 3, 3, 3)))


FOLDS = [((2, 3, 6, 7), (2, 3), {}), ((3, 6, 7), 2, {"stride": 2}), ((2, 3, 6, 7), 3, {"padding": 1, "dilation": 2}),
         ((2, 1, 5, 5), (1, 5), {"padding": (1, 0)})]


@pytest.mark.parametrize(("shape", "kernel", "options"), FOLDS)
def test_unfold_and_fold(shape, kernel, options):
    (x,) = arrays(shape)
    derivatives_agree(lambda mod, x: mod.nn.functional.unfold(x, kernel, **options), x)
    columns = torch.nn.functional.unfold(torch.from_numpy(x), kernel, **options).numpy()
    derivatives_agree(lambda mod, c: mod.nn.functional.fold(c, shape[-2:], kernel, **options), columns)
    check_derivatives(lambda mod, x: mod.nn.functional.unfold(x, kernel, **options), x[..., :1, :, :])


ERRORS = [
    lambda mod: mod.conv2d(mod.ones(2, 3, 5), mod.ones(1, 1, 2, 2)),
    lambda mod: mod.conv2d(mod.ones(5), mod.ones(1, 1, 2, 2)),
    lambda mod: mod.conv2d(mod.ones(1, 1, 2, 2), mod.ones(1, 1, 3, 3)),
    lambda mod: mod.conv2d(mod.ones(1, 1, 5, 5), mod.ones(1, 1, 3, 3), mod.ones(2)),
    lambda mod: mod.conv2d(mod.ones(1, 1, 5, 5), mod.ones(1, 1, 3, 3), stride=0),
    lambda mod: mod.conv2d(mod.ones(1, 1, 5, 5), mod.ones(1, 1, 3, 3), stride=(1, 1, 1)),
    lambda mod: mod.conv2d(mod.ones(1, 1, 5, 5), mod.ones(1, 1, 3, 3), padding=-1),
    lambda mod: mod.conv2d(mod.ones(1, 1, 5, 5), mod.ones(1, 1, 3, 3), padding="half"),
    lambda mod: mod.conv2d(mod.ones(1, 1, 5, 5), mod.ones(1, 1, 3, 3), padding="same", stride=2),
    lambda mod: mod.conv2d(mod.ones(1, 1, 5, 5), mod.ones(1, 1, 3, 3).double()),
    lambda mod: mod.conv2d(mod.ones(1, 2, 5, 5), mod.ones(3, 1, 3, 3), groups=2),
    lambda mod: mod.conv2d(mod.ones(1, 2, 5, 5), None),
    lambda mod: mod.conv_transpose2d(mod.ones(1, 2, 5, 5), mod.ones(3, 1, 3, 3)),
    lambda mod: mod.conv_transpose2d(mod.ones(1, 1, 5, 5), mod.ones(1, 1, 3, 3), output_padding=1),
    lambda mod: mod.nn.functional.unfold(mod.ones(1, 1, 2, 2), 3),
    lambda mod: mod.nn.functional.fold(mod.ones(1, 9, 3), (4, 4), 3),
    lambda mod: mod.nn.functional.fold(mod.ones(1, 8, 4), (4, 4), 3),
    lambda mod: mod.nn.Conv2d(3, 4, 3, groups=2),
    lambda mod: mod.nn.Conv2d(3, 4, 3, padding_mode="mirror"),
    lambda mod: mod.nn.Conv2d(3, 4, 3, padding="same", stride=2),
    lambda mod: mod.nn.ConvTranspose2d(3, 4, 3, padding_mode="reflect"),
    lambda mod: mod.nn.ConvTranspose2d(3, 4, 3)(mod.ones(1, 3, 4, 4), output_size=(9, 9)),
]


@pytest.mark.parametrize("call", ERRORS, ids=range(len(ERRORS)))
def test_errors(call):
    both_raise(call)


MODULES = [
    lambda nn: nn.Conv1d(3, 4, 3), lambda nn: nn.Conv2d(4, 6, (3, 2), 2, 1, 2, 2, False),
    lambda nn: nn.Conv2d(3, 4, 3, padding="same"), lambda nn: nn.Conv3d(2, 4, 2),
    lambda nn: nn.ConvTranspose1d(3, 4, 3), lambda nn: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2),
    lambda nn: nn.ConvTranspose3d(2, 4, 2), lambda nn: nn.Fold((4, 5), 2), lambda nn: nn.Unfold(2, stride=2),
]
INPUTS = [(2, 3, 8), (2, 4, 9, 9), (2, 3, 6, 6), (2, 2, 4, 4, 4), (2, 3, 8), (2, 4, 5, 5), (2, 2, 3, 3, 3), (2, 12, 12),
          (2, 3, 6, 6)]


@pytest.mark.parametrize(("build", "shape"), list(zip(MODULES, INPUTS)), ids=range(len(INPUTS)))
def test_modules_start_as_torch(build, shape):
    modules_agree(build, *arrays(shape, dtype=np.float32))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_padding_modes(mode):
    modules_agree(lambda nn: nn.Conv2d(3, 4, 3, padding=(2, 1), padding_mode=mode),
                  *arrays((2, 3, 6, 7), dtype=np.float32))


@pytest.mark.parametrize(("name", "shape"), [("LazyConv2d", (2, 3, 6, 6)), ("LazyConvTranspose1d", (2, 3, 6))])
def test_lazy_modules(name, shape):
    (x,) = arrays(shape, dtype=np.float32)
    modules_agree(lambda nn: getattr(nn, name)(4, 3), x)
    module = getattr(flambeau.nn, name)(4, 3)
    module(flambeau.from_numpy(x))
    assert type(module).__name__ == name[4:] and module.in_channels == 3


def test_output_size():
    (x,) = arrays((1, 2, 4, 4), dtype=np.float32)
    made = []
    for mod in (torch, flambeau):
        mod.manual_seed(0)
        made.append(mod.nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1)(mod.from_numpy(x.copy()), output_size=[8, 8]))
    np.testing.assert_allclose(made[1].detach().numpy(), made[0].detach().numpy(), 1e-5, 1e-6)
