"""Hooks on tensors and nodes: what runs, in which order, and what it may change. Compared with torch."""

import pytest
from compare import Programs, agree, leaf

import flambeau
from flambeau.autograd.hooks import RemovableHandle

programs = Programs()


@programs
def replaces_the_gradient(mod):
    x = leaf(mod)
    y = x * 3
    y.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: g + 1)
    y.sum().backward()
    return x.grad


@programs
def order_of_registration(mod):
    seen = []
    x = leaf(mod)
    y = x * 3
    for i in range(3):
        y.register_hook(lambda g, i=i: seen.append((i, g)) or g * 2)
    y.sum().backward()
    return seen, x.grad


@programs
def removed(mod):
    x = leaf(mod)
    handle = x.register_hook(lambda g: g * 100)
    with x.register_hook(lambda g: g * 2):
        x.sum().backward()
    handle.remove()
    handle.remove()
    x.sum().backward()
    return x.grad


@programs
def retain_grad_runs_last(mod):
    x = leaf(mod)
    y = x * 3
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    y.sum().backward()
    return y.grad, x.grad, y.retains_grad


@programs
def retain_grad_is_a_copy(mod):
    x = leaf(mod)
    y = x + 0
    y.retain_grad()
    y.sum().backward()
    y.grad.zero_()
    return x.grad, y.grad


@programs
def retain_grad_on_leaf(mod):
    x = leaf(mod)
    x.retain_grad()
    x.sum().backward()
    return x.retains_grad, x.grad


@programs
def retain_grad_accumulates(mod):
    x = leaf(mod)
    y = x * 2
    y.retain_grad()
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    return y.grad, x.grad


@programs
def retain_grad_twice(mod):
    y = leaf(mod) * 2
    y.retain_grad()
    y.retain_grad()
    y.sum().backward()
    return y.grad


@programs
def grad_of_non_leaf(mod):
    y = leaf(mod) * 2
    y.sum().backward()
    return y.grad


@programs
def retain_grad_needs_grad(mod):
    mod.ones(2).retain_grad()


@programs
def hook_needs_grad(mod):
    mod.ones(2).register_hook(print)


@programs
def hook_stays_with_the_old_history(mod):
    seen = []
    x = leaf(mod)
    y = x * 2
    y.register_hook(lambda g: seen.append(("before", g)))
    y.mul_(5)
    y.register_hook(lambda g: seen.append(("after", g)))
    y.sum().backward()
    return seen


@programs
def retain_grad_follows_an_in_place_change(mod):
    x = leaf(mod)
    y = x * 2
    y.retain_grad()
    y.mul_(5)
    y.sum().backward()
    return y.grad, x.grad


@programs
def hook_returns_a_number(mod):
    y = leaf(mod) * 2
    y.register_hook(lambda g: 3)
    y.sum().backward()


@programs
def hook_changes_the_size(mod):
    y = leaf(mod) * 2
    y.register_hook(lambda g: g[:1])
    y.sum().backward()


@programs
def hook_changes_the_type(mod):
    y = leaf(mod) * 2
    y.register_hook(lambda g: g.double())
    y.sum().backward()


@programs
def hook_raises(mod):
    def hook(g):
        raise ZeroDivisionError("mine")

    x = leaf(mod)
    y = x * 2
    handle = y.register_hook(hook)
    z = y.sum()
    try:
        z.backward(retain_graph=True)
    except ZeroDivisionError:
        handle.remove()
    z.backward()
    return x.grad, mod.is_grad_enabled()


@programs
def hooks_see_the_sum_of_all_paths(mod):
    seen = []
    x = leaf(mod)
    y = x * 2
    y.register_hook(lambda g: seen.append(g))
    (y * 3 + y * 4 + y).sum().backward()
    return seen


@programs
def hook_with_autograd_grad(mod):
    x = leaf(mod)
    x.register_hook(lambda g: g * 5)
    y = x * 2
    y.register_hook(lambda g: g * 7)
    return mod.autograd.grad(y.sum(), [x, y]), x.grad


@programs
def hooks_off_the_path_do_not_run(mod):
    seen = []
    x, w = leaf(mod), leaf(mod)
    w.register_hook(lambda g: seen.append("w"))
    z = w * 2
    z.register_hook(lambda g: seen.append("z"))
    mod.autograd.grad((x * z).sum(), x)
    return seen


@programs
def hook_of_one_output(mod):
    seen = []
    x = mod.arange(4.0).requires_grad_()
    a, b = x.split(2)
    a.register_hook(lambda g: seen.append(("a", g)))
    b.register_hook(lambda g: seen.append(("b", g)) or g * 2)
    (b * 3).sum().backward()
    return seen, x.grad


@programs
def post_accumulate(mod):
    seen = []
    x = leaf(mod)
    x.register_hook(lambda g: seen.append(("hook", g)) or g * 2)
    x.register_post_accumulate_grad_hook(lambda t: seen.append(("post", t.grad)))
    (x * 3).sum().backward()
    return seen, x.grad


@programs
def optimizer_in_backward(mod):
    def step(t):
        with mod.no_grad():
            t.sub_(t.grad * 0.5)
        t.grad = None

    x = leaf(mod)
    x.register_post_accumulate_grad_hook(step)
    (x * x).sum().backward()
    return x, x.grad


@programs
def post_accumulate_on_non_leaf(mod):
    (leaf(mod) * 2).register_post_accumulate_grad_hook(print)


@programs
def node_hooks(mod):
    seen = []
    x = leaf(mod)
    y = x * 3
    y.grad_fn.register_prehook(lambda outs: seen.append(("pre", outs)) or (outs[0] * 2,))
    y.grad_fn.register_hook(lambda ins, outs: seen.append(("post", ins, outs)))
    y.register_hook(lambda g: seen.append(("tensor", g)))
    y.sum().backward()
    return seen, x.grad


@programs
def node_hook_replaces(mod):
    x = leaf(mod)
    y = x.exp()
    y.grad_fn.register_hook(lambda ins, outs: (ins[0] * 0 + 4,))
    y.sum().backward()
    return x.grad


@programs
def accumulate_grad_hooks(mod):
    seen = []
    x = leaf(mod)
    node = (x * 2).grad_fn.next_functions[0][0]
    node.register_prehook(lambda outs: seen.append(("pre", outs)))
    node.register_hook(lambda ins, outs: seen.append(("post", ins, outs)))
    (x * 2).sum().backward()
    return seen, node.variable is x


@programs
def backward_inside_a_hook(mod):
    x, w = leaf(mod), leaf(mod)
    y = x * 3
    y.register_hook(lambda g: (w * 2).sum().backward())
    y.sum().backward()
    return x.grad, w.grad


@programs
def hook_with_create_graph(mod):
    x = leaf(mod)
    y = x * x
    y.register_hook(lambda g: g * x)
    g, = mod.autograd.grad(y.sum(), x, create_graph=True)
    return g, mod.autograd.grad(g.sum(), x)


@programs
def multi_grad_hook(mod):
    seen = []
    a, b, c = leaf(mod), leaf(mod), leaf(mod)
    handle = mod.autograd.graph.register_multi_grad_hook([a, b, c], lambda gs: seen.append(list(gs)))
    (a * b).sum().backward()
    (a * b * c).sum().backward()
    handle.remove()
    (a * b * c).sum().backward()
    return seen


@programs
def multi_grad_hook_any(mod):
    seen = []
    a, b = leaf(mod), leaf(mod)
    mod.autograd.graph.register_multi_grad_hook([a, b], lambda g: seen.append(g), mode="any")
    (a * b).sum().backward()
    b.sum().backward()
    return len(seen)


@programs
def multi_grad_hook_on_non_leaves(mod):
    seen = []
    x = leaf(mod)
    y, z = x * 2, x * 3
    mod.autograd.graph.register_multi_grad_hook([y, z, x], lambda gs: seen.append(list(gs)))
    (y * z).sum().backward()
    return seen


@programs
def multi_grad_hook_bad_mode(mod):
    mod.autograd.graph.register_multi_grad_hook([leaf(mod)], print, mode="some")


@pytest.mark.parametrize("program", programs, ids=programs.ids)
def test_like_torch(program):
    agree(program)


def test_handles():
    x = leaf(flambeau)
    first, second = x.register_hook(lambda g: None), x.register_hook(lambda g: None)
    assert isinstance(first, RemovableHandle) and second.id > first.id
    del x
    first.remove()  # the tensor is gone: nothing to do


def test_hooks_do_not_keep_the_tensor_alive():
    import gc
    import weakref
    gc.disable()
    try:
        x = leaf(flambeau)
        y = x * 2
        y.register_hook(lambda g: g)
        y.retain_grad()
        x.register_post_accumulate_grad_hook(lambda t: None)
        held = weakref.ref(x), weakref.ref(y), weakref.ref(y.grad_fn)
        y.sum().backward()
        del x, y
        assert [r() for r in held] == [None, None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("build", [
    lambda t, a, w: a.clone(), lambda t, a, w: a + 1, lambda t, a, w: a * w, lambda t, a, w: a.sum(),
    lambda t, a, w: t.cat([a, w]), lambda t, a, w: t.where(a > 0, a, w), lambda t, a, w: a.gather(0, t.tensor([0, 1])),
    lambda t, a, w: a.softmax(0), lambda t, a, w: a.double()])
def test_hooks_of_nodes_see_the_arguments_that_can_have_a_gradient(build):
    def program(t):
        a, w = t.tensor([0.0, 1.0, 2.0], requires_grad=True), t.ones(3, requires_grad=True)
        made, seen = build(t, a, w), []
        made.grad_fn.register_hook(lambda inputs, outputs: seen.append([g is None for g in inputs]))
        made.grad_fn.register_hook(lambda inputs, outputs: tuple(None if g is None else g * 2 for g in inputs))
        made.sum().backward()
        return seen, a.grad
    agree(program)
