"""An operation is one row: those of CONTRIBUTING.md, which do not exist otherwise, work in every way there is to run one."""

import pathlib
import re

import numpy as np
import pytest
from compare import array, same_elements
from compiled import way, why

import flambeau
from flambeau import Tensor
from flambeau.autograd import forward_ad as forward
from flambeau.autograd.gradcheck import gradcheck, gradgradcheck
from flambeau.backends import facts, values
from flambeau.backends.batched import table as batching
from flambeau.backends.cpu.pointwise import loops as pointwise
from flambeau.backends.cpu.table import KERNELS, add, kernel
from flambeau.backends.facts import Fold
from flambeau.compiler.follow import deferred
from flambeau.ops import rules
from flambeau.ops.core import export as exports
from flambeau.ops.core import overrides
from flambeau.ops.core.row import ROWS, Row, along, public
from flambeau.ops.lists import foreach
from flambeau.ops.pointwise.families import unary
from flambeau.ops.reduce.reductions import dims_of, reduction, spread
from flambeau.tensors.shapes import wrap_dim

TABLES = [ROWS, exports.FUNCTIONS, exports.OUT, exports.AUTOCAST, exports.FOREACH, foreach.FUNCTIONS, KERNELS, overrides.FRONTS,
          pointwise._entries, deferred._kinds, batching._found, *facts._COLUMNS.values()]


@pytest.fixture
def no_trace():
    """Takes what a test enters into the tables out again."""
    yield
    for table in (*TABLES, vars(flambeau)):
        for key in [k for k in table if is_new(k)]:
            del table[key]
    for name in filter(is_new, list(vars(Tensor))):
        delattr(Tensor, name)


def is_new(key):
    name = key if isinstance(key, str) else key.__name__
    return name.removeprefix("_foreach_").rstrip("_") in CASES


# ------------------------------------------------------------------------------------------------- the three operations
PAGE = pathlib.Path(__file__).parents[1] / "CONTRIBUTING.md"
HOME = pathlib.Path(flambeau.__file__).parent  # the code runs as a part of flambeau


def define(name):
    """Runs the two pieces of code that the page has about an operation: kernel and row."""
    kernel_code, row_code = [code for code in re.findall("```python\n(.*?)```", PAGE.read_text(), re.S) if name in code]
    exec(compile(kernel_code, HOME / "backends" / "cpu" / "new.py", "exec"), {"np": np, "add": add, "kernel": kernel})
    scope = {f.__name__: f for f in (unary, along, Row, public, reduction, spread, dims_of, wrap_dim, Fold)}
    scope.update(rules=rules, values=values)
    exec(compile(row_code, HOME / "ops" / "new.py", "exec"), scope)
    return scope[name]


# ---------------------------------------------------------------------------------------------------- the same by NumPy
def indices(x):
    return np.random.default_rng(1).integers(0, x.shape[1], x.shape)


CASES = {
    # arguments after the array, what NumPy says
    "witch": (lambda x: (), lambda x: x / (1 + x * x)),
    "power_sum": (lambda x: (1,), lambda x, dim: (x ** 4).sum(dim)),
    "gather_back": (lambda x: (1, indices(x)),
                    lambda x, dim, at: np.take_along_axis(x, x.shape[dim] - 1 - at, dim)),
}
LIKE_INPUT = ("witch", "gather_back")  # the result has the shape of the input: there is an in-place form


@pytest.fixture(params=CASES)
def case(request, no_trace):
    arguments, reference = CASES[request.param]
    x = np.random.default_rng(0).standard_normal((3, 5))
    given = arguments(x)
    tensors = tuple([flambeau.from_numpy(a) if isinstance(a, np.ndarray) else a for a in given])
    return request.param, define(request.param), x, tensors, reference(x, *given)


def test_eager(case):
    name, op, x, args, expected = case
    same_elements(expected, array(op(flambeau.from_numpy(x), *args)), 1e-12)
    same_elements(expected, array(getattr(flambeau.from_numpy(x), name)(*args)), 1e-12)
    assert getattr(flambeau, name) is op
    assert type(op(flambeau.from_numpy(x).requires_grad_(), *args).grad_fn).__name__ == {
        "witch": "WitchBackward0", "power_sum": "PowerSumBackward0", "gather_back": "GatherBackBackward0"}[name]


def test_derivatives(case):
    _, op, x, args, _ = case
    leaf = flambeau.from_numpy(x).requires_grad_()
    assert gradcheck(lambda t: op(t, *args), (leaf,))
    assert gradgradcheck(lambda t: op(t, *args), (leaf,))


def test_forward_mode(case):
    _, op, x, args, _ = case
    direction = np.random.default_rng(2).standard_normal(x.shape)
    with forward.dual_level():
        dual = forward.make_dual(flambeau.from_numpy(x), flambeau.from_numpy(direction))
        tangent = forward.unpack_dual(op(dual, *args)).tangent
    step = 1e-6
    ahead, behind = [op(flambeau.from_numpy(x + s * direction), *args).numpy() for s in (step, -step)]
    same_elements((ahead - behind) / (2 * step), array(tangent), 1e-7)


def test_in_place(case):
    name, _, x, args, expected = case
    if name not in LIKE_INPUT:
        assert not hasattr(Tensor, name + "_")
        return
    changed = flambeau.from_numpy(x.copy())
    assert getattr(changed, name + "_")(*args) is changed
    same_elements(expected, array(changed), 1e-12)
    assert changed._version == 1


def test_out(case):
    name, op, x, args, expected = case
    goal = flambeau.empty(expected.shape, dtype=flambeau.float64)
    assert op(flambeau.from_numpy(x), *args, out=goal) is goal
    same_elements(expected, array(goal), 1e-12)
    if name == "gather_back":  # out="exact apart"
        with pytest.raises(RuntimeError, match="Expected out tensor to have dtype double"):
            op(flambeau.from_numpy(x), *args, out=flambeau.empty(expected.shape, dtype=flambeau.complex128))
        same = flambeau.from_numpy(x.copy())
        with pytest.raises(RuntimeError, match="single memory location"):
            op(same, *args, out=same)


def test_foreach(case):
    name, _, x, args, expected = case
    tensors = [flambeau.from_numpy(x.copy()) for _ in range(2)]
    given = [a if not isinstance(a, Tensor) else [a, a] for a in args]
    for made in getattr(flambeau, f"_foreach_{name}")(tensors, *given):
        same_elements(expected, array(made), 1e-12)
    if name in LIKE_INPUT:
        getattr(flambeau, f"_foreach_{name}_")(tensors, *given)
        same_elements(expected, array(tensors[1]), 1e-12)


@pytest.mark.parametrize("how", ["skip", "follow"])
def test_compiled(case, how):
    name, op, x, args, _ = case
    seen = []

    @flambeau.compile
    def function(t):
        if how == "follow":
            seen.append(len(seen))  # the Python has to run
        return op(t * 2, *args) + 1

    for scale in (1.0, 3.0, 0.5, 2.0, 4.0):
        eager = op(flambeau.from_numpy(2 * x * scale), *args).numpy() + 1
        same_elements(eager, array(function(flambeau.from_numpy(x * scale))), 1e-12)
    assert how in way(function), why(function)
    if how == "skip":
        program = flambeau.compiler.explain(function, flambeau.from_numpy(x)).program
        by_numpy = [o.kernel for o in program.calls]
        assert by_numpy == (["gather_back"] if name == "gather_back" else [])  # all else has its C in the row


def test_compiled_backward(case):
    _, op, x, args, _ = case

    def gradient(t):
        leaf = t.detach().requires_grad_()
        (op(leaf, *args) ** 2).sum().backward()
        return leaf.grad

    compiled = flambeau.compile(gradient)
    for scale in (1.0, 3.0, 0.5):
        t = flambeau.from_numpy(x * scale)
        same_elements(gradient(t).numpy(), array(compiled(t)), 1e-12)


def test_errors_come_at_their_line_when_compiled(no_trace):
    op = define("gather_back")

    @flambeau.compile
    def function(t, at):
        made = op(t, 1, at)
        reached.append(1)
        return made

    x, good = flambeau.randn(3, 5), flambeau.zeros(3, 5, dtype=flambeau.int64)
    reached = []
    for _ in range(3):
        function(x, good)
    reached.clear()
    with pytest.raises(IndexError):
        function(x, good + 20)
    assert not reached


def test_meta(case):
    _, op, x, args, expected = case
    made = op(flambeau.empty(x.shape, dtype=flambeau.float64, device="meta"),
              *[a.to("meta") if isinstance(a, Tensor) else a for a in args])
    assert made.is_meta and made.shape == expected.shape and made.dtype is flambeau.float64


@pytest.mark.filterwarnings("error")  # no rule: a loop, and a warning
def test_vmap(case):
    name, op, x, args, _ = case
    whole = np.stack([x, 2 * x, -x])
    made = flambeau.func.vmap(lambda t: op(t, *args))(flambeau.from_numpy(whole))
    for one, result in zip(whole, made):
        same_elements(op(flambeau.from_numpy(one), *args).numpy(), array(result), 1e-12)
    if name == "gather_back":
        at = flambeau.stack([args[1], (args[1] + 1) % 5, args[1]])
        made = flambeau.func.vmap(op, in_dims=(0, None, 0))(flambeau.from_numpy(whole), 1, at)
        same_elements(op(flambeau.from_numpy(whole[1]), 1, at[1]).numpy(), array(made[1]), 1e-12)


@pytest.mark.filterwarnings("error")
def test_a_batching_rule_in_the_row(no_trace):
    add(witch=lambda x: x[::-1].copy())
    seen = []

    def rule(kernel, level, args):
        seen.append((kernel, args[0].shape))
        return batching.batched(batching.run("flip", args[0].examples, (1,)), level)

    op = Row("witch", "self", shape=rules.same, batch=rule, backward=dict(self=lambda grad: grad.flip(0)))
    x = flambeau.arange(6.0).reshape(2, 3).requires_grad_()
    made = flambeau.func.vmap(op)(x)
    assert made.tolist() == [[2, 1, 0], [5, 4, 3]] and seen == [("witch", (3,))]
    (made * flambeau.arange(3.0)).sum().backward()
    assert x.grad.tolist() == [[2, 1, 0]] * 2


def test_autocast(case):
    name, op, x, args, _ = case
    low, single = flambeau.from_numpy(x).bfloat16(), flambeau.from_numpy(x).float()
    with flambeau.autocast("cpu"):
        found = [op(t, *args).dtype for t in (low, single)]
    half, full = flambeau.bfloat16, flambeau.float32
    assert found == {"witch": [half, half], "power_sum": [full, full], "gather_back": [half, full]}[name]


def test_a_fact_that_does_not_exist(no_trace):
    with pytest.raises(TypeError, match="no fact called 'wirtes'"):
        Row("witch", "self", wirtes="self")


def test_it_leaves_no_trace():
    assert not any(is_new(k) for table in (*TABLES, vars(flambeau), vars(Tensor)) for k in table)
    assert not hasattr(flambeau, "gather_back")
