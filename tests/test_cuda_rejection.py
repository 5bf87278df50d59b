"""Poisson, binomial, gamma and Dirichlet numbers on a CUDA device: the CPU's ways, over the words of Philox's streams."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_host import needs_gxx
from test_cuda_random import drawn, philox

import flambeau as fl
from flambeau.backends.cpu.random import rejection

pytestmark = needs_gxx


class Reader:
    """A stream word by word, as PyTorch's CUDA kernels take it."""

    def __init__(self, which, seed=0, offset=0):
        self.which, self.seed, self.place, self.held, self.spare = which, seed, offset // 4, [], None

    def word(self):
        if not self.held:
            self.held = philox(self.seed, [self.which], self.place)[0].tolist()
            self.place += 1
        return self.held.pop(0)

    def __call__(self):
        return (self.word() & 0xFFFFFF) * 2.0**-24

    def unit(self):
        return np.float32(self.word()) * np.float32(2**-32) + np.float32(2**-33)

    def normal(self):
        if self.spare is not None:
            made, self.spare = self.spare, None
            return made
        length, angle = np.sqrt(-2 * np.log(self.word() * 2.0**-32 + 2.0**-33)), (self.word() + 0.5) * (2 * np.pi * 2.0**-32)
        self.spare = np.cos(angle) * length
        return np.sin(angle) * length


class Closed(Reader):
    """One whose uniform numbers are of (0, 1], as gamma numbers take them."""

    def __call__(self):
        return float(self.unit())


def offset():
    return int(np.frombuffer(fl.cuda.get_rng_state().numpy().tobytes(), np.uint64)[1])


@pytest.mark.parametrize("dtype", [fl.float32, fl.float64])
def test_gamma(dtype, cuda):
    alpha = fl.tensor([0.1, 0.5, 1.0, 2.5, 40.0, 0.0], dtype=dtype).repeat(50)
    made = drawn(lambda: fl._standard_gamma(alpha.to(cuda)))
    wanted = [rejection._gamma_one(Closed(e), a, dtype is fl.float32) for e, a in enumerate(alpha.tolist())]
    tiny = fl.finfo(dtype).tiny
    np.testing.assert_allclose(made.double().numpy(), np.maximum(wanted, tiny), rtol=2e-4 if dtype is fl.float32 else 1e-5)
    assert offset() == 12


def test_known_numbers(cuda):
    """What PyTorch 2.11 drew on a GPU."""
    alpha = fl.tensor([0.3136584162712097, 0.12653855979442596, 3.273798704147339, 0.3267402946949005])
    made = drawn(lambda: fl._standard_gamma(alpha.to(cuda)), 513)
    np.testing.assert_allclose(made.numpy(), [8.92682076e-02, 1.40313036e-03, 3.80755639, 7.19700256e-05], rtol=1e-5)


def test_dirichlet(cuda):
    alpha = fl.tensor([[0.5, 2.0, 3.0], [1.0, 1.0, 1e-3]])
    made = drawn(lambda: fl._sample_dirichlet(alpha.to(cuda)))
    gammas = drawn(lambda: fl._standard_gamma(alpha.to(cuda)))
    fl.testing.assert_close(made, (gammas / gammas.sum(-1, keepdim=True)).clamp(min=fl.finfo(fl.float32).tiny))
    x = alpha.to(cuda).requires_grad_()
    assert fl.distributions.Dirichlet(x).sample().is_cuda


def test_binomial(cuda):
    count = fl.tensor([0.0, 5.0, 100.0, 1000.0, 40.0, 9.0]).repeat(250)
    prob = fl.tensor([0.5, 0.3, 0.9, 0.25, 0.02, 1.0]).repeat(250)
    made = drawn(lambda: fl.binomial(count.to(cuda), prob.to(cuda)))
    readers: dict[int, Reader] = {}
    for e, (n, p, got) in enumerate(zip(count.tolist(), prob.tolist(), made.tolist())):
        which = e // 1024 * 128 + e % 128
        reader = readers.setdefault(which, Reader(which))
        assert got == rejection._binomial_one(reader, n, p, True), e
    assert offset() == 44


def test_poisson(cuda):
    rates = fl.tensor([0.0, 0.5, 3.0, 30.0]).repeat(100)
    made = drawn(lambda: fl.poisson(rates.to(cuda)))
    for e, (rate, got) in enumerate(zip(rates.tolist(), made.tolist())):
        reader, product, found = Reader(e), np.exp(np.float32(rate)), 0
        while True:
            product *= reader.unit()
            if not product > 1:
                break
            found += 1
        assert got == found, e
    assert offset() == 20
    for rate in (100.0, 2000.0, 9000.0):
        many = drawn(lambda r=rate: fl.poisson(fl.full((4000,), r, device=cuda))).double()
        assert abs(many.mean() - rate) < 0.05 * rate**0.5 * 3
        assert abs(many.var() / rate - 1) < 0.15
    with pytest.raises(RuntimeError, match="invalid Poisson rate"):
        fl.poisson(fl.tensor([-1.0], device=cuda)).cpu()


def test_layouts_and_distributions(cuda):
    rates = fl.rand(3, 4).t().to(cuda) * 9
    made = fl.poisson(rates)
    assert (made.shape, made.stride()) == (rates.shape, rates.stride())
    assert fl.poisson(rates[:, ::2]).shape == (4, 2)
    assert fl.poisson(rates[:0]).shape == (0, 3)
    for distribution in (fl.distributions.Gamma(rates + 1, rates + 1), fl.distributions.Beta(rates + 1, rates + 1),
                         fl.distributions.Poisson(rates), fl.distributions.StudentT(rates + 1)):
        assert distribution.sample().is_cuda
    assert fl.distributions.Binomial(5, fl.rand(3, device=cuda)).sample().is_cuda
