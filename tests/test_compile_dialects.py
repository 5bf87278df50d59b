"""What knows which language: lowerings, passes and plans are data, dialects print them."""

from __future__ import annotations

import ast
import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from lowered import value_of

import flambeau.compiler
from flambeau import native
from flambeau.backends.cpu.pointwise import loops as pointwise
from flambeau.backends.cpu.table import KERNELS
from flambeau.compiler.ir.parts import Number, Op, Value
from flambeau.compiler.passes.fusion import grouped, pointwise_step
from flambeau.compiler.render.dialects import cuda
from flambeau.compiler.render.nests import Nest
from flambeau.native import toolchain

HERE = Path(__file__).parent
HOME = Path(flambeau.compiler.__file__).parent
FILES = sorted(p.relative_to(HOME).as_posix() for p in HOME.rglob("*.py"))
# The program itself: it knows addresses, shapes and kinds of elements, but no arrays. Who captures and runs it does.
PROGRAM = ("ir/", "passes/", "render/", "run/plan.py", "capture/symbolic.py")
C = re.compile(r"""\bfl_\w*\( | \#(pragma|include|define)\b | \b(memcpy|memset|sizeof|typedef|goto|void)\s*[(*;\s]
                   | \b(const\s+)?(long|double|float|int|char)\s+\*?\w+\s*(=|\[|;|\)) | \bfor\s*\( | \bif\s*\(
                   | \((\w+\s)?\w+\s\*\) | [\w)\]];$ | ->\w+;""", re.VERBOSE)


def texts(path: str) -> list[str]:
    """The strings of a file that are not documentation."""
    tree = ast.parse((HOME / path).read_text())
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [node.value for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told]


def imported(path: str) -> set[str]:
    tree = ast.parse((HOME / path).read_text())
    names = [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("path", FILES)
def test_only_dialects_know_c(path):
    found = [t for t in texts(path) if C.search(t)]
    assert bool(found) == (path.startswith("render/dialects/") and not path.endswith("__init__.py")), found


@pytest.mark.parametrize("path", [p for p in FILES if p.startswith(PROGRAM)])
def test_the_program_knows_no_numpy(path):
    assert not {"numpy", "ml_dtypes"} & imported(path)


def test_every_part_of_the_program_is_there():
    assert all([any([path.startswith(part) for path in FILES]) for part in PROGRAM])


# ---------------------------------------------------------------------------------------------------- CUDA C on the host
def nest_of(*ops):
    """The one nest that the operations make; everything reaches memory."""
    (loop,) = grouped(list(ops), lambda op: None)
    return Nest(loop, {w.storage.id for op in ops for w in op.writes}, False)


def emulated(nests, tmp_path, numbers=(), blocks=3, threads=64):
    """Runs the CUDA kernels of nests by the host's C++ compiler, each on the memory of the arrays beside it."""
    made = [cuda.kernel(nest, f"kernel{i}") for i, (nest, _) in enumerate(nests)]
    calls = [f"HOST_KERNEL(kernel{i})\n" for i in range(len(made))]
    source, library = tmp_path / "kernels.cpp", tmp_path / "kernels.so"
    source.write_text(f'#include "{HERE / "cuda_on_host.h"}"\n{cuda.HEADER}' + "".join([k.text for k in made] + calls))
    subprocess.run(["g++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", f"-I{toolchain.HERE}", str(source), "-o",
                    str(library)], check=True)
    loaded, counted = ctypes.CDLL(str(library)), (ctypes.c_double * (len(numbers) + 1))(*numbers)
    for i, (k, (_, held)) in enumerate(zip(made, nests)):
        places = [(a.storage.id, a.offset) if a.__class__ is Value else (a.id, 0) for a in k.arguments]
        values = [ctypes.addressof(counted), *[held[s].ctypes.data + offset for s, offset in places]]
        cells = (ctypes.c_void_p * len(values))(*values)  # the parameters, and where each of them lies
        parameters = (ctypes.c_void_p * len(values))(*[ctypes.addressof(cells) + 8 * j for j in range(len(values))])
        getattr(loaded, f"run_kernel{i}")(parameters, blocks, threads)


needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to build CUDA kernels for the host")


@needs_gxx
def test_every_function_in_a_kernel(tmp_path):
    """All pointwise kernels of one argument, in both floating dtypes."""
    held, nests, wanted = [], [], []
    x = np.concatenate([np.random.default_rng(0).normal(size=500), [0.0, -0.0, np.inf, -np.inf, np.nan, 30.0, -30.0]])
    for name in sorted(KERNELS.keys() & pointwise.kernels()):  # other tests define operations, and take them away again
        for dtype in (np.float32, np.float64):
            given = x.astype(dtype)
            with np.errstate(all="ignore"), native.off():
                try:
                    expected = KERNELS[name](given)
                except TypeError:  # takes more
                    continue
            out = np.zeros(expected.shape, expected.dtype)
            op = Op(name, [value_of(given, held)], [value_of(out, held)], [], None)
            if pointwise_step(op) is not None:
                nests.append((nest_of(op), held))
                wanted.append((name, out, expected))
    assert len(nests) > 70
    emulated(nests, tmp_path)
    for name, out, expected in wanted:
        precision = 2e-6 if out.dtype == np.float32 else 1e-13
        np.testing.assert_allclose(out, expected, precision, precision, err_msg=name)


def cases():
    """Nests with what they are to leave in arrays: (arrays, operations, expected)."""
    rng = np.random.default_rng(1)

    def case(given, results, build):
        held = []
        values, outs = ([value_of(a, held) for a in some] for some in (given, results))
        return held, results, build(*values, *outs)

    def op(kernel, args, *outs):
        return Op(kernel, args, list(outs), [], None)

    x, y = rng.normal(size=(5, 1, 7)).astype(np.float32), rng.normal(size=(3, 1)).astype(np.float32)
    z, f = np.zeros((5, 3, 7), np.float32), np.float32
    yield "broadcast", *case([x, y], [z, z.copy()], lambda a, b, t, o: [op("mul", [a, b], t), op("tanh", [t], o)]), [
        x * y, np.tanh(x * y)]
    m = rng.normal(size=(9, 8))
    turned, some = m.T, m[1:9:2, ::3].T
    yield "turned", *case([turned], [np.zeros((8, 9))], lambda a, o: [op("neg", [a], o)]), [-turned]
    yield "windows", *case([some], [np.zeros((3, 8))[:, ::2]], lambda a, o: [op("square", [a], o)]), [some ** 2]
    i, j = rng.integers(-9, 9, (4, 5)), rng.integers(-9, 9, 5)
    yield "whole numbers", *case([i, j], [np.zeros((4, 5), bool), np.zeros((4, 5), int)], lambda a, b, c, o: [
        op("gt", [a, b], c), op("where", [c, a, b], o)]), [i > j, np.where(i > j, i, j)]
    rows = rng.normal(size=(6, 1000)).astype(f)
    for name, args, wanted in (("sum", [None], rows.sum(dtype=float)), ("sum", [(1,)], rows.sum(1, dtype=float)),
                               ("sum", [(0,)], rows.sum(0)), ("mean", [(1,)], rows.mean(1, dtype=float)),
                               ("amax", [(1,)], rows.max(1)), ("vector_norm", [2, (1,)], np.sqrt((rows ** 2.0).sum(1)))):
        out = np.zeros(np.shape(wanted), f)
        yield f"{name} {args}", *case([rows], [out], lambda a, o, name=name, args=args: [op(name, [a, *args], o)]), [wanted]
    lost = rows.copy()
    lost[2, 77] = np.nan
    yield "nan wins", *case([lost], [np.zeros(6, f)], lambda a, o: [op("amax", [a, (1,)], o)]), [lost.max(1)]
    both = rows * rows
    yield "fused", *case([rows], [both * 0, np.zeros(6, f)], lambda a, t, o: [
        op("mul", [a, a], t), op("sum", [t, (1,)], o)]), [both, both.sum(1, dtype=float)]
    count = np.array(3.0, f)
    yield "numbers", *case([rows, count], [both * 0, both * 0], lambda a, c, t, o: [
        op("mul", [a, Number(("*", ("input", 1), ("number", 2.0)))], t), op("div", [t, Number(("load", c))], o)]), [
        rows * 14.0, rows * 14.0 / 3.0]


@needs_gxx
def test_nests_as_cuda_kernels(tmp_path):
    """Broadcasting, strides, dtypes, totals over all, along and across memory, run-time numbers."""
    made = list(cases())
    emulated([(nest_of(*ops), held) for _, held, _, ops, _ in made], tmp_path, numbers=(0.0, 7.0))
    for name, _, results, _, wanted in made:
        for result, expected in zip(results, wanted, strict=True):
            np.testing.assert_allclose(result, expected, 2e-6, 2e-6, err_msg=name)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_nvcc_takes_the_kernels(tmp_path):
    texts = [cuda.kernel(nest_of(*ops), f"kernel{i}").text for i, (_, _, _, ops, _) in enumerate(cases())]
    source = tmp_path / "kernels.cu"
    source.write_text(cuda.HEADER + "".join(texts))
    subprocess.run(["nvcc", "-w", "-arch=sm_80", "-cubin", f"-I{toolchain.HERE}", str(source), "-o", str(tmp_path / "made")],
                   check=True)
