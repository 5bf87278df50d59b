"""Random programs, compiled against eager: pointwise operations, views, in-place changes, reductions, products, backward.

A program is a list of instructions over a growing list of tensors, drawn by Hypothesis and run by `execute`: the same
list runs eagerly and compiled, and everything that can be seen afterwards must agree.
"""

from __future__ import annotations

import numpy as np
import pytest
from compiled import same_seen, seen, way, why
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flambeau as torch
import flambeau.nn.functional as F
from flambeau.native import toolchain


def floating(a):
    return a if a.is_floating_point() else a.float()


def integral(a):
    return a.long() if a.dtype == torch.bool else a


def at_least_1d(a):
    return a if a.dim() else a.view(1)


def matrix(a):
    a = at_least_1d(floating(a))
    return a.reshape(-1, a.shape[-1])


def fitted(a, b):
    """b with a's shape, by taking and repeating its elements."""
    flat = b.reshape(-1)
    return flat.repeat(max(a.numel(), 1) // flat.numel() + 1)[:a.numel()].view(a.shape) if flat.numel() else torch.ones(a.shape)


def rows(m, k):
    """Three numbers of rows of a matrix."""
    return torch.arange(3) * (k + 1) % max(1, m.shape[0])


# name: function of a tensor and a number
UNARY = {
    "neg": lambda a, k: -integral(a),
    "abs": lambda a, k: integral(a).abs(),
    "exp": lambda a, k: (floating(a) * 0.1).exp(),
    "tanh": lambda a, k: floating(a).tanh(),
    "sigmoid": lambda a, k: floating(a).sigmoid(),
    "relu": lambda a, k: floating(a).relu(),
    "square": lambda a, k: (floating(a) * 0.3) ** 2,
    "sin": lambda a, k: floating(a).sin(),
    "sqrt_abs": lambda a, k: (a.float().abs() + 0.1).sqrt(),
    "log1p_abs": lambda a, k: a.double().abs().log1p(),
    "gelu": lambda a, k: F.gelu(floating(a)),
    "reciprocal1": lambda a, k: 1 / (a * a + 1),
    "clamp": lambda a, k: a.float().clamp(-1, 1.5),
    "round": lambda a, k: (a.float() * 3).round(),
    "sign": lambda a, k: a.float().sign(),
    "floor": lambda a, k: a.float().floor(),
    "leaky": lambda a, k: F.leaky_relu(floating(a), 0.2),
    "double": lambda a, k: a.double(),
    "float": lambda a, k: a.float(),
    "long": lambda a, k: (a.detach().clamp(-50, 50) if a.is_floating_point() else a).long(),
    "gt0": lambda a, k: a > 0,
    "clone": lambda a, k: a.clone(),
    "detach": lambda a, k: a.detach() * 1,
    "logical_not": lambda a, k: ~(a > 0),
    "pow3": lambda a, k: (a.float() * 0.2) ** 3,
    "add_number": lambda a, k: a + 2.5 if k % 2 else a + 3,
    "rsub": lambda a, k: 1 - a.double(),
}
# name: function of two tensors of shapes that broadcast to the first one's
BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b if torch.bool not in (a.dtype, b.dtype) else a.float() - b.float(),
    "mul": lambda a, b: a * b,
    "div1": lambda a, b: a / (b.float().abs() + 1),
    "maximum": lambda a, b: torch.maximum(a.float(), b.float()),
    "minimum": lambda a, b: torch.minimum(a.double(), b.double()),
    "where": lambda a, b: torch.where(b > 0, a, b.to(a.dtype)),
    "lt": lambda a, b: a & b if a.dtype == b.dtype == torch.bool else a < b,
    "eq": lambda a, b: a == b,
    "pow_abs": lambda a, b: (a.float().abs() + 0.5) ** b.float().tanh(),
    "atan2": lambda a, b: torch.atan2(a.float(), b.float() + 0.25),
    "lerp": lambda a, b: torch.lerp(a.float(), b.float(), 0.3),
    "addcmul": lambda a, b: torch.addcmul(a.float(), b.float(), b.float(), value=0.5),
    "remainder": lambda a, b: torch.remainder(a.detach().float().round(), 3),
}
# name: function of a tensor, another one, a dimension, its length, and a number
VIEWS = {
    "t": lambda a, b, d, n, k: a.transpose(0, -1),
    "slice": lambda a, b, d, n, k: a.narrow(d, 0, max(1, n - 1)),
    "step": lambda a, b, d, n, k: a[::2] if k % 2 else a[..., 1 % n::2],
    "select": lambda a, b, d, n, k: a.select(d, k % n),
    "expand": lambda a, b, d, n, k: a.unsqueeze(d).expand(*a.shape[:d], 2, *a.shape[d:]) if a.dim() < 4 else a,
    "reshape": lambda a, b, d, n, k: a.reshape(-1) if k % 2 else a.reshape(1, -1),
    "unsqueeze": lambda a, b, d, n, k: a.unsqueeze(d) if a.dim() < 4 else a,
    "flip": lambda a, b, d, n, k: a.flip(d),
    "narrow": lambda a, b, d, n, k: a.narrow(d, n // 2, n - n // 2),
    "diagonal": lambda a, b, d, n, k: a.diagonal() if a.dim() > 1 else a,
    "movedim": lambda a, b, d, n, k: a.movedim(0, -1),
    "cat": lambda a, b, d, n, k: torch.cat([a, fitted(a, b).to(a.dtype)], d),
    "stack": lambda a, b, d, n, k: torch.stack([a, fitted(a, b).to(a.dtype)], d) if a.dim() < 4 else a,
    "chunk": lambda a, b, d, n, k: a.chunk(2, d)[-1],
    "roll": lambda a, b, d, n, k: a.roll(1, d),
    "pad": lambda a, b, d, n, k: F.pad(a, (1, 0)),
    "repeat": lambda a, b, d, n, k: a.repeat(*([1] * (a.dim() - 1)), 2),
    "as_strided": lambda a, b, d, n, k: a.contiguous().as_strided((min(2, a.numel()), min(2, a.numel())), (0, 1)),
    "squeeze": lambda a, b, d, n, k: a.squeeze(),
    "tril": lambda a, b, d, n, k: a.tril() if a.dim() > 1 else a,
}
# name: function of a tensor that has elements
REDUCTIONS = {
    "sum": lambda a: a.sum(),
    "sum0": lambda a: at_least_1d(floating(a)).sum(0),
    "sum_last_keep": lambda a: at_least_1d(floating(a)).sum(-1, keepdim=True),
    "mean0": lambda a: at_least_1d(floating(a)).mean(0),
    "max_last": lambda a: at_least_1d(floating(a)).max(-1).values,
    "min_all": lambda a: floating(a).min(),
    "argmax": lambda a: at_least_1d(floating(a)).argmax(-1),
    "var": lambda a: at_least_1d(floating(a)).var(-1, unbiased=False),
    "any": lambda a: a.any(),
    "prod0": lambda a: (at_least_1d(floating(a)) * 0.5).prod(0),
    "logsumexp": lambda a: at_least_1d(floating(a)).logsumexp(-1),
    "cumsum": lambda a: at_least_1d(floating(a)).cumsum(-1),
    "amax_all": lambda a: floating(a).amax(),
    "norm": lambda a: floating(a).norm() + 0,
    "count_nonzero": lambda a: a.count_nonzero(),
    "std_all": lambda a: floating(a).var(unbiased=False),
}
# name: function of a matrix, another tensor, and a number
OTHER = {
    "matmul": lambda m, b, k: m @ fitted(m, b).to(m.dtype).t() * 0.1,
    "softmax": lambda m, b, k: m.softmax(-1),
    "log_softmax": lambda m, b, k: m.log_softmax(0),
    "linear": lambda m, b, k: F.linear(m, fitted(m, b).to(m.dtype)[:1].expand(3, -1) * 0.2, torch.ones(3, dtype=m.dtype)),
    "layer_norm": lambda m, b, k: F.layer_norm(m, m.shape[-1:], eps=0.1),
    "gather": lambda m, b, k: m.gather(0, rows(m, k)[:1].view(1, 1).expand(2, m.shape[1])),
    "index": lambda m, b, k: m[rows(m, k)],
    "embedding": lambda m, b, k: F.embedding(rows(m, k), m),
    "sort": lambda m, b, k: m.sort(-1, stable=True).values,
    "topk": lambda m, b, k: m.topk(1).values,
    "cross_entropy": lambda m, b, k: F.cross_entropy(m, torch.arange(m.shape[0]) % m.shape[1]),
    "bmm": lambda m, b, k: torch.bmm(m.unsqueeze(0), m.t().unsqueeze(0)) * 0.1,
    "index_put": lambda m, b, k: m.index_put((rows(m, k),), m[:1] * 2),
    "scatter_add": lambda m, b, k: torch.zeros_like(m).index_add(0, rows(m, k), m[rows(m, k)] * 2),
    "masked_fill": lambda m, b, k: m.masked_fill(m.detach() > 0.5, 0.25),
    "einsum": lambda m, b, k: torch.einsum("ij,ij->i", m, m),
}
# name: function of a tensor that it changes, another one like it, and a number
INPLACE = {
    "add_": lambda a, b, k: a.add_(b),
    "mul_": lambda a, b, k: a.mul_(2),
    "relu_": lambda a, b, k: a.relu_(),
    "zero_row": lambda a, b, k: a[k % a.shape[0]].zero_(),
    "copy_part": lambda a, b, k: a[::2].copy_(b[::2]),
    "fill_": lambda a, b, k: a[..., :1].fill_(k),
    "sub_view": lambda a, b, k: a.transpose(0, -1).sub_(1),
    "add_half": lambda a, b, k: a.narrow(0, 0, (a.shape[0] + 1) // 2).add_(b.narrow(0, 0, (a.shape[0] + 1) // 2)),
    "neg_": lambda a, b, k: a.neg_(),
    "clamp_": lambda a, b, k: a.clamp_(-2, 3),
    "masked_fill_": lambda a, b, k: a.masked_fill_(b > 0, 1),
    "index_add_": lambda a, b, k: a.index_add_(0, torch.zeros(1, dtype=torch.long), b[:1]),
    "first_": lambda a, b, k: a.view(-1)[:1].add_(5) if a.is_contiguous() else None,
}


def binary(name, a, b):
    fits = a.dim() and b.dim() and a.shape[-1] == b.shape[-1] and b.dim() <= a.dim() and all(
        y in (x, 1) for x, y in zip(a.shape[::-1], b.shape[::-1]))
    return BINARY[name](a, b if fits else fitted(a, b))


def view(name, a, b, k):
    if a.dim() == 0:
        return a.reshape(1).expand(3) if name == "expand" else a.unsqueeze(0)
    return VIEWS[name](a, b, k % a.dim(), a.shape[k % a.dim()], k)


def inplace(name, a, b, k):
    if a.dim() and a.numel() and a.dtype != torch.bool and not expanded(a):
        INPLACE[name](a, fitted(a, b).to(a.dtype), k)


def expanded(a):
    """Whether elements of a share memory: it cannot be written in place."""
    return any(s == 0 and n > 1 for n, s in zip(a.shape, a.stride()))


def execute(program, tensors):
    """Runs the instructions; returns all tensors made."""
    made = [t * 1 if t.requires_grad else t for t in tensors]
    for kind, name, i, j, k in program:
        a, b = made[i % len(made)], made[j % len(made)]
        if kind == "unary":
            made.append(UNARY[name](a, k))
        elif kind == "binary":
            made.append(binary(name, a, b))
        elif kind == "view":
            made.append(view(name, a, b, k))
        elif kind == "reduction":
            made.append(REDUCTIONS[name](a) if a.numel() else a.sum())
        elif kind == "other":
            made.append(OTHER[name](matrix(a), b, k))
        else:
            inplace(name, a, b, k)
    return made


def total_of(made):
    return sum((m.float() * 0.7).sum() for m in made if m.requires_grad)


def arrays(seed):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((3, 4), np.float32), rng.standard_normal((2, 3, 4)), rng.standard_normal((4,), np.float32),
            rng.integers(-3, 4, (3, 4)), rng.random((3, 1)) > 0.5, rng.standard_normal((4, 3), np.float32).T]


def runner(program, inside, apart, wrap):
    """A function of a seed that runs the program on that seed's data, and tells what it leaves behind or raises."""
    leaves = [torch.from_numpy(a).clone().requires_grad_() for a in arrays(0)[:2]]

    def function(*args):
        made = execute(program, [*leaves, *args])
        if not inside:
            return made
        total = total_of(made)
        if isinstance(total, torch.Tensor):
            total.backward()
        return [m.clone() if apart else m.detach() for m in made]
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
instruction = st.sampled_from([*KINDS, "unary", "binary", "view", "inplace"]).flatmap(
    lambda kind: st.tuples(st.just(kind), st.sampled_from(list(KINDS[kind])), small, small, small))


@pytest.fixture(scope="module", autouse=True)
def quick_builds():
    """The C compiler takes most of the time of these tests: for programs (not for the library) little optimization will do."""
    before = toolchain.build
    libraries = {path.stem for path in toolchain.HERE.glob("*.c")}
    toolchain.build = lambda source, name, extra=(): before(source, name, extra if name in libraries else (*extra, "-O1"))
    yield
    toolchain.build = before


def program_agrees(program, inside, apart=False):
    """inside: the backward pass is part of the compiled function; else its results join the graph. apart: the results share no
    memory. (Two calls are captured where nothing comes of it, two are followed before there is a program.)"""
    eager, _ = runner(program, inside, apart, lambda f: f)
    compiled, fn = runner(program, inside, apart, torch.compile)
    for seed in (1, 2, 3, 4, 5):
        expected, got = eager(seed), compiled(seed)
        if isinstance(expected, str) and isinstance(got, str):
            assert expected.partition(":")[0] == got.partition(":")[0], (expected, got)
            return None
        same_seen(expected, got)
    return fn


common = settings(max_examples=75, deadline=None, derandomize=True, database=None,
                  suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@common
@given(st.lists(instruction, min_size=2, max_size=10))
def test_random_programs_with_backward_inside(program):
    program_agrees(program, True)


@common
@given(st.lists(instruction, min_size=2, max_size=10))
def test_random_programs_with_backward_outside(program):
    program_agrees(program, False)


FOLLOWED = {"add_", "copy_part", "add_half", "index_add_",  # an argument takes a history on
            "step"}  # in the end a result has no elements


@pytest.mark.parametrize("kind,name", [(kind, name) for kind, names in KINDS.items() for name in names])
def test_every_instruction_by_itself(kind, name):
    """On each input, forward and backward in one program."""
    program = [(kind, name, i, i + 1, i) for i in range(6)]
    fn = program_agrees(program, True, apart=True)
    assert fn is not None and way(fn) == ("follow" if name in FOLLOWED else "skip"), why(fn)
    program_agrees(program, True)
