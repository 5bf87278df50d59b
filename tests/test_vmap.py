"""vmap by batching rules: the same programs under PyTorch and flambeau, and that nothing everyday goes example by example."""

import gc
import math
import warnings

import pytest
import torch
from compare import Programs, agree, outcome

import flambeau
from flambeau.backends.batched import table
from flambeau.backends.batched.arrays import Level

programs = Programs()


def numbers(t, *shape):
    """The same numbers under both, without a generator."""
    count = 1
    for n in shape:
        count *= n
    return t.tensor([math.sin(0.7 * n) for n in range(count)]).reshape(shape)


# ------------------------------------------------------------------------------------------------- dimensions and trees
@programs
def negative_dims(t):
    return t.vmap(lambda x, y: x * y.sum(), in_dims=(-1, -2), out_dims=-1)(numbers(t, 2, 3, 4), numbers(t, 4, 5))


@programs
def trees_of_dims(t):
    given = {"a": numbers(t, 3, 2), "b": (numbers(t, 2, 3), 5)}
    return t.vmap(lambda d, s: (d["a"] + d["b"][0] * d["b"][1], {"s": s}), in_dims=({"a": 0, "b": (1, None)}, None),
                  out_dims=(1, {"s": None}))(given, numbers(t, 2))


@programs
def keyword_tensors(t):
    return t.vmap(lambda x, scale: x * scale)(numbers(t, 3, 2), scale=numbers(t, 3))


@programs
def chunks(t):
    return [t.vmap(lambda x, y: (x @ y, x.sum()), in_dims=(0, None), out_dims=(1, 0), chunk_size=n)(
        numbers(t, 5, 2, 3), numbers(t, 3)) for n in (1, 2, 5, 9)]


@programs
def empty_batch(t):
    return t.vmap(lambda x: (x.sin() * 2).sum(-1))(t.zeros(0, 3, 4)), t.vmap(lambda x: x @ x)(t.zeros(0, 3, 3))


@programs
def result_that_does_not_depend(t):
    return t.vmap(lambda x: (t.arange(3.), x))(numbers(t, 2))


@programs
def three_deep(t):
    f = t.vmap(t.vmap(t.vmap(lambda a, b, c: a * b + c.cos(), (None, None, 0)), (None, 0, None)), (0, None, None))
    return f(numbers(t, 2), numbers(t, 3), numbers(t, 4))


@programs
def nested_matrix_products(t):
    return t.vmap(t.vmap(t.matmul, (None, 0)), (0, None))(numbers(t, 2, 3, 4), numbers(t, 5, 4, 2))


@programs
def closes_over_an_outer_example(t):
    return t.vmap(lambda x: t.vmap(lambda y: (x * y).sum())(numbers(t, 4, 3)))(numbers(t, 2, 3))


@programs
def batched_output_without_place(t):
    return t.vmap(lambda x: x, out_dims=None)(numbers(t, 2))


@programs
def nothing_to_map_over(t):
    return t.vmap(lambda x: x, in_dims=None)(numbers(t, 2))


@programs
def not_a_tensor_returned(t):
    return t.vmap(lambda x: 3)(numbers(t, 2))


# ------------------------------------------------------------------------------------------------------- values are not read
@programs
def item_of_an_example(t):
    return t.vmap(lambda x: x * x.sum().item())(numbers(t, 2, 3))


@programs
def branch_on_an_example(t):
    return t.vmap(lambda x: x if x.sum() > 0 else -x)(numbers(t, 2, 3))


@programs
def shape_by_values(t):
    return t.vmap(lambda x: x.nonzero())(numbers(t, 2, 3) > 0)


@programs
def branch_on_what_is_not_batched(t):
    y = t.tensor(2.)
    return t.vmap(lambda x: x * y.item() if y > 0 else x)(numbers(t, 2))


# ------------------------------------------------------------------------------------------------------------- in place
@programs
def in_place_on_an_example(t):
    def f(x):
        y = x * 2
        y[1] = 7
        y[:1].mul_(3)
        y.add_(x.sum())
        return y

    return t.vmap(f)(numbers(t, 2, 3))


@programs
def in_place_reaches_the_input(t):
    x = numbers(t, 2, 3)
    t.vmap(lambda row: row.mul_(2))(x)
    t.vmap(lambda column: column.add_(1), in_dims=1)(x)
    return x


@programs
def in_place_refused(t):
    y = t.zeros(3)
    return t.vmap(lambda x: y.add_(x))(numbers(t, 2, 3))


@programs
def copy_refused(t):
    y = t.zeros(3)
    return t.vmap(lambda x: y.copy_(x))(numbers(t, 2, 3))


@programs
def new_tensors_take_examples(t):
    def f(x):
        a, b = x.new_zeros(2, 3), t.zeros_like(x)
        a[0] = x
        b += x
        return a, b

    return t.vmap(f)(numbers(t, 2, 3))


@programs
def written_positions(t):
    def f(x, i):
        y = x.clone()
        y[i] = 9.
        return y, x.index_fill(0, i[None], 3.), t.zeros(4).scatter(0, i[None], x[:1])

    return t.vmap(f)(numbers(t, 3, 4), t.tensor([0, 2, 3]))


@programs
def gradient_of_in_place(t):
    def f(x):
        y = x.exp()
        y[1:] *= x[:-1]
        return y.sum()

    return t.func.vmap(t.func.grad(f))(numbers(t, 2, 4)), t.func.grad(lambda x: t.vmap(f)(x).sum())(numbers(t, 2, 4))


@programs
def changed_after_it_was_saved(t):
    x = numbers(t, 2, 3).requires_grad_()
    y = t.vmap(t.exp)(x)
    y.add_(1)
    y.sum().backward()


# ---------------------------------------------------------------------------------------------------------- derivatives
@programs
def gradient_of_what_is_shared(t):
    w = numbers(t, 3).requires_grad_()
    t.vmap(lambda x: (w * x).exp().sum())(numbers(t, 4, 3)).sum().backward()
    return w.grad


@programs
def gradient_of_a_shared_matrix(t):
    w, b = numbers(t, 2, 3).requires_grad_(), numbers(t, 2).requires_grad_()
    out = t.vmap(lambda x: t.nn.functional.linear(x, w, b).tanh())(numbers(t, 4, 5, 3))
    return t.autograd.grad(out.square().sum(), (w, b))


@programs
def per_sample_gradients(t):
    def loss(w, b, x, y):
        return t.nn.functional.cross_entropy((w @ x.tanh() + b)[None], y[None])

    f = t.func.grad(loss, argnums=(0, 1))
    given = numbers(t, 4, 3), numbers(t, 4), numbers(t, 5, 3), t.tensor([0, 1, 3, 2, 1])
    return t.func.vmap(f, in_dims=(None, None, 0, 0))(*given)


@programs
def gradient_of_per_sample_gradients(t):
    def norm(w):
        each = t.func.vmap(t.func.grad(lambda w, x: (w @ x).sin().sum()), in_dims=(None, 0))(w, numbers(t, 5, 3))
        return (each ** 2).sum()

    return t.func.grad(norm)(numbers(t, 2, 3))


@programs
def rows_of_a_jacobian_by_hand(t):
    x = numbers(t, 3).requires_grad_()
    y = x ** 2 * x.sum()
    return t.vmap(lambda v: t.autograd.grad(y, x, v, retain_graph=True)[0])(t.eye(3))


@programs
def jacobians_of_a_batch(t):
    f = lambda x: (x.sin() * x.sum(), x[:2])
    x = numbers(t, 4, 3)
    return t.func.vmap(t.func.jacrev(f))(x), t.func.vmap(t.func.jacfwd(f))(x)


@programs
def jacobian_in_chunks(t):
    f = lambda x, y: (x[:, None] * y.exp(), (x * x).sum())
    return [t.func.jacrev(f, argnums=(0, 1), chunk_size=n)(numbers(t, 3), numbers(t, 2)) for n in (None, 1, 2, 4, 100)]


@programs
def wide_jacobian_forwards(t):
    f = t.func.jacfwd(lambda x: x.prod() * numbers(t, 40))
    return f(numbers(t, 3) + 1), f(t.tensor(2.))


@programs
def hessians(t):
    f = lambda x, y: (x.sin().sum() * y.exp()).sum()
    g = t.func.vmap(t.func.hessian(lambda x: (x ** 3).prod()))
    return t.func.hessian(f, argnums=(0, 1))(numbers(t, 3), numbers(t, 2)), g(numbers(t, 2, 3))


@programs
def jvp_inside(t):
    f = t.func.vmap(lambda x, v: t.func.jvp(lambda x: x.sin() * x.sum(), (x,), (v,)))
    return f(numbers(t, 4, 3), numbers(t, 4, 3) + 1)


@programs
def vmap_inside_jvp(t):
    f = t.vmap(lambda x: (x * x.exp()).sum())
    return t.func.jvp(f, (numbers(t, 4, 3),), (numbers(t, 4, 3) + 1,))


@programs
def gradient_through_two_levels(t):
    w = numbers(t, 3).requires_grad_()
    out = t.vmap(lambda x: t.vmap(lambda y: (w * x * y).sin().sum())(numbers(t, 2, 3)))(numbers(t, 4, 3))
    return t.autograd.grad((out ** 2).sum(), w)


@programs
def jacobian_over_vmap(t):
    return t.func.jacrev(lambda w: t.vmap(lambda x: (w * x).cos().sum())(numbers(t, 4, 3)))(numbers(t, 3))


@programs
def jacobians_of_positions(t):
    return t.func.vmap(t.func.jacrev(lambda x: x.sort()[0] * x.argmin()))(numbers(t, 3, 4))


@programs
def batched_grad_outputs(t):
    x, w, unused = numbers(t, 3).requires_grad_(), numbers(t, 3).requires_grad_(), numbers(t, 2).requires_grad_()
    return t.autograd.grad(x * w.sum(), (x, unused, w), t.eye(3), is_grads_batched=True, allow_unused=True)


@programs
def vectorized_matrices(t):
    f = lambda x, y: (x.exp()[:, None] * y, x.sum())
    made = t.autograd.functional.jacobian(f, (numbers(t, 3), numbers(t, 2)), vectorize=True)
    return made, t.autograd.functional.hessian(lambda x: (x ** 3).sum() * x[0], numbers(t, 3), vectorize=True)


@programs
def second_derivative_through(t):
    f = t.vmap(lambda x: (x ** 3).sum())
    return t.func.grad(lambda x: t.func.grad(lambda z: f(z).sum())(x).sum())(numbers(t, 2, 3))


# ------------------------------------------------------------------------------------------------------- custom Functions
def cube(t, **more):
    def forward(x):
        return x ** 3

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    def backward(ctx, grad):
        return 3 * ctx.saved_tensors[0] ** 2 * grad

    members = {k: staticmethod(v) for k, v in dict(forward=forward, setup_context=setup_context, backward=backward).items()}
    return type("Cube", (t.autograd.Function,), {**members, **more})


@programs
def function_with_generated_rule(t):
    f = cube(t, generate_vmap_rule=True).apply
    return t.vmap(f)(numbers(t, 2, 3)), t.func.vmap(t.func.grad(lambda x: f(x).sum()))(numbers(t, 2, 3))


@programs
def function_with_own_rule(t):
    seen = []

    def vmap(info, in_dims, x):
        seen.append((info.batch_size, info.randomness, in_dims, tuple(x.shape)))
        return x.movedim(in_dims[0], 0) ** 3 + 1, 0

    return t.vmap(cube(t, vmap=staticmethod(vmap)).apply, in_dims=1)(numbers(t, 2, 3)), seen[0][0]


@programs
def function_without_rule(t):
    return t.vmap(cube(t).apply)(numbers(t, 2, 3))


# ----------------------------------------------------------------------------------------------------------------- models
@programs
def ensembles(t):
    models = [t.nn.Sequential(t.nn.Linear(3, 4), t.nn.ReLU(), t.nn.LayerNorm(4), t.nn.Linear(4, 2)) for _ in range(3)]
    with t.no_grad():
        for k, m in enumerate(models):
            for i, p in enumerate(m.parameters()):
                p.copy_(numbers(t, *p.shape) * (k + i + 1) / 3)
    weights, buffers = t.func.stack_module_state(models)
    x = numbers(t, 5, 3) / 50
    made = t.func.vmap(lambda p, b: t.func.functional_call(models[0], (p, b), (x,)))(weights, buffers)
    return [[round(v, 3) for v in row] for row in made.detach().flatten(1).tolist()]


@programs
def convolutions_of_each_example(t):
    def loss(w, b, x):
        return t.nn.functional.max_pool2d(t.nn.functional.conv2d(x[None], w, b, padding=1).relu(), 2).square().sum()

    f = t.func.grad(loss, argnums=(0, 1, 2))
    given = numbers(t, 2, 3, 3, 3).double(), numbers(t, 2).double(), numbers(t, 4, 3, 6, 6).double()
    return t.func.vmap(f, in_dims=(None, None, 0))(*given)


@programs
def batch_norm_needs_batched_statistics(t):
    m = t.nn.BatchNorm1d(3)
    return t.vmap(m)(numbers(t, 2, 4, 3))


@programs
def batch_norm_in_eval(t):
    m = t.nn.BatchNorm1d(3).eval()
    return t.vmap(m)(numbers(t, 2, 4, 3)).detach()


# ---------------------------------------------------------------------------------------------------------- random numbers
@programs
def different_draws(t):
    made = t.vmap(lambda x: x + t.rand(4), randomness="different")(t.zeros(3))
    return tuple(made.shape), bool((made[0] != made[1]).any())


@programs
def same_draws(t):
    def f(x):
        return x + t.randn(4), t.nn.functional.dropout(x + t.ones(20)), t.rand_like(x)

    return [bool((r[0] == r[1]).all()) for r in t.vmap(f, randomness="same")(t.zeros(3))]


@programs
def same_draws_in_chunks(t):
    made = t.vmap(lambda x: x + t.rand(2), randomness="same", chunk_size=2)(t.zeros(5))
    return bool((made == made[0]).all())


@programs
def different_dropout(t):
    made = t.vmap(lambda x: t.nn.functional.dropout(x), randomness="different")(t.ones(3, 50))
    return tuple(made.shape), bool((made[0] != made[1]).any())


@programs
def dropout_is_refused(t):
    return t.vmap(t.nn.functional.dropout)(t.ones(3, 5))


@programs
def different_in_place_on_shared(t):
    y = t.zeros(3)
    return t.vmap(lambda x: y.normal_() + x, randomness="different")(t.ones(3))


@programs
def draws_of_a_shape(t):
    def f(x):
        return t.randint(0, 5, (2,)), t.randperm(4), x.bernoulli(), t.multinomial(x, 2), t.normal(x, 1.)

    made = t.vmap(f, randomness="different")(t.full((3, 4), 0.5))
    return [tuple(m.shape) for m in made]


@programs
def error_in_an_outer_call(t):
    return t.vmap(lambda x: t.vmap(lambda y: y + t.rand(1), randomness="same")(x))(t.zeros(2, 3))


@pytest.mark.parametrize("program", programs, ids=programs.ids)
def test_same_as_pytorch(program):
    agree(program)


@pytest.mark.parametrize("program", [item_of_an_example, branch_on_an_example, shape_by_values, dropout_is_refused,
                                     batched_output_without_place, nothing_to_map_over, not_a_tensor_returned,
                                     batch_norm_needs_batched_statistics], ids=lambda p: p.__name__)
def test_words_of_errors(program):
    (theirs, _), (ours, _) = outcome(program, torch), outcome(program, flambeau)
    assert isinstance(theirs, Exception) and isinstance(ours, Exception)
    assert str(ours)[:70] == str(theirs)[:70]


# ------------------------------------------------------------------------------------------------- no loop for everyday work
F = flambeau.nn.functional
EVERYDAY = {
    "pointwise": lambda x: (x.exp() + (x.abs() + 1).sqrt() * 2).clamp(0.1, 3).where(x > 0, x),
    "reductions": lambda x: (x.sum(0), x.mean(), x.var(1), x.amax(1), x.argmax(), x.logsumexp(0), x.norm(), x.std(), x.any()),
    "views": lambda x: (x.t()[1:].reshape(-1).unflatten(0, (-1, 2)), x.unsqueeze(1).expand(4, 3, 4).diagonal(0, 0, 2)),
    "products": lambda x: (x @ x, x @ x[0], x[0] @ x, x[0].dot(x[1]), flambeau.einsum("ij,kj->ik", x, x), F.linear(x, x, x[0])),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
    "softmax": lambda x: (x.softmax(0), x.log_softmax(-1)),
    "convolutions": lambda x: (F.conv1d(x[None], x[:, :, None]), F.conv2d(x[None, None], x[None, None])),
    "pooling": lambda x: (F.max_pool2d(x[None, None], 2), F.avg_pool1d(x[None], 2), F.adaptive_avg_pool2d(x[None, None], 2)),
    "norms": lambda x: (F.layer_norm(x, (4,), x[0], x[1]), F.group_norm(x[None], 2, x[0]), F.instance_norm(x[None])),
    "embedding": lambda x: F.embedding(flambeau.tensor([[0, 2], [1, 3]]), x, padding_idx=0),
    "indexing": lambda x: (x[flambeau.tensor([0, 2])], x[:, x[0].argsort()], x.gather(1, x.argsort(1)), x[0].argmax(),
                           x.index_select(0, x[0].argsort()), x.scatter_add(0, x.argsort(0), x), x[x[0].argmax()],
                           x.take(flambeau.tensor([1, -1])), x[x[0].argsort(), x[1].argsort()]),
    "joining": lambda x: (flambeau.cat([x, flambeau.ones(1, 4)]), flambeau.stack([x, x], 2), x.repeat(2, 1), x.roll(1, 0),
                          x.flip(0)),
    "losses": lambda x: (F.mse_loss(x, x.exp()), F.cross_entropy(x, flambeau.tensor([0, 1, 2, 3])), F.smooth_l1_loss(x, x * 2),
                         F.binary_cross_entropy_with_logits(x, x.sigmoid()), F.nll_loss(x, x.argmax(1)),
                         F.kl_div(x, x.softmax(1), reduction="sum")),
    "sorting": lambda x: (x.sort(0)[0], x.topk(2)[1], x.median(), x.kthvalue(2)[0], x.cumsum(0), x.cummax(1)[0]),
    "linear algebra": lambda x: [f(x @ x.t() + 4 * flambeau.eye(4)) for f in (
        flambeau.linalg.inv, flambeau.linalg.det, flambeau.linalg.cholesky, lambda a: flambeau.linalg.solve(a, x),
        flambeau.linalg.eigvalsh)],
}


def sums(made):
    return sum([(m.float() ** 2).sum() for m in flambeau.utils._pytree.tree_leaves(made)])


@pytest.mark.parametrize("name", EVERYDAY)
def test_no_loop(name):
    """Results and gradients are those of each example by itself, and no kernel ran example by example."""
    f, x = EVERYDAY[name], numbers(flambeau, 3, 4, 4)
    table.looped.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = flambeau.utils._pytree.tree_leaves(flambeau.vmap(f)(x))
        inside = flambeau.vmap(flambeau.func.grad(lambda x: sums(f(x))))(x)
        through = flambeau.func.grad(lambda x: sums(flambeau.vmap(f)(x)))(x)
    assert not table.looped
    each = [flambeau.utils._pytree.tree_leaves(f(row)) for row in x]
    for got, rows in zip(made, zip(*each)):
        assert flambeau.allclose(got, flambeau.stack(rows), atol=1e-4), name
    wanted = flambeau.stack([flambeau.func.grad(lambda x: sums(f(x)))(row) for row in x])
    assert flambeau.allclose(inside, wanted, rtol=1e-3, atol=1e-3)
    plain = lambda x: sum([m.float().sum() for m in flambeau.utils._pytree.tree_leaves(f(x))])
    same = flambeau.stack([flambeau.func.grad(plain)(row) for row in x])  # the gradients that come in are the same for all
    assert flambeau.allclose(flambeau.vmap(flambeau.func.grad(plain))(x), same, rtol=1e-3, atol=1e-3)
    assert flambeau.allclose(through, wanted, rtol=1e-3, atol=1e-3)


def test_duals_inside():
    """(PyTorch has no rule for making duals.)"""
    from flambeau.autograd import forward_ad

    def f(x, v):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(forward_ad.make_dual(x, v).tanh() * x)[1]

    x = numbers(flambeau, 4, 3)
    assert flambeau.allclose(flambeau.vmap(f)(x, x + 1), x * (1 - x.tanh() ** 2) * (x + 1))


def test_shapes_of_an_empty_batch():
    """(PyTorch loses the samples of each example.)"""
    made = flambeau.vmap(lambda x: F.conv2d(x, flambeau.ones(1, 1, 2, 2)))(flambeau.zeros(0, 5, 1, 4, 4))
    assert made.shape == (0, 5, 1, 3, 3)
    assert flambeau.vmap(flambeau.func.grad(lambda x: (x * x).sum()))(flambeau.zeros(0, 3)).shape == (0, 3)


def test_anomaly_detection_looks_at_all_examples():
    with flambeau.autograd.set_detect_anomaly(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f = flambeau.func.vmap(flambeau.func.grad(lambda x: x.sqrt().sum() * 0))
        assert f(flambeau.ones(2, 3)).tolist() == [[0.0] * 3] * 2
        with pytest.raises(RuntimeError, match="returned nan values"):
            f(flambeau.tensor([[1.], [0.]]))


def test_shown_with_its_level():
    texts = []
    flambeau.vmap(lambda x: texts.append(repr(x)) or x)(flambeau.arange(2.))
    assert texts[0].startswith("BatchedTensor(lvl=1, bdim=0, value=") and "tensor([0., 1.])" in texts[0]


def test_a_kernel_without_rule_warns_and_is_right():
    table.looped.clear()
    x = flambeau.rand(3, 10)
    with pytest.warns(UserWarning, match="no batching rule for histc"):
        made = flambeau.vmap(lambda x: flambeau.histc(x, 4, 0, 1))(x)
    assert flambeau.equal(made, flambeau.stack([flambeau.histc(row, 4, 0, 1) for row in x]))


def test_levels_end_with_their_arrays():
    """A backward pass looks for batches only while some array of a vmap is alive."""
    gc.collect()  # (errors that earlier tests caught may hold some)
    before = Level.alive
    x = flambeau.randn(3, 4, requires_grad=True)
    out = flambeau.vmap(lambda x: (x * x).sum())(x)
    assert Level.alive == before + 1
    out.sum().backward()
    assert flambeau.allclose(x.grad, 2 * x)
    del out
    assert Level.alive == before
    kept = flambeau.func.vmap(flambeau.func.grad(lambda x: x.exp().sum()))(x.detach())
    assert Level.alive == before and kept._version == 0


def test_inside_compiled_functions():
    """Calls of vmap in the middle of a compiled function, with what was computed before and gradients of it."""
    w = flambeau.randn(4, 4, requires_grad=True)
    calls = []

    def one(row):
        calls.append(1)
        return (row @ w).tanh().cumsum(0)

    def step(x):
        hidden = (x * 2).sin() @ w
        made = flambeau.vmap(one)(hidden).square().sum() + hidden.sum()
        made.backward()
        found, w.grad = w.grad, None
        return made.detach(), found

    compiled = flambeau.compile(step)
    for k in range(4):
        x = flambeau.full((3, 4), 0.1 * k).cumsum(1)
        calls.clear()
        got = compiled(x)
        assert len(calls) == 1
        for a, b in zip(got, step(x)):
            assert flambeau.allclose(a, b, rtol=1e-4, atol=1e-5)
