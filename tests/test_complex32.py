"""complex32 (`torch.chalf`): made, converted, moved, added and multiplied as in PyTorch; the rest is refused as there."""

import copy
import io
import itertools
import pickle
import warnings

import pytest
import torch
from compare import MODULES, same
from hypothesis import given
from hypothesis import strategies as st

import flambeau

warnings.filterwarnings("ignore")
BOTH = tuple(MODULES.values())


def matrix(m, dtype="complex32"):
    return m.tensor([[1 + 2j, 3 - 4j], [5 + 6j, -7 + 8j]], dtype=getattr(m, dtype))


def named(m):
    return {"torch": m, "x": matrix(m), "z": matrix(m, "complex64"), "copy": copy, "pickle": pickle}


def columns(text):
    return [s.strip() for line in text.splitlines() for s in line.split(" | ")]


GIVEN = columns("""x | x.dtype.itemsize | x.element_size() | x.is_complex() | torch.chalf is torch.complex32
x.nbytes | x.type()
torch.complex32.to_real() | torch.float16.to_complex() | torch.bfloat16.to_complex() | torch.finfo(torch.complex32).eps
torch.zeros(2, dtype=torch.chalf) | torch.ones(2, dtype=torch.chalf) | torch.full((2,), 1 + 1j, dtype=torch.chalf)
torch.tensor([1.0, 2.0], dtype=torch.chalf) | torch.tensor(x[0, 0]) | torch.as_tensor([1j], dtype=torch.chalf)
torch.zeros_like(x) | torch.full_like(x, 2j) | x.new_zeros(2) | x.new_tensor([1j]) | x.new_full((2,), 2j)
z.chalf() | torch.ones(2).chalf() | torch.ones(2).half().chalf() | torch.ones(2).bfloat16().chalf() | torch.tensor([7]).chalf()
torch.tensor([True]).chalf() | x.cfloat() | x.cdouble() | x.float() | x.half() | x.int() | x.bool() | x.bfloat16()
x.to(x.dtype)
torch.view_as_real(x) | torch.view_as_complex(torch.ones(2, 2, dtype=torch.float16)) | x.real | x.imag | x.conj().imag * 2
x.conj().clone() | x.conj_physical() | x.mH + x | x.conj().resolve_conj() | x.view(torch.float16) | x.view(torch.int32)
x[0] | x[0, 0].item() | x.tolist() | complex(x[0, 0]) | bool(x[0, 0]) | x.clone() | x.t().contiguous() | x.storage().tolist()
repr(x) | repr(x[0]) | repr(torch.zeros(0, dtype=torch.chalf)) | copy.deepcopy(x) | x.type("torch.ComplexHalfTensor")
x + x | x - x | x * x | x + 1 | x * 2.5 | x * 1j | 1 - x | x + z | x + torch.ones(2) | x + torch.ones(2).half() | -x | x.abs()
x + torch.ones(2).bfloat16() | x + torch.ones(2).double() | x + torch.tensor([1, 2]) | x.sgn() | torch.ones(2).half() * 1j
x == x | x != x | x.isnan() | x.isinf() | x.isfinite() | torch.isreal(x) | torch.isclose(x, x) | torch.allclose(x, x) | x.eq(1)
x.std() | x.var() | x.var(0) | x.norm() | torch.linalg.vector_norm(x, 1) | x.dist(x + 1) | x.sum(dtype=torch.complex64)
x.any() | x.all() | x.count_nonzero() | x.nonzero() | torch.addcmul(x, x, x) | torch.outer(x[0], x[0])
torch.kron(x, x) | x.diff()
torch.cat([x, x]) | torch.cat([x, z]) | torch.stack([x, x]) | torch.where(x.real > 0, x, x * 2) | x.masked_fill(x.real > 0, 1j)
x[x.real > 0] | x[torch.tensor([0])] | x.index_select(0, torch.tensor([0])) | x.index_add(0, torch.tensor([0]), x[:1])
x.index_fill(0, torch.tensor([0]), 1j) | x.index_copy(0, torch.tensor([0]), x[:1]) | x.index_put((torch.tensor([0]),), x[:1])
x.masked_select(x.real > 0) | x.roll(1) | x.repeat(2, 1) | x.expand(2, 2, 2) | x.reshape(4) | x.permute(1, 0)
x.diag() | x.tril()
torch.diag_embed(x[0]) | torch.constant_pad_nd(x, (1, 1)) | torch.block_diag(x, x) | x.unfold(0, 1, 1) | x.split(1)[0]
x.fill_(1j) | x.zero_() | x.copy_(z) | x.add_(1) | x.mul_(1j) | x.add_(z) | x.sub_(x) | x.fill_diagonal_(1) | x.real.add_(1)
torch.complex(torch.ones(2).half(), torch.ones(2).half()) | x.conj().mul_(1j) | x.to("meta") + 1 | torch.hstack([x, x])
torch.can_cast(torch.complex32, torch.float32) | torch.result_type(x, torch.ones(2)) | x.untyped_storage().nbytes()
x.requires_grad_().requires_grad | torch.select_copy(x, 0, 0) | x.unsafe_split(1)[0] | torch.fill(x, 2j)""")
REFUSED = columns("""x / x | x.angle() | x.sqrt() | x.exp() | x.log() | x.sin() | x.tanh() | x.sigmoid()
x.reciprocal() | x ** 2 | x ** x
x.sum() | x.sum(0) | x.mean() | x.prod() | x.cumsum(0) | x.cumprod(0) | x < x | x @ x | torch.mm(x, x) | torch.addmm(x, x, x)
torch.bmm(x[None], x[None]) | torch.dot(x[0], x[0]) | torch.vdot(x[0], x[0]) | torch.mv(x, x[0])
x.gather(0, torch.tensor([[0, 1]]))
x.scatter(0, torch.tensor([[0, 1]]), 1j) | x.scatter_add_(0, torch.tensor([[0, 1]]), x.clone()) | x.trace()
x.div_(2) | x.logical_not()
x.logical_and(x) | torch.arange(3, dtype=torch.chalf) | torch.eye(2, dtype=torch.chalf)
torch.linspace(0, 1, 3, dtype=torch.chalf)
x.unique() | x.max() | x.lerp(x, 0.5) | torch.addcdiv(x, x, x) | torch.einsum("ij,jk->ik", x, x)
torch.nn.functional.linear(x, x)
x.nan_to_num() | x.softmax(0) | x.random_() | torch.sum(z, dtype=torch.chalf) | x.logsumexp(0) | x.amax() | x.addr(x[0], x[0])
torch.polar(torch.ones(1).half(), torch.ones(1).half()) | x.numpy() | x.clamp(0) | x.round() | torch.linalg.inv(x)""")


@pytest.mark.parametrize("source", GIVEN)
def test_given(source):
    expected, got = [eval(source, named(m)) for m in BOTH]
    same(expected, got, strides=True)


@pytest.mark.parametrize("source", REFUSED)
def test_refused(source):
    kinds = []
    for m in BOTH:
        with pytest.raises((NotImplementedError, RuntimeError, TypeError)) as caught:
            eval(source, named(m))
        kinds.append(caught.type.__name__)
    assert kinds[0] == kinds[1]


def test_promotion():
    names = "bool uint8 int64 float16 bfloat16 float32 float64 complex32 complex64 complex128".split()
    for a, b in itertools.product(names, names):
        found = [str(m.promote_types(getattr(m, a), getattr(m, b))) for m in BOTH]
        assert found[0] == found[1], (a, b)


numbers = st.complex_numbers(max_magnitude=6e4, allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6))
def test_rounding(pairs):
    """Numbers, sums, products and sizes are computed in single precision and rounded once; there and back nothing is lost."""
    made = []
    for m in BOTH:
        a, b = [m.tensor([p[i] for p in pairs], dtype=m.complex64).chalf() for i in (0, 1)]
        made.append([a, b, a + b, a - b, a.cfloat().chalf(), m.view_as_real(a), (a * b).isfinite(), a == b, a.real * b.imag])
    same(*made)


def test_products_to_rounding():
    """(Whether the two products in a product are rounded in between is the processor's choice.)"""
    for m in BOTH:
        m.manual_seed(0)
    expected, got = [(lambda a: a[0] * a[1])(m.randn(2, 100, dtype=m.complex32)) for m in BOTH]
    same(expected.cfloat(), got.cfloat(), 2e-3)


@pytest.mark.parametrize("source", ["torch.randn(40, dtype=torch.chalf)", "torch.rand(5, dtype=torch.chalf)",
                                    "torch.randn_like(x)", "torch.rand_like(x)", "x.normal_()", "x.uniform_()"])
def test_draws(source):
    for m in BOTH:
        m.manual_seed(3)
    same(*[eval(source, named(m)) for m in BOTH])


@pytest.mark.parametrize("loss", [
    lambda x: (x * x).real.sum(), lambda x: (x * x + 1).abs().sum(), lambda x: x.chalf().imag.sum(), lambda x: x.mH.imag.sum(),
    lambda x: x.conj()[0].real.sum(), lambda x: x.cfloat().abs().sum()])
def test_gradients(loss):
    found = []
    for m in BOTH:
        x = matrix(m).requires_grad_()
        loss(x).backward()
        found.append(x.grad)
    same(*found)


def test_gradient_of_the_conversion():
    found = []
    for m in BOTH:
        z = matrix(m, "complex64").requires_grad_()
        z.chalf().real.sum().backward()
        found.append(z.grad)
    same(*found)


def test_saved_files():
    for writer, reader in ((torch, flambeau), (flambeau, torch), (flambeau, flambeau)):
        buffer = io.BytesIO()
        writer.save([matrix(writer), matrix(writer).mH[1]], buffer)
        buffer.seek(0)
        same([matrix(writer), matrix(writer).mH[1]], reader.load(buffer), strides=True)
    same(matrix(torch), pickle.loads(pickle.dumps(matrix(flambeau))))


def test_other_ways_to_run():
    x = matrix(flambeau)
    function = lambda x: (x * x.conj() + 1).real * 2
    compiled = flambeau.compile(function)
    for _ in range(4):
        same(function(x), compiled(x))
    same(function(x), flambeau.vmap(function)(x))
    assert function(x.to("meta")).dtype is flambeau.float16
