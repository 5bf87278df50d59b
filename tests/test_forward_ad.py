"""Forward mode: tangents through the operations of the table, against torch and against reverse mode."""

import pytest
import torch
from compare import Programs, agree

import flambeau as fl
from flambeau.autograd import forward_ad as fwd

programs = Programs()


def ad(mod):
    import importlib
    return importlib.import_module(f"{mod.__name__}.autograd.forward_ad")


def dual(mod, shape=(3,)):
    count = 1
    for n in shape:
        count *= n
    p = mod.arange(1.0, count + 1, dtype=mod.float64).reshape(shape) / count
    t = mod.arange(float(count), 0, -1, dtype=mod.float64).reshape(shape)
    return ad(mod).make_dual(p, t)


OPERATIONS = {
    "mul": lambda m, x: x * x,
    "exp": lambda m, x: x.exp(),
    "sum": lambda m, x: x.sum(),
    "slice": lambda m, x: x[1:] * 2,
    "cat": lambda m, x: m.cat([x, x * 2]),
    "chain": lambda m, x: x.sin().cos() / x,
    "matmul": lambda m, x: x.reshape(3, 1) @ x.reshape(1, 3),
    "softmax": lambda m, x: x.softmax(0),
    "in_place": lambda m, x: (x * 1).mul_(x),
    "complex": lambda m, x: (x * (1 + 2j)).abs(),
    "max": lambda m, x: x.max(),
    "max_dim": lambda m, x: x.max(0)[0],
    "rsub": lambda m, x: 3 - x,
    "add": lambda m, x: x + 1,
    "cumsum": lambda m, x: x.cumsum(0),
    "prod": lambda m, x: x.prod(),
    "pow": lambda m, x: x ** 3,
    "rpow": lambda m, x: 2 ** x,
    "div": lambda m, x: 1 / x,
    "mean": lambda m, x: x.mean(),
    "var": lambda m, x: x.var(),
    "norm": lambda m, x: x.norm(),
    "relu": lambda m, x: (x - 0.5).relu(),
    "where": lambda m, x: m.where(x > 0.5, x * 2, x),
    "stack": lambda m, x: m.stack([x, x]),
    "index": lambda m, x: x[m.tensor([0, 2, 0])],
    "sort": lambda m, x: x.sort(descending=True)[0],
    "t": lambda m, x: x.reshape(1, 3).t(),
    "logsumexp": lambda m, x: x.logsumexp(0),
    "clone": lambda m, x: x.clone(),
    "double": lambda m, x: x.float(),
    "split": lambda m, x: x.split(2)[1],
    "einsum": lambda m, x: m.einsum("i,j->ij", x, x),
    "outer": lambda m, x: m.outer(x, x),
    "fill": lambda m, x: x.clone().fill_(2.0),
    "zero": lambda m, x: x.clone().zero_(),
    "atan2": lambda m, x: m.atan2(x, x * 2),
    "addmm": lambda m, x: m.addmm(x, x.reshape(3, 1), x.reshape(1, 3)),
    "lerp": lambda m, x: m.lerp(x, x * 2, 0.3),
    "inv": lambda m, x: m.linalg.inv(m.diag(x) + 1),
    "det": lambda m, x: m.linalg.det(m.diag(x) + 1),
    "setitem": lambda m, x: _setitem(x),
    "view_write": lambda m, x: _view_write(x),
    "base_write": lambda m, x: _base_write(m, x),
}


def _setitem(x):
    y = x * 1
    y[0] = x[1] * x[2]
    return y


def _view_write(x):
    y = x * 1
    y[:2].mul_(3)
    return y


def _base_write(m, x):
    y = m.ones(3, dtype=m.float64)
    y[:2].mul_(x[:2])
    return y


@pytest.mark.parametrize("name", OPERATIONS)
def test_tangent_like_torch(name):
    def program(mod):
        with ad(mod).dual_level():
            primal, tangent = ad(mod).unpack_dual(OPERATIONS[name](mod, dual(mod)))
            return primal.detach().tolist(), None if tangent is None else tangent.tolist()

    agree(program)


@programs
def outside_a_level(mod):
    with ad(mod).dual_level():
        d = dual(mod)
    return ad(mod).unpack_dual(d).tangent


@programs
def no_level(mod):
    dual(mod)


@programs
def nested_levels(mod):
    try:
        with ad(mod).dual_level(), ad(mod).dual_level():
            pass
    finally:
        with ad(mod).dual_level():
            pass


@programs
def exit_without_level(mod):
    ad(mod).exit_dual_level()


@programs
def wrong_shape(mod):
    with ad(mod).dual_level():
        ad(mod).make_dual(mod.ones(3), mod.ones(2))


@programs
def integers(mod):
    with ad(mod).dual_level():
        ad(mod).make_dual(mod.ones(3).long(), mod.ones(3))


@programs
def repr_shows_the_tangent(mod):
    with ad(mod).dual_level():
        return repr(ad(mod).make_dual(mod.ones(2), mod.zeros(2)))


@programs
def forward_over_reverse(mod):
    x = mod.tensor([1.0, 2.0], requires_grad=True)
    with ad(mod).dual_level():
        d = ad(mod).make_dual(x, mod.tensor([1.0, -1.0]))
        tangent = ad(mod).unpack_dual((d ** 3).sum()).tangent
        return tangent.detach(), mod.autograd.grad(tangent, x)


@programs
def no_grad_keeps_tangents(mod):
    with ad(mod).dual_level(), mod.no_grad():
        return ad(mod).unpack_dual(dual(mod) * 2).tangent


@programs
def custom_function(mod):
    class Mul(mod.autograd.Function):
        @staticmethod
        def forward(ctx, a, b, k):
            ctx.save_for_forward(a, b)
            return a * b

        @staticmethod
        def jvp(ctx, ta, tb, k):
            assert k is None
            a, b = ctx.saved_tensors
            return ta * b + a * tb

    with ad(mod).dual_level():
        x = dual(mod)
        return [ad(mod).unpack_dual(o).tangent for o in (Mul.apply(x, x, 1), Mul.apply(x, mod.ones(3).double(), 1))]


@programs
def custom_function_without_jvp(mod):
    class Double(mod.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

    with ad(mod).dual_level():
        Double.apply(dual(mod))


@pytest.mark.parametrize("program", programs, ids=programs.ids)
def test_like_torch(program):
    agree(program)


@pytest.mark.parametrize("name", ["exp", "chain", "matmul", "softmax", "pow", "complex", "logsumexp"])
def test_agrees_with_the_transposed_reverse_mode(name):
    x = fl.tensor([0.3, 0.7, 1.1], dtype=fl.float64, requires_grad=True)
    v = fl.tensor([1.0, -2.0, 0.5], dtype=fl.float64)
    with fwd.dual_level():
        tangent = fwd.unpack_dual(OPERATIONS[name](fl, fwd.make_dual(x.detach(), v))).tangent
    rows = fl.autograd.functional.jacobian(lambda t: OPERATIONS[name](fl, t), x)
    expected = (rows.reshape(-1, 3) * v).sum(1)
    assert torch.allclose(torch.tensor(tangent.reshape(-1).tolist()), torch.tensor(expected.tolist()))


def test_an_error_leaves_the_level():
    with pytest.raises(ZeroDivisionError):
        with fwd.dual_level():
            1 / 0
    assert fwd.unpack_dual(fl.ones(1)).tangent is None
    with fwd.dual_level():
        pass
