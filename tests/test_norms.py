"""Normalization functions and layers, against torch."""

import numpy as np
import pytest
import torch
from compare import Tolerance, agree, both_raise, same
from layer_cases import arrays, check_derivatives, derivatives_agree, modules_agree

import flambeau

SHAPES = [(5, 3), (4, 3, 6), (3, 4, 5, 6), (2, 3, 3, 2, 4)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm(shape, training, affine):
    channels = shape[1]
    stats = arrays((channels,), (channels,), seed=7)

    def call(mod, x, *affine):
        mean, var = mod.from_numpy(stats[0].copy()), mod.from_numpy(np.abs(stats[1]) + 0.5)
        made = mod.nn.functional.batch_norm(x, mean, var, *affine, training=training, momentum=0.3)
        return made, mean, var

    derivatives_agree(call, *arrays(shape, (channels,), (channels,))[:3 if affine else 1])


def test_large_batches_share_the_cores():
    for shape in ((33, 16, 32, 32), (64, 64, 9, 9)):
        inputs = arrays(shape, (shape[1],), (shape[1],), dtype=np.float32)
        derivatives_agree(lambda mod, x, w, b: mod.nn.functional.batch_norm(x + 3, None, None, w, b, True), *inputs,
                          tolerance=Tolerance(1e-4, 1e-2))
        derivatives_agree(lambda mod, x, w, b: mod.nn.functional.group_norm(x, 4, w, b), *inputs,
                          tolerance=Tolerance(1e-4, 1e-2))
    inputs = arrays((700, 512), (512,), (512,), dtype=np.float32)
    derivatives_agree(lambda mod, x, w, b: mod.nn.functional.layer_norm(x, (512,), w, b), *inputs,
                      tolerance=Tolerance(1e-4, 1e-3))


def test_two_forward_passes_before_one_backward():
    """The update of the running statistics does not invalidate what an earlier pass saved."""
    def program(mod):
        layer = mod.nn.BatchNorm1d(3)
        x = (mod.arange(12.0).reshape(4, 3) - 5).square().requires_grad_()
        weight = mod.arange(12.0).reshape(4, 3)
        first, second = layer(x), layer(x * 2)
        ((first + second) * weight).sum().backward()
        layer.eval()
        out = layer(x)
        layer.train()
        layer(x)
        (out * weight).sum().backward()
        return x.grad, layer.weight.grad, layer.state_dict()

    agree(program, Tolerance(1e-5, 1e-5))


@pytest.mark.parametrize(("shape", "dims"), [((5, 6), 1), ((2, 3, 6), 1), ((2, 3, 4), 2), ((3, 4), 2), ((0, 4), 1)])
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(shape, dims, affine):
    inner = shape[len(shape) - dims:]
    derivatives_agree(lambda mod, x, *t: mod.nn.functional.layer_norm(x, inner, *t),
                      *arrays(shape, inner, inner)[:3 if affine else 1])
    derivatives_agree(lambda mod, x, *t: mod.nn.functional.rms_norm(x, inner, *t, eps=1e-3),
                      *arrays(shape, inner)[:2 if affine else 1])


@pytest.mark.parametrize(("shape", "groups"), [((2, 4, 5), 2), ((3, 6), 3), ((2, 4, 3, 3), 1), ((2, 4, 3, 3), 4)])
@pytest.mark.parametrize("affine", [True, False])
def test_group_norm(shape, groups, affine):
    c = shape[1]
    derivatives_agree(lambda mod, x, *t: mod.nn.functional.group_norm(x, groups, *t),
                      *arrays(shape, (c,), (c,))[:3 if affine else 1])


@pytest.mark.parametrize("shape", SHAPES[1:])
@pytest.mark.parametrize("own", [True, False])
def test_instance_norm(shape, own):
    c = shape[1]
    stats = np.abs(arrays((2, c))[0]) + 0.5

    def call(mod, x, w, b):
        mean, var = mod.from_numpy(stats[0].copy()), mod.from_numpy(stats[1].copy())
        return mod.nn.functional.instance_norm(x, mean, var, w, b, use_input_stats=own, momentum=0.4), mean, var

    derivatives_agree(call, *arrays(shape, (c,), (c,)))
    derivatives_agree(lambda mod, x: mod.nn.functional.instance_norm(x), *arrays(shape))


def test_across_channels_and_vectors():
    for shape in ((2, 5, 4), (2, 5, 3, 3), (2, 5, 3, 2, 2)):
        for size in (2, 3):
            derivatives_agree(lambda mod, x, size=size: mod.nn.functional.local_response_norm(x, size, 0.5, 0.6, 2.0),
                              *arrays(shape))
    for p in (1.0, 2.0, 3.0, float("inf")):
        derivatives_agree(lambda mod, x, p=p: mod.nn.functional.normalize(x, p, dim=-1), *arrays((3, 5)))


def test_second_derivatives():
    functional = lambda name, *args: lambda mod, x, *t: getattr(mod.nn.functional, name)(x, *args, *t)
    check_derivatives(functional("batch_norm", None, None, None, None, True), *arrays((3, 2, 3)))
    check_derivatives(lambda mod, x, w, b: mod.nn.functional.batch_norm(x, None, None, w, b, True), *arrays((4, 2), (2,), (2,)))
    check_derivatives(functional("layer_norm", (3,)), *arrays((2, 3), (3,), (3,)))
    check_derivatives(functional("layer_norm", (3,)), *arrays((3,), (3,), (3,)))
    check_derivatives(functional("group_norm", 2), *arrays((2, 4, 3), (4,), (4,)))
    stats = [flambeau.zeros(2, dtype=flambeau.float64), flambeau.ones(2, dtype=flambeau.float64)]
    check_derivatives(lambda mod, x, w, b: mod.nn.functional.batch_norm(x, *stats, w, b), *arrays((3, 2), (2,), (2,)))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision(name):
    (x,) = arrays((4, 6, 5), dtype=np.float32)
    calls = [lambda mod, x: mod.nn.functional.layer_norm(x, (5,)), lambda mod, x: mod.nn.functional.group_norm(x, 3),
             lambda mod, x: mod.nn.functional.rms_norm(x, (5,)),
             lambda mod, x: mod.nn.functional.batch_norm(x, None, None, training=True)]
    for call in calls:
        made = [call(mod, mod.from_numpy(x.copy()).to(getattr(mod, name))) for mod in (torch, flambeau)]
        same(*made, Tolerance(1e-2, 2e-2))


def test_running_statistics_over_batches():
    """momentum=None keeps the mean over all batches."""
    for momentum in (0.1, None):
        layers = [mod.nn.BatchNorm2d(3, momentum=momentum) for mod in (torch, flambeau)]
        for seed in range(3):
            (x,) = arrays((4, 3, 5, 5), seed=seed, dtype=np.float32)
            for mod, layer in zip((torch, flambeau), layers):
                layer(mod.from_numpy(x.copy()))
        same(*[layer.state_dict() for layer in layers])
        made = [layer.eval()(mod.from_numpy(x.copy())) for mod, layer in zip((torch, flambeau), layers)]
        same(*made, 1e-5)


ERRORS = [
    lambda mod: mod.nn.functional.batch_norm(mod.ones(1, 3), None, None, training=True),
    lambda mod: mod.nn.functional.batch_norm(mod.ones(2, 3), None, None),
    lambda mod: mod.nn.functional.batch_norm(mod.ones(2, 3), mod.ones(2), mod.ones(2)),
    lambda mod: mod.nn.functional.batch_norm(mod.ones(2, 3), None, None, mod.ones(2), training=True),
    lambda mod: mod.nn.functional.layer_norm(mod.ones(2, 3), (2,)),
    lambda mod: mod.nn.functional.layer_norm(mod.ones(2, 3), ()),
    lambda mod: mod.nn.functional.layer_norm(mod.ones(2, 3), (3,), mod.ones(2)),
    lambda mod: mod.nn.functional.layer_norm(mod.ones(2, 3).long(), (3,)),
    lambda mod: mod.nn.functional.group_norm(mod.ones(2, 3), 2),
    lambda mod: mod.nn.functional.group_norm(mod.ones(2, 4), 2, mod.ones(3)),
    lambda mod: mod.nn.functional.instance_norm(mod.ones(2, 4, 1)),
    lambda mod: mod.nn.functional.local_response_norm(mod.ones(2, 4), 2),
    lambda mod: mod.nn.BatchNorm1d(3)(mod.ones(2, 3, 4, 5)),
    lambda mod: mod.nn.BatchNorm2d(3)(mod.ones(2, 3)),
    lambda mod: mod.nn.BatchNorm3d(3)(mod.ones(2, 3)),
    lambda mod: mod.nn.InstanceNorm2d(3)(mod.ones(2, 3)),
    lambda mod: mod.nn.InstanceNorm2d(3, affine=True)(mod.ones(2, 4, 3, 3)),
    lambda mod: mod.nn.GroupNorm(2, 3),
]


@pytest.mark.parametrize("call", ERRORS, ids=range(len(ERRORS)))
def test_errors(call):
    both_raise(call)


MODULES = [
    (lambda nn: nn.BatchNorm1d(3), (4, 3)), (lambda nn: nn.BatchNorm1d(3, affine=False), (4, 3, 5)),
    (lambda nn: nn.BatchNorm2d(3, track_running_stats=False), (4, 3, 5, 5)),
           (lambda nn: nn.BatchNorm3d(3), (2, 3, 2, 2, 2)),
    (lambda nn: nn.BatchNorm2d(3, bias=False), (4, 3, 5, 5)), (lambda nn: nn.InstanceNorm1d(3), (4, 3, 5)),
    (lambda nn: nn.InstanceNorm2d(3, affine=True, track_running_stats=True), (3, 4, 5)),
    (lambda nn: nn.LayerNorm((3, 4)), (2, 3, 4)), (lambda nn: nn.LayerNorm(4, bias=False), (2, 3, 4)),
    (lambda nn: nn.GroupNorm(2, 4, affine=False), (2, 4, 3)), (lambda nn: nn.RMSNorm(4), (2, 3, 4)),
    (lambda nn: nn.LocalResponseNorm(2), (2, 3, 4)), (lambda nn: nn.CrossMapLRN2d(3, 0.5), (2, 5, 4, 4)),
    (lambda nn: nn.CrossMapLRN2d(4, 0.5), (2, 5, 4, 4)), (lambda nn: nn.LazyBatchNorm2d(), (2, 3, 4, 4)),
    (lambda nn: nn.LazyInstanceNorm1d(), (2, 3, 4)),
]


@pytest.mark.parametrize(("build", "shape"), MODULES, ids=range(len(MODULES)))
def test_modules(build, shape):
    modules_agree(build, *arrays(shape, dtype=np.float32))


def test_sync_batch_norm_is_batch_norm_without_a_group():
    nn = flambeau.nn
    model = nn.Sequential(nn.Conv2d(3, 4, 3),
                          nn.Sequential(nn.BatchNorm2d(4), nn.ReLU() if hasattr(nn, "ReLU") else nn.Identity()))
    x = flambeau.randn(2, 3, 6, 6)
    expected = model(x)
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    assert type(converted[1][0]) is nn.SyncBatchNorm and converted[1][0].weight is model[1][0].weight
    np.testing.assert_allclose(converted(x).detach().numpy(), expected.detach().numpy(), 1e-5, 1e-6)
    assert repr(nn.SyncBatchNorm(3)) == repr(torch.nn.SyncBatchNorm(3))


def test_old_checkpoints_without_num_batches_tracked():
    def program(mod):
        layer = mod.nn.BatchNorm1d(2)
        layer(mod.arange(6.0).reshape(3, 2))
        state = layer.state_dict()
        del state["num_batches_tracked"], state._metadata
        other = mod.nn.BatchNorm1d(2)
        return other.load_state_dict(state), other.state_dict()

    agree(program)
