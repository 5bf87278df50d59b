"""torch.func: what its checks say, how tensors print inside transformations, and what draws do to tangents."""

from __future__ import annotations

import pytest
import torch

import flambeau

MODULES = (flambeau, torch)


def outcome(program, m, words=60):
    """The values that a program gives, or the kind and the first words of its error."""
    try:
        return _plain(m, program(m))
    except Exception as error:
        return type(error).__name__, str(error)[:words]


def _plain(m, value):
    if isinstance(value, m.Tensor):
        return [round(v, 4) for v in value.detach().reshape(-1).tolist()], list(value.shape)
    if isinstance(value, (list, tuple)):
        return [_plain(m, v) for v in value]
    return value


def x(m):
    return m.arange(6.0).view(3, 2)


CHECKS = {
    "out_dims out of range": lambda m: m.vmap(lambda v: v, out_dims=5)(x(m)),
    "out_dims of another structure": lambda m: m.vmap(lambda v: (v, v), out_dims=(0,))(x(m)),
    "out_dims of a string": lambda m: m.vmap(lambda v: v, out_dims="a")(x(m)),
    "a result that is no tensor": lambda m: m.vmap(lambda v: 1)(x(m)),
    "in_dims of another structure": lambda m: m.vmap(lambda v: v, in_dims=(0, 0))(x(m)),
    "no inputs": lambda m: m.vmap(lambda: m.ones(2))(),
    "argnums twice": lambda m: m.func.grad(lambda v: v.sum(), argnums=(0, 0))(x(m)),
    "argnums of a string": lambda m: m.func.grad(lambda v: v.sum(), argnums="a")(x(m)),
    "no argnums": lambda m: m.func.grad(lambda v: v.sum(), argnums=())(x(m)),
    "nested argnums": lambda m: m.func.grad(lambda v, w: (v * w).sum(), argnums=((0,), 1))(x(m), x(m)),
    "grad of integers": lambda m: m.func.grad(lambda v: v.sum())(m.arange(3)),
    "grad of a number": lambda m: m.func.grad(lambda v: v.sum())(2.0),
    "aux that is no tensor": lambda m: m.func.grad_and_value(lambda v: (v.sum(), 1), has_aux=True)(x(m)),
    "aux": lambda m: m.func.grad(lambda v: (v.sum(), v), has_aux=True)(x(m)),
    "jvp of another structure": lambda m: m.func.jvp(lambda v: v * 2, (x(m),), (x(m), x(m))),
    "jvp of another shape": lambda m: m.func.jvp(lambda v: v * 2, (x(m),), (x(m)[0],)),
    "jvp of nothing": lambda m: m.func.jvp(lambda: 1, (), ()),
    "jvp of a number": lambda m: m.func.jvp(lambda v: v, (2.0,), (1.0,)),
    "jvp to a number": lambda m: m.func.jvp(lambda v: 1, (x(m),), (x(m),)),
    "vjp to a number": lambda m: m.func.vjp(lambda v: 1, x(m)),
    "jacrev to a number": lambda m: m.func.jacrev(lambda v: 1)(x(m)),
    "backward inside": lambda m: m.func.grad(lambda v: (v.sum().backward(), v.sum())[1])(x(m)),
    "the same draws of different distributions": lambda m: m.vmap(lambda v: m.bernoulli(v / 10), randomness="same")(x(m)),
}


@pytest.mark.parametrize("name", CHECKS)
def test_checks(name):
    words = 40 if name == "grad of integers" else 60
    ours, theirs = [outcome(CHECKS[name], m, words) for m in MODULES]
    assert ours == theirs


def _hooks(m):
    return m.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)


def _hooks_inside(m):
    def f(v):
        with _hooks(m):
            return (v ** 2).sum()
    return m.func.grad(f)(x(m))


def _hooks_outside(m):
    with _hooks(m):
        return m.func.grad(lambda v: (v ** 2).sum())(x(m))


@pytest.mark.parametrize("program", [_hooks_inside, _hooks_outside], ids=["inside", "outside"])
def test_saved_tensor_hooks_are_refused(program):
    assert outcome(program, flambeau) == outcome(program, torch)
    with _hooks(flambeau):  # and only there
        pass


def printed(m, transform):
    seen = []

    def look(v):
        seen.append(repr(v))
        return v

    transform(m, look)
    return seen


@pytest.mark.parametrize("transform", [
    lambda m, look: m.vmap(look)(m.ones(2, 3)), lambda m, look: m.func.grad(lambda v: look(v).sum())(m.ones(2)),
    lambda m, look: m.vmap(m.vmap(look))(m.ones(2, 3)), lambda m, look: m.func.jvp(look, (m.ones(2),), (m.ones(2),)),
    lambda m, look: m.vmap(m.func.grad(lambda v: look(v * 2).sum()))(m.ones(2, 2)),
    lambda m, look: m.func.grad(lambda v: m.vmap(look)(v).sum())(m.ones(2, 2))],
    ids=["vmap", "grad", "vmap of vmap", "jvp", "vmap of grad", "grad of vmap"])
def test_printing(transform):
    assert printed(flambeau, transform) == printed(torch, transform)


@pytest.mark.parametrize("name, args", [("normal_", ()), ("uniform_", ()), ("exponential_", ()), ("bernoulli_", (0.5,)),
                                        ("random_", ()), ("cauchy_", ()), ("log_normal_", ()), ("geometric_", (0.5,)),
                                        ("zero_", ())])
def test_draws_have_no_tangent(name, args):
    def tangent(m):
        ad = m.autograd.forward_ad
        with ad.dual_level():
            made = ad.make_dual(m.ones(3), m.full((3,), 2.0)) * 1
            getattr(made, name)(*args)
            return ad.unpack_dual(made).tangent

    assert outcome(tangent, flambeau) == outcome(tangent, torch) == ([0.0, 0.0, 0.0], [3])


def functions(m):
    class Square(m.autograd.Function):
        @staticmethod
        def forward(v):
            return v * v

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

    class Generated(Square):
        generate_vmap_rule = True

    class OneResult(Square):
        @staticmethod
        def vmap(info, in_dims, v):
            return Generated.apply(v)

    class WrongDims(Square):
        @staticmethod
        def vmap(info, in_dims, v):
            return Generated.apply(v), (0, 0)

    class WithoutSetup(m.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            ctx.save_for_backward(v)
            return v * v

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

    return {c.__name__: c for c in (Square, Generated, OneResult, WrongDims, WithoutSetup)}


@pytest.mark.parametrize("name", ["Square", "Generated", "OneResult", "WrongDims", "WithoutSetup"])
@pytest.mark.parametrize("transform", ["grad", "vmap", "vmap of grad", "grad of vmap"])
def test_custom_functions(name, transform):
    def program(m):
        f = functions(m)[name].apply
        return {"grad": lambda: m.func.grad(lambda v: f(v).sum()), "vmap": lambda: m.vmap(f),
                "vmap of grad": lambda: m.vmap(m.func.grad(lambda v: f(v).sum())),
                "grad of vmap": lambda: m.func.grad(lambda v: m.vmap(f)(v).sum())}[transform]()(x(m))

    assert outcome(program, flambeau) == outcome(program, torch)


PATTERNS = [
    ("a b c -> c (a b)", {}), ("a b -> b a", {}), ("a b c -> a b", {}), ("a a c -> a c", {}),
    ("(a d) b c -> d b c a", {"d": 2}), ("a b c -> (a b c", {}), ("a b c -> ((a b) c)", {}), ("a b c -> a) b c", {}),
    ("a b c", {}), ("a ... -> ... a 1", {}), ("... a -> (...) a", {}), ("... a -> (a ...)", {}),
    ("a b c -> a b c", {"q": 3}), ("a b c -> a (b c) ()", {}), ("a (b 1) c -> a b c", {}), ("a b c -> a b _c", {}),
    ("a b 4 -> a b", {}), ("a b c ... -> ... c b a", {}), ("a b c d ... -> ... c b a d", {}), ("a . b c-> a b c", {}),
    ("a (b1 b2) (c1 c2) -> c2 (b1 a) b2 c1", {"b1": 3, "c2": 2}), ("a b c -> ... c b a", {}),
    ("(a ...) c -> a ... c", {}), ("a b c->c b a", {})]


@pytest.mark.parametrize("pattern, lengths", PATTERNS, ids=[p for p, _ in PATTERNS])
def test_rearrange(pattern, lengths):
    def program(m):
        return m.func.rearrange(m.arange(24.0).reshape(2, 3, 4), pattern, **lengths)

    assert outcome(program, flambeau, 0) == outcome(program, torch, 0)


def test_rearrange_of_lists_and_sizes_that_do_not_fit():
    made = flambeau.func.rearrange([flambeau.ones(2, 3), flambeau.zeros(2, 3)], "b h w -> h (b w)")
    assert made.tolist() == [[1.0] * 3 + [0.0] * 3] * 2
    x = flambeau.zeros(2, 3, 4, requires_grad=True)
    flambeau.func.rearrange(x, "a b c -> (c a) b").sum().backward()
    assert x.grad.sum() == 24
    for pattern, lengths, said in (("a () c -> a c", {}, "evenly fit"), ("(a d) b c -> a d b c", {"d": 3}, "evenly fit"),
                                   ("(a d) b c -> a d b c", {}, "at once")):  # PyTorch drops what is in the first
        with pytest.raises(ValueError, match=said):
            flambeau.func.rearrange(x, pattern, **lengths)
