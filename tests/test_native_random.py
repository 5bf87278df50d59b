"""The native draws against the NumPy reference and against PyTorch: the same numbers, and the same state afterwards."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import flambeau
from flambeau import native
from flambeau.backends.cpu.random import draws as reference
from flambeau.backends.cpu.random.engine import AT, Engine
from flambeau.backends.cpu.random.kernels import DRAWS
from flambeau.backends.cpu.table import KERNELS

needs_compiler = pytest.mark.skipif(native.library("random") is None, reason="no C compiler: nothing native to compare")
SIZES = (0, 1, 15, 16, 17, 100, 1000, 70001)
SEEDS = (0, 7, 2**40 + 12345)
F32, F64, I64 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)

CASES = {
    "uniform": lambda w, n, d: KERNELS["draw_uniform"](w, (n,), d, 0.0, 1.0),
    "uniform range": lambda w, n, d: KERNELS["draw_uniform"](w, (n,), d, -3.5, 2.25),
    "normal": lambda w, n, d: KERNELS["draw_normal"](w, (n,), d, 0.0, 1.0),
    "normal range": lambda w, n, d: KERNELS["draw_normal"](w, (n,), d, 1.5, 0.7),
    "normal one by one": lambda w, n, d: KERNELS["draw_normal"](w, (n,), d, 1.5, 0.7, False),
    "normal of means": lambda w, n, d: KERNELS["draw_normal"](w, (n,), d, np.arange(n, dtype=d), 2.5),
    "normal of deviations": lambda w, n, d: KERNELS["draw_normal"](w, (n,), d, 0.5, np.arange(n, dtype=d)),
    "bernoulli": lambda w, n, d: KERNELS["draw_bernoulli"](w, (n,), d, 0.3),
    "bernoulli of numbers": lambda w, n, d: KERNELS["draw_bernoulli"](w, (n,), d, np.linspace(0, 1, n).astype(d)),
    "mask": lambda w, n, d: KERNELS["draw_bernoulli"](w, (n,), np.dtype(np.bool_), 0.6),
    "counts": lambda w, n, d: KERNELS["draw_bernoulli"](w, (n,), np.dtype(np.int32), 0.6),
    "noise": lambda w, n, d: KERNELS["draw_noise"](w, (n,), d, 0.37),
    "dropout": lambda w, n, d: np.stack(KERNELS["draw_dropout"](w, np.linspace(-2, 2, n).astype(d), 0.37)),
    "int": lambda w, n, d: KERNELS["draw_int"](w, (n,), I64, -5, 1001),
    "int of two words": lambda w, n, d: KERNELS["draw_int"](w, (n,), I64, -5, 1 << 45),
    "bytes": lambda w, n, d: KERNELS["draw_int"](w, (n,), np.dtype(np.uint8), 0, 255),
    "permutation": lambda w, n, d: KERNELS["draw_permutation"](w, n, I64),
    "exponential": lambda w, n, d: KERNELS["draw_exponential"](w, (n,), d, 1.7),
    "geometric": lambda w, n, d: KERNELS["draw_geometric"](w, (n,), d, 0.2),
    "cauchy": lambda w, n, d: KERNELS["draw_cauchy"](w, (n,), d, 1.0, 0.5),
    "log_normal": lambda w, n, d: KERNELS["draw_log_normal"](w, (n,), d, 0.3, 0.6),
}


@needs_compiler
@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize("dtype", (F32, F64), ids=str)
@pytest.mark.parametrize("name", CASES)
def test_native_draws_are_the_references(name, dtype, threads):
    before = flambeau.get_num_threads()
    flambeau.set_num_threads(threads)
    try:
        for n in SIZES:
            for seed in SEEDS:
                mine, other = Engine(seed), Engine(seed)
                mine.draw32(n % 7), other.draw32(n % 7)
                made = CASES[name](mine.words, n, dtype)
                with native.off():
                    expected = CASES[name](other.words, n, dtype)
                    state = other.get_state()
                assert made.dtype == expected.dtype and made.shape == expected.shape
                np.testing.assert_array_equal(made, expected)
                np.testing.assert_array_equal(mine.get_state(), state)
    finally:
        flambeau.set_num_threads(before)


PUBLIC = {
    "rand": lambda t, n, d: t.rand(n, dtype=d),
    "randn": lambda t, n, d: t.randn(n, dtype=d),
    "default rand": lambda t, n, d: t.rand(n, 1),
    "default randn": lambda t, n, d: t.randn(n, 2),
    "rand_like": lambda t, n, d: t.rand_like(t.ones(n, dtype=d)),
    "randn_like": lambda t, n, d: t.randn_like(t.ones(n, 3, dtype=d)),
    "randn_like, permuted": lambda t, n, d: t.randn_like(t.ones(2, n, 3, dtype=d).permute(1, 2, 0)),
    "normal": lambda t, n, d: t.normal(t.ones(n, dtype=d), 2.5),
    "normal_ with holes": lambda t, n, d: t.zeros(n, 3, dtype=d)[:, 1].normal_(1, 2),
    "uniform_ permuted": lambda t, n, d: t.zeros(2, n, dtype=d).t().uniform_(-1, 2),
    "bernoulli_ permuted": lambda t, n, d: t.zeros(2, n, dtype=d).t().bernoulli_(t.full((2,), 0.25, dtype=d)),
    "bernoulli": lambda t, n, d: t.bernoulli(t.full((n,), 0.3, dtype=d)),
    "exponential_": lambda t, n, d: t.empty(n, dtype=d).exponential_(0.5),
    "dropout": lambda t, n, d: t.nn.functional.dropout(t.full((n,), 1.3, dtype=d), 0.37),
    "alpha_dropout": lambda t, n, d: t.nn.functional.alpha_dropout(t.full((n,), 1.3, dtype=d), 0.37, training=True),
    "native_dropout": lambda t, n, d: t.native_dropout(t.full((n,), 1.3, dtype=d), 0.37, True)[0],
    "randint": lambda t, n, d: t.randint(-3, 1000, (n,)),
    "randint of floats": lambda t, n, d: t.randint(-3, 1000, (n,), dtype=d),
    "randperm": lambda t, n, d: t.randperm(n),
}


@pytest.mark.parametrize("dtype", ("float32", "float64"))
@pytest.mark.parametrize("name", PUBLIC)
def test_draws_are_pytorchs(name, dtype):
    for n in SIZES:
        for seed in SEEDS:
            made = []
            for mod in (flambeau, torch):
                mod.manual_seed(seed)
                made.append((PUBLIC[name](mod, n, getattr(mod, dtype)).numpy(), mod.get_rng_state().numpy()))
            np.testing.assert_array_equal(made[0][0], made[1][0])
            np.testing.assert_array_equal(made[0][1], made[1][1])


def test_an_explicit_generator_is_moved_on_and_no_other():
    mine, theirs = flambeau.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    before = flambeau.get_rng_state()
    for _ in range(5):
        for draw in ("randn", "randperm"):
            ours, expected = getattr(flambeau, draw)(50, generator=mine), getattr(torch, draw)(50, generator=theirs)
            np.testing.assert_array_equal(ours.numpy(), expected.numpy())
    assert flambeau.equal(before, flambeau.get_rng_state())


def test_dropout_keeps_nan_and_has_the_gradient_of_a_product():
    x = flambeau.tensor([1.0, float("nan"), float("inf")] * 40, requires_grad=True)
    flambeau.manual_seed(1)
    y = flambeau.nn.functional.dropout(x, 0.5)
    flambeau.manual_seed(1)
    noise = flambeau.empty(120).bernoulli_(0.5).div_(0.5)
    np.testing.assert_array_equal(y.detach().numpy(), (x.detach() * noise).numpy())
    assert type(y.grad_fn).__name__ == "MulBackward0"
    (first,) = flambeau.autograd.grad(y.sum(), x, create_graph=True)
    np.testing.assert_array_equal(first.detach().numpy(), noise.numpy())


@needs_compiler
def test_streams_go_on_from_one_way_of_drawing_to_the_other():
    engine, other = Engine(11), Engine(11)
    whole = other.draw32(5000)
    parts = []
    for i, n in enumerate((3, 621, 1, 700, 1300, 0, 2, 2373)):
        if i % 2:
            with native.off():
                parts.append(engine.draw32(n))
        else:
            parts.append(engine.draw32(n))
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("used", (0, 623, 624, 625, 1247))
def test_single_draws_leave_the_words_they_did_not_use(used):
    """The samplers that take numbers one at a time read whole blocks; the position is that of the last number used."""
    engine = Engine(5)
    engine.draw32(used)
    torch.manual_seed(5)
    torch.empty(used, dtype=torch.int32).random_()
    rates = np.full(400, 3.25, np.float32)
    np.testing.assert_array_equal(reference.poisson(engine, rates), torch.poisson(torch.from_numpy(rates)).numpy())
    np.testing.assert_array_equal(engine.get_state(), torch.get_rng_state().numpy())


def test_a_seed_is_worked_out_when_it_is_needed():
    engine = Engine(9)
    assert engine.words[AT] == 624
    torch.manual_seed(9)
    np.testing.assert_array_equal(engine.get_state(), torch.get_rng_state().numpy())
    torch.rand(1)
    engine.draw32(1)
    np.testing.assert_array_equal(engine.get_state(), torch.get_rng_state().numpy())


def test_all_draws_are_kernels_that_take_the_words_first():
    assert {"draw_uniform", "draw_normal", "draw_bernoulli", "draw_noise", "draw_dropout", "draw_int"} <= set(DRAWS)
