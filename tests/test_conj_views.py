"""Conjugates and negatives are views with a bit, as in PyTorch: what they alias, show, refuse, and what becomes of them."""

import copy
import io
import pickle
import warnings

import numpy as np
import pytest
import torch
from compare import MODULES, Programs, agree_in_words, same
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau

warnings.filterwarnings("ignore")
BOTH = tuple(MODULES.values())


def matrix(m, requires_grad=False):
    """Small whole numbers: every order of arithmetic gives the same bits."""
    return m.tensor([[1 + 2j, 3 - 4j], [5 + 6j, -7 + 8j]], requires_grad=requires_grad)


def facts(t):
    """All that can be seen of a tensor."""
    if t is None or not isinstance(t, (torch.Tensor, flambeau.Tensor)):
        return t
    made = [t.is_conj(), t.is_neg(), t._is_view(), tuple(t.shape), t.stride(), t.storage_offset(), str(t.dtype)]
    return made if t.device.type == "meta" else [*made, t.detach().resolve_conj().resolve_neg().tolist()]


def agrees(program):
    """Both libraries show the same, or refuse with the same type of error. Gives what PyTorch showed."""
    shown = []
    for m in BOTH:
        try:
            made = program(m)
            shown.append([facts(t) for t in made] if isinstance(made, (list, tuple)) else facts(made))
        except Exception as error:
            shown.append(error)
    if isinstance(shown[0], Exception):
        assert type(shown[0]).__name__ == type(shown[1]).__name__, shown
    elif isinstance(shown[1], Exception):
        raise shown[1]
    else:
        assert shown[0] == shown[1]
    return shown[0]


VIEWS = """x.conj() | x.conj().conj() | x.conj().real | x.conj().imag | x._neg_view() | x._neg_view().real | x._neg_view().imag
x._neg_view().conj().imag | x.conj()._neg_view().real | x._neg_view()._neg_view() | x.conj().imag._neg_view() | x.mH | x.H
x.adjoint() | x.conj().mT | x.conj().T | x.conj().t() | x.conj()[0] | x.conj()[:, 1:] | x.conj()[0, 0] | x.conj().reshape(4)
x.mH.reshape(4) | x.conj().view(-1) | x.conj().flatten() | x.conj().ravel() | x.conj().expand(2, 2, 2) | x.conj().diagonal()
x.conj().as_strided((2,), (1,), 1) | x.conj().unbind()[1] | x.conj().split(1)[1] | x.conj().unsafe_split(1)[0]
torch.chunk(x.conj(), 2)[1] | torch.tensor_split(x.conj(), 2)[0] | x.conj().permute(1, 0) | x.conj().squeeze()
x.conj().unsqueeze(0) | x.conj().unfold(0, 1, 1) | x.conj().movedim(0, 1) | x.conj().swapaxes(0, 1) | x.conj().view_as(x)
torch.broadcast_to(x.conj(), (2, 2, 2)) | torch.atleast_3d(x.conj()) | torch.view_as_real(x._neg_view()) | x.conj().detach()
torch.view_as_complex(torch.ones(3, 2)._neg_view()) | x.conj().data | torch.positive(x.conj()) | torch.conj(x)
torch._conj(x) | torch._neg_view(x) | torch.real(x.conj()) | torch.imag(x.conj()) | x.conj().contiguous() | x.mH.contiguous()
x.conj().to(torch.complex64) | x.conj().cpu() | x.conj().cfloat() | torch.as_tensor(x.conj()) | torch.asarray(x.conj())
x.conj().share_memory_() | x.conj().resize_(3) | x.conj().set_(x) | list(x[0].conj())[0] | torch.ones(2, 2).mH
torch.ones(2)._neg_view() | torch.ones(2, dtype=torch.int32)._neg_view() | torch.ones(2).conj()
torch.nn.Parameter(x.conj())"""
COPIES = """x.conj().clone() | x.conj() + 1 | 1 - x.conj() | x.conj() * x | x * x.conj() | x.mH * x | x.conj() @ x | x.mH @ x.mH
x.conj().neg() | -x.conj() | x.conj().imag * 2 | x.conj().imag + x.imag | x.conj().sum() | x.conj().sum((0,)) | x.conj().prod()
x.conj().to(torch.complex128) | x.conj().to("cpu", copy=True) | x.conj().resolve_conj() | x.resolve_conj() | x.resolve_neg()
x.conj()._neg_view().resolve_neg() | x.conj()._neg_view().resolve_conj() | x.conj().conj_physical() | x.conj_physical()
torch._conj_physical(x.conj()) | torch.conj_physical(torch.ones(2)) | torch.zeros_like(x.conj()) | x.conj().new_zeros(2)
x.conj()[torch.tensor([0])] | x.conj().index_select(0, torch.tensor([1])) | torch.cat([x.conj(), x])
torch.stack([x, x.conj()])
x.conj().where(torch.tensor(True), x) | torch.isreal(x.conj()) | torch.equal(x.conj(), x.conj_physical()) | x.conj() == x
torch.tensor(x.conj()) | torch.tensor([x[0, 0].conj()]) | torch.select_copy(x.conj(), 0, 0) | x.conj().narrow_copy(0, 0, 1)
torch._conj_copy(x) | torch._neg_view_copy(x) | copy.deepcopy(x.conj()) | copy.copy(x.conj()) | copy.deepcopy(x._neg_view())
pickle.loads(pickle.dumps(x.conj())) | pickle.loads(pickle.dumps(x.mH._neg_view())) | torch.fft.ihfft(torch.tensor([1.0, 0.0]))
x.conj().item() | x[0, 0].conj().item() | complex(x[0, 0].conj()) | x[0, 0].conj().imag.item() | x.conj().tolist()
x.conj().storage().tolist() | x.conj().untyped_storage().nbytes() | x.conj().is_contiguous() | x.conj()._base is None
x.conj().data_ptr() == x.data_ptr() | repr(x.conj()) | repr(x.conj().imag) | repr(torch.tensor([1j], requires_grad=True).conj())
torch.is_conj(x.conj()) | torch.is_neg(x.conj().imag) | torch.is_conj(x) | x.conj().is_set_to(x) | len(x.conj())
x.to("meta").conj() | x.to("meta").conj().imag | x.to("meta").mH + 1 | x.to("meta") + x.to("meta").conj() | x.conj().to("meta")
torch.mul(x, x, out=torch.zeros(2, 2, dtype=torch.complex64).conj()) | (x.conj().imag > 0) | x.conj().imag.sort().values
torch.mm(x, x, out=torch.zeros(2, 2, dtype=torch.complex64).conj()) | torch.sum(x, 0, out=x.conj()[0]) | x.conj().imag.cumsum(0)
torch.add(x, x.conj(), out=x.conj()) | torch.einsum("ij,kj->ik", x.conj(), x).clone()
x.conj().imag.to(torch.int32) | x.conj().bool()"""


@pytest.mark.parametrize("source", [s.strip() for line in (VIEWS + "\n" + COPIES).splitlines() for s in line.split(" | ")])
def test_expressions(source):
    agrees(lambda m: eval(source, {"torch": m, "x": matrix(m), "copy": copy, "pickle": pickle}))


@pytest.mark.parametrize("source", [
    "x.conj().numpy()", "x._neg_view().numpy()", "x.conj().imag.numpy()", "x.conj()._neg_view().numpy()",
    "np.asarray(x.conj())", "torch.view_as_real(x.conj())", "x.conj().view(torch.float32)",
    "x._neg_view().view(torch.float32)", "x.conj().view(torch.complex64)"])
def test_refusals(source):
    assert isinstance(agree_in_words(lambda m: eval(source, {"torch": m, "x": matrix(m), "np": np})), RuntimeError)


def test_numpy_by_force():
    for source in (lambda x: x.conj(), lambda x: x.mH._neg_view(), lambda x: x.conj().imag):
        expected, got = [source(matrix(m)).numpy(force=True) for m in BOTH]
        np.testing.assert_array_equal(expected, got)


def test_memory_with_bits_is_not_exported():
    for made in (matrix(flambeau).conj(), matrix(flambeau)._neg_view()):
        with pytest.raises(BufferError, match="bit set"):
            made.__dlpack__()


def test_bools_have_no_negative():
    with pytest.raises(RuntimeError, match="bool"):
        flambeau.tensor([True])._neg_view()


# ------------------------------------------------------------------------------------------------- writing through
writes = Programs()


@writes
def items(m):
    x = matrix(m)
    z = x.conj()
    z[0] = 1j
    z.imag[1, 0] = 9
    z[1, :1] += 2j
    return x, z, x._version, z._version


@writes
def whole(m):
    x = matrix(m)
    z = x.conj()
    z.add_(x).mul_(1j).fill_diagonal_(2j)
    x.sub_(z)
    return x, z, x._version


@writes
def partly_the_same_memory(m):
    x = matrix(m)
    return x.mH.copy_(x)


@writes
def apart(m):
    x = m.arange(6).to(m.complex64) * (1 + 1j)
    x[:3].add_(x[1:4].conj())
    x.conj()[3:].copy_(x[:3].clone())
    return x


@writes
def negatives_of_what_has_none(m):
    x = m.zeros(3, dtype=m.complex64)
    y = x._neg_view()
    y.copy_(m.tensor([1, 2, 3], dtype=m.uint8))
    y[0] = True
    return x, y


@writes
def by_positions(m):
    z = matrix(m).conj()
    z[m.tensor([[True, False], [False, True]])] = 9j
    z.index_add_(0, m.tensor([0]), m.tensor([[1j, 1j]]))
    z.masked_fill_(m.tensor([[False, True], [False, False]]), 7j)
    z.scatter_(0, m.tensor([[1, 1]]), m.tensor([[4j, 4j]]))
    z[:, [0, 1]] = z[:, [1, 0]]
    return z, z._base, z._version


@writes
def in_place_forms(m):
    x = matrix(m)
    z = x.conj()
    z.conj_physical_()
    z.t_()
    z.imag.neg_()
    return z, x


@writes
def resolved_is_apart(m):
    x = matrix(m)
    x.conj().resolve_conj().zero_()
    x.resolve_conj().mul_(2)
    return x


@writes
def other_memory(m):
    z = matrix(m).conj()
    z.data = m.ones(2, 2, dtype=m.complex64)
    y = m.ones(2, dtype=m.complex64)
    y.data = matrix(m)[0].conj()
    return z, y


@writes
def draws(m):
    z, y, b = matrix(m).conj(), m.zeros(3)._neg_view(), m.zeros(3)._neg_view()
    m.manual_seed(0)
    return z.normal_(), y.uniform_(), b.bernoulli_(0.5), m.bernoulli(m.tensor([0.0, -1.0])._neg_view()), m.multinomial(
        m.tensor([-1.0, -2.0])._neg_view(), 3, True), m.normal(m.ones(3)._neg_view(), 1.0)


@writes
def lists(m):
    x = matrix(m)
    return m._foreach_add([x.conj(), x], 1)


@writes
def optimizers_with_negative_gradients(m):
    p = m.nn.Parameter(m.ones(2))
    p.grad = m.ones(2)._neg_view()
    m.optim.SGD([p], lr=0.5).step()
    return p, p.grad


@writes
def without_grad_modes(m):
    with m.inference_mode():
        y = matrix(m).conj()
        y.add_(1j)
        return y.is_conj(), y.tolist()


@pytest.mark.parametrize("program", writes, ids=writes.ids)
def test_writes(program):
    agrees(program)


# ------------------------------------------------------------------------------------------------------ random programs
STEPS = {
    "conj": lambda m, t, i: t.conj(), "neg": lambda m, t, i: t._neg_view(), "mT": lambda m, t, i: t.mT if t.ndim > 1 else t,
    "mH": lambda m, t, i: t.mH if t.ndim > 1 else t, "real": lambda m, t, i: t.real,
    "imag": lambda m, t, i: t.imag if t.is_complex() else t, "select": lambda m, t, i: t[i % t.shape[0]] if t.ndim > 1 else t,
    "slice": lambda m, t, i: t[i % 2:], "step": lambda m, t, i: t[..., ::2], "flat": lambda m, t, i: t.reshape(-1),
    "unsqueeze": lambda m, t, i: t.unsqueeze(i % (t.ndim + 1)), "diagonal": lambda m, t, i: t.diagonal() if t.ndim > 1 else t,
    "parts": lambda m, t, i: m.view_as_real(t) if t.is_complex() and not t.is_conj() else t,
    "whole": lambda m, t, i: t if t.is_complex() or t.shape[-1] != 2 or t.stride(-1) != 1 or t.storage_offset() % 2 or any(
        [s % 2 for s in t.stride()[:-1]]) else m.view_as_complex(t),
    "resolve": lambda m, t, i: t.resolve_conj(), "alias": lambda m, t, i: t.detach(),
    "expand": lambda m, t, i: t.expand(t.shape),
}
CHANGES = {
    "add": lambda m, t, o, i: t.add_(i), "mul": lambda m, t, o, i: t.mul_(1 + i % 3), "turn": lambda m, t, o, i: t.mul_(
        1j if t.is_complex() else -1), "fill": lambda m, t, o, i: t[..., 0].fill_(i), "copy": lambda m, t, o, i: t.copy_(
        o.clone()) if t.shape == o.shape and (t.is_complex() or not o.is_complex()) else t, "set": lambda m, t, o, i:
        t.__setitem__(0, complex(i, 2) if t.is_complex() else i), "plus": lambda m, t, o, i: t.add_(o.resolve_conj()) if
    t.shape == o.shape and t.dtype is o.dtype and not t._is_view() else t, "negate": lambda m, t, o, i: t.neg_(),
    "conjugate": lambda m, t, o, i: t.conj_physical_(), "out": lambda m, t, o, i: m.add(t.clone(), 1, out=t)}


@settings(max_examples=120)
@given(st.lists(st.tuples(st.sampled_from([*STEPS, *CHANGES]), st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=10))
def test_random_programs(steps):
    """Views of views, with bits on and off, and changes through any of them: values, bits, strides, versions are PyTorch's."""
    def program(m):
        base = (m.arange(12) + 1).to(m.complex128).reshape(3, 4)
        base = base + 1j * base.flip(0)
        tensors = [base]
        for name, at, i in steps:
            t = tensors[at % len(tensors)]
            if not t.numel():
                continue
            if name in STEPS:
                tensors.append(STEPS[name](m, t, i))
            else:
                CHANGES[name](m, t, tensors[i % len(tensors)], i)
        return [x for t in tensors for x in (t, t._version, t.requires_grad)]
    agrees(program)


# ----------------------------------------------------------------------------------------------------------- autograd
graphs = Programs()


@graphs
def gradients(m):
    x = matrix(m, True)
    (x.conj() * x + x.mH).sum().real.backward()
    return x.grad, x.conj().grad_fn.name(), x._neg_view().grad_fn.name(), x.conj().resolve_conj().grad_fn.name()


@graphs
def changes_of_the_view(m):
    x = matrix(m, True)
    y = x * 1
    z = y.conj()
    z.mul_(2j)
    z[0].imag.add_(1)
    (y.real * y.imag).sum().backward()
    return x.grad, y, z, z.grad_fn.name(), y.grad_fn.name(), y._version


@graphs
def changes_of_the_base(m):
    x = matrix(m, True)
    y = x * 1
    z, w = y.conj(), y.conj().imag
    y.mul_(1j)
    (z.real * 3 + w).sum().backward()
    return x.grad, z, w, z.grad_fn.name()


@graphs
def leaves_with_bits(m):
    y = matrix(m).conj().requires_grad_()
    (y * 2j).sum().real.backward()
    with m.no_grad():
        y.add_(1)
    return y.grad, y.is_leaf, y


@graphs
def gradient_of_a_conjugate(m):
    x = matrix(m, True)
    return m.autograd.grad(x.conj(), x, m.full_like(matrix(m), 1 + 1j))[0].tolist(), m.autograd.grad(
        x._neg_view(), x, m.full_like(matrix(m), 1 + 1j))[0].tolist()


@graphs
def a_leaf_refuses_changes(m):
    return matrix(m, True).conj().add_(1)


@graphs
def a_saved_conjugate_refuses_changes(m):
    x = matrix(m, True)
    w = x * 1
    z = w.conj()
    y = (z * z).sum().real
    w.add_(1)
    y.backward()


@graphs
def tangents(m):
    fw = m.autograd.forward_ad
    with fw.dual_level():
        x = fw.make_dual(matrix(m), matrix(m) * 1j)
        first, second = fw.unpack_dual(x.conj()), fw.unpack_dual(x.conj().imag * 2)
        return first.primal, first.tangent, second.primal.tolist(), second.tangent.tolist()


@pytest.mark.parametrize("program", graphs, ids=graphs.ids)
def test_graphs(program):
    agrees(program)


@pytest.mark.parametrize("function", [
    lambda x: (x.conj().imag * x.mH.real).sum(), lambda x: x.mH @ x.conj(), lambda x: (x * 2)._neg_view().conj(),
    lambda x: (x * 1).conj().imag.mul_(3).sum(), lambda x: flambeau.linalg.norm(x.mH) * x.conj()[0]])
def test_derivatives(function):
    x = matrix(flambeau).to(flambeau.complex128).requires_grad_()
    assert flambeau.autograd.gradcheck(function, [x], check_forward_ad=True)
    assert flambeau.autograd.gradgradcheck(function, [x])


# --------------------------------------------------------------------------------------------------- other ways to run
def test_optimizers_take_conjugate_gradients():
    p = flambeau.nn.Parameter(matrix(flambeau))
    q = flambeau.nn.Parameter(matrix(flambeau))
    p.grad, q.grad = matrix(flambeau).conj(), matrix(flambeau).conj_physical()
    flambeau.optim.Adam([p], lr=0.5).step()
    flambeau.optim.Adam([q], lr=0.5).step()
    assert p.tolist() == q.tolist()


def test_gradients_of_leaves_have_no_bits():
    x = matrix(flambeau, True)
    for _ in range(2):
        (x.conj() * matrix(flambeau)).sum().real.backward()
        assert not x.grad.is_conj()
    assert x.grad.tolist() == (2 * matrix(flambeau)).tolist()


def test_what_modes_see():
    def program(m):
        mode = __import__(f"{m.__name__}.utils._python_dispatch", fromlist=["x"]).TorchDispatchMode
        log = []

        class Log(mode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                log.append(str(func))
                return func(*args, **(kwargs or {}))

        x, r = matrix(m), matrix(m, True)
        with Log():
            made = [x.mH, x.conj().imag, x.imag, x._neg_view(), x.conj() + 1, x.conj().resolve_conj(), x.resolve_conj(),
                    x.conj().real, x.conj_physical(), x.conj().clone(), x.conj().add_(1), x.conj() @ x, x.conj().sum(),
                    x.conj().t(), (r.conj() * 2).sum()]
        return [*log, *made[:-1]]
    agrees(program)


def test_vmap():
    x, y = matrix(flambeau), matrix(flambeau)
    conjugates = flambeau.vmap(lambda r: r.conj())(x)
    assert conjugates.is_conj() and conjugates.tolist() == x.conj().tolist()
    assert flambeau.vmap(lambda r: r.conj() * 2 + r.imag)(x).tolist() == (x.conj() * 2 + x.imag).tolist()
    assert flambeau.vmap(lambda r, s: r @ s, in_dims=(0, None))(x.conj(), x.mH).tolist() == (x.conj() @ x.mH).tolist()
    assert flambeau.vmap(lambda r: r.conj().mul_(1j))(y).tolist() == (x.conj() * 1j).tolist()
    assert y.tolist() == (x.conj() * 1j).conj().tolist()
    assert flambeau.vmap(flambeau.vmap(lambda e: e.conj().imag))(x.mT).tolist() == x.mT.conj().imag.tolist()


def test_saved_files(tmp_path):
    for make in (lambda x: x.conj()[:, 1], lambda x: x._neg_view(), lambda x: x.mH._neg_view(), lambda x: x.conj().mT):
        for writer, reader in ((torch, flambeau), (flambeau, torch), (flambeau, flambeau)):
            buffer = io.BytesIO()
            x = matrix(writer)
            writer.save([x, make(x)], buffer)
            buffer.seek(0)
            plain, made = reader.load(buffer)
            assert facts(made)[:2] == facts(make(x))[:2] and facts(made)[3:] == facts(make(x))[3:]
            plain.zero_()  # they share their memory as before
            assert not made.any()


COMPILED = {
    "product": lambda x, w: (x.conj() * w).sum(), "a view": lambda x, w: x.conj(), "matrices": lambda x, w: x.mH @ w,
    "parts": lambda x, w: x.imag * 2 + x.conj().imag, "a question": lambda x, w: (3 if x.is_conj() else 2) * w,
    "a change": lambda x, w: (x.conj().mul_(2j), x * 1)[1], "an outdated view": lambda x, w: _outdated(x),
    "resolved": lambda x, w: flambeau.view_as_real(x.resolve_conj().resolve_neg()).sum()}


def _outdated(x):
    y = x.clone()
    z = y.conj()
    y.add_(1j)
    return z * 1


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name):
    """Calls with plain tensors, then with views of either kind, of the same shapes: no program takes one for the other."""
    function, compiled = COMPILED[name], flambeau.compile(COMPILED[name])
    for n, bits in enumerate((None, None, None, "conj", "_neg_view", None, "conj")):
        shown = []
        for f in (function, compiled):
            x, w = matrix(flambeau) * (n + 1), matrix(flambeau).mT.contiguous()
            x = x if bits is None else getattr(x, bits)()
            made = f(x, w)
            shown.append([facts(made)[:2], facts(made)[-1], facts(x)])
        assert shown[0] == shown[1], (n, bits)
    for n in range(3):
        found = []
        for f in (function, compiled):
            x, w = matrix(flambeau, True), matrix(flambeau, True)
            made = f(x * 1, w)
            (made.real * (n + 1)).sum().backward()
            found.append([x.grad, w.grad])
        same(*found)


def test_many_elements_and_other_layouts():
    """Where kernels go in parallel, and where memory is not in order."""
    for shape in ((300, 400), (7, 1)):
        results = []
        for m in BOTH:
            x = m.arange(shape[0] * shape[1]).reshape(shape).to(m.complex64)
            x = x * (1 + 2j)
            results.append([t for v in (x.mH, x.conj()[::2], x.mT.conj(), x.conj().expand(2, *shape)) for t in (
                v + 1, v * v, v.clone(), v.imag * 2, v.abs() > 3, v.imag.clone())])
        same(*results, strides=shape[1] > 1)  # (the strides of single elements are another matter)
