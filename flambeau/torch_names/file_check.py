"""`torch.testing.FileCheck`: whether pieces of text occur in a longer one, in a given order."""

from __future__ import annotations

import re
from typing import Any


class FileCheck:
    """Collects what a text must and must not contain; `run` looks.

    A piece is looked for after the end of the one before it; `check_not` is about the text between its two neighbours.
    """

    def __init__(self) -> None:
        self.wanted: list[tuple[str, str, int]] = []

    def _add(self, how: str, pattern: str, count: int = 1) -> FileCheck:
        self.wanted.append((how, pattern, count))
        return self

    def check(self, test_string: str) -> FileCheck:
        """Somewhere after what was found last."""
        return self._add("after", re.escape(test_string))

    check_dag = check_source_highlighted = check

    def check_regex(self, pattern: str) -> FileCheck:
        """As `check`, by a regular expression."""
        return self._add("after", pattern)

    def check_next(self, test_string: str) -> FileCheck:
        """On the line after what was found last."""
        return self._add("next line", re.escape(test_string))

    def check_same(self, test_string: str) -> FileCheck:
        """On the line of what was found last."""
        return self._add("same line", re.escape(test_string))

    def check_not(self, test_string: str) -> FileCheck:
        """Not before what is found next."""
        return self._add("not", re.escape(test_string))

    def check_count(self, test_string: str, count: int, exactly: bool = False) -> FileCheck:
        """So many times (exactly: and not once more after that)."""
        self._add("after", re.escape(test_string), count)
        return self.check_not(test_string) if exactly else self

    def run(self, test_file: Any) -> None:
        """Raises RuntimeError where the text is not as wanted."""
        text, at = str(test_file), 0
        absent: list[str] = []
        for how, pattern, count in self.wanted:
            if how == "not":
                absent.append(pattern)
                continue
            start = at
            for _ in range(count):
                found = re.compile(pattern).search(text, at)
                if found is None or not _placed(how, text[at:found.start()]):
                    raise RuntimeError(f"Expected to find {pattern!r} ({how}) but did not find it in:\n{text[at:]}")
                at = found.end()
            _require_absent(absent, text[start:found.start()])
            absent.clear()
        _require_absent(absent, text[at:])


def _placed(how: str, between: str) -> bool:
    """Whether the text that was skipped suits the kind of check."""
    lines = between.count("\n")
    return how == "after" or lines == (1 if how == "next line" else 0)


def _require_absent(patterns: list[str], text: str) -> None:
    for pattern in patterns:
        if re.search(pattern, text):
            raise RuntimeError(f"Expected to not find {pattern!r} but found it in:\n{text}")
