"""What a proof overlooks: functions in which there is nothing to see, one number in two places, classes that learn to compare
or to hash, texts that settings decide."""

from __future__ import annotations

import enum
import functools
import sys
import types

import numpy as np

from soundness.world import F, Thing, around, item, line, nn, put, torch, vec

GAIN = 2.0


def gain():
    return GAIN


def changed_to(value):
    def change():
        global GAIN
        GAIN = value
    return change


# ------------------------------------------------------------------------------ functions in which nothing is to be rewritten
def global_given_back(compile):
    try:
        yield from around(compile(lambda x: x * gain()), changed_to(3.0))
    finally:
        changed_to(2.0)()


def variable_given_back(compile):
    k = 2.0

    def value():
        return k

    def change():
        nonlocal k
        k = 3.0
    return around(compile(lambda x: x * value()), change)


def default_given_back(compile):
    def value(k=2.0):
        return k
    return around(compile(lambda x: x * value()), put(value, __defaults__=(3.0,)))


def keyword_default_given_back(compile):
    def value(*, k=2.0):
        return k
    f = compile(lambda x: x * value())
    return around(f, item(value.__kwdefaults__, "k", 3.0), put(value, __kwdefaults__={"k": 5.0}))


def constant_given_back(compile):
    def value():
        return 2.0

    def other():
        return 3.0
    return around(compile(lambda x: x * value()), put(value, __code__=other.__code__))


def tensor_given_back(compile):
    kept = torch.ones(3)

    def change():
        nonlocal kept
        kept = torch.zeros(3)

    class Net(nn.Module):
        def forward(self, x):
            return kept
    return around(compile(Net()), change)


def variable_given_back_by_methods(compile):
    k = 2.0

    class Box:
        def __call__(self):
            return k

        def __getitem__(self, key):
            return k

        @property
        def gain(self):
            return k

        def chosen(self, other):
            return self if k > 2.0 else other

    def change():
        nonlocal k
        k = 3.0
    box = Box()
    return around(compile(lambda x: x * box() * box[0] * box.gain if box.chosen(None) is None else x), change)


def variable_of_an_inner_function_given_back(compile):
    k = 2.0

    def outer():
        def inner():
            return k
        return inner

    def change():
        nonlocal k
        k = 3.0
    return around(compile(lambda x: x * outer()()), change)


# --------------------------------------------------------------------------------------------------- one number in two places
def shared(compile, call):
    for n in range(4):
        value = 2.0 + n
        yield call(value, value)
    for one, other in ((5.0, 7.0), (5.0, 8.0), (6.0, 8.5), (2.0, 3.0), (2.0, 4.0)):
        yield call(one, other)


def number_given_twice(compile):
    f = compile(lambda x, a, b: x * a + b)
    return shared(compile, lambda a, b: f(vec(), a, b))


def number_given_twice_by_name(compile):
    f = compile(lambda x, a, b=1.0: x * a + b)
    return shared(compile, lambda a, b: f(vec(), a, b=b))


def number_given_in_a_list_too(compile):
    f = compile(lambda x, a, some: x * a + some[0])
    return shared(compile, lambda a, b: f(vec(), a, [b]))


def number_given_in_a_dict_too(compile):
    f = compile(lambda some, x, a: x * a + some["b"])
    return shared(compile, lambda a, b: f({"b": b}, vec(), a))


def number_given_that_is_kept(compile):
    box = Thing(gain=2.5)
    f = compile(lambda x, a: x * 2.0 if a is box.gain else x * 3.0)
    return (f(vec(), a) for a in (box.gain, box.gain, 3.5, box.gain, 4.5, box.gain))


def number_given_that_is_none(compile):
    nan = float("nan")
    table = {nan: 2.0}
    f = compile(lambda x, a: x * table.get(a, 3.0) if a in (1.5, nan) else x * 5.0)
    return (f(vec(), a) for a in (1.0, 2.0, 3.0, nan, nan, float("nan"), 2.5, 1.5, nan))


def number_of_a_group_of_another_type(compile):
    _, opt, _, _ = line()
    group = opt.param_groups[0]
    f = compile(lambda x: (x * group["lr"], type(group["lr"]).__name__, group["lr"]))
    for rate in (0.1, 0.1, 0.2, 0.3, 1, 1, True, 0.1, np.float64(0.3), 0.1, torch.tensor(0.5), 0.1):
        opt.param_groups[0]["lr"] = rate
        yield f(vec())


def number_of_a_type_that_errors_name(compile):
    f = compile(lambda x, a: x * ~a)
    for a in (1, 2.0, 3.0, 4.0, 5):
        try:
            yield f(vec(), a)
        except TypeError as error:
            yield str(error)


# -------------------------------------------------------------------------------------- classes that learn to compare or hash
def comparing(compile, ask, kind=object, name="__eq__", method=lambda self, other: True):
    Box = type("Box", (kind,), {})
    a, b = Box(), Box()
    f = compile(lambda x: x * ask(a, b))
    return around(f, put(Box, **{name: method}), lambda: delattr(Box, name))


def layers_compared(compile):
    return comparing(compile, lambda a, b: 2.0 if a == b else 3.0, nn.Module)


def truth_of_a_layer_among_others(compile):
    return comparing(compile, lambda a, b: 2.0 if any([a, b]) else 3.0, nn.Module, "__bool__", lambda self: False)


def truth_of_an_object_that_is_filtered(compile):
    return comparing(compile, lambda a, b: 1.0 + len(list(filter(None, [a, b]))), name="__bool__", method=lambda self: False)


def truth_of_an_object_that_a_filter_gives(compile):
    return comparing(compile, lambda a, b: len([1, *filter(lambda o: o, [a, b])]), name="__bool__", method=lambda self: False)


def position_of_a_number_among_objects(compile):
    return comparing(compile, lambda a, b: 1.0 + [a, b, 2.0].index(2.0))


def count_of_a_number_among_objects(compile):
    return comparing(compile, lambda a, b: 1.0 + [a, b, 2.0].count(2.0))


def number_taken_from_objects(compile):
    def ask(a, b):
        some = [a, b, 2.0]
        some.remove(2.0)
        return 2.0 if some[0] is a else 3.0
    return comparing(compile, ask)


def number_between_in_objects(compile):
    return comparing(compile, lambda a, b: 2.0 if 0.0 < 1.0 in [a, b] else 3.0)


def objects_sorted_in_place(compile):
    def ask(a, b):
        some = [a, b]
        some.sort()
        return 2.0 if some[0] is a else 3.0
    return comparing(compile, ask, float, "__lt__", lambda self, other: self is not other)


def objects_in_a_set(compile):
    Box = type("Box", (), {})
    some = [Box(), Box()]

    def change():
        Box.__eq__, Box.__hash__ = lambda self, other: True, lambda self: 1
    return around(compile(lambda x: x * len(set(some)) * len(frozenset(some)) * len({*some})), change)


def classes_compared(compile):
    class Meta(type):
        pass
    a, b = Meta("A", (), {}), Meta("B", (), {})
    return around(compile(lambda x: x * 2.0 if a == b else x * 3.0), put(Meta, __eq__=lambda self, other: True))


def modules_of_python_compared(compile):
    class Friendly(types.ModuleType):
        def __eq__(self, other):
            return True
        __hash__ = None
    a, b = types.ModuleType("a"), types.ModuleType("b")
    return around(compile(lambda x: x * 2.0 if a == b else x * 3.0), put(a, __class__=Friendly))


def hash_that_counts(compile):
    class Key:
        asked = 0

        def __hash__(self):
            Key.asked += 1
            return 1
    key = Key()
    table = {key: 2.0}
    f = compile(lambda x: x * table[key] * table.get(key) if key in table else x)
    for n in range(4):
        yield f(vec() * n), Key.asked


def truth_that_counts(compile):
    class Box:
        asked = 0

        def __bool__(self):
            Box.asked += 1
            return True
    box = Box()
    f = compile(lambda x: x * 2.0 if (box and box) or not box else x)
    for n in range(4):
        yield f(vec() * n), Box.asked


def value_of_a_class_becomes_a_descriptor(compile):
    class Value(Thing):
        pass

    class Box:
        gain = Value(number=2.0)
    f = compile(lambda x: x * Box.gain.number)
    return around(f, put(Value, __get__=lambda self, owner, kind: Thing(number=3.0)))


# -------------------------------------------------------------------------------------------- errors and those who catch them
def bases_of_an_error_changed(compile):
    class Quiet(Exception):
        pass

    class Loud(Exception):
        pass

    class Error(Quiet):
        pass

    def f(x):
        try:
            raise Error("x")
        except Loud:
            return x * 2.0
        except Quiet:
            return x * 3.0
    return around(compile(f), put(Error, __bases__=(Loud,)))


def making_of_an_error_added_later(compile):
    class Error(Exception):
        pass
    made = []

    def f(x):
        try:
            raise Error
        except Error:
            return x * 2.0
    yield from around(compile(f), put(Error, __init__=lambda self, *args: made.append(1)))
    yield made


def text_of_an_error_added_later(compile):
    class Error(Exception):
        pass

    def f(x):
        try:
            raise Error("ab")
        except Error as error:
            return x * len(str(error))
    return around(compile(f), put(Error, __str__=lambda self: "abcdef"))


def error_behind_a_property(compile):
    class Box:
        @property
        def gain(self):
            raise AttributeError("one")

        def __getattr__(self, name):
            raise AttributeError("two")
    box = Box()
    f = compile(lambda x: x * (box.gain if x.dim() else 2.0))
    for x in (vec(), vec(), torch.tensor(1.0), torch.tensor(2.0), vec()):
        try:
            yield f(x)
        except AttributeError as error:
            yield str(error), error.__context__ is None


# --------------------------------------------------------------------------------------------------------- which object it is
def which(compile, make):
    first = make()
    box = Thing(a=first, b=first)
    return around(compile(lambda x: x * 2.0 if box.a is box.b else x * 3.0), put(box, b=make()), put(box, b=first))


def scalar_of_numpy_that_is_another(compile):
    return which(compile, lambda: np.float64(2.0))


def slice_that_is_another(compile):
    return which(compile, lambda: slice(1, 2))


def size_that_is_another(compile):
    return which(compile, lambda: torch.Size([1, 2]))


def argument_in_a_chain_of_identities(compile):
    held = torch.ones(3)
    f = compile(lambda x: x * 2.0 if None is not x is held else x * 3.0)
    return (f(held if n // 3 % 2 else torch.ones(3)) for n in range(12))


def not_a_number_of_numpy_in_a_list(compile):
    nan = np.float64("nan")
    box = Thing(a=nan, some=[nan])
    return around(compile(lambda x: x * 2.0 if box.a in box.some else x * 3.0), put(box, a=np.float64("nan")))


def argument_counted_by_the_class(compile):
    held = torch.ones(1)
    f = compile(lambda x: x * tuple.count((held,), x))
    return (f(held if n < 4 else torch.zeros(1)) for n in range(8))


# ------------------------------------------------------------------------------------------------------- what settings decide
def text_of_a_list_of_tensors(compile):
    f = compile(lambda x: x * len(str([torch.tensor([1.23456789])])) * len(repr({"a": torch.tensor([1.23456789])})))
    try:
        yield from around(f, lambda: torch.set_printoptions(precision=8))
    finally:
        torch.set_printoptions(precision=4)


def text_of_a_long_number(compile):
    box, before = Thing(number=10 ** 5000, text="1" * 5000), sys.get_int_max_str_digits()

    def f(x):
        try:
            return x * len(str(box.number)) + int(box.text) % 7
        except ValueError:
            return x * -1.0
    try:
        yield from around(compile(f), lambda: sys.set_int_max_str_digits(0), lambda: sys.set_int_max_str_digits(4300))
    finally:
        sys.set_int_max_str_digits(before)


def text_of_a_scalar_of_numpy(compile):
    box = Thing(number=np.float64(2.0))
    try:
        yield from around(compile(lambda x: x * len(repr(box.number))), lambda: np.set_printoptions(legacy="1.25"))
    finally:
        np.set_printoptions(legacy=False)


def overflow_of_a_scalar_of_numpy(compile):
    box = Thing(number=np.float32(1e38))

    def f(x):
        try:
            return x * 2.0 if box.number * np.float32(100) > 1 else x * 3.0
        except FloatingPointError:
            return x * 5.0
    before = np.seterr(all="ignore")
    try:
        yield from around(compile(f), lambda: np.seterr(all="raise"))
    finally:
        np.seterr(**before)


# ----------------------------------------------------------------------------------------------------- what appears meanwhile
def name_added_to_the_library(compile):
    f = compile(lambda x: x * getattr(torch, "own_gain", 2.0) * (2.0 if hasattr(F, "own_gain") else 3.0))
    try:
        yield from around(f, put(torch, own_gain=3.0), put(F, own_gain=3.0))
    finally:
        del torch.own_gain, F.own_gain


def names_of_a_module_made_on_demand(compile):
    module = types.ModuleType("module")
    return around(compile(lambda x: x * getattr(module, "gain", 2.0)), put(module, __getattr__=lambda name: 3.0))


def method_of_a_held_tensor_hidden(compile):
    held, weight = torch.ones(3), nn.Parameter(torch.ones(3))
    f = compile(lambda x: x * held.sum() * weight.sum())
    return around(f, put(held, sum=lambda: torch.tensor(5.0)), put(weight, sum=lambda: torch.tensor(7.0)))


def operators_of_the_tensors_patched(compile):
    kind = torch.Tensor
    before = kind.__len__, kind.__setitem__, kind.__iter__

    def f(x):
        y = x * 1.0
        y[0] = 7.0
        return y * len(x) + sum(v for v in x)
    try:
        yield from around(compile(f), put(kind, __len__=lambda self: 9),
                          put(kind, __setitem__=lambda self, key, value: before[1](self, key, value * 2)),
                          put(kind, __iter__=lambda self: iter([torch.ones(1)])))
    finally:
        kind.__len__, kind.__setitem__, kind.__iter__ = before


def start_of_a_sum(compile):
    box = Thing(base=[1.0])
    f = compile(lambda x: x * len(sum([[1.0], [2.0]], box.base)) * len(sum([[1.0]], start=box.base)))
    return around(f, lambda: box.base.append(1.0))


def property_of_a_class_itself(compile):
    class Box:
        base = 2.0

        @classmethod
        def gain(cls):
            return cls.base
        half = classmethod(functools.partial(lambda scale, cls: cls.base * scale, 0.5))
    box = Box()
    return around(compile(lambda x: x * Box.gain() * box.gain() * Box.half()), put(Box, base=3.0))


def flags_combined(compile):
    class Way(enum.Flag):
        IN = 1
        OUT = 2
    box = Thing(way=Way.IN)
    return around(compile(lambda x: x * 2.0 if box.way | Way.OUT == Way.IN | Way.OUT else x * 3.0), put(box, way=Way.OUT))
