"""MaskedTensor: like PyTorch's."""

import warnings

import pytest
import torch

import flambeau

MASK = [[True, False, True], [False, False, False]]
EXPRESSIONS = """
a.sum(1)
a.mean()
a.amin(1)
a.argmax(1)
a.prod()
a.std()
a.sum(dim=1, keepdim=True)
a.view(3, 2)
a.reshape(-1)
a.transpose(0, 1)
a.t()
a[0]
a[:, 1:]
a.unsqueeze(0)
a.expand(2, 2, 3)
a.to(m.float64)
a.int()
a.clone()
a > 1
a == a
-a
a ** 2
a / 2
a + a
a + 1
a.add_(1)
m.cat([a, a])
m.stack([a, a])
m.sqrt(a)
m.floor(a)
m.maximum(a, a)
m.where(m.tensor(MASK), a, a)
a.softmax(0)
a.sum()
"""


def masked(m):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return m.masked.masked_tensor(m.arange(6.0).reshape(2, 3), m.tensor(MASK))


def described(value):
    data, mask = value.get_data(), value.get_mask()
    return str(data.dtype), mask.tolist(), data.masked_fill(~mask, 0).tolist(), repr(value)


@pytest.mark.parametrize("source", EXPRESSIONS.strip().splitlines())
@pytest.mark.filterwarnings("ignore")
def test_like_pytorch(source):
    made = [described(eval(source, {"m": m, "a": masked(m), "MASK": MASK})) for m in (flambeau, torch)]
    assert made[0] == made[1]


@pytest.mark.filterwarnings("ignore")
def test_gradients():
    def grad(m):
        a = m.masked.masked_tensor(m.arange(6.0).reshape(2, 3), m.tensor(MASK), requires_grad=True)
        (a * a).sum().backward()
        return described(a.grad)

    assert grad(flambeau) == grad(torch)
    x = flambeau.ones(3, requires_grad=True)
    flambeau.masked.as_masked_tensor(x * 2, flambeau.tensor(MASK[0])).sum().backward()
    assert x.grad.tolist() == [2, 0, 2]


@pytest.mark.parametrize("data, mask, error", [(lambda m: m.ones(2), lambda m: m.ones(3) > 0, ValueError),
                                               (lambda m: m.ones(2), lambda m: m.ones(2), TypeError),
                                               (lambda m: [1.0], lambda m: m.ones(1) > 0, TypeError)])
@pytest.mark.filterwarnings("ignore")
def test_refusals(data, mask, error):
    for m in (flambeau, torch):
        with pytest.raises(error):
            m.masked.masked_tensor(data(m), mask(m))


@pytest.mark.filterwarnings("ignore")
def test_different_masks():
    for m in (flambeau, torch):
        with pytest.raises(ValueError, match="match"):
            masked(m) + m.masked.masked_tensor(m.ones(2, 3), m.ones(2, 3) > 0)
