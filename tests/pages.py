"""Reads and runs the code of Markdown pages, for tests/test_docs.py and tools/doc_pictures.py.

A page's Python blocks run in order, in one namespace. What stands around them says how:

    ```output              right after a Python block: what that block prints (`...` stands for anything)
    ```python gpu          runs where there is a GPU, and is only compiled elsewhere
    <!-- not run: why -->  right before a Python block: it is only compiled
    <!-- source: a.b.c --> right before a Python block: it is part of the source of that object; a line `...` leaves some out
    <!-- needs a C compiler -->  anywhere: the page's output is that of native programs
"""

from __future__ import annotations

import doctest
import inspect
import io
import pkgutil
import re
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import flambeau

_FENCE = re.compile(
    r"^(?:<!-- (?P<mark>not run|source): (?P<about>[^\n]+?) -->\n)?```(?P<language>[^\n]*)\n(?P<text>.*?)^```$", re.M | re.S)


@dataclass
class Block:
    language: str
    text: str
    line: int            # of its first line of code, in the page
    mark: str | None     # "not run" or "source"
    about: str | None    # the reason, or the object's name
    output: str | None = None


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page; a Python block knows the output that the page shows for it."""
    source, found = page.read_text(encoding="utf-8"), []
    for match in _FENCE.finditer(source):
        line = source.count("\n", 0, match.start("text")) + 1
        block = Block(match["language"].strip(), match["text"], line, match["mark"], match["about"])
        if block.language == "python gpu":
            block.language = "python"
            if not flambeau.cuda.is_available():
                block.mark, block.about = "not run", "needs a GPU"
        if block.language == "output":
            found[-1].output = block.text
        found.append(block)
    return found


def run(page: Path, folder: Path) -> list[str]:
    """Runs a page in a folder; gives what was printed otherwise than the page says, and code that is not the source's."""
    blocks = [block for block in blocks_of(page) if block.language == "python"]
    wrong = [message for block in blocks if block.mark == "source" for message in _is_source(page, block)]
    for block in blocks:
        if block.mark == "not run":
            compile(block.text, page.name, "exec", dont_inherit=True)
    blocks = [block for block in blocks if block.mark is None]
    # The code lies in a file, at the page's line numbers: tracebacks name them, and `torch.compile` finds the source. It is one
    # piece, as Python compiles a function otherwise if the file imports what it uses. Where a fence was, the next block begins.
    lines = [""] * len(page.read_text(encoding="utf-8").splitlines())
    for number, block in enumerate(blocks):
        lines[block.line - 2] = f"__begin__({number})"
        lines[block.line - 1:block.line - 1 + block.text.count("\n")] = block.text.splitlines()
    file = folder / f"{page.stem}_page.py"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    printed = _run_file(file, len(blocks))
    return wrong + [message for block, text in zip(blocks, printed) for message in _compare(page, block, text)]


def _run_file(file: Path, blocks: int) -> list[str]:
    """What each block prints."""
    printed = [io.StringIO() for _ in range(blocks)]
    module = sys.modules[file.stem] = types.ModuleType(file.stem)
    module.__file__ = str(file)
    before = sys.stdout

    def begin(number: int) -> None:
        sys.stdout = printed[number]

    module.__begin__ = begin
    try:
        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec", dont_inherit=True), module.__dict__)
    finally:
        sys.stdout = before
        del sys.modules[file.stem]
    return [text.getvalue() for text in printed]


def _is_source(page: Path, block: Block) -> list[str]:
    """Whether the pieces of a block, between lines of dots, stand in the source of what it names, in that order."""
    source, at = inspect.getsource(pkgutil.resolve_name(block.about)), 0
    for piece in re.split(r"^ *\.\.\.\n", block.text, flags=re.M):
        at = source.find(piece, at)
        if at < 0:
            return [f"{page.name}, line {block.line}: this is not in the source of {block.about}:\n{piece}"]
        at += len(piece)
    return []


def _compare(page: Path, block: Block, printed: str) -> list[str]:
    if block.output is None or doctest.OutputChecker().check_output(block.output, printed, doctest.ELLIPSIS):
        return []
    return [f"{page.name}, line {block.line}: the page shows\n{block.output}\nand the code prints\n{printed}"]
