"""cond, while_loop, scan and map in compiled functions: branches and loops of the program, or Python that is followed; always
what the plain call does."""

import functools
import random

import pytest
from compiled import programs, same_seen, seen

import flambeau as torch
from flambeau import nn
from flambeau.compiler.render import draft
from flambeau.func.control_flow import map as map_
from flambeau.func.control_flow import scan, while_loop

INPUTS = [[1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [1.0, -2.0, 3.0], [0.0, 0.0, 0.0], [4.0, -5.0, 6.0], [-1.0, 2.0, -3.0]]


def zero():
    return torch.tensor(0)


def by_sum(first, second):
    return lambda x: torch.cond(x.sum() > 0, first, second, (x,))


def repeated(body, test=lambda i, x: i < 4):
    return lambda x: while_loop(test, body, (zero(), x))


def played(build, wrap, inputs=INPUTS):
    """What each call gives or raises, and its argument afterwards."""
    torch.manual_seed(3)
    random.seed(3)
    fn = wrap(build())
    found = []
    for values in inputs:
        x = torch.tensor(values)
        try:
            result = seen(fn(x))
        except (ValueError, IndexError, RuntimeError, ZeroDivisionError) as error:
            result = [type(error).__name__, str(error)]
        found.append([result, seen(x), seen(torch.get_rng_state()), random.getstate()[1][-1]])
    return found, fn


def check(build, native, inputs=INPUTS, **options):
    expected, _ = played(build, lambda f: f, inputs)
    got, fn = played(build, lambda f: torch.compile(f, fullgraph=True, **options), inputs)
    same_seen(expected, got, 1e-5, "call")
    assert bool(programs(fn)) is native, fn._compiled.reasons


# ------------------------------------------------------------------------------------------- part of the program
def filled_in_place(i, x):
    z = torch.zeros(3)
    z[0] += x[0]
    return i + 1, x + z.add_(1)


def nested(i, x):
    return i + 1, while_loop(lambda j, y: j < i, lambda j, y: (j + 1, y + j), (zero(), x))[1]


def written_at(i, x):
    y = x.clone()
    y[i % 3] = x[(i + 1) % 3] + 1
    return i + 1, y


def shared_predicate(x):
    p = (x > 0).any()
    first = torch.cond(p, lambda x: x + 1, lambda x: x - 1, (x,))
    p.logical_not_()
    return first, torch.cond(p, lambda x: x + 1, lambda x: x - 1, (x,)), p


def changed_between(x):
    s = torch.zeros(3)
    first = torch.cond(x.sum() > 0, lambda: x + s, lambda: x - s)
    s.add_(5)
    return first, torch.cond(x.sum() > 0, lambda: x + s, lambda: x - s)


def changed_result(x):
    y = torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x * 3, (x,))
    y += 1
    z = y.clone()
    y[0] = 100
    return y, z


def not_entered(x):
    y, = while_loop(lambda x: x.sum() > 0, lambda x: (x - 1,), (x,))
    y.add_(1)
    return x, y


def through_helpers(x):
    w = x * 2
    known = {"k": [x + 1, x * 3]}

    def scaled(v):
        return v * w

    return torch.cond(x.sum() > 0, lambda x: scaled(x) + known["k"][1], lambda x: scaled(x - 1), (x,))


def cubes_slope(x):
    v = x.clone().requires_grad_()
    return torch.autograd.grad((v ** 3).sum(), v)[0]


def with_weights():
    torch.manual_seed(0)
    first, second = nn.Linear(3, 64), nn.Linear(3, 64)
    first.requires_grad_(False), second.requires_grad_(False)
    return by_sum(lambda x: first(x).relu(), lambda x: second(x).tanh().softmax(0))


def matrices():
    w = torch.eye(3) * 0.5 + 0.25
    return repeated(lambda i, x: (i + 1, torch.tanh(x @ w + x)))


def beside_a_graph():
    w = torch.ones(3, requires_grad=True)

    def f(x):
        y = (w * torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))).sum()
        return torch.autograd.grad(y * y, w)[0], w.detach() * while_loop(lambda x: x.sum() > 1, lambda x: (x / 2,), (x,))[0]
    return f


NATIVE = {
    "cond": lambda: by_sum(lambda x: x * 2, lambda x: x - 1),
    "cond of trees": lambda: lambda x: torch.cond(
        x.sum() > 0, lambda d: {"a": d["x"] + 1, "n": 3}, lambda d: {"a": d["x"] * 5, "n": 3}, ({"x": x},)),
    "cond in cond": lambda: by_sum(lambda x: torch.cond(x[0] > 2, lambda: x * 10, lambda: x * 20), lambda x: x - 1),
    "predicates of other kinds": lambda: lambda x: [torch.cond(p, lambda: x + 1, lambda: x + 2) for p in (
        x[0], x[1:2], x.long().sum(), (x / 0).sum())],
    "results with other strides": lambda: by_sum(lambda x: torch.stack([x, x * 2]).t(), lambda x: torch.stack([x * 3, x]).t()),
    "memory that is filled in branches": lambda: by_sum(
        lambda x: torch.zeros(3).index_fill_(0, torch.tensor([1]), 2.0) * x, lambda x: torch.ones(3).mul_(2).sub_(x)),
    "an operation in place of a function": lambda: by_sum(torch.sin, torch.no_grad()(lambda x: x * 2)),
    "weights": with_weights,
    "helpers": lambda: through_helpers,
    "two branches of one predicate": lambda: shared_predicate,
    "memory that changes between": lambda: changed_between,
    "a result that is changed": lambda: changed_result,
    "a gradient inside": lambda: by_sum(lambda x: cubes_slope(x), lambda x: x * 2),
    "while_loop": lambda: repeated(lambda i, x: (i + 1, x / 2), lambda i, x: x.abs().sum() > 1),
    "by another name": lambda: lambda x: torch._higher_order_ops.while_loop(lambda x: x.sum() > 1, lambda x: (x / 2,), (x,)),
    "a loop that is not entered": lambda: not_entered,
    "exchanged": lambda: lambda x: while_loop(lambda i, a, b: i < 5, lambda i, a, b: (i + 1, b, a + b), (zero(), x, x * 2)),
    "exchanged and nothing else": lambda: lambda x: while_loop(
        lambda i, a, b: i < x[0].abs(), lambda i, a, b: (i + 1, b, a), (zero(), x, x * 2)),
    "memory that is filled at each turn": lambda: repeated(filled_in_place),
    "kernels of NumPy's": lambda: repeated(lambda i, x: (i + 1, x.sort().values.flip(0) + x.median())),
    "products": matrices,
    "a loop in a loop": lambda: repeated(nested),
    "a loop in a branch": lambda: by_sum(
        lambda x: while_loop(lambda y: y.sum() < 100, lambda y: (y * 2,), (x,))[0], lambda x: x - 1),
    "a branch in a loop": lambda: repeated(lambda i, x: (i + 1, torch.cond(i % 2 == 0, lambda: x * 3 + 1, lambda: x / 2))),
    "positions": lambda: repeated(written_at),
    "half precision": lambda: by_sum(lambda x: (x * 1.5).half(), lambda x: torch.complex(x, x).imag.half() * 2),
    "half precision that is carried": lambda: lambda x: while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, x + x.sin()), (zero(), x.bfloat16()))[1].float(),
    "beside a graph": lambda: beside_a_graph(),
}


@pytest.mark.parametrize("name", NATIVE)
def test_branches_and_loops_of_the_program(name):
    check(NATIVE[name], True)


@pytest.mark.parametrize("name", ["cond", "a loop in a branch", "exchanged"])
def test_sizes_that_the_program_reads(name):
    check(NATIVE[name], True, [*INPUTS[:3], [1.0, 2.0], [-1.0], [3.0, 2.0, 1.0, -9.0]], dynamic=True)


@pytest.mark.parametrize("name", ["cond", "a loop in a loop", "kernels of NumPy's", "products", "exchanged"])
def test_every_bit(name):
    expected, _ = played(NATIVE[name], lambda f: f)
    got, fn = played(NATIVE[name], lambda f: torch.compile(f, mode="exact"))
    same_seen(expected, got, 0, "call")
    assert programs(fn)


def test_results_that_are_part_of_a_graph():
    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    f = by_sum(lambda x: x * 2, lambda x: x - 1)
    fn = torch.compile(lambda x: (w * f(x)).sin(), fullgraph=True)
    for values in INPUTS:
        x = torch.tensor(values)
        got, expected = fn(x), (w * f(x)).sin()
        same_seen(seen(expected), seen(got))
        same_seen(seen(torch.autograd.grad(expected.sum(), w)), seen(torch.autograd.grad(got.sum(), w)))
    assert programs(fn) == 1, fn._compiled.reasons


def test_explained():
    text = str(torch.compiler.explain(NATIVE["a loop in a branch"](), torch.ones(3)))
    assert text.startswith("skip") and "cond" in text
    text = str(torch.compiler.explain(lambda x: by_sum(lambda x: x + torch.rand(3), lambda x: x - 1)(x), torch.ones(3)))
    assert "in a branch or a loop: it changes a tensor from outside, or draws random numbers" in text


def test_one_program_answers_both_ways_without_the_python():
    calls = []
    fn = torch.compile(lambda x: (calls.append(1) if False else None, torch.cond(x.sum() > 0, lambda: x * 2, lambda: x - 1))[1])
    fn(torch.ones(3))
    compiled = fn._compiled
    for sign in (1, -1, 1, -1):
        x = torch.ones(3) * sign
        assert torch.equal(fn(x), x * 2 if sign > 0 else x - 1)
    assert programs(fn) == 1 and not compiled.followed
    source = next(p for plans in compiled.plans.values() for p in plans).program.source
    assert "!= 0 ?" in source


# ------------------------------------------------------------------------------------------------------ scan and map
def scanned_slope(x):
    v = x.clone().requires_grad_()
    return torch.autograd.grad(scan(lambda c, y: (c * 0.5 + y * y, c.sin()), torch.zeros(2), v)[1].sum(), v)[0]


LENGTHS = [[[float(i * j % 5) for j in range(2)] for i in range(n)] for n in (7, 7, 9, 12, 3, 30)]
SCANS = {
    "scan": lambda: lambda x: scan(lambda c, v: (c * 0.5 + v, c.sin()), torch.zeros(2), x),
    "backwards, along another dimension": lambda: lambda x: scan(
        lambda c, v: ((c[0] + v["a"], c[1] * 0.9), (c[0] * 2, {"z": v["b"] + c[1]})), (torch.zeros(2), torch.ones(())),
        {"a": x.t(), "b": x.t() * 2}, dim=1, reverse=True),
    "exchanged": lambda: lambda x: scan(lambda c, v: ((c[1], c[0] + v), c[0]), (torch.zeros(2), torch.ones(2)), x),
    "a slice as a result": lambda: lambda x: scan(lambda c, v: (c + v, v), torch.zeros(2), x),
    "of numbers": lambda: lambda x: scan(lambda c, v: (c + v, c * v), torch.zeros(()), x[:, 1]),
    "of a window": lambda: lambda x: scan(lambda c, v: (c + v, c * v), torch.zeros(2), (x * 2)[1:]),
    "map": lambda: lambda x: map_(lambda a, b: {"s": a.sum() * 2, "p": a * b}, x, torch.tensor([1.0, 2.0])),
    "map that draws": lambda: lambda x: map_(lambda a: a + torch.rand(2), x),
    "with gradients": lambda: scanned_slope,
}


@pytest.mark.parametrize("name", SCANS)
def test_loops_over_slices(name):
    check(SCANS[name], True, LENGTHS)


def test_a_scan_is_a_loop_of_the_program():
    heard = {}
    draft.listeners.append(lambda name, made: heard.setdefault(name, list(made)))
    try:
        torch.compile(SCANS["scan"]())(torch.ones(200, 2))
    finally:
        draft.listeners.pop()
    assert sum(op.kernel == "scan" for op in heard["capture"]) == 1 and len(heard["capture"]) < 10


# -------------------------------------------------------------------------------------------- Python that is followed
class Count:
    n = 0


def counting():
    count = Count()

    def second(x):
        count.n += 1
        return x - count.n
    return lambda x: (torch.cond(x.sum() > 0, lambda x: x + 1, second, (x,)), count.n)


def logging():
    log = []

    def said(word, x):
        log.append(word)
        return x + len(log)
    return lambda x: (by_sum(functools.partial(said, "a"), functools.partial(said, "b"))(x), list(log))


def counted_turns():
    turns = [0]

    def body(i, x):
        turns[0] += 1
        return i + 1, x + turns[0]
    return lambda x: (repeated(body)(x), turns[0])


def own_list():
    def f(x):
        kept = [torch.ones(3)]

        def first(x):
            kept[0] = x * 2
            return x + 1
        y = torch.cond(x.sum() > 0, first, lambda x: x - 1, (x,))
        return y + kept[0]
    return f


def iterating():
    numbers = iter(range(1000))
    return by_sum(lambda x: x + next(numbers), lambda x: x - next(numbers))


def changing_mode():
    def first(x):
        torch.set_grad_enabled(False)
        return x * 2

    def f(x):
        y, on = by_sum(first, lambda x: x * 3)(x), torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        return y, on
    return f


def raising(x):
    raise ValueError("not here")


def returned_operand(x):
    y = torch.cond(x.sum() > 0, lambda x: x, lambda x: x * 2, (x,))
    y.add_(1)
    return x, y


def changed_window(i, x):
    z = x.clone()
    y = z[i % 3]
    y.add_(10)
    return i + 1, z


def gradients():
    torch.manual_seed(0)
    first, second = nn.Linear(3, 2), nn.Linear(3, 2)

    def f(x):
        first.zero_grad(), second.zero_grad()
        torch.cond(x.sum() > 0, first, second, (x,)).square().sum().backward()
        return [p.grad for p in (*first.parameters(), *second.parameters())]
    return f


FOLLOWED = {
    "an attribute": counting,
    "a list": logging,
    "turns that are counted": counted_turns,
    "a list of the call's own": own_list,
    "an iterator": iterating,
    "Python's random numbers": lambda: by_sum(lambda x: x + random.random(), lambda x: x - random.random()),
    "random numbers": lambda: by_sum(lambda x: nn.functional.dropout(x), lambda x: x + torch.randn(3)),
    "random turns": lambda: repeated(lambda i, x: (i + 1, x + torch.rand(3))),
    "the mode": changing_mode,
    "an operand that is changed": lambda: lambda x: (by_sum(lambda x: x.add_(1) * 2, lambda x: x.mul_(3))(x), x),
    "an operand that is returned": lambda: returned_operand,
    "a window that is changed": lambda: repeated(changed_window),
    "an error in one branch": lambda: by_sum(raising, lambda x: x + 1),
    "results of two kinds": lambda: by_sum(lambda x: x[:2] + 1, lambda x: (x + 1).double()),
    "a predicate of half precision": lambda: lambda x: torch.cond(x.half().sum(), lambda: x * 2, lambda: x - 1),
    "nothing": lambda: by_sum(lambda x: x[:0] * 1, lambda x: x[3:] * 2),
    "NumPy": lambda: by_sum(lambda x: torch.from_numpy(x.numpy() + 1), lambda x: x * 2),
    "an int": lambda: lambda x: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, x)),
    "gradients": gradients,
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_what_must_not_be_tried_is_followed(name):
    check(FOLLOWED[name], False)


def test_errors_come_from_their_line():
    table = torch.arange(5.0)

    def build():
        return by_sum(lambda x: table[x.long()], lambda x: x + 1)
    check(build, True, [[1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [1.0, 2.0, 9.0], [4.0, 0.0, 1.0]])
    rest = torch.tensor([0.0, 1.0, 1.0])
    check(lambda: repeated(lambda i, x: (i + 1, x + table[i] * rest), lambda i, x: i < x[0]), True,
          [[3.0, 0.0, 0.0], [9.0, 0.0, 0.0], [2.0, 1.0, 1.0]])


def test_a_branch_of_the_python_is_refused_but_not_cond():
    whole = torch.compile(lambda x: x * 2 if x.sum() > 0 else x, fullgraph=True)
    with pytest.raises(RuntimeError, match=r"fullgraph=True.*torch.cond"):
        whole(torch.ones(2))

    def asserting(x):
        assert x.sum() > -1000
        return x * 2
    fn = torch.compile(asserting, fullgraph=True)
    assert [fn(torch.full((2,), float(i))).tolist() for i in range(3)] == [[0, 0], [2, 2], [4, 4]]
