"""Functions that do the most frequent calls of an operation by themselves, made as text (see generate.py).

A function of many forms takes any argument under any name, which costs four to eight times as much as a small kernel. What is
made here stands in its place (`stands_for`), does the calls of ordinary tensors that a table describes (ops/fast_calls.py), and
passes every other call on as it came.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any

from . import generate
from . import overrides as _overrides
from .export import export

_DIMENSIONS = re.compile(r"\bn\b")

def stands_for(of: Any, *, method: bool = True, toplevel: bool = True, aliases: tuple[str, ...] = ()) -> Any:
    """Exports a function in place of a general one, under its name and with its text."""
    def decorate(function: Any) -> Any:
        functools.update_wrapper(function, of)
        inner = of
        while inner is not None:  # `of` may itself stand for another
            _overrides.STAND_INS[inner] = function
            inner = getattr(inner, "__wrapped__", None)
        export(of.__name__, function, method=method, toplevel=toplevel, aliases=aliases)
        return function

    return decorate


def fast_call(of: Callable[..., Any], row: Any, takes: str, *, method: bool = True, toplevel: bool = True,
              aliases: tuple[str, ...] = (), **options: Any) -> Any:
    """A function that stands for another one and does its most frequent call; options: as in `_made`."""
    return stands_for(of, method=method, toplevel=toplevel, aliases=aliases)(_made(of, row, takes, **options))


def _made(of: Callable[..., Any], row: Any, takes: str, *, made: Any, when: str = "", given: str = "", chars: str = "",
          or_none: bool = False, tensors: str = "", gives: type | None = None, **using: Any) -> Callable[..., Any]:
    """The function itself.

    takes: its arguments, the first of them a tensor, or a list of them where the row says so: "self dim0 dim1",
    "self *shape", or "self dim keepdim=False", which may be given by name. when: what has to be true of them; x is the tensor's
    array (of a list: its first), which is not empty, n its number of dimensions. made: an expression of the result's array, or
    lines that end with one. or_none: it asks by itself, and is None where the call is to be passed on. given: the row's further
    arguments. chars: dtypes; none where a view is made, or asked for by itself. tensors: arguments that are tensors; gives: the
    class of a result that is a tuple of tensors; using: names in these texts, for a list `alike`, which says whether a follower
    takes it.
    In a call that is followed the row's kernel is asked instead, unless it makes a view.
    """
    parts = takes.split()
    names = [t.partition("=")[0].lstrip("*") for t in parts]
    first, rest = names[0], [g.strip() for g in given.split(";")] if given else []
    *before, last = [made] if made.__class__ is str else made
    signature, call, bound = _arguments(parts, names)
    several = 0 in row.lists
    arguments = [f"[a._array for a in {first}]" if several else "x"]
    arguments += [f"{r}._array" if r in tensors.split() else r for r in rest]
    body = [*before, *_computed(row, "made" if or_none else last, arguments)]
    sure = {i for i, a in enumerate([first, *rest]) if (i == 0 and not row.lists) or a in tensors.split()}
    body += generate.results(row, [first, *rest], sure, set(range(1, len(row.args))) - sure, "mode", gives is not None,
                             where=f"any_history({first})" if several else "")
    body.append("return t" if gives is None else "return tuple_of(gives, results)")
    if when:
        body = [f"if {when}:", *_indented(body)]
    if any([_DIMENSIONS.search(line) for line in body]):
        body.insert(0, "n = x.ndim")
    if several:
        body.insert(0, f"x = {first}[0]._array")
    if "=" in parts[-1]:
        using["bind"] = eval(f"lambda {', '.join(parts)}: {generate.in_tuple(names)}")
    text = ["mode = state.mode", *bound, *_indented(_arrays(row, first, last if or_none else "")), *_indented(body, 3),
            f"return {call}"]
    return generate.later(row.name, signature, text, of=of, Node=row.node, kernel_name=row.kernel, chars=chars, gives=gives,
                          tuple_of=tuple.__new__, without_gradient=row.constant, public_name=of.__name__, **using)


def _indented(lines: Iterable[str], levels: int = 1) -> list[str]:
    return ["    " * levels + line for line in lines]


def _computed(row: Any, made: str, arguments: list[str]) -> list[str]:
    """Lines that make the array, or the arrays: in a call that is followed by the row's kernel."""
    if row.view:
        return [*([f"made = {made}"] if made != "made" else []), "mode &= NO_GRAD"]
    return ["if mode > 1:", "    mode &= NO_GRAD",
            f"    made = state.follower.call(kernel_name, {generate.in_tuple(arguments)})",
            *(["else:", f"    made = {made}"] if made != "made" else [])]


def _arrays(row: Any, first: str, made: str) -> list[str]:
    """Lines that find the array of an ordinary tensor, up to the second `if`, in which x has elements, or which asks whether
    the result could be made."""
    if 0 in row.lists:
        return [f"if mode < 2 or alike({first}):", f"    made = {made} if mode < 2 else None",
                "    if mode > 1 or made is not None:"]
    if row.view:
        ordinary_array = f"type(x) in WINDOWS and {first}._view_fn is None and not {first}._inference"
    else:
        ordinary_array = f"x.dtype.char in chars and {generate.ours('x')}"
    return [f"kind = {first}.__class__", "if kind is Tensor or kind is Parameter:", f"    x = {first}._array",
            f"    if {ordinary_array} and {f'(made := {made}) is not None' if made else 'x.size'}:"]


def _arguments(takes: list[str], names: list[str]) -> tuple[str, str, list[str]]:
    """The signature, a call of the other function, and lines that bind the arguments to names, up to the `if` that holds where
    that could be done."""
    ordinary, call = generate.ORDINARY, "of(*args, **kwargs)"
    if takes[-1].startswith("*"):
        first, rest = names
        call = f"of(**kwargs) if {first} is None else of({first}, *{rest}, **kwargs)"
        return f"{first}=None, *{rest}, **kwargs", call, [f"if not kwargs and {ordinary}:"]
    exactly = f"len(args) == {len(names)} and not kwargs"
    if "=" not in takes[-1]:
        return "*args, **kwargs", call, [f"if {exactly} and {ordinary}:", f"    {generate.in_tuple(names)} = args"]
    required = [t for t in takes if "=" not in t]
    defaults = [t.partition("=")[2] for t in takes[len(required):]]
    return "*args, **kwargs", call, [
        f"if {ordinary}:", "    given = 0 if kwargs else len(args)",
        f"    if given == {len(names)}:", f"        {generate.in_tuple(names)} = args",
        f"    elif given == {len(required)}:",
        f"        {', '.join(names)} = {', '.join([f'args[{i}]' for i in range(len(required))] + defaults)}",
        "    else:", "        try:", f"            {generate.in_tuple(names)} = bind(*args, **kwargs)",
        "        except TypeError:", f"            return {call}"]
