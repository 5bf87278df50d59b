"""Which object it is: arguments, gradients and what is not a number are searched for and hashed; results share parts."""

from __future__ import annotations

import math
import weakref

from soundness.world import Thing, around, fit, line, nn, put, torch, vec

ONE, TWO = torch.tensor([1.0]), torch.tensor([2.0])


def given(compile, f, *more):
    """Calls with one of two tensors that look alike, the first of which is known to the function."""
    f = compile(f)
    return (f(x) for x in (ONE, ONE, ONE, TWO, TWO, ONE, *more))


def argument_in_a_tuple(compile):
    return given(compile, lambda x: x * (2 if x in (ONE,) else 3), torch.tensor([1.0]))


def argument_in_a_list(compile):
    return given(compile, lambda x: x * (2 if x in [ONE] else 3), torch.tensor([1.0]))


def argument_as_a_key(compile):
    table = {ONE: 2.0, TWO: 3.0}
    return given(compile, lambda x: x * table[x])


def argument_as_a_key_that_may_be_missing(compile):
    table = {ONE: 2.0}
    return given(compile, lambda x: x * table.get(x, 5.0), torch.tensor([1.0]))


def argument_in_a_tuple_that_is_compared(compile):
    return given(compile, lambda x: x * (2 if (x, 1) == (ONE, 1) else 3), torch.tensor([1.0]))


def argument_counted_in_a_tuple(compile):
    return given(compile, lambda x: x * (ONE, ONE, ONE, TWO).count(x), torch.tensor([1.0]))


def argument_in_a_set_with_another(compile):
    held = Thing(t=TWO)
    return given(compile, lambda x: x * 10 + len({x, held.t}))


def argument_in_a_dict_with_another(compile):
    held = Thing(t=TWO)
    return given(compile, lambda x: x * sum({x: 1.0, held.t: 3.0}.values()))


def arguments_that_become_one_key(compile):
    f = compile(lambda x, y: x * len({x, y}))
    return (f(x, y) for x, y in ((ONE, ONE), (ONE, ONE), (ONE, TWO), (ONE, TWO), (TWO, TWO), (ONE, ONE)))


def with_gradient(compile, f, *changes):
    """Calls of a function of a leaf with a gradient, around changes of that."""
    w = torch.ones(3, requires_grad=True)
    w.grad = torch.ones(3)
    return around(compile(lambda x: f(x, w)), *[lambda c=c: c(w) for c in changes])


def another(w):
    w.grad = torch.ones(3)


def gradient_is_the_one_that_is_kept(compile):
    kept = Thing(g=None)

    def f(x, w):
        return x * (2 if w.grad is kept.g else 3)
    return with_gradient(compile, f, lambda w: put(kept, g=w.grad)(), another, lambda w: put(kept, g=w.grad)())


def gradients_in_a_set(compile):
    kept = Thing(v=torch.ones(3, requires_grad=True))

    def share(w):
        kept.v.grad = w.grad
    return with_gradient(compile, lambda x, w: x * len({w.grad, kept.v.grad}), share, another)


def gradient_in_a_list(compile):
    kept = [ONE]
    w = torch.ones(1, requires_grad=True)
    w.grad = ONE

    def zeros():
        w.grad = torch.zeros(1)
    return around(compile(lambda x: x * (2 if w.grad in kept else 3)), zeros)


def gradient_with_an_attribute(compile):
    def change(w):
        w.grad.scale = 3.0
    return with_gradient(compile, lambda x, w: x * getattr(w.grad, "scale", 2.0), change, another, change)


def gradient_of_a_class(compile):
    def change(w):
        w.grad = nn.Parameter(torch.ones(3))
    return with_gradient(compile, lambda x, w: x * (2 if isinstance(w.grad, nn.Parameter) else 3), change, another)


def gradient_that_wants_one_itself(compile):
    def change(w):
        w.grad = torch.ones(3, requires_grad=True)
    for y in with_gradient(compile, lambda x, w: x * w.grad * (2 if w.grad.requires_grad else 3), change, another):
        yield y.detach(), y.requires_grad


def gradient_that_is_part_of_a_graph(compile):
    def change(w):
        w.grad = torch.ones(3, requires_grad=True) * 1
    for y in with_gradient(compile, lambda x, w: x * w.grad * (2 if w.grad.is_leaf else 3), change, another):
        yield y.detach(), y.requires_grad


def gradient_zeroed_in_place_that_is_part_of_a_graph(compile):
    net, opt, x, y = line()

    def f(x, y):
        opt.zero_grad(set_to_none=False)
        ((net(x) - y) ** 2).mean().backward()
        opt.step()
    f = compile(f)
    for n in range(8):
        f(x, y)
        yield net.weight, net.weight.grad, net.weight.grad.requires_grad
        if n in (3, 5):
            net.weight.grad = torch.ones(1, 3, requires_grad=True) * 2


def trained(compile, change):
    """Training steps whose gradients are done something to in between; each step makes new ones."""
    net, opt, x, y = line()
    f = compile(lambda x, y: fit(net, opt, x, y))
    for n in range(7):
        yield f(x, y), change(net.weight.grad, n), dict(vars(net.weight.grad)).keys() & {"tag"}


def gradient_with_an_attribute_that_must_go(compile):
    return trained(compile, lambda grad, n: (hasattr(grad, "tag"), setattr(grad, "tag", n)))


def gradient_with_a_weak_reference(compile):
    seen = []

    def change(grad, n):
        alive = [r() is not None for r in seen]
        seen.append(weakref.ref(grad))
        return alive
    return trained(compile, change)


def gradient_with_a_finalizer(compile):
    log = []

    def change(grad, n):
        weakref.finalize(grad, log.append, n)
        return list(log)
    return trained(compile, change)


def gradient_with_a_gradient(compile):
    def change(grad, n):
        before, grad.grad = grad.grad, torch.ones(1, 3)
        return before
    return trained(compile, change)


def not_a_number_as_a_key(compile):
    held = Thing(n=math.nan, table={math.nan: 2.0})
    return around(compile(lambda x: x * held.table.get(held.n, 7.0)), put(held, n=float("nan")), put(held, n=math.nan))


def not_a_number_in_a_list(compile):
    held = Thing(n=math.nan, some=[math.nan])
    f = compile(lambda x: x * (2 if held.n in held.some else 3) + ([held.n] == held.some))
    return around(f, put(held, n=float("nan")), put(held, n=math.nan))


def not_a_number_as_an_argument(compile):
    f = compile(lambda x, n: x * (2 if n in (math.nan,) else 3))
    return (f(vec(), n) for n in (math.nan, math.nan, float("nan"), float("nan"), math.nan))


def parts_of_a_result(compile, f):
    """Which of the containers in a result are one."""
    f = compile(f)
    for n in range(5):
        y = f(vec() + n)
        yield y, y[0] is y[1]


def result_with_a_list_twice(compile):
    def f(x):
        made = [x * 2]
        return made, made
    return parts_of_a_result(compile, f)


def result_with_a_tuple_twice(compile):
    def f(x):
        made = (x * 2, 1)
        return [made, made]
    return parts_of_a_result(compile, f)


def result_with_lists_alike(compile):
    return parts_of_a_result(compile, lambda x: ([x * 2], [x * 2]))


def result_that_holds_itself(compile):
    def f(x):
        made = [x * 2]
        made.append(made)
        return made
    f = compile(f)
    for n in range(5):
        y = f(vec() + n)
        yield y[0], y[1] is y
