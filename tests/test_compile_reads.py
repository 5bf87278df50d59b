"""What a program takes for granted (capture/reads.py): when a value counts as the same, what each kind of read notices."""

from __future__ import annotations

import collections
import math

import numpy as np
import pytest

import flambeau as torch
from flambeau.compiler.capture.reads import (
    MISSING,
    Content,
    Entry,
    Function,
    Inherited,
    Kind,
    Metadata,
    Reads,
    Setting,
    Slot,
    Variable,
    inherited,
    same,
)

NAN, LIST, TENSOR, OBJECT = math.nan, [1], torch.ones(2), object()


@pytest.mark.parametrize("a, b", [
    (1, 1), (10 ** 30, 10 ** 30), (0.5, 0.5), (NAN, float("nan")), (math.inf, float("inf")), (-0.0, -0.0), (1j, 1j),
    (True, True), (complex(NAN, -0.0), complex(NAN, -0.0)), ("ab", "".join("ab")), (b"ab", b"".join([b"ab"])), (None, None),
    ((), ()),
    ((1, (2.0, "a")), (1, (2.0, "a"))), ((1, NAN), (1, float("nan"))), (LIST, LIST), ((LIST, 1), (LIST, 1)), (OBJECT, OBJECT),
    (TENSOR, TENSOR), (torch.Size([1, 2]), torch.Size([1, 2])), (slice(1, None, 2.0), slice(1, None, 2.0)), (..., ...),
    (np.float32(2), np.float32(2)), (np.float64(NAN), np.float64(NAN)), (torch.float32, torch.float32), (MISSING, MISSING)])
def test_the_same(a, b):
    assert same(a, b) and same(b, a)


@pytest.mark.parametrize("a, b", [
    (1, 2), (1, 1.0), (1, True), (0, False), (1.0, True), (0.0, -0.0), (0.5, math.nextafter(0.5, 1)), (1.0, 1 + 0j),
    (complex(0, -0.0), 0j), (NAN, 1.0), (NAN, -NAN), (complex(NAN, 0), complex(-NAN, 0)),
    (math.inf, -math.inf), ("a", b"a"), ("a", "b"), (None, 0), (None, False), ((1,), (1.0,)), ((1,), (True,)),
    ((0.0,), (-0.0,)), ((1, 2), (1,)), ((1,), [1]), ([1], [1]), ({}, {}), (object(), object()), (torch.ones(2), torch.ones(2)),
    (torch.Size([1]), (1,)), (slice(1), slice(1.0)), (slice(0, 1), slice(1)), (np.float32(1), np.float64(1)),
    (np.float32(1), 1.0),
    (np.float64(0.0), np.float64(-0.0)), (MISSING, None), ((LIST, 1), ([1], 1)), (range(3), range(4)), (1, "1")])
def test_not_the_same(a, b):
    assert not same(a, b) and not same(b, a)


def test_an_object_that_says_that_it_is_equal_is_not_asked():
    class Agreeing:
        def __eq__(self, other):
            raise AssertionError("asked")
    assert not same(Agreeing(), Agreeing()) and not same(1, Agreeing()) and not same(Agreeing(), 1)


# ------------------------------------------------------------------------------------------------------- one kind each
class Base:
    k = 1


class Other:
    k = 2


class OtherTensor(torch.Tensor):
    pass


class Sub(Base):
    __slots__ = ("slot",)


def cell_of(value):
    return (lambda: value).__closure__[0]


CASES = {
    "an entry": lambda: (d := {"a": 1}, Entry(d, "a", 1), lambda: d.update(a=2)),
    "an entry that goes": lambda: (d := {"a": 1}, Entry(d, "a", 1), lambda: d.clear()),
    "an entry that comes": lambda: (d := {}, Entry(d, "a", MISSING), lambda: d.update(a=None)),
    "an entry of another type": lambda: (d := {1: 1}, Entry(d, 1, 1), lambda: d.update({1: True})),
    "an entry of a defaultdict that comes": lambda: (d := collections.defaultdict(int), Entry(d, "a", MISSING), lambda: d["a"]),
    "a variable": lambda: (c := cell_of(1), Variable(c, "v", 1), lambda: setattr(c, "cell_contents", 2)),
    "a variable that goes": lambda: (c := cell_of(1), Variable(c, "v", 1), lambda: delattr(c, "cell_contents")),
    "a slot": lambda: (o := Sub(), Slot(o, "slot", MISSING), lambda: setattr(o, "slot", 1)),
    "a table": lambda: (o := Base(), Slot(o, "__dict__", o.__dict__), lambda: setattr(o, "__dict__", {})),
    "a class": lambda: (o := Base(), Kind(o, None, Base), lambda: setattr(o, "__class__", type("Other", (Base,), {}))),
    "an inherited attribute": lambda: (k := type("K", (Base,), {}), Inherited(k, "k", 1), lambda: setattr(k, "k", 2)),
    "an attribute that a base gets": lambda: (b := type("B", (), {}), Inherited(type("K", (b,), {}), "k", MISSING),
                                              lambda: setattr(b, "k", 2)),
    "bases": lambda: (k := type("K", (Base,), {}), Inherited(k, None, k.__mro__), lambda: setattr(k, "__bases__", (Other,))),
    "a longer list": lambda: (d := [1], Content(d, None, [1]), lambda: d.append(2)),
    "an item of a list": lambda: (d := [1, 0.0], Content(d, None, [1, 0.0]), lambda: d.__setitem__(1, -0.0)),
    "the order of a list": lambda: (d := [1, 2], Content(d, None, [1, 2]), lambda: d.reverse()),
    "the order of a dict": lambda: (d := {"a": 1, "b": 2}, Content(d, None, ["a", 1, "b", 2]), lambda: d.update(a=d.pop("a"))),
    "the order of an OrderedDict": lambda: (d := collections.OrderedDict(a=1, b=2), Content(d, None, ["a", 1, "b", 2]),
                                            lambda: d.move_to_end("a")),
    "a key instead of another": lambda: (d := {"a": 1}, Content(d, None, ["a", 1]), lambda: (d.clear(), d.update(b=1))),
    "a set": lambda: (d := {1}, Content(d, None, [1]), lambda: d.add(2)),
    "a tensor's shape": lambda: (t := torch.ones(4), Metadata(t), lambda: setattr(t, "data", torch.ones(2, 2))),
    "a tensor's strides": lambda: (t := torch.ones(2, 3), Metadata(t), lambda: setattr(t, "data", torch.ones(3, 2).t())),
    "a tensor's dtype": lambda: (t := torch.ones(4), Metadata(t), lambda: setattr(t, "data", torch.ones(4).double())),
    "a tensor that requires a gradient": lambda: (t := torch.ones(4), Metadata(t), lambda: t.requires_grad_()),
    "a tensor's class": lambda: (t := torch.ones(4), Metadata(t), lambda: setattr(t, "__class__", OtherTensor)),
    "a setting": lambda: (d := [1], Setting(lambda: d[0]), lambda: d.__setitem__(0, 2)),
}


@pytest.mark.parametrize("name", CASES)
def test_each_kind_notices(name):
    owner, read, change = CASES[name]()
    assert read.holds() and isinstance(repr(read), str)
    change()
    assert not read.holds() and owner is not None


def test_functions():
    def made(x=1, *, y=2):
        return x

    def other(x=1, *, y=2):
        return y
    for change in (lambda: setattr(made, "__code__", other.__code__), lambda: setattr(made, "__defaults__", (2,)),
                   lambda: setattr(made, "__defaults__", None), lambda: made.__kwdefaults__.update(y=3),
                   lambda: made.__kwdefaults__.update(z=3), lambda: setattr(made, "__kwdefaults__", None)):
        read = Function(made)
        assert read.holds()
        change()
        assert not read.holds()
        assert Function(made).holds()


def test_a_tensor_may_have_other_values():
    t = torch.ones(4)
    read = Metadata(t)
    t.add_(1)
    t.data = torch.zeros(4)
    assert read.holds()


def test_what_a_metaclass_says_of_itself_is_not_asked():
    class Meta(type):
        def __getattribute__(cls, name):
            raise AssertionError("asked")
    kind = Meta("Kind", (), {"k": 3})
    assert inherited(kind, "k") == 3 and inherited(kind, "nothing") is MISSING


def test_an_attribute_that_neither_base_has():
    assert inherited(Sub, "k") == 1 and inherited(Sub, "q") is MISSING and inherited(Sub, "__init__") is object.__init__


# --------------------------------------------------------------------------------------------------------- all together
def test_all_reads_of_a_call():
    table, tensor = {"a": 1, "t": torch.ones(2), 1: "one"}, torch.ones(3)
    reads = Reads()
    reads.add(Entry, table, "a", 1)
    reads.add(Entry, table, "a", "what was found first counts")
    reads.add(Entry, table, 1, table[1])
    reads.add(Entry, table, "t", table["t"])
    reads.once(Metadata, tensor)
    reads.once(Metadata, tensor)
    reads.seal()
    assert len(reads.list) == 4 and reads.hold() and reads.broken() is None
    assert reads.tensors() == {id(table["t"]), id(tensor)} and len(reads.describe()) == 4
    table["a"] = 2
    assert not reads.hold() and reads.broken() == "a"
    table["a"] = 1
    assert reads.hold()


def test_descriptions_run_no_code_of_the_users():
    class Loud:
        def __repr__(self):
            raise AssertionError("shown")
        __str__ = __repr__
    loud = Loud()
    for read in (Entry({"k": loud}, "k", loud), Entry({loud: 1}, loud, 1), Slot(loud, "__dict__", loud.__dict__),
                 Kind(loud, None, Loud)):
        assert "Loud" in repr(read) or "k" in repr(read)
