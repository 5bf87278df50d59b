"""Pytrees: specs as text, dataclasses and constants, what specs print."""

from __future__ import annotations

import collections
import dataclasses
import importlib

import pytest
import torch

import flambeau

MODULES = (flambeau, torch)
Pair = collections.namedtuple("Pair", "x y")


def pytree(m):
    return importlib.import_module(f"{m.__name__}.utils._pytree")


def outcome(program, *args):
    try:
        return program(*args)
    except Exception as error:
        return type(error).__name__, str(error)[:100]


def tree():
    return {"a": [1, (2, 3)], "b": None, "c": Pair(4, 5), "d": collections.OrderedDict(z=6, y=7), "e": collections.deque([8]),
            "f": collections.defaultdict(int, {"q": 9})}


PROGRAMS = {
    "names": lambda p, m: sorted(set(p.__all__) - set(dir(flambeau.utils._pytree))),
    "print": lambda p, m: repr(p.tree_structure(tree())),
    "print small": lambda p, m: [repr(p.tree_structure(t)) for t in (1, [1, 2], {"a": 1}, (1,), None, Pair(1, 2), [])],
    "dumps": lambda p, m: p.treespec_dumps(p.tree_structure({"a": [1, 2], "b": (3,)})),
    "dumps a factory": lambda p, m: p.treespec_dumps(p.tree_structure(collections.defaultdict(list, {"a": 1}))),
    "dumps a named tuple": lambda p, m: p.treespec_dumps(p.tree_structure(Pair(1, 2))),
    "dumps no spec": lambda p, m: p.treespec_dumps("x"),
    "dumps by another protocol": lambda p, m: p.treespec_dumps(p.tree_structure([1]), 99),
    "loads by another protocol": lambda p, m: p.treespec_loads("[99, {}]"),
    "loads an unknown class": lambda p, m: p.treespec_loads('[1, {"type": "nope", "context": "null", "children_spec": []}]'),
    "pprint": lambda p, m: p.treespec_pprint(p.tree_structure({"a": [1, 2]})),
    "no dumpable context": lambda p, m: p.register_pytree_node(type("New", (), {}), lambda v: ([], None), lambda v, c: None,
                                                               to_dumpable_context=lambda c: c),
    "other types": lambda p, m: p.tree_structure([1, (2,)]).flatten_up_to([1, [2]]),
    "too few": lambda p, m: p.tree_structure([1, 2]).unflatten([3]),
    "arguments": lambda p, m: p.arg_tree_leaves(1, [2], a={"b": 3}),
    "specs of parts": lambda p, m: [repr(p.treespec_tuple([p.treespec_leaf()])),
                                    repr(p.treespec_dict({"a": p.treespec_leaf()}))],
    "return types": lambda p, m: [repr(p.tree_structure(m.ones(2, 2).max(0))), p.is_structseq(m.ones(2, 2).max(0)),
                                  p.is_namedtuple(m.ones(2, 2).max(0)),
                                  type(p.tree_map(lambda v: v, m.ones(1, 1).max(0))).__name__],
    "no dataclass": lambda p, m: p.register_dataclass(int),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_pytorch(name):
    ours, theirs = [outcome(PROGRAMS[name], pytree(m), m) for m in MODULES]
    assert ours == theirs


@pytest.mark.parametrize("value", [1, [1], (1, [2]), collections.OrderedDict(a=1), collections.deque([1], maxlen=3),
                                   collections.defaultdict(list, {"a": 1}), {"a": [1, {"b": None}]}], ids=repr)
def test_specs_as_text_and_back(value):
    p = pytree(flambeau)
    spec = p.tree_structure(value)
    assert p.treespec_loads(p.treespec_dumps(spec)) == spec
    assert p.treespec_dumps(spec) == pytree(torch).treespec_dumps(pytree(torch).tree_structure(value))


def test_dataclasses_and_classes():
    def program(m):
        p = pytree(m)

        @dataclasses.dataclass
        class Point:
            x: int
            y: int = 2
            label: str = "none"

        class Own:
            def __init__(self, a, b):
                self.a, self.b = a, b

        p.register_dataclass(Point, field_names=["x", "y"], drop_field_names=["label"])
        key = p.GetAttrKey
        p.register_pytree_node(Own, lambda v: ([v.a, v.b], None), lambda v, c: Own(*v),
                               serialized_type_name=f"{m.__name__}.Own", flatten_with_keys_fn=lambda v: (
                                   [(key("a"), v.a), (key("b"), v.b)], None))
        doubled = p.tree_map(lambda v: v * 2, [Point(1), Own(3, 4)])
        return (doubled[0].x, doubled[0].y, doubled[0].label, doubled[1].a, doubled[1].b,
                [(p.keystr(k), v) for k, v in p.tree_flatten_with_path([Point(1), Own(3, 4)])[0]],
                p.treespec_dumps(p.tree_structure(Own(1, 2))).replace(m.__name__, ""))

    assert program(flambeau) == program(torch)


def test_constants():
    p = pytree(flambeau)

    @dataclasses.dataclass(frozen=True)
    class Setting:
        value: int

    p.register_constant(Setting)
    leaves, spec = p.tree_flatten([1, Setting(2)])
    assert leaves == [1] and p.tree_unflatten([5], spec) == [5, Setting(2)]
    assert spec != p.tree_structure([1, Setting(3)])
