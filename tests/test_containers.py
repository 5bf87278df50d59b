"""Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict: what they hold, print, refuse; against PyTorch."""

from collections import OrderedDict

import pytest
from compare import agree_in_words
from layer_cases import layers

import flambeau


def three(torch):
    Dense, _, _ = layers(torch)
    return Dense(2, 3), torch.nn.Identity(), Dense(3, 2)


def sequential(torch):
    return torch.nn.Sequential(*three(torch))


def parameter(torch, *size):
    return torch.nn.Parameter(torch.zeros(*size))


SEQUENTIAL = {
    "repr": lambda torch, s: s,
    "forward": lambda torch, s: s(torch.ones(1, 2)),
    "items": lambda torch, s: (s[0], s[-1], s[1:], s[::2], len(s), list(s)),
    "names": lambda torch, s: (list(s.state_dict()), list(s[1:].state_dict())),
    "named": lambda torch, s: torch.nn.Sequential(OrderedDict(a=s[0], b=s[1])),
    "empty": lambda torch, s: (torch.nn.Sequential(), torch.nn.Sequential()(3)),
    "too far": lambda torch, s: s[5],
    "too far back": lambda torch, s: s[-4],
    "text index": lambda torch, s: s["a"],
    "float index": lambda torch, s: s[1.0],
    "pop": lambda torch, s: (s.pop(1), s),
    "pop too far": lambda torch, s: s.pop(5),
    "insert": lambda torch, s: (s.insert(1, torch.nn.Identity()), s.insert(-1, torch.nn.Identity()), s),
    "insert too far": lambda torch, s: s.insert(9, torch.nn.Identity()),
    "insert too far back": lambda torch, s: s.insert(-9, torch.nn.Identity()),
    "insert a number": lambda torch, s: s.insert(0, 3),
    "append": lambda torch, s: s.append(torch.nn.Identity()).append(torch.nn.Identity()),
    "append a number": lambda torch, s: s.append(3),
    "extend": lambda torch, s: s.extend(torch.nn.Sequential(torch.nn.Identity())),
    "extend with numbers": lambda torch, s: s.extend([3]),
    "plus": lambda torch, s: s + s,
    "plus a number": lambda torch, s: s + 3,
    "plus equals": lambda torch, s: s.__iadd__(torch.nn.Sequential(torch.nn.Identity())),
    "plus equals number": lambda torch, s: s.__iadd__(3),
    "times": lambda torch, s: (s * 2, 2 * s),
    "times zero": lambda torch, s: s * 0,
    "times text": lambda torch, s: s * "a",
    "times equals": lambda torch, s: s.__imul__(3),
    "times equals negative": lambda torch, s: s.__imul__(-1),
    "set": lambda torch, s: (s.__setitem__(0, torch.nn.Identity()), s),
    "set a number": lambda torch, s: s.__setitem__(0, 3),
    "delete": lambda torch, s: (s.__delitem__(0), s),
    "delete a slice": lambda torch, s: (s.__delitem__(slice(0, 2)), s),
    "of a number": lambda torch, s: torch.nn.Sequential(3),
    "of a dict": lambda torch, s: torch.nn.Sequential({"a": torch.nn.Identity()}),
}


@pytest.mark.parametrize("case", SEQUENTIAL)
def test_sequential(case):
    agree_in_words(lambda torch: SEQUENTIAL[case](torch, sequential(torch)), tolerance=1e-6)


LIST = {
    "repr": lambda torch, m: (m, torch.nn.ModuleList(), torch.nn.ModuleList([m[0], m[0], m[0], m[1]])),
    "items": lambda torch, m: (m[0], m[-1], m[::-1], m[1:], len(m), list(m), m[0] in m),
    "too far": lambda torch, m: m[5],
    "call": lambda torch, m: m(3),
    "append": lambda torch, m: m.append(torch.nn.Identity()),
    "append a number": lambda torch, m: m.append(3),
    "extend": lambda torch, m: m.extend(x for x in [torch.nn.Identity()] * 2),
    "extend with a number": lambda torch, m: m.extend(3),
    "of a number": lambda torch, m: torch.nn.ModuleList(3),
    "insert": lambda torch, m: (m.insert(0, torch.nn.Identity()), m.insert(2, torch.nn.Identity()), m),
    "plus": lambda torch, m: m + [torch.nn.Identity()],
    "plus a number": lambda torch, m: m + 3,
    "plus equals": lambda torch, m: m.__iadd__([torch.nn.Identity()]),
    "pop": lambda torch, m: (m.pop(0), m.pop(-1), m),
    "set": lambda torch, m: (m.__setitem__(-1, torch.nn.Identity()), m),
    "delete": lambda torch, m: (m.__delitem__(0), m),
    "delete a slice": lambda torch, m: (m.__delitem__(slice(0, 3, 2)), m),
    "names": lambda torch, m: list(m.state_dict()),
    "nested": lambda torch, m: torch.nn.ModuleList([torch.nn.Sequential(m[0], m[1]), torch.nn.Sequential(m[0], m[1])]),
}


@pytest.mark.parametrize("case", LIST)
def test_module_list(case):
    agree_in_words(lambda torch: LIST[case](torch, torch.nn.ModuleList(three(torch))))


DICT = {
    "repr": lambda torch, m: (m, torch.nn.ModuleDict()),
    "views": lambda torch, m: (list(m), list(m.keys()), list(m.items()), list(m.values()), "a" in m, "z" in m, len(m)),
    "missing": lambda torch, m: m["z"],
    "set": lambda torch, m: (m.__setitem__("z", torch.nn.Identity()), m),
    "set a number": lambda torch, m: m.__setitem__("z", 3),
    "dotted": lambda torch, m: m.update({"a.b": torch.nn.Identity()}),
    "taken": lambda torch, m: torch.nn.ModuleDict({"forward": torch.nn.Identity()}),
    "update": lambda torch, m: (m.update({"z": torch.nn.Identity(), "c": torch.nn.Identity()}), list(m)),
    "update with pairs": lambda torch, m: (m.update([("z", torch.nn.Identity())]), list(m)),
    "update with module": lambda torch, m: (m.update(torch.nn.ModuleDict({"q": torch.nn.Identity()})), list(m)),
    "update with a number": lambda torch, m: m.update(3),
    "update with numbers": lambda torch, m: m.update([3]),
    "update with triples": lambda torch, m: m.update([(1, 2, 3)]),
    "pop": lambda torch, m: (m.pop("a"), m),
    "pop missing": lambda torch, m: m.pop("z"),
    "clear": lambda torch, m: (m.clear(), m),
    "delete": lambda torch, m: (m.__delitem__("a"), m),
    "call": lambda torch, m: m(1),
}


@pytest.mark.parametrize("case", DICT)
def test_module_dict(case):
    agree_in_words(lambda torch: DICT[case](torch, torch.nn.ModuleDict(zip("ab", three(torch)))))


PARAMETERS = {
    "repr": lambda torch, p: (p, torch.nn.ParameterList(), torch.nn.ParameterList([parameter(torch, 1)])),
    "items": lambda torch, p: (p[0], p[1], p[-1], p[0:2], list(p), len(p), p[::2]),
    "too far": lambda torch, p: p[9],
    "call": lambda torch, p: p(1),
    "append": lambda torch, p: (p.append(torch.ones(1)), list(p.state_dict())),
    "extend with a parameter": lambda torch, p: p.extend(parameter(torch, 1)),
    "extend with a number": lambda torch, p: p.extend(3),
    "of a number": lambda torch, p: torch.nn.ParameterList(3),
    "plus equals": lambda torch, p: p.__iadd__([parameter(torch, 1)]),
    "set over a parameter": lambda torch, p: p.__setitem__(0, 5),
    "set": lambda torch,
    p: (p.__setitem__(0, torch.ones(4)), p.__setitem__(1, parameter(torch, 2)), p, list(p.state_dict())),
    "set too far": lambda torch, p: p.__setitem__(9, 5),
    "names": lambda torch, p: [n for n, _ in p.named_parameters()],
}


@pytest.mark.parametrize("case", PARAMETERS)
def test_parameter_list(case):
    def program(torch):
        return PARAMETERS[case](torch, torch.nn.ParameterList([parameter(torch, 2, 3), 3, "a", torch.ones(2)]))

    agree_in_words(program)


NAMED = {
    "repr": lambda torch, p: (p, torch.nn.ParameterDict()),
    "views": lambda torch,
    p: (list(p), list(p.keys()), list(p.items()), list(p.values()), len(p), "a" in p, list(reversed(p))),
    "missing": lambda torch, p: p["z"],
    "numbered": lambda torch, p: p[3],
    "set numbered": lambda torch, p: p.__setitem__(3, 3),
    "set": lambda torch, p: (p.__setitem__("z", torch.ones(1)), p, list(p.state_dict())),
    "dotted": lambda torch, p: p.__setitem__("a.b", parameter(torch, 1)),
    "taken": lambda torch, p: p.__setitem__("keys", parameter(torch, 1)),
    "copy": lambda torch, p: p.copy(),
    "or": lambda torch, p: (p | {"q": parameter(torch, 1)}, {"u": parameter(torch, 1)} | p, p.__ior__({"v": 1})),
    "get": lambda torch, p: (p.get("z", 4), p.get("a"), p.get("z")),
    "setdefault": lambda torch,
    p: (p.setdefault("n", parameter(torch, 1)), p.setdefault("a"), p.setdefault("m"), list(p)),
    "popitem": lambda torch, p: (p.popitem(), list(p)),
    "pop": lambda torch, p: (p.pop("b"), list(p)),
    "pop missing": lambda torch, p: p.pop("z"),
    "clear": lambda torch, p: (p.clear(), len(p), list(p.state_dict())),
    "fromkeys": lambda torch, p: p.fromkeys(["x", "y"], 3),
    "update": lambda torch, p: (p.update({"n": parameter(torch, 3), "d": 1}), list(p)),
    "update ordered": lambda torch, p: (p.update(OrderedDict(z=1, y=2)), list(p)),
    "update with a number": lambda torch, p: p.update(3),
    "update with numbers": lambda torch, p: p.update([3]),
    "pairs": lambda torch, p: torch.nn.ParameterDict([("z", parameter(torch, 1)), ("b", 2)]),
    "call": lambda torch, p: p(1),
}


@pytest.mark.parametrize("case", NAMED)
def test_parameter_dict(case):
    text = case not in ("update with numbers",)
    agree_in_words(lambda torch: NAMED[case](torch,
                                             torch.nn.ParameterDict({"b": parameter(torch, 2), "a": 3, "c": torch.ones(1)})),
                   text)


def test_container_and_identity():
    agree_in_words(lambda torch: torch.nn.Container(a=torch.nn.Identity()))
    agree_in_words(lambda torch: (torch.nn.Identity(3, a=4), torch.nn.Identity(5)("x")))
    agree_in_words(lambda torch: torch.nn.Identity()(1, 2), text=False)


def test_copies_and_subclasses_of_containers():
    import copy
    import pickle

    class Mine(flambeau.nn.ModuleList):
        pass

    lists = Mine([flambeau.nn.Identity()])
    assert type(lists[:1]) is Mine and type(copy.deepcopy(lists)) is Mine
    p = flambeau.nn.ParameterDict({"a": flambeau.ones(2), "b": 3})
    twin = pickle.loads(pickle.dumps(p))
    assert twin["a"].tolist() == [1.0, 1.0] and twin["b"] == 3 and list(twin) == ["a", "b"]
    q = copy.deepcopy(flambeau.nn.ParameterList([flambeau.ones(2), "x"]))
    assert isinstance(q[0], flambeau.nn.Parameter) and q[1] == "x"
