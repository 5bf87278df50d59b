"""Compiled functions that meet themselves and each other: through hooks, finalizers, signals; reset and replaced."""

from __future__ import annotations

import gc
import signal
import weakref

from soundness.world import Thing, around, each, final, fit, line, nn, put, torch, vec


def called_by_its_own_hook(compile):
    net, depth = nn.Tanh(), []

    def hook(module, args, out):
        if len(depth) < 2:
            depth.append(1)
            try:
                return f(out)
            finally:
                depth.pop()
    net.register_forward_hook(hook)
    f = compile(lambda x: net(x) * 2.0)
    return (f(vec() * n) for n in range(6))


def called_by_a_property(compile):
    class Config:
        reads = 0

        @property
        def gain(self):
            self.reads += 1
            return inner(vec()).sum()
    config, box = Config(), Thing(gain=2.0)
    inner = compile(lambda x: x * box.gain)
    yield from around(compile(lambda x: x * config.gain), put(box, gain=3.0))
    yield config.reads


def called_by_a_finalizer(compile):
    done = []
    inner = compile(lambda x: x * len(done))

    class Brief:
        def __del__(self):
            done.append(inner(vec()))

    def f(x):
        Brief()
        return x * len(done)
    yield from each(compile(f), vec())
    yield done


def called_by_the_collector(compile):
    """A cycle that dies in the middle of a call changes what the call reads next."""
    box = Thing(gain=2.0)

    class Round:
        def __init__(self):
            self.me = self

        def __del__(self):
            box.gain += 1.0

    def f(x):
        x = x * box.gain
        Round()
        gc.collect(0)
        return x * box.gain
    return each(compile(f), vec(), calls=4)


def called_by_a_weak_reference(compile):
    box, gone = Thing(kept=None), []
    inner = compile(lambda x: x * 2.0)

    def f(x):
        box.kept = Thing()
        refs.append(weakref.ref(box.kept, lambda ref: gone.append(inner(vec() * len(gone)))))
        return x * len(gone)
    refs = []
    yield from each(compile(f), vec())
    yield gone


def called_by_a_signal(compile):
    seen = []
    inner = compile(lambda x: x * len(seen))
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(inner(vec())))

    def f(x):
        signal.raise_signal(signal.SIGUSR1)
        return x * len(seen)
    try:
        yield from each(compile(f), vec())
    finally:
        signal.signal(signal.SIGUSR1, before)
    yield seen


def two_that_share_a_count(compile):
    box = Thing(n=0)

    def up(x):
        box.n += 1
        return x * box.n

    def look(x):
        return x + box.n
    up, look = compile(up), compile(look)
    for n in range(8):
        yield (up if n % 3 else look)(vec()), box.n


def two_that_share_a_buffer(compile):
    memory = torch.zeros(3)
    write, read = compile(lambda x: memory.add_(x).sum()), compile(lambda x: memory * x)
    for n in range(8):
        yield write(vec()) if n % 3 else read(vec())
    yield memory


def two_that_share_an_optimizer(compile):
    net, opt, x, y = line()

    def backward():
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        return loss

    def descend():
        opt.step()
        opt.zero_grad()
    backward, descend = compile(backward), compile(descend)
    for n in range(8):
        yield backward(), final(net)
        if n % 2:
            descend()
    yield final(net, opt)


def three_deep(compile):
    box, log = Thing(gain=2.0), []
    a = compile(lambda x: log.append("a") or x * box.gain)
    b = compile(lambda x: log.append("b") or a(x) + 1)
    c = compile(lambda x: log.append("c") or b(b(x)))
    yield from around(c, put(box, gain=3.0))
    yield log


def replaced_by_itself(compile):
    """The first call puts another function in its place."""
    box = Thing(f=None)

    def first(x):
        box.f = compile(lambda x: x * 3.0)
        return x * 2.0
    box.f = compile(first)
    return (box.f(vec() * n) for n in range(5))


def reset_on_the_way(compile):
    box = Thing(gain=2.0, calls=0)

    def f(x):
        box.calls += 1
        return x * box.gain
    yield from around(compile(f), torch.compiler.reset, put(box, gain=3.0), torch.compiler.reset)
    yield box.calls


def left_out_on_the_way(compile):
    """A function that is never compiled, inside one that is."""
    seen, box = [], Thing(gain=2.0)

    @torch.compiler.disable
    def plain(x):
        seen.append(len(seen))
        return x * box.gain
    yield from around(compile(lambda x: plain(x) + 1), put(box, gain=3.0))
    yield seen


def generators_side_by_side(compile):
    def count(x):
        for n in range(4):
            got = yield x * n
            x = x + (got or 0)
    count = compile(count)
    a, b = count(vec()), count(vec() * 10)
    yield next(a), next(b)
    for n in range(3):
        yield a.send(n), b.send(n * 2)


def world_changed_while_arguments_are_made(compile):
    box = Thing(gain=2.0)
    f = compile(lambda x, n: x * box.gain + n)

    def louder():
        box.gain = 5.0 - box.gain
        return 1.0
    return (f(vec(), louder() if n % 2 else 1.0) for n in range(7))


def world_changed_by_what_is_returned(compile):
    box = Thing(gain=2.0)

    def f(x):
        def later(gain):
            box.gain = gain
        return x * box.gain, later
    f = compile(f)
    for gain in (2.0, 2.0, 3.0, 3.0, 2.0):
        y, later = f(vec())
        yield y
        later(gain)


def training_inside_a_forward(compile):
    """A layer that learns something of its own while it is used."""
    net, opt, x, y = line()

    class Learning(nn.Module):
        steps = 0

        def forward(self, v):
            with torch.enable_grad():
                fit(net, opt, x, y)
            self.steps += 1
            with torch.no_grad():
                return v * net.weight.sum() * self.steps
    layer = Learning()
    yield from each(compile(lambda v: layer(v)), vec())
    yield final(net, opt), layer.steps
