"""Attributes that a function reads: of configurations, classes, functions and modules, near and far, changed in every way."""

from __future__ import annotations

import dataclasses
import decimal
import enum
import fractions
import operator
import types
import typing
import weakref

from soundness.world import Thing, around, nn, put, torch, vec


def scaled(compile, box, *changes):
    """Calls that multiply by box.gain, with changes between them."""
    return around(compile(lambda x: x * box.gain), *changes)


class Scaled(nn.Module):
    """A module that multiplies by a number in its configuration."""

    def __init__(self, config):
        super().__init__()
        self.config = config

    def forward(self, x):
        return x * self.config.gain


def chain(depth, **leaf):
    """A thing in a thing in a thing, this many deep; and the innermost."""
    last = made = Thing(**leaf)
    for _ in range(depth):
        made = Thing(next=made)
    return made, last


# -------------------------------------------------------------------------------------------------------- near and far
def temperature_of_a_module(compile):
    net = Scaled(Thing(gain=2.0))
    return around(compile(lambda x: net(x)), put(net.config, gain=3.0), put(net, config=Thing(gain=2.0)))


def config_shared_by_two_modules(compile):
    config = Thing(gain=2.0)
    a, b = Scaled(config), Scaled(config)
    return around(compile(lambda x: b(a(x))), put(config, gain=3.0), put(b, config=Thing(gain=2.0)))


def config_exchanged_between_modules(compile):
    a, b = Scaled(Thing(gain=2.0)), Scaled(Thing(gain=3.0))

    def change():
        a.config, b.config = b.config, a.config
    return around(compile(lambda x: a(x) + b(x * 2)), change, change)


def eight_deep(compile):
    head, leaf = chain(7, gain=2.0)
    f = compile(lambda x: x * head.next.next.next.next.next.next.next.gain)
    return around(f, put(leaf, gain=3.0), put(leaf, gain=2.0))


def eight_deep_middle_replaced(compile):
    head, _ = chain(7, gain=2.0)
    other, _ = chain(4, gain=3.0)
    f = compile(lambda x: x * head.next.next.next.next.next.next.next.gain)
    return around(f, put(head.next.next, next=other))


def two_hundred_deep(compile):
    head, leaf = chain(200, gain=2.0)

    def last(node):
        while hasattr(node, "next"):
            node = node.next
        return node
    return around(compile(lambda x: x * last(head).gain), put(leaf, gain=3.0), put(leaf, next=Thing(gain=2.0)))


def ring_of_things(compile):
    a, b = Thing(gain=2.0), Thing(gain=3.0)
    a.other, b.other = b, a
    return around(compile(lambda x: x * a.other.other.other.gain), put(b, gain=2.0), put(b, other=b))


def things_that_are_equal(compile):
    """A comparison that says yes is no proof that nothing changed."""
    class Equal(Thing):
        def __eq__(self, other):
            return True
        __hash__ = None
    holder = Thing(config=Equal(gain=2.0))
    return around(compile(lambda x: x * holder.config.gain), lambda: put(holder, config=Equal(gain=3.0))())


# ------------------------------------------------------------------------------------------------- ways to read and write
def vars_of_an_object(compile):
    box = Thing(gain=2.0)
    return around(compile(lambda x: x * vars(box)["gain"]), put(box, gain=3.0), lambda: vars(box).update(gain=2.0))


def dict_of_an_object_replaced(compile):
    box = Thing(gain=2.0)
    return scaled(compile, box, lambda: put(box, __dict__={"gain": 3.0})(), put(box, gain=2.0))


def setattr_past_a_guard(compile):
    @dataclasses.dataclass(frozen=True)
    class Config:
        gain: float
    box = Config(2.0)
    return scaled(compile, box, lambda: object.__setattr__(box, "gain", 3.0))


def deleted_to_show_the_class(compile):
    class Config(Thing):
        gain = 3.0
    box = Config(gain=2.0)
    return scaled(compile, box, lambda: delattr(box, "gain"), put(Config, gain=2.0))


def shadowed_by_the_instance(compile):
    class Config(Thing):
        gain = 2.0
    box = Config()
    return scaled(compile, box, put(box, gain=3.0), put(Config, gain=5.0), lambda: delattr(box, "gain"))


def getattr_with_a_default(compile):
    box = Thing()
    return around(compile(lambda x: x * getattr(box, "gain", 2.0)), put(box, gain=3.0), lambda: delattr(box, "gain"))


def hasattr_asked(compile):
    box = Thing()
    f = compile(lambda x: x * 3.0 if hasattr(box, "gain") else x * 2.0)
    return around(f, put(box, gain=None), lambda: delattr(box, "gain"))


def names_computed_in_a_loop(compile):
    box = Thing(gain0=2.0, gain1=1.0, gain2=1.0)

    def f(x):
        for i in range(3):
            x = x * getattr(box, f"gain{i}")
        return x
    return around(compile(f), put(box, gain2=3.0), put(box, gain1=2.0))


def attrgetter_with_dots(compile):
    box = Thing(inner=Thing(gain=2.0))
    get = operator.attrgetter("inner.gain")
    return around(compile(lambda x: x * get(box)), put(box.inner, gain=3.0), lambda: put(box, inner=Thing(gain=2.0))())


def all_attributes_of_a_thing(compile):
    box = Thing(a=1.0, b=1.0)

    def f(x):
        total = 0.0
        for name in dir(box):
            if not name.startswith("_"):
                total += getattr(box, name)
        return x * total
    return around(compile(f), put(box, c=1.0), lambda: delattr(box, "a"))


def attributes_in_their_order(compile):
    box = Thing(a=2.0, b=3.0)

    def f(x):
        for value in vars(box).values():
            x = x * value + 1
        return x

    def change():
        del box.a
        box.a = 2.0
    return around(compile(f), change)


def written_and_read_in_the_call(compile):
    box = Thing(last=1.0)

    def f(x):
        box.last = box.last + 1.0
        return x * box.last
    return around(compile(f), put(box, last=0.0))


# --------------------------------------------------------------------------------------------------- kinds of objects
def slots_of_a_base(compile):
    class Base:
        __slots__ = ("gain",)

    class Config(Base):
        __slots__ = ("bias",)
    box = Config()
    box.gain, box.bias = 2.0, 1
    return around(compile(lambda x: x * box.gain + box.bias), put(box, gain=3.0), put(box, bias=2))


def slot_emptied(compile):
    class Config:
        __slots__ = ("gain",)
    box = Config()
    box.gain = 2.0

    def f(x):
        try:
            return x * box.gain
        except AttributeError:
            return x * 3.0
    return around(compile(f), lambda: delattr(box, "gain"), put(box, gain=2.0))


def dataclass_with_slots(compile):
    @dataclasses.dataclass(slots=True)
    class Config:
        gain: float = 2.0
    box = Config()
    return scaled(compile, box, put(box, gain=3.0))


def dataclass_replaced_inside(compile):
    @dataclasses.dataclass
    class Config:
        gain: float = 2.0
        bias: int = 1
    box = Config()

    def f(x):
        other = dataclasses.replace(box, bias=0)
        return x * other.gain + other.bias
    return around(compile(f), put(box, gain=3.0))


def dataclass_fields_walked(compile):
    @dataclasses.dataclass
    class Config:
        a: float = 1.0
        b: float = 1.0
    box = Config()
    f = compile(lambda x: x * sum(getattr(box, field.name) for field in dataclasses.fields(box)))
    return around(f, put(box, b=2.0), put(box, a=0.0))


def dataclass_nested_as_dict(compile):
    @dataclasses.dataclass
    class Inner:
        gain: float = 2.0

    @dataclasses.dataclass
    class Outer:
        inner: Inner
    box = Outer(Inner())
    f = compile(lambda x: x * dataclasses.asdict(box)["inner"]["gain"])
    return around(f, put(box.inner, gain=3.0), lambda: put(box, inner=Inner())())


def named_tuple_rebuilt(compile):
    class Config(typing.NamedTuple):
        gain: float
        bias: int
    holder = Thing(config=Config(2.0, 1))
    f = compile(lambda x: x * holder.config.gain + holder.config.bias)
    return around(f, lambda: put(holder, config=holder.config._replace(gain=3.0))())


def enum_member_with_an_attribute(compile):
    class Mode(enum.Enum):
        WARM = 1
        COLD = 2
    Mode.WARM.gain = 2.0
    holder = Thing(mode=Mode.WARM)
    Mode.COLD.gain = 5.0
    return around(compile(lambda x: x * holder.mode.gain), put(Mode.WARM, gain=3.0), put(holder, mode=Mode.COLD))


def enum_value_that_is_a_list(compile):
    class Mode(enum.Enum):
        GAINS = [2.0]
    return around(compile(lambda x: x * Mode.GAINS.value[0]), lambda: Mode.GAINS.value.__setitem__(0, 3.0))


def int_enum_in_arithmetic(compile):
    class Level(enum.IntEnum):
        LOW = 2
        HIGH = 3
    holder = Thing(level=Level.LOW)
    return around(compile(lambda x: x * holder.level), put(holder, level=Level.HIGH), put(holder, level=2))


def simple_namespace_in_a_namespace(compile):
    box = types.SimpleNamespace(inner=types.SimpleNamespace(gain=2.0))
    return around(compile(lambda x: x * box.inner.gain), put(box.inner, gain=3.0),
                  lambda: put(box, inner=types.SimpleNamespace(gain=2.0))())


def module_of_python(compile):
    settings = types.ModuleType("settings")
    settings.gain = 2.0
    return scaled(compile, settings, put(settings, gain=3.0), lambda: exec("gain = 2.0", vars(settings)))


def module_of_python_that_computes(compile):
    """A module's own __getattr__ answers for what it does not have."""
    settings, table = types.ModuleType("settings"), {"gain": 2.0}
    settings.__getattr__ = lambda name: table[name]
    return scaled(compile, settings, lambda: table.update(gain=3.0), put(settings, gain=2.0))


def attribute_of_a_function(compile):
    def helper(x):
        return x * helper.gain
    helper.gain = 2.0
    return around(compile(lambda x: helper(x) + 1), put(helper, gain=3.0))


def attribute_of_a_method(compile):
    class Box:
        def scale(self, x):
            return x * self.scale.gain
        scale.gain = 2.0
    box = Box()
    return around(compile(lambda x: box.scale(x)), put(Box.scale, gain=3.0))


def self_of_a_bound_method(compile):
    class Box(Thing):
        def scale(self, x):
            return x * self.gain
    holder = Thing(scale=Box(gain=2.0).scale)
    return around(compile(lambda x: holder.scale(x)), lambda: put(holder.scale.__self__, gain=3.0)(),
                  lambda: put(holder, scale=Box(gain=2.0).scale)())


# --------------------------------------------------------------------------------------------------------- classes
def class_read_through_type(compile):
    class Config:
        gain = 2.0
    box = Config()
    return around(compile(lambda x: x * type(box).gain), put(box, gain=5.0), put(Config, gain=3.0))


def class_read_through_super(compile):
    class Base:
        gain = 2.0

    class Config(Base):
        @property
        def doubled(self):
            return super().gain * 2
    box = Config()
    return around(compile(lambda x: x * box.doubled), put(Base, gain=3.0), put(Config, gain=5.0))


def class_with_another_base(compile):
    class Quiet:
        gain = 2.0

    class Loud:
        gain = 3.0

    class Middle(Quiet):
        pass

    class Config(Middle):
        pass
    box = Config()
    return scaled(compile, box, put(Middle, __bases__=(Loud,)), put(Middle, gain=2.0))


def class_between_two_in_the_order(compile):
    class Base:
        gain = 2.0

    class Left(Base):
        pass

    class Right(Base):
        pass

    class Config(Left, Right):
        pass
    box = Config()
    return scaled(compile, box, put(Right, gain=3.0), put(Left, gain=2.0), lambda: delattr(Left, "gain"))


def class_list_grows(compile):
    class Registry:
        gains = [2.0]
    return around(compile(lambda x: x * sum(Registry.gains)), lambda: Registry.gains.append(1.0))


def class_of_a_module_changed(compile):
    class Calm(nn.Module):
        def forward(self, x):
            return x * 2.0

    class Wild(nn.Module):
        def forward(self, x):
            return x * 3.0
    net = Calm()
    return around(compile(lambda x: net(x)), put(net, __class__=Wild), put(net, __class__=Calm))


def class_made_by_type(compile):
    Config = type("Config", (), {"gain": 2.0})
    return around(compile(lambda x: x * Config().gain), put(Config, gain=3.0))


# ------------------------------------------------------------------------------------------------------ weak references
def weak_reference(compile):
    box = Thing(gain=2.0)
    ref = weakref.ref(box)
    return around(compile(lambda x: x * ref().gain), put(box, gain=3.0))


def weak_reference_that_dies(compile):
    box = Thing(gain=2.0)
    ref = weakref.ref(box)

    def change():
        nonlocal box
        box = None
    return around(compile(lambda x: x * 3.0 if ref() is None else x * ref().gain), change)


def weak_proxy(compile):
    box = Thing(gain=2.0)
    return scaled(compile, weakref.proxy(box), put(box, gain=3.0))


def weak_keys(compile):
    kept = [Thing(), Thing()]
    table = weakref.WeakKeyDictionary({kept[0]: 2.0, kept[1]: 1.0})
    return around(compile(lambda x: x * sum(table.values())), lambda: kept.pop())


def weak_values(compile):
    kept = [Thing(gain=2.0)]
    table = weakref.WeakValueDictionary(a=kept[0])
    return around(compile(lambda x: x * (table["a"].gain if "a" in table else 3.0)), lambda: kept.clear())


# ------------------------------------------------------------------------------------------------------- kinds of values
def zero_that_gets_a_sign(compile):
    box = Thing(zero=0.0)
    return around(compile(lambda x: x * box.zero), put(box, zero=-0.0), put(box, zero=0.0))


def zero_of_another_type(compile):
    box = Thing(gain=1)
    f = compile(lambda x: (torch.arange(3) * box.gain, x))
    return around(f, put(box, gain=1.0), put(box, gain=True), put(box, gain=1))


def not_a_number(compile):
    box = Thing(gain=2.0)
    return scaled(compile, box, put(box, gain=float("nan")), put(box, gain=float("inf")), put(box, gain=2.0))


def whole_number_beyond_words(compile):
    box = Thing(big=2 ** 70)
    return around(compile(lambda x: x * (box.big % 5)), put(box, big=2 ** 70 + 1))


def text_as_a_mode(compile):
    box = Thing(mode="double")
    f = compile(lambda x: x * 2.0 if box.mode == "double" else x * 3.0)
    return around(f, put(box, mode="triple"), put(box, mode="dou" + "ble"))


def fraction_and_decimal(compile):
    box = Thing(part=fractions.Fraction(2, 1), price=decimal.Decimal("1.0"))
    f = compile(lambda x: x * float(box.part) * float(box.price))
    return around(f, put(box, part=fractions.Fraction(3, 1)), put(box, price=decimal.Decimal("2.0")))


def float_that_is_more(compile):
    """A float of a class of one's own, with something beside its value."""
    class Gain(float):
        bias = 1.0
    box = Thing(gain=Gain(2.0))
    f = compile(lambda x: x * box.gain + box.gain.bias)

    def change():
        box.gain = Gain(2.0)
        box.gain.bias = 2.0
    return around(f, change)


def none_becomes_a_tensor(compile):
    box = Thing(mask=None)
    f = compile(lambda x: x * 2.0 if box.mask is None else x * box.mask)
    return around(f, put(box, mask=vec()), put(box, mask=3.0), put(box, mask=None))


def tuple_of_tuples(compile):
    box = Thing(plan=((2.0, 1), (1.0, 0)))

    def f(x):
        for gain, bias in box.plan:
            x = x * gain + bias
        return x
    return around(compile(f), put(box, plan=((2.0, 1), (3.0, 0))), put(box, plan=((2.0, 1),)))


def attribute_of_a_parameter(compile):
    net = nn.Linear(3, 1)
    net.weight.gain = 2.0
    return around(compile(lambda x: net(x) * net.weight.gain), put(net.weight, gain=3.0))


def attribute_behind_a_modules_back(compile):
    net = Scaled(Thing(gain=2.0))
    return around(compile(lambda x: net(x)), lambda: object.__setattr__(net, "config", Thing(gain=3.0)))


def attribute_of_a_module_deleted(compile):
    class Net(nn.Module):
        gain = 3.0

        def forward(self, x):
            return x * self.gain
    net = Net()
    net.gain = 2.0
    return around(compile(lambda x: net(x)), lambda: delattr(net, "gain"), put(net, gain=2.0))
