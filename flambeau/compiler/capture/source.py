"""Where the source of a function is: found by file and line. It counts only if it compiles to the very code that the function
has: a file that was edited meanwhile, or code without a source, says nothing about the function.
"""

from __future__ import annotations

import ast
import contextlib
import linecache
import re
import warnings
from collections.abc import Iterator
from types import CodeType
from typing import Any


class Unsupported(Exception):
    """The function cannot be rewritten; the text says why."""


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Python has said once what it thinks of a file. (`catch_warnings` would make it repeat what it said of others, too.)"""
    filters, mine = warnings.filters, [("ignore", None, SyntaxWarning, None, 0),
                                       ("ignore", re.compile("invalid escape"), DeprecationWarning, None, 0)]
    filters[:0] = mine
    try:
        yield
    finally:
        for one in mine:
            filters.remove(one)


class _File:
    """A source file: its functions as trees, and the code that they compile to."""

    def __init__(self, file: str, lines: list[str]):
        self.lines = lines
        with quietly():
            self._read(file, ast.parse("".join(lines)))

    def _read(self, file: str, tree: ast.Module) -> None:
        self.nodes: dict[tuple[str, int], list[Any]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                first = min([node.lineno, *[d.lineno for d in node.decorator_list]])
                self.nodes.setdefault((node.name, first), []).append(node)
            elif isinstance(node, ast.Lambda):
                self.nodes.setdefault(("<lambda>", node.lineno), []).append(node)
        self.codes: dict[tuple[str, int], list[CodeType]] = {}
        stack = [compile(tree, file, "exec", 0, True)]
        while stack:
            code = stack.pop()
            self.codes.setdefault((code.co_name, code.co_firstlineno), []).append(code)
            stack += [c for c in code.co_consts if isinstance(c, CodeType)]

    def node(self, code: CodeType) -> Any:
        """The tree of a function, if the file still says what the function does."""
        place = code.co_name, code.co_firstlineno
        if not any(_same(code, found) for found in self.codes.get(place, ())):
            return None
        found = self.nodes.get(place, [])
        if len(found) > 1:  # functions on one line are told apart by their columns and their arguments
            given = list(code.co_varnames[:code.co_argcount])
            found = [n for n in found if _holds(n, code) and [a.arg for a in (*n.args.posonlyargs, *n.args.args)] == given]
            if len({ast.dump(n) for n in found}) > 1:
                return None
        return found[0] if found else None


def _holds(node: Any, code: CodeType) -> bool:
    """Whether a lambda's body is where this code comes from."""
    body = node.body
    if not isinstance(node, ast.Lambda):
        return False
    first, last = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
    places = [p for p in code.co_positions() if None not in p and (p[2], p[3]) != (0, 0)]
    return bool(places) and all(first <= (p[0], p[2]) and (p[1], p[3]) <= last for p in places) and (
        min((p[0], p[2]) for p in places) == first or max((p[1], p[3]) for p in places) == last)


_files: dict[str, _File] = {}


def node_of(code: CodeType, table: dict[str, Any]) -> Any:
    lines = linecache.getlines(code.co_filename, table)
    known = _files.get(code.co_filename)
    if lines and (known is None or (known.lines is not lines and known.lines != lines)):
        try:
            _files[code.co_filename] = known = _File(code.co_filename, lines)
        except (SyntaxError, ValueError):
            known = None
    if not lines or known is None:
        raise Unsupported(f"the source of '{code.co_name}' is not to be had")
    found = known.node(code)
    if found is None:
        raise Unsupported(f"the source of '{code.co_name}' is not what it was when it was loaded")
    return found


def _same(a: CodeType, b: CodeType) -> bool:
    """Whether two code objects do the same."""
    if (a.co_code != b.co_code or a.co_names != b.co_names or a.co_varnames != b.co_varnames
            or a.co_freevars != b.co_freevars or len(a.co_consts) != len(b.co_consts) or a.co_flags != b.co_flags):
        return False
    return all(_same(x, y) if isinstance(x, CodeType) and isinstance(y, CodeType) else repr(x) == repr(y)
               for x, y in zip(a.co_consts, b.co_consts))
