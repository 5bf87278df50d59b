"""`flambeau run program.py arguments` (or `python -m flambeau`): runs a program that says `import torch`, on flambeau."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from types import ModuleType

from .. import MissingName, Tensor, compat

_HELP = """usage: flambeau run [-m module | -c code | program.py] [arguments...]

Runs a program that sees flambeau wherever it imports torch. `python -m flambeau` does the same.

exit status: the program's own; 1 if it failed; 2 if there is no such file; 3 if it stopped at something of PyTorch's that
             flambeau does not have: the last lines name it"""
_LISTED = "What flambeau has of PyTorch's names is listed in docs/coverage.md"


def main(arguments: list[str]) -> int:
    """Runs what the arguments name; `torch` means flambeau in it."""
    if not arguments or arguments[0] in ("-h", "--help") or (arguments[0] in ("-m", "-c") and len(arguments) < 2):
        print(_HELP)
        return 0 if arguments[:1] and arguments[0] in ("-h", "--help") else 2
    if arguments[0] not in ("-m", "-c") and not os.path.exists(arguments[0]):
        print(f"flambeau run: there is no file {arguments[0]!r}", file=sys.stderr)
        return 2
    try:
        execute(arguments)
    except (AttributeError, ImportError, NotImplementedError) as error:
        name = lacking(error)
        if name is None:
            raise
        _show(error)
        program = arguments[0] if arguments[0].endswith(".py") else "program.py"
        first = f"flambeau does not have {name}. " if name else ""
        print(f"\n{first}{_LISTED};\n`flambeau check {program}` tells what else this program needs.", file=sys.stderr)
        return 3
    return 0


def execute(arguments: list[str]) -> None:
    """The program as `__main__`, with `torch` meaning flambeau; what it raises is raised."""
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


def lacking(error: BaseException) -> str | None:
    """What flambeau lacks, if that is what an error is about: a module, or a name in one; "" if the error says it itself."""
    if isinstance(error, ImportError):
        module = error.name or ""
        if module.split(".")[0] not in ("torch", "flambeau"):
            return None
        module = "torch" + module.removeprefix("flambeau").removeprefix("torch")
        text = str(error)
        wanted = text.split("'")[1] if text.startswith("cannot import name '") else None
        return f"{module}.{wanted}" if wanted else f"the module {module}"
    if isinstance(error, NotImplementedError) and not isinstance(error, AttributeError):
        return "" if _raised_inside(error) else None
    owner, name = getattr(error, "obj", None), getattr(error, "name", None)
    if name and (known := _as_torch(owner)):
        return f"{known}.{name}"
    return "" if isinstance(error, MissingName) else None


def _as_torch(owner: object) -> str | None:
    """How a program calls one of flambeau's modules or classes, or the class of tensors for one of them."""
    if isinstance(owner, ModuleType):
        full = owner.__name__
    elif isinstance(owner, type) or type(owner) is Tensor:
        found = owner if isinstance(owner, type) else Tensor
        full = f"{found.__module__}.{found.__qualname__}"
    else:
        return None
    first, _, rest = full.partition(".")
    return None if first not in ("flambeau", "torch") else f"torch.{rest}" if rest else "torch"


def _raised_inside(error: BaseException) -> bool:
    """Whether it was flambeau that raised an error, not the program."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and (at.tb_frame.f_globals.get("__name__") or "").split(".")[0] == "flambeau"


def _show(error: BaseException) -> None:
    """The traceback from the program's first line on: how it was started says nothing to its author."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None and (
            at.tb_frame.f_code.co_filename.startswith("<frozen") or at.tb_frame.f_globals.get("__name__") == __name__):
        at = at.tb_next
    traceback.print_exception(type(error), error, at)
