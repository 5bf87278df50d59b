"""What knows which language: lowerings, passes and plans are data, dialects print them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import flambeau.compiler

HOME = Path(flambeau.compiler.__file__).parent
FILES = sorted(p.relative_to(HOME).as_posix() for p in HOME.rglob("*.py"))
# The program itself: it knows addresses, shapes and kinds of elements, but no arrays. Who captures and runs it does.
PROGRAM = {"arena.py", "draft.py", "epilogues.py", "expand.py", "fusion.py", "ir.py", "literals.py", "lower.py", "nests.py",
           "passes.py", "plan.py", "recompute.py", "statements.py", "symbolic.py", "template.py"}
C = re.compile(r"""\bfl_\w*\( | \#(pragma|include|define)\b | \b(memcpy|memset|sizeof|typedef|goto|void)\s*[(*;\s]
                   | \b(const\s+)?(long|double|float|int|char)\s+\*?\w+\s*(=|\[|;|\)) | \bfor\s*\( | \bif\s*\(
                   | \((\w+\s)?\w+\s\*\) | [\w)\]];$ | ->\w+;""", re.VERBOSE)


def texts(path: str) -> list[str]:
    """The strings of a file that are not documentation."""
    tree = ast.parse((HOME / path).read_text())
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [node.value for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told]


def imported(path: str) -> set[str]:
    tree = ast.parse((HOME / path).read_text())
    names = [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("path", FILES)
def test_only_dialects_know_c(path):
    found = [t for t in texts(path) if C.search(t)]
    assert bool(found) == (path.startswith("dialects/") and path != "dialects/__init__.py"), found


@pytest.mark.parametrize("path", [p for p in FILES if p in PROGRAM or p.startswith(("lowerings/", "dialects/"))])
def test_the_program_knows_no_numpy(path):
    assert not {"numpy", "ml_dtypes"} & imported(path)


def test_the_list_is_complete():
    assert set(FILES) >= PROGRAM
