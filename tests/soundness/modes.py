"""Modes, settings and random numbers of the library: around the call, inside it, left behind by it."""

from __future__ import annotations

import contextlib
import copy
import itertools
import random

import numpy as np

from soundness.world import F, Thing, around, each, final, fit, line, nn, optim, put, torch, vec


@contextlib.contextmanager
def restored(get, set):
    before = get()
    try:
        yield
    finally:
        set(before)


# ------------------------------------------------------------------------------------------------------------------- dtypes
def default_dtype(compile):
    def f(x):
        return x + torch.ones(3) * 2.0, torch.tensor(1.5)
    with restored(torch.get_default_dtype, torch.set_default_dtype):
        yield from around(compile(f), lambda: torch.set_default_dtype(torch.float64),
                          lambda: torch.set_default_dtype(torch.float32), args=(torch.arange(3),))


def default_dtype_set_by_the_call(compile):
    kinds = itertools.cycle([torch.float64, torch.float32, torch.float32])

    def f(x):
        torch.set_default_dtype(next(kinds))
        return x * torch.ones(3)
    with restored(torch.get_default_dtype, torch.set_default_dtype):
        f = compile(f)
        for _ in range(7):
            yield f(torch.arange(3)), str(torch.get_default_dtype())


def dtype_of_a_configuration(compile):
    box = Thing(dtype=torch.float32)
    return around(compile(lambda x: x.to(box.dtype) * 2), put(box, dtype=torch.float64), put(box, dtype=torch.int32))


def layer_made_in_the_default_dtype(compile):
    def f():
        net = nn.Linear(3, 1)
        return net.weight.dtype == torch.float64, net(torch.ones(3, dtype=net.weight.dtype))
    with restored(torch.get_default_dtype, torch.set_default_dtype):
        yield from around(compile(f), lambda: torch.set_default_dtype(torch.float64), args=())


# ----------------------------------------------------------------------------------------------------------------- autocast
def autocast_around(compile):
    net = nn.Linear(3, 1)
    f = compile(lambda x: net(x))
    for n in range(8):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=n % 4 > 1):
            yield f(vec())


def autocast_of_another_kind(compile):
    net, box = nn.Linear(3, 1), Thing(dtype=torch.bfloat16)

    def f(x):
        with torch.autocast("cpu", dtype=box.dtype):
            return net(x)
    return around(compile(f), put(box, dtype=torch.float16), put(box, dtype=torch.bfloat16))


def autocast_by_a_flag(compile):
    net, opt, x, y = line()
    box = Thing(mixed=False)

    @compile
    def step():
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=box.mixed):
            out = net(x)
        loss = ((out.float() - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss.bfloat16(), str(out.dtype)
    return around(step, put(box, mixed=True), put(box, mixed=False), args=())


def autocast_switched_off_inside(compile):
    net, box = nn.Linear(3, 1), Thing(careful=False)

    def f(x):
        with torch.autocast("cpu", enabled=False) if box.careful else contextlib.nullcontext():
            return net(x)
    f = compile(f)
    for n in range(8):
        box.careful = n % 4 > 1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            yield f(vec())


# ------------------------------------------------------------------------------------------------------- other settings
def deterministic_algorithms(compile):
    def f(x):
        return x * 3.0 if torch.are_deterministic_algorithms_enabled() else x * 2.0
    with restored(torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms):
        yield from around(compile(f), lambda: torch.use_deterministic_algorithms(True))


def threads_set_by_the_call(compile):
    with restored(torch.get_num_threads, torch.set_num_threads):
        counts = itertools.cycle([1, 2])
        f = compile(lambda x: torch.set_num_threads(next(counts)) or x * 2.0)
        for _ in range(6):
            yield f(vec()), torch.get_num_threads()


def precision_of_products(compile):
    f = compile(lambda x: x * 3.0 if torch.get_float32_matmul_precision() == "high" else x * 2.0)
    with restored(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision):
        torch.set_float32_matmul_precision("highest")
        yield from around(f, lambda: torch.set_float32_matmul_precision("high"))


def print_options(compile):
    f = compile(lambda x: len(str(x / 3)))
    try:
        yield from around(f, lambda: torch.set_printoptions(precision=2), lambda: torch.set_printoptions(precision=6))
    finally:
        torch.set_printoptions(profile="default")


def print_options_of_numpy(compile):
    f = compile(lambda x: len(repr(x.numpy() / 3)))
    with np.printoptions():
        yield from around(f, lambda: np.set_printoptions(precision=2))


def device_by_default(compile):
    """Tensors made inside are where the block around the call says."""
    f = compile(lambda: torch.ones(3).device.type)
    for n in range(8):
        with torch.device("meta" if n % 4 > 1 else "cpu"):
            yield f()


def floating_point_errors_of_numpy(compile):
    box = Thing(n=0.0)

    def f(x):
        try:
            return x * float(np.float64(1.0) / np.float64(box.n))
        except FloatingPointError:
            return x * -1.0
    f = compile(f)
    for n in range(8):
        with np.errstate(divide="raise" if n % 4 > 1 else "ignore"):
            yield f(vec())


# ------------------------------------------------------------------------------------------------------------ random numbers
def random_tensors(compile):
    def f(x):
        return (x * torch.rand(3), torch.randn(2), torch.randint(9, (2,)), torch.randperm(5), torch.bernoulli(x / 4),
                torch.multinomial(x, 2), torch.normal(x, 1.0), torch.empty(2).uniform_(), torch.rand_like(x))
    return each(compile(f), vec())


def random_numbers_after_the_call(compile):
    f = compile(lambda x: x * torch.rand(3))
    for _ in range(6):
        yield f(vec()), torch.rand(2)


def random_seed_between(compile):
    f = compile(lambda x: x * torch.rand(3))
    return around(f, lambda: torch.manual_seed(7), lambda: torch.manual_seed(7))


def random_seed_inside(compile):
    def f(x):
        torch.manual_seed(3)
        return x * torch.rand(3)
    f = compile(f)
    for _ in range(6):
        yield torch.rand(1), f(vec()), torch.rand(1)


def random_seed_by_the_step(compile):
    box = Thing(step=0)

    def f(x):
        box.step += 1
        torch.manual_seed(box.step // 2)
        return x * torch.rand(3)
    yield from each(compile(f), vec())
    yield torch.rand(1)


def random_state_saved_and_restored_inside(compile):
    def f(x):
        before = torch.get_rng_state()
        a = torch.rand(3)
        torch.set_rng_state(before)
        return x * a, torch.rand(3)
    yield from each(compile(f), vec())
    yield torch.rand(1)


def random_state_put_back_outside(compile):
    f = compile(lambda x: x * torch.rand(3))
    states = []
    for n in range(8):
        states.append(torch.get_rng_state())
        if n == 4:
            torch.set_rng_state(states[1])
        yield f(vec())


def random_numbers_in_a_fork(compile):
    def f(x):
        with torch.random.fork_rng():
            torch.manual_seed(1)
            a = torch.rand(3)
        return x * a * torch.rand(3)
    return each(compile(f), vec())


def random_generators(compile):
    box = Thing(source=torch.Generator().manual_seed(1))
    f = compile(lambda x: x * torch.rand(3, generator=box.source))
    return around(f, lambda: box.source.manual_seed(1), lambda: put(box, source=torch.Generator().manual_seed(2))(),
                  put(box, source=None))


def random_generator_copied(compile):
    source = torch.Generator().manual_seed(1)
    twin = torch.Generator()
    f = compile(lambda x: x * torch.rand(3, generator=source))
    for _ in range(6):
        twin.set_state(source.get_state())
        yield f(vec()), torch.rand(3, generator=twin), torch.equal(twin.get_state(), source.get_state())


def random_generators_in_turn(compile):
    a, b = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    f = compile(lambda x, source: x * torch.rand(3, generator=source))
    for n in range(8):
        yield f(vec(), a if n % 3 else b)


def random_numbers_by_the_shape(compile):
    f = compile(lambda x: x * torch.rand(len(x)))
    for n in (3, 3, 4, 3, 5, 4, 3):
        yield f(vec(n))
    yield torch.rand(1)


def random_numbers_sometimes(compile):
    box = Thing(noisy=False)
    f = compile(lambda x: x + torch.rand(3) if box.noisy else x * 2.0)
    yield from around(f, put(box, noisy=True), put(box, noisy=False))
    yield torch.rand(1)


def random_numbers_until_one_is_large(compile):
    def f(x):
        n = 0
        while torch.rand(()).item() < 0.7:
            n += 1
        return x * n
    yield from each(compile(f), vec())
    yield torch.rand(1)


def dropout_in_a_step(compile):
    net, opt, x, y = line()
    box = Thing(share=0.5)

    @compile
    def step():
        opt.zero_grad()
        loss = ((net(F.dropout(x, box.share)) - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss
    yield from around(step, put(box, share=0.1), args=())
    yield final(net), torch.rand(1)


def noise_on_the_weights(compile):
    net, opt, x, y = line()
    source = random.Random(4)

    @compile
    def step():
        loss = fit(net, opt, x, y)
        with torch.no_grad():
            for p in net.parameters():
                p.add_(torch.randn_like(p), alpha=source.random())
        return loss
    yield from each(step)
    yield final(net)


def layers_made_inside(compile):
    """Their parameters are random numbers of this call."""
    f = compile(lambda x: nn.Linear(3, 1)(x))
    yield from each(f, vec())
    yield torch.rand(1)


def initialisation_inside(compile):
    net = nn.Linear(3, 1)

    def f(x):
        nn.init.normal_(net.weight)
        nn.init.uniform_(net.bias)
        return net(x)
    yield from each(compile(f), vec())
    yield net.state_dict()


def distributions_sampled(compile):
    box = Thing(scale=1.0)
    f = compile(lambda x: torch.distributions.Normal(x, box.scale).rsample())
    yield from around(f, put(box, scale=2.0))
    yield torch.rand(1)


def model_with_every_mode(compile):
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 1))
    opt = optim.SGD(net.parameters(), lr=0.1)
    x = torch.arange(12.0).reshape(4, 3) / 12
    step, look = compile(lambda: fit(net, opt, x, x[:, :1])), compile(lambda: net(x))
    for n in range(4):
        net.train()
        yield step(), step()
        net.eval()
        with torch.no_grad():
            yield look(), copy.deepcopy(net.state_dict())
        if n == 2:
            net[2].p = 0.1
    yield final(net)
