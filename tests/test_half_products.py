"""Half precision on the CPU: products, pointwise loops, norms and attention by native kernels, against PyTorch and float64."""

import ml_dtypes
import numpy as np
import pytest
import torch

import flambeau
from flambeau import native
from flambeau.backends.cpu import halves
from flambeau.backends.cpu.linalg import gemm

HALVES = ["bfloat16", "float16"]
STEP = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # half the distance of two neighbours, relative
NATIVE = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "float16": np.dtype(np.float16)}
needs_compiler = pytest.mark.skipif(native.library("half") is None, reason="no native kernels")


def both(x: np.ndarray, name: str):
    """The same numbers as a tensor of PyTorch's and of flambeau's, in half precision."""
    return torch.tensor(x).to(getattr(torch, name)), flambeau.tensor(x).to(getattr(flambeau, name))


def wide(x) -> np.ndarray:
    return x.detach().float().numpy()


def rounded_once(made: np.ndarray, exact: np.ndarray, size: np.ndarray, name: str) -> None:
    """A sum in float32 of terms whose sizes add up to `size`, rounded once to half precision."""
    limit = STEP[name] * np.abs(exact) + size * 2.0**-19 + 2.0**-25
    assert (np.abs(made.astype(np.float64) - exact) <= limit).all()


# ---------------------------------------------------------------------------------------------------------- conversions
@needs_compiler
@pytest.mark.parametrize("name", HALVES)
def test_every_half_number_is_widened_exactly(name):
    x = np.arange(1 << 16, dtype=np.uint16).view(NATIVE[name])
    made = halves.cast(x, halves.FLOAT32)
    with np.errstate(all="ignore"):
        expected = x.astype(np.float32)
    real = ~np.isnan(expected)
    np.testing.assert_array_equal(made.view(np.uint32)[real], expected.view(np.uint32)[real])
    assert np.isnan(made[~real]).all()


@needs_compiler
@pytest.mark.parametrize("name", HALVES)
def test_rounding_is_to_the_nearest_even(name):
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        exact = np.arange(1 << 16, dtype=np.uint16).view(NATIVE[name]).astype(np.float32).view(np.uint32)
        near = [exact + np.uint32(d) for d in (0, 0xfff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001)]
        x = np.concatenate([*near, rng.integers(0, 1 << 32, 1 << 18).astype(np.uint32)]).view(np.float32)
        made, expected = halves.cast(x, NATIVE[name]), x.astype(NATIVE[name])
    real = ~np.isnan(x)
    np.testing.assert_array_equal(made.view(np.uint16)[real], expected.view(np.uint16)[real])
    assert np.isnan(made[~real].astype(np.float32)).all()


@pytest.mark.parametrize("name", HALVES)
def test_conversion_keeps_strides_and_gradients(name):
    x = np.random.default_rng(1).normal(size=(40, 50)).astype(np.float32)
    ours = flambeau.tensor(x).T.requires_grad_()
    made = ours.to(getattr(flambeau, name))
    assert made.stride() == ours.stride()
    made.float().sum().backward()
    assert ours.grad.dtype is flambeau.float32 and (ours.grad == 1).all()
    np.testing.assert_array_equal(wide(made), wide(torch.tensor(x).T.to(getattr(torch, name))))


# ------------------------------------------------------------------------------------------------------------- products
@pytest.fixture(params=[1, 0], ids=["pairs", "widened"])
def pairs(request):
    """With products of pairs where the processor has them, and without."""
    library = native.library("gemm_half")
    if library is None:
        pytest.skip("no native kernels")
    library.fl_use_pairs_bf16(request.param)
    yield
    library.fl_use_pairs_bf16(1)


SIZES = [(1, 70, 64), (3, 17, 129), (4, 48, 33), (5, 49, 1), (8, 1, 400), (9, 100, 641), (130, 65, 333),
         (1030, 20, 700), (17, 400, 1300)]


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("m,n,k", SIZES)
def test_products_are_rounded_once(pairs, name, m, n, k):
    rng = np.random.default_rng(m)
    for turned in range(4):
        a = rng.normal(size=(k, m) if turned & 1 else (m, k)).astype(NATIVE[name])
        b = rng.normal(size=(n, k) if turned & 2 else (k, n)).astype(NATIVE[name])
        a, b = a.T if turned & 1 else a, b.T if turned & 2 else b
        exact, size = a.astype(float) @ b.astype(float), np.abs(a.astype(float)) @ np.abs(b.astype(float))
        made = gemm.mm(a, b)
        if made is None:
            assert m * n * k < gemm.WORTH_HALF
            continue
        rounded_once(made, exact, size, name)
        before = rng.normal(size=(m, n)).astype(NATIVE[name])
        made = gemm.mm(a, b, 0.5, 2.0, before.copy())
        rounded_once(made, 0.5 * exact + 2 * before.astype(float), size + 2 * np.abs(before.astype(float)), name)
        bias = rng.normal(size=n).astype(NATIVE[name])
        rounded_once(gemm.linear(a, b.T, bias), exact + bias.astype(float), size + np.abs(bias.astype(float)), name)
        batch = gemm.bmm(np.stack([a, a]), np.stack([b, -b]))
        rounded_once(batch, np.stack([exact, -exact]), np.stack([size, size]), name)


@pytest.mark.parametrize("name", HALVES)
def test_what_is_not_a_number_spreads_as_in_float32(pairs, name):
    a, b = np.ones((9, 40)), np.ones((40, 70))
    a[2, 3], b[5, 6], a[4, 39] = np.nan, np.inf, -np.inf
    made = gemm.mm(a.astype(NATIVE[name]), b.astype(NATIVE[name])).astype(np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(made, a @ b)


CALLS = {
    "linear": (lambda t, x, w, b: t.nn.functional.linear(x, w, b), [(6, 7, 33), (40, 33), (40,)]),
    "mm": (lambda t, x, y: x @ y, [(50, 70), (70, 31)]),
    "mv": (lambda t, x, y: x @ y, [(50, 70), (70,)]),
    "bmm": (lambda t, x, y: t.bmm(x, y.transpose(1, 2)), [(3, 20, 30), (3, 25, 30)]),
    "addmm": (lambda t, b, x, y: t.addmm(b, x, y, beta=0.5, alpha=2), [(20, 31), (20, 40), (40, 31)]),
    "baddbmm": (lambda t, b, x, y: t.baddbmm(b, x, y, beta=0.5), [(3, 20, 31), (3, 20, 40), (3, 40, 31)]),
    "conv2d": (lambda t, x, w, b: t.nn.functional.conv2d(x, w, b, padding=1), [(2, 3, 9, 9), (4, 3, 3, 3), (4,)]),
    "conv1d": (lambda t, x, w: t.nn.functional.conv1d(x, w, stride=2), [(2, 3, 30), (4, 3, 3)]),
    "attention": (lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
                  [(2, 3, 17, 16)] * 3),
    "softmax": (lambda t, x: x.softmax(-1), [(40, 130)]),
    "softmax first": (lambda t, x: x.softmax(0), [(40, 130)]),
    "log_softmax": (lambda t, x: x.log_softmax(-1), [(40, 130)]),
    "layer_norm": (lambda t, x, w, b: t.nn.functional.layer_norm(x, (130,), w, b), [(40, 130), (130,), (130,)]),
    "rms_norm": (lambda t, x, w: t.nn.functional.rms_norm(x, (130,), w, 1e-5), [(40, 130), (130,)]),
    "rms_norm plain": (lambda t, x: t.nn.functional.rms_norm(x, (130,)), [(40, 130)]),
    "silu * mul": (lambda t, x, y: t.nn.functional.silu(x) * y, [(40, 130), (40, 130)]),
    "rotary": (lambda t, x, c: x * c + t.cat((-x[..., 8:], x[..., :8]), -1) * c, [(4, 40, 16), (40, 16)]),
    "embedding": (lambda t, w: t.nn.functional.embedding(t.tensor([[1, 3, 1]]), w), [(40, 130)]),
}


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("call", list(CALLS))
def test_values_and_gradients_are_as_good_as_pytorchs(name, call):
    """Against the same in float64: an error is at most PyTorch's, give or take a rounding of the largest value."""
    function, shapes = CALLS[call]
    rng = np.random.default_rng(7)
    given = [rng.normal(size=shape).astype(NATIVE[name]).astype(np.float32) for shape in shapes]
    found = {}
    for label, library, dtype in (("exact", torch, torch.float64), ("torch", torch, getattr(torch, name)),
                                  ("ours", flambeau, getattr(flambeau, name))):
        tensors = [library.tensor(x).to(dtype).requires_grad_() for x in given]
        made = function(library, *tensors)
        assert made.dtype is dtype
        slope = np.cos(np.arange(made.numel(), dtype=np.float32)).reshape(tuple(made.shape)).astype(NATIVE[name])
        made.backward(library.tensor(slope.astype(np.float32)).to(dtype))
        assert all(t.grad.dtype is dtype for t in tensors)
        found[label] = [x.detach().double().numpy() for x in (made, *[t.grad for t in tensors])]
    for exact, theirs, ours in zip(found["exact"], found["torch"], found["ours"]):
        largest = np.abs(exact).max()
        limit = 1.5 * np.abs(theirs - exact).max() + STEP[name] * largest
        assert np.abs(ours - exact).max() <= limit


# ------------------------------------------------------------------------------------------------------------ pointwise
POINTWISE = {
    "add": lambda t, x, y: x + y, "mul": lambda t, x, y: x * y, "div": lambda t, x, y: x / y, "sub": lambda t, x, y: x - y,
    "mul number": lambda t, x, y: x * 0.1, "div number": lambda t, x, y: x / 0.3, "add number": lambda t, x, y: x + 0.1,
    "rsub": lambda t, x, y: 0.1 - x, "greater": lambda t, x, y: x > 0.1, "equal": lambda t, x, y: x == y,
    "remainder": lambda t, x, y: x % 0.3, "neg": lambda t, x, y: -x, "relu": lambda t, x, y: x.relu(),
    "sigmoid": lambda t, x, y: x.sigmoid(), "broadcast": lambda t, x, y: x * y[:1], "columns": lambda t, x, y: x + y[:, :1],
    "turned": lambda t, x, y: x.T * y.T, "steps": lambda t, x, y: x[::2, ::3] - y[::2, ::3],
    "where": lambda t, x, y: t.where(x > y, x, y),
    "in place": lambda t, x, y: x.clone().mul_(y).add_(0.1), "clamp": lambda t, x, y: x.clamp(-0.3, 0.4),
    "addcmul": lambda t, x, y: t.addcmul(x, x, y, value=0.3), "maximum": lambda t, x, y: t.maximum(x, y),
}


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("call", list(POINTWISE))
def test_pointwise_loops_give_pytorchs_bits(name, call):
    rng = np.random.default_rng(3)
    x, y = (rng.normal(size=(60, 90)).astype(np.float32) for _ in range(2))
    (a, ours_a), (b, ours_b) = both(x, name), both(y, name)
    theirs, ours = POINTWISE[call](torch, a, b), POINTWISE[call](flambeau, ours_a, ours_b)
    assert str(theirs.dtype) == str(ours.dtype) and theirs.stride() == ours.stride()
    differs = wide(theirs) != wide(ours)
    if call == "sigmoid":  # a transcendental function: where it lies between two numbers of half precision, either is right
        assert differs.mean() < 0.01
        np.testing.assert_allclose(wide(ours), wide(theirs), rtol=2.1 * STEP[name])
    else:
        assert not differs.any()


@needs_compiler
def test_a_strip_is_widened_not_the_array():
    """The loop is for the half dtype itself."""
    from flambeau.backends.cpu.pointwise import loops
    x = np.ones((100, 100), NATIVE["bfloat16"])
    made = loops.run("mul", x, x)
    assert made.dtype is x.dtype and loops._ready["mul", x.dtype].half == "bf16"
    assert loops.run("mul", x, np.ones(1, np.float32)) is None


# ------------------------------------------------------------------------------------------------------------- training
@pytest.mark.parametrize("name", HALVES)
def test_training_inside_autocast(name):
    """The losses of a small model in mixed precision: those of PyTorch, to what half precision leaves of them."""
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(64, 20)).astype(np.float32), rng.integers(0, 5, 64)
    losses = {}
    for t in (torch, flambeau):
        t.manual_seed(0)
        model = t.nn.Sequential(t.nn.Linear(20, 64), t.nn.LayerNorm(64), t.nn.GELU(), t.nn.Linear(64, 5))
        optimizer = t.optim.AdamW(model.parameters(), lr=1e-2)
        losses[t] = []
        for _ in range(12):
            with t.autocast("cpu", dtype=getattr(t, name)):
                loss = t.nn.functional.cross_entropy(model(t.tensor(x)), t.tensor(y))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[t].append(loss.item())
    assert losses[flambeau][-1] < 0.5 * losses[flambeau][0]
    np.testing.assert_allclose(losses[flambeau], losses[torch], rtol=20 * STEP[name], atol=4 * STEP[name])
