"""Random programs, compiled against eager: pointwise operations, views, in-place changes, reductions, products, backward.

A program is a list of instructions over a growing list of tensors, drawn by Hypothesis and run by `execute`: the same
list runs eagerly and compiled, and everything that can be seen afterwards must agree.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from compiled import programs, same, seen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flambeau as torch
import flambeau.nn.functional as F
from flambeau.native import toolchain

UNARY = ["neg", "abs", "exp", "tanh", "sigmoid", "relu", "square", "sin", "sqrt_abs", "log1p_abs", "gelu", "reciprocal1", "clamp", "round",
         "sign", "floor", "leaky", "double", "float", "long", "gt0", "clone", "detach", "logical_not", "pow3", "add_number", "rsub"]
BINARY = ["add", "sub", "mul", "div1", "maximum", "minimum", "where", "lt", "eq", "pow_abs", "atan2", "lerp", "addcmul", "remainder"]
VIEWS = ["t", "slice", "step", "select", "expand", "reshape", "unsqueeze", "flip", "narrow", "diagonal", "movedim", "cat", "stack", "chunk",
         "roll", "pad", "repeat", "as_strided", "squeeze", "tril"]
REDUCTIONS = ["sum", "sum0", "sum_last_keep", "mean0", "max_last", "min_all", "argmax", "var", "any", "prod0", "logsumexp", "cumsum",
              "amax_all", "norm", "count_nonzero", "std_all"]
OTHER = ["matmul", "softmax", "log_softmax", "linear", "layer_norm", "gather", "index", "embedding", "sort", "topk", "cross_entropy", "bmm",
         "index_put", "scatter_add", "masked_fill", "einsum"]
INPLACE = ["add_", "mul_", "relu_", "zero_row", "copy_part", "fill_", "sub_view", "exp_half", "neg_", "clamp_", "masked_fill_", "index_add_", "t_add_"]


def unary(name, a, f):
    if name in ("exp", "tanh", "sigmoid", "sin", "gelu", "leaky", "relu", "square"):
        a = a if a.is_floating_point() else a.float()
    return {
        "neg": lambda: -(a.long() if a.dtype == torch.bool else a), "abs": lambda: a.long().abs() if a.dtype == torch.bool else a.abs(),
        "exp": lambda: (a * 0.1).exp(), "tanh": lambda: a.tanh(), "sigmoid": lambda: a.sigmoid(), "relu": lambda: a.relu(),
        "square": lambda: (a * 0.3) ** 2, "sin": lambda: a.sin(), "sqrt_abs": lambda: (a.float().abs() + 0.1).sqrt(),
        "log1p_abs": lambda: a.double().abs().log1p(), "gelu": lambda: F.gelu(a), "reciprocal1": lambda: 1 / (a * a + 1),
        "clamp": lambda: a.float().clamp(-1, 1.5), "round": lambda: (a.float() * 3).round(), "sign": lambda: a.float().sign(),
        "floor": lambda: a.float().floor(), "leaky": lambda: F.leaky_relu(a, 0.2), "double": lambda: a.double(), "float": lambda: a.float(),
        "long": lambda: (a.detach().clamp(-50, 50) if a.is_floating_point() else a).long(), "gt0": lambda: a > 0, "clone": lambda: a.clone(),
        "detach": lambda: a.detach() * 1, "logical_not": lambda: ~(a > 0), "pow3": lambda: (a.float() * 0.2) ** 3,
        "add_number": lambda: a + 2.5 if f else a + 3, "rsub": lambda: 1 - a.double(),
    }[name]()


def match(a, b):
    """b with a's shape, by taking and repeating its elements."""
    n = max(a.numel(), 1)
    flat = b.reshape(-1)
    return flat.repeat(n // flat.numel() + 1)[:a.numel()].view(a.shape) if flat.numel() else torch.ones(a.shape)


def binary(name, a, b):
    if a.dim() and b.dim() and a.shape[-1] == b.shape[-1] and b.dim() <= a.dim() and all(x == y or y == 1 for x, y in zip(a.shape[::-1],
                                                                                                                b.shape[::-1])):
        pass  # broadcasts by itself
    else:
        b = match(a, b)
    number = a.dtype != torch.bool or b.dtype != torch.bool
    return {
        "add": lambda: a + b, "sub": lambda: a - b if torch.bool not in (a.dtype, b.dtype) else a.float() - b.float(), "mul": lambda: a * b,
        "div1": lambda: a / (b.float().abs() + 1), "maximum": lambda: torch.maximum(a.float(), b.float()),
        "minimum": lambda: torch.minimum(a.double(), b.double()), "where": lambda: torch.where(b > 0, a, b.to(a.dtype)),
        "lt": lambda: a < b if number else a & b, "eq": lambda: a == b, "pow_abs": lambda: (a.float().abs() + 0.5) ** (b.float().tanh()),
        "atan2": lambda: torch.atan2(a.float(), b.float() + 0.25), "lerp": lambda: torch.lerp(a.float(), b.float(), 0.3),
        "addcmul": lambda: torch.addcmul(a.float(), b.float(), b.float(), value=0.5),
        "remainder": lambda: torch.remainder(a.detach().float().round(), 3),
    }[name]()


def view(name, a, b, k):
    if a.dim() == 0:
        return a.reshape(1).expand(3) if name == "expand" else a.unsqueeze(0)
    d, n = k % a.dim(), a.shape[k % a.dim()]
    return {
        "t": lambda: a.transpose(0, -1), "slice": lambda: a.narrow(d, 0, max(1, n - 1)), "step": lambda: a[::2] if k % 2 else a[..., 1 % n::2],
        "select": lambda: a.select(d, k % n), "expand": lambda: a.unsqueeze(d).expand(*a.shape[:d], 2, *a.shape[d:]) if a.dim() < 4 else a,
        "reshape": lambda: a.reshape(-1) if k % 2 else a.reshape(1, -1), "unsqueeze": lambda: a.unsqueeze(d) if a.dim() < 4 else a,
        "flip": lambda: a.flip(d), "narrow": lambda: a.narrow(d, n // 2, n - n // 2), "diagonal": lambda: a.diagonal() if a.dim() > 1 else a,
        "movedim": lambda: a.movedim(0, -1), "cat": lambda: torch.cat([a, match(a, b).to(a.dtype)], d), "roll": lambda: a.roll(1, d),
        "stack": lambda: torch.stack([a, match(a, b).to(a.dtype)], d) if a.dim() < 4 else a, "chunk": lambda: a.chunk(2, d)[-1],
        "pad": lambda: F.pad(a, (1, 0)), "repeat": lambda: a.repeat(*([1] * (a.dim() - 1)), 2), "squeeze": lambda: a.squeeze(),
        "as_strided": lambda: a.contiguous().as_strided((min(2, a.numel()), min(2, a.numel())), (0, 1)),
        "tril": lambda: a.tril() if a.dim() > 1 else a,
    }[name]()


def reduction(name, a):
    f = a if a.is_floating_point() else a.float()
    if not a.numel():
        return a.sum()
    last = f if f.dim() else f.view(1)
    return {
        "sum": lambda: a.sum(), "sum0": lambda: last.sum(0), "sum_last_keep": lambda: last.sum(-1, keepdim=True), "mean0": lambda: last.mean(0),
        "max_last": lambda: last.max(-1).values, "min_all": lambda: f.min(), "argmax": lambda: last.argmax(-1),
        "var": lambda: last.var(-1, unbiased=False), "any": lambda: a.any(), "prod0": lambda: (last * 0.5).prod(0),
        "logsumexp": lambda: last.logsumexp(-1), "cumsum": lambda: last.cumsum(-1), "amax_all": lambda: f.amax(), "norm": lambda: f.norm() + 0,
        "count_nonzero": lambda: a.count_nonzero(), "std_all": lambda: f.var(unbiased=False),
    }[name]()


def other(name, a, b, k):
    f = a if a.is_floating_point() else a.float()
    f = f if f.dim() else f.view(1)
    m = f.reshape(-1, f.shape[-1])
    index = torch.arange(3) * (k + 1) % max(1, m.shape[0])
    return {
        "matmul": lambda: m @ match(m, b).to(m.dtype).t() * 0.1, "softmax": lambda: f.softmax(-1), "log_softmax": lambda: f.log_softmax(0),
        "linear": lambda: F.linear(m, match(m, b).to(m.dtype)[:1].expand(3, -1) * 0.2, torch.ones(3, dtype=m.dtype)),
        "layer_norm": lambda: F.layer_norm(m, m.shape[-1:], eps=0.1), "gather": lambda: m.gather(0, index[:1].view(1, 1).expand(2, m.shape[1])),
        "index": lambda: m[index], "embedding": lambda: F.embedding(index, m), "sort": lambda: m.sort(-1, stable=True).values, "topk": lambda: m.topk(1).values,
        "cross_entropy": lambda: F.cross_entropy(m, torch.arange(m.shape[0]) % m.shape[1]), "index_put": lambda: m.index_put((index,), m[:1] * 2),
        "bmm": lambda: torch.bmm(m.unsqueeze(0), m.t().unsqueeze(0)) * 0.1,
        "scatter_add": lambda: torch.zeros_like(m).index_add(0, index, m[index] * 2), "masked_fill": lambda: m.masked_fill(m.detach() > 0.5, 0.25),
        "einsum": lambda: torch.einsum("ij,ij->i", m, m),
    }[name]()


def inplace(name, a, b, k):
    """Changes a (which takes no part in a graph as a leaf) and returns nothing."""
    whole = a.dtype == torch.bool
    if a.dim() == 0 or not a.numel() or whole:
        return
    b = match(a, b).to(a.dtype)
    {
        "add_": lambda: a.add_(b), "mul_": lambda: a.mul_(2), "relu_": lambda: a.relu_(), "zero_row": lambda: a[k % a.shape[0]].zero_(),
        "copy_part": lambda: a[::2].copy_(b[::2]), "fill_": lambda: a[..., :1].fill_(k), "sub_view": lambda: a.transpose(0, -1).sub_(1),
        "exp_half": lambda: a.narrow(0, 0, (a.shape[0] + 1) // 2).add_(b.narrow(0, 0, (a.shape[0] + 1) // 2)), "neg_": lambda: a.neg_(),
        "clamp_": lambda: a.clamp_(-2, 3), "masked_fill_": lambda: a.masked_fill_(b > 0, 1),
        "index_add_": lambda: a.index_add_(0, torch.zeros(1, dtype=torch.long), b[:1]), "t_add_": lambda: a.view(-1)[:1].add_(5) if a.is_contiguous() else None,
    }[name]()


def expanded(a):
    """Whether elements of a share memory: it cannot be written in place."""
    return any(s == 0 and n > 1 for n, s in zip(a.shape, a.stride()))


def execute(program, tensors):
    """Runs the instructions; returns all tensors made."""
    made = [t * 1 if t.requires_grad else t for t in tensors]
    for kind, name, i, j, k in program:
        a, b = made[i % len(made)], made[j % len(made)]
        if kind == "unary":
            made.append(unary(name, a, k % 2))
        elif kind == "binary":
            made.append(binary(name, a, b))
        elif kind == "view":
            made.append(view(name, a, b, k))
        elif kind == "reduction":
            made.append(reduction(name, a))
        elif kind == "other":
            made.append(other(name, a, b, k))
        elif not expanded(a):
            inplace(name, a, b, k)
    return made


def total_of(made):
    return sum((m.float() * 0.7).sum() for m in made if m.requires_grad)


def arrays(seed):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((3, 4), np.float32), rng.standard_normal((2, 3, 4)), rng.standard_normal((4,), np.float32),
            rng.integers(-3, 4, (3, 4)), rng.random((3, 1)) > 0.5, rng.standard_normal((4, 3), np.float32).T]


def runner(program, inside, wrap):
    """A function of a seed that runs the program on that seed's data, and tells what it leaves behind or raises."""
    leaves = [torch.from_numpy(a).clone().requires_grad_() for a in arrays(0)[:2]]

    def function(*args):
        made = execute(program, [*leaves, *args])
        if not inside:
            return made
        total = total_of(made)
        if isinstance(total, torch.Tensor):
            total.backward()
        return [m.detach() for m in made]
    fn = wrap(function)

    def run(seed):
        new = [torch.from_numpy(a) for a in arrays(seed)]
        with torch.no_grad():
            for leaf, t in zip(leaves, new):
                leaf.copy_(t)
                leaf.grad = None
        try:
            made = fn(*new[2:])
            total = 0 if inside else total_of(made)
            if isinstance(total, torch.Tensor):
                total.backward()
            return seen([made, new, leaves, [t.grad for t in leaves]])
        except (RuntimeError, IndexError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
    return run, fn


KINDS = {"unary": UNARY, "binary": BINARY, "view": VIEWS, "reduction": REDUCTIONS, "other": OTHER, "inplace": INPLACE}
small = st.integers(0, 30)
instruction = st.sampled_from(["unary", "unary", "binary", "binary", "view", "view", "reduction", "other", "inplace", "inplace"]).flatmap(
    lambda kind: st.tuples(st.just(kind), st.sampled_from(KINDS[kind]), small, small, small))


@pytest.fixture(scope="module", autouse=True)
def quick_builds():
    """The C compiler takes most of the time of these tests: for programs (not for the library) little optimization will do."""
    before = toolchain.build
    libraries = {path.stem for path in toolchain.HERE.glob("*.c")}
    toolchain.build = lambda source, name, extra=(): before(source, name, extra if name in libraries else (*extra, "-O1"))
    yield
    toolchain.build = before


def check(program, inside):
    """inside: the backward pass is part of the compiled function; else its results join the graph."""
    eager, _ = runner(program, inside, lambda f: f)
    compiled, fn = runner(program, inside, torch.compile)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in (1, 2, 3):
            expected, got = eager(seed), compiled(seed)
            if isinstance(expected, str) and isinstance(got, str):
                assert expected.partition(":")[0] == got.partition(":")[0], (expected, got)
                return None
            same(expected, got)
    return fn


common = settings(max_examples=75, deadline=None, derandomize=True, database=None,
                  suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@common
@given(st.lists(instruction, min_size=2, max_size=10))
def test_random_programs_with_backward_inside(program):
    check(program, True)


@common
@given(st.lists(instruction, min_size=2, max_size=10))
def test_random_programs_with_backward_outside(program):
    check(program, False)


@pytest.mark.parametrize("kind,name", [(kind, name) for kind, names in KINDS.items() for name in names])
def test_every_instruction_by_itself(kind, name):
    """On each input, forward and backward in one program."""
    fn = check([(kind, name, i, i + 1, i) for i in range(6)], True)
    assert fn is not None and programs(fn) == 1, fn._compiled.reasons
