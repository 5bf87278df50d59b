"""`python -m flambeau program.py arguments`: runs a program that says `import torch`, on flambeau.

`python -m flambeau -m package.module arguments` runs a module the same way, `-c "code"` a line of code.
"""

from __future__ import annotations

import os
import runpy
import sys

from . import compat

_USAGE = "usage: python -m flambeau [-m module | -c code | program.py] [arguments...]"


def main(arguments: list[str]) -> int:
    """Runs what the arguments name; `torch` means flambeau in it."""
    if not arguments or arguments[0] in ("-h", "--help") or (arguments[0] in ("-m", "-c") and len(arguments) < 2):
        print(_USAGE)
        return 0 if arguments[:1] and arguments[0] in ("-h", "--help") else 2
    compat.install()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = arguments
        if os.path.isfile(arguments[0]):
            sys.path.insert(0, os.path.dirname(os.path.abspath(arguments[0])))  # where its own modules are
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
