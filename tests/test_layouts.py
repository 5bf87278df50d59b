"""Strides of results are PyTorch's, whatever order of dimensions the inputs have (tools/layout_sweep.py: all operations)."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch

import flambeau

SHAPE = (2, 3, 4, 5)
ORDERS = list(itertools.permutations(range(4)))


def value(T, shape, dtype="float32"):
    count = functools.reduce(lambda a, b: a * b, shape, 1)
    return ((T.arange(count) * 7919 % 101).reshape(shape) / 101).to(getattr(T, dtype))


def laid_out(T, shape, order, dtype="float32"):
    """A tensor whose memory has the dimensions in this order, slowest first."""
    x = value(T, [shape[d] for d in order], dtype)
    return x.permute([order.index(d) for d in range(len(shape))])


def strides(T, made):
    parts = [made] if isinstance(made, T.Tensor) else list(made)
    return [(tuple(t.shape), t.stride()) for t in parts if isinstance(t, T.Tensor)]


def agree(function, *where):
    theirs, ours = (strides(T, function(T)) for T in (torch, flambeau))
    assert ours == theirs, where


# --------------------------------------------------------------------------------------------------------- reductions
SETS = [dims for k in range(1, 5) for dims in itertools.combinations(range(4), k)]
MANY = ("sum", "mean", "amax", "amin", "var", "std", "logsumexp", "any", "all", "nansum", "count_nonzero", "linalg.vector_norm")
ONE = ("prod", "argmax", "argmin", "max", "min", "median", "nanmedian", "mode")


@functools.cache
def inputs(T, dtype="float32", shape=SHAPE):
    return [laid_out(T, shape, order, dtype) for order in ORDERS]


@pytest.mark.parametrize("name", MANY)
def test_reductions_over_any_dimensions_of_any_layout(name):
    keeps = (False,) if name == "count_nonzero" else (False, True)
    for number, dims, keep in itertools.product(range(len(ORDERS)), SETS, keeps):
        options = {} if name == "count_nonzero" else {"keepdim": keep}
        agree(lambda T: functools.reduce(getattr, name.split("."), T)(inputs(T)[number], dim=dims, **options),
              ORDERS[number], dims, keep)


@pytest.mark.parametrize("name", ONE)
def test_reductions_over_one_dimension_of_any_layout(name):
    for number, dim, keep in itertools.product(range(len(ORDERS)), range(4), (False, True)):
        agree(lambda T: getattr(T, name)(inputs(T)[number], dim, keep), ORDERS[number], dim, keep)
        if not keep:
            agree(lambda T: getattr(T, name)(inputs(T)[number], dim), ORDERS[number], dim)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "int64", "complex64"])
def test_reductions_of_other_dtypes(dtype):
    names = ["sum", "prod"] + ["mean"] * (dtype != "int64") + ["amax"] * (dtype != "complex64")
    for name, number, dim in itertools.product(names, range(0, len(ORDERS), 5), range(4)):
        agree(lambda T: getattr(T, name)(inputs(T, dtype)[number], dim), name, ORDERS[number], dim)


def test_reductions_of_larger_tensors():
    for name, number, dims in itertools.product(("sum", "amax", "var", "logsumexp"), range(0, len(ORDERS), 5), SETS[:10]):
        agree(lambda T: getattr(T, name)(inputs(T, shape=(12, 9, 11, 10))[number], dim=dims), name, ORDERS[number], dims)


@pytest.mark.parametrize("shape", [(4,), (3, 4)])
def test_one_number_of_a_slice_is_a_tensor(shape):
    for T in (torch, flambeau):
        x = value(T, (*shape[:-1], 2 * shape[-1]))[..., ::2]
        assert [f(x).shape for f in (T.var, T.std, T.sum, T.mean, T.amax, T.prod)] == [()] * 6
    assert float(flambeau.var(value(flambeau, (8,))[::2])) == pytest.approx(float(torch.var(value(torch, (8,))[::2])))


# ------------------------------------------------------------------------------------------------ one tensor, any layout
UNARY = {
    "scans": lambda T, x: [T.cumsum(x, 1), T.cumprod(x, 2), *T.cummax(x, 1), T.logcumsumexp(x, 3)],
    "sorting": lambda T, x: [*T.sort(x, 1), T.argsort(x, 2), *T.topk(x, 2, 1), *T.kthvalue(x, 2, 2), T.msort(x)],
    "softmax": lambda T, x: [T.softmax(x, 1), T.log_softmax(x, 2), T.nn.functional.normalize(x, dim=1), T.renorm(x, 2, 1, 0.5)],
    "norms": lambda T, x: [T.nn.functional.layer_norm(x, x.shape[-1:]), T.nn.functional.group_norm(x, 3),
                           T.nn.functional.instance_norm(x)],
    "pointwise": lambda T, x: [T.exp(x), x * 2, x > 0.5, T.clamp(x, 0.2, 0.8), T.where(x > 0.5, x, 0.0),
                               T.nn.functional.gelu(x)],
    "like": lambda T, x: [T.zeros_like(x), T.full_like(x, 3.0), T.rand_like(x), x.clone(), x.double(), T.empty_like(x)],
    "moving": lambda T, x: [T.flip(x, (1,)), T.rot90(x, 1, (1, 2)), T.cat([x, x], 1),
                            x.repeat(1, 2, 1, 1), T.nn.functional.pad(x, (1, 1)), T.tril(x), T.nn.functional.glu(x, 2)],
    "picking": lambda T, x: [x[:, [0, 1]], x[[1, 0], [0, 1]], x[:, :, [0, 1], [1, 0]], T.index_select(x, 1, T.tensor([0, 1])),
                             T.gather(x, 1, T.zeros_like(x, dtype=T.int64)), T.take(x, T.tensor([[1, 2], [3, 4]]))],
    "writing": lambda T, x: [T.index_fill(x, 1, T.tensor([0]), 2.0), T.masked_fill(x, x > 0.5, 0.0),
                             T.index_put(x, (T.tensor([0]),), T.tensor(1.0)), T.select_scatter(x, x[:, 0], 1, 1),
                             T.slice_scatter(x, x[:, :2], 1, 0, 2), T.scatter(x, 1, T.zeros_like(x, dtype=T.int64), 1.0)],
    "fft": lambda T, x: [T.fft.fft(x), T.fft.fft2(x), T.fft.rfft(x, dim=1), T.fft.rfftn(x), T.fft.irfft(x, dim=2),
                         T.fft.hfft(x)],
    "images": lambda T, x: [T.nn.functional.interpolate(x, scale_factor=2), T.nn.functional.avg_pool2d(x, 2),
                            T.nn.functional.max_pool2d(x, 2), T.nn.functional.adaptive_avg_pool2d(x, 2),
                            T.nn.functional.conv2d(x, value(T, (2, 3, 2, 2)))]}


@pytest.mark.parametrize("family", UNARY)
def test_results_of_one_tensor(family):
    for order in ORDERS:
        agree(lambda T: UNARY[family](T, laid_out(T, SHAPE, order)), order)


def test_slices_and_expanded_tensors():
    for cut in (lambda x: x[:, :, ::2], lambda x: x[:, :2], lambda x: x[:1].expand(3, 3, 4, 5),
                lambda x: x[..., :1].expand(SHAPE)):
        for family in ("scans", "sorting", "pointwise", "like", "picking"):
            agree(lambda T: UNARY[family](T, cut(value(T, SHAPE))), family)


# ------------------------------------------------------------------------------------------------------ several tensors
BINARY = {
    "two": lambda T, x, y: [x + y, y - x, x * y, x / y, T.maximum(x, y), x > y, T.atan2(x, y), x ** y, T.logaddexp(x, y)],
    "three": lambda T, x, y: [T.addcmul(x, y, y), T.lerp(x, y, 0.5), T.clamp(x, y, y), T.where(x > y, x, y),
                              T.addcdiv(y, x, x)],
    "mixed dtypes": lambda T, x, y: [x + y.double(), (x > 0.5) * y],
    "losses": lambda T, x, y: [getattr(T.nn.functional, name)(x, y, reduction="none")
                               for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy")],
    "joined": lambda T, x, y: [T.cat([x, y], 1), T.stack([x, y], 1), T.complex(x, y), T.polar(x, y)],
    "products": lambda T, x, y: [x @ y.transpose(2, 3), T.einsum("abcd,abed->abce", x, y), T.nn.functional.linear(x, y[0, 0]),
                                 T.tensordot(x, y, ([3], [3])), T.cdist(x, y)]}


@pytest.mark.parametrize("family", BINARY)
def test_results_of_two_tensors_of_different_layouts(family):
    for first, second in itertools.product(ORDERS[::3], ORDERS[::4]):
        agree(lambda T: BINARY[family](T, laid_out(T, SHAPE, first), laid_out(T, SHAPE, second)), first, second)


def test_broadcast_operands():
    for order, shape in itertools.product(ORDERS, [(5,), (4, 1), (3, 1, 5), (1, 3, 1, 1), (2, 1, 4, 1), ()]):
        agree(lambda T: BINARY["two"](T, laid_out(T, SHAPE, order), value(T, shape)), order, shape)


@pytest.mark.parametrize("order", ORDERS[::5])
def test_large_operands(order):
    agree(lambda T: BINARY["two"](T, laid_out(T, (16, 20, 24, 28), order), value(T, (16, 20, 24, 28))), order)
    agree(lambda T: BINARY["three"](T, laid_out(T, (16, 20, 24, 28), order), value(T, (16, 20, 24, 28))), order)


# ----------------------------------------------------------------------------------------------------- LAPACK, gradients
LINALG = {
    "factors": lambda T, a: [*T.linalg.qr(a), *T.linalg.svd(a), *T.linalg.eigh(a), T.linalg.cholesky(a), *T.linalg.lu_factor(a),
                             *T.linalg.eig(a), *T.geqrf(a), *T.linalg.ldl_factor(a)],
    "solutions": lambda T, a: [T.linalg.inv(a), T.linalg.solve(a, a), T.linalg.solve_triangular(a, a, upper=True),
                               T.cholesky_solve(a, a), T.linalg.pinv(a), T.linalg.matrix_exp(a)]}


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3)])
@pytest.mark.parametrize("family", LINALG)
def test_matrices_are_stored_as_by_lapack(family, shape):
    def positive(T, turned):
        a = value(T, shape)
        a = a @ a.transpose(-1, -2) + T.eye(3)
        return a.transpose(-1, -2) if turned else a

    for turned in (False, True):
        agree(lambda T: LINALG[family](T, positive(T, turned)), turned)


@pytest.mark.parametrize("order", ORDERS[::4])
def test_gradients_of_leaves(order):
    def gradients(T, function):
        x, y = laid_out(T, SHAPE, order).requires_grad_(), value(T, SHAPE).requires_grad_()
        (function(x, y) * value(T, SHAPE)).sum().backward()
        return [x.grad, y.grad]

    for function in (lambda x, y: x * y, lambda x, y: x.exp() + y, lambda x, y: (x + y).softmax(1),
                     lambda x, y: x - y.mean(1, keepdim=True), lambda x, y: x.cumsum(2) * y):
        agree(lambda T: gradients(T, function), order)


# ------------------------------------------------------------------------------------------------------------- compiled
def test_compiled_calls_give_the_same_strides():
    def program(x, y):
        z = x * y + y.exp()
        return z, z.sum(1), (y - x).amax((0, 2)), x.softmax(1), x.sort(2)[0], (x > y).any(3, keepdim=True), x.cumsum(1)

    for order in ORDERS[::4]:
        x, y = laid_out(flambeau, SHAPE, order), value(flambeau, SHAPE)
        compiled, plain = flambeau.compile(program), strides(flambeau, program(x, y))
        for _ in range(3):
            assert strides(flambeau, compiled(x, y)) == plain, order


def test_meta_tensors_have_the_same_strides():
    for family, order in itertools.product(("scans", "sorting", "softmax", "pointwise"), ORDERS[::4]):
        x = laid_out(flambeau, SHAPE, order)
        meta = flambeau.empty_strided(x.shape, x.stride(), device="meta")
        made, said = (strides(flambeau, UNARY[family](flambeau, t)) for t in (x, meta))
        assert made == said, (family, order)
