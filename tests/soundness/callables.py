"""What is compiled and how it is called: methods, objects, partials, generators, coroutines; arguments of every kind."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import inspect
import itertools
import operator
import pickle
import threading
import types

import numpy as np

from soundness.world import Thing, around, each, final, fit, item, line, nn, optim, put, torch, turns, vec


class Gain(nn.Module):
    def __init__(self, gain=2.0):
        super().__init__()
        self.gain = gain

    def forward(self, x):
        return x * self.gain


class Scaler:
    rate = 2.0

    def __init__(self, gain=2.0):
        self.gain = gain

    def scale(self, x):
        return x * self.gain

    @classmethod
    def rated(cls, x):
        return x * cls.rate

    @staticmethod
    def fixed(x):
        return x * Scaler.rate

    def __call__(self, x):
        return self.scale(x) + 1


# ---------------------------------------------------------------------------------------------------- what can be compiled
def object_with_call(compile):
    scaler = Scaler()
    return around(compile(scaler), put(scaler, gain=3.0), put(scaler, scale=lambda x: x * 2.0))


def method_bound(compile):
    scaler = Scaler()
    return around(compile(scaler.scale), put(scaler, gain=3.0))


def method_of_the_class(compile):
    class Other(Scaler):
        pass
    return around(compile(Other.rated), put(Other, rate=3.0), lambda: delattr(Other, "rate"))


def method_static_replaced_in_its_class(compile):
    class Other(Scaler):
        pass
    f = compile(lambda x: Other.fixed(x))
    return around(f, put(Other, fixed=staticmethod(lambda x: x * 3.0)))


def method_compiled_in_the_class(compile):
    class Box:
        def __init__(self, gain):
            self.gain, self.calls = gain, 0

        @compile
        def scale(self, x):
            self.calls += 1
            return x * self.gain
    a, b = Box(2.0), Box(3.0)
    for n in range(6):
        b.gain = 3.0 if n < 3 else 2.0
        yield a.scale(vec()), b.scale(vec()), a.calls, b.calls


def property_that_is_compiled(compile):
    class Box(Thing):
        @property
        @compile
        def doubled(self):
            return self.x * self.gain
    box = Box(x=vec(), gain=2.0)
    for n in range(8):
        box.gain = 2.0 if n % 6 < 3 else 3.0
        yield box.doubled


def partial_of_partial(compile):
    def f(a, b, x, c=0.0):
        return x * a * b + c
    inner = functools.partial(f, 2.0)
    outer = functools.partial(inner, 1.0, c=1.0)
    return around(compile(outer), item(outer.keywords, "c", 2.0))


def builtin_function(compile):
    f = compile(torch.tanh)
    return (f(vec() * n) for n in range(6))


def operator_function(compile):
    return turns(compile(operator.mul), (2.0, 2.0, 3.0, 2, vec(), True))


def cached_function_compiled(compile):
    asked = []

    @functools.lru_cache
    def gain(n):
        asked.append(n)
        return vec() * n
    f = compile(gain)
    for n in (2, 3, 2, 2, 3, 4):
        yield f(n), list(asked)


def generator_function(compile):
    def f(x):
        for n in range(3):
            log.append(n)
            yield x * n
    log = []
    f = compile(f)
    for n in range(4):
        it = f(vec() * n)
        yield next(it), len(log)
        yield list(it), len(log)


def coroutine_function(compile):
    async def f(x):
        await asyncio.sleep(0)
        log.append(1)
        return x * len(log)
    log = []
    f = compile(f)
    for n in range(4):
        yield asyncio.run(f(vec() * n)), len(log)


def context_manager_function(compile):
    log = []

    @contextlib.contextmanager
    @compile
    def section(name):
        log.append(f"in {name}")
        yield vec() * len(log)
        log.append(f"out {name}")
    for name in "abab":
        with section(name) as x:
            yield x, list(log)


def recursive_function(compile):
    depth = []

    def power(x, n):
        depth.append(n)
        return x if n == 0 else f(x, n - 1) * 2.0
    f = compile(power)
    for n in (1, 1, 1, 2, 3, 1):
        yield f(vec(), n), list(depth)


def compiled_inside_compiled(compile):
    box, log = Thing(gain=2.0), []
    inner = compile(lambda x: log.append(1) or x * box.gain)
    return around(compile(lambda x: (inner(x) + 1, len(log))), put(box, gain=3.0))


def compiled_again(compile):
    box = Thing(gain=2.0)
    return around(compile(compile(lambda x: x * box.gain)), put(box, gain=3.0))


def compiled_in_the_call(compile):
    box = Thing(gain=2.0)
    return around(compile(lambda x: compile(lambda y: y * box.gain)(x) + 1), put(box, gain=3.0))


def compiled_and_plain_in_turn(compile):
    """The plain function changes what the compiled one sees, and the other way round."""
    box = Thing(n=0)

    def plain(x):
        box.n += 1
        return x * box.n
    f = compile(plain)
    for n in range(8):
        yield (plain if n % 3 == 2 else f)(vec())


def names_of_the_function(compile):
    def scale(x, gain=2.0, *, bias=0):
        """Multiplies."""
        return x * gain + bias
    f = compile(scale)
    for n in range(3):
        yield f(vec(), n), f.__name__, f.__doc__, str(inspect.signature(f))


def function_copied_and_pickled(compile):
    net = nn.Linear(3, 1)
    f = compile(lambda x: net(x))
    for n in range(6):
        if n == 3:
            net = pickle.loads(pickle.dumps(copy.deepcopy(net)))
            with torch.no_grad():
                net.weight.mul_(2.0)
        yield f(vec())


def module_compiled_and_copied(compile):
    net = compile(Gain())
    twin = copy.deepcopy(net)
    for n in range(6):
        if n == 3:
            twin.gain = 3.0
        yield net(vec()), twin(vec())


def module_compiled_keeps_its_names(compile):
    plain = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    net = compile(plain)
    for n in range(4):
        plain[0].bias.data.fill_(float(n))
        yield net(vec()), [p.shape for p in net.parameters()], net.training


def module_compiled_in_place(compile):
    net, opt, x, y = line()
    layer = compile(net)
    yield from each(lambda: fit(layer, opt, x, y))
    yield final(net, opt)


def forward_compiled_and_patched(compile):
    net = Gain()
    net.forward = compile(net.forward)
    before = net.forward
    return around(net, put(net, gain=3.0), put(net, forward=lambda x: before(x) + 1))


def used_as_an_optimizers_closure(compile):
    net, opt, x, y = line()

    @compile
    def closure():
        opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        calls.append(1)
        return loss
    calls = []
    for _ in range(6):
        yield opt.step(closure), len(calls)
    yield final(net, opt)


def used_as_a_key(compile):
    calls = []
    key = compile(lambda n: calls.append(n) or -n)
    for numbers in ([3, 1, 2], [3, 1, 2], [5, 6]):
        yield sorted(numbers, key=key), list(map(key, numbers)), len(calls)


def used_as_a_hook(compile):
    seen = []
    net = nn.Linear(3, 1)
    net.register_forward_hook(compile(lambda module, args, out: seen.append(len(seen)) or out * 2.0))
    yield from each(net, vec())
    yield seen


def used_under_a_transform(compile):
    box = Thing(gain=2.0)
    f = compile(lambda x: (x * x * box.gain).sum())
    return around(torch.func.grad(f), put(box, gain=3.0))


def used_from_threads_in_turn(compile):
    box = Thing(calls=0)

    def f(x):
        box.calls += 1
        return x * box.calls
    f = compile(f)
    for n in range(6):
        made = []
        if n % 2:
            thread = threading.Thread(target=lambda: made.append(f(vec())))
            thread.start(), thread.join()
        yield made or f(vec()), box.calls


# --------------------------------------------------------------------------------------------------------------- arguments
def positional_only_and_the_rest(compile):
    def f(x, /, *rest, gain=2.0, **more):
        return x * gain + sum(rest) + sum(more.values())
    f = compile(f)
    for args, kwargs in itertools.product([(), (1.0,), (1.0, 2.0)], [{}, {"gain": 3.0}, {"a": 1.0, "b": 2.0}]):
        yield f(vec(), *args, **kwargs)


def keywords_in_their_order(compile):
    def f(x, **parts):
        for name, value in parts.items():
            x = x * value + len(name)
        return x
    f = compile(f)
    for n in range(8):
        yield f(vec(), a=2.0, four=3.0) if n % 4 < 2 else f(vec(), four=3.0, a=2.0)


def default_given_or_not(compile):
    nothing = object()

    def f(x, gain=nothing):
        return x * 2.0 if gain is nothing else x * 3.0
    f = compile(f)
    for n in range(8):
        yield f(vec()) if n % 4 < 2 else f(vec(), gain=None)


def numbers_of_each_type(compile):
    f = compile(lambda x, n: (x * n, torch.arange(3) * n))
    return turns(f, (2, 2.0, True, 2, np.float32(2.0), np.int64(2), 0, -0.0, 0.0, False, 2.5, 3))


def numbers_that_are_always_new(compile):
    return turns(compile(lambda x, n: x * n + n * n), [1.0 + n / 7 for n in range(9)])


def ints_in_shapes_and_slices(compile):
    f = compile(lambda x, n: (x[:n], x.expand(n, 3).sum(0), torch.zeros(n), x * n))
    return turns(f, (1, 2, 3, 2, 1, 0, 3))


def text_and_bytes(compile):
    f = compile(lambda x, mode: x * 2.0 if mode in ("a", b"a") else x * 3.0)
    return turns(f, ("a", "a", "b", b"a", b"b", "a" * 2, ""))


def functions_as_arguments(compile):
    return turns(compile(lambda x, g: g(x)), (torch.tanh, torch.tanh, torch.sigmoid, torch.tanh, abs, nn.ReLU(), torch.neg))


def functions_with_closures_as_arguments(compile):
    """The same code each time, with other cells."""
    def times(gain):
        return lambda x: x * gain
    return turns(compile(lambda x, g: g(x)), [times(g) for g in (2.0, 2.0, 3.0, 2.0, 3.0, 5.0)])


def functions_that_count_as_arguments(compile):
    seen = []
    f = compile(lambda x, report: report(len(seen)) or x * 2.0)
    yield from turns(f, [seen.append, seen.append, print, seen.append, print])
    yield seen


def classes_as_arguments(compile):
    class Half:
        gain = 0.5

    class Twice:
        gain = 2.0
    return turns(compile(lambda x, kind: x * kind.gain), (Twice, Twice, Half, Twice, Half, Half))


def types_as_arguments(compile):
    f = compile(lambda x, kind: (x.to(kind) * 2, str(kind)))
    return turns(f, (torch.float32, torch.float32, torch.float64, torch.int64, torch.float32, torch.int64))


def modules_as_arguments(compile):
    a, b = nn.Linear(3, 1), nn.Linear(3, 1)
    f = compile(lambda x, net: net(x))
    yield from turns(f, (a, a, b, b, a, nn.Tanh(), b))
    with torch.no_grad():
        b.weight.zero_()
    yield from turns(f, (a, b, b))


def optimizers_as_arguments(compile):
    net, opt, x, y = line()
    other = optim.SGD(net.parameters(), lr=0.5)
    step = compile(lambda opt: fit(net, opt, x, y))
    for n in range(8):
        yield step(other if n % 4 > 1 else opt)
    yield final(net)


class Mode(enum.Enum):
    ADD = "add"
    TIMES = "times"


def enums_as_arguments(compile):
    def f(x, mode):
        match mode:
            case Mode.ADD:
                return x + 1
            case Mode.TIMES:
                return x * 2.0
    return turns(compile(f), (Mode.ADD, Mode.ADD, Mode.TIMES, Mode.TIMES, Mode.ADD, Mode("times")))


def none_and_ellipsis(compile):
    f = compile(lambda x, part: x[part] * 2.0)
    return turns(f, (None, ..., None, slice(1, None), 0, ..., (None, slice(None, 2)), 0))


def dataclasses_as_arguments(compile):
    @dataclasses.dataclass
    class Batch:
        x: object
        gain: float
        seen: list = dataclasses.field(default_factory=list)

    def f(batch):
        batch.seen.append(1)
        batch.gain += 1.0
        return batch.x * batch.gain
    f = compile(f)
    for n in range(6):
        batch = Batch(vec(), n // 3)
        yield f(batch), f(batch), batch.gain, batch.seen


def objects_as_arguments(compile):
    f = compile(lambda x, box: x * box.inner.gain)
    boxes = [Thing(inner=Thing(gain=g)) for g in (2.0, 3.0)]
    for n in range(9):
        if n == 6:
            boxes[0].inner.gain = 5.0
        yield f(vec(), boxes[n % 2])


def arrays_as_arguments(compile):
    f = compile(lambda x, a: x * float(a.sum()) + len(a))
    a = np.ones(2)
    for n in range(8):
        a[0] = n // 3
        yield f(vec(), a if n != 7 else np.ones(5))


def generators_as_arguments(compile):
    f = compile(lambda x, it: x * sum(it))
    return (f(vec(), (k for k in range(n))) for n in (3, 3, 4, 3, 4))


def devices_and_sizes(compile):
    f = compile(lambda x, size: torch.zeros(size) + x.sum() if isinstance(size, torch.Size) else x * len(size))
    return turns(f, (torch.Size([2]), torch.Size([2]), (1, 2), torch.Size([3]), [1, 2], torch.Size([2])))


def tensor_or_number(compile):
    f = compile(lambda x, y: x * y)
    return turns(f, (2.0, 2.0, torch.tensor(2.0), vec(), torch.tensor(3.0), 3.0, torch.tensor(2), vec(1)))


def the_same_object_twice(compile):
    f = compile(lambda a, b: a.append(1.0) or vec() * len(b))
    for n in range(8):
        one, two = [1.0], [1.0]
        yield f(one, one if n % 4 > 1 else two), one, two


def argument_without_hash_or_equality(compile):
    class Odd(Thing):
        __hash__ = None

        def __eq__(self, other):
            raise TypeError("not to be compared")
    f = compile(lambda x, box: x * box.gain)
    return turns(f, [Odd(gain=g) for g in (2.0, 2.0, 3.0, 2.0, 3.0)])


def arguments_missing_or_too_many(compile):
    def f(x, gain):
        return x * gain
    f = compile(f)
    for n in range(6):
        try:
            yield f(vec(), 2.0) if n % 3 else f(vec())
        except TypeError as error:
            yield str(error)


def results_of_each_type(compile):
    point = collections.namedtuple("Point", "x y")
    made = {0: lambda y: y, 1: lambda y: [y], 2: lambda y: (y, None), 3: lambda y: {"y": y}, 4: lambda y: point(y, 1),
            5: lambda y: types.SimpleNamespace(y=y), 6: lambda y: None, 7: lambda y: 3, 8: lambda y: "text",
            9: lambda y: {1, 2}}
    f = compile(lambda x, n: made[n](x * 2.0))
    for n in (*range(10), *range(10)):
        yield f(vec() * n, n)
