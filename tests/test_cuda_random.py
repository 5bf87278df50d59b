"""Random numbers on a CUDA device: Philox and PyTorch's order of elements, written down once more in NumPy."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from cuda_host import needs_gxx

import flambeau as fl

pytestmark = needs_gxx
FLOATS = (fl.float32, fl.float64, fl.float16, fl.bfloat16)


def philox(seed, streams, place):
    """Four words of each stream: place counts quadruples."""
    counter = [np.full(len(streams), place & 0xFFFFFFFF, np.uint64), np.full(len(streams), place >> 32, np.uint64),
               np.asarray(streams, np.uint64), np.zeros(len(streams), np.uint64)]
    key, mask = [seed & 0xFFFFFFFF, seed >> 32], np.uint64(0xFFFFFFFF)
    for _ in range(10):
        first, second = counter[0] * np.uint64(0xD2511F53), counter[2] * np.uint64(0xCD9E8D57)
        counter = [second >> np.uint64(32) ^ counter[1] ^ np.uint64(key[0]), second & mask,
                   first >> np.uint64(32) ^ counter[3] ^ np.uint64(key[1]), first & mask]
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return np.stack(counter, 1)


def words(count, per_element=1, seed=0, offset=0):
    """The words of each element (`per_element` of them), and the offset after the draw."""
    about = fl.cuda.get_device_properties()
    most = about.multi_processor_count * (about.max_threads_per_multi_processor // 256)
    threads, at_once = 256 * min(most, -(-count // 256)), 4 // per_element
    rounds = -(-count // (threads * at_once))
    made = [philox(seed, range(threads), offset // 4 + r).reshape(threads, at_once, per_element).swapaxes(0, 1)
            for r in range(rounds)]
    return np.concatenate(made).reshape(-1, per_element)[:count], offset + 4 * rounds


def units(count, **where):
    return words(count, **where)[0][:, 0].astype(np.float32) * np.float32(2**-32) + np.float32(2**-33)


def wide_units(count, **where):
    w = words(count, 2, **where)[0]
    return (w[:, 0] ^ w[:, 1] << np.uint64(21)).astype(np.float64) * 2.0**-53 + 2.0**-54


def drawn(function, seed=0):
    fl.manual_seed(seed)
    return function().cpu()


def equal(tensor, wanted):
    np.testing.assert_array_equal(tensor.to(fl.float64).numpy(), np.asarray(wanted, np.float64))


# -------------------------------------------------------------------------------------------------------------- numbers
def test_known_numbers(cuda):
    """What PyTorch's CUDA generator gives for seed 0, to the digits that it prints."""
    np.testing.assert_allclose(drawn(lambda: fl.rand(5, device=cuda)).numpy(),
                               [0.3990, 0.5167, 0.0249, 0.9401, 0.9459], atol=5e-5)
    np.testing.assert_allclose(drawn(lambda: fl.randn(5, device=cuda)).numpy(),
                               [-0.9247, -0.4253, -2.6438, 0.1452, -0.1209], atol=5e-5)


@pytest.mark.parametrize("count", [1, 5, 255, 257, 3000, 70_001])
def test_uniform(count, cuda):
    first = units(count)
    equal(drawn(lambda: fl.rand(count, device=cuda)), np.where(first == 1, 0, first))
    equal(drawn(lambda: fl.rand(count, device=cuda, dtype=fl.float64)), wide_units(count))
    _, offset = words(count)

    def second():
        fl.rand(count, device=cuda)
        return fl.rand(count, device=cuda)
    equal(drawn(second, 2**40 + 7), units(count, seed=2**40 + 7, offset=offset))


def test_half_precision_is_below_one(cuda):
    for dtype in (fl.float16, fl.bfloat16):
        got = drawn(lambda d=dtype: fl.rand(20_000, device=cuda, dtype=d))
        wanted = fl.from_numpy(units(20_000)).to(dtype)
        equal(got, fl.where(wanted == 1, 0, wanted).to(fl.float64).numpy())
        assert got.max() < 1


@pytest.mark.parametrize("count", [6, 5000])
def test_normal(count, cuda):
    got = drawn(lambda: fl.randn(count, device=cuda))
    about = fl.cuda.get_device_properties()
    threads = 256 * min(about.multi_processor_count * (about.max_threads_per_multi_processor // 256), -(-count // 256))
    quads = np.concatenate([philox(0, range(threads), r)[None] for r in range(-(-count // (4 * threads)))])
    length = np.sqrt(-2 * np.log(quads[..., ::2] * 2.0**-32 + 2.0**-33))
    angle = (quads[..., 1::2] + 0.5) * (2 * np.pi * 2.0**-32)
    both = np.stack([np.sin(angle) * length, np.cos(angle) * length], -1).reshape(len(quads), threads, 4)
    # the device's own sine is good to a millionth or so
    np.testing.assert_allclose(got.numpy(), both.swapaxes(1, 2).reshape(-1)[:count], atol=1e-5)
    equal(drawn(lambda: fl.empty(count, device=cuda).normal_(3, 0)), np.full(count, 3.0))
    fl.testing.assert_close(drawn(lambda: fl.empty(count, device=cuda).normal_(1, 2)), got * 2 + 1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_moments(dtype, cuda):
    x = drawn(lambda: fl.randn(40_000, device=cuda, dtype=dtype)).double()
    assert abs(x.mean()) < 0.02
    assert abs(x.std() - 1) < 0.02
    e = fl.empty(40_000, device=cuda, dtype=dtype)
    for change, median in ((lambda: e.exponential_(2.0), np.log(2) / 2), (lambda: e.cauchy_(1.0, 2.0), 1.0),
                           (lambda: e.log_normal_(0.5, 0.25), np.exp(0.5)), (lambda: e.uniform_(-1, 3), 1.0),
                           (lambda: e.geometric_(0.3), 2.0)):
        assert abs(drawn(change).double().median() - median) < 0.05
    assert abs(drawn(lambda: e.bernoulli_(0.3)).double().mean() - 0.3) < 0.02


@pytest.mark.parametrize("dtype", [fl.int64, fl.int32, fl.uint8, fl.float32, fl.bfloat16])
def test_integers(dtype, cuda):
    got = drawn(lambda: fl.randint(-3, 9, (3000,), device=cuda, dtype=dtype) if dtype is not fl.uint8 else
                fl.randint(0, 12, (3000,), device=cuda, dtype=dtype))
    equal(got, (words(3000)[0][:, 0] % np.uint64(12)).astype(np.int64) - (0 if dtype is fl.uint8 else 3))


def test_wide_integers(cuda):
    w = words(3000, 2)[0]
    got = drawn(lambda: fl.randint(5, 2**40, (3000,), device=cuda)).numpy()
    np.testing.assert_array_equal(got, (w[:, 0] << np.uint64(32) | w[:, 1]) % np.uint64(2**40 - 5) + np.uint64(5))
    whole = drawn(lambda: fl.empty(3000, dtype=fl.int64, device=cuda).random_()).numpy()
    np.testing.assert_array_equal(whole, (w[:, 0] << np.uint64(32) | w[:, 1]) % np.uint64(2**63))
    small = drawn(lambda: fl.empty(3000, dtype=fl.int8, device=cuda).random_()).numpy()
    np.testing.assert_array_equal(small, words(3000)[0][:, 0] % np.uint64(128))


def test_bernoulli(cuda):
    equal(drawn(lambda: fl.empty(3000, device=cuda).bernoulli_(0.25)), units(3000) < np.float32(0.25))
    chances = fl.linspace(0, 1, 5000)
    side_by_side = philox(0, range(1250), 0).reshape(-1).astype(np.float32) * np.float32(2**-32) + np.float32(2**-33)
    got = drawn(lambda: fl.bernoulli(chances.to(cuda)))
    equal(got, side_by_side <= chances.numpy())
    assert fl.cuda.default_generators[0].get_offset() == 12
    assert drawn(lambda: fl.empty(50, 4, device=cuda, dtype=fl.bool).bernoulli_(chances[:4].to(cuda))).dtype is fl.bool


def test_memory_order(cuda):
    flat = drawn(lambda: fl.rand(24, device=cuda))
    equal(drawn(lambda: fl.empty(4, 6, device=cuda).t().uniform_()).t().reshape(-1), flat)
    equal(drawn(lambda: fl.empty(4, 12, device=cuda)[:, ::2].uniform_()).reshape(-1), flat)
    x = fl.zeros(4, 12, device=cuda)
    x[:, ::2].uniform_()
    assert not x[:, 1::2].cpu().any()


def test_complex(cuda):
    got = drawn(lambda: fl.rand(30, dtype=fl.complex64, device=cuda))
    equal(fl.view_as_real(got).reshape(-1), units(60))
    z = drawn(lambda: fl.randn(20_000, dtype=fl.complex64, device=cuda))
    assert abs((z.abs() ** 2).mean() - 1) < 0.03


def test_normal_of_tensors(cuda):
    base = drawn(lambda: fl.randn(40, device=cuda))
    mean, std = fl.arange(40.0), fl.linspace(0, 2, 40)
    fl.testing.assert_close(drawn(lambda: fl.normal(mean.to(cuda), std.to(cuda))), base * std + mean)
    fl.testing.assert_close(drawn(lambda: fl.normal(2.0, std.to(cuda))), base * std + 2)
    fl.testing.assert_close(drawn(lambda: fl.normal(mean.to(cuda), 0.5)), base * 0.5 + mean)
    fl.testing.assert_close(drawn(lambda: fl.normal(1.0, 3.0, (40,), device=cuda)), base * 3 + 1)


# -------------------------------------------------------------------------------------------------------------- dropout
@pytest.mark.parametrize(("dtype", "count"), [(fl.float32, 4096), (fl.float32, 4098), (fl.float32, 4097),
                                              (fl.bfloat16, 24_000), (fl.float64, 4096)])
def test_dropout(dtype, count, cuda):
    vec = next(v for v in (8, 4, 2, 1) if count % v == 0 and v * dtype.itemsize <= 16)
    about = fl.cuda.get_device_properties()
    threads = 256 * min(about.multi_processor_count * (about.max_threads_per_multi_processor // 256), -(-count // 256))
    if vec == 1:
        draws = units(count)
    else:
        quads = -(-vec // 4)
        rounds = [philox(0, range(threads), r).astype(np.float32) * np.float32(2**-32) + np.float32(2**-33)
                  for r in range(quads * -(-count // (threads * vec)))]
        draws = np.concatenate([np.concatenate(rounds[r:r + quads], 1)[:, :vec].reshape(-1)
                                for r in range(0, len(rounds), quads)])[:count]
    x = fl.linspace(1, 2, count).to(dtype)
    there = x.to(cuda).requires_grad_()
    fl.manual_seed(0)
    y = fl.nn.functional.dropout(there, 0.25)
    kept = fl.from_numpy(draws < np.float32(0.75))
    fl.testing.assert_close(y.detach().cpu(), (x.double() * kept / 0.75).to(dtype))
    y.sum().backward()
    fl.testing.assert_close(there.grad.cpu(), (kept / 0.75).to(dtype))


def test_dropout_in_place_draws_factors(cuda):
    kept = fl.from_numpy(units(4096) < np.float32(0.75))
    x = fl.ones(4096, device=cuda)
    fl.manual_seed(0)
    assert fl.nn.functional.dropout(x, 0.25, inplace=True) is x
    fl.testing.assert_close(x.cpu(), kept / 0.75)


def test_checkpoint_draws_again(cuda):
    from flambeau.utils.checkpoint import checkpoint
    x = fl.ones(1000, device=cuda, requires_grad=True)
    y = checkpoint(lambda v: fl.nn.functional.dropout(v * 1, 0.5), x, use_reentrant=False)
    y.sum().backward()
    fl.testing.assert_close(x.grad.cpu(), y.detach().cpu())


def test_dropout_of_channels_and_of_views(cuda):
    x = fl.ones(8, 6, 3, 3, device=cuda)
    y = drawn(lambda: fl.nn.functional.dropout2d(x, 0.5))
    assert {float(v) for v in y.reshape(48, 9).amax(1)} == {0.0, 2.0}
    assert (y.reshape(48, 9).amax(1) == y.reshape(48, 9).amin(1)).all()
    view = fl.ones(40, 40, device=cuda)[:, ::2]
    assert set(fl.nn.functional.dropout(view, 0.5).cpu().reshape(-1).tolist()) == {0.0, 2.0}
    assert fl.nn.functional.alpha_dropout(x, 0.5, True).shape == x.shape
    assert fl.nn.Dropout(0.5).eval()(x) is x
    assert not fl.nn.functional.dropout(x, 1.0).cpu().any()
    y, mask = fl.native_dropout(x, 0.5, True)
    fl.testing.assert_close(y.cpu(), mask.cpu() * 2.0)


# -------------------------------------------------------------------------------------------- permutations and choices
def test_permutation(cuda):
    for count in (0, 1, 2, 10, 1000):
        got = drawn(lambda n=count: fl.randperm(n, device=cuda))
        assert sorted(got.tolist()) == list(range(count))
    w = words(1000, 2)[0]
    keys = (w[:, 0] << np.uint64(32) | w[:, 1]) % np.uint64(2**32 - 1) - np.uint64(2**31)
    bits = int(np.ceil(np.log2(1000 - (6e6 + 1) / (12 * np.log(0.9)))))
    keys &= np.uint64(2**bits - 1)
    assert len(set(keys.tolist())) == 1000
    np.testing.assert_array_equal(got.numpy(), np.argsort(keys))
    assert fl.cuda.default_generators[0].get_offset() == words(1000, 2)[1] + 1000
    assert drawn(lambda: fl.randperm(10, dtype=fl.int32, device=cuda)).dtype is fl.int32


def test_choices_with_replacement(cuda):
    weights = fl.tensor([[1.0, 0, 3, 4], [0, 0, 2, 0]], device=cuda)
    got = drawn(lambda: fl.multinomial(weights, 4000, True))
    assert set(got[1].tolist()) == {2}
    shares = fl.bincount(got[0], minlength=4) / 4000
    fl.testing.assert_close(shares, fl.tensor([0.125, 0, 0.375, 0.5]), atol=0.03, rtol=0)
    with pytest.raises(RuntimeError, match="contains either `inf`, `nan` or element < 0"):
        fl.multinomial(-weights, 2, True)
    with pytest.raises(RuntimeError, match="sum of probabilities <= 0"):
        fl.multinomial(weights * 0, 2, True)


# ----------------------------------------------------------------------------------------------------------- generators
def test_generators(cuda):
    g = fl.Generator(cuda).manual_seed(5)
    assert str(g.device) == "cuda:0"
    assert g.initial_seed() == 5
    first = fl.rand(1000, device=cuda, generator=g).cpu()
    state = g.get_state()
    assert (state.numel(), state.dtype, state.device.type) == (16, fl.uint8, "cpu")
    assert np.frombuffer(state.numpy().tobytes(), np.int64).tolist() == [5, words(1000)[1]]
    second = fl.rand(1000, device=cuda, generator=g).cpu()
    equal(fl.rand(1000, device=cuda, generator=g.set_state(state)).cpu(), second)
    for other in (g.set_state(state).clone_state(), pickle.loads(pickle.dumps(g)), copy.deepcopy(g)):
        equal(fl.rand(1000, device=cuda, generator=other).cpu(), second)
    g.manual_seed(5)
    equal(fl.rand(1000, device=cuda, generator=g).cpu(), first)
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
        fl.rand(3, device=cuda, generator=fl.Generator())
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'cuda'"):
        fl.rand(3, generator=g)
    with pytest.raises(RuntimeError, match="multiple of 4"):
        g.set_offset(3)


def test_default_generators(cuda):
    fl.manual_seed(7)
    first = fl.rand(9, device=cuda).cpu()
    assert fl.cuda.initial_seed() == 7
    state = fl.cuda.get_rng_state()
    second = fl.rand(9, device=cuda).cpu()
    fl.cuda.set_rng_state(state)
    equal(fl.rand(9, device=cuda).cpu(), second)
    fl.cuda.set_rng_state_all([state] * fl.cuda.device_count())
    equal(fl.rand(9, device=cuda).cpu(), second)
    for seeding in (fl.cuda.manual_seed, fl.cuda.manual_seed_all):
        seeding(7)
        equal(fl.rand(9, device=cuda).cpu(), first)
    on_cpu = fl.get_rng_state()
    fl.rand(9, device=cuda)
    equal(fl.get_rng_state(), on_cpu)
    before = fl.cuda.get_rng_state_all()
    with fl.random.fork_rng():
        fl.manual_seed(1)
        fl.rand(9, device=cuda)
    for b, a in zip(before, fl.cuda.get_rng_state_all()):
        equal(a, b)
    fl.cuda.seed()
    assert fl.cuda.initial_seed() != 7
    assert len(fl.cuda.default_generators) == fl.cuda.device_count()


def test_every_function_has_a_device(cuda):
    x = fl.zeros(3, 4, device=cuda)
    for made in (fl.rand_like(x), fl.randn_like(x), fl.randint_like(x, 5), fl.rand(2, 3, device=cuda),
                 fl.randperm(4, device=cuda), x.new_empty(3).normal_(), x.clone().random_(3),
                 fl.nn.init.xavier_uniform_(x.clone()), fl.nn.init.kaiming_normal_(x.clone()),
                 fl.nn.init.normal_(x.clone())):
        assert made.is_cuda
    layer = fl.nn.Linear(3, 4, device=cuda)
    assert layer.weight.is_cuda
    assert layer.weight.cpu().abs().max() <= 3 ** -0.5
    assert fl.poisson(x).is_cuda
    leaf = fl.zeros(3, device=cuda, requires_grad=True)
    y = (leaf * 2).normal_()
    y.sum().backward()
    assert not leaf.grad.cpu().any()
