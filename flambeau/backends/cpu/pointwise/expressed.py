"""A row's C expression as a NumPy function: the kernel of an operation that is nothing but its expression.

It serves where the native loop does not: complex numbers, no compiler. `?:`, `||` and `&&` become `where`,
`|` and `&`; all else of an expression is Python as it stands.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from .special_erf import ndtr


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _tanh_softplus(x: Any) -> Any:
    return np.tanh(np.logaddexp(x, 0).astype(x.dtype))


# What NumPy calls otherwise or does not have; all else that an expression names is NumPy's.
_OWN = dict(M_PI=np.pi, INFINITY=np.inf, atleast=np.maximum, atmost=np.minimum, max=np.maximum, min=np.minimum, fabs=np.abs,
            ndtr=ndtr, sigmoid=sigmoid, tanh_softplus=_tanh_softplus)


def _split(text: str, mark: str) -> list[str]:
    """The parts of a text between the marks that stand in no parentheses."""
    parts, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and text.startswith(mark, i):
            parts.append(text[start:i])
            start = i + len(mark)
    return [*parts, text[start:]]


def to_python(c: str) -> str:
    """The expression in Python, over NumPy's functions."""
    condition, *rest = _split(c, "?")
    if rest:
        yes, *no = _split("?".join(rest), ":")
        return f"where({to_python(condition)}, {to_python(yes)}, {to_python(':'.join(no))})"
    for mark, operator in (("||", " | "), ("&&", " & "), (",", ", ")):
        parts = _split(c, mark)
        if len(parts) > 1:
            return operator.join([to_python(part) if mark == "," else f"({to_python(part)})" for part in parts])
    made, depth, start = [], 0, 0
    for i, letter in enumerate(c):
        if letter == "(" and depth == 0:
            made.append(c[start:i + 1])
            start = i + 1
        depth += (letter == "(") - (letter == ")")
        if letter == ")" and depth == 0:
            made.append(to_python(c[start:i]))
            start = i
    return "".join([*made, c[start:]]).strip()


@functools.cache
def function(args: tuple[str, ...], c: str) -> Callable[..., Any]:
    """A function of the expression's arguments. It counts as code of this file, which a compiled call may run."""
    text = to_python(c)
    names = {word: _OWN.get(word) or getattr(np, word) for word in re.findall(r"(?<![\w.])[A-Za-z_]\w+", text)}
    return eval(compile(f"lambda {', '.join(args)}: {text}", __file__, "eval"), names)
