"""The engine: depth, order, threads, re-entrance, errors, and a graph that is freed by reference counting alone."""

import gc
import threading
import weakref

import pytest
from compare import Programs, agree

import flambeau as fl

programs = Programs()


@programs
def order_is_latest_first(mod):
    seen = []
    x = mod.ones(2, requires_grad=True)
    a = x * 2
    b = x * 3
    c = a * 4
    d = b + c
    for name, t in (("a", a), ("b", b), ("c", c), ("d", d), ("x", x)):
        t.register_hook(lambda g, name=name: seen.append(name))
    d.sum().backward()
    return seen


@programs
def leaf_accumulates_as_soon_as_complete(mod):
    seen = []
    early, late = mod.ones(2, requires_grad=True), mod.ones(2, requires_grad=True)
    for name, t in (("early", early), ("late", late)):
        t.register_post_accumulate_grad_hook(lambda t, name=name: seen.append(name))
    h = early * 2
    h.register_hook(lambda g: seen.append("h"))
    (h * late).sum().backward()
    return seen


@programs
def error_leaves_a_usable_state(mod):
    x = mod.ones(2, requires_grad=True)
    y = x * x
    handle = y.register_hook(lambda g: 1 / 0)
    try:
        y.sum().backward(retain_graph=True)
    except ZeroDivisionError:
        pass
    handle.remove()
    y.sum().backward()
    return x.grad, mod.is_grad_enabled(), (x * 2).requires_grad


@programs
def deep_reentrance(mod):
    class Deeper(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x, depth):
            ctx.depth = depth
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            if ctx.depth:
                with mod.enable_grad():
                    inner = x.detach().requires_grad_()
                    Deeper.apply(inner, ctx.depth - 1).sum().backward()
                return g + inner.grad, None
            return g * 2, None

    x = mod.ones(2, requires_grad=True)
    Deeper.apply(x, 20).sum().backward()
    return x.grad


@programs
def very_deep_reentrance(mod):
    class Deeper(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with mod.enable_grad():
                ctx.x = x.detach().requires_grad_() - 1
            return ctx.x.detach()

        @staticmethod
        def backward(ctx, g):
            if ctx.x >= 0:
                with mod.enable_grad():
                    Deeper.apply(ctx.x).sum().backward()
            return g

    x = mod.tensor(700.0, requires_grad=True)
    Deeper.apply(x).sum().backward()
    return x.grad


@programs
def error_deep_inside(mod):
    class Deeper(mod.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with mod.enable_grad():
                ctx.x = x.detach().requires_grad_() - 1
            return ctx.x.detach()

        @staticmethod
        def backward(ctx, g):
            if ctx.x < 0:
                raise RuntimeError("bottom")
            with mod.enable_grad():
                Deeper.apply(ctx.x).sum().backward()
            return g

    Deeper.apply(mod.tensor(100.0, requires_grad=True)).sum().backward()


@programs
def queued_callback(mod):
    seen = []
    x = mod.ones(2, requires_grad=True)
    engine = mod.autograd.Variable._execution_engine
    x.register_hook(lambda g: engine.queue_callback(lambda: seen.append("end")) or seen.append("hook"))
    (x * 2).sum().backward()
    return seen


@programs
def callback_outside_backward(mod):
    mod.autograd.Variable._execution_engine.queue_callback(print)


@pytest.mark.parametrize("program", programs, ids=programs.ids)
def test_like_torch(program):
    agree(program)


def test_a_chain_of_a_million_nodes():
    x = fl.ones(1, requires_grad=True)
    y = x
    for _ in range(1_000_000):
        y = y + 1
    y.backward()
    assert x.grad.tolist() == [1.0]
    del y  # freeing the chain must not recurse either


def test_a_deep_chain_of_custom_functions_and_views():
    class Same(fl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g

    x = fl.ones(2, requires_grad=True)
    y = x
    for _ in range(20_000):
        y = Same.apply(y).view(2)
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]
    del y


def test_diamonds_are_linear_not_exponential():
    x = fl.ones(1, requires_grad=True)
    y = x
    for _ in range(300):
        y = y * 0.5 + y * 0.5
    y.backward()
    assert x.grad.item() == pytest.approx(1.0)


def test_threads():
    x = fl.ones(50, requires_grad=True)
    errors = []

    def work():
        try:
            for _ in range(50):
                y = (x * 2).exp().log()
                y.sum().backward()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert x.grad[0].item() == pytest.approx(400.0)


def _exp(x):
    return x.exp()


def _custom(x):
    class Square(fl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * x
            ctx.save_for_backward(x, y)
            return y, y * 2

        @staticmethod
        def backward(ctx, g, h):
            return g * 2 * ctx.saved_tensors[0] + h * 4 * ctx.saved_tensors[0]

    return Square.apply(x)[1]


def _views_in_place(x):
    y = x * 2
    y[0] = y[1] * 3
    y.view(-1).mul_(2)
    v = y[1:]
    v.exp_()
    return y + y.t() if y.dim() == 2 and y.shape[0] == y.shape[1] else y


def _hooks(x):
    y = x * x
    y.register_hook(lambda g: g * 2)
    y.retain_grad()
    y.grad_fn.register_hook(lambda ins, outs: None)
    return y


def _several_outputs(x):
    values, _ = x.max(0)
    parts = x.split(1)
    return values.sum() + parts[0] * parts[-1]


def _saved_hooks(x):
    with fl.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        return x.exp().tanh() * x


def _matmul(x):
    return (x @ x.t()).softmax(0).log()


@pytest.mark.parametrize("build", [_exp, _custom, _views_in_place, _hooks, _several_outputs, _saved_hooks, _matmul],
                         ids=lambda f: f.__name__)
@pytest.mark.parametrize("run", ["forward", "backward", "retained", "double"])
def test_no_reference_cycles(build, run):
    gc.collect()
    gc.disable()
    try:
        x = fl.ones(3, 4, requires_grad=True)
        start = x * 1.5
        out = build(start)
        loss = out.sum()
        nodes, pending = [], [loss.grad_fn]
        while pending:
            node = pending.pop()
            if node is not None and not hasattr(node, "variable") and all(n() is not node for n in nodes):
                nodes.append(weakref.ref(node))
                pending += [n for n, _ in node.next_functions]
        node = None
        held = [*nodes, weakref.ref(out), weakref.ref(loss), weakref.ref(start)]
        if run == "backward":
            loss.backward()
        elif run == "retained":
            loss.backward(retain_graph=True)
        elif run == "double":
            g, = fl.autograd.grad(loss, x, create_graph=True)
            held += [weakref.ref(g)] + ([weakref.ref(g.grad_fn)] if g.grad_fn is not None else [])
            if g.requires_grad:
                g.sum().backward()
            del g
        del loss, out, start
        alive = [r() for r in held if r() is not None]
        assert not alive
    finally:
        gc.enable()


def test_buffers_are_freed_during_backward():
    x = fl.ones(4, requires_grad=True)
    h = x.exp()
    held = weakref.ref(h._array) if not isinstance(h._array, type(None)) else None
    loss = (h * h).sum()
    del h
    assert held() is not None
    loss.backward()
    assert held() is None


def test_leaf_that_only_the_graph_holds():
    def build():
        inner = fl.ones(2, requires_grad=True)
        inner.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.tolist()))
        return (inner + 1).sum()

    seen = []
    loss = build()
    loss.backward()
    assert seen == [[1.0, 1.0]]
    accumulate = loss.grad_fn.next_functions[0][0].next_functions[0][0]
    assert accumulate.variable.is_leaf and accumulate.variable.tolist() == [1.0, 1.0]


def returning(value):
    """A Function whose backward returns value(gradient)."""
    class Returns(fl.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            return sum(inputs)

        @staticmethod
        def backward(ctx, g):
            return value(g)

    return Returns


@pytest.mark.parametrize("make", [lambda w: w, lambda w: w[:2], lambda w: w.view(-1), lambda w: w.detach()],
                         ids=["itself", "slice", "view", "detached"])
def test_a_gradient_that_someone_else_holds_is_copied(make):
    held = fl.ones(2)
    x = fl.zeros(2, requires_grad=True)
    returning(lambda g: make(held)).apply(x).sum().backward()
    x.grad.add_(5)
    assert held.tolist() == [1.0, 1.0]


def test_a_fresh_gradient_is_taken_over_by_one_leaf_only():
    seen = []
    a, b = fl.zeros(2, requires_grad=True), fl.zeros(2, requires_grad=True)

    def backward(g):
        seen.append(g.data_ptr())
        return g, g

    (returning(backward).apply(a, b) * 3).sum().backward()
    assert a.grad.data_ptr() != b.grad.data_ptr()
    assert seen[0] in (a.grad.data_ptr(), b.grad.data_ptr())


def test_hooks_may_keep_what_they_were_given():
    kept = []
    x = fl.zeros(2, requires_grad=True)
    y = x + 0
    y.register_hook(lambda g: kept.append(g.numpy()))
    x.register_hook(lambda g: kept.append(g))
    (y * 3).sum().backward()
    x.grad.add_(5)
    assert [k.tolist() for k in kept] == [[3.0, 3.0], [3.0, 3.0]]
