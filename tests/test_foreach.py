"""`_foreach_*`: operations over lists of tensors, compared with PyTorch's: results, in-place forms and the types of errors."""

import numpy as np
import pytest
import torch

import flambeau

RNG = np.random.default_rng(0)
ARRAYS = {name: [RNG.uniform(0.1, 0.9, (3, 2)).astype(np.float32) for _ in range(3)] for name in "ABC"}
ONE = """abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round rsqrt
    sigmoid sign sin sinh sqrt tan tanh trunc"""
TWO = "add sub mul div clamp_max clamp_min maximum minimum pow"

# The arguments are Python, evaluated with A, B and C (lists of tensors) and `lib`.
CALLS = [*[(op, "A") for op in ONE.split()],
         *[(op, f"A, {other}") for op in TWO.split() for other in ("B", "0.5", "[0.1, 0.2, 0.3]")],
         *[(op, f"A, B, C{more}") for op in ("addcmul", "addcdiv") for more in (
             "", ", 0.5", ", value=0.5", ", [0.1, 0.2, 0.3]", ", scalars=[0.1, 0.2, 0.3]", ", lib.tensor([0.1, 0.2, 0.3])")],
         ("add", "A, B, alpha=2"), ("sub", "A, B, alpha=0.5"), ("add", "A, other=B"), ("mul", "A, lib.tensor(2.0)"),
         ("mul", "A, scalar=2"), ("pow", "A, exponent=2"), ("lerp", "A, B, 0.3"), ("lerp", "A, B, C"),
         ("lerp", "A, B, weight=0.3")]
NOT_IN_PLACE = [("pow", "2.0, A"), ("max", "A"), ("norm", "A"), ("norm", "A, 1"), ("mm", "A, [t.t() for t in B]")]
ONLY_IN_PLACE = [("zero_", "A"), ("copy_", "A, B")]
WRONG = [("add", "A, B[:2]"), ("add", "[], B"), ("add", "A"), ("mul", "A[0], 2"), ("mul", "A, lib.ones(3)"), ("exp", "A, 2"),
         ("addcmul", "A, B, C, lib.ones(2)"), ("addcmul", "A, B, C[:1]")]


def ran(lib, name, arguments):
    """What a call gives, or for an in-place form what became of the first list."""
    lists = {n: [lib.from_numpy(a.copy()) for a in some] for n, some in ARRAYS.items()}
    made = eval(f"lib._foreach_{name}({arguments})", {"lib": lib, **lists})
    return [t.numpy() for t in (lists["A"] if name.endswith("_") else made)]


@pytest.mark.parametrize("name, arguments", [*CALLS, *[(n + "_", a) for n, a in CALLS], *NOT_IN_PLACE, *ONLY_IN_PLACE])
def test_like_torch(name, arguments):
    if name == "mm" and not hasattr(torch, "_foreach_mm"):
        expected = [a @ b.T for a, b in zip(ARRAYS["A"], ARRAYS["B"])]
    else:
        expected = ran(torch, name, arguments)
    made = ran(flambeau, name, arguments)
    assert len(made) == len(expected) == 3
    for ours, theirs in zip(made, expected):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name, arguments", [*WRONG, *[(n + "_", a) for n, a in WRONG]])
def test_errors_like_torch(name, arguments):
    with pytest.raises(Exception) as theirs:
        ran(torch, name, arguments)
    with pytest.raises(type(theirs.value)):
        ran(flambeau, name, arguments)


def test_no_form_without_a_row_that_says_so():
    assert not hasattr(flambeau, "_foreach_sum") and not hasattr(flambeau, "_foreach_max_")
