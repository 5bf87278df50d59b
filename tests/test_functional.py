"""autograd.functional: compared with torch."""

import importlib

import pytest
from compare import Programs, agree

programs = Programs()


def of(mod):
    return importlib.import_module(f"{mod.__name__}.autograd.functional")


def rows(t):
    return t.exp().sum(1)


def two(x, y):
    return (x * y).sum(), x + y


def scalar(x, y):
    return ((x * x * y) * y).sum()


def cube(x):
    return (x ** 3).sum()


def linear(x):
    return (x * 2).sum()


# name -> (F, x: 2x2, y: 2, m: module) -> result
CASES = {
    "vjp": lambda F, x, y, m: F.vjp(rows, x, y), "vjp_two": lambda F, x, y, m: F.vjp(two, (x, y), (m.tensor(2.0), x)),
    "vjp_scalar": lambda F, x, y, m: F.vjp(cube, x), "vjp_no_v": lambda F, x, y, m: F.vjp(rows, x),
    "vjp_bad_v": lambda F, x, y, m: F.vjp(rows, x, x), "vjp_output": lambda F, x, y, m: F.vjp(lambda a: 3, x),
    "vjp_input": lambda F, x, y, m: F.vjp(rows, [x], y), "vjp_v_count": lambda F, x, y, m: F.vjp(two, (x, y), (x,)),
    "jvp": lambda F, x, y, m: F.jvp(rows, x, x), "jvp_two": lambda F, x, y, m: F.jvp(two, (x, y), (x, y)),
    "jvp_no_v": lambda F, x, y, m: F.jvp(rows, x), "jvp_one": lambda F, x, y, m: F.jvp(cube, m.tensor([2.0])),
    "jacobian": lambda F, x, y, m: F.jacobian(rows, x), "jacobian_two": lambda F, x, y, m: F.jacobian(two, (x, y)),
    "jacobian_vectorized": lambda F, x, y, m: F.jacobian(rows, x, vectorize=True),
    "jacobian_forward": lambda F, x, y, m: F.jacobian(rows, x, vectorize=True, strategy="forward-mode"),
    "jacobian_forward_two": lambda F, x, y, m: tuple(map(tuple, F.jacobian(  # (PyTorch's are lists)
        two, (x, y), vectorize=True, strategy="forward-mode"))),
    "jacobian_forward_loop": lambda F, x, y, m: F.jacobian(rows, x, strategy="forward-mode"),
    "jacobian_forward_graph": lambda F, x, y, m: F.jacobian(rows, x, True, vectorize=True, strategy="forward-mode"),
    "jacobian_strict_vectorized": lambda F, x, y, m: F.jacobian(rows, x, strict=True, vectorize=True),
    "jacobian_strategy": lambda F, x, y, m: F.jacobian(rows, x, strategy="sideways"),
    "jacobian_0d": lambda F, x, y, m: F.jacobian(lambda a: a * a, m.tensor(3.0)),
    "jacobian_unused": lambda F, x, y, m: F.jacobian(lambda a, b: a * 2, (x, y)),
    "jacobian_strict": lambda F, x, y, m: F.jacobian(lambda a, b: a * 2, (x, y), strict=True),
    "hessian": lambda F, x, y, m: F.hessian(cube, y), "hessian_two": lambda F, x, y, m: F.hessian(scalar, (x, y)),
    "hessian_forward": lambda F, x, y, m: F.hessian(cube, y, vectorize=True,
                                                    outer_jacobian_strategy="forward-mode").detach(),
    "hessian_not_scalar": lambda F, x, y, m: F.hessian(rows, x), "hessian_linear": lambda F, x, y, m: F.hessian(linear,
                                                                                                                x),
    "hessian_strict": lambda F, x, y, m: F.hessian(linear, x, strict=True),
    "vhp": lambda F, x, y, m: F.vhp(scalar, (x, y), (x, y)), "hvp": lambda F, x, y, m: F.hvp(scalar, (x, y), (x, y)),
    "vhp_one": lambda F, x, y, m: F.vhp(cube, m.tensor([2.0])), "hvp_one": lambda F, x, y, m: F.hvp(cube,
                                                                                                    m.tensor([2.0])),
    "hvp_linear": lambda F, x, y, m: F.hvp(linear, x, x), "vhp_linear": lambda F, x, y, m: F.vhp(linear, x, x),
    "vhp_strict": lambda F, x, y, m: F.vhp(linear, x, x, strict=True),
    "hvp_strict": lambda F, x, y, m: F.hvp(linear, x, x, strict=True),
    "vjp_strict": lambda F, x, y, m: F.vjp(lambda a, b: (a * 2).sum(), (x, y), strict=True),
    "vjp_strict_constant": lambda F, x, y, m: F.vjp(lambda a: m.ones(1).sum(), x, strict=True),
    "jvp_strict": lambda F, x, y, m: F.jvp(lambda a, b: a * 2, (x, y), (x, y), strict=True),
    "vhp_bad_v": lambda F, x, y, m: F.vhp(cube, x, y), "hvp_not_scalar": lambda F, x, y, m: F.hvp(rows, x, x),
}


@pytest.mark.parametrize("name", CASES)
def test_like_torch(name):
    def program(mod):
        x, y = mod.tensor([[1.0, 2.0], [3.0, 4.0]]), mod.tensor([1.0, 2.0])
        result = CASES[name](of(mod), x, y, mod)
        return [list(r) if isinstance(r, list) else r for r in result] if isinstance(result, (list, tuple)) else result

    agree(program)


GRAPHS = {
    "vjp": lambda F, x, m: F.vjp(rows, x, m.ones(2), create_graph=True)[1],
    "jvp": lambda F, x, m: F.jvp(rows, x, m.ones(2, 2), create_graph=True)[1],
    "jacobian": lambda F, x, m: F.jacobian(rows, x, create_graph=True),
    "hessian": lambda F, x, m: F.hessian(lambda a: (a ** 4).sum(), x, create_graph=True),
    "vhp": lambda F, x, m: F.vhp(lambda a: (a ** 4).sum(), x, m.ones(2, 2), create_graph=True)[1],
    "hvp": lambda F, x, m: F.hvp(lambda a: (a ** 4).sum(), x, m.ones(2, 2), create_graph=True)[1],
}


@pytest.mark.parametrize("name", GRAPHS)
def test_create_graph(name):
    def program(mod):
        x = mod.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        result = GRAPHS[name](of(mod), x, mod)
        return result.detach(), mod.autograd.grad(result.sum(), x)

    agree(program)
