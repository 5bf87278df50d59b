"""Classes that compute their answers: properties, descriptors, special methods, metaclasses."""

from __future__ import annotations

import abc
import copy
import dataclasses
import functools
import pickle
import typing

from soundness.world import Thing, around, each, item, put, torch, vec


# ------------------------------------------------------------------------------------------------------------- attributes
def property_that_counts(compile):
    class Box:
        reads = 0

        @property
        def gain(self):
            self.reads += 1
            return float(self.reads)
    box = Box()
    yield from each(compile(lambda x: x * box.gain), vec())
    yield box.reads


def property_with_a_setter(compile):
    class Box:
        def __init__(self):
            self.log = []

        gain = property(lambda self: self.log[-1] if self.log else 2.0, lambda self, value: self.log.append(value))
    box = Box()

    def f(x):
        box.gain = box.gain + 1.0
        return x * box.gain
    yield from each(compile(f), vec())
    yield box.log


def property_of_a_base_replaced(compile):
    class Base:
        gain = property(lambda self: 2.0)

    class Box(Base):
        pass
    box = Box()
    return around(compile(lambda x: x * box.gain), put(Base, gain=property(lambda self: 3.0)), put(Box, gain=2.0))


def cached_property_emptied(compile):
    class Box(Thing):
        @functools.cached_property
        def gain(self):
            return self.base * 2
    box = Box(base=1.0)
    return around(compile(lambda x: x * box.gain), put(box, base=1.5), lambda: delattr(box, "gain"))


def cached_property_filled_in_the_call(compile):
    class Box(Thing):
        made = 0

        @functools.cached_property
        def table(self):
            self.made += 1
            return vec() * 2
    boxes = [Box() for _ in range(6)]
    f = compile(lambda x, box: x * box.table)
    for box in boxes + boxes:
        yield f(vec(), box), box.made


class Stored:
    """A descriptor that keeps its values elsewhere."""

    def __init__(self):
        self.values = {}

    def __get__(self, owner, kind=None):
        return self if owner is None else self.values[id(owner)]

    def __set__(self, owner, value):
        self.values[id(owner)] = value


def descriptor_with_a_store(compile):
    class Box:
        gain = Stored()
    box = Box()
    box.gain = 2.0
    return around(compile(lambda x: x * box.gain), put(box, gain=3.0), lambda: Box.gain.values.update({id(box): 2.0}))


def descriptor_without_set(compile):
    """The instance's own attribute wins as soon as there is one."""
    class Fallback:
        def __get__(self, owner, kind=None):
            return 2.0

    class Box:
        gain = Fallback()
    box = Box()
    return around(compile(lambda x: x * box.gain), put(box, gain=3.0), lambda: vars(box).clear())


def descriptor_that_becomes_data(compile):
    class Fallback:
        def __get__(self, owner, kind=None):
            return 2.0

    class Box:
        gain = Fallback()
    box = Box()
    box.gain = 3.0
    return around(compile(lambda x: x * box.gain), put(Fallback, __set__=lambda self, owner, value: None))


def getattr_of_last_resort(compile):
    class Box:
        def __init__(self, **values):
            self.values = values

        def __getattr__(self, name):
            return self.values[name]
    box = Box(gain=2.0)
    return around(compile(lambda x: x * box.gain), lambda: box.values.update(gain=3.0), put(box, gain=2.0))


def getattr_that_counts(compile):
    class Box:
        asked = 0

        def __getattr__(self, name):
            type(self).asked += 1
            return 2.0
    box = Box()
    yield from each(compile(lambda x: x * box.gain), vec())
    yield Box.asked


def getattribute_that_logs(compile):
    class Box:
        def __init__(self):
            self.gain = 2.0

        def __getattribute__(self, name):
            log.append(name)
            return super().__getattribute__(name)
    log = []
    box = Box()
    yield from each(compile(lambda x: x * box.gain), vec())
    yield log


def setattr_that_refuses(compile):
    class Box:
        gain, writes = 2.0, 0

        def __setattr__(self, name, value):
            type(self).writes += 1
            if type(self).writes > 3:
                raise AttributeError(f"{name} is closed")
            super().__setattr__(name, value)
    box = Box()

    def f(x):
        try:
            box.gain = box.gain + 1.0
        except AttributeError as error:
            return x, str(error)
        return x * box.gain, "open"
    yield from each(compile(f), vec())
    yield Box.writes


def delattr_that_counts(compile):
    class Box(Thing):
        gone = []

        def __delattr__(self, name):
            self.gone.append(name)
    box = Box()

    def f(x):
        del box.gain
        return x * len(box.gone)
    return around(compile(f), box.gone.clear)


# -------------------------------------------------------------------------------------------------------- special methods
def call_replaced_on_the_class(compile):
    class Act:
        def __call__(self, x):
            return x * 2.0
    act = Act()
    return around(compile(lambda x: act(x)), put(Act, __call__=lambda self, x: x * 3.0))


def truth_of_an_object(compile):
    class Switch(Thing):
        def __bool__(self):
            return self.on
    switch = Switch(on=True)
    return around(compile(lambda x: x * 2.0 if switch else x * 3.0), put(switch, on=False), put(switch, on=True))


def truth_by_length(compile):
    class Bag(Thing):
        def __len__(self):
            return len(self.things)
    bag = Bag(things=[1, 2])
    return around(compile(lambda x: x * len(bag) if bag else x * 3.0), lambda: bag.things.append(3), lambda: bag.things.clear())


def contains_asked(compile):
    class Span(Thing):
        def __contains__(self, n):
            return self.low <= n < self.high
    span = Span(low=0, high=5)
    return around(compile(lambda x: x * 2.0 if 3 in span else x * 3.0), put(span, high=2), put(span, low=-5, high=9))


def getitem_of_an_object(compile):
    class Table:
        def __init__(self):
            self.asked = []

        def __getitem__(self, key):
            self.asked.append(key)
            return 2.0 + len(self.asked) % 2
    table = Table()
    yield from each(compile(lambda x: x * table["gain"]), vec())
    yield table.asked


def iteration_by_index(compile):
    class Steps:
        gains = [2.0]

        def __getitem__(self, i):
            return self.gains[i]
    steps = Steps()

    def f(x):
        for gain in steps:
            x = x * gain
        return x
    return around(compile(f), lambda: steps.gains.append(3.0), lambda: steps.gains.pop(0))


def comparisons_of_ones_own(compile):
    @functools.total_ordering
    class Level(Thing):
        def __eq__(self, other):
            return self.height == other.height

        def __lt__(self, other):
            return self.height < other.height
        __hash__ = None
    a, b = Level(height=1), Level(height=2)
    return around(compile(lambda x: x * 2.0 if a < b else x * 3.0), put(a, height=5), put(b, height=5), put(b, height=6))


def equality_that_counts(compile):
    class Code:
        asked = 0

        def __eq__(self, other):
            Code.asked += 1
            return Code.asked % 2 == 0
        __hash__ = object.__hash__
    code = Code()
    yield from each(compile(lambda x: x * 2.0 if code == 1 else x * 3.0), vec())
    yield Code.asked


def hash_and_equality_of_a_key(compile):
    class Key(Thing):
        def __hash__(self):
            return hash(self.name)

        def __eq__(self, other):
            return self.name == other.name
    key, table = Key(name="a"), {Key(name="a"): 2.0, Key(name="b"): 3.0}
    return around(compile(lambda x: x * table[key]), put(key, name="b"), put(key, name="a"))


def number_like_object(compile):
    class Gain(Thing):
        def __float__(self):
            return self.value

        def __index__(self):
            return int(self.value)
    gain = Gain(value=2.0)
    return around(compile(lambda x: x * float(gain) + [0, 1, 2, 3][gain]), put(gain, value=3.0))


def times_from_the_right(compile):
    class Gain(Thing):
        def __rmul__(self, x):
            return x * self.value

        def __mul__(self, x):
            return x * self.value + 1
    gain = Gain(value=2.0)
    return around(compile(lambda x: 1.0 * gain + x + gain * x), put(gain, value=3.0))


def times_that_logs(compile):
    class Logged(Thing):
        def __mul__(self, other):
            log.append("mul")
            return Logged(value=self.value * other)

        def __add__(self, other):
            log.append("add")
            return Logged(value=self.value + other)
    log = []
    yield from each(compile(lambda x: (Logged(value=x) * 2.0 + 1).value), vec())
    yield log


def in_place_addition_of_ones_own(compile):
    class Total(Thing):
        def __iadd__(self, x):
            self.sum = self.sum + x
            self.count += 1
            return self
    total = Total(sum=torch.zeros(3), count=0)

    def f(x):
        nonlocal total
        total += x
        return total.sum / total.count
    f = compile(f)
    for n in range(6):
        yield f(vec() * n), total.sum, total.count


def matmul_and_slices_of_ones_own(compile):
    class View(Thing):
        def __getitem__(self, part):
            return self.x[part] * self.gain

        def __matmul__(self, other):
            return self.x * other * self.gain
    view = View(x=vec(), gain=2.0)
    return around(compile(lambda x: view[0:3] + (view @ x)), put(view, gain=3.0))


def text_of_an_object(compile):
    class Named(Thing):
        def __str__(self):
            self.shown += 1
            return f"shown {self.shown}"
    named = Named(shown=0)

    def f(x):
        print(f"{named}")
        return x * 2.0
    yield from each(compile(f), vec())
    yield named.shown


def format_of_ones_own(compile):
    class Gain(Thing):
        def __format__(self, how):
            return f"{self.value:{how}}"
    gain = Gain(value=2.0)
    return around(compile(lambda x: x * float(f"{gain:.1f}")), put(gain, value=3.0))


def context_that_swallows(compile):
    class Swallow:
        seen = []

        def __enter__(self):
            return self

        def __exit__(self, kind, error, trace):
            self.seen.append(kind and kind.__name__)
            return True
    swallow, box = Swallow(), Thing(bad=False)

    def f(x):
        with swallow:
            if box.bad:
                raise KeyError
            x = x * 2.0
        return x
    yield from around(compile(f), put(box, bad=True), put(box, bad=False))
    yield Swallow.seen


def objects_that_die(compile):
    class Brief:
        def __del__(self):
            gone.append(len(gone))
    gone = []

    def f(x):
        Brief()
        return x * 2.0
    f = compile(f)
    for _ in range(6):
        yield f(vec()), list(gone)


def objects_that_are_counted(compile):
    class Made:
        count = 0

        def __init__(self):
            Made.count += 1
            self.number = Made.count
    f = compile(lambda x: x * Made().number)
    return around(f, put(Made, count=0))


def new_that_gives_one_object(compile):
    class Single:
        one, asked = None, 0

        def __new__(cls):
            cls.asked += 1
            cls.one = cls.one or super().__new__(cls)
            return cls.one
    Single().gain = 2.0
    yield from around(compile(lambda x: x * Single().gain), lambda: put(Single(), gain=3.0)())
    yield Single.asked


def after_the_fields_are_set(compile):
    @dataclasses.dataclass
    class Point:
        x: float
        made: typing.ClassVar[int] = 0

        def __post_init__(self):
            Point.made += 1
    yield from each(compile(lambda x: x * Point(2.0).x), vec())
    yield Point.made


def copies_that_count(compile):
    class Copied(Thing):
        made = 0

        def __deepcopy__(self, memo):
            Copied.made += 1
            return Copied(gain=self.gain + Copied.made)
    box = Copied(gain=1.0)
    yield from each(compile(lambda x: x * copy.deepcopy(box).gain), vec())
    yield Copied.made


class Pickled(Thing):
    restored = 0

    def __setstate__(self, state):
        Pickled.restored += 1
        vars(self).update(state)


def pickles_that_count(compile):
    box = Pickled(gain=2.0)
    Pickled.restored = 0
    yield from around(compile(lambda x: x * pickle.loads(pickle.dumps(box)).gain), put(box, gain=3.0))
    yield Pickled.restored


# ------------------------------------------------------------------------------------------------------------- metaclasses
def metaclass_property(compile):
    class Meta(type):
        gain = property(lambda cls: cls.base * 2)

    class Config(metaclass=Meta):
        base = 1.0
    return around(compile(lambda x: x * Config.gain), put(Config, base=1.5))


def metaclass_getattr(compile):
    class Meta(type):
        def __getattr__(cls, name):
            return table[name]

    class Config(metaclass=Meta):
        pass
    table = {"gain": 2.0}
    return around(compile(lambda x: x * Config.gain), item(table, "gain", 3.0), put(Config, gain=2.0))


def metaclass_call(compile):
    class Meta(type):
        calls = 0

        def __call__(cls, *args):
            Meta.calls += 1
            return super().__call__(*args)

    class Config(metaclass=Meta):
        gain = 2.0
    yield from each(compile(lambda x: x * Config().gain * Meta.calls), vec())
    yield Meta.calls


def subclasses_walked(compile):
    class Base:
        gain = 1.0
    kept = [type("A", (Base,), {"gain": 2.0})]
    f = compile(lambda x: x * sum(kind.gain for kind in Base.__subclasses__()))
    return around(f, lambda: kept.append(type("B", (Base,), {})))


def subclass_made_in_the_call(compile):
    class Base:
        names = []

        def __init_subclass__(cls):
            Base.names.append(cls.__name__)

    def f(x):
        class Made(Base):
            gain = len(Base.names)
        return x * Made.gain
    yield from each(compile(f), vec())
    yield Base.names


def class_getitem(compile):
    class Table:
        gains = {"a": 2.0}

        def __class_getitem__(cls, key):
            return cls.gains[key]
    return around(compile(lambda x: x * Table["a"]), item(Table.gains, "a", 3.0))


def isinstance_of_a_registered_class(compile):
    class Loud(abc.ABC):  # noqa: B024
        pass

    class Box:
        pass
    box = Box()
    return around(compile(lambda x: x * 3.0 if isinstance(box, Loud) else x * 2.0), lambda: Loud.register(Box))


def isinstance_by_a_metaclass(compile):
    class Meta(type):
        answer = False

        def __instancecheck__(cls, made):
            return Meta.answer

    class Any(metaclass=Meta):
        pass
    return around(compile(lambda x: x * 3.0 if isinstance(x, Any) else x * 2.0), put(Meta, answer=True))


def isinstance_by_protocol(compile):
    @typing.runtime_checkable
    class Loud(typing.Protocol):
        def shout(self): ...
    box = Thing()
    f = compile(lambda x: x * 3.0 if isinstance(box, Loud) else x * 2.0)
    return around(f, put(box, shout=len), lambda: delattr(box, "shout"))


def dispatch_by_type(compile):
    @functools.singledispatch
    def gain(value):
        return 2.0
    f = compile(lambda x: x * gain(1))
    yield from around(f, lambda: gain.register(int, lambda value: 3.0), lambda: gain.register(bool, lambda value: 9.0))


def dispatch_by_type_of_a_method(compile):
    class Box:
        @functools.singledispatchmethod
        def gain(self, value):
            return 2.0
    box = Box()
    return around(compile(lambda x: x * box.gain("text")), lambda: Box.gain.register(str, lambda self, value: 3.0))
