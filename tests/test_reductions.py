"""Reductions mean what they mean in PyTorch: values, dtypes, shapes, gradients and kinds of errors."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from compare import EXACT, Tolerance, same
from hypothesis import given, settings
from hypothesis import strategies as st
from reduction_cases import MASKED, REDUCTIONS, names

import flambeau
from flambeau import native

TOLERANCES = {  # half precision: the last place, for PyTorch rounds some intermediate values too
    "float16": Tolerance(1e-3, 1e-6), "bfloat16": Tolerance(8e-3, 1e-6), "float32": Tolerance(2e-6, 1e-6),
    "complex64": Tolerance(2e-6, 1e-6), "float64": Tolerance(1e-9, 1e-11), "complex128": Tolerance(1e-9, 1e-11)}


def evaluate(t, expression):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return eval(expression, names(t))
        except Exception as error:
            return error


@pytest.mark.parametrize("expression", REDUCTIONS + MASKED)
def test_same_as_pytorch(expression):
    same(evaluate(torch, expression), evaluate(flambeau, expression), TOLERANCES.get)


# ---------------------------------------------------------------------------------------------------- gradients
DATA = np.array([[1.5, -2.0, 3.0, 0.5], [0.7, 2.5, -1.0, 4.0], [2.2, 0.1, -0.3, 1.1]])
ZEROS = np.array([[1.5, 0.0, 3.0, 0.5], [0.0, 2.5, 0.0, 4.0], [2.2, 0.1, -0.3, 1.1]])
TIES = np.array([[1.0, 3.0, 3.0, 1.0], [2.0, 2.0, 2.0, 2.0], [0.0, 0.0, 5.0, 5.0]])
GRADIENTS = [
    (DATA, "x.sum()"), (DATA, "x.sum(0)"), (DATA, "x.sum((0, 1), keepdim=True)"), (DATA, "x.mean()"),
    (DATA, "x.mean(1)"),
    (DATA, "x.prod()"), (ZEROS, "x.prod()"), (DATA, "x.prod(1)"), (ZEROS, "x.prod(0)"), (ZEROS, "x.prod(1, True)"),
    (ZEROS[2], "x.prod()"), (DATA, "x.var()"), (DATA, "x.var(0)"), (DATA, "x.std(1, correction=0)"), (DATA, "x.std()"),
    (DATA, "sum(v.sum() for v in t.var_mean(x, 0))"), (DATA, "sum(v.sum() for v in t.std_mean(x, 1))"),
    (DATA, "x.amax(1)"), (TIES, "x.amax(1)"), (TIES, "x.amin((0, 1))"), (TIES, "x.max()"), (TIES, "x.min()"),
    (TIES, "x.max(1)[0]"), (TIES, "x.min(0).values"), (DATA, "x.max(1, keepdim=True)[0]"),
    (TIES, "x.aminmax(dim=0)[1] * 2 + x.aminmax(dim=0)[0]"), (DATA, "x.logsumexp(0)"), (DATA, "x.logsumexp((0, 1))"),
    (DATA, "x.nansum(1)"), (DATA, "x.nanmean(1)"), (DATA, "x.norm()"), (DATA, "x.norm(1)"), (DATA, "x.norm(3, 1)"),
    (DATA, "x.norm(1.5, 0)"), (DATA, "x.norm(.5, 0)"), (DATA, "x.norm(float('inf'), 0)"),
    (TIES, "x.norm(float('inf'))"),
    (TIES, "x.norm(2, 1)"), (ZEROS * 0, "x.norm()"), (DATA, "t.dist(x, x.flip(0), 3)"), (DATA, "x.renorm(2, 0, 1.)"),
    (DATA, "x.renorm(3, 1, 1.)"), (DATA, "x.median()"), (TIES, "x.median()"), (DATA, "x.median(1)[0]"),
    (DATA, "x.nanmedian(0)[0]"), (TIES, "x.mode(1)[0]"), (DATA, "x.quantile(.3, 1)"), (DATA, "x.quantile(.3)"),
    (DATA, "x.nanquantile(.7, 0)"), (DATA, "x.cov()"), (DATA, "x.corrcoef()"), (DATA, "t.trapezoid(x)"),
    (DATA, "t.cumulative_trapezoid(x, dim=0)"), (DATA, "sum(g.sum() for g in t.gradient(x))"),
]


def gradients(t, data, expression):
    """First and second derivatives of a weighted sum of the result."""
    x = t.tensor(data.tolist(), dtype=t.float64, requires_grad=True)
    y = eval(expression, {"t": t, "x": x, "sum": sum})
    weights = t.tensor(np.linspace(0.5, 1.5, y.numel()).tolist(), dtype=t.float64).reshape(y.shape)
    first, = t.autograd.grad((y * weights).sum(), x, create_graph=True)
    second = None
    if first.requires_grad:
        second, = t.autograd.grad((first * first).sum(), x, allow_unused=True)
    return first.detach(), t.zeros_like(x) if second is None else second


@pytest.mark.parametrize(("data", "expression"), GRADIENTS)
def test_gradients(data, expression):
    expected, got = gradients(torch, data, expression), gradients(flambeau, data, expression)
    same(expected, got, Tolerance(1e-9, 1e-8))


@pytest.mark.parametrize("expression", ["x.sum()", "x.mean()", "x.prod()", "x.prod(0)", "x.var()", "x.norm(3)",
                                        "x.logsumexp(0)", "x.norm(1)", "x.std()"])
def test_complex_gradients(expression):
    made = []
    for t in (torch, flambeau):
        x = t.tensor([1 + 2j, -0.5 + 1j, 0.3 - 2j], dtype=t.complex128, requires_grad=True)
        y = eval(expression, {"x": x})
        (y.abs() if y.is_complex() else y).backward()
        made.append(x.grad)
    same(made[0], made[1], 1e-9)


@pytest.mark.parametrize("expression", [
    "x.sum()", "x.sum(0)", "x.mean()", "x.mean(0)", "x.prod()", "x.prod(0)", "x.var()", "x.std(0)", "x.amax()",
    "x.max()", "x.max(0)[0]", "x.median()", "x.median(0)[0]", "x.norm()", "x.logsumexp(0)", "x.nansum()",
    "t.dist(x, x)", "x.mode(0)[0]", "t.var_mean(x)[0]", "x.min()", "x.aminmax()[0]", "x.renorm(2, 0, 1.)"])
def test_names_of_nodes(expression):
    made = [type(eval(expression, {"t": t, "x": t.ones(2, 3, requires_grad=True)}).grad_fn).__name__
            for t in (torch, flambeau)]
    assert made[0] == made[1]


def test_sum_saves_only_the_shape():
    x = flambeau.ones(3, 4, requires_grad=True)
    y = x * 2
    assert y.sum(0).grad_fn._saved_dim == (0,)
    total = y.sum() + y.mean()
    y.zero_()  # nobody needs the old value
    total.backward()
    assert x.grad is not None


# ----------------------------------------------------------------------------------------------------- accuracy
@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.data())
def test_sum_over_any_dims_and_strides(shape, data):
    # Positive numbers: where terms cancel, two right orders of adding differ by any relative amount.
    x = np.random.default_rng(sum(shape)).uniform(0.5, 1.5, shape).astype(np.float32)
    order = data.draw(st.permutations(range(len(shape))))
    dims = data.draw(st.lists(st.sampled_from(range(len(shape))), unique=True, min_size=1))
    keepdim = data.draw(st.booleans())
    ours, theirs = flambeau.from_numpy(x).permute(*order), torch.from_numpy(x).permute(*order)
    for name in ("sum", "mean", "amax", "var"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            same(getattr(theirs, name)(dims, keepdim=keepdim), getattr(ours, name)(dims, keepdim=keepdim),
                 Tolerance(1e-5, 1e-6))


@pytest.mark.parametrize(("shape", "dim"), [
    ((1000003,), None), ((1000, 700), 0), ((1000, 700), 1), ((5000, 3), 0), ((3, 100000), 1), ((4, 3000, 20), 1),
    ((16, 8, 30, 30), (0, 2, 3)), ((100000, 3), 1), ((2, 700, 700), (0, 1)), ((3, 5, 40000), (0, 2))])
def test_long_sums_are_accurate(shape, dim):
    x = np.random.default_rng(1).random(shape, np.float32)
    exact = x.astype(np.float64).sum(axis=dim)
    tensor = flambeau.from_numpy(x)
    got = (tensor.sum() if dim is None else tensor.sum(dim)).numpy()
    np.testing.assert_allclose(got, exact, rtol=4e-7)
    np.testing.assert_allclose((tensor.var() if dim is None else tensor.var(dim)).numpy(),
                               x.astype(np.float64).var(axis=dim, ddof=1), rtol=2e-6)
    np.testing.assert_allclose((tensor.norm() if dim is None else tensor.norm(2, dim)).numpy(),
                               np.sqrt((x.astype(np.float64) ** 2).sum(axis=dim)), rtol=1e-6)


@pytest.mark.parametrize("dim", [None, 0, 1, (0, 2), (1, 2)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_sums_of_expanded_tensors_take_no_memory(dim, keepdim):
    small = np.arange(12, dtype=np.float32).reshape(3, 1, 4)
    made = [t.from_numpy(small).expand(3, 5, 4).sum(dim, keepdim) for t in (torch, flambeau)]
    same(*made, EXACT)
    huge = flambeau.ones(1).expand(1 << 12, 1 << 12, 1 << 12)
    assert huge.sum().item() == 2.0 ** 36
    assert huge[:4].sum((1, 2)).tolist() == [2.0 ** 24] * 4


def test_halves_accumulate_in_float32():
    x = np.full(5000, 0.1, np.float16)
    assert flambeau.from_numpy(x).sum().item() == torch.from_numpy(x).sum().item()
    assert flambeau.ones(70000, dtype=flambeau.float16).mean().item() == 1.0
    assert flambeau.ones(1000, dtype=flambeau.bfloat16).sum().item() == 1000


def test_special_values_survive_the_fast_sums():
    x = np.ones(100_000, np.float32)
    x[77_777] = np.inf
    assert flambeau.from_numpy(x).sum().item() == np.inf
    x[5] = -np.inf
    assert np.isnan(flambeau.from_numpy(x).sum().item())


def test_out():
    x = flambeau.tensor([[1.0, 2.0], [3.0, 4.0]])
    out = flambeau.empty(2)
    assert flambeau.sum(x, 0, out=out) is out and out.tolist() == [4.0, 6.0]
    values, indices = flambeau.empty(2), flambeau.empty(2, dtype=flambeau.int64)
    made = flambeau.max(x, 0, out=(values, indices))
    assert made.values is values and indices.tolist() == [1, 1]
    flambeau.mean(x, 1, out=out)
    assert out.tolist() == [1.5, 3.5]
    with pytest.raises(RuntimeError):
        flambeau.sum(x.requires_grad_(), 0, out=out)


@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
def test_spread_of_all_elements_without_native_kernels(name):
    with native.off():
        made = getattr(flambeau, name)(flambeau.tensor([1.0, 2.0, 4.0]))
    same(made, getattr(torch, name)(torch.tensor([1.0, 2.0, 4.0])))
