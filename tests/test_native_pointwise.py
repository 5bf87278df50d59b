"""Every pointwise kernel's C expression against its NumPy kernel, and the loops around it over layouts and threads."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from compare import Tolerance, same

import flambeau
from flambeau.backends.cpu.parallel import copy_into
from flambeau.backends.cpu.pointwise import loops as pointwise
from flambeau.backends.cpu.table import KERNELS
from flambeau.native import library, off, toolchain

pytestmark = pytest.mark.skipif(toolchain.compiler() is None, reason="no C compiler")
NAMES = sorted(pointwise.kernels())
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, -3.0, 6.0, 20.0, 21.0, -21.0, 88.0, -88.0, 1e-30, np.inf, -np.inf, np.nan]
NUMBERS = {"threshold": (0.5, -2.0), "hardshrink": (0.5,), "softshrink": (0.5,), "elu": (1.5, 1.25, 0.75), "celu": (1.5,),
           "leaky_relu": (0.1,), "softplus": (1.5, 20.0), "gelu": ("none",), "gelu_backward": ("none",),
           "leaky_relu_backward": (0.1,), "hardtanh_backward": (-1.0, 1.0), "elu_backward": (1.5, 1.25, 0.75),
           "softplus_backward": (1.5, 20.0), "threshold_backward": (0.5,), "add_scaled": (2.0,), "sub_scaled": (2.0,),
           "addcmul": (0.5,), "addcdiv": (0.5,), "div_floor": ("floor",), "div_trunc": ("trunc",), "round_decimals": (2,),
           "nan_to_num": (None, 5.0, None), "isclose": (1e-5, 1e-8, True), "logit": (None,), "clamp_within": (-0.5, 2.0)}
CANCELS = {"gelu", "gelu_backward", "ndtr", "logaddexp", "mish_backward"}  # their steps lose digits where the result is small
LOOSE = {"lgamma": 40, "pow": 8, "logaddexp2": 8, "erfc": 64, "ndtr": 64, "sinc": 64, "round_decimals": 4,
         "log_sigmoid": 8, "xlogy": 8, "entr": 8, "ldexp": 8}


def floats(kind: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = np.concatenate([rng.normal(size=61) * 2, rng.random(40), rng.normal(size=20) * 30])
    rng.shuffle(values)
    pairs = np.repeat(SPECIAL, len(SPECIAL)) if seed == 0 else np.tile(SPECIAL, len(SPECIAL)) if seed == 1 else np.resize(
        SPECIAL[::-1], len(SPECIAL) ** 2)
    return np.concatenate([values, pairs]).astype(kind)


def arguments(name: str, kind: str) -> tuple:
    count = len(pointwise.expression(name).args)
    extra = NUMBERS.get(name, ())
    if np.dtype(kind).kind == "f":
        arrays = [floats(kind, i) for i in range(count - len(extra))]
    else:
        rng = np.random.default_rng(3)
        low, high = (0, 2) if kind == "bool" else (0, 100) if kind == "uint8" else (-100, 100)
        arrays = [rng.integers(low, high, 321).astype(kind) for _ in range(count - len(extra))]
        extra = tuple(int(x) for x in extra)
    if name == "gelu_backward":  # an infinite gradient would tell the last denormal of a slope from zero
        arrays[0] = np.where(np.isinf(arrays[0]), 1, arrays[0]).astype(kind)
    if name == "where":
        arrays[0] = np.random.default_rng(5).random(arrays[1].size) < 0.5
    return (*arrays, *extra)


def expression_agrees(name: str, made: np.ndarray, wanted: np.ndarray, first: np.ndarray) -> None:
    """Asserts that a loop gives what NumPy gives, to a few units in the last place and near zero a few smallest numbers."""
    ulps = LOOSE.get(name, 8)
    if name in CANCELS and wanted.dtype.kind == "f":  # in terms of what was multiplied
        scale = np.maximum(1, np.abs(np.nan_to_num(first)))
        same(wanted / scale, made / scale, lambda dtype: Tolerance(ulps * np.finfo(dtype).eps, 4 * np.finfo(dtype).eps), name)
    else:
        same(wanted, made, lambda dtype: Tolerance(ulps * np.finfo(dtype).eps, 4 * np.finfo(dtype).tiny), name)


def _plain_loops() -> dict:
    """One library with a plain loop per expression and dtype, as the compiler would write it."""
    source, made = ['#include "vmath.h"'], {}
    for name in NAMES:
        for kind, suffix in (*((str(d), s) for d, s in pointwise.SUFFIXES.items()),):
            if ("b" if kind == "bool" else np.dtype(kind).kind.replace("u", "i")) not in pointwise.expression(name).kinds:
                continue
            args = arguments(name, kind)
            e = pointwise.expression(name, args)
            types = [pointwise.C_TYPES[pointwise.SUFFIXES[a.dtype]] if isinstance(a, np.ndarray) else None for a in args]
            names = {x: f"p{x}[i]" if t else f"({pointwise.C_TYPES[suffix]})({v + 0 if suffix[0] == 'f' else int(v)})"
                     for x, t, v in zip(e.args, types, args) if t or not isinstance(v, (str, type(None)))}
            result = "uint8_t" if pointwise.result_is_bool(name) else pointwise.C_TYPES[suffix]
            parameters = ", ".join([f"{result} *o", *[f"const {t} *p{x}" for x, t in zip(e.args, types) if t], "long n"])
            source.append(f"void k_{name}_{suffix}({parameters}) {{ for (long i = 0; i < n; i++) "
                          f"o[i] = {pointwise.to_c(e.c, suffix, names)}; }}")
            made[name, kind] = f"k_{name}_{suffix}"
    library("runtime")
    handle = ctypes.CDLL(str(toolchain.build("\n".join(source), "expressions", ("-O1",))))
    return {key: getattr(handle, function) for key, function in made.items()}


@pytest.fixture(scope="module")
def loops():
    return _plain_loops()


@pytest.mark.parametrize("name", NAMES)
def test_expression_gives_what_the_kernel_gives(name, loops):
    for (owner, kind), function in loops.items():
        if owner != name:
            continue
        args = arguments(name, kind)
        with off():
            wanted = np.asarray(KERNELS[name](*args))
        arrays = [a for a in args if isinstance(a, np.ndarray)]
        made = np.empty(arrays[-1].shape, wanted.dtype)
        function(*[ctypes.c_void_p(a.ctypes.data) for a in (made, *arrays)], ctypes.c_long(made.size))
        expression_agrees(name, made, wanted, arrays[0])


# ---------------------------------------------------------------------------------------------------- the eager loops
def _layouts(kind: str, side: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(7)
    x, y = (rng.normal(size=(side, side + 3)) * 5 for _ in range(2))
    x, y = x.astype(kind), y.astype(kind)
    cube = np.ascontiguousarray(x[:, :side].reshape(side, side // 4, 4))
    return [(x, y), (x, y[0]), (x, y[:, :1]), (x[:, ::2], y[:, ::2]), (x.T, y.T), (x, y[0, :1]), (x[:, :1], y[0]),
            (x, np.asarray(y[0, 0])), (np.asarray(x[0, 0]), y), (x[::-1], y[:, ::-1]), (x[:side, :side], y.T[:side, :side]),
            (cube, cube[:, :1]), (cube.transpose(2, 0, 1), cube[0, 0][:, None, None]), (x[:0], y[:0]), (x, y[:, 3:4])]


@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "uint8"])
@pytest.mark.parametrize("name", ["add", "mul", "maximum", "lt"])
def test_layouts(name, kind, threads):
    for side in (8, 300):
        for x, y in _layouts(kind, side):
            with off():
                wanted = np.asarray(KERNELS[name](x, y))
            made = pointwise.run(name, x, y)
            np.testing.assert_array_equal(made, wanted)
            assert made.dtype == wanted.dtype
            assert made.strides == wanted.strides or made.size < 2 or 1 in made.shape


def test_in_place_and_given_results(threads):
    for side in (9, 400):
        x, y = (np.random.default_rng(i).normal(size=(side, side)).astype(np.float32) for i in range(2))
        wanted = x + y
        assert pointwise.run("add", x, y, out=x) is x
        np.testing.assert_array_equal(x, wanted)
        out = np.zeros((side, 2 * side), np.float32)
        assert pointwise.run("mul", x, y[0], out=out[:, ::2]) is not None
        np.testing.assert_array_equal(out[:, ::2], x * y[0])
        assert not out[:, 1::2].any()
        assert pointwise.run("add", x, y, out=np.empty((side, side))) is None      # of another dtype
        assert pointwise.run("add", x, y, out=np.empty(side, np.float32)) is None  # of another shape


def test_choice_and_numbers(threads):
    rng = np.random.default_rng(2)
    x, y = (rng.normal(size=(300, 310)).astype(np.float32) for _ in range(2))
    c = rng.random((300, 310)) < 0.5
    for args in ((c, x, y), (c[0], x, y), (c, x, np.asarray(2, np.float32)), (c, x[:, :1], y[0]), (c.T, x.T, y.T),
                 (c, np.asarray(1, np.float32), np.asarray(2, np.float32))):
        np.testing.assert_array_equal(pointwise.run("where", *args), np.where(*args))
    np.testing.assert_array_equal(pointwise.run("clamp", x, None, 0.5), np.minimum(x, np.float32(0.5)))
    np.testing.assert_array_equal(pointwise.run("clamp", x, y[0], None), np.maximum(x, y[0]))
    assert pointwise.run("add", x, y.astype(np.float64)) is None
    assert pointwise.run("add", x.astype(np.complex64), x.astype(np.complex64)) is None
    assert pointwise.run("add", x.astype(np.int32), 0.5) is None


def test_eager_operations_are_the_same_with_and_without(threads):
    F = flambeau.nn.functional
    generator = np.random.default_rng(11)
    values = [flambeau.from_numpy(generator.normal(size=(300, 301)).astype(np.float32)) for _ in range(2)]

    def results() -> list:
        x, y = (v.clone().requires_grad_() for v in values)
        made = [x + y, x * 2.5, flambeau.relu(x), flambeau.sigmoid(x), x.clamp(-1, 1), flambeau.where(x > 0, x, y), F.gelu(x),
                F.gelu(x, approximate="tanh"), F.silu(x), F.elu(x), F.softplus(x), F.mish(x), F.leaky_relu(x), F.hardswish(x),
                flambeau.addcmul(x, x, y, value=0.5), flambeau.lerp(x, y, 0.3), flambeau.tanh(x), x / (y * y + 1), x.exp()]
        sum((m * m).mean() for m in made).backward()
        z = values[0].clone()
        z.add_(values[1], alpha=0.5).mul_(2.0).relu_()
        return [*[m.detach().numpy() for m in made], x.grad.numpy(), y.grad.numpy(), z.numpy()]

    native = results()
    with off():
        plain = results()
    for made, wanted in zip(native, plain):
        np.testing.assert_allclose(made, wanted, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "uint8", "bool", "complex64"])
def test_copies(kind, count):
    before = flambeau.get_num_threads()
    flambeau.set_num_threads(count)
    try:
        x = (np.random.default_rng(1).normal(size=(300, 301)) * 50).astype(kind)
        rows, one = np.broadcast_to(x[0], (300, 301)), np.broadcast_to(x[0, 0], (90_001,))
        for view in (x, x[::-1], x[:, ::-1], x[::2, 1:], x.T, rows, one):
            out = np.empty(view.shape, kind)
            copy_into(out, view)
            np.testing.assert_array_equal(out, view)
    finally:
        flambeau.set_num_threads(before)


def test_large_results_start_on_a_cache_line():
    for size in (70_000, 1_000_003):
        made = flambeau.ones(size) + 1
        assert made.data_ptr() % 64 == 0 and made.untyped_storage().nbytes() == 4 * size
