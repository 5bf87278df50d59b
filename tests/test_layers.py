"""The layers: array code only in backends/, native/ and compiler/, imports point down, files stay short."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "flambeau"
ARRAY_LIBRARIES = {"numpy", "cupy", "scipy", "ml_dtypes"}
INTEROP = {"interop.py", "nccl.py", "testing.py"}
FILES = sorted(p for p in PACKAGE.rglob("*.py"))
# Native code works on the memory of arrays: native/ (whose kernels backends/cpu calls)
# and compiler/ (which records kernel calls on arrays and plans their memory) handle arrays as backends/ does.
ARRAY_CODE = {"backends", "native", "compiler"}


def imported(path):
    """(module, line) of every absolute import in a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").partition(".")[0], node.lineno


def test_array_libraries_are_imported_by_array_code_only():
    above = [p for p in FILES if p.relative_to(PACKAGE).parts[0] not in ARRAY_CODE and p.name not in INTEROP]
    assert len(above) > 20
    found = [f"{p.relative_to(PACKAGE)}:{line} imports {name}" for p in above for name, line in imported(p)
             if name in ARRAY_LIBRARIES]
    assert not found


def test_nothing_imports_torch():
    assert not [f"{p}:{line}" for p in FILES for name, line in imported(p) if name == "torch"]


@pytest.mark.parametrize("module", ["numpy.random", "numpy.fft", "concurrent.futures", "inspect",
                                    "flambeau.autograd.gradcheck"])
def test_import_leaves_heavy_parts_for_later(module):
    code = f"import sys, flambeau; sys.exit({module!r} in sys.modules)"
    bare = f"import sys, numpy; sys.exit({module!r} in sys.modules)"
    if subprocess.run([sys.executable, "-c", bare]).returncode:
        pytest.skip(f"numpy itself imports {module}")
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
