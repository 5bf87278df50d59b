"""Functions that report themselves (capture/rewrite.py) do what the plain ones do: results, exceptions and their lines,
and the order in which everything happens; with a witness listening and without."""

from __future__ import annotations

import itertools
import linecache
import traceback
import warnings

import pytest
from snippets import PRELUDE, SNIPPETS
from snippets_refused import UNSUPPORTED, WRONG

from flambeau.compiler.capture.rewrite import REWRITTEN, Unsupported, rewritten
from flambeau.compiler.capture.witness import HELPERS, Witness

numbers = itertools.count()


@pytest.fixture
def load(request):
    """Makes a module of a text, as a file would; gives its names."""
    files = []

    def load(source, sourced=True):
        file = f"<snippet {next(numbers)}>"
        files.append(file)
        if sourced:
            linecache.cache[file] = len(source), None, source.splitlines(True), file
        names = {"__name__": "snippet"}
        exec(compile(source, file, "exec", dont_inherit=True), names)
        return names
    yield load
    for file in files:
        linecache.cache.pop(file, None)


def plain(name, load):
    names = load(PRELUDE + SNIPPETS[name])
    return outcome(names, names["f"])


def outcome(names, function):
    """The result or the exception with the lines that it went through, and what was noted on the way."""
    names["log"].clear()
    file = names["f"].__code__.co_filename
    try:
        made = function()
        if hasattr(made, "send"):  # a generator
            made = list(made)
        result = repr(made)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        result = type(error).__name__, str(error), [(x.name, x.lineno, x.line) for x in frames if x.filename == file]
    return result, repr(names["log"])


@pytest.mark.parametrize("name", SNIPPETS)
def test_does_the_same(name, load):
    expected = plain(name, load)
    names = load(PRELUDE + SNIPPETS[name])
    f = names["f"]
    new = rewritten(getattr(f, "__func__", f), HELPERS)
    assert new.__code__ in REWRITTEN and (new.__name__, new.__qualname__) == (f.__name__, f.__qualname__)
    assert outcome(names, new.__get__(f.__self__) if hasattr(f, "__self__") else new) == expected


@pytest.mark.parametrize("name", SNIPPETS)
def test_does_the_same_with_a_witness(name, load):
    expected = plain(name, load)
    names = load(PRELUDE + SNIPPETS[name])
    with Witness(names["f"], [], [], {}) as witness:
        assert outcome(names, witness.call(names["f"])) == expected


MODULE = """import functools, itertools, math, operator
log = []
class A:
    def m(self):
        return 1
def f(x=1):
"""


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("line", WRONG)
def test_says_the_same_about_what_is_wrong(line, load):
    source = MODULE + f"    {line}\n" if line.startswith(("assert", "raise", "del ")) or " = " in line else (
        MODULE + f"    return {line}\n")
    names = load(source)
    expected = outcome(names, names["f"])
    assert isinstance(expected[0], tuple), "nothing is wrong here"
    with Witness(names["f"], [], [], {}) as witness:
        assert outcome(names, witness.call(names["f"])) == expected


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_cannot_be_rewritten(name, load):
    source, why = UNSUPPORTED[name]
    names = load("log = type('Log', (), {})\n" + source)
    for _ in range(2):  # the answer is remembered
        with pytest.raises(Unsupported, match=why):
            rewritten(names["f"], HELPERS)


def test_code_without_a_source(load):
    names = load("def f():\n    return 1\n", sourced=False)
    with pytest.raises(Unsupported, match="not to be had"):
        rewritten(names["f"], HELPERS)
    space = {}
    exec("def f():\n    return 1\n", space)
    with pytest.raises(Unsupported):
        rewritten(space["f"], HELPERS)


@pytest.mark.parametrize("now", ["def f():\n    return 2\n", "def g():\n    return 1\n", "\ndef f():\n    return 1\n",
                                 "def f(\n", ""])
def test_a_source_that_was_edited_meanwhile(load, now):
    names = load("def f():\n    return 1\n")
    linecache.cache[names["f"].__code__.co_filename] = len(now), None, now.splitlines(True), names["f"].__code__.co_filename
    with pytest.raises(Unsupported, match="not what it was|not to be had"):
        rewritten(names["f"], HELPERS)


def test_a_file_that_is_edited_on_disk(tmp_path, monkeypatch):
    import importlib
    (tmp_path / "edited.py").write_text("def f(x):\n    return x * 2\n\ndef g(x):\n    return x * 5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("edited")
    assert rewritten(module.g, HELPERS)(3) == 15
    (tmp_path / "edited.py").write_text("def f(x):\n    return x * 3 # longer\n\ndef g(x):\n    return x * 5\n")
    linecache.checkcache()
    with pytest.raises(Unsupported, match="not what it was"):
        rewritten(module.f, HELPERS)


def test_what_belongs_to_the_function_is_kept(load):
    names = load("def make(k):\n    def f(x, y=[1], *, z={'a': 2}):\n        return x, y, z, k, log\n    return f\n"
                 "log = 'global'\nf, g = make(3), make(4)\n")
    f, g = [rewritten(names[n], HELPERS) for n in "fg"]
    assert f.__defaults__ is names["f"].__defaults__ and f.__kwdefaults__ is names["f"].__kwdefaults__
    assert f.__globals__ is names and f.__code__ is g.__code__
    assert f(1) == (1, [1], {"a": 2}, 3, "global") and g(1)[3] == 4
    names["f"].__closure__[0].cell_contents, names["log"] = 9, "changed"
    assert f(1)[3:] == (9, "changed") and g(1)[3:] == (4, "changed")


@pytest.mark.filterwarnings("error::SyntaxWarning", "error::DeprecationWarning")
def test_python_does_not_repeat_what_it_thinks_of_a_file(load):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = load('def f():\n    assert (1, "always")\n    return "\\d" is "\\d", 1 is 1\n')
    filters = list(warnings.filters)
    assert rewritten(names["f"], HELPERS)() == names["f"]() and warnings.filters == filters
