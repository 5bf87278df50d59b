"""Between a compiled call and the backward pass of its result: numbers, weights and Python state change. Hooks in C."""

from __future__ import annotations

import operator
import threading

from soundness.world import F, Thing, fit, line, nn, optim, torch, vec


def numbers_of_two_graphs(compile):
    w = torch.ones(3, requires_grad=True)
    f = compile(lambda x, s: (torch.sin(x * w * s) ** 2).sum())
    for s in (0.5, 0.5, 0.75, 1.0, 1.25):
        for y in (f(vec(), s), f(vec(), 3 * s))[::-1]:
            w.grad = None
            y.backward()
            yield y, w.grad


def number_of_a_group(compile):
    w = torch.ones(3, requires_grad=True)
    opt = optim.SGD([w], lr=0.5)
    f = compile(lambda x: (torch.sin(x * w * opt.param_groups[0]["lr"]) ** 2).sum())
    for lr in (0.5, 0.5, 0.75, 1.0, 1.25):
        opt.param_groups[0]["lr"] = lr
        y = f(vec())
        opt.param_groups[0]["lr"] = 2 * lr
        w.grad = None
        y.backward()
        yield y, w.grad


def number_of_an_object(compile):
    w, held = torch.ones(3, requires_grad=True), Thing(gain=1.0)
    f = compile(lambda x: ((torch.sin(x * w * held.gain) ** 2).sum(), (w * x * held.gain).sum()))
    for n in range(6):
        y, _ = f(vec())
        held.gain = n + 2.0
        w.grad = None
        y.backward()
        yield w.grad


def moved(compile, change, calls=6):
    """A model compiled alone, trained outside, whose weights are given other memory now and then."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    f, opt = compile(net), optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    x = torch.arange(6.0).reshape(2, 3) / 6
    for n in range(calls):
        if n > 1:
            change(net, True)
        opt.zero_grad()
        y = f(x)
        if n > 1:
            change(net, False)
        y.sum().backward()
        opt.step()
        yield y, net


def weights_in_double_and_back(compile):
    return moved(compile, lambda net, before: net.double().float() if before else None)


def weights_with_other_data(compile):
    def change(net, before):
        if before:
            net[2].weight.data = net[2].weight.data * 2
    return moved(compile, change)


def weights_with_other_data_before_the_backward_pass(compile):
    def change(net, before):
        if not before:
            net[2].weight.data = net[2].weight.data * 2
    return moved(compile, change)


def weights_loaded_before_the_call(compile):
    def change(net, before):
        if before:
            net.load_state_dict({k: 2 * v for k, v in net.state_dict().items()}, assign=True)
    return moved(compile, change, calls=4)


def argument_with_other_data_before_the_backward_pass(compile):
    w = torch.ones(3, requires_grad=True)
    f = compile(lambda x: (x * w).sum())
    for n in range(5):
        x = vec()
        y = f(x)
        if n > 1:
            x.data = torch.full((3,), 5.0)
        w.grad = None
        y.backward()
        yield w.grad


def hooked(compile, make, calls=8):
    """Training steps, with something registered on the weight after some of them."""
    net, opt, x, y = line()
    f, log, handle = compile(lambda x, y: fit(net, opt, x, y)), [], None
    for n in range(calls):
        yield f(x, y), len(log), net
        if n == 2:
            handle = make(net.weight, log)
        if n == 5:
            handle.remove()


def hook_that_is_a_method_of_a_list(compile):
    return hooked(compile, lambda w, log: w.register_hook(log.append))


def hook_after_accumulation_that_is_a_method_of_a_list(compile):
    return hooked(compile, lambda w, log: w.register_post_accumulate_grad_hook(log.append))


def hook_that_is_an_operator(compile):
    return hooked(compile, lambda w, log: w.register_hook(operator.neg))


def hook_from_the_start_that_is_a_method_of_a_list(compile):
    net, opt, x, y = line()
    log = []
    net.weight.register_hook(log.append)
    f = compile(lambda x, y: fit(net, opt, x, y))
    return ((f(x, y), len(log)) for _ in range(6))


def hook_of_an_argument(compile):
    def f(x):
        (x * x).sum().backward()
        return x.grad
    f = compile(f)
    for n in range(8):
        x = vec().requires_grad_()
        if n in (3, 5):
            x.register_hook(lambda g, n=n: g * n)
        if n == 4:
            x.grad = torch.ones(3)
        if n == 6:
            x.register_post_accumulate_grad_hook(lambda p: print("added"))
        y = f(x)
        yield y, y is x.grad


def threads_with_numbers_of_their_own(compile):
    w = torch.ones(100, 100, requires_grad=True)
    f = compile(lambda x, s: F.relu(x @ w * s).sum())
    x = torch.ones(100, 100)
    for s in (0.5, 0.75, 1.0):
        f(x, s)
    seen = [set() for _ in range(4)]

    def run(n):
        for _ in range(10):
            seen[n].add(round(f(x, n + 0.5).item() / 1e4, 3))
    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    yield [sorted(s) for s in seen]
    yield f(x, 0.25)


def threads_with_memory_of_their_own(compile):
    f = compile(lambda x, b: b.add_(x.sin()).mul_(0.5).sum())
    x = torch.ones(100, 100)
    for n in range(4):
        yield f(x, torch.full((100, 100), float(n)))
    seen = [[] for _ in range(4)]

    def run(n):
        for i in range(10):
            seen[n].append(round(f(x * n, torch.full((100, 100), float(i))).item()))
    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    yield seen
