"""Counts the public names without a docstring, and those whose docstring has no example.

    PYTHONPATH=. python tools/docstrings.py            # a table by module
    PYTHONPATH=. python tools/docstrings.py nn torch   # the names, in these modules
"""

from __future__ import annotations

import sys
from typing import Any

import public_names


def text_of(value: Any) -> str:
    return (value.__doc__ or "").strip()


def without_text(module: str) -> list[str]:
    """Names that nothing is said about."""
    texts = {name: text_of(value) for name, value in public_names.public(module).items()}
    return [name for name, text in texts.items() if not text or text.startswith(">>>")]


def without_example(module: str) -> list[str]:
    return [name for name, value in public_names.public(module).items() if ">>>" not in text_of(value)]


def main() -> None:
    if len(sys.argv) > 1:
        for module in sys.argv[1:]:
            print(f"{module}, without a docstring: {' '.join(without_text(module))}\n")
            print(f"{module}, without an example: {' '.join(without_example(module))}\n")
        return
    totals = [0, 0, 0]
    print("| module | names | without a docstring | without an example |\n| --- | --- | --- | --- |")
    for module in public_names.MODULES:
        row = len(public_names.public(module)), len(without_text(module)), len(without_example(module))
        totals = [a + b for a, b in zip(totals, row)]
        print(f"| {module} | {row[0]} | {row[1]} | {row[2]} |")
    print(f"| all | {totals[0]} | {totals[1]} | {totals[2]} |")


if __name__ == "__main__":
    main()
