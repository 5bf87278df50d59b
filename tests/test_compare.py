"""The comparisons of tests/compare.py fail where they should."""

from collections import OrderedDict

import numpy as np
import pytest
import torch
from compare import (
    EXACT,
    Tolerance,
    agree,
    agree_from_seed,
    agree_in_words,
    agree_on,
    both_raise,
    native_agrees,
    rounding,
    same,
)
from compiled import same_seen

import flambeau
from flambeau.backends.cpu.table import KERNELS

NAN, INF = float("nan"), float("inf")


def f32(*values):
    return np.array(values, np.float32)


def ours(*values, **options):
    return flambeau.tensor(values, **options)


def theirs(*values, **options):
    return torch.tensor(values, **options)


DIFFERENT = {
    "values": (f32(1, 2), f32(1, 2.001)), "just beyond": (f32(1, 2), f32(1, 2.00003)), "near zero": (f32(0), f32(2e-6)),
    "float64": (np.array([1.0]), np.array([1 + 2e-9])), "half": (np.float16([1]), np.float16([1.001])),
    "integers": (np.array([1, 2]), np.array([1, 3])), "large integers": (np.array([2**62]), np.array([2**62 + 1])),
    "dtypes": (f32(1), np.array([1.0])), "shapes": (f32(1), f32(1, 1)), "broadcast": (f32(1, 1), np.float32(1)),
    "not a number": (f32(NAN), f32(1)), "a number": (f32(1), f32(NAN)), "infinite": (f32(INF), f32(3e38)),
    "the other infinity": (f32(INF), f32(-INF)), "finite": (f32(1), f32(INF)),
    "complex": (np.array([1j]), np.array([1j + 1e-6])), "one infinite element": (f32(INF, 1), f32(INF, 2)),
    "tensors": (theirs(1.0), ours(1.1)), "dtypes of tensors": (theirs(1.0), ours(1)),
    "a tensor and a list": (theirs(1.0), [1.0]),
    "requires_grad": (theirs(1.0), ours(1.0, requires_grad=True)), "devices": (theirs(1.0), ours(1.0, device="meta")),
    "shapes of tensors": (theirs(1.0), ours(1.0, 1.0)), "floats": (1.0, 1.0001), "a float and an int": (1.0, 1),
    "bools": (True, 1), "text": ("a", "b"), "none": (None, 0), "lists": ([1], [1, 2]), "a tuple": ((1,), [1]),
    "inside": ([[1]], [[2]]),
    "keys": ({"a": 1}, {"b": 1}), "kinds of keys": ({1: 1}, {"1": 1}), "order of keys": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "errors": (TypeError("a"), ValueError("a")), "an error and a value": (TypeError("a"), "a"), "types": (int, float),
    "sizes": (torch.Size([1]), flambeau.Size([2])), "types of dtypes": (torch.float32, flambeau.float64),
    "modules": (torch.nn.Linear(2, 3), flambeau.nn.Linear(2, 4)),
}
SAME = {
    "values": (f32(1, 2), f32(1, 2.00001)), "near zero": (f32(0), f32(9e-7)), "not a number": (f32(NAN, INF), f32(NAN, INF)),
    "tensors": (theirs(1.0, requires_grad=True), ours(1.0, requires_grad=True)), "nothing": (f32(), f32()),
    "bfloat16": (theirs(1.5, dtype=torch.bfloat16), ours(1.5, dtype=flambeau.bfloat16)),
    "conjugates": (theirs(1j).conj(), ours(1j).conj()), "sparse": (torch.eye(2).to_sparse(), flambeau.eye(2).to_sparse()),
    "nested": ({"a": [1, (2.0, None)]}, {"a": [1, (2.0, None)]}), "errors": (TypeError("a"), TypeError("b")),
    "modules": (torch.nn.Linear(2, 3), flambeau.nn.Linear(2, 3)), "dtypes": (torch.float32, flambeau.float32),
    "ordered": (OrderedDict(a=1), OrderedDict(a=1)), "sizes": (torch.Size([2]), flambeau.Size([2])),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_different(case):
    for expected, got in (DIFFERENT[case], DIFFERENT[case][::-1]):
        with pytest.raises(AssertionError):
            same(expected, got)


@pytest.mark.parametrize("case", SAME)
def test_same(case):
    same(*SAME[case])


def test_tolerances():
    same(f32(1), f32(1.01), 0.02)
    same(f32(1, 1000), f32(1.5, 1000), Tolerance(0, 0, of_largest=1e-3))
    same(f32(1), f32(1) + np.finfo("f").eps, rounding(1))
    for tolerance in (0.005, EXACT, rounding(8), Tolerance(0, 0.005), Tolerance(0.005, 0)):
        with pytest.raises(AssertionError, match="1 of 1 float32 elements differ"):
            same(f32(1), f32(1.01), tolerance)
    same_seen(f32(1, 1000), f32(1.005, 1000))
    with pytest.raises(AssertionError):
        same_seen(f32(1, 1000), f32(1.005, 1000), rtol=0)


def test_graphs_and_strides():
    x, y = theirs(1.0, requires_grad=True), ours(1.0, requires_grad=True)
    same(x * 1, y + 0)
    same(torch.ones(2, 3), flambeau.ones(3, 2).t())
    with pytest.raises(AssertionError, match="made by"):
        same(x * 1, y + 0, graph=True)
    with pytest.raises(AssertionError, match="strides"):
        same(torch.ones(2, 3), flambeau.ones(3, 2).t(), strides=True)


def test_programs():
    only = lambda name: lambda m: m.ones(2) * (2 if m.__name__ == name else 1)
    raising = lambda error: lambda m: m.ones(2) if m is torch else (_ for _ in ()).throw(error)
    spoken = lambda m: (_ for _ in ()).throw(ValueError(m.__name__))
    for check in (agree, agree_in_words, lambda program: agree_from_seed(program, 0)):
        for program in (only("torch"), only("flambeau"), raising(ValueError("no"))):
            with pytest.raises(AssertionError):
                check(program)
    agree(spoken)
    agree_in_words(spoken, text=False)
    with pytest.raises(AssertionError, match="says"):
        agree_in_words(spoken)
    with pytest.raises(AssertionError, match="does not refuse"):
        both_raise(lambda m: m.ones(2))
    with pytest.raises(AssertionError):
        agree_on("torch.ones(2) * len(torch.__name__)")
    with pytest.raises(AssertionError):
        agree_from_seed(lambda m: m is torch and m.rand(1) is None, 0)  # one generator goes on alone


def test_native_kernels(monkeypatch):
    calls = iter((1.0, 1.0, 1.0, 2.0))
    monkeypatch.setitem(KERNELS, "made_up", lambda x: x * next(calls))
    native_agrees("made_up", f32(1, 2))
    with pytest.raises(AssertionError, match="made_up"):
        native_agrees("made_up", f32(1, 2))

    def changes(x, calls=iter((0, 1))):
        x += next(calls)
    monkeypatch.setitem(KERNELS, "made_up", changes)
    with pytest.raises(AssertionError, match="made_up"):
        native_agrees("made_up", f32(1, 2)[::-1])
