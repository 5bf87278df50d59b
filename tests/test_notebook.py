"""The notebooks among the examples: their cells run in order, and what they print is what is stored in them."""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def run(source: str, names: dict[str, Any]) -> tuple[str, Any]:
    """What a cell prints, and the value of its last line."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, "cell", "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return printed.getvalue(), value


def shows_itself(value: Any) -> bool:
    return any(hasattr(value, f"_repr_{kind}_") for kind in ("html", "svg", "png"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_run_and_print_what_is_stored(notebook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stored = json.loads(notebook.read_text(encoding="utf-8"))
    assert stored["nbformat"] == 4
    names: dict[str, Any] = {"__name__": "__main__"}
    same = doctest.OutputChecker().check_output
    for cell in stored["cells"]:
        if cell["cell_type"] != "code":
            continue
        printed, value = run("".join(cell["source"]), names)
        for output in cell["outputs"]:
            if output["output_type"] == "stream":
                assert same("".join(output["text"]), printed, 0), printed
            elif "image/svg+xml" in output["data"]:
                assert shows_itself(value)
            else:
                assert same("".join(output["data"]["text/plain"]), repr(value), 0), value


def test_there_is_one():
    assert NOTEBOOKS
