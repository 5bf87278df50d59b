"""Corners of single operations beside PyTorch: values at the edges, and what must be refused."""

import pytest
import torch as oracle
from compare import agree, both_raise

import flambeau

INF = float("inf")


VALUES = {
    "addr of whole numbers and floats": lambda t: t.addr(t.ones(2, 2, dtype=t.int64), t.ones(2), t.ones(2), alpha=0.5, beta=2),
    "angles in degrees": lambda t: t.rad2deg(t.tensor([3.142, 6.283, 1.57])) == t.tensor([3.142, 6.283, 1.57]) * (
        180 / 3.141592653589793),
    "order of dimensions": lambda t: [
        t.empty(2, 3, 4).transpose(0, 1).dim_order(ambiguity_check=True), t.empty(2, 3).expand(4, 2, 3).dim_order(),
        t.empty(1, 2, 3, 4).dim_order(ambiguity_check=[t.contiguous_format, t.channels_last])],
    "sparse products reduced": lambda t: [t.sparse.mm(t.tensor([[1.0, 0, 2], [0, 3, 0], [0, 0, 0]]).to_sparse_csr(), t.tensor(
        [[0, 1.0], [2, 0], [-5, 3]]), kind) for kind in ("sum", "mean", "amax", "amin")],
    "squeeze of several": lambda t: t.zeros(2, 1, 1, 3).squeeze(1, 2),
    "squeeze in place of several": lambda t: t.zeros(2, 1, 1, 3).squeeze_(1, 2),
    "squeeze as a function takes one": lambda t: t.zeros(2, 1, 1, 3).squeeze((1, 2)),
    "right shift out of range": lambda t: t.tensor([1, 200, 255], dtype=t.uint8) >> t.tensor([1, 9, 8], dtype=t.uint8),
    "with a sign": lambda t: t.tensor([1, -100, 127], dtype=t.int8) >> t.tensor([1, 9, -1], dtype=t.int8),
    "right shift by a number": lambda t: t.tensor([1, 200, 255], dtype=t.uint8) >> 8,
    "large right shift": lambda t: (t.arange(100_000) % 256).to(t.uint8).bitwise_right_shift(9).sum(),
    "complex logaddexp at infinity": lambda t: t.logaddexp(t.tensor([complex(-INF, 0)]), t.tensor([complex(-INF, 0)])),
    "real logaddexp at infinity": lambda t: t.logaddexp(t.tensor([INF, -INF, INF]), t.tensor([INF, -INF, -INF])),
    "grid_sample of no images": lambda t: t.nn.functional.grid_sample(t.zeros(0, 2, 5, 5), t.zeros(0, 3, 3, 2),
                                                                      align_corners=False),
    "grid_sample of no channels": lambda t: t.nn.functional.grid_sample(t.zeros(2, 0, 5, 5), t.zeros(2, 3, 3, 2),
                                                                        align_corners=False),
    "diff with more at its ends": lambda t: t.diff(t.tensor([1, 3, 2]), prepend=t.tensor([7]), append=t.tensor([4, 5])),
    "zero times what is not a number": lambda t: t.stack([
        t.tensor([[float("nan")], [INF]]) @ t.zeros(1, 1),
        t.nn.functional.linear(t.tensor([[float("nan")], [INF]]), t.zeros(1, 1)),
        t.mm(t.tensor([[float("nan")], [INF]]), t.zeros(1, 1)), (t.zeros(1, 1) @ t.tensor([[float("nan"), INF]])).t()]),
    "a storage that grows under a tensor": lambda t: t.ones(3).set_(
        t.arange(4.0).untyped_storage(), 2, (4,), (1,)).untyped_storage().nbytes(),
    "bytes of a buffer": lambda t: t.UntypedStorage.from_buffer(bytearray(b"abcd"), "big", dtype=t.int16).tolist(),
    "asarray of a capsule": lambda t: t.asarray(t.utils.dlpack.to_dlpack(t.arange(3))),
    **{f"cond of a singular matrix, {p}": lambda t, p=p: t.linalg.cond(t.zeros(2, 2), p)
       for p in (None, 1, -1, 2, INF, -INF, "fro")},
}


@pytest.mark.parametrize("name", VALUES)
def test_values(name):
    assert not isinstance(agree(VALUES[name]), Exception)


def test_complex_log1p_keeps_digits_near_zero():
    x = [1e-20 + 1e-18j, 1e-30j, -1e-12 + 0j, 0.3 - 0.2j, -1 + 1e-9j, 5 + 1j]
    ours, theirs = flambeau.tensor(x, dtype=flambeau.complex128).log1p(), oracle.tensor(x, dtype=oracle.complex128).log1p()
    for a, b in zip(ours.tolist(), theirs.tolist()):
        assert a.real == pytest.approx(b.real, rel=1e-14) and a.imag == pytest.approx(b.imag, rel=1e-14)


def shifted(call):
    """A call whose out= lies one element after its input."""
    def of(t):
        x = t.arange(8.0) / 8
        return call(t, x[:7], x[1:])
    return of


REFUSED = {
    "an order of dimensions that is not the only one": lambda t: t.empty(1, 2, 3, 4).dim_order(ambiguity_check=True),
    "an order checked by a word": lambda t: t.empty(2, 3).dim_order(ambiguity_check="ILLEGAL"),
    "products of a sparse matrix multiplied": lambda t: t.sparse.mm(t.eye(2).to_sparse_csr(), t.eye(2), "prod"),
    "pivots of lu_solve from zero": lambda t: t.linalg.lu_solve(t.eye(2), t.zeros(2, dtype=t.int32), t.eye(2)),
    "pivots of lu_unpack beyond the rows": lambda t: t.lu_unpack(t.eye(2), t.tensor([1, 9], dtype=t.int32)),
    "pivots of ldl_solve that are floats": lambda t: t.linalg.ldl_solve(t.eye(2), t.ones(2), t.eye(2)),
    "vecdot of two dtypes": lambda t: t.linalg.vecdot(t.ones(2), t.ones(2).double()),
    "chances that do not fit": lambda t: t.ones(2).bernoulli_(t.ones(3)),
    "a negative offset into a storage": lambda t: t.ones(3).set_(t.ones(4).untyped_storage(), -1, (2,), (1,)),
    "a gradient of a complex number": lambda t: t.func.grad(lambda x: (x * 1j).sum())(t.ones(2)),
    "a pullback from whole numbers": lambda t: t.func.vjp(lambda x: x.int(), t.ones(2)),
    "a complex Jacobian": lambda t: t.func.jacrev(lambda x: x * 1j)(t.ones(2)),
    "a complex Jacobian by columns": lambda t: t.func.jacfwd(lambda x: x)(t.ones(2) * 1j),
    "a tangent of another dtype": lambda t: t.func.linearize(lambda x: x ** 2, t.ones(2))[1](t.ones(2).double()),
    "addr of whole numbers by a float": lambda t: t.addr(t.ones(2, 2, dtype=t.int64), t.ones(2).long(), t.ones(2).long(),
                                                         alpha=0.5),
    "put_ from itself": lambda t: (x := t.zeros(4)).put_(t.tensor([0, 1]), x[:2]),
    "masked_fill_ by its own memory": lambda t: (m := t.tensor([True, False, True]))[1:].masked_fill_(m[:-1], False),
    "flip without dims": lambda t: t.zeros(2, 3).flip(),
    "nonzero into floats": lambda t: t.nonzero(t.ones(2), out=t.zeros(2, 1)),
    "float_power_ of a float": lambda t: t.ones(2).float_power_(2),
    "float_power into a float": lambda t: t.float_power(t.ones(2), 2, out=t.ones(2)),
    "deleting an item": lambda t: t.zeros(3).__delitem__(0),
    "diff with a part of another shape": lambda t: t.diff(t.ones(3, 3), prepend=t.ones(2, 3)),
    "elu_ with a negative slope": lambda t: t.nn.functional.elu_(t.ones(2, requires_grad=True) * -1, -0.5).sum().backward(),
    "leaky_relu_ with a negative slope": lambda t: t.nn.functional.leaky_relu_(
        t.ones(2, requires_grad=True) * -1, -0.5).sum().backward(),
    "addr of a matrix": lambda t: t.addr(t.zeros(2, 2), t.zeros(2, 1), t.zeros(2)),
    "addcmul": shifted(lambda t, x, out: t.addcmul(x, x, x, out=out)),
    "lerp": shifted(lambda t, x, out: t.lerp(x, x, 0.5, out=out)),
    "where": shifted(lambda t, x, out: t.where(x > 0, x, x, out=out)),
    "clamp": shifted(lambda t, x, out: t.clamp(x, 0.2, out=out)),
    "cumsum": shifted(lambda t, x, out: t.cumsum(x, 0, out=out)),
    "xlogy": shifted(lambda t, x, out: t.xlogy(x, x, out=out)),
    "cond into integers": lambda t: t.linalg.cond(t.eye(2), out=t.zeros((), dtype=t.int64)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    both_raise(REFUSED[name])


def test_words_of_linalg_out():
    with pytest.raises(RuntimeError, match="safely castable from Float dtype, but got result with dtype Long"):
        flambeau.linalg.pinv(flambeau.eye(2), out=flambeau.zeros(2, 2, dtype=flambeau.int64))
    with pytest.raises(RuntimeError, match="but got solution with dtype Long"):
        flambeau.linalg.lstsq(flambeau.eye(2), flambeau.ones(2, 1), out=(
            flambeau.zeros(2, 1, dtype=flambeau.int64), flambeau.zeros(0), flambeau.zeros(0), flambeau.zeros(0)))


class Both:
    """An operand that answers when the tensor does not."""

    def __radd__(self, other):
        return "mine"


@pytest.mark.parametrize("name", "add sub mul truediv floordiv mod pow and or xor lshift rshift".split())
def test_inplace_operators_leave_foreign_operands_alone(name):
    x = flambeau.ones(2, dtype=flambeau.int64)
    assert getattr(x, f"__i{name}__")(object()) is NotImplemented
    assert getattr(oracle.ones(2, dtype=oracle.int64), f"__i{name}__")(object()) is NotImplemented


def test_a_foreign_operand_answers_for_an_inplace_operator():
    x = flambeau.ones(2)
    x += Both()
    assert x == "mine"


def test_too_many_dimensions_are_refused():
    many, one = [1] * 65, flambeau.zeros(1)
    for call in (lambda: flambeau.zeros(many), lambda: one.view(many), lambda: one.expand(many),
                 lambda: flambeau.zeros(many[1:]).unsqueeze(0)):
        with pytest.raises(RuntimeError, match="only tensors with up to 64 dims are supported"):
            call()


@pytest.mark.parametrize("name", ["max", "min", "amax", "median"])
def test_a_gradient_that_is_not_a_number(name):
    def program(t):
        x = t.tensor([1.0, 3.0, 3.0, 0.0], requires_grad=True)
        (getattr(x, name)() * float("nan")).backward()
        return x.grad
    agree(program, graph=False)
