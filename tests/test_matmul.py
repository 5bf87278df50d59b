"""Products against torch: shapes, dtypes, gradients, the recorded graph, errors."""

import numpy as np
import pytest
import torch
from compare import Tolerance, same
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau

RNG = np.random.default_rng(1)
SHAPES = [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)),
          ((5, 2, 3), (3,)), ((3,), (5, 3, 4)), ((5, 2, 3), (5, 3, 4)), ((6, 1, 2, 3), (5, 3, 4)), ((0, 3), (3, 4)),
          ((2, 0), (0, 4)), ((5, 0, 3), (3, 4)), ((0, 2, 3), (0, 3, 4)), ((0, 2, 3), (3, 4))]
WRONG = [((), (3,)), ((2, 3), (4, 5)), ((2, 3), (4,)), ((3,), (4,)), ((3,), (4, 5)), ((5, 2, 3), (4, 5)),
         ((2, 3), (5, 4, 4)), ((5, 2, 3), (5, 4, 4)), ((5, 2, 3), (6, 3, 4))]


def numbers(shape, dtype="float32"):
    if "int" in dtype:
        return RNG.integers(-5, 5, shape).astype(dtype)
    x = RNG.standard_normal(shape)
    return (x + 1j * RNG.standard_normal(shape) if "complex" in dtype else x).astype(dtype)


def pair(array, grad=False):
    """The array as a tensor of PyTorch and of flambeau."""
    return tuple(T.from_numpy(np.array(array)).requires_grad_(grad) for T in (torch, flambeau))


def chain(node):
    """The graph as text: node names, with Acc for leaves."""
    if node is None:
        return "None"
    if node.name().endswith("AccumulateGrad"):
        return "Acc"
    return node.name() + "(" + ",".join(chain(n) for n, _ in node.next_functions if n is not None) + ")"


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int64", "int8"])
@pytest.mark.parametrize("a, b", SHAPES)
def test_matmul_follows_torch_for_all_dims(a, b, dtype):
    x, y = numbers(a, dtype), numbers(b, dtype)
    (tx, fx), (ty, fy) = pair(x), pair(y)
    same(torch.matmul(tx, ty), flambeau.matmul(fx, fy))
    same(tx @ ty, fx @ fy)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("a, b", SHAPES)
def test_matmul_gradients(a, b, dtype):
    x, y = numbers(a, dtype), numbers(b, dtype)
    (tx, fx), (ty, fy) = pair(x, True), pair(y, True)
    want, got = tx @ ty, fx @ fy
    cot = np.asarray(numbers(tuple(want.shape), dtype))
    want.backward(torch.from_numpy(np.array(cot)))
    got.backward(flambeau.from_numpy(np.array(cot)))
    same(tx.grad, fx.grad, 1e-10)
    same(ty.grad, fy.grad, 1e-10)


@pytest.mark.parametrize("a, b", SHAPES)
def test_the_recorded_graph_is_torchs(a, b):
    (tx, fx), (ty, fy) = pair(numbers(a), True), pair(numbers(b), True)
    assert chain((fx @ fy).grad_fn) == chain((tx @ ty).grad_fn)


@pytest.mark.parametrize("shape", [(2, 3), (5, 2, 3), (3,)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_graph_and_gradients(shape, bias):
    from flambeau.ops.linalg.matmul import linear
    tensors = [pair(numbers(s, "float64"), True) for s in (shape, (4, 3), (4,))][:3 if bias else 2]
    want = torch.nn.functional.linear(*[t for t, _ in tensors])
    got = linear(*[f for _, f in tensors])
    same(want, got)
    assert chain(want.grad_fn) == chain(got.grad_fn)
    want.sum().backward()
    got.sum().backward()
    for t, f in tensors:
        same(t.grad, f.grad, 1e-10)


@pytest.mark.parametrize("a, b", WRONG)
@pytest.mark.parametrize("name", ["matmul", "mm", "bmm", "mv", "dot", "inner"])
def test_wrong_shapes_raise_torchs_errors(name, a, b):
    (tx, fx), (ty, fy) = pair(numbers(a)), pair(numbers(b))
    try:
        getattr(torch, name)(tx, ty)
    except Exception as error:
        with pytest.raises((type(error), RuntimeError)):
            getattr(flambeau, name)(fx, fy)


def test_messages_name_the_shapes_and_dtypes():
    x, y = flambeau.from_numpy(numbers((2, 3))), flambeau.from_numpy(numbers((4, 5)))
    with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied \(2x3 and 4x5\)"):
        x @ y
    z = flambeau.from_numpy(numbers((3, 2), "float64"))
    with pytest.raises(RuntimeError, match="same dtype, but got: float != double"):
        x @ z
    with pytest.raises(TypeError):
        x @ 3
    with pytest.raises(TypeError, match="must be Tensor"):
        flambeau.mm(x, 3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_accumulates_in_float32(dtype):
    a, b = numbers((8, 300)), numbers((300, 4))
    want = torch.from_numpy(a).to(getattr(torch, dtype)) @ torch.from_numpy(b).to(getattr(torch, dtype))
    got = flambeau.from_numpy(a).to(getattr(flambeau, dtype)) @ flambeau.from_numpy(b).to(getattr(flambeau, dtype))
    assert str(got.dtype) == str(want.dtype)
    same(want, got, Tolerance(1e-2, 0.1))


def test_large_integer_products_are_exact_and_wrap():
    a = RNG.integers(-2**40, 2**40, (70, 70))
    (tx, fx) = pair(a)
    assert np.array_equal((tx @ tx).numpy(), (fx @ fx).numpy())
    b = RNG.integers(-100, 100, (70, 70)).astype("int8")
    (tx, fx) = pair(b)
    assert np.array_equal((tx @ tx).numpy(), (fx @ fx).numpy())


FUSED = {"addmm": ((2, 4), (2, 3), (3, 4)), "addmv": ((2,), (2, 3), (3,)), "addr": ((2, 3), (2,), (3,)),
         "baddbmm": ((5, 2, 4), (5, 2, 3), (5, 3, 4)), "addbmm": ((2, 4), (5, 2, 3), (5, 3, 4))}


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("beta, alpha", [(1, 1), (0.5, 2), (0, 3), (2, 0)])
@pytest.mark.parametrize("broadcast", [False, True])
def test_scaled_sums(name, beta, alpha, broadcast):
    shapes = list(FUSED[name])
    if broadcast:
        shapes[0] = (1,) * len(shapes[0])
    tensors = [pair(numbers(s, "float64"), True) for s in shapes]
    want = getattr(torch, name)(*[t for t, _ in tensors], beta=beta, alpha=alpha)
    got = getattr(flambeau, name)(*[f for _, f in tensors], beta=beta, alpha=alpha)
    same(want, got)
    assert chain(want.grad_fn).split("(")[0] == chain(got.grad_fn).split("(")[0]
    cot = numbers(tuple(want.shape), "float64")
    want.backward(torch.from_numpy(cot))
    got.backward(flambeau.from_numpy(cot))
    for t, f in tensors:
        same(t.grad, f.grad, 1e-10)


def test_beta_zero_ignores_nan():
    nan = flambeau.from_numpy(np.full((2, 2), np.nan, "float32"))
    x = flambeau.from_numpy(numbers((2, 2)))
    assert np.isfinite(flambeau.addmm(nan, x, x, beta=0).numpy()).all()


def test_in_place_and_out():
    (tx, fx), (ty, fy), (tz, fz) = (pair(numbers((3, 3))) for _ in range(3))
    same(tz.addmm_(tx, ty, beta=2), fz.addmm_(fx, fy, beta=2))
    tx @= ty
    fx @= fy
    same(tx, fx)
    out = flambeau.from_numpy(np.zeros((3, 3), "float32"))
    assert flambeau.mm(fx, fy, out=out) is out
    same(torch.mm(tx, ty), out)


EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ij,kj->", (2, 3), (4, 3)),
    ("ii", (3, 3)),
    ("ii->i", (3, 3)),
    ("...ij,...jk->...ik", (5, 2, 3), (3, 4)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("i,j,k->kji", (2,), (3,), (4,)),
    ("bn,anm,bm->ba", (2, 3), (4, 3, 5), (2, 5)),
    ("...i->...", (2, 3)),
    ("i...->...i", (2, 3, 4)),
    ("ij,ij->ij", (1, 3), (2, 3)),
    ("ij,ij->j", (2, 1), (2, 3)),
    ("...ii->...i", (4, 3, 3)),
    ("ijk,ilm,njm,nlk,abc->", (2, 3, 2), (2, 2, 3), (2, 3, 3), (2, 2, 2), (2, 2, 2)),
    ("Ab,Ba->aBAb", (2, 3), (4, 5)),
    (" i j , j k -> k", (2, 3), (3, 4)),
    ("ij,...", (2, 3), (4,)),
]


@pytest.mark.parametrize("equation, shapes", [(e, s) for e, *s in EQUATIONS])
def test_einsum(equation, shapes):
    tensors = [pair(numbers(s, "float64"), True) for s in shapes]
    want = torch.einsum(equation, *[t for t, _ in tensors])
    got = flambeau.einsum(equation, *[f for _, f in tensors])
    same(want, got, 1e-10)
    cot = numbers(tuple(want.shape), "float64")
    want.backward(torch.from_numpy(np.asarray(cot)))
    got.backward(flambeau.from_numpy(np.asarray(cot)))
    for t, f in tensors:
        same(t.grad, f.grad, 1e-10)


@pytest.mark.parametrize("equation", ["ij,jk->ikk", "ij,jk->il", "ij,jk,", "ij", "iij,jk", "ij,j", "ij,jk->i1",
                                      "ij..,jk",
                                      ".ij,jk", ""])
def test_einsum_errors(equation):
    x, y = flambeau.from_numpy(numbers((2, 3))), flambeau.from_numpy(numbers((3, 4)))
    with pytest.raises(RuntimeError, match=r"einsum\(\)"):
        flambeau.einsum(equation, x, y)


def test_einsum_sublists():
    (tx, fx), (ty, fy) = pair(numbers((5, 2, 3))), pair(numbers((3, 4)))
    same(torch.einsum(tx, [..., 0, 1], ty, [1, 2], [..., 2, 0]), flambeau.einsum(fx, [..., 0, 1], fy, [1, 2], [..., 2,
                                                                                                               0]))
    same(torch.einsum(tx, [..., 0, 1], ty, [1, 2]), flambeau.einsum(fx, [..., 0, 1], fy, [1, 2]))


@pytest.mark.parametrize("p", [0, 0.5, 1, 1.5, 2, 3, float("inf")])
@pytest.mark.parametrize("shapes", [((3, 4), (5, 4)), ((2, 1, 30, 4), (3, 26, 4))])
def test_cdist(p, shapes):
    x, y = (numbers(s, "float64") for s in shapes)
    y[..., 0, :] = x[(0,) * (x.ndim - 2)][0]  # coinciding points: the sub-gradient is 0
    (tx, fx), (ty, fy) = pair(x, True), pair(y, True)
    want, got = torch.cdist(tx, ty, p), flambeau.cdist(fx, fy, p)
    same(want, got, 1e-6)
    mask = (want.detach().numpy() > 1e-6).astype("float64")  # the distance 0 by way of a product is rounding alone
    (want * torch.from_numpy(mask)).sum().backward()
    (got * flambeau.from_numpy(mask)).sum().backward()
    same(tx.grad, fx.grad, 1e-6)
    same(ty.grad, fy.grad, 1e-6)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_matmul_broadcasts_and_takes_any_layout(data):
    size = st.integers(0, 3)
    batch = data.draw(st.lists(size, max_size=2))
    rows, inner, cols = (data.draw(size) for _ in range(3))
    sizes = []
    for tail in ((rows, inner), (inner, cols)):
        drop = data.draw(st.integers(0, len(batch)))
        sizes.append(tuple(1 if data.draw(st.booleans()) else n for n in batch[drop:]) + tail)
    arrays = []
    for s in sizes:
        flip = data.draw(st.booleans())
        arrays.append(numbers(s, "float64") if not flip else numbers(s[:-2] + (s[-1], s[-2]), "float64").swapaxes(-1,
                                                                                                                  -2))
    want = torch.from_numpy(arrays[0]) @ torch.from_numpy(arrays[1])
    got = flambeau.from_numpy(arrays[0]) @ flambeau.from_numpy(arrays[1])
    same(want, got, 1e-10)


def test_a_view_of_a_base_that_changed_has_its_history():
    w = flambeau.ones(3, 3, requires_grad=True)
    base = flambeau.ones(3, 3)
    view = base[:2]
    base.mul_(w)
    (view @ flambeau.ones(3, 2)).sum().backward()
    assert w.grad.tolist() == [[2.0] * 3, [2.0] * 3, [0.0] * 3]
