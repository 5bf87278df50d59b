"""An operation's derivative as text: from its row in the table of operations, or from a custom Function's source."""

from __future__ import annotations

import inspect
import linecache
import textwrap
from typing import Any

from ..ops.core.row import RowNode

LONGEST = 30  # lines of a function's source that are shown
_WORDS = {"AccumulateGrad": "adds what arrives to the leaf's .grad",
          "CopySlices": "the changed part of the gradient goes through the in-place operation, the rest passes",
          "DeadEnd": "a view made without recording: the gradient ends here",
          "CompiledFunctionBackward": "a compiled program: the backward pass of the whole call"}


def key_of(node: Any) -> str:
    """The name under which a node's formula is kept: nodes of one operation share it."""
    if isinstance(node, RowNode):
        return node.row.name
    if node.ctx is None:
        return type(node).__name__
    function = node.ctx._forward_cls
    line = getattr(getattr(function.backward, "__code__", None), "co_firstlineno", "")  # inner classes may share a name
    return f"{function.__module__}.{function.__qualname__}:{line}"


def describe(node: Any) -> dict[str, Any]:
    """{"forward": the call, "c": its C expression or None, "backward": [[what it is the gradient of, text]...]}."""
    if isinstance(node, RowNode):
        row = node.row
        return {"forward": f"{row.name}({', '.join(row.args)})", "c": row.c if isinstance(row.c, str) else None,
                "backward": [[f"grad of {name}", text_of(formula)] for name, formula in row.backward.items()]}
    if node.ctx is not None:
        function = node.ctx._forward_cls
        return {"forward": f"{function.__name__}.apply(...)", "c": None,
                "backward": [["the Function's own", text_of(function.backward)]]}
    kind = type(node).__name__
    return {"forward": kind, "c": None, "backward": [["what it does", _WORDS.get(kind, "a node of autograd's own")]]}


def text_of(formula: Any) -> str:
    """A formula as a person would write it down."""
    if isinstance(formula, str):
        return formula
    formula = getattr(formula, "func", formula)  # a partial function's
    code = getattr(formula, "__code__", None)
    if code is None:
        return repr(formula)
    if code.co_name == "<lambda>":
        found = _body(code)
        if found:
            return found
    try:
        lines = inspect.getsource(formula).rstrip().splitlines()
    except (OSError, TypeError):
        return f"{code.co_name}({', '.join(code.co_varnames[:code.co_argcount])})"
    shown = lines if len(lines) <= LONGEST else [*lines[:LONGEST], "    ..."]
    return textwrap.dedent("\n".join(shown))


def _body(code: Any) -> str | None:
    """The text of a lambda's expression: the part of its file that its instructions come from."""
    spans = [p for p in code.co_positions() if None not in p and p[2:] != (0, 0)]
    if not spans:
        return None
    first, column = min((line, start) for line, _, start, _ in spans)
    last, end = max((line, stop) for _, line, _, stop in spans)
    lines = linecache.getlines(code.co_filename)[first - 1:last]
    if not lines:
        return None
    raw = [line.encode() for line in lines]  # columns count bytes
    raw[-1] = raw[-1][:end]
    raw[0] = raw[0][column:]
    text = " ".join([line.decode().strip() for line in raw])
    missing = text.count("(") - text.count(")")  # an instruction need not cover the parentheses around its expression
    return text + ")" * missing if missing >= 0 else "(" * -missing + text
