"""A number that is another one at each call, used in every way that Python has for numbers: as an argument, as an attribute, as
an optimizer's learning rate. Some uses are arithmetic, others decide which way the call goes or leave the call.

The programs are made from a table: USES has functions of a tensor and a number, WAYS says where the number comes from.
"""

from __future__ import annotations

import copy
import fractions
import functools
import itertools
import json
import math
import operator
import pickle

import numpy as np

from soundness.world import F, Thing, line, torch, vec

LOG: list = []
TABLE = {2.0: "two", 3.0: "three", 0.5: "half"}


def many(x, n):
    for k in range(3):
        x = x * n + k
    return x


def kept(x, n):
    LOG.append(n)
    LOG.append([n, {"n": n}, (n,)])
    return x * n


def printed(x, n):
    print(n, f"{n:.2f}", n * 2, [n])
    return x * n


def caught(x, n, compute, error):
    try:
        return x * compute(n)
    except error:
        return x * -1.0 - n * 1.0


def checked(x, n):
    try:
        assert n > 1, "too small"
    except AssertionError as error:
        return x * n, str(error)
    return x * 2.0, "fine"


def while_loop(x, n):
    while n > 1:
        x, n = x + 1, n - 1
    return x


USES = {
    "arithmetic": lambda x, n: x * n + n * 2 - n / 4 + (-n) + n ** 2,
    "many_times": many,
    "base_of_a_power": lambda x, n: (abs(n) + 1) ** x,
    "exponent": lambda x, n: x ** n,
    "floor_and_rest": lambda x, n: x * (n // 1) + n % 1 + divmod(n, 2)[1],
    "absolute": lambda x, n: x * abs(n),
    "rounded": lambda x, n: x * round(n) + round(n, 1),
    "whole": lambda x, n: x * int(n) + math.floor(n) + math.ceil(n) + math.trunc(n),
    "is_whole": lambda x, n: x * 2.0 if float(n).is_integer() else x * 3.0,
    "compared": lambda x, n: x * 2.0 if n > 1 else x * 3.0,
    "compared_twice": lambda x, n: x * 2.0 if 0 < n <= 2 else x * 3.0,
    "equal": lambda x, n: x * 2.0 if n == 2 else x * n,
    "true_or_not": lambda x, n: x * 2.0 if n else x * 3.0,
    "or_another": lambda x, n: x * (n or 5.0) + (n and 2.0),
    "largest": lambda x, n: x * max(n, 1.0) + min(n, 1.0) + max([n, 2.0]),
    "sorted": lambda x, n: x * sorted([1.0, n, 2.0])[1],
    "summed": lambda x, n: x * sum([n, n, 1.0]) + math.fsum([n, 1.0]),
    "root": lambda x, n: x * math.sqrt(abs(n)) + math.exp(n / 10) + math.pow(2.0, n / 10),
    "sign": lambda x, n: x * math.copysign(2.0, n) + n,
    "fractional_part": lambda x, n: x * math.modf(n)[0] + math.frexp(n)[0],
    "kind_asked": lambda x, n: x * n if type(n) is float else x * 3.0 if isinstance(n, bool) else x - n,
    "kind_shown": lambda x, n: (x * n, type(n).__name__, type(n * 2).__name__, type(n + 1).__name__),
    "class_asked": lambda x, n: (x * n, n.__class__.__name__, isinstance(n, float), isinstance(n, (int, float))),
    "key": lambda x, n: x * len(TABLE.get(n, "")),
    "member": lambda x, n: x * 2.0 if n in (1, 2.0, 3) else x * 3.0,
    "position": lambda x, n: x * [1.0, 2.0, 3.0, 4.0][int(abs(n)) % 4],
    "hash": lambda x, n: x * (hash(n) % 7),
    "text": lambda x, n: x * len(str(n)) + len(f"{n:.3f}") + len(repr(n)) + len("%d" % n),  # noqa: UP031
    "text_given_back": lambda x, n: (x * n, str(n), f"{n}"),
    "json": lambda x, n: x * float(json.loads(json.dumps({"n": n}))["n"]),
    "pickled": lambda x, n: x * pickle.loads(pickle.dumps(n)),
    "copied": lambda x, n: x * copy.deepcopy(n) + copy.copy(n),
    "ratio": lambda x, n: x * (float(n).as_integer_ratio()[0] % 5) + float(fractions.Fraction(n)),
    "hexadecimal": lambda x, n: x * len(float(n).hex()),
    "repeated": lambda x, n: x * len([0] * int(abs(n))) + len("ab" * int(abs(n))),
    "range": lambda x, n: x * sum(range(int(abs(n)) + 1)),
    "while_loop": while_loop,
    "shape": lambda x, n: torch.ones(int(abs(n)) + 1) * n,
    "slice": lambda x, n: x[: int(abs(n))] * n,
    "dimension": lambda x, n: torch.ones(2, 3).sum(int(abs(n)) % 2) * n,
    "tensor": lambda x, n: x * torch.tensor(n) + torch.tensor([n, 1.0, n]),
    "filled": lambda x, n: x + torch.full((3,), n) + torch.full_like(x, float(n)),
    "clamped": lambda x, n: x.clamp(max=float(n)) + x.clamp(min=float(n)),
    "filled_in_place": lambda x, n: torch.zeros(3).fill_(n).add_(x, alpha=n),
    "written": lambda x, n: torch.zeros(3).index_fill(0, torch.tensor([1]), n) + x,
    "where": lambda x, n: torch.where(x > n, x, n),
    "compared_with_a_tensor": lambda x, n: (x > n).float() * n,
    "of_a_layer": lambda x, n: F.leaky_relu(x - 2, abs(float(n)) / 4) + F.softplus(x, beta=abs(float(n)) + 1),
    "dropped": lambda x, n: F.dropout(x, min(abs(n) / 4, 0.9)),
    "line_of_numbers": lambda x, n: x + torch.linspace(0, float(n), 3),
    "array": lambda x, n: x + float(np.float64(n) * 2) + float(np.array([n]).sum()),
    "array_given_back": lambda x, n: (x * n, np.array([n, 1.0])),
    "operator": lambda x, n: operator.mul(x, n) + operator.add(n, 1) + functools.reduce(operator.add, [n, n]),
    "folded": lambda x, n: x * list(itertools.accumulate([1.0, n, n]))[-1],
    "mapped": lambda x, n: x * sum(map(lambda v: v * 2, [n, 1.0])),  # noqa: C417
    "given_back": lambda x, n: n,
    "given_back_changed": lambda x, n: (x, n + 1, n * 2, [n], {"n": n}, -n),
    "given_back_later": lambda x, n: (lambda y: y * n),
    "kept": kept,
    "printed": printed,
    "checked": checked,
    "caught_by_dividing": lambda x, n: caught(x, n, lambda n: 1.0 / n, ZeroDivisionError),
    "caught_by_a_rest": lambda x, n: caught(x, n, lambda n: 5.0 % n, ZeroDivisionError),
    "caught_by_a_power": lambda x, n: caught(x, n, lambda n: n ** -1.0, ZeroDivisionError),
    "caught_by_a_root": lambda x, n: caught(x, n, lambda n: math.sqrt(n - 1), ValueError),
    "caught_by_a_logarithm": lambda x, n: caught(x, n, math.log, ValueError),
    "caught_by_a_large_one": lambda x, n: caught(x, n, lambda n: math.exp(n * 400), OverflowError),
    "caught_by_a_position": lambda x, n: caught(x, n, lambda n: [1.0, 2.0][int(n)], IndexError),
    "caught_by_a_key": lambda x, n: caught(x, n, lambda n: len(TABLE[n]), KeyError),
    "caught_by_a_conversion": lambda x, n: caught(x, n, lambda n: int(str(n)), ValueError),
    "complex": lambda x, n: x * complex(n, 1).real + abs(complex(n, 0)),
    "default": lambda x, n: (lambda y, k=n: y * k)(x),
    "unpacked": lambda x, n: (lambda a, *rest, **more: a * rest[0] + more["n"])(x, *[n], **{"n": n}),
    "product_of_two": lambda x, n: x * (n * n) + (n + n) * (n - 1),
}
FLOATS = 2.0, 2.0, 2.0, 3.0, 0.5, 2.0, -0.0, 0.0, 1.5, 3.0
INTS = 2, 2, 2, 3, 1, 2, 0, 3, 1, True, 4


def by_argument(compile, use):
    f = compile(use)
    for n in FLOATS:
        yield f(vec(), n)


def by_whole_argument(compile, use):
    f = compile(use)
    for n in INTS:
        yield f(vec(), n)


def by_attribute(compile, use):
    box = Thing(n=0.0)
    f = compile(lambda x: use(x, box.n))
    for box.n in FLOATS:
        yield f(vec())


def by_rate(compile, use):
    _, opt, _, _ = line()
    f = compile(lambda x: use(x, opt.param_groups[0]["lr"]))
    for n in FLOATS:
        opt.param_groups[0]["lr"] = n
        yield f(vec())


def by_argument_after_an_effect(compile, use):
    """The call cannot be skipped, which shows before the number is used."""
    def counted(x, n):
        LOG.append("called")
        return use(x, n)
    f = compile(counted)
    for n in FLOATS:
        yield f(vec(), n)


def by_rate_after_an_effect(compile, use):
    _, opt, _, _ = line()

    def counted(x):
        n = opt.param_groups[0]["lr"]
        LOG.append("called")
        return use(x, n)
    f = compile(counted)
    for n in FLOATS:
        opt.param_groups[0]["lr"] = n
        yield f(vec())


WAYS = {"argument_after_an_effect": by_argument_after_an_effect, "rate_after_an_effect": by_rate_after_an_effect,
        "argument": by_argument, "whole_argument": by_whole_argument, "attribute": by_attribute, "rate": by_rate}


def program(way, use):
    def run(compile):
        LOG.clear()
        for made in WAYS[way](compile, USES[use]):
            yield made(vec()) if callable(made) and not isinstance(made, torch.Tensor) else made, list(LOG)
    return run


# Every use with the number as an argument; every second one also as something else.
for _number, _use in enumerate(USES):
    for _way in ("argument", ("whole_argument", "attribute", "rate", "argument_after_an_effect", "rate_after_an_effect")[
            _number % 5]):
        globals()[f"{_use}_by_{_way}"] = program(_way, _use)


def effect_for_some_numbers(compile):
    """The first call without an effect is captured when the number has long been known to vary."""
    log = []

    def f(x, n):
        if n > 1:
            log.append("large")
        return x * n
    f = compile(f)
    for n in (2.0, 2.0, 3.0, 0.5, 0.75, 2.0, 0.25, 0.5):
        yield f(vec(), n), list(log)


def loop_over_some_numbers(compile):
    def f(x, n):
        while n > 1:
            print("turn")
            x, n = x + 1, n - 1
        return x
    f = compile(f)
    for n in (2.0, 2.0, 2.0, 3.0, 0.5, 2.0, -0.0, 1.5):
        yield f(vec(), n)
