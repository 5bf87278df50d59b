"""Reads and runs the code of Markdown pages, for tests/test_docs.py and tools/doc_pictures.py.

A page's Python blocks run in order, in one namespace. What stands around them says how:

    ```output              right after a Python block: what that block prints (`...` stands for anything)
    <!-- not run: why -->  right before a Python block: it is only compiled
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import sys
import types
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^(?:<!-- not run: (?P<reason>[^\n]+?) -->\n)?```(?P<language>[^\n]*)\n(?P<text>.*?)^```$", re.M | re.S)


@dataclass
class Block:
    language: str
    text: str
    line: int            # of its first line of code, in the page
    reason: str | None   # why it is not run
    output: str | None = None


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page; a Python block knows the output that the page shows for it."""
    source, found = page.read_text(encoding="utf-8"), []
    for match in _FENCE.finditer(source):
        line = source.count("\n", 0, match.start("text")) + 1
        block = Block(match["language"].strip(), match["text"], line, match["reason"])
        if block.language == "output":
            found[-1].output = block.text
        found.append(block)
    return found


def run(page: Path, folder: Path) -> list[str]:
    """Runs a page in a folder; gives what was printed otherwise than the page says, block by block."""
    python = [block for block in blocks_of(page) if block.language == "python"]
    # The code lies in a file, at the page's line numbers: tracebacks name them, and `compile` finds the source.
    lines = [""] * len(page.read_text(encoding="utf-8").splitlines())
    for block in python:
        if not block.reason:
            lines[block.line - 1:block.line - 1 + block.text.count("\n")] = block.text.splitlines()
    file = folder / f"{page.stem}_page.py"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    module = sys.modules[file.stem] = types.ModuleType(file.stem)
    module.__file__ = str(file)
    wrong = []
    try:
        for block in python:
            code = compile("\n" * (block.line - 1) + block.text, str(file), "exec")
            if block.reason:
                continue
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(code, module.__dict__)
            wrong += _compare(page, block, printed.getvalue())
    finally:
        del sys.modules[file.stem]
    return wrong


def _compare(page: Path, block: Block, printed: str) -> list[str]:
    if block.output is None or doctest.OutputChecker().check_output(block.output, printed, doctest.ELLIPSIS):
        return []
    return [f"{page.name}, line {block.line}: the page shows\n{block.output}\nand the code prints\n{printed}"]
