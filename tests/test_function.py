"""Custom autograd.Function: each program below runs with torch and with flambeau and must behave the same."""

import gc
import weakref

import pytest
from compare import Programs, agree, leaf
from test_function_graph import identity

import flambeau

programs = Programs()


@programs
def context_style(mod):
    class Exp(mod.autograd.Function):
        @staticmethod
        def forward(ctx, i):
            result = i.exp()
            ctx.save_for_backward(result)
            return result

        @staticmethod
        def backward(ctx, grad_output):
            result, = ctx.saved_tensors
            return grad_output * result

    x = leaf(mod)
    y = Exp.apply(x)
    y.sum().backward()
    return y, x.grad, y.grad_fn.next_functions[0][0], type(y.grad_fn).__name__


@programs
def setup_context_style(mod):
    class Scale(mod.autograd.Function):
        @staticmethod
        def forward(x, k=3.0):
            return x * k

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.k = inputs[1]

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.k, None

    x = leaf(mod)
    Scale.apply(x).sum().backward()
    Scale.apply(x, k=5.0).sum().backward()
    return x.grad


@programs
def double_backward(mod):
    class Cube(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x ** 3

        @staticmethod
        def backward(ctx, grad):
            x, = ctx.saved_tensors
            return grad * 3 * x * x

    x = leaf(mod)
    g, = mod.autograd.grad(Cube.apply(x).sum(), x, create_graph=True)
    h, = mod.autograd.grad(g.sum(), x, create_graph=True)
    return g, mod.autograd.grad(h.sum(), x)


@programs
def double_backward_through_saved_output(mod):
    class Exp(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0]

    x = leaf(mod)
    g, = mod.autograd.grad(Exp.apply(x).sum(), x, create_graph=True)
    return mod.autograd.grad(g.sum(), x)


@programs
def user_attributes_do_not_collide(mod):
    class Take(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.shape, ctx.dtype, ctx.next, ctx.saved, ctx.outputs, ctx.hooks = x.shape, x.dtype, 1, 2, 3, 4
            return x.sum()

        @staticmethod
        def backward(ctx, grad):
            assert (ctx.next, ctx.saved, ctx.outputs, ctx.hooks) == (1, 2, 3, 4)
            return grad.expand(ctx.shape).to(ctx.dtype)

    x = leaf(mod)
    (Take.apply(x) * 2).backward()
    return x.grad, hasattr(Take.apply(x).grad_fn, "nothing_of_this_name")


@programs
def several_outputs(mod):
    class Two(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y, x + y

        @staticmethod
        def backward(ctx, a, b):
            return a * 2 + b, a + b * 3

    x, y = leaf(mod), leaf(mod)
    p, q = Two.apply(x, y)
    q.sum().backward()
    return x.grad, y.grad, p.grad_fn.next_functions, p.output_nr, q.output_nr


@programs
def materialized_grads(mod):
    class Two(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1, x * 2

        @staticmethod
        def backward(ctx, a, b):
            seen.append((a, b))
            return b

    seen = []
    x = leaf(mod)
    Two.apply(x)[1].sum().backward()
    return seen


@programs
def unmaterialized_grads(mod):
    class Two(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 1, x * 2

        @staticmethod
        def backward(ctx, a, b):
            seen.append((a, b))
            return b

    seen = []
    x = leaf(mod)
    Two.apply(x)[1].sum().backward()
    return seen


@programs
def non_differentiable(mod):
    class Sort(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            integers, marked = x.long(), x * 3
            ctx.mark_non_differentiable(marked)
            return x * 2, integers, marked

        @staticmethod
        def backward(ctx, *grads):
            seen.extend(grads)
            return grads[0]

    seen = []
    x = leaf(mod)
    outs = Sort.apply(x)
    outs[0].sum().backward()
    return outs, seen, x.grad


@programs
def non_tensor_outputs(mod):
    class Mixed(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, 5, None, "text"

        @staticmethod
        def backward(ctx, *grads):
            seen.append([type(g).__name__ for g in grads])
            return grads[0]

    seen = []
    x = leaf(mod)
    outs = Mixed.apply(x)
    outs[0].sum().backward()
    return outs, seen


@programs
def non_tensor_inputs(mod):
    class Power(mod.autograd.Function):
        @staticmethod
        def forward(ctx, base, x, flag=None):
            ctx.base = base
            seen.append(ctx.needs_input_grad)
            return x * base

        @staticmethod
        def backward(ctx, grad):
            return None, grad * ctx.base, None

    seen = []
    x = leaf(mod)
    y = Power.apply(3, x, "flag")
    y.sum().backward()
    return x.grad, y.grad_fn.next_functions, seen


@programs
def needs_input_grad(mod):
    class Both(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            seen.append((ctx.needs_input_grad, mod.is_grad_enabled()))
            return x * y

        @staticmethod
        def backward(ctx, grad):
            seen.append((ctx.needs_input_grad, mod.is_grad_enabled()))
            return grad, grad

    seen = []
    x = leaf(mod)
    Both.apply(x, x.detach()).sum().backward()
    with mod.no_grad():
        Both.apply(x, x.detach())
    return seen


@programs
def nested_apply(mod):
    class Inner(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    class Outer(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return Inner.apply(x) * 3

        @staticmethod
        def backward(ctx, g):
            return Inner.apply(g) * 3

    x = leaf(mod)
    y = Outer.apply(x)
    y.sum().backward()
    return y, x.grad


@programs
def backward_inside_backward(mod):
    class Again(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with mod.enable_grad():
                ctx.x = x.detach().requires_grad_()
                ctx.y = ctx.x ** 2
            return ctx.y.detach()

        @staticmethod
        def backward(ctx, grad):
            with mod.enable_grad():
                ctx.y.backward(grad)
            return ctx.x.grad

    x = leaf(mod)
    Again.apply(x * 1).sum().backward()
    return x.grad


@programs
def error_in_forward_leaves_modes_alone(mod):
    class Fails(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            raise KeyError("here")

    try:
        Fails.apply(leaf(mod))
    except KeyError:
        pass
    return mod.is_grad_enabled()


@programs
def complex_gradients(mod):
    x = mod.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    y = identity(mod, lambda ctx, g: (g * ctx.saved_tensors[0].conj(), None)).apply(x, 1)
    y.abs().sum().backward()
    return x.grad


@programs
def straight_through(mod):
    class Round(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, g):
            return g

    x = leaf(mod, 0.4, 1.6)
    (Round.apply(x) * x).sum().backward()
    return x.grad


@programs
def undefined_gradients_reach_a_function_as_zeros(mod):
    seen = []
    x = leaf(mod)
    nothing = identity(mod, lambda ctx, g: None)
    y = identity(mod, lambda ctx, g: seen.append(g) or (g, None)).apply(x, 1)
    nothing.apply(y).sum().backward()
    return seen, x.grad


@programs
def undefined_gradients_stop_at_operations(mod):
    x = leaf(mod)
    identity(mod, lambda ctx, g: None).apply(x ** 2).sum().backward()
    return x.grad, mod.autograd.grad(identity(mod, lambda ctx, g: None).apply(x).sum(), x, allow_unused=True)


@programs
def the_same_output_twice(mod):
    class Twice(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            return y, y

        @staticmethod
        def backward(ctx, a, b):
            return a * 2 + b * 2

    x = leaf(mod)
    a, b = Twice.apply(x)
    (a + b).sum().backward()
    return a is b, x.grad


@programs
def stashed_ctx(mod):
    stash = []

    class Id(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx, g):
            stash.append(ctx)
            return ctx.saved_tensors

    loss = Id.apply(leaf(mod)).sum()
    loss.backward(retain_graph=True)
    del loss
    stash[0].saved_tensors


@programs
def output_number_of_a_saved_tensor(mod):
    class Split(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x[:1], x[1:]

        @staticmethod
        def backward(ctx, *grads):
            return mod.cat(grads)

    seen = []
    b = Split.apply(leaf(mod))[1]
    identity(mod, lambda ctx, g: (seen.append(ctx.saved_tensors[0].output_nr), None)).apply(b, 1).sum().backward()
    return b.output_nr, seen


@programs
def graph_of_once_differentiable(mod):
    def drawn(fn):
        return "None" if fn is None else f"{type(fn).__name__}({', '.join(drawn(n) for n, _ in fn.next_functions)})"

    class Once(mod.autograd.Function):
        @staticmethod
        def forward(ctx, a, k, b):
            return a + k * b

        @staticmethod
        @mod.autograd.function.once_differentiable
        def backward(ctx, g):
            return g, None, g * 2

    x, y = leaf(mod), leaf(mod)
    Once.apply(x, 2, y).sum().backward(mod.ones((), requires_grad=True), create_graph=True)
    return drawn(x.grad.grad_fn), drawn(y.grad.grad_fn)


@pytest.mark.parametrize("program", programs, ids=programs.ids)
def test_like_torch(program):
    agree(program)


def test_nothing_keeps_the_graph_alive():
    class Both(flambeau.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(x, y)
            ctx.save_for_forward(x, y)
            return y

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[1]

    gc.collect()
    gc.disable()
    try:
        x = flambeau.ones(3, requires_grad=True) * 1
        y = Both.apply(x)
        held = [weakref.ref(y), weakref.ref(y.grad_fn), weakref.ref(x), weakref.ref(y._node)]
        y.sum().backward(retain_graph=True)
        del x, y
        assert [r() for r in held] == [None] * 4
    finally:
        gc.enable()
