"""Results whose graphs are walked by the caller: one by one, in part, again, or so that the gradients have a graph too."""

from __future__ import annotations

from soundness.world import F, line, optim, torch, vec


def weights():
    return torch.ones(3, requires_grad=True)


def tried(f):
    try:
        return f()
    except RuntimeError as error:
        return str(error).partition(".")[0]


def two_graphs(compile):
    w, u = weights(), weights()
    f = compile(lambda x: ((w * x).sum(), (u * x).exp().sum()))
    for _ in range(6):
        a, b = f(vec() / 8)
        a.backward()
        yield tried(b.backward), w.grad, u.grad


def two_graphs_of_one_weight(compile):
    w = weights()
    f = compile(lambda x: ((w * x).exp().sum(), (w + x).sum()))
    for n in range(6):
        a, b = f(vec() / 8)
        for loss in (b, a) if n % 2 else (a, b):
            loss.backward()
            yield w.grad


def graph_in_common(compile):
    w = weights()

    def f(x):
        hidden = (w * x).exp()
        return hidden.sum(), hidden.square().sum()
    f = compile(f)
    for n in range(6):
        a, b = f(vec() / 8)
        a.backward(retain_graph=n % 2 == 0)
        yield tried(b.backward), w.grad


def graph_that_keeps_nothing(compile):
    w = weights()
    f = compile(lambda x: (w + x).sum())
    for n in range(6):
        loss = f(vec() * n)
        loss.backward()
        yield tried(loss.backward), w.grad, loss


def graph_walked_again(compile):
    w = weights()
    f = compile(lambda x: (w * x).sum())
    for n in range(6):
        loss = f(vec())
        loss.backward(retain_graph=n % 2 == 0)
        yield tried(loss.backward), w.grad


def one_of_two_with_an_infinite_slope(compile):
    w = weights()
    f = compile(lambda x: (F.dropout(w * x).sum(), (w - 1).sqrt().sum()))
    for _ in range(6):
        f(vec() / 8)[0].backward()
        yield w.grad


def second_derivative_with_chance(compile):
    w = weights()
    f = compile(lambda x: (F.dropout(w ** 3 * x)).sum())
    for _ in range(6):
        slope, = torch.autograd.grad(f(vec()), w, create_graph=True)
        yield slope, torch.autograd.grad(slope.sum(), w)[0]


def second_derivative_after_a_change(compile):
    w, seen = weights(), torch.zeros(3)

    def f(x):
        with torch.no_grad():
            seen.add_(x)
        return (w ** 3 * x).sum()
    f = compile(f)
    for _ in range(6):
        slope, = torch.autograd.grad(f(vec()), w, create_graph=True)
        yield slope, torch.autograd.grad(slope.sum(), w)[0], seen


def second_derivative_sometimes(compile):
    w = weights()
    f = compile(lambda x: (w ** 3 * x).sum())
    for n in range(9):
        slope, = torch.autograd.grad(f(vec() * n), w, create_graph=n % 3 == 2)
        yield slope, slope.requires_grad, torch.autograd.grad(slope.sum(), w)[0] if n % 3 == 2 else None


def weight_changed_before_the_walk(compile):
    w = weights()
    f = compile(lambda x: (w * w * x).sum())
    for n in range(6):
        loss = f(vec())
        if n % 2:
            with torch.no_grad():
                w.add_(0.5)
        yield tried(loss.backward), w.grad


def result_changed_before_the_walk(compile):
    w = weights()
    f = compile(lambda x: (w * x).exp())
    for n in range(6):
        y = f(vec() / 8)
        if n % 2:
            y.detach().mul_(2)
        yield tried(y.sum().backward), w.grad


# ------------------------------------------------------------------------------------------------ gradients that share memory
def one_gradient_for_two(compile):
    w, u = weights(), weights()
    w.grad = u.grad = torch.zeros(3)

    def f(x):
        (w * x).sum().backward()
        (u * x * 2).sum().backward()
        return w.grad + u.grad
    f = compile(f)
    for n in range(12):
        if n in (4, 8):
            u.grad = torch.zeros(3) if n == 4 else w.grad
        yield f(vec()), w.grad, u.grad


def gradients_that_come_to_overlap(compile):
    w, u = weights(), weights()
    flat = torch.zeros(6)

    def f(x):
        (w * x).sum().backward()
        (u * x * 2).sum().backward()
        return w.grad * u.grad
    f = compile(f)
    for n in range(16):
        if n % 4 == 0:
            w.grad, u.grad = flat[:3], flat[n // 4:n // 4 + 3]
        yield f(vec()), flat


def gradient_inside_of_the_argument(compile):
    w, flat = weights(), torch.ones(6)
    w.grad = flat[:3]

    def f(x):
        (w * x).sum().backward()
        return x * 2
    f = compile(f)
    for n in range(9):
        if n == 6:
            w.grad = torch.zeros(3)
        yield f(flat[n % 3:n % 3 + 3] if n > 2 else flat[:3]), w.grad, flat


def argument_that_becomes_a_gradient(compile):
    w = weights()

    def f(x):
        w.grad = x
        return x * 2
    f = compile(f)
    for n in range(6):
        x = vec() * n
        yield f(x), w.grad is x, w.grad


def gradients_counted(compile):
    net, opt, x, y = line()

    def f(limit):
        opt.zero_grad()
        (net(x) - y).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), limit)
        opt.step()
        return [p.grad._version for p in net.parameters()]
    f = compile(f)
    for n in range(8):
        yield f(0.1), [p.grad._version for p in net.parameters()], net
        if n % 3 == 2:
            net.weight.grad.mul_(2)


# ------------------------------------------------------------------------------------------------------ hyper-parameters
def stepped(compile, make, key, values):
    net, opt, x, y = line(make)

    def f():
        opt.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        opt.step()
        return loss
    f = compile(f)
    for value in values:
        opt.param_groups[0][key] = value
        for _ in range(3):
            try:
                yield f(), net
            except (TypeError, ValueError, RuntimeError) as error:
                yield type(error).__name__


def betas_of_an_int_and_a_float(compile):
    return stepped(compile, lambda ps: optim.Adam(ps, lr=0.1), "betas", [(0, 0.9), (0.5, 0.9), (0, 0.5), (0.9, 0)])


def step_sizes_of_a_float_and_an_int(compile):
    return stepped(compile, lambda ps: optim.Rprop(ps, lr=0.1), "step_sizes", [(1e-6, 50), (1e-6, 0.01), (1e-6, 50)])


def rate_of_numpy(compile):
    import numpy as np
    rates = [np.float64(0.1), np.float64(0.2), np.float32(0.1), np.float32(0.3), 0.1, np.int64(1), True, torch.tensor(0.1)]
    return stepped(compile, lambda ps: optim.SGD(ps, lr=0.1), "lr", rates)


def eps_that_is_no_pair(compile):
    return stepped(compile, lambda ps: optim.Adafactor(ps, lr=0.1), "eps", [(None, 1e-3), (None, 0.1), 1e-3, (1e-3, 0.1)])


def direction_as_a_number(compile):
    return stepped(compile, lambda ps: optim.SGD(ps, lr=0.1), "maximize", [False, 0, 1, 0.0, 1.0, True, 0])


def seed_set_in_the_call(compile):
    f = compile(lambda seed: (torch.manual_seed(seed), torch.rand(2))[1])
    for n in range(6):
        yield f(3 + n // 3), torch.initial_seed()
