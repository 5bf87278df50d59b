"""docs/errors.md: its examples are run, their texts compared, and PyTorch raises the same type with words that ours have, too.

`python tests/test_errors_page.py` writes the texts anew.
"""

import contextlib
import linecache
import re
import sys
import traceback
import warnings
from pathlib import Path

import pytest
import torch

import flambeau

PAGE = Path(__file__).parent.parent / "docs" / "errors.md"
BLOCK = re.compile(r"```python error( ours)?\n(.*?)```\n```text\n(.*?)```\n", re.DOTALL)
LEFT_OUT = ("The variable in question was changed in there or anywhere later.", "Good luck!")  # ours names the line
EXAMPLES = BLOCK.findall(PAGE.read_text())
TITLES = [f"{number} {code.strip().splitlines()[-1].strip()[:40]}" for number, (_, code, _) in enumerate(EXAMPLES)]


@contextlib.contextmanager
def imported_as_torch(package):
    """Inside, `import torch` gives the package."""
    names = {"torch": package, "torch.nn": package.nn}
    before = {name: sys.modules[name] for name in names}
    sys.modules.update(names)
    try:
        yield
    finally:
        sys.modules.update(before)


def run(package, code):
    """The error that an example ends with."""
    linecache.cache["train.py"] = len(code), None, code.splitlines(keepends=True), "train.py"
    with warnings.catch_warnings(), imported_as_torch(package):
        warnings.simplefilter("ignore")
        try:
            exec(compile(code, "train.py", "exec"), {"__name__": "train"})
        except Exception as error:
            return error
        finally:
            package.autograd.set_detect_anomaly(False)
    return None


def shown(error):
    """As Python prints it; the worker's frames, which are files of this machine, are left out."""
    text = "".join(traceback.format_exception_only(error)).strip()
    lines, inside = [], False
    for line in text.splitlines():
        if line.startswith("  File ") and "train.py" not in line:
            inside = True
            lines += ["  ..."] if lines[-1] != "  ..." else []
        elif not inside or not line.startswith("    "):
            inside = False
            lines.append(line)
    return "\n".join([line for line in lines if not set(line) <= set(" ^~")])


@pytest.mark.parametrize(("ours", "code", "text"), EXAMPLES, ids=TITLES)
def test_the_page_shows_what_is_raised(ours, code, text):
    error = run(flambeau, code)
    assert error is not None, "no error"
    assert shown(error) == text.strip()


@pytest.mark.parametrize("code", [pytest.param(e[1], id=t) for t, e in zip(TITLES, EXAMPLES) if not e[0]])
def test_pytorch_raises_the_same_type_and_its_words_are_ours(code):
    theirs, ours = run(torch, code), run(flambeau, code)
    assert type(theirs) is type(ours)
    found = " ".join(str(ours).split())
    for sentence in re.split(r"(?<=[.!?])\s+|\n", str(theirs).partition("Original Traceback")[0]):
        assert sentence in LEFT_OUT or " ".join(sentence.split()) in found, f"PyTorch says {sentence!r}\nflambeau says {ours}"


def test_the_page_has_every_mistake():
    assert len(EXAMPLES) >= 25
    assert PAGE.read_text().count("```python error") == len(EXAMPLES)


if __name__ == "__main__":
    def written(match):
        return f"```python error{match[1] or ''}\n{match[2]}```\n```text\n{shown(run(flambeau, match[2]))}\n```\n"
    PAGE.write_text(BLOCK.sub(written, PAGE.read_text()))
