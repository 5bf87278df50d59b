"""Calls that raise: before, between and after writes, in hooks, in backward passes, at the first call or a later one."""

from __future__ import annotations

from soundness.world import Thing, around, final, fit, line, nn, optim, put, torch, vec


class Refused(Exception):
    def __init__(self, message, payload=None):
        super().__init__(message)
        self.payload = payload


def tried(f, *args):
    """The result, or the exception's type and text."""
    try:
        return f(*args)
    except Exception as error:
        return [type(error).__name__, str(error).partition("\n")[0], len(error.args)]


def at(compile, f, box, bad, show=lambda: None, calls=8):
    """Calls of which some are to fail: box.bad says so. After each, what can be seen."""
    f = compile(f)
    for n in range(calls):
        box.bad = n in bad
        yield tried(f, vec()), show()


# ------------------------------------------------------------------------------------------------------------ when it raises
def at_the_first_call(compile):
    box = Thing()

    def f(x):
        if box.bad:
            raise Refused("bad")
        return x * 2.0
    return at(compile, f, box, {0, 1, 5})


def at_the_second_call(compile):
    box, log = Thing(), []

    def f(x):
        log.append("before")
        if box.bad:
            raise Refused("bad")
        log.append("after")
        return x * 2.0
    return at(compile, f, box, {1, 2, 6}, lambda: list(log))


def every_time_but_the_first(compile):
    box, log = Thing(), []

    def f(x):
        log.append(len(log))
        if len(log) > 1:
            raise Refused(f"call {len(log)}")
        return x * 2.0
    return at(compile, f, box, (), lambda: list(log))


def every_other_time(compile):
    box = Thing(n=0)

    def f(x):
        box.n += 1
        if box.n % 2:
            raise Refused(f"odd {box.n}")
        return x * 2.0
    return at(compile, f, box, (), lambda: box.n)


# ------------------------------------------------------------------------------------------------------------ what it leaves
def before_a_write(compile):
    box, buffer = Thing(), torch.zeros(3)

    def f(x):
        if box.bad:
            raise Refused("bad")
        buffer.add_(1)
        return x + buffer
    return at(compile, f, box, {4, 6}, lambda: buffer)


def between_two_writes(compile):
    box, buffer = Thing(), torch.zeros(3)

    def f(x):
        buffer.add_(1)
        if box.bad:
            raise Refused("bad")
        buffer.add_(10)
        return x + buffer
    return at(compile, f, box, {4, 6}, lambda: buffer)


def after_the_last_write(compile):
    box, buffer = Thing(), torch.zeros(3)

    def f(x):
        buffer.add_(1)
        y = x + buffer
        if box.bad:
            raise Refused("bad", y)
        return y
    return at(compile, f, box, {4, 6}, lambda: buffer)


def with_tensors_on_board(compile):
    box = Thing()

    def f(x):
        y = x * 2.0
        if box.bad:
            raise Refused("bad", [x, y])
        return y
    f = compile(f)
    for n in range(8):
        box.bad, x = n % 4 > 1, vec() * n
        try:
            yield f(x)
        except Refused as error:
            yield str(error), error.payload[0] is x, error.payload[1]


def by_a_shape_after_a_write(compile):
    box, buffer = Thing(), torch.zeros(3)

    def f(x):
        buffer.add_(1)
        y = x + torch.ones(4 if box.bad else 3)
        buffer.add_(10)
        return y
    return at(compile, f, box, {3, 4, 7}, lambda: buffer)


def by_an_index_after_a_write(compile):
    buffer = torch.zeros(3)

    @compile
    def f(x, index):
        buffer.add_(1)
        y = x[index]
        buffer.add_(10)
        return y * 2.0
    for n in range(8):
        y = tried(f, vec(), torch.tensor([0, 7 if n in (3, 6) else 1]))
        yield y[0] if isinstance(y, list) else y, buffer


def by_an_argument_that_does_not_fit(compile):
    @compile
    def f(x, w):
        x.add_(1)
        return x * w
    for n in range(8):
        x = vec()
        yield tried(f, x, vec(4 if n in (2, 5, 6) else 3)), x


def by_a_dtype(compile):
    box, buffer = Thing(kind=torch.float32), torch.zeros(3)

    def f(x):
        buffer.add_(1)
        x.add_(torch.ones(3, dtype=box.kind) if box.kind.is_floating_point else torch.ones(3))
        return x.view(torch.int32) if box.kind is torch.float32 else x.view(7)
    f = compile(f)
    return around(lambda x: (tried(f, x), buffer), put(box, kind=torch.int64), put(box, kind=torch.float32))


def by_a_leaf_that_is_written(compile):
    weight = torch.ones(3)

    def f(x):
        weight.mul_(2.0)
        return x * weight
    f = compile(f)
    for n in range(8):
        weight.requires_grad_(n in (3, 6))
        yield tried(f, vec()), weight


def by_the_second_parameter(compile):
    """An update of all parameters that stops half-way leaves half of them changed."""
    net, box = nn.Linear(3, 1), Thing()

    def f(x):
        with torch.no_grad():
            for n, p in enumerate(net.parameters()):
                if box.bad and n == 1:
                    raise Refused("half-way")
                p.add_(1)
        return net(x)
    return at(compile, f, box, {3, 5}, net.state_dict)


def between_backward_and_step(compile):
    net, opt, x, y = line(lambda ps: optim.SGD(ps, lr=0.1, momentum=0.9))
    box = Thing()

    def f(_):
        opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        if box.bad:
            raise Refused("bad")
        opt.step()
        return loss
    return at(compile, f, box, {0, 4}, lambda: final(net, opt))


def in_the_second_backward(compile):
    net, opt, x, y = line()
    box = Thing()

    def f(_):
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        if box.bad:
            loss.backward()
        opt.step()
        return loss
    f = compile(f)
    for n in range(6):
        box.bad = n in (2, 4)
        loss = tried(f, None)
        yield loss[0] if isinstance(loss, list) else loss, final(net, opt)


# ------------------------------------------------------------------------------------------------------------ where it raises
def in_a_forward_hook(compile):
    net, box = nn.Linear(3, 1), Thing()

    def hook(module, args, out):
        if box.bad:
            raise Refused("in the hook")
    net.register_forward_hook(hook)
    return at(compile, lambda x: net(x), box, {3, 6})


def in_a_gradient_hook(compile):
    net, opt, x, y = line()
    box = Thing()

    def hook(grad):
        if box.bad:
            raise Refused("in the hook")
    net.bias.register_hook(hook)
    return at(compile, lambda _: fit(net, opt, x, y), box, {3, 6}, lambda: final(net, opt))


def in_a_backward_of_ones_own(compile):
    box = Thing()

    class Fragile(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0

        @staticmethod
        def backward(ctx, grad):
            if box.bad:
                raise Refused("in backward")
            return grad * 2.0
    weight = torch.ones(3, requires_grad=True)

    def f(x):
        weight.grad = None
        Fragile.apply(weight * x).sum().backward()
        return weight.grad
    return at(compile, f, box, {3, 6}, lambda: weight.grad)


def in_an_optimizer_of_ones_own(compile):
    class Fragile(optim.SGD):
        def step(self, closure=None):
            if box.bad:
                raise Refused("in step")
            return super().step(closure)
    net, opt, x, y = line(lambda ps: Fragile(ps, lr=0.1))
    box = Thing()
    return at(compile, lambda _: fit(net, opt, x, y), box, {2, 5}, lambda: final(net, opt))


def in_a_property(compile):
    class Config(Thing):
        @property
        def gain(self):
            if self.bad:
                raise AttributeError("no gain")
            return 2.0
    box = Config()
    return at(compile, lambda x: x * getattr(box, "gain", 3.0), box, {3, 4})


def in_a_function_that_is_compiled_too(compile):
    box, log = Thing(), []

    def inner(x):
        log.append("inner")
        if box.bad:
            raise Refused("inside")
        return x * 2.0
    inner = compile(inner)

    def outer(x):
        try:
            return inner(x)
        finally:
            log.append("outer")
    return at(compile, outer, box, {3, 5}, lambda: list(log))


def in_a_with_block(compile):
    """Modes are as they were when an exception leaves the block."""
    box = Thing()

    def f(x):
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            if box.bad:
                raise Refused("bad")
            return x * 2.0
    return at(compile, f, box, {0, 4}, lambda: (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))


def in_a_mode_that_is_left_on(compile):
    box = Thing()

    def f(x):
        torch.set_grad_enabled(False)
        if box.bad:
            raise Refused("bad")
        y = x * 2.0
        torch.set_grad_enabled(True)
        return y
    try:
        yield from at(compile, f, box, {0, 4}, torch.is_grad_enabled)
    finally:
        torch.set_grad_enabled(True)


def in_an_iteration(compile):
    box = Thing()

    def numbers():
        yield 2.0
        if box.bad:
            raise Refused("in the generator")
        yield 3.0

    def f(x):
        for n in numbers():
            x = x * n
        return x
    return at(compile, f, box, {3, 6})


def while_drawing_random_numbers(compile):
    box = Thing()

    def f(x):
        y = x * torch.rand(3)
        if box.bad:
            raise Refused("bad")
        return y * torch.rand(3)
    return at(compile, f, box, {2, 5})
