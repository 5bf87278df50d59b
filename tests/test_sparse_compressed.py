"""Compressed layouts (CSR, CSC, BSR, BSC), and COO's newer functions, beside PyTorch."""

import copy
import pickle
import warnings

import pytest
from compare import agree, both_raise

import flambeau

LAYOUTS = {"csr": (), "csc": (), "bsr": ((2, 2),), "bsc": ((2, 1),)}


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():  # PyTorch calls its support a prototype
        warnings.simplefilter("ignore")
        yield


def dense(t, dtype="float64"):
    return t.tensor([[0, 1, 0, 2], [3, 0, 0, 0], [0, 0, 0, 0], [0, 4, 5, 0]], dtype=getattr(t, dtype))


def made(t, name, x=None):
    return getattr(dense(t) if x is None else x, f"to_sparse_{name}")(*LAYOUTS[name])


def lists(x):
    rows = str(x.layout)[-1] == "r"
    return ((x.crow_indices(), x.col_indices()) if rows else (x.ccol_indices(), x.row_indices())) + (
        x.values(), x.sparse_dim(), x.dense_dim(), x._nnz(), tuple(x.shape), x.is_sparse, x.is_sparse_csr)


@pytest.mark.parametrize("name", LAYOUTS)
def test_from_dense_and_back(name):
    agree(lambda t: (lists(made(t, name)), made(t, name).to_dense(), repr(made(t, name)),
                     repr(made(t, name, dense(t, "int64")))))


@pytest.mark.parametrize("name", LAYOUTS)
def test_batches_and_dense_dimensions(name):
    def program(t):
        x = t.stack([dense(t), dense(t) * 2])
        y = t.stack([dense(t), dense(t) * 2], 2)
        batched = made(t, name, x)
        inner = getattr(y, f"to_sparse_{name}")(*LAYOUTS[name], dense_dim=1)
        return lists(batched), batched.to_dense(), lists(inner), inner.to_dense()
    agree(program)


@pytest.mark.parametrize("first", LAYOUTS)
@pytest.mark.parametrize("second", [*LAYOUTS, "coo"])
def test_between_layouts(first, second):
    def convert(t):
        return getattr(made(t, first), f"to_sparse_{second}")(*LAYOUTS.get(second, ()))
    if second == "coo":
        agree(lambda t: convert(t).to_dense())
    elif first.startswith("b"):  # PyTorch does not take blocks apart
        assert flambeau.equal(convert(flambeau).to_dense(), dense(flambeau))
    else:
        agree(lambda t: lists(convert(t))[:3])


OPERATIONS = {
    "unary": lambda t, x: (x.sin(), x.abs().sqrt(), x.neg(), x.relu(), -x),
    "scaled": lambda t, x: (x * 2, 3 * x),
    "sum of two": lambda t, x: (x + x).to_dense(),
    "with a dense one": lambda t, x: x + dense(t),
    "times a matrix": lambda t, x: (x @ dense(t), x.matmul(dense(t)[:, :2]), t.mm(x, dense(t))),
    "after a matrix": lambda t, x: dense(t) @ x,
    "times a vector": lambda t, x: x @ dense(t)[0],
    "addmm": lambda t, x: t.addmm(dense(t), x, dense(t), beta=0.5, alpha=2.0),
    "linear": lambda t, x: t.nn.functional.linear(dense(t), x),
    "all summed": lambda t, x: x.sum(),
    "turned": lambda t, x: (x.t().to_dense(), x.transpose(0, 1).layout is not x.layout, x.mT.to_dense()),
    "element and row": lambda t, x: (x[1, 0], x[3].to_dense(), x.select(1, 1).to_dense()),
    "another dtype": lambda t, x: x.to(t.float32),
    "zeros like it": lambda t, x: t.zeros_like(x),
    "in place": lambda t, x: x.clone().mul_(2),
}


def opened(v):
    """Results as PyTorch and flambeau both can compare them."""
    if isinstance(v, tuple):
        return tuple(opened(x) for x in v)
    return v.to_dense() if hasattr(v, "layout") and "sparse" in str(v.layout) else v


@pytest.mark.parametrize("name", ["csr", "csc"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations(operation, name):
    agree(lambda t: opened(OPERATIONS[operation](t, made(t, name))), graph=False)


def test_products_of_two():
    agree(lambda t: lists(made(t, "csr") @ made(t, "csr")))
    agree(lambda t: ((made(t, "csr") * made(t, "csr")).to_dense(), (made(t, "csr") * dense(t)).to_dense()))


def test_sampled_products():
    def program(t):
        a, b = dense(t), dense(t) + 1
        return t.sparse.sampled_addmm(made(t, "csr"), a, b, beta=0.5, alpha=2.0).to_dense()
    agree(program)


def gradients(t, function):
    x, w = dense(t).requires_grad_(), (dense(t) + 1).requires_grad_()
    function(t, x, w).pow(2).sum().backward()
    return x.grad, w.grad


@pytest.mark.parametrize("name", ["csr", "csc"])
def test_gradients_of_products(name):
    expected = gradients(flambeau, lambda t, x, w: x @ w)
    got = gradients(flambeau, lambda t, x, w: made(t, name, x) @ w)
    mask = dense(flambeau) != 0
    assert flambeau.allclose(got[0], expected[0] * mask) and flambeau.allclose(got[1], expected[1])


def test_gradient_of_a_sparse_leaf():
    def program(t):
        x = made(t, "csr").requires_grad_()
        (x @ (dense(t) + 1)).sum().backward()
        return x.grad.to_dense() * (dense(t) != 0), x.is_leaf, x.requires_grad
    agree(program)


def test_gradient_of_a_coo_leaf():
    def program(t):
        x = dense(t).to_sparse().requires_grad_()
        t.sparse.mm(x, dense(t) + 1).sum().backward()
        return x.grad.to_dense() * (dense(t) != 0)
    agree(program)


@pytest.mark.parametrize("function", [
    lambda t, x: x.to_dense(), lambda t, x: t.sparse.mm(x, dense(t) + 1), lambda t, x: t.sparse.sum(x),
    lambda t, x: (x * 3).to_dense(), lambda t, x: x.sin().to_dense()])
def test_gradcheck_of_sparse_inputs(function):
    check = flambeau.sparse.as_sparse_gradcheck(flambeau.autograd.gradcheck)
    for x in (dense(flambeau).to_sparse(), made(flambeau, "csr")):
        assert check(lambda x: function(flambeau, x), x.requires_grad_())


def test_constructors():
    agree(lambda t: [lists(x) for x in (
        t.sparse_csr_tensor([0, 1, 3], [1, 0, 1], [1.0, 2.0, 3.0], (2, 2)),
        t.sparse_csc_tensor([0, 1, 3], [1, 0, 1], [1.0, 2.0, 3.0]),
        t.sparse_bsr_tensor([0, 1], [0], [[[1.0, 2.0]]], (1, 2), dtype=t.float64),
        t.sparse_compressed_tensor(t.tensor([0, 1]), t.tensor([0]), t.tensor([5]), (1, 1), layout=t.sparse_csr))])


@pytest.mark.parametrize("build", [
    lambda t: t.sparse_csr_tensor([0, 2, 1], [0, 1], [1.0, 2.0], (2, 2), check_invariants=True),
    lambda t: t.sparse_csr_tensor([0, 1, 2], [0, 5], [1.0, 2.0], (2, 2), check_invariants=True),
    lambda t: t.sparse_csr_tensor([1, 1, 2], [0, 1], [1.0, 2.0], (2, 2), check_invariants=True),
    lambda t: t.sparse_csr_tensor([0, 2, 2], [1, 0], [1.0, 2.0], (2, 2), check_invariants=True),
    lambda t: t.sparse_csr_tensor([0, 1, 2], [0], [1.0, 2.0], (2, 2), check_invariants=True),
    lambda t: dense(t).to_sparse_bsr((3, 2)),
    lambda t: made(t, "csr").crow_indices() + made(t, "csc").crow_indices(),
    lambda t: made(t, "csr").coalesce(),
    lambda t: made(t, "csr").numpy(),
    lambda t: made(t, "csr").stride(),
    lambda t: made(t, "csr").sum(0),
])
def test_refused(build):
    both_raise(build)


@pytest.mark.parametrize("name", LAYOUTS)
def test_copies(name):
    x = made(flambeau, name)
    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.clone()):
        assert other.layout is x.layout and flambeau.equal(other.to_dense(), x.to_dense())


COO = {
    "softmax": lambda t, s: (t.sparse.softmax(s, 1), t.sparse.softmax(s, 0), t.sparse.log_softmax(s, 1)),
    "sums": lambda t, s: (t.sparse.sum(s, 0), t.sparse.sum(s, (0, 1)), s.sum(1)),
    "slices": lambda t, s: (s[1], s[3, 1], s.select(1, 1), s.index_select(0, t.tensor([3, 0, 3])), s.narrow_copy(0, 0, 2)),
    "products": lambda t, s: (s * s, s * (s.t().coalesce()), s * dense(t)),
    "tests": lambda t, s: (t.isnan(s), s.signbit()),
    "copied": lambda t, s: t.zeros_like(s).copy_(s),
    "diagonals": lambda t, s: t.sparse.spdiags(t.arange(1, 10).reshape(3, 3), t.tensor([0, -1, 2]), (3, 3)),
}


@pytest.mark.parametrize("name", COO)
def test_coordinates(name):
    def program(t):
        found = COO[name](t, dense(t).to_sparse())
        return opened(found)
    agree(program, graph=False)


def test_softmax_of_a_dense_dimension_and_its_gradient():
    def program(t):
        x = t.stack([dense(t), dense(t) + 1], 2).requires_grad_()
        s = x.to_sparse(2)
        t.sparse.softmax(s, 2).to_dense().pow(2).sum().backward()
        first = x.grad.clone()
        x.grad = None
        t.sparse.softmax(x.to_sparse(2), 0).to_dense().pow(2).sum().backward()
        return first, x.grad
    agree(program, tolerance=1e-12)
