"""Corners of Python's data model that a proof forgets: classes that change after the fact, values inside values, two ways to
one object, functions on one line."""

from __future__ import annotations

import collections
import dataclasses
import linecache
import types

from soundness.world import Thing, around, item, nn, put, torch, vec

Config = collections.namedtuple("Config", "gains")
Pair = collections.namedtuple("Pair", "gain bias", defaults=(0.0,))


# ----------------------------------------------------------------------------------------- classes that change after the fact
def equality_added_later(compile):
    class Box:
        pass
    a, b = Box(), Box()
    f = compile(lambda x: x * 2.0 if a == b else x * 3.0)
    return around(f, put(Box, __eq__=lambda self, other: True), lambda: delattr(Box, "__eq__"))


def equality_of_a_base_added_later(compile):
    class Base:
        pass

    class Box(Base):
        pass
    a, b = Box(), Box()
    return around(compile(lambda x: x * 2.0 if a != b else x * 3.0), put(Base, __eq__=lambda self, other: True))


def equality_by_another_class(compile):
    class Box:
        pass

    class Friendly:
        def __eq__(self, other):
            return True
        __hash__ = None
    a = Box()
    return around(compile(lambda x: x * 2.0 if a == 1 else x * 3.0), put(a, __class__=Friendly))


def equality_in_a_list_added_later(compile):
    class Box:
        pass
    boxes, sought = [Box(), Box()], Box()
    return around(compile(lambda x: x * 2.0 if sought in boxes else x * 3.0), put(Box, __eq__=lambda self, other: True))


def order_added_later(compile):
    class Box:
        pass
    a, b = Box(), Box()

    def f(x):
        try:
            return x * 2.0 if a < b else x * 3.0
        except TypeError:
            return x * 5.0
    return around(compile(f), put(Box, __lt__=lambda self, other: True))


def lookup_added_later(compile):
    class Box(Thing):
        pass
    box = Box(gain=2.0)
    other = lambda self, name: 3.0 if name == "gain" else object.__getattribute__(self, name)
    return around(compile(lambda x: x * box.gain), put(Box, __getattribute__=other), lambda: delattr(Box, "__getattribute__"))


def fallback_added_later(compile):
    class Box(Thing):
        pass
    box = Box()
    f = compile(lambda x: x * getattr(box, "gain", 2.0))
    return around(f, put(Box, __getattr__=lambda self, name: 3.0), put(box, gain=2.0))


def descriptor_made_of_a_value_later(compile):
    class Value(Thing):
        pass

    class Box:
        gain = Value(number=2.0)
    box = Box()
    f = compile(lambda x: x * Box.gain.number * box.gain.number)
    return around(f, put(Value, __get__=lambda self, owner, kind: Thing(number=3.0)))


def length_of_a_tuple_added_later(compile):
    class Row(tuple):
        pass
    row = Row((1.0, 2.0))
    return around(compile(lambda x: x * len(row)), put(Row, __len__=lambda self: 3))


def items_of_a_tuple_added_later(compile):
    class Row(tuple):
        pass
    row = Row((2.0, 2.0))
    return around(compile(lambda x: x * row[0]), put(Row, __getitem__=lambda self, i: 3.0))


def iteration_of_a_tuple_added_later(compile):
    class Row(tuple):
        pass
    row = Row((1.0, 1.0))
    return around(compile(lambda x: x * sum(v for v in row)), put(Row, __iter__=lambda self: iter([3.0])))


def truth_of_a_tuple_added_later(compile):
    class Row(tuple):
        pass
    row = Row((1.0, 1.0))
    return around(compile(lambda x: x * 2.0 if row else x * 3.0), put(Row, __bool__=lambda self: False))


def bases_asked(compile):
    class Quiet:
        pass

    class Loud:
        pass

    class Middle(Quiet):
        pass

    class Box(Middle):
        pass
    box = Box()
    f = compile(lambda x: x * (2.0 if isinstance(box, Loud) else 3.0) * (2.0 if issubclass(Box, Loud) else 3.0))
    return around(f, put(Middle, __bases__=(Loud,)), put(Middle, __bases__=(Quiet,)))


def bases_of_super_changed(compile):
    class Quiet:
        gain = 2.0

    class Loud:
        gain = 3.0

    class Middle(Quiet):
        pass

    class Box(Middle):
        def scaled(self, x):
            return x * super().gain
    box = Box()
    return around(compile(lambda x: box.scaled(x)), put(Box, __bases__=(Loud,)), put(Box, __bases__=(Middle,)))


def death_added_later(compile):
    class Brief:
        pass
    gone = []

    def f(x):
        Brief()
        return x * 2.0
    yield from around(compile(f), put(Brief, __del__=lambda self: gone.append(1)))
    yield gone


def storing_added_later(compile):
    @dataclasses.dataclass
    class Record:
        gain: float
    log = []

    def store(self, name, value):
        log.append(name)
        object.__setattr__(self, name, value)
    yield from around(compile(lambda x: x * Record(2.0).gain), put(Record, __setattr__=store))
    yield log


def storing_added_later_to_a_plain_class(compile):
    class Box:
        def __init__(self, gain):
            self.gain = gain

    def store(self, name, value):
        object.__setattr__(self, name, value + 1.0)
    return around(compile(lambda x: x * Box(2.0).gain), put(Box, __setattr__=store))


def defaults_of_a_record(compile):
    @dataclasses.dataclass
    class Record:
        gain: float = 2.0
    return around(compile(lambda x: x * Record().gain), put(Record.__init__, __defaults__=(3.0,)))


def defaults_of_a_named_tuple(compile):
    Row = collections.namedtuple("Row", "gain", defaults=(2.0,))
    return around(compile(lambda x: x * Row().gain), put(Row.__new__, __defaults__=(3.0,)))


def making_of_a_named_tuple_replaced(compile):
    Row = collections.namedtuple("Row", "gain")
    return around(compile(lambda x: x * Row(2.0).gain), put(Row, __new__=lambda cls, gain: tuple.__new__(cls, (gain + 1.0,))))


def slot_with_a_fallback_that_counts(compile):
    class Box:
        __slots__ = ("asked", "gain")

        def __getattr__(self, name):
            self.asked = self.asked + 1
            return 2.0
    box = Box()
    box.asked = 0
    yield from around(compile(lambda x: x * box.gain), put(box, gain=3.0))
    yield box.asked


# -------------------------------------------------------------------------------------------------------- values inside values
def list_inside_a_named_tuple_shown(compile):
    config = Config([2.0])
    return around(compile(lambda x: x * len(str(config))), lambda: config.gains.append(3.0))


def list_inside_a_named_tuple_formatted(compile):
    config = Config([2.0])
    return around(compile(lambda x: x * len("%s" % (config,)) * len(f"{config}")), lambda: config.gains.append(3.0))  # noqa: UP031


def list_inside_a_named_tuple_compared(compile):
    config = Config([2.0])
    f = compile(lambda x: x * 2.0 if config == Config([2.0]) else x * 3.0)
    return around(f, item(config.gains, 0, 3.0), item(config.gains, 0, 2.0))


def object_inside_a_named_tuple_formatted(compile):
    config = Config(Thing(gain=2.0))
    return around(compile(lambda x: x * float("{0.gains.gain}".format(config))), put(config.gains, gain=3.0))  # noqa: UP030, UP032


def list_inside_a_tuple_hashed_or_not(compile):
    config = ([2.0], 1)

    def f(x):
        return x * config[0][0] if config == ([2.0], 1) else x * -1.0
    return around(compile(f), item(config[0], 0, 3.0))


def text_of_an_exception(compile):
    error = ValueError("ab")
    return around(compile(lambda x: x * len(str(error))), put(error, args=("abc",)))


def arguments_of_an_exception(compile):
    error = ValueError([2.0])
    return around(compile(lambda x: x * error.args[0][0]), item(error.args[0], 0, 3.0), put(error, args=([2.0],)))


def slice_with_a_list_inside(compile):
    """A slice may hold anything."""
    box = Thing(part=slice(None, [1.0, 1.0]))
    return around(compile(lambda x: x * sum(box.part.stop)), lambda: box.part.stop.append(1.0))


def number_that_indexes_its_own_way(compile):
    class Place(Thing):
        def __index__(self):
            return self.at
    place = Place(at=1)
    return around(compile(lambda x: x * [1.0, 2.0, 3.0][place] * x[place]), put(place, at=2))


# ---------------------------------------------------------------------------------------------------- two ways to one object
TABLE = {"gain": 2.0}


def argument_that_is_also_a_global(compile):
    f = compile(lambda x, table: x * TABLE["gain"] + table["gain"])
    try:
        for n in range(9):
            TABLE["gain"] = (2.0, 3.0, 3.0)[n // 3]
            yield f(vec(), TABLE if n // 3 == 0 else {"gain": 2.0})
    finally:
        TABLE["gain"] = 2.0


def argument_that_is_also_in_a_closure(compile):
    box = Thing(gains=[2.0])
    f = compile(lambda x, gains: x * box.gains[0] + len(gains))
    for n in range(9):
        box.gains[0] = (2.0, 3.0, 2.0)[n // 3]
        yield f(vec(), box.gains if n < 3 else [2.0])


def object_that_is_argument_and_global(compile):
    box = Thing(gain=2.0)
    f = compile(lambda x, given: x * box.gain + given.gain)
    for n in range(9):
        box.gain = (2.0, 3.0, 2.0)[n // 3]
        yield f(vec(), box if n < 3 else Thing(gain=2.0))


def record_that_is_argument_and_global(compile):
    @dataclasses.dataclass
    class Record:
        gain: float
    record = Record(2.0)
    f = compile(lambda x, given: x * record.gain + given.gain)
    for n in range(9):
        record.gain = (2.0, 3.0, 2.0)[n // 3]
        yield f(vec(), record if n < 3 else Record(2.0))


def tensor_that_is_argument_and_held(compile):
    held = torch.zeros(3)
    f = compile(lambda x: x * len(held) + held.dim() + held.requires_grad)
    for n in range(9):
        if n == 3:
            held.data = torch.zeros(4)
        if n == 6:
            held.requires_grad_()
        yield f(held if n < 3 else torch.zeros(3))


def lists_given_twice_or_alike(compile):
    f = compile(lambda x, a, b: x * 2.0 if a is b else x * 3.0)
    for n in range(8):
        one = [1.0]
        yield f(vec(), one, one if n % 4 > 1 else [1.0])


def list_given_that_is_held(compile):
    box = Thing(gains=[1.0])
    f = compile(lambda x, gains: x * 2.0 if gains is box.gains else x * 3.0)
    for n in range(8):
        yield f(vec(), box.gains if n % 4 > 1 else [1.0])


def record_given_that_is_held(compile):
    @dataclasses.dataclass
    class Record:
        gain: float
    held = Record(2.0)
    f = compile(lambda x, record: x * 2.0 if record is held else x * 3.0)
    for n in range(8):
        yield f(vec(), held if n % 4 > 1 else Record(2.0))


def keys_that_look_alike(compile):
    class Key:
        def __repr__(self):
            return "a key"
    a, b = Key(), Key()
    f = compile(lambda x, table: x * 2.0 if a in table else x * 3.0)
    for n in range(8):
        yield f(vec(), {a: 1.0} if n % 4 < 2 else {b: 1.0})


def named_tuples_of_one_name(compile):
    def made(gain):
        kind = collections.namedtuple("Row", "x")
        kind.gain = gain
        return kind
    kinds = made(2.0), made(3.0)
    f = compile(lambda row: row.x * row.gain)
    for n in range(8):
        yield f(kinds[n % 4 > 1](vec()))


def records_of_one_name(compile):
    def made(factor):
        @dataclasses.dataclass
        class Record:
            x: object
            gain = factor
        return Record
    kinds = made(2.0), made(3.0)
    f = compile(lambda record: record.x * record.gain)
    for n in range(8):
        yield f(kinds[n % 4 > 1](vec()))


def record_whose_class_changes(compile):
    @dataclasses.dataclass
    class Record:
        x: object

        def scaled(self):
            return self.x * 2.0
    f = compile(lambda record: record.scaled())
    change = put(Record, scaled=lambda self: self.x * 3.0)
    for n in range(7):
        if n == 4:
            change()
        yield f(Record(vec()))


def subclass_of_a_record_given(compile):
    @dataclasses.dataclass
    class Record:
        x: object
        gain: float = 2.0

    class Other(Record):
        @property
        def gain(self):
            return 3.0

        @gain.setter
        def gain(self, value):
            pass
    f = compile(lambda record: record.x * record.gain)
    for n in range(8):
        yield f((Record, Other)[n % 4 > 1](vec()))


def closure_and_attribute_are_one_list(compile):
    gains = [2.0]
    box = Thing(gains=gains)
    return around(compile(lambda x: x * gains[0] * box.gains[0]), item(gains, 0, 3.0), lambda: put(box, gains=[2.0])())


def names_of_a_namespace_with_its_own_builtins(compile):
    """A function with a source, in a namespace that brings its builtins."""
    text = "def scaled(x):\n    return x * own_gain\n"
    file = "<a namespace with its own builtins>"
    linecache.cache[file] = len(text), None, text.splitlines(True), file
    own = {"own_gain": 2.0}
    space = {"__builtins__": own}
    eval(__builtins__["compile"](text, file, "exec"), space)
    try:
        yield from around(compile(space["scaled"]), item(own, "own_gain", 3.0), item(space, "own_gain", 2.0))
    finally:
        del linecache.cache[file]


def source_that_says_something_else(compile):
    """The file was edited meanwhile: what runs is what was loaded."""
    text = "def scaled(x):\n    return x * 2.0\n"
    file = "<a file that was edited>"
    space = {}
    eval(__builtins__["compile"](text, file, "exec"), space)
    edited = text.replace("2.0", "3.0")
    linecache.cache[file] = len(edited), None, edited.splitlines(True), file
    f = compile(space["scaled"])
    try:
        for n in range(5):
            yield f(vec() * n)
    finally:
        del linecache.cache[file]


def module_that_is_a_subclass(compile):
    class Settings(types.ModuleType):
        @property
        def gain(self):
            return self.base * 2
    settings = Settings("settings")
    settings.base = 1.0
    return around(compile(lambda x: x * settings.gain), put(settings, base=1.5))


# ------------------------------------------------------------------------------------------------------ many on one line
def functions_in_functions_on_one_line(compile):
    box = Thing(gain=2.0)
    f = compile((lambda a: lambda x: x * a.gain)(box))
    return around(f, put(box, gain=3.0))


def functions_in_functions_called_on_one_line(compile):
    box = Thing(gain=2.0)
    scale = (lambda a: lambda: a.gain)(box)
    return around(compile(lambda x: x * scale()), put(box, gain=3.0))


def functions_side_by_side_on_one_line(compile):
    box = Thing(gain=2.0, bias=1.0)
    f, g, h = lambda x: x * box.gain, lambda x: x + box.bias, lambda x: (lambda y: y * 2.0)(x)
    return around(compile(lambda x: h(g(f(x)))), put(box, gain=3.0), put(box, bias=2.0))


def functions_alike_on_one_line(compile):
    fs = [(lambda k: (lambda x: x * k))(n) for n in (2.0, 3.0)] + [(lambda k: (lambda x: x * k))(5.0)]
    f = compile(lambda x: [g(x) for g in fs])
    return around(f, fs.reverse)


def functions_as_defaults_on_one_line(compile):
    f = compile(lambda x, g=lambda y, h=lambda z: z * 2.0: h(y) + 1: g(x))
    return (f(vec() * n) for n in range(5))


def functions_in_a_table_on_one_line(compile):
    table, box = {"a": lambda x: x * 2.0, "b": lambda x: x * 3.0, "c": lambda x: (lambda: x * 5.0)()}, Thing(key="a")
    return around(compile(lambda x: table[box.key](x)), put(box, key="b"), put(box, key="c"))


def comprehensions_in_comprehensions(compile):
    rows = [[1.0, 2.0], [3.0]]
    f = compile(lambda x: x * sum([v for row in [[w * 2 for w in r] for r in rows] for v in row if (lambda u: u > 2)(v)]))
    return around(f, lambda: rows[1].append(4.0), lambda: rows.pop(0))


def class_of_a_held_tensor_changed(compile):
    weight = torch.ones(3)
    f = compile(lambda x: x * (2.0 if isinstance(weight, nn.Parameter) else 3.0))
    return around(f, put(weight, __class__=nn.Parameter))


def type_of_a_held_tensor_changed(compile):
    weight = torch.ones(3)
    f = compile(lambda x: x * (2.0 if type(weight) is nn.Parameter else 3.0))
    return around(f, put(weight, __class__=nn.Parameter))
