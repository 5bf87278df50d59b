"""Reductions inside the loops that make their input, and loops inside matrix products: compiled against eager, and the form."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import agree

import flambeau as torch
import flambeau.nn.functional as F
from flambeau.compiler.passes.epilogues import Product
from flambeau.compiler.passes.fusion import Loop, Single
from flambeau.native import library, pointer, toolchain

pytestmark = pytest.mark.skipif(toolchain.compiler() is None, reason="needs a C compiler")


def program(fn, *args, **options):
    """The program of a function of these arguments, after a few calls."""
    compiled = torch.compile(fn, **options)
    for _ in range(3):
        compiled(*args)
    (plan,) = [p for some in compiled._compiled.plans.values() for p in some]
    return plan.program


def form(fn, *args, **options):
    """The program's groups in short: kernels joined by +, those inside a product after an arrow."""
    names = []
    for g in program(fn, *args, **options).groups:
        kernels = [op.kernel for op in g.ops]
        names.append(f"{kernels[0]} -> {' + '.join(kernels[1:])}" if g.__class__ is Product else " + ".join(kernels))
        assert g.__class__ in (Loop, Single, Product)
    return names


def same_as_eager(fn, *args, rtol=1e-5, **options):
    """Compiled and eager results of the same arguments agree, calls after the first included. (Arrays without elements do not
    keep their strides: such calls are followed.)"""
    goes = {} if all([a.numel() for a in args if isinstance(a, torch.Tensor)]) else {"goes": "follow"}
    agree(lambda: (fn,), [args] * 3, rtol=rtol, **goes, **options)


SHAPES = [(), (1,), (5,), (1, 1), (3, 1), (1, 7), (5, 7), (33, 65), (64, 64), (130, 70), (2, 3, 4), (4, 1, 9), (8, 32, 17),
          (3, 5, 2, 9), (1030, 33), (33, 1030), (3, 40000), (40000, 17)]
REDUCTIONS = {
    "sum": lambda x, *a: x.sum(*a),
    "mean": lambda x, *a: x.mean(*a),
    "amax": lambda x, *a: x.amax(*a),
    "amin": lambda x, *a: x.amin(*a),
    "norm": lambda x, *a: torch.linalg.vector_norm(x, 2, *a),
    "norm1": lambda x, *a: torch.linalg.vector_norm(x, 1, *a),
}


def dims_of(shape):
    """All runs of dimensions, and some that are not neighbours."""
    n = len(shape)
    found = [tuple(range(i, j)) for i in range(n) for j in range(i + 1, n + 1)]
    return found + [d for d in ((0, 2), (1, 3), (0, 3)) if d[1] < n]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_all_reductions_of_an_expression(shape, dtype):
    torch.manual_seed(len(shape))
    a, b = torch.randn(shape, dtype=dtype) + 0.5, torch.randn(shape, dtype=dtype)

    def fn(a, b):
        made = []
        for reduce in REDUCTIONS.values():
            made.append(reduce((a - b) * a))
            for dims in dims_of(shape):
                made.append(reduce((a * b).exp(), dims))
                made.append(reduce(a - 2 * b, tuple(d - len(shape) for d in dims), True))
        return tuple(made)

    same_as_eager(fn, a, b)


@pytest.mark.parametrize("shape, dims", [((0,), (0,)), ((0, 3), (0,)), ((3, 0), (0,)), ((3, 0), (1,)), ((0, 3), (1,))], ids=str)
def test_empty(shape, dims):
    same_as_eager(lambda x: ((x * 2).sum(), (x + 1).sum(dims), (x * x).mean(dims), (x - 1).sum(dims, True)), torch.randn(shape))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_sums_of_whole_numbers(dtype):
    x = torch.randint(0, 2 if dtype is torch.bool else 100, (37, 50)).to(dtype)
    same_as_eager(lambda x: ((x == 1).sum(), (x > 50).sum(0), (x > 0).sum(1, keepdim=True), (x & x).sum(1)), x)


VIEWS = {
    "transposed": lambda x: x.t(),
    "backwards": lambda x: x.flip(0),
    "every second": lambda x: x[::2],
    "every third column": lambda x: x[:, ::3],
    "a corner": lambda x: x[3:, 5:],
    "one row for all": lambda x: x[:1].expand(50, -1),
    "one column for all": lambda x: x[:, :1].expand(-1, 50),
    "diagonals": lambda x: x.as_strided((20, 20), (41, 1)),
}


@pytest.mark.parametrize("view", VIEWS)
def test_views(view):
    x = torch.randn(60, 40)

    def fn(x):
        y = VIEWS[view](x)
        z = y * y + 1
        return z.sum(), z.sum(0), z.amax(1), (y - 3).mean(0, keepdim=True), (y * 2).sum(1), z
    same_as_eager(fn, x)


def test_negative_strides_of_a_numpy_array():
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((40, 30)).astype(np.float32)).flip(0, 1)
    same_as_eager(lambda x: ((x.exp() + 1).sum(1), (x * 3).amin(0), (x - 1).mean()), x)


def test_broadcast_operands():
    a, row, column = torch.randn(70, 50), torch.randn(50), torch.randn(70, 1)
    same_as_eager(lambda a, r, c: ((a + r).sum(0), (a * c).sum(1), (a * r + c).mean(), (r + c).amax(0), (r * c).sum()),
                  a, row, column)


@pytest.mark.parametrize("dim", [None, 0, 1])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_extremes_and_sums_of_bad_numbers(dim, bad):
    x = torch.randn(70, 90)
    x[3, 5] = bad
    dims = (0, 1) if dim is None else (dim,)
    same_as_eager(lambda x: ((x * 2).amax(dims), (x * 2).amin(dims), (x + 1).sum(dims), (x * 1).mean(dims)), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_long_sums_are_as_good_as_eager_ones(dtype):
    """Against a sum in higher precision: the error is at most twice eager's, or one rounding of the result."""
    numbers = torch.rand(10_000_000, dtype=dtype) + 0.1
    for x, dims in ((numbers, ()), (numbers.view(-1, 100), (0,))):
        def function(x, dims=dims):
            return (x + 1).sum(dims)
        exact = np.sum(x.numpy().astype(np.longdouble) + 1, dims or None)

        def error(got, exact=exact):
            return float(np.max(np.abs(got.numpy() - exact) / exact))
        compiled = torch.compile(function)
        for _ in range(3):
            got = compiled(x)
        assert error(got) <= max(2 * error(function(x)), torch.finfo(dtype).eps)


@pytest.mark.parametrize("shape", [(1_000_000,), (3000, 300), (300, 3000), (100_000, 16)], ids=str)
def test_results_repeat_to_the_bit(shape):
    x = torch.randn(shape)
    fn = torch.compile(lambda x: ((x * 1.5).sum(0), (x * 1.5).sum(), x.exp().mean()))
    fn(x), fn(x)
    first = [t.numpy().copy() for t in fn(x)]
    for _ in range(20):
        for a, b in zip(first, fn(x)):
            np.testing.assert_array_equal(a, b.numpy())


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_threads(threads):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        for shape in ((200_000,), (5000, 60), (60, 5000), (90, 40, 50)):
            same_as_eager(lambda x: ((x * x).sum(), (x * x).sum(0), (x + 1).sum(-1), (x - 1).amax(0)), torch.randn(shape))
        x, w, b = torch.randn(130, 300), torch.randn(90, 300), torch.randn(90)
        same_as_eager(lambda x, w, b: F.relu(F.linear(x, w, b)), x, w, b)
    finally:
        torch.set_num_threads(before)


# ------------------------------------------------------------------------------------------------------------ the form
def test_a_loss_is_one_loop():
    a, b = torch.randn(100, 100), torch.randn(100, 100)
    assert form(lambda a, b: ((a - b) ** 2).mean(), a, b) == ["sub + pow + mean"]
    source = program(lambda a, b: ((a - b) ** 2).mean(), a, b).source
    assert "reduction(+" in source and "powf" not in source and "pow_f32" not in source, "a square is a product"


def test_what_others_need_is_stored_in_the_same_loop():
    a, b = torch.randn(100, 100), torch.randn(100, 100)

    def fn(a, b):
        t = a * b
        return t, t.sum(0), t.amax(0)
    assert form(fn, a, b) == ["mul + sum + amax"]
    same_as_eager(fn, a, b)


def test_what_needs_the_total_comes_after():
    x = torch.randn(50, 60)

    def fn(x):
        y = x.exp()
        return y / y.sum(1, keepdim=True)
    assert form(fn, x) == ["exp + sum", "div"]
    same_as_eager(fn, x)


def test_different_reductions_do_not_share_a_loop():
    x = torch.randn(50, 60)
    assert form(lambda x: (lambda y: (y.sum(0), y.sum(1)))(x * 2), x) == ["mul + sum", "sum"]


def test_reductions_over_few_columns_stay_alone():
    """Three at a time, the loop before would no longer be vector code."""
    x = torch.randn(5000, 3)
    assert form(lambda x: (x * 2).sum(0), x) == ["mul", "sum"]
    same_as_eager(lambda x: (x * 2).sum(0), x)


def test_in_place_writes_around_a_reduction():
    def fn(x, y):
        t = x * 2
        total = t.sum(1)
        t.add_(y)
        y.mul_(2)
        return total, t.sum(1), t, y.sum()
    agree(lambda: (fn,), [lambda: (torch.randn(40, 50), torch.randn(40, 50))] * 3)


def test_a_total_that_is_written_again():
    def fn(x):
        total = (x + 1).sum(0)
        total.mul_(2)
        total += (x * 3).sum(0)
        return total, (x - total).amax(0)
    same_as_eager(fn, torch.randn(40, 50))


def test_exact_mode_keeps_reductions_and_products_apart():
    a, b = torch.randn(100, 120), torch.randn(100, 120)

    def fn(a, b):
        return ((a - b) * a).sum(), (a * b).sum(0), F.relu(a @ b.t())
    assert all(" + " not in g or "sum" not in g for g in form(fn, a, b, mode="exact"))
    assert not any("->" in g for g in form(fn, a, b, mode="exact"))
    agree(lambda: (fn,), [(a, b)] * 3, rtol=0, mode="exact")


def test_gradients_of_biases_are_added_up_where_they_are_made():
    model = torch.nn.Sequential(torch.nn.Linear(70, 80), torch.nn.ReLU(), torch.nn.Linear(80, 90), torch.nn.ReLU(),
                                torch.nn.Linear(90, 30))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss
    groups = form(step, torch.randn(60, 70))
    assert sum("threshold_backward + sum_to_size" in g for g in groups) == 2
    assert sum("addmm -> relu" in g for g in groups) == 2


def test_truth_values_in_registers_are_as_wide_as_floats():
    """Bytes would keep the loop from being vector code."""
    source = program(lambda x, y: (x * (y > 0)).sum(0), torch.randn(64, 64), torch.randn(64, 64)).source
    assert "unsigned char" not in source


def test_casts_of_tensors_fuse():
    x = torch.randn(30, 40)
    assert form(lambda x: (x.double() * 2).sum(0), x) == ["_to_copy + mul + sum"]
    same_as_eager(lambda x: ((x.double() * 2).sum(0), x.int().sum(), (x * 100).to(torch.int16)), x)


# --------------------------------------------------------------------------------------------- loops inside products
ACTIVATIONS = {"relu": F.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "gelu": F.gelu, "silu": F.silu,
               "leaky": lambda x: F.leaky_relu(x, 0.1), "clamp": lambda x: x.clamp(-0.5, 0.5)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("m, k, n", [(33, 70, 41), (128, 300, 100), (5, 700, 90), (300, 40, 500), (2, 9000, 3), (64, 64, 64)])
def test_activations_run_inside_products(m, k, n, dtype):
    torch.manual_seed(0)
    x, w, b = torch.randn(m, k, dtype=dtype), torch.randn(n, k, dtype=dtype) / k ** 0.5, torch.randn(n, dtype=dtype)
    for name, f in ACTIVATIONS.items():
        groups = form(lambda x, w, b, f=f: f(F.linear(x, w, b)), x, w, b)
        assert len(groups) == 1 and "->" in groups[0], (name, groups)
    same_as_eager(lambda x, w, b: tuple(f(F.linear(x, w, b)) for f in ACTIVATIONS.values()), x, w, b)
    same_as_eager(lambda x, w: tuple(f(x @ w.t()) for f in ACTIVATIONS.values()), x, w)


def test_batches_of_rows():
    x, w, b = torch.randn(4, 30, 64), torch.randn(96, 64), torch.randn(96)
    assert form(lambda x, w, b: F.relu(F.linear(x, w, b)), x, w, b)[-1].endswith("-> relu")
    same_as_eager(lambda x, w, b: F.relu(F.linear(x, w, b)), x, w, b)


def test_residual_additions_and_masks():
    x, w, r = torch.randn(60, 70), torch.randn(80, 70), torch.randn(60, 80)
    assert form(lambda x, w, r: r + x @ w.t(), x, w, r) == ["mm -> add"]
    assert form(lambda x, w, r: (x @ w.t()) * (r > 0), x, w, r) == ["mm -> gt + cast + mul"]
    same_as_eager(lambda x, w, r: (r + x @ w.t(), (x @ w.t()) * (r > 0), x @ w.t() * r.t().reshape(80, 60).t()), x, w, r)


def test_rows_and_columns_of_other_operands():
    x, w, row, column = torch.randn(60, 70), torch.randn(80, 70), torch.randn(80), torch.randn(60, 1)
    assert form(lambda x, w, r, c: (x @ w.t() - c) * r, x, w, row, column) == ["mm -> sub + mul"]
    same_as_eager(lambda x, w, r, c: (x @ w.t() - c) * r, x, w, row, column)


def test_a_product_that_others_need_keeps_its_memory():
    x, w = torch.randn(60, 70), torch.randn(80, 70)

    def fn(x, w):
        t = x @ w.t()
        return t, F.relu(t), t.sum(0)
    assert not any("->" in g for g in form(fn, x, w))
    same_as_eager(fn, x, w)


def test_a_product_whose_factor_is_written_after():
    def fn(x, w, r):
        t = x @ w.t()
        x.mul_(2)
        w.add_(1)
        return F.relu(t), t.sum(), x @ w.t() + r, torch.relu_(r)
    agree(lambda: (fn,), [lambda: (torch.randn(60, 70), torch.randn(80, 70), torch.randn(60, 80))] * 3)


def test_a_loop_over_two_products():
    x, w, v = torch.randn(60, 70), torch.randn(80, 70), torch.randn(80, 70)
    same_as_eager(lambda x, w, v: (F.relu(x @ w.t() + x @ v.t()), torch.sigmoid(x @ w.t()) * (x @ v.t())), x, w, v)


def test_the_transposed_reader_of_a_product():
    x = torch.randn(64, 64)
    same_as_eager(lambda x: ((x @ x).t() + x, F.relu(x @ x).t() * 2, (x @ x).view(8, 8, 64).transpose(0, 1) * 2), x)


def test_training_with_everything():
    """Forward, backward and update of a net with dropout, activations of all kinds and a hand-written loss."""
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in ((30, 64), (64, 64), (64, 48), (48, 9)))

        def forward(self, x):
            x = F.relu(self.layers[0](x))
            x = x + F.gelu(self.layers[1](F.dropout(x, 0.3, self.training)))
            x = torch.tanh(self.layers[2](x)) * 0.5
            return torch.sigmoid(self.layers[3](x))

    def build():
        net = Net()
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)

        def step(x, y):
            optimizer.zero_grad()
            out = net(x)
            loss = ((out - y) ** 2).mean() + 0.1 * (out.amax(1) - out.amin(1)).sum() + 0.01 * out.norm()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            return loss, norm
        return step, net, optimizer
    torch.manual_seed(1)
    x, y = torch.randn(50, 30), torch.rand(50, 9)
    agree(build, [(x, y)] * 5, rtol=5e-5)


# ------------------------------------------------------------------------------------------------ many tiny products
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("count, m, k, n", [(3, 5, 100, 1), (1, 5, 4, 1), (3, 1, 5, 100), (4, 5, 1, 7), (300, 5, 100, 1),
                                            (7, 3, 20, 6), (2, 1, 1, 1), (5, 4, 9, 10), (9, 100, 5, 1), (2, 16, 16, 16)])
def test_batches_of_tiny_products(count, m, k, n, dtype):
    """Both factors straight, transposed, one for all, and with gaps between."""
    def fn(a, at, b, bt):
        lefts, rights = (a, at.transpose(1, 2), a[:1].expand(count, m, k)), (b, bt.transpose(1, 2), b[:1].expand(count, k, n))
        some = [torch.bmm(x, y) for x in lefts for y in rights]
        return (*some, torch.bmm(a[::2], b[::2]))
    shapes = (count, m, k), (count, k, m), (count, k, n), (count, n, k)
    same_as_eager(fn, *[torch.randn(s, dtype=dtype) for s in shapes])


# -------------------------------------------------------------------------------------------- losses of two arrays
LOSSES = {
    "mse": F.mse_loss,
    "huber": lambda a, b, reduction: F.huber_loss(a, b, reduction, 0.7),
    "smooth_l1": lambda a, b, reduction: F.smooth_l1_loss(a, b, reduction=reduction, beta=0.3),
    "soft_margin": lambda a, b, reduction: F.soft_margin_loss(a, b, reduction=reduction),
    "bce_with_logits": lambda a, b, reduction: F.binary_cross_entropy_with_logits(a, b, reduction=reduction),
    "bce": lambda a, b, reduction: F.binary_cross_entropy(a.sigmoid(), b, reduction=reduction),
}


def loss_and_gradient(loss, reduction):
    def fn(a, b):
        a = a.detach().requires_grad_()
        value = loss(a, b, reduction=reduction)
        value.sum().backward()
        return value.detach(), a.grad
    return fn


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (7,), (3, 4), (4, 5, 6, 7), (3, 5000), (5000, 3)], ids=str)
def test_losses(shape, name):
    for dtype in (torch.float32, torch.float64):
        a, b = torch.randn(shape, dtype=dtype) * 3, torch.rand(shape, dtype=dtype)
        for reduction in ("mean", "sum", "none"):
            same_as_eager(loss_and_gradient(LOSSES[name], reduction), a, b)


def test_a_loss_and_its_gradient_are_one_loop():
    a, b = torch.randn(50, 60), torch.randn(50, 60)
    fn = loss_and_gradient(lambda a, b, reduction: F.mse_loss(a * 2, b), "mean")
    assert form(fn, a, b) == ["mul + mse_loss + mean + mse_loss_backward + mul"]


def test_the_sum_and_the_mean_of_one_loss():
    """Their gradients differ by a number that is no argument of the operation."""
    def fn(a, b):
        a = a.detach().requires_grad_()
        total, mean = F.mse_loss(a, b, reduction="sum"), F.mse_loss(a, b)
        (one,), (two,) = torch.autograd.grad(total, a), torch.autograd.grad(mean, a)
        return total.detach(), mean.detach(), one, two
    same_as_eager(fn, torch.randn(20, 30), torch.randn(20, 30))


def test_programs_have_the_same_text_whatever_was_compiled_before():
    """Or they would not be found on disk again. The losses of three columns out of four are stored, under a name."""
    a, b = torch.randn(5000, 4), torch.randn(5000, 4)

    def text():
        return program(lambda a, b: F.mse_loss(a[:, :3], b[:, :3]), a, b).source
    first = text()
    program(lambda a, b: F.huber_loss(a[:, :3], b[:, :3]), a, b)
    assert text() == first


def test_loops_that_repeat_are_one_function():
    """A C compiler takes its time for each."""
    layers = torch.nn.Sequential(*[m for _ in range(6) for m in (torch.nn.Linear(64, 64), torch.nn.GELU())])

    def step(x):
        for p in layers.parameters():
            p.grad = None
        loss = layers(x).square().sum()
        loss.backward()
        return loss
    x = torch.randn(40, 64)
    made = program(step, x)
    assert sum("gelu_backward" in [op.kernel for op in g.ops] for g in made.groups) == 6
    assert made.source.count("ndtr_f32(") == 4, "the first five layers have two functions, the last has both in one loop"
    agree(lambda: (step, layers), [(x,)] * 3)


# -------------------------------------------------------------------------------------------- rows of sparse gradients
@pytest.mark.parametrize("limit", [1, 2, 3, 100, 2048, 2049, 10_000, 1 << 22, (1 << 22) + 1, (1 << 40) + 7])
@pytest.mark.parametrize("count", [0, 1, 5, 3000])
def test_positions_are_sorted_stably(count, limit):
    """In as few passes as there must be, over as many bits each: numbers of bits around 11 and 22 are the corners."""
    at = np.random.default_rng(count).integers(0, limit, count)
    at[:2] = (limit - 1, 0)[:count]
    order, starts, places = np.empty(count, np.int32), np.empty(count + 1, np.int32), np.empty(count, np.int64)
    unique = library("index").fl_sort_positions(pointer(at), count, limit, pointer(order), pointer(starts), pointer(places))
    wanted, counts = np.unique(at, return_counts=True)
    assert unique == len(wanted)
    np.testing.assert_array_equal(places[:unique], wanted)
    np.testing.assert_array_equal(order, np.argsort(at, kind="stable"))
    np.testing.assert_array_equal(starts[:unique + 1], np.r_[0, np.cumsum(counts)])


def test_sparse_training_of_few_and_many_rows():
    """Fewer rows than are sent for ahead, and so many that threads share them."""
    def build():
        table = torch.nn.Embedding(3000, 70, sparse=True)
        optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)

        def step(at):
            optimizer.zero_grad()
            loss = (table(at) ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss
        return step, table, optimizer
    torch.manual_seed(2)
    for count in (1, 2, 4, 50, 4000):
        agree(build, [(torch.randint(0, 3000, (count,)),)] * 4)
