"""Gradients inside and outside of the call: custom functions with state, transforms, checkpoints, second derivatives, modes."""

from __future__ import annotations

import itertools
import warnings

from flambeau.utils.checkpoint import checkpoint
from soundness.world import Thing, around, each, final, line, nn, optim, put, task, torch, turns, vec


def weights():
    return torch.ones(3, requires_grad=True)


# ------------------------------------------------------------------------------------------------------ functions of ones own
def function_with_a_count(compile):
    class Counted(torch.autograd.Function):
        forwards = backwards = 0

        @staticmethod
        def forward(ctx, x):
            Counted.forwards += 1
            return x * 2.0

        @staticmethod
        def backward(ctx, grad):
            Counted.backwards += 1
            return grad * 2.0
    weight = weights()

    def f(x):
        Counted.apply(weight * x).sum().backward()
        return weight.grad
    f = compile(f)
    for _ in range(6):
        yield f(vec()), Counted.forwards, Counted.backwards


def function_with_a_gain_outside(compile):
    box = Thing(gain=2.0, slope=2.0)

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * box.gain

        @staticmethod
        def backward(ctx, grad):
            return grad * box.slope
    weight = weights()

    def f(x):
        weight.grad = None
        y = Scaled.apply(weight * x)
        y.sum().backward()
        return y, weight.grad
    return around(compile(f), put(box, gain=3.0), put(box, slope=3.0))


def function_walked_later_with_a_gain_outside(compile):
    box = Thing(slope=2.0)

    class Reversed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, sign):
            ctx.sign = sign
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.sign * box.slope, None
    weight = weights()
    f = compile(lambda x, sign: Reversed.apply(weight * x, sign).sum())
    for n in range(8):
        y = f(vec(), -1.0 if n % 4 else 1.0)
        box.slope = 2.0 if n < 4 else 3.0
        weight.grad = None
        y.backward()
        yield weight.grad


def function_that_asks_what_is_needed(compile):
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            asked.append(ctx.needs_input_grad)
            return grad * b if ctx.needs_input_grad[0] else None, grad * a if ctx.needs_input_grad[1] else None
    asked, weight = [], weights()
    f = compile(lambda a, b: Product.apply(a, b).sum())
    for n in range(8):
        other = vec().requires_grad_(n % 4 > 1)
        f(weight, other).backward()
        yield weight.grad, other.grad, asked[-1]


def function_that_writes_in_place(compile):
    class Added(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.add_(1)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad * 5.0
    weight = weights()

    def f(x):
        weight.grad = None
        y = Added.apply(weight * x)
        y.sum().backward()
        return y, weight.grad
    f = compile(f)
    return (f(vec() * n) for n in range(5))


def function_that_keeps_its_context(compile):
    kept = []

    class Kept(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.number = len(kept)
            kept.append(ctx)
            return x * 2.0

        @staticmethod
        def backward(ctx, grad):
            return grad * (ctx.number + 1)
    weight = weights()
    f = compile(lambda x: Kept.apply(weight * x).sum())
    for _ in range(6):
        weight.grad = None
        f(vec()).backward()
        yield weight.grad, len(kept)


def straight_through(compile):
    box = Thing(levels=2)
    weight = weights()

    def f(x):
        weight.grad = None
        y = weight * x
        q = (y * box.levels).round() / box.levels
        z = y + (q - y).detach()
        (z * z).sum().backward()
        return z, weight.grad
    return around(compile(f), put(box, levels=3), args=(vec() / 7,))


# --------------------------------------------------------------------------------------------------- what gradients are left
def gradients_accumulate(compile):
    weight = weights()

    def f(x):
        (weight * x).sum().backward()
        return weight.grad.sum()
    yield from around(compile(f), put(weight, grad=None), lambda: weight.grad.zero_(), put(weight, grad=vec()))
    yield weight.grad


def gradient_is_the_same_object(compile):
    weight = weights()

    def f(x):
        (weight * x).sum().backward()
    f = compile(f)
    f(vec())
    first = weight.grad
    for n in range(6):
        if n == 3:
            weight.grad = None
        f(vec())
        yield weight.grad is first, weight.grad, first


def gradients_of_some(compile):
    a, b, box = weights(), weights(), Thing(both=True)

    def f(x):
        a.grad = b.grad = None
        y = a * x
        if box.both:
            y = y * b
        y.sum().backward()
        return y
    f = compile(f)
    for n in range(8):
        box.both = n % 4 < 2
        yield f(vec()), a.grad, b.grad


def gradient_of_the_argument(compile):
    def f(x):
        (x * x * 2.0).sum().backward()
        return x.grad
    f = compile(f)
    for n in range(6):
        x = (vec() * n).requires_grad_()
        y = f(x)
        yield y is x.grad, f(x), x.grad


def gradient_by_hand(compile):
    weight = weights()

    def f(x):
        g, = torch.autograd.grad((weight * x * x).sum(), weight)
        with torch.no_grad():
            weight.sub_(g, alpha=0.1)
        return g
    yield from each(compile(f), vec())
    yield weight, weight.grad


def gradient_that_is_not_used(compile):
    a, b = weights(), weights()
    f = compile(lambda x: torch.autograd.grad((a * x).sum(), (a, b), allow_unused=True))
    return (f(vec() * n) for n in range(5))


def gradient_with_a_given_start(compile):
    weight = weights()

    def f(x, start):
        weight.grad = None
        (weight * x).backward(start)
        return weight.grad
    return turns(compile(f), (vec(), vec(), vec() * 2, torch.ones(3), vec()))


def gradient_as_an_attribute_written(compile):
    net, opt, _, _ = line()

    @compile
    def step():
        for p in net.parameters():
            p.grad = p.detach() * 0.5
        opt.step()
        return net.weight.sum()
    yield from around(step, lambda: net.weight.data.fill_(1.0), args=())
    yield final(net)


def gradients_of_two_losses(compile):
    net, opt, x, y = line()
    box = Thing(weight=1.0)

    @compile
    def step():
        opt.zero_grad()
        out = net(x)
        (out * box.weight).mean().backward(retain_graph=True)
        loss = ((out - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss
    yield from around(step, put(box, weight=0.0), args=())
    yield final(net)


def second_derivative(compile):
    weight = weights()

    def f(x):
        y = (weight ** 3 * x).sum()
        g, = torch.autograd.grad(y, weight, create_graph=True)
        h, = torch.autograd.grad(g.sum(), weight)
        return g, h
    yield from around(compile(f), lambda: weight.data.fill_(2.0))


def steps_inside_a_step(compile):
    """Learning to learn: the outer gradient goes through inner steps."""
    weight = weights()
    opt, box = optim.SGD([weight], lr=0.1), Thing(steps=1, rate=0.1)

    @compile
    def step(x):
        opt.zero_grad()
        fast = weight
        for _ in range(box.steps):
            g, = torch.autograd.grad(((fast * x) ** 2).sum(), fast, create_graph=True)
            fast = fast - box.rate * g
        loss = (fast ** 2).sum()
        loss.backward()
        opt.step()
        return loss
    yield from around(step, put(box, steps=2), put(box, rate=0.01), args=(vec() / 3,))
    yield weight


# -------------------------------------------------------------------------------------------------------------- transforms
def gradient_as_a_function(compile):
    box = Thing(gain=2.0)
    f = compile(torch.func.grad(lambda x: (x * x * box.gain).sum()))
    return around(f, put(box, gain=3.0))


def function_over_a_batch(compile):
    box = Thing(gain=2.0)
    f = compile(torch.func.vmap(lambda row: row * box.gain + row.sum()))
    return around(f, put(box, gain=3.0), args=(torch.arange(12.0).reshape(4, 3),))


def function_over_a_batch_that_counts(compile):
    seen = []
    f = compile(torch.func.vmap(lambda row: seen.append(1) or row * 2.0))
    yield from each(f, torch.arange(12.0).reshape(4, 3))
    yield len(seen)


def jacobian(compile):
    box = Thing(gain=2.0)
    f = compile(torch.func.jacrev(lambda x: x * x * box.gain))
    return around(f, put(box, gain=3.0))


def forward_derivative(compile):
    box = Thing(gain=2.0)
    f = compile(lambda x: torch.func.jvp(lambda v: v * v * box.gain, (x,), (torch.ones(3),)))
    return around(f, put(box, gain=3.0))


def functional_weights(compile):
    net = nn.Linear(3, 1)
    box = Thing(weights={k: v.detach() for k, v in net.named_parameters()})
    f = compile(lambda x: torch.func.functional_call(net, box.weights, (x,)))
    yield from around(f, lambda: put(box, weights={k: v + 1 for k, v in box.weights.items()})(),
                      lambda: box.weights["bias"].fill_(9.0))
    yield net(vec())


def one_gradient_per_sample(compile):
    net = nn.Linear(3, 1)

    def loss(weights, row):
        return torch.func.functional_call(net, weights, (row,)).sum() ** 2
    each_row = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))
    f = compile(lambda x: each_row(dict(net.named_parameters()), x))
    return around(f, lambda: net.weight.data.fill_(1.0), args=(torch.arange(12.0).reshape(4, 3),))


# ------------------------------------------------------------------------------------------------------------- checkpoints
def checkpointed(compile):
    net, opt, x, y = task()
    seen = []

    def part(x):
        seen.append(1)
        return net[1](net[0](x))

    @compile
    def step():
        opt.zero_grad()
        loss = ((net[2](checkpoint(part, x, use_reentrant=False)) - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss
    yield from each(step)
    yield final(net), len(seen)


def checkpointed_with_chance(compile):
    net, opt, x, y = task()

    @compile
    def step():
        opt.zero_grad()
        hidden = checkpoint(lambda x: nn.functional.dropout(net[0](x), 0.5), x, use_reentrant=False)
        loss = ((net[2](hidden) - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss
    yield from each(step)
    yield final(net), torch.rand(1)


# ------------------------------------------------------------------------------------------------------------------- modes
def gradients_off_inside(compile):
    weight, box = weights(), Thing(on=True)

    def f(x):
        with torch.set_grad_enabled(box.on):
            y = weight * x
        return y * 2.0
    return around(compile(f), put(box, on=False), put(box, on=True))


def gradients_off_by_a_decorator(compile):
    weight = weights()

    @compile
    @torch.no_grad()
    def f(x):
        calls.append(torch.is_grad_enabled())
        return weight * x
    calls = []
    yield from around(f, lambda: weight.data.fill_(2.0))
    yield calls


def gradients_off_outside_by_a_decorator(compile):
    weight = weights()
    f = torch.no_grad()(compile(lambda x: weight * x))
    return around(lambda x: (f(x), torch.is_grad_enabled()), lambda: weight.data.fill_(2.0))


def gradients_on_inside_off(compile):
    weight = weights()

    def f(x):
        with torch.enable_grad():
            y = (weight * x).sum()
        g, = torch.autograd.grad(y, weight)
        return g, y.requires_grad
    f = compile(f)
    for n in range(6):
        with torch.set_grad_enabled(n % 3 == 0):
            yield f(vec() * n)


def gradients_switched_by_the_call(compile):
    """The mode that a call leaves behind is part of what it does."""
    modes = itertools.cycle([False, False, True])
    weight = weights()
    f = compile(lambda x: torch.set_grad_enabled(next(modes)) and None or weight * x)  # noqa: RUF021
    try:
        for _ in range(7):
            yield f(vec()), torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)


def inference_mode_around(compile):
    weight = weights()
    f = compile(lambda x: weight * x)
    for n in range(8):
        with torch.inference_mode(n % 4 > 1):
            y = f(vec())
        yield y, y.is_inference()


def inference_tensors_as_arguments(compile):
    with torch.inference_mode():
        made = vec()
    f = compile(lambda x: x * 2.0 if x.is_inference() else x * 3.0)
    return (f(x) for x in (vec(), vec(), made, vec(), made, made))


def anomaly_mode_around(compile):
    weight = torch.zeros(3, requires_grad=True)
    f = compile(lambda x: (weight * x).sqrt().sum() * 0)
    for n in range(6):
        weight.grad = None
        with torch.autograd.set_detect_anomaly(n % 3 == 2), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                f(vec()).backward()
                yield weight.grad.isnan().tolist()
            except RuntimeError as error:
                yield "nan" in str(error)


def training_under_a_mode_of_ones_own(compile):
    from flambeau.ops.core.overrides import TorchFunctionMode

    class Counting(TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            Counting.calls += 1
            return func(*args, **(kwargs or {}))
    f = compile(lambda x: torch.tanh(x) * 2.0)
    for n in range(6):
        before = Counting.calls
        if n % 3 == 2:
            with Counting():
                y = f(vec() * n)
        else:
            y = f(vec() * n)
        yield y, Counting.calls - before
