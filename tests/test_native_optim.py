"""Native optimizer updates and clipping against NumPy and tensor operations."""

import numpy as np
import pytest
import torch

import flambeau
from flambeau import native
from flambeau.backends.cpu.table import KERNELS
from flambeau.compiler.render import lower, lowerings
from flambeau.nn.utils import clip_grad_norm_, get_total_norm
from flambeau.tensors.parameter import Parameter

pytestmark = pytest.mark.skipif(native.library("optim") is None, reason="there is no C compiler")
SHAPES = [(), (0,), (1,), (3, 5), (17,), (64,), (129, 1030), (2, 0, 3), (100,)]
RULES = [
    ("SGD", dict(lr=0.1)), ("SGD", dict(lr=0.1, weight_decay=0.1, maximize=True)), ("SGD", dict(lr=0.1, momentum=0.9)),
    ("SGD", dict(lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.1)),
    ("SGD", dict(lr=0.1, momentum=0.9, nesterov=True)),
    ("SGD", dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1, maximize=True)),
    ("Adam", {}), ("Adam", dict(weight_decay=0.1)), ("Adam", dict(amsgrad=True, maximize=True)),
    ("Adam", dict(amsgrad=True, weight_decay=0.1)), ("AdamW", {}), ("AdamW", dict(amsgrad=True)),
    ("RMSprop", {}), ("RMSprop", dict(momentum=0.5)), ("RMSprop", dict(centered=True, weight_decay=0.1)),
    ("RMSprop", dict(momentum=0.5, centered=True, maximize=True)), ("RMSprop", dict(weight_decay=0.1)),
    ("Adagrad", dict(lr_decay=0.1, initial_accumulator_value=0.2)), ("Adagrad", dict(weight_decay=0.1, maximize=True)),
    ("Adadelta", {}), ("Adadelta", dict(weight_decay=0.1)), ("Adamax", {}), ("Adamax", dict(weight_decay=0.1)),
    ("NAdam", {}), ("NAdam", dict(weight_decay=0.1)), ("NAdam", dict(weight_decay=0.1, decoupled_weight_decay=True)),
    ("RAdam", dict(lr=0.01)), ("RAdam", dict(weight_decay=0.1)), ("RAdam", dict(weight_decay=0.1, decoupled_weight_decay=True)),
]
IDS = [f"{name}-{'-'.join(options)}" for name, options in RULES]


def trained(name, options, dtype, steps=8, shapes=SHAPES, odd=False):
    """Parameters and state after some steps along given gradients."""
    rng = np.random.RandomState(0)
    params = [Parameter(flambeau.from_numpy(np.asarray(rng.standard_normal(s)).astype(dtype))) for s in shapes]
    optimizer = getattr(flambeau.optim, name)(params, **options)
    for step in range(steps):
        for i, p in enumerate(params):
            gradient = np.asarray(rng.standard_normal(p.shape)).astype(dtype)
            if odd and gradient.size > 2:
                gradient.reshape(-1)[:3] = np.nan, np.inf, -np.inf
            p.grad = None if i == 3 and step == 2 else flambeau.from_numpy(gradient)  # one parameter lags behind
        optimizer.step()
    states = [optimizer.state[p] for p in params]
    return [p.detach().numpy() for p in params] + [s[k].numpy() for s in states for k in sorted(s)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name, options", RULES, ids=IDS)
def test_rules(name, options, dtype, threads):
    ours = trained(name, options, dtype)
    with native.off():
        reference = trained(name, options, dtype)
    tolerance = dict(rtol=2e-6, atol=1e-6) if dtype is np.float32 else dict(rtol=1e-13, atol=1e-14)
    for a, b in zip(ours, reference, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if name == "SGD":
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, **tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("decoupled", [False, True])
def test_adam_rounds_after_every_operation(dtype, decoupled, threads):
    """To the bit what NumPy gives, operation by operation, in the dtype of the parameters."""
    rng = np.random.RandomState(0)
    lr, beta1, beta2, eps, decay = 1e-3, 0.9, 0.999, 1e-8, 0.1
    given = [rng.standard_normal(shape).astype(dtype) for shape in ((17,), (129, 1030)) for _ in range(5)]
    for p, grad, m, v, most in zip(*[iter(given)] * 5):
        v, most, step = np.abs(v), np.abs(most), np.array(3.0, np.float32)
        ours = [a.copy() for a in (p, m, v, most)]
        lists = [[a] for a in (ours[0], grad, *ours[1:], step)]
        KERNELS["fused_adam"](*lists, lr, beta1, beta2, eps, decay, decoupled, False)
        number = dtype
        slope = grad if decoupled else grad + p * number(decay)
        p = p * number(1 - lr * decay) if decoupled else p
        m = m + (slope - m) * number(1 - beta1)
        v = v * number(beta2) + slope * slope * number(1 - beta2)
        most = np.maximum(most, v)
        below = np.sqrt(most) / number((1 - beta2 ** 4) ** 0.5) + number(eps)
        wanted = p - m / below * number(lr / (1 - beta1 ** 4)), m, v, most
        assert step == 4
        for a, b in zip(ours, wanted):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name, options", RULES, ids=IDS)
def test_odd_numbers_spread_alike(name, options):
    ours = trained(name, options, np.float32, odd=True, steps=3)
    with native.off():
        reference = trained(name, options, np.float32, odd=True, steps=3)
    for a, b in zip(ours, reference, strict=True):
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        np.testing.assert_array_equal(np.isinf(a), np.isinf(b))


def kernel_calls(monkeypatch, name):
    """The answers of a kernel from now on."""
    answers, kernel = [], KERNELS[name]

    def noted(*args):
        answers.append(kernel(*args))
        return answers[-1]

    monkeypatch.setitem(KERNELS, name, noted)
    return answers


@pytest.mark.parametrize("name", "Adam SGD RMSprop Adagrad Adadelta Adamax NAdam RAdam".split())
def test_one_call_for_all(name, monkeypatch):
    answers = kernel_calls(monkeypatch, f"fused_{name.lower()}")
    trained(name, {}, np.float32, steps=2, shapes=[(3,), (4, 5)])
    assert answers == [True, True]


def updated(params, grads, **options):
    optimizer = flambeau.optim.Adam(params, **options)
    for _ in range(2):
        for p, g in zip(params, grads):
            p.grad = g
        optimizer.step()
    return [p.detach().to(flambeau.float64).numpy() for p in params]


def test_arrays_that_are_not_plain_go_another_way(monkeypatch):
    """Mixed dtypes, half precision, and gradients with holes: the kernel refuses, nothing is changed twice."""
    rng = np.random.RandomState(1)
    answers = kernel_calls(monkeypatch, "fused_adam")
    for dtypes, transposed in (((np.float32, np.float64), False), ((np.float16,), False), ((np.float32,), True)):
        values = [rng.standard_normal((4, 3)) for _ in dtypes]
        slopes = [rng.standard_normal((3, 4)).T if transposed else rng.standard_normal((4, 3)) for _ in dtypes]
        results = []
        for mod, make in ((flambeau, Parameter), (torch, torch.nn.Parameter)):
            params = [make(mod.from_numpy(v.astype(d))) for v, d in zip(values, dtypes)]
            grads = [mod.from_numpy(g.astype(d, order="K")) for g, d in zip(slopes, dtypes)]
            if mod is flambeau:
                results.append(updated(params, grads))
            else:
                optimizer = torch.optim.Adam(params)
                for _ in range(2):
                    for p, g in zip(params, grads):
                        p.grad = g
                    optimizer.step()
                results.append([p.detach().double().numpy() for p in params])
        assert answers[-2:] == [False, False]
        for a, b in zip(*results):
            np.testing.assert_allclose(a, b, rtol=1e-3 if np.float16 in dtypes else 1e-6)


def test_counts_of_other_types():
    """Counts are float64 where that is the default dtype; whole numbers (old files) are served by tensor operations."""
    paths = []
    for dtype in (flambeau.float32, flambeau.float64, flambeau.int64):
        p = Parameter(flambeau.ones(5))
        optimizer = flambeau.optim.Adam([p], lr=0.1)
        for i in range(3):
            p.grad = flambeau.arange(5.0) - i
            optimizer.step()
            optimizer.state[p]["step"] = optimizer.state[p]["step"].to(dtype)
        assert optimizer.state[p]["step"].item() == 3
        paths.append(p.detach().numpy().copy())
    np.testing.assert_allclose(paths[1], paths[0], rtol=1e-6)
    np.testing.assert_allclose(paths[2], paths[0], rtol=1e-6)


def test_changes_are_counted():
    p = Parameter(flambeau.ones(3))
    optimizer = flambeau.optim.Adam([p])
    loss = (p * p).sum()
    p.grad = flambeau.ones(3)
    before = p._version
    optimizer.step()
    assert p._version == before + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_state_that_does_not_fit_is_refused():
    p = Parameter(flambeau.ones(4))
    optimizer = flambeau.optim.Adam([p])
    p.grad = flambeau.ones(4)
    optimizer.step()
    optimizer.state[p]["exp_avg"] = flambeau.zeros(3)
    with pytest.raises((RuntimeError, ValueError)):
        optimizer.step()


@pytest.mark.parametrize("options", [dict(lr=0.1, momentum=0.9, dampening=0.5), dict(lr=0.1, momentum=0.9, nesterov=True)])
def test_a_parameter_that_joins_later_gets_its_own_first_step(options):
    results = []
    for mod, make in ((flambeau, Parameter), (torch, torch.nn.Parameter)):
        params = [make(mod.ones(4)), make(mod.ones(3))]
        optimizer = mod.optim.SGD(params, **options)
        for step in range(4):
            params[0].grad = mod.arange(4.0) + step
            params[1].grad = mod.arange(3.0) - step if step else None
            optimizer.step()
        results.append([p.detach().numpy() for p in params])
    for a, b in zip(*results):
        np.testing.assert_allclose(a, b, rtol=1e-6)


# ------------------------------------------------------------------------------------------------------------ clipping
def gradients(dtype, odd=None):
    rng = np.random.RandomState(2)
    made = [np.asarray(rng.standard_normal(s)).astype(dtype) for s in [(), (3,), (0,), (129, 1030), (50, 7)]]
    if odd is not None:
        made[3][5, 7] = odd
    return made


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", [1, 2, float("inf")])
@pytest.mark.parametrize("odd", [None, np.nan, np.inf, -np.inf])
def test_total_norm(dtype, order, odd, threads):
    arrays = gradients(dtype, odd)
    ours = get_total_norm([flambeau.from_numpy(a.copy()) for a in arrays], order)
    theirs = torch.nn.utils.get_total_norm([torch.from_numpy(a.copy()) for a in arrays if a.size], order)
    assert ours.shape == () and ours.numpy().dtype == dtype
    np.testing.assert_allclose(ours.item(), theirs.item(), rtol=1e-5 if dtype is np.float32 else 1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("limit, odd", [(0.5, None), (1e6, None), (2, np.nan), (1.0, np.inf)])
def test_clipping(dtype, limit, odd, threads, monkeypatch):
    answers = kernel_calls(monkeypatch, "fused_clip")
    arrays = [a for a in gradients(dtype, odd) if a.size]
    results = []
    for mod, make in ((flambeau, Parameter), (torch, torch.nn.Parameter)):
        params = [make(mod.from_numpy(a.copy())) for a in arrays]
        for p, a in zip(params, arrays):
            p.grad = mod.from_numpy(a.copy())
        total = (clip_grad_norm_ if mod is flambeau else torch.nn.utils.clip_grad_norm_)(params, limit)
        results.append([total.numpy(), *[p.grad.numpy() for p in params]])
    assert answers == [True]
    for a, b in zip(*results):
        np.testing.assert_allclose(a, b, rtol=2e-5 if dtype is np.float32 else 1e-12)


def test_clipping_of_several_dtypes_and_with_a_tensor():
    params = [Parameter(flambeau.ones(3)), Parameter(flambeau.ones(3, dtype=flambeau.float64))]
    for p in params:
        p.grad = flambeau.full_like(p, 2.0).detach()
    total = clip_grad_norm_(params, flambeau.tensor(1.0))
    assert total.item() == pytest.approx(24**0.5)
    for p in params:
        np.testing.assert_allclose(p.grad.numpy(), 2 / 24**0.5, rtol=1e-6)


def test_clipping_counts_its_change():
    p = Parameter(flambeau.ones(3))
    p.grad = flambeau.ones(3)
    before = p.grad._version
    clip_grad_norm_([p], 0.1)
    assert p.grad._version > before


# ------------------------------------------------------------------------------------------------------------ compiled
def noted_lowerings(monkeypatch, *kernels):
    """What the lowerings of these kernels answer from now on."""
    lower._load()
    answers = []
    for kernel in kernels:
        lowering = lowerings.LOWERINGS[kernel]
        monkeypatch.setitem(lowerings.LOWERINGS, kernel, lambda op, real=lowering: answers.append(real(op)) or answers[-1])
    return answers


def learned(name, options, compiled):
    """The parameters after some steps, with a learning rate that changes on the way."""
    rng = np.random.RandomState(3)
    params = [Parameter(flambeau.from_numpy(rng.standard_normal(s).astype(np.float32))) for s in ((3, 5), (7,))]
    target = flambeau.from_numpy(rng.standard_normal(7).astype(np.float32))
    optimizer = getattr(flambeau.optim, name)(params, **options)

    def step():
        optimizer.zero_grad()
        loss = (params[0] * params[0]).sum() + ((params[1] - target) ** 2).sum()
        loss.backward()
        clip_grad_norm_(params, 0.5)
        optimizer.step()
        return loss

    run = flambeau.compile(step) if compiled else step
    for i in range(6):
        run()
        if i == 3:
            optimizer.param_groups[0]["lr"] *= 0.25
    counts = [optimizer.state[p]["step"].item() for p in params if "step" in optimizer.state[p]]
    return [p.detach().numpy() for p in params], counts


@pytest.mark.parametrize("name, options", RULES, ids=IDS)
def test_compiled_steps(name, options, monkeypatch):
    expected, counts = learned(name, options, False)
    kernel = "fused_adam" if name == "AdamW" else f"fused_{name.lower()}"
    answers = noted_lowerings(monkeypatch, kernel, "fused_norm", "fused_clip")
    given, compiled_counts = learned(name, options, True)
    assert len(answers) >= 3 and None not in answers
    assert compiled_counts == counts
    for a, b in zip(given, expected):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
