"""Native recurrent layers against the NumPy kernels."""

import numpy as np
import pytest
from compare import Tolerance, same

import flambeau
from flambeau import native
from flambeau.backends.cpu.table import KERNELS
from flambeau.compiler.render import lower, lowerings
from flambeau.ops.layers import rnn  # noqa: F401  (enters the kernels)

pytestmark = pytest.mark.skipif(native.library("gemm") is None or native.library("rnn") is None,
                                reason="there is no C compiler")
GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}
SIZES = {"even": (3,) * 4, "single": (1,) * 5, "wide": (20,) * 5, "packed": (13, 9, 9, 7, 2, 1), "short": (5,)}


class Problem:
    """Numbers for one call forward and back."""

    def __init__(self, kind, sizes, features, hidden, dtype, bias=True, reverse=False):
        rng = np.random.RandomState(hidden)

        def make(*shape):
            return (rng.standard_normal(shape) * 0.4).astype(dtype)

        rows, batch, wide = sum(sizes), max(sizes), GATES[kind] * hidden
        self.kind, self.sizes, self.reverse, self.dtype = kind, sizes, reverse, dtype
        self.x, self.w_ih, self.w_hh = make(rows, features), make(wide, features), make(wide, hidden)
        self.states = [make(batch, hidden) for _ in range(2 if kind == "lstm" else 1)]
        self.biases = [make(wide), make(wide)] if bias else [None, None]
        self.grads = [make(rows, hidden), *[make(batch, hidden) for _ in self.states]]

    def forward(self):
        last = (None,) if self.kind == "lstm" else ()
        relu = (self.kind == "relu",) if GATES[self.kind] == 1 else ()
        name = "rnn_layer" if relu else f"{self.kind}_layer"
        return KERNELS[name](self.x, *self.states, self.w_ih, self.w_hh, *self.biases, *last, self.sizes, self.reverse, *relu)

    def backward(self, made, needs=(True, True)):
        last = (None,) if self.kind == "lstm" else ()
        relu = (self.kind == "relu",) if GATES[self.kind] == 1 else ()
        name = "rnn_layer_backward" if relu else f"{self.kind}_layer_backward"
        return KERNELS[name](*self.grads, self.x, *self.states, self.w_ih, self.w_hh, *last, self.sizes, self.reverse, *relu,
                             made[0], *made[1 + len(self.states):], needs)


def results_and_gradients(problem, **options):
    forward = problem.forward()
    return forward, problem.backward(forward, **options)


def native_and_numpy(problem, **options):
    """(results, gradients) of native code and of NumPy."""
    ours = results_and_gradients(problem, **options)
    with native.off():
        return ours, results_and_gradients(problem, **options)


def recurrence_agrees(ours, reference, dtype):
    """To more than one rounding: each step starts from the rounded result of the step before."""
    same(list(reference), list(ours), Tolerance(*[1e-5 if dtype == np.float32 else 1e-12] * 3))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh"])
def test_layers(kind, sizes, reverse, dtype, threads):
    for hidden, features, bias in ((1, 3, True), (5, 1, False), (16, 7, True), (33, 9, True), (100, 20, True)):
        problem = Problem(kind, sizes, features, hidden, dtype, bias, reverse)
        (ours, back), (reference, reference_back) = native_and_numpy(problem)
        count = 1 + len(problem.states)
        recurrence_agrees(ours[:count], reference[:count], dtype)
        recurrence_agrees(back, reference_back, dtype)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_relu(sizes, threads):
    problem = Problem("relu", sizes, 6, 40, np.float64)
    (ours, back), (reference, reference_back) = native_and_numpy(problem)
    recurrence_agrees(ours, reference, np.float64)
    recurrence_agrees(back, reference_back, np.float64)


@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh"])
def test_a_large_layer_is_shared_among_threads(kind):
    problem = Problem(kind, (40,) * 4, 30, 200, np.float32)
    before, results = flambeau.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            flambeau.set_num_threads(count)
            forward = problem.forward()
            results.append((forward, problem.backward(forward)))
    finally:
        flambeau.set_num_threads(before)
    for others in results[1:]:
        for one, other in zip(results[0], others):
            recurrence_agrees(other, one, np.float32)


@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh"])
def test_missing_gradients_and_those_not_needed(kind):
    for missing in range(3 if kind == "lstm" else 2):
        problem = Problem(kind, (4,) * 4, 6, 20, np.float64)
        problem.grads[missing] = None
        for needs in ((True, True), (False, True), (True, False)):
            (_, back), (_, reference) = native_and_numpy(problem, needs=needs)
            recurrence_agrees(back, reference, np.float64)


@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh"])
def test_any_strides(kind):
    problem = Problem(kind, (4,) * 4, 6, 20, np.float64)
    problem.x = np.asfortranarray(problem.x)
    problem.w_ih, problem.w_hh = problem.w_ih[::-1], np.asfortranarray(problem.w_hh)
    problem.grads = [np.repeat(g, 2, axis=1)[:, ::2] for g in problem.grads]
    problem.grads[0] = np.broadcast_to(np.float64(0.3), problem.grads[0].shape)
    (ours, back), (reference, reference_back) = native_and_numpy(problem)
    recurrence_agrees(ours[:1], reference[:1], np.float64)
    recurrence_agrees(back, reference_back, np.float64)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh", "relu"])
def test_odd_numbers_spread_alike(kind, odd):
    problem = Problem(kind, (3,) * 4, 6, 20, np.float32)
    problem.x[4, 2] = odd
    (ours, _), (reference, _) = native_and_numpy(problem)
    count = 1 + len(problem.states)
    for a, b in zip(ours[:count], reference[:count]):
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        np.testing.assert_array_equal(np.isinf(a), np.isinf(b))


def test_large_arguments_saturate():
    problem = Problem("lstm", (3,) * 4, 6, 20, np.float32)
    problem.x *= 1e4
    (ours, back), (reference, reference_back) = native_and_numpy(problem)
    recurrence_agrees(ours[:3], reference[:3], np.float32)
    assert all(np.isfinite(b).all() for b in back[:-1]) and all(np.isfinite(b).all() for b in reference_back[:-1])


def test_forward_native_and_backward_without():
    """The backward pass follows the forward one, whatever is switched off in between."""
    for kind in ("lstm", "gru"):
        problem = Problem(kind, (3,) * 4, 6, 20, np.float64)
        made = problem.forward()
        reference = problem.backward(made)
        with native.off():
            recurrence_agrees(problem.backward(made), reference, np.float64)


def test_sizes_that_go_up_and_down():
    problem = Problem("gru", (3, 1, 2, 3), 6, 20, np.float64)
    (ours, back), (reference, reference_back) = native_and_numpy(problem)
    recurrence_agrees(ours[:2], reference[:2], np.float64)
    recurrence_agrees(back, reference_back, np.float64)


def test_second_derivatives_through_a_layer():
    with flambeau.random.fork_rng():
        flambeau.manual_seed(0)
        layer = flambeau.nn.LSTM(3, 4).double()
        x = flambeau.randn(5, 2, 3, dtype=flambeau.float64, requires_grad=True)
    out, _ = layer(x)
    (first,) = flambeau.autograd.grad(out.pow(2).sum(), x)
    out, _ = layer(x)
    (recorded,) = flambeau.autograd.grad(out.pow(2).sum(), x, create_graph=True)
    same(first, recorded.detach(), Tolerance(1e-12, 0))
    recorded.pow(2).sum().backward()
    assert x.grad.abs().sum().item() > 0


@pytest.mark.parametrize("options", [{}, dict(bidirectional=True, num_layers=2), dict(bias=False, batch_first=True)],
                         ids=["plain", "stacked", "batch_first"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_compiled_layers(kind, options, monkeypatch):
    lower._load()
    name, answers = kind.lower(), []
    for kernel in (f"{name}_layer", f"{name}_layer_backward"):
        lowering = lowerings.LOWERINGS[kernel]
        monkeypatch.setitem(lowerings.LOWERINGS, kernel, lambda op, real=lowering: answers.append(real(op)) or answers[-1])
    results = []
    for compiled in (False, True):
        flambeau.manual_seed(0)
        layer, x = getattr(flambeau.nn, kind)(6, 9, **options), flambeau.randn(7, 3, 6)
        optimizer = flambeau.optim.SGD(layer.parameters(), lr=0.5)

        def step():
            optimizer.zero_grad()
            loss = (layer(x)[0] ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        run = flambeau.compile(step) if compiled else step
        losses = [run().item() for _ in range(4)]
        results.append([np.array(losses), *[p.detach().numpy() for p in layer.parameters()]])
    assert len(answers) >= 2 and None not in answers
    same(*results, Tolerance(1e-5, 1e-6))
