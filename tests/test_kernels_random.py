"""The random kernels against PyTorch's CPU generator: same values, same state, in any order of calls."""

import pickle
import warnings

import ml_dtypes
import numpy as np
import pytest
import torch

from flambeau.backends.cpu.random import draws as R

BF16 = np.dtype(ml_dtypes.bfloat16)
NP = {
    torch.float32: np.dtype("f4"),
    torch.float64: np.dtype("f8"),
    torch.float16: np.dtype("f2"),
    torch.bfloat16: BF16,
    torch.complex64: np.dtype("c8"),
    torch.complex128: np.dtype("c16"),
    torch.int64: np.dtype("i8"),
    torch.int32: np.dtype("i4"),
    torch.int16: np.dtype("i2"),
    torch.int8: np.dtype("i1"),
    torch.uint8: np.dtype("u1"),
    torch.bool: np.dtype("?"),
}
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
COMPLEX = [torch.complex64, torch.complex128]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
SIZES = [0, 1, 2, 15, 16, 17, 31, 32, 100, 1000]
SEEDS = [0, 1, 42, 2**32 + 7, 2**63 + 5]


@pytest.fixture(autouse=True)
def _keep_global_state():
    state = torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_rng_state(state)


def arr(t):
    t = t.detach()
    if t.dtype == torch.bfloat16:
        return t.contiguous().view(torch.int16).numpy().view(BF16)
    return t.numpy()


def start(seed):
    torch.manual_seed(seed)
    return R.Engine(seed)


def same_state(engine):
    np.testing.assert_array_equal(engine.get_state(), torch.get_rng_state().numpy())


def draws_agree(engine, expected, got, ulp=0):
    expected = arr(expected)
    assert got.dtype == expected.dtype and got.shape == expected.shape
    if ulp and got.dtype.kind == "f":
        bits = np.dtype(f"i{got.dtype.itemsize}")
        assert not got.size or np.abs(got.view(bits) - expected.view(bits)).max() <= ulp
    else:
        assert np.array_equal(got, expected), (expected[got != expected][:5], got[got != expected][:5])
    same_state(engine)


# -- engine -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS + [-1, 2**64 - 1])
def test_seed_and_fresh_state(seed):
    engine = start(seed)
    assert engine.initial_seed == torch.initial_seed() % 2**64
    same_state(engine)
    draws_agree(engine, torch.rand(5), R.rand(engine, 5))


def test_raw_draws_do_not_depend_on_their_grouping():
    whole = R.Engine(3).draw32(6000)
    engine = R.Engine(3)
    parts = [engine.draw32(n) for n in (0, 1, 3, 620, 624, 0, 1, 1248, 2, 3000, 501)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    wide = R.Engine(3).draw64(3000)
    np.testing.assert_array_equal(wide >> np.uint64(32), whole[0::2])
    np.testing.assert_array_equal(wide & np.uint64(0xFFFFFFFF), whole[1::2])


@pytest.mark.parametrize("before", [0, 1, 623, 624, 625, 1248, 5000])
@pytest.mark.parametrize("odd", [False, True])
def test_state_travels_both_ways(before, odd):
    engine = start(11)
    draws_agree(engine, torch.rand(before), R.rand(engine, before))
    if odd:
        draws_agree(engine, torch.randn(3), R.randn(engine, 3))
        assert engine.next_normal is not None
    # theirs to us
    other = R.Engine(0).set_state(torch.get_rng_state().numpy())
    np.testing.assert_array_equal(other.get_state(), engine.get_state())
    # ours to them
    generator = torch.Generator()
    generator.set_state(torch.from_numpy(engine.get_state()))
    copy = engine.clone()
    thawed = pickle.loads(pickle.dumps(engine))
    for e in (other, copy, thawed):
        generator.set_state(torch.from_numpy(engine.get_state()))
        for n in (1, 700, 5, 40):
            np.testing.assert_array_equal(R.randn(e, n), torch.randn(n, generator=generator).numpy())
        np.testing.assert_array_equal(e.get_state(), generator.get_state().numpy())
    same_state(engine)  # the copies drew for themselves
    assert engine.seed(5).next_normal is None
    torch.manual_seed(5)
    same_state(engine)


def test_bad_states():
    engine = R.Engine(0)
    good = engine.get_state()
    with pytest.raises(RuntimeError):
        engine.set_state(good[:100])
    with pytest.raises(TypeError):
        engine.set_state(good.astype(np.int64))
    bad = good.copy()
    bad[8:12] = 255
    with pytest.raises(RuntimeError, match="mt19937"):
        engine.set_state(bad)
    start(0)
    draws_agree(engine.set_state(good[:5048]), torch.rand(3), R.rand(engine, 3))


# -- any interleaving -------------------------------------------------------------------------------


def _random_call(rng, engine):
    n = int(rng.choice(SIZES + [100003], p=[0.099] * 10 + [0.01]))
    kind = rng.integers(12)
    dt = FLOATS[rng.integers(4)]
    nd = NP[dt]
    x = torch.empty(n, dtype=dt)
    if kind == 0:
        return torch.rand(n, dtype=dt), R.rand(engine, n, nd)
    if kind in (1, 2):
        return torch.randn(n, dtype=dt), R.randn(engine, n, nd)
    if kind == 3:
        a, b = float(rng.normal()), float(rng.random() * 3)
        return x.uniform_(a, a + b), R.uniform(engine, n, nd, a, a + b)
    if kind == 4:
        a, b = float(rng.normal()), float(rng.random() * 3)
        return x.normal_(a, b), R.normal(engine, n, nd, a, b)
    if kind == 5:
        it = INTS[rng.integers(5)]
        low, high = (0, 100) if rng.random() < 0.5 else (3, 1 + int(torch.iinfo(it).max))
        out = torch.empty(n, dtype=it)
        if high == 2**63:
            return out.random_(low, None), R.random_int(engine, n, NP[it], low, None)
        return out.random_(low, high), R.random_int(engine, n, NP[it], low, high)
    if kind == 6:
        return torch.randperm(n), R.randperm(engine, n)
    if kind == 7:
        return x.bernoulli_(0.3), R.bernoulli(engine, n, nd, 0.3)
    if kind == 8:
        return x.exponential_(1.5), R.exponential(engine, n, nd, 1.5)
    if kind == 9:
        ct = COMPLEX[rng.integers(2)]
        return torch.randn(n, dtype=ct), R.randn(engine, n, NP[ct])
    if kind == 10:
        strided = torch.empty(n, 2, dtype=dt)[:, 0]
        return strided.normal_(0.5, 2.0).contiguous(), R.normal(engine, n, nd, 0.5, 2.0, contiguous=n == 1)
    it = (INTS + FLOATS + [torch.bool])[rng.integers(10)]
    return torch.empty(n, dtype=it).random_(), R.random_full(engine, n, NP[it])


@pytest.mark.parametrize("seed", SEEDS)
def test_interleaved_calls(seed):
    rng = np.random.default_rng(seed)
    engine = start(seed)
    for _ in range(120):
        expected, got = _random_call(rng, engine)
        draws_agree(engine, expected, got)


# -- one function at a time -------------------------------------------------------------------------


@pytest.mark.parametrize("dt", FLOATS + COMPLEX)
@pytest.mark.parametrize("n", SIZES + [100003])
def test_rand_randn(dt, n):
    engine = start(n)
    draws_agree(engine, torch.rand(n, dtype=dt), R.rand(engine, n, NP[dt]))
    draws_agree(engine, torch.randn(n, dtype=dt), R.randn(engine, n, NP[dt]))
    draws_agree(engine, torch.rand(n, 3, dtype=dt), R.rand(engine, (n, 3), NP[dt]))


@pytest.mark.parametrize("dt", FLOATS)
@pytest.mark.parametrize("n", [3, 16, 2003])
def test_float_distributions(dt, n):
    nd, engine = NP[dt], start(9)
    for low, high in ((-1, 1), (1.1, 5.3), (-0.1, 0.1), (100, 100.001), (0, 0)):
        draws_agree(engine, torch.empty(n, dtype=dt).uniform_(low, high), R.uniform(engine, n, nd, low, high))
    for mean, std in ((0, 2.0), (1, 1), (0.3, 0.7), (-5, 1e-3), (2, 0)):
        draws_agree(engine, torch.empty(n, dtype=dt).normal_(mean, std), R.normal(engine, n, nd, mean, std))
        strided = torch.empty(2 * n, dtype=dt)[::2].normal_(mean, std).contiguous()
        draws_agree(engine, strided, R.normal(engine, n, nd, mean, std, contiguous=False))
        if std:
            draws_agree(engine, torch.empty(n, dtype=dt).log_normal_(mean, std), R.log_normal(engine, n, nd, mean, std))
            draws_agree(engine, torch.empty(n, dtype=dt).cauchy_(mean, std), R.cauchy(engine, n, nd, mean, std))
    for rate in (1.0, 2.5, 0.1):
        draws_agree(engine, torch.empty(n, dtype=dt).exponential_(rate), R.exponential(engine, n, nd, rate))
    for p in (0.3, 0.01, 0.9):
        draws_agree(engine, torch.empty(n, dtype=dt).geometric_(p), R.geometric(engine, n, nd, p))
    mean, std = torch.linspace(-1, 1, n).to(dt), torch.linspace(0.1, 2, n).to(dt)
    draws_agree(engine, torch.normal(mean, 0.7), R.normal(engine, n, nd, arr(mean), 0.7))
    draws_agree(engine, torch.normal(0.3, std), R.normal(engine, n, nd, 0.3, arr(std)))
    draws_agree(engine, torch.normal(mean, std), R.normal(engine, n, nd, arr(mean), arr(std)))


@pytest.mark.parametrize("dt", FLOATS + INTS + [torch.bool])
def test_integers(dt):
    nd, engine = NP[dt], start(4)
    bounds = [(0, 1), (0, 2), (0, 5), (3, 100), (-5, 5), (-128, 128), (0, 256), (0, 1000), (-40000, 100000)]
    bounds += [(0, 2**28 - 1), (0, 2**28), (-(2**30), 2**30), (0, 2**31 - 1), (0, 2**40), (-(2**62), 2**62)]
    bounds += [(-(2**63), 2**63 - 1)]
    for n in (0, 3, 700):
        draws_agree(engine, torch.empty(n, dtype=dt).random_(), R.random_full(engine, n, nd))
        draws_agree(engine, torch.empty(n, dtype=dt).random_(0, None), R.random_int(engine, n, nd, 0, None))
        for low, high in bounds:
            try:
                expected = torch.empty(n, dtype=dt).random_(low, high)
            except RuntimeError:
                continue  # out of the dtype's range: the caller's check
            draws_agree(engine, expected, R.random_int(engine, n, nd, low, high))
    if dt == torch.int64:
        full = torch.empty(50, dtype=dt).random_(-(2**63), None)
        draws_agree(engine, full, R.random_int(engine, 50, nd, -(2**63), None))
    with pytest.raises(RuntimeError):
        R.random_int(engine, 3, nd, 5, 5)


@pytest.mark.parametrize("n", SIZES + [299, 300, 301, 302, 5000, 100003])
def test_randperm(n):
    for seed in (0, 1, 2):
        engine = start(seed)
        draws_agree(engine, torch.randperm(n), R.randperm(engine, n))
        draws_agree(engine, torch.randperm(n, dtype=torch.int32), R.randperm(engine, n, np.int32))
    if n <= 100:
        for dt in FLOATS + INTS:
            draws_agree(engine, torch.randperm(n, dtype=dt), R.randperm(engine, n, NP[dt]))


@pytest.mark.parametrize("dt", FLOATS + INTS + [torch.bool])
def test_bernoulli(dt):
    nd, engine = NP[dt], start(8)
    for n in (0, 3, 1000):
        for p in (0, 1, 0.3, 0.5, 0.1):
            draws_agree(engine, torch.empty(n, dtype=dt).bernoulli_(p), R.bernoulli(engine, n, nd, p))
        for pd in FLOATS:
            p = torch.linspace(0, 1, n).to(pd)
            draws_agree(engine, torch.empty(n, dtype=dt).bernoulli_(p), R.bernoulli(engine, n, nd, arr(p)))
    with pytest.raises(RuntimeError):
        R.bernoulli(engine, 3, nd, 1.5)


@pytest.mark.parametrize("dt", FLOATS)
def test_dropout(dt):
    engine = start(8)
    x = torch.ones(20, 50, dtype=dt)
    for p in (0.1, 0.5, 0.9):
        draws_agree(engine, torch.nn.functional.dropout(x, p) != 0, R.dropout_mask(engine, (20, 50), p))
        draws_agree(engine, torch.native_dropout(x, p, True)[1], R.dropout_mask(engine, (20, 50), p))
    for p in (0.0, 1.0):
        before = engine.get_state()
        kept = torch.nn.functional.dropout(x, p) != 0
        if not np.array_equal(before, torch.get_rng_state().numpy()):
            draws_agree(engine, kept, R.dropout_mask(engine, (20, 50), p))


@pytest.mark.parametrize("dt", FLOATS)
@pytest.mark.parametrize("shape", [(5,), (200,), (4, 30), (3, 2000)])
def test_multinomial(dt, shape):
    engine = start(8)
    w = torch.from_numpy(np.random.default_rng(0).random(shape)).to(dt)
    w.view(-1)[1] = 0
    for k, rep in ((1, False), (1, True), (3, False), (3, True), (50, True)):
        draws_agree(engine, torch.multinomial(w, k, rep), R.multinomial(engine, arr(w), k, rep))


@pytest.mark.parametrize("dt", FLOATS)
def test_poisson(dt):
    engine = start(8)
    rates = torch.tensor([0, 0.1, 0.5, 1, 3, 9.99, 10, 12, 50, 200, 1000]).repeat(60).to(dt)
    draws_agree(engine, torch.poisson(rates), R.poisson(engine, arr(rates)))


@pytest.mark.parametrize("dt", FLOATS[:2])
def test_binomial_gamma_dirichlet(dt):
    engine = start(8)
    count = torch.tensor([0, 1, 5, 10, 20, 50, 100, 1000]).repeat(100).to(dt)
    prob = torch.linspace(0, 1, 800).to(dt)
    draws_agree(engine, torch.binomial(count, prob), R.binomial(engine, arr(count), arr(prob)))
    alpha = torch.tensor([0.01, 0.1, 0.5, 0.99, 1, 1.5, 3, 10, 100]).repeat(60).to(dt)
    draws_agree(engine, torch._standard_gamma(alpha), R.standard_gamma(engine, arr(alpha)), ulp=1)
    alpha = alpha.view(-1, 9)
    draws_agree(engine, torch._sample_dirichlet(alpha), R.dirichlet(engine, arr(alpha)), ulp=4)


def test_initialisers_follow_from_the_kernels():
    engine = start(2)
    w = torch.empty(30, 20)
    torch.nn.init.kaiming_uniform_(w, a=5**0.5)
    bound = 3**0.5 * (2.0 / 6.0) ** 0.5 / 20**0.5
    draws_agree(engine, w, R.uniform(engine, (30, 20), np.float32, -bound, bound))
    # A transposed but dense tensor is filled in memory order.
    t = torch.empty(7, 5).t().uniform_()
    draws_agree(engine, t.t().contiguous(), R.rand(engine, (7, 5)))
