"""cond, while_loop, scan and map beside PyTorch, with their gradients."""

import importlib

import pytest
from compare import agree, both_raise

import flambeau


def higher(t):
    return importlib.import_module(f"{t.__name__}._higher_order_ops")


def twice(t, x):
    return t.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))


PROGRAMS = {
    "cond, first": lambda t: twice(t, t.ones(3)),
    "cond, second": lambda t: twice(t, -t.ones(3)),
    "cond of trees": lambda t: t.cond(
        t.tensor(False), lambda x: {"a": x["b"] + 1}, lambda x: {"a": x["b"] - 1}, ({"b": t.ones(2)},)),
    "while_loop": lambda t: higher(t).while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (t.tensor(0), t.ones(3))),
    "while_loop not entered": lambda t: higher(t).while_loop(lambda x: x.sum() < 0, lambda x: (x * 2,), (t.ones(3),)),
    "scan": lambda t: higher(t).scan(lambda c, x: (c + x, c * x), t.zeros(2), t.arange(6.0).view(3, 2)),
    "scan, another dim": lambda t: higher(t).scan(lambda c, x: (c + x, c * x), t.zeros(2), t.arange(6.0).view(2, 3), dim=1),
    "scan backwards": lambda t: higher(t).scan(lambda c, x: (c + x, c * x), t.zeros(2), t.arange(6.0).view(3, 2), reverse=True),
    "map": lambda t: higher(t).map(lambda x, y: x + y, t.arange(6.0).view(3, 2), t.ones(2)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name):
    assert not isinstance(agree(PROGRAMS[name], graph=False), Exception)


def gradients(t, function):
    x, w = (t.tensor(v, dtype=t.float64, requires_grad=True) for v in ([0.5, -1.0, 2.0], [1.0, 2.0, 0.5]))
    return t.autograd.grad(function(t, x, w).sum(), [x, w])


DIFFERENTIATED = {
    "an operand of the other branch has zeros": lambda t, x, w: t.cond(
        t.tensor(True), lambda x, w: x.sin(), lambda x, w: w.cos(), (x, w)),
    "both": lambda t, x, w: t.cond(t.tensor(False), lambda x, w: x + w, lambda x, w: x * w, (x, w)),
    "scan": lambda t, x, w: higher(t).scan(lambda c, v: (c * v + 1, c * v), w[0] * 1, x)[1] * w,
    "while_loop": lambda t, x, w: higher(t).while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, y * y), (t.tensor(0), x * w))[1],
}


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_gradients(name):
    assert not isinstance(agree(lambda t: gradients(t, DIFFERENTIATED[name]), tolerance=1e-12, graph=False), Exception)


@pytest.mark.parametrize("program", [
    lambda t: t.cond(t.tensor([True, False]), lambda x: x, lambda x: x, (t.ones(2),)),
    lambda t: t.cond(t.tensor(True), 3, lambda x: x, (t.ones(2),)),
    lambda t: t.cond(t.tensor(True), lambda x: x, lambda x: x, t.ones(2)),
    lambda t: t.cond(t.tensor(True), lambda x, y: x + y, lambda x, y: x, (t.ones(2), 2)),
    lambda t: higher(t).scan(3, t.zeros(2), t.ones(3, 2)),
    lambda t: higher(t).scan(lambda c, x: (c + x, x), [], t.ones(3, 2)),
    lambda t: higher(t).scan(lambda c, x: (c + x, x), t.zeros(2), t.ones(0, 2)),
    lambda t: higher(t).map(lambda x: x, t.ones(0, 2)),
])
def test_refused(program):
    both_raise(program)


def test_slices_are_of_equal_number():
    with pytest.raises(RuntimeError, match="same length"):
        higher(flambeau).scan(lambda c, x: (c + x[0], x[1]), flambeau.zeros(2), [flambeau.ones(3, 2), flambeau.ones(4, 2)])


def test_a_loop_returns_tensors_of_its_own():
    for t in (flambeau, importlib.import_module("torch")):
        x = t.ones(2)
        made = higher(t).while_loop(lambda i, x: i < 0, lambda i, x: (i + 1, x * 2), (t.tensor(0), x))[1]
        assert made.data_ptr() != x.data_ptr() and made.tolist() == [1, 1]


def test_carried_values_keep_their_kind():
    with pytest.raises(RuntimeError, match="same number of outputs"):
        flambeau.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1,), (flambeau.tensor(0), flambeau.ones(2)))
    with pytest.raises(RuntimeError, match="differ in 'dtype"):
        higher(flambeau).scan(lambda c, x: ((c + x).double(), x), flambeau.zeros(2), flambeau.ones(3, 2))


def test_a_compiled_function_takes_either_branch():
    compiled = flambeau.compile(lambda x: twice(flambeau, x))
    for x in (flambeau.ones(2), -flambeau.ones(2), flambeau.ones(2)):
        assert flambeau.equal(compiled(x), twice(flambeau, x))


def test_the_predicate_of_a_constant_warns():
    with pytest.warns(UserWarning, match="Pred is a Python constant"):
        flambeau.cond(True, lambda: flambeau.ones(1), lambda: flambeau.zeros(1))
