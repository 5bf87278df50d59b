"""TorchDispatchMode: the operations that PyTorch shows below autograd are those that flambeau shows."""

from __future__ import annotations

import importlib
from collections import Counter

import pytest
import torch
from compare import same
from dispatch_programs import PROGRAMS

import flambeau

MODULES = (flambeau, torch)


def mode_class(m):
    return importlib.import_module(f"{m.__name__}.utils._python_dispatch").TorchDispatchMode


def logging(m):
    class Logging(mode_class(m)):
        def __init__(self):
            super().__init__()
            self.log = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if not str(func).startswith("profiler."):  # PyTorch's optimizers tell its profiler of their steps
                self.log.append(str(func))
            return func(*args, **(kwargs or {}))

    return Logging()


def stream(m, prepare):
    m.manual_seed(0)
    run = prepare(m)
    with logging(m) as mode:
        run()
    return mode.log


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_streams_of_operations(name):
    ours, theirs = [stream(m, PROGRAMS[name]) for m in MODULES]
    if name.endswith("in_any_order"):
        ours, theirs = Counter(ours), Counter(theirs)
    assert ours == theirs


def test_modes_inside_each_other_and_what_their_handlers_call():
    def program(m):
        log = []

        class Mode(mode_class(m)):
            def __init__(self, name):
                super().__init__()
                self.name = name

            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                log.append((self.name, str(func), len(args), sorted(kwargs or {})))
                if self.name == "inner" and "add" in str(func):
                    m.ones(1)
                return func(*args, **(kwargs or {}))

        with Mode("outer"), Mode("inner"):
            m.ones(2) + 1
            m.zeros(2, 2).sum(0)
        m.ones(1)
        return log

    assert program(flambeau) == program(torch)


def test_results_can_be_replaced_and_are_still_recorded():
    def program(m):
        class Doubled(mode_class(m)):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                out = func(*args, **(kwargs or {}))
                return out * 2 if str(func) == "aten.mul.Tensor" else out

        x = m.tensor([3.0], requires_grad=True)
        with Doubled():
            y = x * 5
        y.backward()
        return y.item(), x.grad.item(), y.grad_fn.name(), y.requires_grad

    assert program(flambeau) == program(torch)


def test_a_handler_runs_below_autograd():
    def program(m):
        seen = []

        class Looking(mode_class(m)):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                out = func(*args, **(kwargs or {}))
                seen.append((args[0].requires_grad, (args[0] * 2).requires_grad, out.requires_grad))
                return out

        x = m.ones(2, requires_grad=True)
        with Looking():
            y = x.exp()
        return seen[0], y.requires_grad

    assert program(flambeau) == program(torch)


CALLS = {
    "prod": lambda m, x: x.prod(1), "cumprod": lambda m, x: x.cumprod(0), "lgamma": lambda m, x: x.lgamma(),
    "softmin": lambda m, x: m.nn.functional.softmin(x, 1), "einsum": lambda m, x: m.einsum("ij,kj->ik", x, x),
    "inverse": lambda m, x: m.linalg.inv(x @ x.T + m.eye(3, dtype=x.dtype)), "qr": lambda m, x: m.linalg.qr(x.T)[1],
    "std_mean": lambda m, x: m.std_mean(x, 1)[0], "layer_norm": lambda m, x: m.nn.functional.layer_norm(x, (4,)),
    "cross_entropy": lambda m, x: m.nn.functional.cross_entropy(x, m.tensor([0, 1, 3])),
    "gelu": lambda m, x: m.nn.functional.gelu(x), "scatter": lambda m, x: x.scatter(1, m.zeros(3, 1, dtype=m.long), 0.0),
    "in place": lambda m, x: (x * 1).pow_(3).mul_(x), "of a view": lambda m, x: x.clone()[1].add_(x[0]).mul_(x[2]),
    "norm of order 3": lambda m, x: x.norm(3, dim=1), "avg_pool1d": lambda m, x: m.nn.functional.avg_pool1d(x, 2),
    "unfold": lambda m, x: x.unfold(1, 2, 1), "atan2": lambda m, x: m.atan2(x, x.flip(0)), "lu": lambda m, x: m.linalg.lu(x)[2],
    "nested views": lambda m, x: x.as_strided((2, 2), (1, 2)).t(), "batch_norm": lambda m, x: m.nn.functional.batch_norm(
        x, None, None, training=True), "hardtanh": lambda m, x: m.nn.functional.hardtanh(x, 0.2, 0.6)}


@pytest.mark.parametrize("name", CALLS)
def test_a_mode_changes_no_values_and_no_gradients(name):
    """First and second derivatives of what has formulas of its own below autograd, and of what has none."""
    def gradients():
        x = ((flambeau.arange(12.0, dtype=flambeau.float64).view(3, 4) * 0.7).sin() * 0.4 + 0.5).requires_grad_()
        y = CALLS[name](flambeau, x)
        g, = flambeau.autograd.grad((y * y).sum() + y.sum(), x, create_graph=True)
        gg, = flambeau.autograd.grad((g * g).sum(), x)
        return y.detach(), g.detach(), gg

    plain = gradients()
    with logging(flambeau) as mode:
        watched = gradients()
    assert mode.log
    for a, b in zip(plain, watched):
        assert a.shape == b.shape
        assert flambeau.allclose(a, b, rtol=1e-9, atol=1e-9)


def test_plain_tensors_do_not_ask_once_a_mode_is_left():
    from flambeau.ops.core import overrides
    before = overrides.active
    with logging(flambeau):
        assert overrides.active
    assert overrides.active == before


def test_forms_of_calls_that_handlers_see():
    """Arguments that say what is said by default are left out, as in PyTorch."""
    def program(m):
        seen = []

        class Seen(mode_class(m)):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                seen.append((str(func), [list(a.shape) if isinstance(a, m.Tensor) else a for a in args],
                             {k: str(v) for k, v in (kwargs or {}).items()}))
                return func(*args, **(kwargs or {}))

        x = m.ones(2, 3)
        with Seen():
            m.add(x, x, alpha=2)
            x.sum(1, keepdim=True)
            x.clamp(max=2)
            m.nn.functional.max_pool2d(x.view(1, 2, 3), 2)
            x[0, 1:]
            x.var(0, correction=0)
            m.zeros(2, dtype=m.float64)
            x.to(m.int64)
            m.nn.functional.conv1d(x.view(1, 2, 3), m.ones(1, 2, 2))
        return seen

    assert program(flambeau) == program(torch)


def test_a_list_that_holds_itself_is_refused_as_ever():
    class Quiet(flambeau.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    within = []
    within.append(within)
    with pytest.raises(ValueError, match="too many dimensions"):
        flambeau.tensor(within)


def _normal(m, *shape):
    return m.arange(float(m.Size(shape).numel())).view(shape).sin()


def _images(m):
    return _normal(m, 2, 3, 6, 6)


def _pooled(m, x):
    return m.ops.aten.max_pool2d_with_indices(x, [2, 2], [2, 2], [0, 0], [1, 1], False)


# Backward operations, called by themselves: aten has the module's operations, m its functions.
BACKWARDS = {
    **{f"{name}_backward": lambda m, aten, name=name, options=options: getattr(aten, f"{name}_backward")(
        _normal(m, 3, 4), _normal(m, 3, 4) * 2, *options) for name, options in (
            ("silu", ()), ("mish", ()), ("hardswish", ()), ("hardsigmoid", ()), ("tanh", ()), ("sigmoid", ()), ("gelu", ()),
            ("softplus", (2, 1)), ("leaky_relu", (0.1, False)), ("hardtanh", (-0.5, 0.7)), ("threshold", (0.2,)))},
    "gelu of tanh": lambda m, aten: aten.gelu_backward(_normal(m, 4), _normal(m, 4), approximate="tanh"),
    "elu": lambda m, aten: aten.elu_backward(_normal(m, 4), 1.5, 1.2, 0.7, False, _normal(m, 4)),
    "elu of the result": lambda m, aten: aten.elu_backward(_normal(m, 4), 1.5, 1.2, 0.7, True, _normal(m, 4)),
    "glu": lambda m, aten: aten.glu_backward(_normal(m, 3, 2), _normal(m, 3, 4), -1),
    "log_sigmoid": lambda m, aten: aten.log_sigmoid_backward(_normal(m, 4), _normal(m, 4), m.exp(-_normal(m, 4).abs())),
    "softmax": lambda m, aten: aten._softmax_backward_data(_normal(m, 3, 4), _normal(m, 3, 4).softmax(-1), -1, m.float32),
    "log_softmax": lambda m, aten: aten._log_softmax_backward_data(
        _normal(m, 3, 4), _normal(m, 3, 4).log_softmax(0), 0, m.float32),
    "select": lambda m, aten: aten.select_backward(_normal(m, 3), [3, 4], -1, -2),
    "slice": lambda m, aten: aten.slice_backward(_normal(m, 3, 2), [3, 4], -1, 1, 9223372036854775807, 2),
    "diagonal": lambda m, aten: aten.diagonal_backward(_normal(m, 3), [3, 4], 1, -2, -1),
    **{name: lambda m, aten, name=name, options=options, kind=kind: getattr(aten, f"{name}_backward")(
        _normal(m, *([] if kind else [3, 4])) + 1, _normal(m, 3, 4).abs() * 0.9, (_normal(m, 3, 4) + 0.3).abs() * 0.7,
        *([None] if name.startswith("binary") else []), kind, *options)
        for kind, name, options in ((1, "mse_loss", ()), (0, "smooth_l1_loss", (0.3,)), (2, "huber_loss", (0.2,)),
                                    (1, "soft_margin_loss", ()), (2, "binary_cross_entropy", ()))},
    "nll_loss": lambda m, aten: aten.nll_loss_backward(
        m.tensor(2.0), _normal(m, 3, 4), m.tensor([1, -100, 3]), _normal(m, 4) + 2, 1, -100,
        (_normal(m, 4) + 2)[m.tensor([1, 3])].sum()),
    "embedding_dense": lambda m, aten: aten.embedding_dense_backward(_normal(m, 3, 2), m.tensor([1, 0, 1]), 4, 0, False),
    "convolution": lambda m, aten: aten.convolution_backward(
        _normal(m, 2, 4, 4, 4), _images(m), _normal(m, 4, 3, 3, 3), [4], [1, 1], [0, 0], [1, 1], False, [0, 0], 1,
        [True, True, True]),
    "max_pool2d": lambda m, aten: aten.max_pool2d_with_indices_backward(
        _normal(m, 2, 3, 3, 3), _images(m), [2, 2], [2, 2], [0, 0], [1, 1], False, _pooled(m, _images(m))[1]),
    "avg_pool2d": lambda m, aten: aten.avg_pool2d_backward(
        _normal(m, 2, 3, 3, 3), _images(m), [2, 2], [2, 2], [0, 0], False, True, None),
    "adaptive_avg_pool2d": lambda m, aten: aten._adaptive_avg_pool2d_backward(_normal(m, 2, 3, 4, 5), _images(m)),
    **{f"native_batch_norm, training {training}": lambda m, aten, training=training: aten.native_batch_norm_backward(
        _normal(m, 2, 3, 6, 6) * 2, _images(m), _normal(m, 3) + 2, _normal(m, 3), _normal(m, 3) + 2, _images(m).mean((0, 2, 3)),
        (_images(m).var((0, 2, 3), correction=0) + 0.1).rsqrt(), training, 0.1, [True, True, True])
        for training in (True, False)},
    "native_layer_norm": lambda m, aten: aten.native_layer_norm_backward(
        _normal(m, 3, 4) * 2, _normal(m, 3, 4), [4], _normal(m, 3, 1), _normal(m, 3, 1) + 2, _normal(m, 4), _normal(m, 4),
        [True, True, True]),
    "native_group_norm": lambda m, aten: aten.native_group_norm_backward(
        _normal(m, 2, 4, 3) * 2, _normal(m, 2, 4, 3), _normal(m, 2, 2), _normal(m, 2, 2) + 2, _normal(m, 4), 2, 4, 3, 2,
        [True, False, True])}


@pytest.mark.parametrize("name", BACKWARDS)
def test_backward_operations_by_themselves(name):
    expected, got = [BACKWARDS[name](m, m.ops.aten) for m in (torch, flambeau)]
    same(expected, got)
