"""A fact about an operation is in its row or nowhere: no file outside the table keeps a list of operations by name."""

import ast
import pathlib

import pytest

import flambeau
import flambeau.compiler.render.lower
import flambeau.nn.functional
from flambeau.backends.cpu.table import KERNELS
from flambeau.ops.core.export import FUNCTIONS
from flambeau.ops.core.row import ROWS

vars(flambeau.nn.functional)  # looking at all of it imports what waits to be asked for
HOME = pathlib.Path(flambeau.__file__).parent
FEW = 4  # names up to which a collection is a case distinction in the code, and no list
# Collections of names that say nothing about operations, or that cannot be in a row.
KNOWN = {
    "__init__.py": "where names live that are imported on demand",
    "nn/functional/__init__.py": "where names live that are imported on demand",
    "torch_names/functional.py": "the names of a namespace of PyTorch's",
    "tensors/return_types.py": "the names of structures", "torch_names/special.py": "the names of a namespace of PyTorch's",
    "ops/rare.py": "functions that PyTorch has removed", "tensors/methods.py": "questions about a tensor",
    **dict.fromkeys(("torch_names/masked_tensors.py", "torch_names/quantized_tensors.py", "torch_names/sparse/arithmetic.py"),
                    "what a class of tensors does with functions of its own"),
    "ops/linalg/__init__.py": "where functions live whose files are imported on demand",
    **dict.fromkeys(("ops/pointwise/special.py", "ops/quantized.py"), "rows in a loop: each name is defined here"),
    "torch_names/losses_by_number.py": "the values of an argument", "ops/index/scatter.py": "the values of an argument",
    "backends/cpu/linalg/matmul.py": "kernels whose files are imported on demand: each name is entered here",
    "backends/cpu/linalg/base.py": "functions of LAPACK's", "backends/cpu/index/scatter.py": "the values of an argument",
    "compiler/capture/backend.py": "functions of a backend", "compiler/follow/following.py": "functions of a backend",
    "compiler/follow/promises.py": "methods of NumPy's arrays",
    "compiler/capture/builtins_known.py": "Python's operators", "compiler/passes/fusion.py": "functions of C",
    "backends/cpu/pointwise/loops.py": "functions of C", "fx/proxy.py": "Python's operators",
    "backends/cpu/layers/losses.py": "the numbers that losses.c gives its functions", "nn/init.py": "the values of an argument",
    "amp/on_cuda.py": "the lists that PyTorch documents for autocast on CUDA: one device's, so no fact of the operation",
    **dict.fromkeys(("ops/dispatch/derivatives.py", "ops/dispatch/lowering_layers.py", "ops/dispatch/schemas.py"),
                    "what PyTorch's dispatcher calls, or makes of, a function"),
    "utils/flop_counter.py": "how many multiplications: what this file is about",
}


def words_of(node):
    """The names in a collection of strings, the keys of a dict, or a string of names."""
    if isinstance(node, (ast.Set, ast.Tuple, ast.List)):
        found = [e.value for e in node.elts if isinstance(e, ast.Constant)]
    elif isinstance(node, ast.Dict):
        found = [k.value for k in node.keys if isinstance(k, ast.Constant)]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        found = node.value.split()
    else:
        return []
    return found if all(isinstance(w, str) and w.isidentifier() for w in found) else []


def exported(tree):
    """The nodes of `__all__`, which is a list of names by right."""
    return {id(n) for s in tree.body if isinstance(s, (ast.Assign, ast.AugAssign)) and
            "__all__" in [getattr(t, "id", "") for t in getattr(s, "targets", [getattr(s, "target", None)])]
            for n in ast.walk(s)}


def lists_in(text):
    tree = ast.parse(text)
    skip, operations = exported(tree), {*ROWS, *FUNCTIONS, *KERNELS}
    for node in ast.walk(tree):
        words = [] if id(node) in skip else words_of(node)
        known = [w for w in words if w in operations]
        if len(known) > FEW and len(known) >= len(words) / 2:
            yield node.lineno, known


@pytest.mark.parametrize("path", sorted(HOME.rglob("*.py")), ids=lambda p: p.relative_to(HOME).as_posix())
def test_no_lists_of_operations(path):
    found = list(lists_in(path.read_text()))
    name = path.relative_to(HOME).as_posix()
    if name in KNOWN:
        assert found, f"{name} has no such list any more: take it out of KNOWN"
        return
    assert not found, f"facts about these operations belong into their rows: {found}"


def test_it_finds_lists():
    assert list(lists_in('_CHEAP = frozenset("add sub mul neg exp".split())')) == [(1, ["add", "sub", "mul", "neg", "exp"])]
    assert list(lists_in('_WRITES = {"add": 1, "sub": 2, "mul": 3, "neg": 4, "exp": 5}'))
    assert not list(lists_in('__all__ = ["add", "sub", "mul", "neg", "exp"]'))
