"""Runs one program under PyTorch and under flambeau and compares what it says: the tests of nn are such programs.

A program is a function of one argument, the framework (called `torch`). What it returns, prints as an error and warns
about is turned into plain values: tensors into lists, modules into their repr, errors into (type, text).
"""

import re
import warnings

import torch as reference

import flambeau

FRAMEWORKS = (reference, flambeau)


def plain(value):
    """A value that two frameworks can be compared by."""
    if isinstance(value, (reference.Tensor, flambeau.Tensor)):
        return ("tensor", str(value.dtype), tuple(value.shape), bool(value.requires_grad), value.detach().tolist())
    if isinstance(value, (reference.nn.Module, flambeau.nn.Module)):
        return neutral(repr(value))
    if isinstance(value, dict):
        return {plain(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)) or hasattr(value, "__next__"):
        return tuple(plain(v) for v in value)
    if isinstance(value, type):
        return value.__name__
    if value is None or isinstance(value, (bool, int, float, str, complex)):
        return neutral(value) if isinstance(value, str) else value
    return neutral(repr(value))


def neutral(text):
    """Text without what may differ: addresses, where a class lives."""
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    return re.sub(r"\b(torch|flambeau)(\.\w+)*\.(?=[A-Z]\w+(['\" ]|$))", "", text)


def outcome(program, framework):
    """(values, warnings) or (error type, text) of a program."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = ("returns", plain(program(framework)))
        except Exception as error:
            result = ("raises", type(error).__name__, neutral(str(error)))
    return result, [(w.category.__name__, neutral(str(w.message))) for w in caught]


def same(program, text=True, warned=True, tolerance=0.0):
    """Both frameworks do the same; text=False: of an error only the type counts."""
    (expected, expected_warnings), (got, got_warnings) = [outcome(program, f) for f in FRAMEWORKS]
    if expected[0] == "raises" and not text:
        expected, got = expected[:2], got[:2]
    assert close(expected, got, tolerance), f"\nPyTorch:  {expected}\nflambeau: {got}"
    if warned:
        assert expected_warnings == got_warnings
    return expected


def close(a, b, tolerance):
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b) or abs(a - b) <= tolerance * max(1.0, abs(a), abs(b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(close(a[k], b[k], tolerance) for k in a)
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(close(x, y, tolerance) for x, y in zip(a, b))
    return a == b


def layers(torch):
    """Two small layers and a model that do not need nn's own, so that these tests stand on Module alone."""

    class Dense(torch.nn.Module):
        def __init__(self, inputs, outputs, device=None):
            super().__init__()
            self.inputs, self.outputs = inputs, outputs
            self.weight = torch.nn.Parameter(torch.empty(outputs, inputs, device=device))
            self.bias = torch.nn.Parameter(torch.empty(outputs, device=device))
            if device is None:
                torch.nn.init.kaiming_uniform_(self.weight, a=5**0.5)
                torch.nn.init.zeros_(self.bias)

        def forward(self, x):
            return x @ self.weight.t() + self.bias

        def extra_repr(self):
            return f"{self.inputs}, {self.outputs}"

    class Scale(torch.nn.Module):
        def __init__(self, n=2):
            super().__init__()
            self.register_buffer("factor", torch.full((n,), 2.0))
            self.register_buffer("scratch", torch.zeros(n), persistent=False)
            self.register_buffer("nothing", None)

        def forward(self, x):
            return x * self.factor

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = Dense(2, 3)
            self.scale = Scale(3)
            self.second = Dense(3, 1)
            self.alpha = torch.nn.Parameter(torch.ones(1))
            self.register_parameter("beta", None)

        def forward(self, x):
            return self.second(self.scale(self.first(x)).tanh()) * self.alpha

    torch.manual_seed(0)
    return Dense, Scale, Model
