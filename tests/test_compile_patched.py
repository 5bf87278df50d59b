"""Classes, modules and methods that are changed under the feet of a program that has read them."""

from __future__ import annotations

import abc
import builtins
import functools
import math
import types

import pytest
from compiled import same_seen, seen, way, why

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn

LAYER = nn.Linear(2, 2)


def patch(owner, name, value):
    """Sets an attribute; gives what puts the old one back."""
    before = vars(owner).get(name, patch)
    setattr(owner, name, value)
    return lambda: delattr(owner, name) if before is patch else setattr(owner, name, before)


def plain():
    class Plain:
        def __init__(self):
            self.k = 2.0
    return Plain


def equality():
    kind = plain()
    a, b = kind(), kind()
    return lambda x: x * (2 if a == b else 3), lambda: patch(kind, "__eq__", lambda self, other: True)


def membership():
    kind = plain()
    some, other = [kind()], kind()
    return lambda x: x * (2 if other in some else 3), lambda: patch(kind, "__eq__", lambda self, other: True)


def lookup():
    kind = plain()
    o = kind()
    return lambda x: x * o.k, lambda: patch(kind, "__getattribute__", lambda self, name: 5.0)


def truth():
    kind = plain()
    o = kind()
    return lambda x: x * (2 if o else 3), lambda: patch(kind, "__bool__", lambda self: False)


def length_as_truth():
    kind = plain()
    o = kind()
    return lambda x: x * (2 if o else 3), lambda: patch(kind, "__len__", lambda self: 0)


def bases():
    first, second = plain(), plain()
    kind = type("Sub", (first,), {})
    o = kind()
    return lambda x: x * (2 if isinstance(o, second) else 3), lambda: patch(kind, "__bases__", (second,)) and (lambda: None)


def bases_of_a_class():
    first, second = plain(), plain()
    kind = type("Sub", (first,), {})
    return lambda x: x * (2 if issubclass(kind, second) else 3), lambda: patch(kind, "__bases__", (second,)) and (lambda: None)


def registered(value):
    def case():
        class Abstract(abc.ABC):  # noqa: B024
            pass
        given = value
        return (lambda x: x * (2 if isinstance(x if given is None else given, Abstract) else 3),
                lambda: Abstract.register(torch.Tensor if given is None else type(given)) and (lambda: None))
    return case


def class_of_a_module():
    class Other(types.ModuleType):
        def __getattribute__(self, name):
            return 7.0
    module = types.ModuleType("module")
    module.k = 2.0
    return lambda x: x * module.k, lambda: object.__setattr__(module, "__class__", Other) or (lambda: None)


def metaclass(name, value):
    def case():
        class Meta(type):
            pass

        class Made(metaclass=Meta):
            k = 2.0
        return lambda x: x * Made.k, lambda: patch(Meta, name, value)
    return case


def setting():
    kind = plain()

    def set_and_read(x):
        o = kind()
        o.k = 3.0
        return x * o.__dict__["k"]
    return set_and_read, lambda: patch(kind, "__setattr__", lambda self, name, value: self.__dict__.update({name: 9.0}))


def property_instead():
    kind = plain()
    o = kind()
    return lambda x: x * o.k, lambda: patch(kind, "k", property(lambda self: 6.0))


def becomes_a_descriptor():
    kind, value = plain(), plain()
    kind.v = value()
    o = kind()
    return lambda x: x * o.v.k, lambda: patch(value, "__get__", lambda self, owner, kind: types.SimpleNamespace(k=8.0))


def calls_of_an_object():
    kind = plain()
    kind.__call__ = lambda self, x: x * 2
    o = kind()
    return lambda x: o(x), lambda: patch(kind, "__call__", lambda self, x: x * 9)


def partial_state():
    part = functools.partial(lambda x, k=1.0: x * k)
    return lambda x: part(x), lambda: part.__setstate__((part.func, (), {"k": 5.0}, {})) or (lambda: None)


CASES = {
    "equality": equality, "membership": membership, "lookup": lookup, "truth": truth, "length as truth": length_as_truth,
    "bases": bases, "bases of a class": bases_of_a_class, "a tensor's abstract class": registered(None),
    "a list's abstract class": registered([1]), "the class of a module": class_of_a_module,
    "a metaclass's property": metaclass("k", property(lambda cls: 9.0)),
    "a metaclass's lookup": metaclass("__getattribute__", lambda cls, name: 9.0), "setting": setting,
    "a property instead of an attribute": property_instead, "an attribute becomes a descriptor": becomes_a_descriptor,
    "calls of an object": calls_of_an_object, "the state of a partial": partial_state,
    "a builtin": lambda: (lambda x: x * round(2.4), lambda: patch(builtins, "round", lambda v: 9)),
    "math": lambda: (lambda x: x * math.sqrt(4.0), lambda: patch(math, "sqrt", lambda v: 9.0)),
    "an operation": lambda: (lambda x: torch.relu(x), lambda: patch(torch, "relu", lambda v: v * 9)),
    "a function of layers": lambda: (lambda x: LAYER(x), lambda: patch(F, "linear", lambda x, w, b: x * 9)),
    "a method of tensors": lambda: (lambda x: x.tanh(), lambda: patch(torch.Tensor, "tanh", lambda v: v * 9)),
    "an operator of tensors": lambda: (lambda x: x + 1, lambda: patch(torch.Tensor, "__add__", lambda a, b: a * 9)),
    "a swapped operator": lambda: (lambda x: 1 - x, lambda: patch(torch.Tensor, "__rsub__", lambda a, b: a * 9)),
    "a comparison of tensors": lambda: (lambda x: x < 1, lambda: patch(torch.Tensor, "__lt__", lambda a, b: a * 9)),
    "items of tensors": lambda: (lambda x: x[0] * 2, lambda: patch(torch.Tensor, "__getitem__", lambda a, b: a * 9)),
    "forward": lambda: (lambda x: LAYER(x), lambda: patch(nn.Linear, "forward", lambda self, x: x * 9)),
    "calls of modules": lambda: (lambda x: LAYER(x), lambda: patch(nn.Module, "__call__", lambda self, x: x * 9)),
    "attributes of modules": lambda: (lambda x: x * LAYER.weight[0], lambda: patch(
        nn.Module, "__getattr__", lambda self, name: torch.full((2, 2), 9.0))),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_noticed(name):
    function, change = CASES[name]()
    fn = torch.compile(function)

    def check(calls):
        for _ in range(calls):
            x = torch.tensor([0.5, 1.0])
            same_seen(seen(function(x)), seen(fn(x)))
    check(5)
    assert way(fn) == "skip", why(fn)
    back = change()
    try:
        check(5)
    finally:
        back()
    check(5)


def test_a_finalizer_that_comes_later():
    kind, died = plain(), []

    def f(x):
        return x * kind().k
    fn = torch.compile(f)
    for _ in range(4):
        fn(torch.ones(1))
    assert way(fn) == "skip", why(fn)
    kind.__del__ = lambda self: died.append(1)
    for n in range(1, 7):
        assert fn(torch.ones(1)).item() == 2 and len(died) == n


def test_a_lookup_of_ones_own_is_not_asked_twice():
    """A capture runs no code that the plain call would not run, and none twice."""
    asked = []

    class Asking:
        __slots__ = ("set", "unset")

        def __getattr__(self, name):
            asked.append(name)
            return 2.0

        def __eq__(self, other):
            asked.append("==")
            return True

        __hash__ = None

    def f(x):
        o = Asking()
        o.set = 3.0
        return x * o.set * o.unset * o.other * (o == 1)
    fn = torch.compile(f)
    for _ in range(4):
        asked.clear()
        assert fn(torch.ones(1)).item() == 12 and asked == ["unset", "other", "=="]
