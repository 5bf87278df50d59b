"""Tensors that are given attributes of their own between calls: one that hides a method, or that was not there before."""

from __future__ import annotations

from .world import each, final, line, nn, optim, put, torch, vec


def method_put_on_an_argument(compile):
    f, x = compile(lambda x: x.sum() * 2.0), vec()
    yield from each(f, x)
    x.sum = lambda: torch.tensor(10.0)
    yield from each(f, x)
    x.sum = lambda: torch.tensor(20.0)
    yield from each(f, x)
    del x.sum
    yield from each(f, x)


def method_put_on_one_of_many_arguments(compile):
    f, some = compile(lambda x: x.exp() + 1.0), [vec(), vec(), vec()]
    for n in range(9):
        if n > 5:
            some[n % 3].exp = lambda: vec() * 100.0
        yield from (f(x) for x in some)


def method_put_on_an_argument_that_learns(compile):
    p, q = nn.Parameter(vec()), vec()

    def f(p, q):
        return p.mul(q).sum()
    f = compile(f)
    for n in range(9):
        if n == 5:
            p.mul = lambda other: p * other * 3.0
        p.grad = None
        f(p, q).backward()
        yield p.grad


def method_put_on_a_view(compile):
    f, base = compile(lambda x: x.mean()), vec(6)
    view = base[2:]
    yield from each(f, view)
    view.mean = lambda: base.sum()
    yield from each(f, view)


def method_put_on_an_argument_in_a_list(compile):
    f, some = compile(lambda xs, scale: xs[0].add(xs[1]).relu() * scale), [vec(), vec()]
    yield from each(f, some, 2.0)
    some[1].relu, some[0].add = None, lambda other: other * 7.0
    yield from each(f, some, 2.0)


def method_put_on_an_argument_given_by_name(compile):
    f, x = compile(lambda *, x: x.abs() * 2.0), vec()
    yield from (f(x=x) for _ in range(5))
    x.abs = lambda: vec() * -1.0
    yield from (f(x=x) for _ in range(5))


def method_put_on_a_gradient(compile):
    net, opt, x, y = line()

    def step(x, y):
        ((net(x) - y) ** 2).mean().backward()
        net.weight.grad.copy_(net.weight.grad.clamp(-0.1, 0.1))
        opt.step()
    step = compile(step)
    for n in range(12):
        step(x, y)
        if n == 8:
            net.weight.grad.clamp = lambda low, high: torch.ones(1, 3)
        yield final(net, opt)


def method_put_on_a_gradient_that_is_read(compile):
    p = nn.Parameter(vec())
    p.grad = vec()
    f = compile(lambda x: x * p.grad.norm())
    yield from each(f, vec())
    p.grad.norm = lambda: 5.0
    yield from each(f, vec())


def attribute_that_appears_on_an_argument(compile):
    f, x = compile(lambda x: x * getattr(x, "gain", 2.0)), vec()
    yield from each(f, x)
    x.gain = 3.0
    yield from each(f, x)
    x.gain = 4.0
    yield from each(f, x)
    del x.gain
    yield from each(f, x)


def attribute_that_means_nothing(compile):
    f, x = compile(lambda x: x.cos() * 2.0), vec()
    yield from each(f, x)
    x.label = "seen"
    yield from each(f, x)
    x.cos = vec
    yield from each(f, x)


def private_method_put_on_an_argument(compile):
    f, x = compile(lambda x: x._neg_view() * 2.0), vec()
    yield from each(f, x)
    x._neg_view = lambda: vec() * 9.0
    yield from each(f, x)


def method_put_on_a_weight(compile):
    net = nn.Linear(3, 3)
    f = compile(lambda x: x @ net.weight.t() + net.weight.sum())
    yield from each(f, vec())
    put(net.weight, sum=lambda: torch.tensor(1.0), t=lambda: torch.eye(3))()
    yield from each(f, vec())


def method_put_on_a_result_that_goes_in_again(compile):
    f, x = compile(lambda x: x.sin()), vec()
    for n in range(10):
        x = f(x)
        if n > 6:
            x.sin = lambda: vec()
        yield x


def method_put_on_weights_of_an_optimizer(compile):
    net, opt, x, y = line(lambda ps: optim.SGD(ps, lr=0.1, momentum=0.9))

    def step(x, y):
        opt.zero_grad()
        loss = (x.matmul(net.weight.T) + net.bias).sub(y).pow(2).mean()
        loss.backward()
        opt.step()
        return loss
    step = compile(step)
    for n in range(12):
        if n == 6:
            y.sub, x.matmul = None, lambda other: vec(4).unsqueeze(1) * other.sum()
        yield step(x, y), final(net, opt)
