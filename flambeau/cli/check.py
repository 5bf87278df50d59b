"""`flambeau check program.py`: which names of torch a program and its own modules use that flambeau lacks; nothing is run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import names
from .reading import Import, Reader

_ABOUT = """Reads a program, and the modules beside it that it imports, without running them, and says which names of
torch they use that are
  missing  flambeau does not have them: an AttributeError or ImportError
  refused  they are there and raise NotImplementedError when they are used
  partial  they are there and do less than in PyTorch, as the line says
Names that the program itself is prepared to miss (in try, behind hasattr) are not counted.
Methods are checked only where the object is a tensor for certain, so a clean answer is no proof."""


def main(arguments: list[str]) -> int:
    """Exit status: 0 all there; 1 something is missing or refused; 2 a file could not be read."""
    parser = argparse.ArgumentParser("flambeau check", description=_ABOUT, epilog="exit status: 0 all is there (or partial); "
                                     "1 something is missing or refused; 2 a file could not be read",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="+", type=Path, help="a Python file, or a folder of them")
    parser.add_argument("--all", action="store_true", help="list the names that are there, too")
    options = parser.parse_args(arguments)
    if absent := [str(path) for path in options.program if not path.exists()]:
        print(f"flambeau check: there is no file {absent[0]!r}", file=sys.stderr)
        return 2
    try:
        files = _reachable(_given(options.program))
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError) as error:
        print(f"flambeau check: {error}", file=sys.stderr)
        return 2
    counts = dict.fromkeys((names.THERE, names.PARTIAL, names.REFUSED, names.MISSING), 0)
    seen: set[str] = set()
    for path, reader in files.items():
        for name, line, status in findings(reader):
            if status.word != names.THERE or options.all:
                print(f"{_short(path)}:{line}: {name}  {status.word}" + (f": {status.reason}" if status.reason else ""))
            if name not in seen:
                seen.add(name)
                counts[status.word] += 1
    return _summary(len(files), counts)


def findings(reader: Reader) -> list[tuple[str, int, names.Status]]:
    """(name, line, status) of all that a file uses, in the order of its lines, less what is missing and may be."""
    found = []
    for name, line, guarded in dict.fromkeys(sorted(reader.uses, key=lambda use: use.line)):
        status = names.status(name)
        if not (guarded and status.word in (names.MISSING, names.REFUSED)):
            found.append((name, line, status))
    return found


def _summary(files: int, counts: dict[str, int]) -> int:
    total = sum(counts.values())
    print(f"{files} file{'s' * (files != 1)}, {total} name{'s' * (total != 1)} of torch: "
          + ", ".join(f"{count} {word}" for word, count in counts.items()))
    bad = counts[names.MISSING] + counts[names.REFUSED]
    if bad:
        print("What flambeau has, and what it leaves out and why, is listed in docs/coverage.md.")
    return 1 if bad else 0


def _given(paths: list[Path]) -> list[Path]:
    files = []
    for path in paths:
        files += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"there is no Python file in {paths[0]}")
    return files


def _reachable(start: list[Path]) -> dict[Path, Reader]:
    """The files and, as far as they lie beside them, the modules that they import."""
    todo, files = [(path.resolve(), path.resolve().parent) for path in start], {}
    while todo:
        path, root = todo.pop(0)
        if path not in files:
            try:
                files[path] = reader = Reader(path.read_text(encoding="utf-8"), path)
            except SyntaxError as error:
                raise SyntaxError(f"{_short(path)}:{error.lineno}: this is no Python: {error.msg}") from None
            todo += [(found, root) for wanted in reader.imports for found in _files(wanted, path, root)]
    return files


def _files(wanted: Import, path: Path, root: Path) -> list[Path]:
    """The files that an import runs: the module's, and those of the packages it is in."""
    base = path.parents[wanted.level - 1] if 0 < wanted.level <= len(path.parents) else root
    found, at = [], base
    for part in filter(None, wanted.module.split(".")):
        at = at / part
        found += [file for file in (at / "__init__.py", at.with_name(part + ".py")) if file.is_file()]
    return found


def _short(path: Path) -> str:
    """A path as a reader would write it: from here, where that is shorter."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
