"""Runs one program with flambeau and with torch, and compares what it returns or raises."""

from __future__ import annotations

import math
import warnings

import torch

import flambeau

MODULES = {"torch": torch, "flambeau": flambeau}


def described(value, mod):
    """A value as plain Python data: tensors as (dtype, shape, requires_grad, grad_fn's name, elements)."""
    if isinstance(value, mod.Tensor):
        fn = value.grad_fn
        plain = value.detach()
        return ("tensor", str(value.dtype).split(".")[-1], tuple(value.shape), value.requires_grad,
                None if fn is None else fn.name(), plain.tolist())
    if isinstance(value, (tuple, list)):
        return [described(v, mod) for v in value]
    if isinstance(value, dict):
        return {k: described(v, mod) for k, v in value.items()}
    if hasattr(value, "next_functions"):
        return ("node", value.name())
    return value


def close(a, b) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(close(x, y) for x, y in zip(a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(close(a[k], b[k]) for k in a)
    if isinstance(a, complex) or isinstance(b, complex):
        return close(complex(a).real, complex(b).real) and close(complex(a).imag, complex(b).imag)
    if isinstance(a, float) and isinstance(b, float):
        return a == b or math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-6) or (a != a and b != b)
    return type(a) is type(b) and a == b


def run(program, mod):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return "returned", described(program(mod), mod)
        except Exception as error:
            return "raised", type(error).__name__, str(error)


def agree(program) -> None:
    """Asserts that both modules return the same, or raise the same type of error."""
    expected, got = run(program, torch), run(program, flambeau)
    assert got[:1] == expected[:1], f"torch {expected}\nflambeau {got}"
    if expected[0] == "raised":
        assert got[1] == expected[1], f"torch {expected}\nflambeau {got}"
    else:
        assert close(expected[1], got[1]), f"torch    {expected[1]}\nflambeau {got[1]}"


class Programs(list):
    """A table of programs: `@programs` adds one; `ids` names them for pytest."""

    def __call__(self, program):
        self.append(program)
        return program

    @property
    def ids(self):
        return [p.__name__ for p in self]
