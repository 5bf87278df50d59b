"""The native attention kernels against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from compare import rounding, same

import flambeau
import flambeau.nn.functional
from flambeau import native
from flambeau.backends.cpu.table import KERNELS

pytestmark = [pytest.mark.skipif(native.library("attention") is None, reason="needs a C compiler"),
              pytest.mark.usefixtures("threads")]
GEOMETRIES = [(2, 3, 8, 8, 16, 16), (1, 2, 5, 9, 3, 3), (2, 2, 17, 4, 7, 5), (3, 4, 64, 64, 32, 32), (1, 1, 1, 1, 1, 1),
              (1, 2, 130, 130, 8, 24), (1, 1, 70, 200, 33, 40), (2, 1, 65, 31, 64, 16)]


def inputs(geometry, dtype):
    batch, heads, rows, columns, depth, width = geometry
    draw = np.random.default_rng(0).standard_normal
    return [draw((batch, heads, *shape)).astype(dtype) for shape in
            ((rows, depth), (columns, depth), (columns, width), (rows, width))]


def attention_agrees(q, k, v, mask, causal, grad, scale=0.3, ulps=100):
    """Results and gradients natively and by NumPy."""
    out, statistic = KERNELS["attention"](q, k, v, mask, causal, scale)
    grads = KERNELS["attention_backward"](grad, q, k, v, mask, causal, scale, out, statistic)
    with native.off():
        expected = KERNELS["attention"](q, k, v, mask, causal, scale)
        reference = KERNELS["attention_backward"](grad, q, k, v, mask, causal, scale, *expected)
    same((expected[0], *reference), (out, *grads), rounding(ulps))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("causal", [False, True])
def test_attention(geometry, causal, dtype):
    q, k, v, grad = inputs(geometry, dtype)
    attention_agrees(q, k, v, None, causal, grad)


@pytest.mark.parametrize("geometry", GEOMETRIES[:4] + GEOMETRIES[6:7])
@pytest.mark.parametrize("shape", ["full", "row", "column", "head", "matrix"])
@pytest.mark.parametrize("kind", ["number", "bool"])
def test_masks(geometry, shape, kind):
    batch, heads, rows, columns, _, _ = geometry
    q, k, v, grad = inputs(geometry, np.float32)
    sizes = {"full": (batch, heads, rows, columns), "row": (1, 1, rows, 1), "column": (batch, 1, 1, columns),
             "head": (heads, 1, 1), "matrix": (rows, columns)}[shape]
    mask = np.random.default_rng(3).standard_normal(sizes).astype(np.float32)
    attention_agrees(q, k, v, mask if kind == "number" else mask > -0.5, False, grad)
    attention_agrees(q, k, v, mask if kind == "number" else mask > -0.5, True, grad)


def test_rows_that_see_nothing():
    q, k, v, grad = inputs((2, 2, 6, 6, 4, 4), np.float32)
    mask = np.ones((6, 6), bool)
    mask[2] = False
    out, statistic = KERNELS["attention"](q, k, v, mask, False, 0.5)
    assert not out[:, :, 2].any() and np.isposinf(statistic[:, :, 2]).all()
    attention_agrees(q, k, v, mask, False, grad)


def test_heads_of_one_projection():
    """q, k and v as strided windows onto one array, the gradient in the same order of dimensions."""
    batch, rows, heads, depth = 3, 20, 4, 8
    packed = np.random.default_rng(0).standard_normal((batch, rows, 3, heads, depth)).astype(np.float32)
    q, k, v = (packed[:, :, i].swapaxes(1, 2) for i in range(3))
    grad = np.random.default_rng(1).standard_normal((batch, rows, heads, depth)).astype(np.float32).swapaxes(1, 2)
    attention_agrees(q, k, v, None, True, grad)
    attention_agrees(q[:, :, ::-1], k[..., ::-1], np.broadcast_to(v[:1], v.shape), None, True,
                     np.broadcast_to(grad[:, :1], grad.shape))


@pytest.mark.parametrize("ndim", [2, 3, 5])
def test_other_numbers_of_dimensions(ndim):
    q, k, v, grad = inputs((2, 3, 10, 12, 8, 8), np.float32)
    pick = {2: lambda x: x[0, 0], 3: lambda x: x[0], 5: lambda x: x[None]}[ndim]
    attention_agrees(pick(q), pick(k), pick(v), None, True, pick(grad))


def test_nan_and_large_scores():
    q, k, v, grad = inputs((1, 2, 9, 9, 8, 8), np.float32)
    large = [x.astype(np.float64) * 100 for x in (q, k)]
    # scores of 1e5, and their rounding
    attention_agrees(*large, v.astype(np.float64), None, True, grad.astype(np.float64), 1.0, ulps=1e6)
    q[0, 0, 3] = np.nan
    out = KERNELS["attention"](q, k, v, None, False, 0.5)[0]
    assert np.isnan(out[0, 0, 3]).all() and not np.isnan(np.delete(out[0, 0], 3, 0)).any() and not np.isnan(out[0, 1]).any()


def test_empty():
    for geometry in ((0, 2, 3, 3, 4, 4), (1, 2, 0, 3, 4, 4), (1, 2, 3, 0, 4, 4)):
        q, k, v, grad = inputs(geometry, np.float32)
        out = KERNELS["attention"](q, k, v, None, False, 0.5)[0]
        assert out.shape == grad.shape and not out.any()


# ------------------------------------------------------------------------------------------------------ in programs
def _losses(F, scores, target, y):
    """Everything that has a lowering beside attention, in one number."""
    probabilities = F.sigmoid(scores)
    return (F.cross_entropy(scores, target) + F.nll_loss(F.log_softmax(scores, 1), target, ignore_index=1)
            + F.cross_entropy(scores, target, reduction="sum", ignore_index=2) + (F.softmax(scores, 0) * y).sum()
            + F.cross_entropy(scores, target, reduction="none").square().mean() + F.mse_loss(scores, y)
            + F.huber_loss(scores, y, delta=0.5) + F.smooth_l1_loss(scores, y, reduction="sum", beta=0.7)
            + F.soft_margin_loss(scores, y.sign()) + F.binary_cross_entropy(probabilities, y.abs().clamp(max=1))
            + F.binary_cross_entropy_with_logits(scores, y.abs()))


def test_a_program_of_all_of_them(monkeypatch):
    from flambeau.compiler.render import lower, lowerings
    lower._load()
    fallen, taken = [], set()
    for name, function in list(lowerings.LOWERINGS.items()):
        def watched(op, name=name, function=function):
            made = function(op)
            taken.add(name)
            if made is None:
                fallen.append(name)
            return made
        monkeypatch.setitem(lowerings.LOWERINGS, name, watched)
    nn, F = flambeau.nn, flambeau.nn.functional
    flambeau.manual_seed(0)
    norm, rms, qkv, head = nn.LayerNorm(24), nn.RMSNorm(24), nn.Linear(24, 72), nn.Linear(24, 11)
    layers = nn.ModuleList([norm, rms, qkv, head])
    x, target, y = flambeau.randn(2, 8, 24), flambeau.randint(0, 11, (16,)), flambeau.randn(16, 11)
    mask = flambeau.randn(8, 8)

    def step():
        layers.zero_grad()
        q, k, v = (t.view(2, 8, 3, 8).transpose(1, 2) for t in qkv(rms(norm(x))).split(24, dim=2))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True) + F.scaled_dot_product_attention(q, k, v, mask)
        loss = _losses(F, head(seen.transpose(1, 2).reshape(16, 24)), target, y)
        loss.backward()
        return loss

    expected = step().item()
    grads = [p.grad.clone() for p in layers.parameters()]
    program = flambeau.compile(step)
    for _ in range(2):
        assert abs(program().item() - expected) < 1e-5 * abs(expected)
    same(grads, [p.grad for p in layers.parameters()], 1e-5)
    ours = {"softmax", "log_softmax", "layer_norm_shaped", "rms_norm", "cross_entropy", "nll_loss", "attention",
            "soft_margin_loss", "binary_cross_entropy", "bce_with_logits"}  # the other losses, and slopes, are in loops
    backward = {f"{n}_backward" for n in ("softmax", "log_softmax", "cross_entropy", "nll_loss", "attention")}
    backward |= {"layer_norm_grad", "rms_norm_grad"}
    assert ours | backward <= taken, (ours | backward) - taken
    plan, = (plan for plans in program._compiled.plans.values() for plan in plans)
    assert not plan.program.calls, plan.program.calls
    assert not (ours | backward) & set(fallen)
