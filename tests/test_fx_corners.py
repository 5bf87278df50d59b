"""fx: arguments of nodes do not change, specialized arguments are checked, `assert` can be traced."""

from __future__ import annotations

import importlib
import pickle
import typing

import pytest
import torch

import flambeau

MODULES = (flambeau, torch)


def outcome(program, m):
    try:
        return program(m)
    except Exception as error:
        return type(error).__name__, str(error)[:150]


def code(m, f, **options):
    return m.fx.symbolic_trace(f, **options).code.strip()


def annotated(m):
    class Annotated(m.nn.Module):
        def forward(self, x, y=None):
            return x + 1

    Annotated.forward.__annotations__.update(x=m.Tensor, y=typing.Optional[int])  # noqa: UP045
    return str(m.fx.symbolic_trace(Annotated()).graph), code(m, Annotated())


def call_of(m, f):
    return next(n for n in m.fx.symbolic_trace(f).graph.nodes if n.op == "call_function")


def change_args(m):
    call_of(m, lambda x: m.cat([x, x])).args[0][0] = 3


def change_kwargs(m):
    call_of(m, lambda x: m.add(x, x, alpha=2)).kwargs["a"] = 3


def collections_of(m):
    made = importlib.import_module(f"{m.__name__}.fx.immutable_collections")
    values = made.immutable_list([1]), made.immutable_dict({"a": 1})
    return [(v == type(v).__mro__[1](v), repr(v), type(pickle.loads(pickle.dumps(v))).__name__) for v in values], (
        type(call_of(m, lambda x: m.cat([x, x])).args[0]).__name__)


PROGRAMS = {
    "bool": lambda m: m.fx.symbolic_trace(lambda x: x if x.sum() > 0 else -x),
    "iteration": lambda m: m.fx.symbolic_trace(lambda x: list(x)),
    "in": lambda m: m.fx.symbolic_trace(lambda x: 1 in x),
    "len": lambda m: m.fx.symbolic_trace(lambda x: len(x)),
    "specialized": lambda m: code(m, lambda x, f: x if f else -x, concrete_args={"f": True}),
    "specialized number": lambda m: code(m, lambda x, f: x + f, concrete_args={"f": 2}),
    "any arguments": lambda m: code(m, lambda *args: args[0]),
    "annotations": annotated, "change of args": change_args, "change of kwargs": change_kwargs, "collections": collections_of,
    "wrap": lambda m: m.fx.wrap("something"),
    "names of methods": lambda m: [getattr(m.Tensor, n).__name__ for n in "add mul relu view sum add_ matmul t pow".split()],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_pytorch(name):
    ours, theirs = [outcome(PROGRAMS[name], m) for m in MODULES]
    assert ours == theirs


def test_specialized_arguments_are_checked():
    traced = flambeau.fx.symbolic_trace(lambda x, f: x + f, concrete_args={"f": 2})
    assert traced(flambeau.ones(1), 2).item() == 3
    with pytest.raises(AssertionError, match="specialized to have value 2"):
        traced(flambeau.ones(1), 3)


class Checked:
    """A forward with an assert, made of either module."""

    @staticmethod
    def of(m):
        class Checking(m.nn.Module):
            def forward(self, x):
                assert x.shape[0] > 0, "empty"
                return x + 1

        return Checking()


def test_an_assert_can_be_traced():
    def targets(m):
        tracer = importlib.import_module(f"{m.__name__}.fx.experimental.rewriter").RewritingTracer()
        return [(n.op, getattr(n.target, "__name__", n.target)) for n in tracer.trace(Checked.of(m)).nodes]

    assert targets(flambeau) == targets(torch)
