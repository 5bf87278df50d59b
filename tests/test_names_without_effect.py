"""A public function that does nothing says so in the first line of its docstring; docs/coverage.md counts those apart."""

import dis
import importlib.util
import inspect
import pathlib

import pytest

import flambeau

_spec = importlib.util.spec_from_file_location("coverage_tool", pathlib.Path(__file__).parents[1] / "tools" / "coverage.py")
coverage = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(coverage)


def has_no_body(function) -> bool:
    """Whether a function returns None or an argument, and does nothing before."""
    kept = [i for i in dis.get_instructions(function) if i.opname not in ("RESUME", "NOP", "RETURN_VALUE") and not (
        i.opname == "RETURN_CONST" and i.argval is None)]
    return not kept or (len(kept) == 1 and (kept[0].opname.startswith("LOAD_FAST") or kept[0].argrepr == "None"))


def functions(module):
    space = coverage.find(flambeau, "" if module == "." else module)
    for name in dir(space):
        try:
            value = getattr(space, name)
        except (AttributeError, NotImplementedError):
            continue
        value = inspect.unwrap(value) if inspect.isfunction(value) else value
        if not name.startswith("_") and inspect.isfunction(value) and (value.__module__ or "").startswith("flambeau"):
            yield name, value


def test_a_function_without_a_body_is_recognised():
    assert has_no_body(lambda x: None) and has_no_body(lambda x: x)
    assert not has_no_body(lambda x: x + 1) and not has_no_body(lambda x: 1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("module", [*coverage.MODULES, "mps", "mtia", "xpu", "cpu"])
def test_functions_without_effect_say_so(module):
    silent = [name for name, function in functions(module)
              if has_no_body(function) and coverage.kind(function) == "there" and name not in ANSWERS]
    assert not silent, f"{module}: no body, and no docstring that begins with 'Does nothing': {silent}"


# None, or the argument, is the answer to what these ask.
ANSWERS = {"current_accelerator", "get_global_rank", "get_group_rank"}
