"""What Python asks by the way: lengths of what goes to a list, attributes of containers, the order of bases, `__getattr__`."""

from __future__ import annotations

import itertools
from collections import OrderedDict, defaultdict

from soundness.world import Thing, around, each, item, nn, put, torch, vec


class Numbers:
    """Can be gone through, and tells when somebody asks how many there are."""

    def __iter__(self):
        return iter([1.0, 2.0])

    def __len__(self):
        print("asked")
        return 2


def length_asked_by_list(compile):
    held = Numbers()
    return each(compile(lambda x: x * list(held)[1]), vec())


def length_asked_by_tuple(compile):
    held = Numbers()
    return each(compile(lambda x: x * tuple(held)[1]), vec())


def length_asked_by_a_star(compile):
    held = Numbers()
    return each(compile(lambda x: x * [*held][1] * max(*held)), vec())


def length_asked_by_sorted(compile):
    held = Numbers()
    return each(compile(lambda x: x * sorted(held)[1]), vec())


def length_asked_by_extend(compile):
    held = Numbers()

    def f(x):
        made = [1.0]
        made.extend(held)
        return x * sum(made)
    return each(compile(f), vec())


def length_not_asked_by_a_loop(compile):
    held = Numbers()
    f = compile(lambda x: x * sum(held) * max(held))
    return (f(vec() + n) for n in range(5))


def length_hinted(compile):
    class Hinting:
        def __iter__(self):
            return iter([1.0, 2.0])

        def __length_hint__(self):
            print("asked")
            return 2
    held = Hinting()
    return each(compile(lambda x: x * list(held)[1]), vec())


def iterator_kept_by_an_object(compile):
    class Kept:
        def __init__(self):
            self.it = iter([float(n) for n in range(1, 12)])

        def __iter__(self):
            return self.it
    held = Kept()

    def f(x):
        for v in held:
            return x * v
        return x
    return each(compile(f), vec(), calls=8)


def iterator_of_map_kept_by_an_object(compile):
    class Kept:
        it = map(float, range(20))

        def __iter__(self):
            return Kept.it
    held = Kept()
    Kept.it = map(float, range(20))
    return each(compile(lambda x: x * sum(itertools.islice(iter(held), 2))), vec())


def list_that_goes_through_another(compile):
    class Lying(list):
        def __iter__(self):
            return self.it
    held = Lying([1.0, 2.0])
    held.it = iter((3.0, 4.0))

    def f(x):
        for v in held:
            x = x * v
        return x
    return each(compile(f), vec())


class Sequence:
    """Has a length and items, and can be gone through."""

    def __init__(self, *values):
        self.values = list(values)

    def __iter__(self):
        return iter(self.values)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, n):
        return self.values[n]


def sequence_from_its_end(compile):
    held = Sequence(1.0, 2.0)
    return around(compile(lambda x: x * next(iter(reversed(held)))), lambda: held.values.append(5.0))


def from_its_end_in_its_own_way(compile):
    class Own:
        values = [1.0, 2.0]

        def __reversed__(self):
            return iter(self.values)
    held = Own()
    Own.values = [1.0, 2.0]
    return around(compile(lambda x: x * sum(reversed(held))), lambda: Own.values.append(5.0))


def object_repeated(compile):
    held = Sequence(2.0)
    held.gain = 2.0
    return around(compile(lambda x: x * sum(o.gain for o in itertools.repeat(held, 3))), put(held, gain=5.0))


class Mapping:
    """Has keys, and can be gone through."""

    def __init__(self, **values):
        self.values = values

    def keys(self):
        return self.values.keys()

    def __iter__(self):
        return iter(self.values)

    def __getitem__(self, key):
        return self.values[key]


def dict_of_a_mapping(compile):
    held = Mapping(ab=2.0)
    return around(compile(lambda x: x * dict(held)["ab"]), item(held.values, "ab", 3.0))


def dict_updated_with_a_mapping(compile):
    held = Mapping(ab=2.0)

    def f(x):
        made = {}
        made.update(held)
        return x * made["ab"]
    return around(compile(f), item(held.values, "ab", 3.0))


def dict_of_pairs_that_change(compile):
    pairs = [["a", 2.0]]
    return around(compile(lambda x: x * dict(pairs)["a"]), item(pairs[0], 1, 3.0))


def list_searched_in_a_tuple(compile):
    wanted, some = [2.0], ([1.0], [2.0])
    f = compile(lambda x: x * (2 if wanted in some else 3))
    return around(f, item(some[1], 0, 9.0), item(some[0], 0, 2.0))


def list_found_in_a_tuple(compile):
    wanted, some = [2.0], ([1.0], [2.0])
    return around(compile(lambda x: x * some.index(wanted) + some.count(wanted)), item(wanted, 0, 1.0))


def attribute_of_an_ordered_dict(compile):
    held = OrderedDict(a=1)
    return around(compile(lambda x: x * getattr(held, "scale", 5.0)), put(held, scale=3.0), put(held, scale=4.0))


def method_of_an_ordered_dict_hidden(compile):
    held = OrderedDict(a=1.0)
    return around(compile(lambda x: x * sum(held.values())), put(held, values=lambda: [7.0]))


def factory_of_a_defaultdict(compile):
    held = defaultdict(lambda: 2.0)
    return around(compile(lambda x: x * held.default_factory()), put(held, default_factory=lambda: 3.0))


def bases_of_super_replaced(compile):
    class Two:
        def f(self, x):
            return x * 2

    class Three:
        def f(self, x):
            return x * 3

    class Mine(Two):
        def f(self, x):
            return super().f(x) + 1
    held = Mine()
    return around(compile(lambda x: held.f(x)), lambda: setattr(Mine, "__bases__", (Three,)))


def property_that_has_none(compile):
    class Asking:
        other = 5.0

        @property
        def gain(self):
            print("asked")
            return self.missing

        def __getattr__(self, name):
            if name == "missing":
                raise AttributeError(name)
            return self.other
    held = Asking()
    return around(compile(lambda x: x * held.gain), put(Asking, other=7.0))


def property_of_a_module_that_has_none(compile):
    class Net(nn.Module):
        @property
        def gain(self):
            return self.missing

        def forward(self, x):
            return x * getattr(self, "gain", 2.0)
    net = Net()
    return around(compile(net), put(net, missing=3.0))


def block_that_is_kept(compile):
    held = Thing(block=torch.autocast("cpu", dtype=torch.bfloat16))
    w = torch.ones(3, 3)

    def f(x):
        with held.block:
            return x[None] @ w
    return around(compile(f), lambda: put(held.block, _enabled=False)(),
                  lambda: put(held, block=torch.autocast("cpu", dtype=torch.float16))(),
                  lambda: put(held.block, fast_dtype=torch.bfloat16)())


def text_of_a_tensor(compile):
    number = torch.tensor([1.23456789])

    def f(x):
        return x * len(str(number)) + len(f"{number}") + len(repr(number))

    def digits(n):
        torch.set_printoptions(precision=n)
    try:
        yield from around(compile(f), lambda: digits(2), lambda: digits(4))
    finally:
        digits(4)
