"""Same seed, same numbers: the user's side of random numbers (the kernels have their own tests)."""

import pickle
import threading

import numpy as np
import pytest
import torch
from compare import MODULES, agree_on
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau

DRAWS = """
torch.rand(3)
torch.rand(2, 3)
torch.rand((2, 3))
torch.rand(())
torch.rand(0)
torch.rand(size=(2,))
torch.rand()
torch.rand(100, dtype=torch.float64)
torch.rand(20, dtype=torch.bfloat16)
torch.rand(20, dtype=torch.float16)
torch.rand(5, dtype=torch.complex64)
torch.rand(2, dtype=torch.int64)
torch.rand((2,), out=torch.empty(2))
torch.rand(3, out=torch.empty(3, dtype=torch.float64))
torch.rand(2, requires_grad=True)
torch.rand(2, generator=3)
torch.rand(2, generator=None)
torch.rand(4, generator=torch.Generator().manual_seed(5))
torch.randn(3)
torch.randn(16)
torch.randn(17)
torch.randn(100)
torch.randn(33, dtype=torch.float64)
torch.randn(20, dtype=torch.complex64)
torch.randn([2,3])
torch.randn(2, dtype=torch.int64)
torch.rand_like(torch.ones(2, 3))
torch.rand_like(torch.ones(2, 3).t())
torch.rand_like(torch.ones(2, 3, 4).permute(2, 0, 1))
torch.randn_like(torch.ones(2, 3).t())
torch.randn_like(torch.ones(8, 3).t())
torch.randn_like(torch.ones(8, 3))
torch.rand_like(torch.ones(2), dtype=torch.float64)
torch.rand_like(torch.ones(2,dtype=torch.int64))
torch.randint(0, (2,))
torch.randint(5, 5, (2,))
torch.randint(0, 300, (2,), dtype=torch.uint8)
torch.randint(0, 256, (20,), dtype=torch.uint8)
torch.randint(-1, 2, (2,), dtype=torch.uint8)
torch.randint(0, 3, (2,), dtype=torch.bool)
torch.randint(0, 2, (20,), dtype=torch.bool)
torch.randint(0, 2**24+2, (2,), dtype=torch.float32)
torch.randint(3, (2,))
torch.randint(3, size=(2,))
torch.randint(high=3, size=(2,))
torch.randint(low=1, high=3, size=(2,))
torch.randint(1, high=3, size=(2,))
torch.randint(1, 3, size=(2,))
torch.randint(-100, 100, (50,), dtype=torch.int8)
torch.randint(-2**40, 2**40, (20,))
torch.randint(1.5, 3, (2,))
torch.randint(3)
torch.randint(3, 2)
torch.randint(1, 3, 2)
torch.randint(torch.tensor(1), torch.tensor(3), (2,))
torch.randint(0, 2, (2,), dtype=torch.complex64)
torch.randint(0, 5, (3,), dtype=torch.float32)
torch.randint_like(torch.ones(2), 3)
torch.randint_like(torch.ones(2), 1, 3)
torch.randint_like(torch.ones(2), high=3)
torch.randint_like(torch.ones(2,3).t(), 1, 30)
torch.randperm(0)
torch.randperm(10)
torch.randperm(1000)
torch.randperm(-1)
torch.randperm(3, dtype=torch.int32)
torch.randperm(300, dtype=torch.uint8)
torch.randperm(3, dtype=torch.bool)
torch.randperm(3.)
torch.normal(0, 1, (2,))
torch.normal(2., 3., (40,))
torch.normal(mean=2., std=3., size=(4,))
torch.normal(0., 1.)
torch.normal(0, -1, (2,))
torch.normal(torch.zeros(2), torch.ones(3))
torch.normal(torch.zeros(2), -torch.ones(2))
torch.normal(torch.zeros(2,dtype=torch.int64), 1.)
torch.normal(torch.zeros(2,1), torch.ones(3))
torch.normal(torch.arange(5.), 2.)
torch.normal(2., torch.arange(5.))
torch.normal(torch.arange(20.), torch.arange(20.))
torch.normal(torch.arange(5.), 2., out=torch.empty(5))
torch.bernoulli(torch.full((20,), 0.3))
torch.bernoulli(torch.full((20,), 0.3, dtype=torch.float64))
torch.bernoulli(torch.full((4, 5), 0.3).t())
torch.bernoulli(torch.ones(2,dtype=torch.int64))
torch.bernoulli(torch.ones(2)*2)
torch.bernoulli(torch.ones(2), 2.)
torch.bernoulli(torch.ones(10), 0.4)
torch.ones(10).bernoulli(p=0.5)
torch.ones(10).bernoulli_(2.)
torch.ones(10).bernoulli_()
torch.ones(10).bernoulli_(0.3)
torch.ones(10,dtype=torch.int64).bernoulli_(0.5)
torch.ones(10,dtype=torch.int64).bernoulli_(torch.full((10,), 0.5))
torch.ones(2, 10).bernoulli_(torch.full((10,), 0.5))
torch.ones(2).bernoulli_(torch.ones(2,dtype=torch.int64))
torch.poisson(torch.arange(20.))
torch.poisson(torch.ones(2,dtype=torch.int64))
torch.poisson(-torch.ones(2))
torch.binomial(torch.full((10,), 20.), torch.full((10,), 0.4))
torch.multinomial(torch.arange(10.), 4)
torch.multinomial(torch.arange(10.), 40, replacement=True)
torch.multinomial(torch.ones(3, 5), 2)
torch.multinomial(torch.ones(2), 0)
torch.multinomial(torch.ones(2), 3)
torch.multinomial(-torch.ones(2), 1)
torch.multinomial(torch.zeros(2), 1)
torch.multinomial(torch.zeros(2), 2, True)
torch.multinomial(torch.zeros(2,dtype=torch.int64), 1)
torch.multinomial(torch.ones(2,2,2), 1)
torch.multinomial(torch.ones(0), 1)
torch.multinomial(torch.ones(()), 1)
torch.empty(20).uniform_()
torch.empty(20).uniform_(-3, 5)
torch.empty(20, dtype=torch.float64).uniform_(-3, 5)
torch.empty(4, 5).t().uniform_()
torch.empty(4, 10)[:, ::2].uniform_()
torch.empty(3, 4, 5).permute(1, 2, 0)[:, 1:].uniform_()
torch.empty(3).uniform_(from_=1) if False else 0
torch.ones(2,requires_grad=True).uniform_()
torch.ones(2).uniform_(2, 1)
torch.ones(2).uniform_(inf, 1)
torch.ones(2,dtype=torch.int64).uniform_()
torch.ones(1).expand(3).uniform_()
torch.empty(20).normal_()
torch.empty(5).normal_(2, 3)
torch.empty(4, 5).t().normal_()
torch.empty(40).normal_(mean=1., std=0.5)
torch.ones(2,dtype=torch.int64).normal_()
torch.ones(2).normal_(0, -1)
torch.ones(2).normal_(std=nan)
torch.empty(10).exponential_()
torch.empty(10).exponential_(2.5)
torch.ones(2).exponential_(0)
torch.ones(2).exponential_(-1)
torch.ones(2,dtype=torch.int64).exponential_()
torch.empty(10).geometric_(0.3)
torch.ones(2).geometric_(0)
torch.ones(2).geometric_(1)
torch.ones(2,dtype=torch.int64).geometric_(0.5)
torch.empty(10).cauchy_()
torch.empty(10).cauchy_(1, 2)
torch.ones(2).cauchy_(0, 0)
torch.ones(2,dtype=torch.int64).cauchy_()
torch.empty(10).log_normal_()
torch.ones(2).log_normal_(0, 0)
torch.ones(2,dtype=torch.int64).log_normal_()
torch.empty(10).random_()
torch.empty(10, dtype=torch.int64).random_()
torch.empty(10, dtype=torch.uint8).random_()
torch.empty(10).random_(7)
torch.empty(10).random_(3, 7)
torch.empty(10).random_(0, None)
torch.empty(10, dtype=torch.int64).random_(5, None)
torch.empty(10, dtype=torch.int64).random_(to=9)
torch.ones(2).random_(3, 2)
torch.ones(2,dtype=torch.uint8).random_(300)
torch.ones(2,dtype=torch.complex64).random_()
torch.manual_seed(-1).initial_seed()
torch.manual_seed(2**64)
torch.manual_seed(2**63).initial_seed()
torch.manual_seed(-2**63-1)
torch.manual_seed('a')
torch.manual_seed(1.5).initial_seed()
torch.Generator().get_state()
torch.Generator().set_state(torch.zeros(5056,dtype=torch.uint8))
torch.Generator().set_state(torch.zeros(5))
torch.Generator().manual_seed(3).initial_seed()
torch.Generator().device
torch.Generator(device='cpu').device
torch.set_rng_state(torch.zeros(5))
torch.set_rng_state(1)
torch.initial_seed()
torch.get_rng_state()
torch.random.default_generator is torch.default_generator
torch.random.initial_seed()
[torch.rand(3), torch.randn(3), torch.randn(20), torch.rand(2), torch.get_rng_state()]
[torch.randn(1), torch.get_rng_state(), torch.randn(1)]
"""


@pytest.mark.parametrize("source", DRAWS.strip().split("\n"))
def test_as_pytorch(source):
    agree_on(source)


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_a_generator_of_a_gpu_that_is_not_there(module):
    if module.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(RuntimeError, match="CUDA|cuda"):
        module.Generator("cuda")


NODES = """
torch.normal(x, 1.)
torch.normal(0., x)
torch.normal(x, torch.ones(2))
torch.normal(x, x)
(x * 2).uniform_()
(x * 2).normal_()
(x * 2).random_()
(x * 2).random_(3)
(x * 2).random_(1, 3)
(x * 2).exponential_()
(x * 2).geometric_(0.5)
(x * 2).cauchy_()
(x * 2).log_normal_()
(x * 2).bernoulli_()
(x * 2).bernoulli_(torch.ones(2))
torch.bernoulli(x)
torch.poisson(x)
"""


@pytest.mark.parametrize("source", NODES.strip().split("\n"))
def test_draws_send_back_zeros(source):
    found = []
    for package in (torch, flambeau):
        package.manual_seed(0)
        x = package.ones(2, requires_grad=True)
        y = eval(source, {"torch": package, "x": x})
        y.sum().backward()
        found.append((y.grad_fn.name(), y.tolist(), x.grad.tolist()))
    assert found[0] == found[1]


def test_what_has_no_derivative_says_so():
    x = flambeau.ones(2, requires_grad=True)
    assert not flambeau.multinomial(x, 1).requires_grad
    with pytest.raises((NotImplementedError, RuntimeError)):
        flambeau.binomial(x, flambeau.ones(2)).sum().backward()


SIZES = st.lists(st.sampled_from([
    "rand({n})", "randn({n})", "randint(100, ({n},))", "randperm({n})", "empty({n}).uniform_(-1, 1)",
    "empty({n}).normal_(1, 2)",
    "rand({n}, dtype=torch.float64)", "randn({n}, dtype=torch.float64)", "empty({n}).exponential_()"]), min_size=1,
    max_size=8)


@settings(max_examples=40, deadline=None)
@given(SIZES, st.integers(0, 60), st.integers(0, 2**63 - 1))
def test_any_sequence_of_draws(calls, n, seed):
    torch.manual_seed(seed)
    flambeau.manual_seed(seed)
    for i, call in enumerate(calls):
        size = n + 7 * i
        theirs = eval("torch." + call.format(n=size), {"torch": torch})
        ours = eval("torch." + call.format(n=size), {"torch": flambeau})
        assert np.array_equal(theirs.numpy(), ours.numpy()), call
    assert np.array_equal(torch.get_rng_state().numpy(), flambeau.get_rng_state().numpy())


def test_state_goes_both_ways_with_pytorch():
    torch.manual_seed(3)
    torch.randn(5)
    flambeau.set_rng_state(flambeau.from_numpy(torch.get_rng_state().numpy().copy()))
    assert torch.randn(20).tolist() == flambeau.randn(20).tolist()


def test_a_generator_has_its_own_stream():
    g = flambeau.Generator().manual_seed(1)
    first = flambeau.rand(3, generator=g)
    clone = g.clone_state()
    again = pickle.loads(pickle.dumps(g))
    following = flambeau.rand(3, generator=g).tolist()
    assert flambeau.rand(3, generator=clone).tolist() == following == flambeau.rand(3, generator=again).tolist()
    assert flambeau.rand(3, generator=g.manual_seed(1)).tolist() == first.tolist()
    assert isinstance(g.seed(), int) and g.initial_seed() < 1 << 64


def test_fork_rng_restores():
    flambeau.manual_seed(1)
    before = flambeau.get_rng_state()
    with flambeau.random.fork_rng():
        flambeau.rand(100)
    assert flambeau.equal(before, flambeau.get_rng_state())
    with pytest.raises(ValueError), flambeau.random.fork_rng():
        flambeau.rand(100)
        raise ValueError
    assert before.tolist() == flambeau.get_rng_state().tolist()


def test_threads_share_one_generator():
    flambeau.manual_seed(0)
    made = []

    def draw():
        for _ in range(50):
            made.extend(flambeau.rand(10).tolist())

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    flambeau.manual_seed(0)
    assert sorted(made) == sorted(flambeau.rand(2000).tolist())


def test_a_draw_counts_as_a_change():
    x = flambeau.ones(3)
    x.uniform_()
    assert x._version == 1
