"""What custom functions save, and their place in the graph, compared with torch."""


import pytest
from compare import Programs, agree, leaf

programs = Programs()


@programs
def saves_none(mod):
    class Saves(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, None)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            x, nothing = ctx.saved_tensors
            assert nothing is None
            return grad * x

    x = leaf(mod)
    Saves.apply(x).sum().backward()
    return x.grad


def identity(mod, backward, save=()):
    class Identity(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x, other=None):
            ctx.save_for_backward(*(save or (x,)))
            return x * 1

    Identity.backward = staticmethod(backward)
    return Identity


@programs
def saves_a_number(mod):
    identity(mod, lambda ctx, g: g, save=(3,)).apply(leaf(mod))


@programs
def saved_then_changed(mod):
    x = leaf(mod) * 1
    y = identity(mod, lambda ctx, g: g * ctx.saved_tensors[0]).apply(x)
    x.add_(1)
    y.sum().backward()


@programs
def backward_twice(mod):
    y = identity(mod, lambda ctx, g: g * ctx.saved_tensors[0]).apply(leaf(mod)).sum()
    y.backward()
    y.backward()


@programs
def backward_twice_retained(mod):
    x = leaf(mod)
    y = identity(mod, lambda ctx, g: g * ctx.saved_tensors[0]).apply(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    return x.grad


@programs
def saved_tensors_after_release(mod):
    y = identity(mod, lambda ctx, g: g).apply(leaf(mod))
    y.sum().backward()
    return y.grad_fn.saved_tensors


@programs
def saved_tensors_of_grad_fn(mod):
    y = identity(mod, lambda ctx, g: g).apply(leaf(mod))
    return y.grad_fn.saved_tensors, y.grad_fn.saved_variables, len(y.grad_fn._raw_saved_tensors)


for number, returned in enumerate([
        lambda g: (g, None), lambda g: (g,), lambda g: (g, g), lambda g: (g, None, None), lambda g: (g, None, g),
        lambda g: (), lambda g: 3.0, lambda g: (None, None), lambda g: [g, None], lambda g: (g[:1], None),
        lambda g: (g.double(), None)]):
    def returns(mod, returned=returned):
        x = leaf(mod)
        identity(mod, lambda ctx, g: returned(g)).apply(x, 2.0).sum().backward()
        return x.grad

    returns.__name__ = f"backward_returns_{number}"
    programs(returns)


@programs
def no_backward(mod):
    class Half(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x / 2

    Half.apply(leaf(mod)).sum().backward()


@programs
def vjp_instead_of_backward(mod):
    class Half(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x / 2

        @staticmethod
        def vjp(ctx, grad):
            return grad / 2

    x = leaf(mod)
    Half.apply(x).sum().backward()
    return x.grad


@programs
def once_differentiable(mod):
    class Once(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @mod.autograd.function.once_differentiable
        def backward(ctx, grad):
            return grad * 2 * ctx.saved_tensors[0]

    x = leaf(mod)
    g, = mod.autograd.grad((Once.apply(x) * x).sum(), x, create_graph=True)
    g.sum().backward()


@programs
def once_differentiable_once(mod):
    class Once(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @mod.autograd.function.once_differentiable
        def backward(ctx, grad):
            return grad * 2

    x = leaf(mod)
    Once.apply(x).sum().backward()
    return x.grad


@programs
def instances_are_refused(mod):
    class Old(mod.autograd.Function):
        def forward(self, x):
            return x

    Old()(leaf(mod))


@programs
def metadata_and_name(mod):
    y = identity(mod, lambda ctx, g: g).apply(leaf(mod))
    y.grad_fn.metadata["note"] = 1
    return y.grad_fn.metadata, y.grad_fn.name(), repr(y), isinstance(y.grad_fn, mod.autograd.graph.Node)


@programs
def grad_fn_outlives_its_output(mod):
    x = leaf(mod)
    fn = identity(mod, lambda ctx, g: g * 5).apply(x).grad_fn
    return fn.next_functions, fn.saved_tensors, fn.name()


@programs
def hooks_on_a_function_node(mod):
    seen = []
    x = leaf(mod)
    y = identity(mod, lambda ctx, g: (g * 5, None)).apply(x, 1)
    y.grad_fn.register_prehook(lambda grads: (grads[0] * 2,))
    y.grad_fn.register_hook(lambda ins, outs: seen.append((ins, outs)))
    y.sum().backward()
    return x.grad, seen


@pytest.mark.parametrize("program", programs, ids=programs.ids)
def test_like_torch(program):
    agree(program)
