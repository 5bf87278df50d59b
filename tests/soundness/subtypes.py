"""Types made from builtin ones, which are not what they seem: dicts that compute, lists that lie, numbers with attributes."""

from __future__ import annotations

import collections

from soundness.world import Thing, around, each, item, put, torch, vec


def dict_with_missing(compile):
    class Table(dict):
        def __missing__(self, key):
            self.asked = getattr(self, "asked", 0) + 1
            return 2.0
    table = Table()
    yield from around(compile(lambda x: x * table["gain"]), item(table, "gain", 3.0), table.clear)
    yield table.asked


def dict_that_lies(compile):
    class Table(dict):
        bias = 0.0

        def __getitem__(self, key):
            return super().__getitem__(key) + self.bias
    table = Table(gain=2.0)
    return around(compile(lambda x: x * table["gain"]), put(table, bias=1.0), lambda: dict.__setitem__(table, "gain", 5.0))


def list_that_lies(compile):
    class Gains(list):
        turned = False

        def __iter__(self):
            return reversed(self) if self.turned else super().__iter__()
    gains = Gains([2.0, 3.0])

    def f(x):
        for gain in gains:
            x = x * gain + 1
        return x
    return around(compile(f), put(gains, turned=True), put(gains, turned=False))


def list_whose_length_lies(compile):
    class Gains(list):
        hidden = 0

        def __len__(self):
            return super().__len__() - self.hidden
    gains = Gains([2.0, 3.0])
    return around(compile(lambda x: x * gains[0] * len(gains)), put(gains, hidden=1))


def tuple_with_an_attribute(compile):
    class Pair(tuple):
        gain = 2.0
    pair = Pair((1, 2))
    return around(compile(lambda x: x * pair.gain + pair[0]), put(pair, gain=3.0))


def text_with_an_attribute(compile):
    class Name(str):
        gain = 2.0
    holder = Thing(name=Name("a"))

    def change():
        holder.name = Name("a")
        holder.name.gain = 3.0
    return around(compile(lambda x: x * holder.name.gain if holder.name == "a" else x), change)


def number_that_multiplies_its_own_way(compile):
    class Gain(int):
        extra = 0.0

        def __add__(self, other):
            return int(self) + other + self.extra
    gain = Gain(2)
    return around(compile(lambda x: x * (gain + 0)), put(gain, extra=1.0))


def set_with_an_order(compile):
    class Names(set):
        log = []

        def add(self, name):
            self.log.append(name)
            super().add(name)
    names = Names()

    def f(x):
        names.add(len(names) % 4)
        return x * len(names)
    yield from each(compile(f), vec())
    yield names.log


def default_factory_that_counts(compile):
    made = []
    table = collections.defaultdict(lambda: made.append(1) or [2.0])

    def f(x):
        gain = table[len(made)][0]
        return x * gain
    yield from each(compile(f), vec())
    yield dict(table), made


def object_with_torch_function(compile):
    class Wrapped(Thing):
        calls = 0

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.calls += 1
            return func(*[a.x if isinstance(a, Wrapped) else a for a in args], **(kwargs or {}))
    wrapped = Wrapped(x=vec())
    yield from each(compile(lambda x: torch.add(x, wrapped)), vec())
    yield Wrapped.calls
