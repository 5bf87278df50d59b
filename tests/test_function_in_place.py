"""Custom functions that return, view or change their inputs, compared with torch."""


import pytest
from compare import Programs, agree, leaf

programs = Programs()


@programs
def returns_input_as_it_is(mod):
    class Same(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad * 7

    x = leaf(mod)
    y = Same.apply(x)
    y.sum().backward()
    with mod.no_grad():
        z = Same.apply(x)
    return y is x, y._is_view(), y.data_ptr() == x.data_ptr(), x.grad, z is x, z.requires_grad


@programs
def changing_a_returned_input_fails(mod):
    class Same(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad

    Same.apply(leaf(mod) * 1).add_(1)


@programs
def changing_a_returned_view_fails(mod):
    class First(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x[:1]

        @staticmethod
        def backward(ctx, grad):
            return mod.cat([grad, grad])

    First.apply(leaf(mod) * 1).mul_(2)


def dirty(mod):
    class Double(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            x.mul_(2)
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    return Double


@programs
def in_place(mod):
    x = leaf(mod)
    y = x * 1
    before = y._version
    z = dirty(mod).apply(y)
    (z * z).sum().backward()
    return z is y, y, x.grad, y._version > before


@programs
def in_place_on_a_view(mod):
    x = leaf(mod)
    y = x * 1
    dirty(mod).apply(y[:1])
    y.sum().backward()
    return y, x.grad


@programs
def in_place_on_a_leaf(mod):
    dirty(mod).apply(leaf(mod))


@programs
def in_place_without_grad(mod):
    x = mod.ones(2)
    return dirty(mod).apply(x) is x, x


@programs
def dirty_but_not_returned(mod):
    class Forgets(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.add_(1).clone()

        @staticmethod
        def backward(ctx, grad):
            return grad

    Forgets.apply(leaf(mod) * 1)


@programs
def in_place_on_a_view_with_two_outputs(mod):
    class Both(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2), x + 1

        @staticmethod
        def backward(ctx, a, b):
            return a + b

    x = leaf(mod)
    a, b = Both.apply(x * 1)
    (a * b).sum().backward()
    seen = x.grad.clone()
    try:
        Both.apply((x * 1)[:])
    except RuntimeError as error:
        return seen, "view of another Tensor" in str(error)


@programs
def dirty_that_is_no_input(mod):
    class Odd(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 3
            ctx.mark_dirty(y)
            return y

        @staticmethod
        def backward(ctx, g):
            return g * 3

    x = leaf(mod)
    Odd.apply(x).sum().backward()
    return x.grad


@pytest.mark.parametrize("program", programs, ids=programs.ids)
def test_like_torch(program):
    agree(program)
