"""Checks an array API namespace against the special cases in the standard's own text ("If x_i is NaN, the result is ...").

    pip download --no-deps types-array-api && unzip types_array_api-*.whl
    python tools/array_api_special_cases.py array_api/_2024_12.py [namespace] [--unread]

The file has the standard's functions with their descriptions. Those for real numbers are read; sentences of other forms are
counted, and printed with --unread. The namespace is flambeau.array_api if none is given.
"""

from __future__ import annotations

import importlib
import itertools
import math
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

FINITE = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 7.25]
GRID = [math.nan, math.inf, -math.inf, *FINITE, *(-number for number in FINITE)]
NUMBERS = {"NaN": math.nan, "+infinity": math.inf, "-infinity": -math.inf, "+0": 0.0, "-0": -0.0}
VALUE = r"(abs\(x1_i\)|abs\(x2_i\)|x1_i|x2_i|x_i)"
COMPARISONS = {"less than": float.__lt__, "greater than": float.__gt__, "not equal to": float.__ne__,
               "less than or equal to": float.__le__, "greater than or equal to": float.__ge__}
Point = dict[str, float]  # values of x_i, or of x1_i and x2_i


def equal(a: float, b: float) -> bool:
    """The same number: nan is nan, and zeros have signs."""
    return math.isnan(a) if math.isnan(b) else a == b and math.copysign(1, a) == math.copysign(1, b)


def whole(value: float) -> bool:
    return math.isfinite(value) and value == int(value)


def at(word: str, point: Point) -> float:
    return abs(point[word[4:-1]]) if word.startswith("abs") else point[word]


def condition(text: str) -> Callable[[Point], bool] | None:
    """What a clause such as "x_i is either +0 or -0" asks of a point; None if it is not understood."""
    if m := re.fullmatch(VALUE + r" is (?:either )?(\S+)(?: or (\S+))?", text):
        if all(word in NUMBERS for word in m.groups()[1:] if word):
            wanted = [NUMBERS[word] for word in m.groups()[1:] if word]
            return lambda point: any(equal(at(m[1], point), number) for number in wanted)
        if not m[3] and re.fullmatch(r"[-+]?[\d.]+", m[2]):
            return lambda point: at(m[1], point) == float(m[2])
    if m := re.fullmatch(VALUE + rf" is ({'|'.join(sorted(COMPARISONS, key=len, reverse=True))}) ([-+\d.]+)", text):
        return lambda point: not math.isnan(at(m[1], point)) and COMPARISONS[m[2]](at(m[1], point), float(m[3]))
    if m := re.fullmatch(VALUE + r" is a (positive|negative|nonzero)? ?finite number", text):
        signs = {"positive": (1,), "negative": (-1,), "nonzero": (1, -1), None: (1, -1, 0)}[m[2]]
        return lambda point: math.isfinite(at(m[1], point)) and np.sign(at(m[1], point)) in signs
    if m := re.fullmatch(VALUE + r" is not (\S+)", text):
        if m[2] in NUMBERS:
            return lambda point: not equal(at(m[1], point), NUMBERS[m[2]])
    if text == "x_i is already integer-valued":
        return lambda point: whole(point["x_i"])
    if m := re.fullmatch(VALUE + r" is (not )?an (odd )?integer value", text):
        return lambda point: (whole(at(m[1], point)) and (not m[3] or at(m[1], point) % 2 == 1)) != bool(m[2])
    if m := re.fullmatch(r"(either|both) x1_i (?:or|and) x2_i (?:is|are) (\S+)", text):
        if m[2] in NUMBERS:
            choose = any if m[1] == "either" else all
            return lambda point: choose([equal(value, NUMBERS[m[2]]) for value in point.values()])
    return None


def outcome(text: str) -> Callable[[float, Point], bool] | None:
    """Whether a result is what the text says; None if it is not understood."""
    if text in NUMBERS:
        return lambda got, point: equal(got, NUMBERS[text])
    if text in ("x_i", "x1_i", "x2_i"):
        return lambda got, point: equal(got, point[text])
    if text in ("|x1_i|", "-|x1_i|"):
        return lambda got, point: equal(got, math.copysign(point["x1_i"], -1 if text[0] == "-" else 1))
    if text in ("True", "False"):
        return lambda got, point: bool(got) == (text == "True")
    if m := re.fullmatch(r"(?:an implementation-dependent approximation to )?([-+]?)(\d?)(π|[\d.]+)(?:/(\d))?", text):
        size = (math.pi if m[3] == "π" else float(m[3])) * float(m[2] or 1) / float(m[4] or 1)
        return lambda got, point: math.isclose(got, -size if m[1] == "-" else size, rel_tol=1e-12)
    return None


def sentences(text: str) -> Iterator[tuple[str, str]]:
    """(function, sentence) for all special cases of real numbers."""
    for block in re.split(r"^class ", text, flags=re.M)[1:]:
        name, description = re.match(r"\w+", block)[0], (block.split('"""') + [""])[1]
        cases = description.partition("Special cases")[2].partition("For complex floating-point operand")[0]
        for line in re.findall(r"^ *- +If (.*)$", cases, flags=re.M):
            line = re.sub(r" \(i\.e\.,[^)]*\)|\(\*\*note.*", "", line.replace("`", ""))
            yield name, line.strip().rstrip(".")


def check(xp, name: str, sentence: str) -> list[str] | None:
    """What is wrong, or None if the sentence is not understood."""
    when, _, then = sentence.partition(", the result is ")
    conditions = [condition(clause) for clause in re.split(r",? and (?!x2_i (?:are|have))|, (?=x)", when)]
    wanted = outcome(then.removesuffix(", even if x1_i is NaN"))
    names = ("x1_i", "x2_i") if re.search(r"x[12]_i", sentence) else ("x_i",)
    if wanted is None or None in conditions:
        return None
    points = [dict(zip(names, values)) for values in itertools.product(GRID, repeat=len(names))]
    points = [point for point in points if all(holds(point) for holds in conditions)]
    if not points:
        return None
    arguments = [xp.asarray([point[n] for point in points], dtype=xp.float64) for n in names]
    results = np.asarray(getattr(xp, name)(*arguments)).tolist()
    return [f"{name}: {sentence}: {point} gave {got}" for point, got in zip(points, results) if not wanted(got, point)]


def main(path: str, namespace: str = "flambeau.array_api", *options: str) -> int:
    xp = importlib.import_module(namespace)
    listed = [(name, sentence) for name, sentence in sentences(Path(path).read_text()) if hasattr(xp, name)]
    found = [(name, sentence, check(xp, name, sentence)) for name, sentence in listed]
    wrong = [problems for _, _, problems in found if problems]
    unread = [f"{name}: {sentence}" for name, sentence, problems in found if problems is None]
    print(*(problems[0] for problems in wrong), *(unread if "--unread" in options else ()), sep="\n")
    print(f"{len(found) - len(unread)} of {len(found)} special cases read, {len(wrong)} wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
