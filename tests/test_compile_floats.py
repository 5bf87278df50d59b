"""A float argument that changes from call to call: the program reads it anew, wherever it goes; what Python or C code takes
as a plain number makes a program of its own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from compiled import programs, same_seen, seen, way, why

import flambeau as torch
import flambeau.nn.functional as F

X = torch.linspace(-2, 2.3, 12).view(3, 4)
VALUES = 0.3, 0.7, 0.9, 0.7, -0.0, 0.5, math.nan, 1.0, math.inf, 0.3


def put(x, n):
    x[0] = n
    x[:, 1] *= n
    return x


def iadd(x, n):
    y = x * 1
    y += n
    n += 1
    return y * n


def loop(x, n):
    while n < 1:
        x, n = x * 2, n + 0.3
    return x


OPERATIONS = {
    "mul": lambda x, n: x * n, "add": lambda x, n: x + n, "div": lambda x, n: x / n, "rdiv": lambda x, n: n / (x + 5),
    "pow": lambda x, n: (x.abs() + 1) ** n, "rpow": lambda x, n: n ** x, "mod": lambda x, n: x % n,
    "floordiv": lambda x, n: x // n, "compare": lambda x, n: (x > n).float() + (n < x), "eq": lambda x, n: (x == n) * 1.0,
    "clamp": lambda x, n: x.clamp(-n, n), "add alpha": lambda x, n: x.add(x.sin(), alpha=n),
    "lerp": lambda x, n: x.lerp(x.sin(), n), "addcmul": lambda x, n: x.addcmul(x, x.sin(), value=n),
    "addmm": lambda x, n: torch.addmm(x @ x.t(), x, x.t(), beta=n, alpha=1 - n), "full": lambda x, n: x * torch.full((4,), n),
    "tensor": lambda x, n: x * torch.tensor(n), "tensor of list": lambda x, n: x * torch.tensor([n, 1.0, n * n, 2.0]),
    "fill_": lambda x, n: x * torch.empty(4).fill_(n), "setitem": lambda x, n: put(x.clone(), n),
    "masked_fill": lambda x, n: x.masked_fill(x > 0, n), "where": lambda x, n: torch.where(x > 0, x, n),
    "where both": lambda x, n: torch.where(x > 0, n, 0.5) * x, "leaky_relu": lambda x, n: F.leaky_relu(x, n),
    "elu": lambda x, n: F.elu(x, n), "threshold": lambda x, n: F.threshold(x, n, -n),
    "softplus": lambda x, n: F.softplus(x, n), "hardtanh": lambda x, n: F.hardtanh(x, -n, n),
    "softshrink": lambda x, n: F.softshrink(x, n), "huber": lambda x, n: F.huber_loss(x, x.sin(), delta=n),
    "smooth_l1": lambda x, n: F.smooth_l1_loss(x, x.sin(), beta=n), "layer_norm": lambda x, n: F.layer_norm(x, (4,), eps=n),
    "normalize": lambda x, n: F.normalize(x, p=n + 1),
    "batch_norm": lambda x, n: F.batch_norm(x, None, None, training=True, eps=n),
    "running": lambda x, n: F.batch_norm(x, torch.zeros(4), torch.ones(4), training=True, momentum=n),
    "norm": lambda x, n: x.norm(n + 1), "pad": lambda x, n: F.pad(x, (1, 1), value=n),
    "arange": lambda x, n: x * torch.arange(0.0, 4.0, 1.0) * n,
    "arange end": lambda x, n: x.sum() * torch.arange(0, 1 + n, 0.25),
    "cross_entropy": lambda x, n: F.cross_entropy(x, torch.tensor([0, 1, 3]), label_smoothing=n / 2),
    "attention": lambda x, n: F.scaled_dot_product_attention(x[None], x[None], x[None], scale=n),
    "cumsum": lambda x, n: (x * n).cumsum(0), "cat": lambda x, n: torch.cat([x, x * n]),
    "logit": lambda x, n: x.sigmoid().logit(eps=n / 10), "nan_to_num": lambda x, n: x.log().nan_to_num(n),
    "index_fill": lambda x, n: x.index_fill(0, torch.tensor([1]), n),
    "scatter": lambda x, n: x.scatter(1, torch.tensor([[0], [1], [2]]), n),
    "hypot": lambda x, n: torch.hypot(x, torch.tensor(n)), "quantile": lambda x, n: x.quantile(min(n, 1.0)),
    "xlogy": lambda x, n: torch.xlogy(n, x.abs() + 1), "heaviside": lambda x, n: torch.heaviside(x, torch.tensor(n)),
    "copysign": lambda x, n: torch.copysign(x, n), "atan2": lambda x, n: torch.atan2(x, torch.tensor(n)),
    "remainder": lambda x, n: torch.remainder(x, n),
    "inplace": lambda x, n: x.clone().mul_(n).add_(n).sub_(x, alpha=n).div_(n), "iadd": lambda x, n: iadd(x, n),
    "sum": lambda x, n: sum([x, n, x * n]), "double": lambda x, n: x.double() * n, "int": lambda x, n: x.long() * n,
    "half": lambda x, n: (x.half() * n).float(), "complex": lambda x, n: (x * (n + 1j)).abs(),
    "complex2": lambda x, n: (x * (1j * n)).imag,
}
PYTHON = {
    "sqrt": lambda x, n: x * math.sqrt(n), "exp": lambda x, n: x * math.exp(n),
    "floor": lambda x, n: x * math.floor(n * 3), "int()": lambda x, n: x * int(n * 3), "round": lambda x, n: x * round(n * 3),
    "str": lambda x, n: x * len(str(n)), "percent": lambda x, n: x * float("%.1f" % n),  # noqa: UP031
    "fstring": lambda x, n: x * float(f"{n:.1f}"), "repr": lambda x, n: x * len(repr(n)),
    "hash": lambda x, n: x * {0.3: 2.0}.get(n, 5.0), "in": lambda x, n: x * (n in [0.3, 0.9]),
    "set": lambda x, n: x * (n in {0.3, 0.9}), "divmod": lambda x, n: x * divmod(n, 0.2)[0], "//": lambda x, n: x * (n // 0.2),
    "%": lambda x, n: x * (n % 0.2), "r//": lambda x, n: x * (2 // n), "max": lambda x, n: x * max(n, 0.5),
    "sorted": lambda x, n: x * sorted([n, 0.5, 0.8])[1], "branch": lambda x, n: x * 2 if n > 0.5 else x * 3,
    "while": lambda x, n: loop(x, n), "is_integer": lambda x, n: x * (2 if n.is_integer() else 3),
    "ratio": lambda x, n: x * (n.as_integer_ratio()[1] % 7), "hex": lambda x, n: x * len(n.hex()),
    "real": lambda x, n: x * n.real + n.imag, "pow()": lambda x, n: x * pow(n, 2), "n ** 2": lambda x, n: x * n ** 2,
    "2 ** n": lambda x, n: x * 2 ** n, "math.pow": lambda x, n: x * math.pow(2, n), "log": lambda x, n: x * math.log(n),
    "isclose": lambda x, n: x * (2 if math.isclose(n, 0.3) else 4),
    "isinstance": lambda x, n: x * (n if isinstance(n, float) else 2), "type": lambda x, n: x * (n if type(n) is float else 2),
    "bool": lambda x, n: x * 2 if n else x, "not": lambda x, n: x * 2 if not n else x, "abs": lambda x, n: x * abs(-n),
    "neg": lambda x, n: x * -n, "range": lambda x, n: sum(x * i for i in range(int(n * 10) + 1)),
    "returned": lambda x, n: (x, n, n * 2, [n + 1]), "dict": lambda x, n: {"a": n, "b": x * n},
    "returned text": lambda x, n: (x * 2, str(n)), "np": lambda x, n: x * float(np.float32(n)),
    "key": lambda x, n: {n: x * 2}[n], "slice": lambda x, n: x[:int(n * 4)],
    "tuple compare": lambda x, n: x * (2 if (n, 1) < (0.5, 1) else 3), "ceil": lambda x, n: x * math.ceil(n * 5),
    "isnan": lambda x, n: x * (1 if math.isnan(n) else 2), "prod": lambda x, n: x * math.prod([n, 2.0]),
    "negative root": lambda x, n: (x * (0.5 - n) ** 0.5).abs(), "zero": lambda x, n: x * (1 / (n - 0.7)),
    "sqrt neg": lambda x, n: x * math.sqrt(0.5 - n), "overflow": lambda x, n: x * 1e+300 ** (n * 2),
    "dropout": lambda x, n: F.dropout(x, n), "bernoulli": lambda x, n: torch.bernoulli(torch.full((4,), n)) * x,
    "normal": lambda x, n: torch.normal(0.0, n, (4,)) * x, "randn": lambda x, n: torch.randn(4) * n * x,
    "alpha_dropout": lambda x, n: F.alpha_dropout(x, n, True), "gumbel": lambda x, n: F.gumbel_softmax(x, tau=n),
}
# For all values but the first, which is taken for a constant.
ONE_PROGRAM = {"mul", "add", "div", "rdiv", "mod", "compare", "clamp", "add alpha", "lerp", "addcmul", "where", "leaky_relu",
               "elu", "huber", "cumsum", "cat", "inplace", "iadd", "sum", "double", "half", "real", "pow()", "n ** 2", "2 ** n",
               "isinstance", "type", "abs", "neg", "returned", "dict", "prod", "randn", "gumbel"}


def shown(function, wrap, values, backward):
    """Results and gradients of the calls, or what they raise."""
    torch.manual_seed(0)
    fn = wrap(function)
    found = []
    for n in values:
        x = X.clone().requires_grad_(backward)
        try:
            result = fn(x, n)
            first = next(r for r in (result.values() if isinstance(result, dict) else result if isinstance(result, tuple)
                                     else [result]) if isinstance(r, torch.Tensor))
            if first.requires_grad:
                (first * torch.linspace(0.3, 1.3, first.numel()).view(first.shape)).sum().backward()
            found.append(seen([result, x.grad]))
        except (ArithmeticError, ValueError, RuntimeError, NotImplementedError) as error:
            found.append(f"{type(error).__name__}: {error}")
    return found, fn


def compiled_agrees(function, values=VALUES):
    for backward in (False, True):
        expected, _ = shown(function, lambda f: f, values, backward)
        got, fn = shown(function, torch.compile, values, backward)
        for n, a, b in zip(values, expected, got):
            same_seen(a, b, where=f"with {n}")
    return fn


@pytest.mark.parametrize("name", [*OPERATIONS, *PYTHON])
def test_a_float_that_changes(name):
    limits = name in ("huber", "logit")  # that are nan: NumPy's kernels and the native ones differ in eager mode, too
    compiled_agrees((OPERATIONS | PYTHON)[name], [n for n in VALUES if n == n] if limits else VALUES)


@pytest.mark.parametrize("name", sorted(ONE_PROGRAM))
def test_one_program_for_all_values(name):
    fn = compiled_agrees((OPERATIONS | PYTHON)[name], (0.3, 0.7, 0.9, 0.2, 0.11, 0.8, 0.3))
    assert way(fn) == "skip" and programs(fn) <= 2, why(fn)


def test_powers_of_tensors():
    """An exponent that is a tensor is no constant, though squares and roots are quicker than powers."""
    power = torch.compile(lambda x, e: (x ** e, torch.full((3,), 2.0) ** e))
    for shape in ((), (3,)):
        for e in (2.0, 2.0, 3.0, 0.5, -1.0):
            x, e = torch.tensor([1.0, 2.0, 3.0]), torch.full(shape, e)
            same_seen(seen((x ** e, torch.full((3,), 2.0) ** e)), seen(power(x, e)))
    assert programs(power) == 2


def test_what_is_no_number_for_python_is_none_for_a_program():
    """Division by zero, roots of negative numbers and overflow: an exception, or a complex number, as the plain call has it."""
    root = torch.compile(lambda x, n: x * n ** 0.5)
    for n in (4.0, 9.0, -4.0, 16.0, -4.0, 0.0):
        assert repr(root(torch.ones(1), n).tolist()) == repr((torch.ones(1) * n ** 0.5).tolist())
    inverse = torch.compile(lambda x, n: x * (1 / n))
    for n in (4.0, 2.0, 8.0):
        assert inverse(torch.ones(1), n).item() == 1 / n
    for n in (0.0, -0.0):
        with pytest.raises(ZeroDivisionError):
            inverse(torch.ones(1), n)
    assert inverse(torch.ones(1), 16.0).item() == 1 / 16
