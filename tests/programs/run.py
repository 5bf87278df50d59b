"""Runs a program with `torch` meaning flambeau or PyTorch: python tests/programs/run.py {torch,flambeau} program.py ..."""

from __future__ import annotations

import io
import runpy
import sys
from contextlib import redirect_stdout


def output(which: str, path: str, arguments: list[str] | None = None) -> str:
    """What the program prints, in this process."""
    from flambeau import compat
    (compat.install if which == "flambeau" else compat.uninstall)()
    before, sys.argv = sys.argv, [path, *(arguments or [])]
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            runpy.run_path(path, run_name="__main__")
    finally:
        sys.argv = before
        compat.uninstall()
    return printed.getvalue()


if __name__ == "__main__":
    print(output(sys.argv[1], sys.argv[2], sys.argv[3:]), end="")
