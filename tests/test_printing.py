"""The text of tensors, compared with PyTorch's character by character."""

import math
import os

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flambeau
from flambeau.tensors import printing

EXAMPLES = int(os.environ.get("PRINTING_EXAMPLES", "150"))
nan, inf = math.nan, math.inf

DTYPES = {
    "float32": np.float32,
    "float64": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "bool": np.bool_,
    "complex64": np.complex64,
    "complex128": np.complex128,
}
FLOATS = ["float32", "float64", "float16", "bfloat16"]
COMPLEX = ["complex64", "complex128"]


# --------------------------------------------------------------------------
# The same tensor on both sides


def _copyslices(x):
    y = x.clone()
    y.unsqueeze(0)[0:1] = x
    return y


OPS = {
    "MulBackward0": lambda x: x * 1,
    "CloneBackward0": lambda x: x.clone(),
    "CopySlices": _copyslices,
}


def _name_of(array, dtype):
    if dtype is not None:
        return dtype
    return "bfloat16" if array.dtype == ml_dtypes.bfloat16 else array.dtype.name


def _build(lib, array, dtype=None, requires_grad=False, grad_fn=None, device="cpu"):
    array = np.asarray(array)
    name = _name_of(array, dtype)
    if name == "bfloat16":
        t = lib.from_numpy(np.array(array, dtype=np.float32)).to(lib.bfloat16)
    else:
        t = lib.from_numpy(np.array(array, dtype=DTYPES[name]))
    if device != "cpu":
        t = t.to(device)
    if requires_grad or grad_fn:
        t.requires_grad_()
    return OPS[grad_fn](t) if grad_fn else t


def make(array, **options):
    return _build(flambeau, array, **options)


def oracle(array, **options):
    return _build(torch, array, **options)


def prints_alike(array, **kw):
    assert repr(make(array, **kw)) == repr(oracle(array, **kw))


def set_both(**options):
    torch.set_printoptions(**options)
    printing.set_printoptions(**options)


@pytest.fixture(autouse=True)
def reset():
    set_both(profile="default")
    yield
    set_both(profile="default")


# --------------------------------------------------------------------------
# Tables

VALUES = [
    1.0,
    0.0,
    -0.0,
    1e-10,
    1e9,
    123456789.0,
    99999.5,
    nan,
    inf,
    -inf,
    3.14159265,
    [1.0, 2.0, 3.0],
    [1.0, 2.5, -3.0],
    [-0.0, 1.5],
    [-0.0, 100.0],
    [0.0, -0.0],
    [-1e-12, 0.0],
    [nan, nan],
    [nan, 1.0],
    [inf, -inf, 0.0],
    [[1.0, nan], [-inf, 1.0]],
    [[1.5, nan], [-inf, 1.0]],
    [1e-5, 1.0],
    [1e-4, 0.05],
    [9.9999e-5, 0.05],
    [1.0, 1000.0],
    [1.0, 1001.0],
    [1.5, 1500.0],
    [1.5, 1500.5],
    [1e8, 1e8],
    [1.00000001e8, 1e8],
    [0.99999, 0.5],
    [9.99999, 10.5],
    [99.99996, 0.5],
    [-99.99996, 100.5],
    [1e5, nan, 3e8],
    [1e-7, nan, inf, -inf],
    [1e38, 1e-38, 0.0],
    [[1.0], [2.0]],
    [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.5]]],
    [[[[1.0]]]],
    [0.1] * 30,
    [1.0] * 60,
    [0.0] * 60,
    [nan] * 60,
    [1.0e10] * 20,
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("value", VALUES, ids=lambda v: str(v)[:40])
def test_float_table(value, dtype):
    with np.errstate(all="ignore"):
        array = np.array(value).astype(DTYPES[dtype])
    for sci_mode in (None, True, False):
        set_both(sci_mode=sci_mode)
        prints_alike(array, dtype=dtype)


COMPLEX_VALUES = [
    1 + 2j,
    -1 - 2j,
    0j,
    complex(-0.0, -0.0),
    complex(nan, nan),
    complex(inf, -inf),
    1.5 - 2j,
    1e-9 + 1j,
    [1 + 2j, complex(nan, -1.5)],
    [complex(1, nan), complex(1, -inf)],
    [1e-9 + 1j, 1 + 1e9j],
    [1 + 100j, 100 - 1j],
    [1.5 + 100j, 100.25 - 1j],
    [[1.5 + 2j, -3 + 4j], [0j, 1j]],
    [1.5 - 2.25j] * 30,
    [1 + 1j] * 40,
    [0j] * 40,
]


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("value", COMPLEX_VALUES, ids=lambda v: str(v)[:40])
def test_complex_table(value, dtype):
    for sci_mode in (None, True, False):
        set_both(sci_mode=sci_mode)
        prints_alike(np.array(value, dtype=DTYPES[dtype]), dtype=dtype)


INT_SHAPES = [(), (1,), (30,), (100,), (1001,), (4, 5), (2, 3, 4), (40, 40), (3, 1, 1)]


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in FLOATS + COMPLEX])
@pytest.mark.parametrize("shape", INT_SHAPES, ids=str)
def test_integer_table(shape, dtype):
    n = int(np.prod(shape))
    array = np.arange(n).reshape(shape)
    prints_alike(array.astype(DTYPES[dtype]), dtype=dtype)
    if dtype.startswith(("int", "bool")):
        prints_alike((-array * 37).astype(DTYPES[dtype]), dtype=dtype)
    if dtype != "bool":
        limits = np.iinfo(DTYPES[dtype])
        prints_alike(np.array([limits.min, limits.max], DTYPES[dtype]), dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0), (0, 0, 1), (0, 2000)], ids=str)
def test_empty(shape, dtype):
    prints_alike(np.zeros(shape, DTYPES[dtype]), dtype=dtype)
    set_both(edgeitems=0, threshold=2)
    prints_alike(np.zeros(shape, DTYPES[dtype]), dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "complex64"])
@pytest.mark.parametrize(
    "shape",
    [(1001,), (2, 600), (600, 2), (7, 7, 30), (6, 6, 30), (1100, 1, 1), (5, 0, 9)],
    ids=str,
)
def test_summarised(shape, dtype):
    n = int(np.prod(shape))
    array = np.arange(n).reshape(shape).astype(DTYPES[dtype])
    for edgeitems in (0, 1, 2, 3, 5):
        set_both(edgeitems=edgeitems)
        prints_alike(array, dtype=dtype)


@pytest.mark.parametrize("threshold", [0, 2, 1000, inf])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2), (0,), (0, 2)], ids=str)
def test_no_edgeitems(shape, threshold):
    set_both(edgeitems=0, threshold=threshold)
    for dtype in ("float32", "int32", "complex64"):
        prints_alike(np.ones(shape, DTYPES[dtype]), dtype=dtype)
    prints_alike(np.ones(shape, np.float32), requires_grad=True)
    prints_alike(np.ones(shape, np.float32), device="meta")


def test_summary_ignores_hidden_elements():
    array = np.ones(5000, np.float32)
    array[2500] = 1e-20
    prints_alike(array)
    array[2500] = -12345.678
    prints_alike(array)
    array[-1] = 0.25
    prints_alike(array)


# --------------------------------------------------------------------------
# What follows the elements

SUFFIX_ARRAYS = [
    np.float32(1.5),
    np.ones(3, np.float32),
    np.zeros((0, 3), np.float32),
    np.full((2, 10), 1.25, np.float32),
    np.full((40, 40), 1.25, np.float64),
    np.full(3, 1e-9 + 1j, np.complex128),
]


@pytest.mark.parametrize("array", SUFFIX_ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
@pytest.mark.parametrize("grad", [None, True, *OPS])
def test_grad_suffix(array, grad):
    kw = {"requires_grad": True} if grad is True else {"grad_fn": grad}
    prints_alike(array, **kw)


@pytest.mark.parametrize("n", range(1, 24))
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "bfloat16"])
def test_suffix_wrapping(n, dtype):
    floating = dtype in FLOATS
    for linewidth in (20, 41, 60, 80):
        set_both(linewidth=linewidth)
        prints_alike(np.ones(n, DTYPES[dtype]), dtype=dtype)
        prints_alike(np.ones((2, n), DTYPES[dtype]), dtype=dtype, requires_grad=floating)
        if floating:
            prints_alike(np.ones(n, DTYPES[dtype]), dtype=dtype, grad_fn="MulBackward0")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool", "complex64"])
@pytest.mark.parametrize("shape", [(), (2, 3), (0,), (2000,)], ids=str)
def test_meta(shape, dtype):
    array = np.zeros(shape, DTYPES[dtype])
    prints_alike(array, dtype=dtype, device="meta")
    if dtype.startswith("float"):
        prints_alike(array, dtype=dtype, device="meta", requires_grad=True)
        prints_alike(array, dtype=dtype, device="meta", grad_fn="MulBackward0")


@pytest.mark.parametrize("default", ["float64", "float16", "bfloat16", "float32"])
def test_default_dtype(default):
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, default))
    flambeau.set_default_dtype(getattr(flambeau, default))
    try:
        for dtype, kind in DTYPES.items():
            for shape in ((2,), (0,)):
                prints_alike(np.ones(shape, kind), dtype=dtype)
                prints_alike(np.ones(shape, kind), dtype=dtype, device="meta")
    finally:
        torch.set_default_dtype(before)
        flambeau.set_default_dtype(flambeau.float32)


# --------------------------------------------------------------------------
# Subclasses and parameters


def test_subclass():
    class MyTorch(torch.Tensor):
        pass

    MyTorch.__name__ = "MyT"
    for array in (np.float32(1), np.full((2, 30), 1.5, np.float64), np.ones((0, 2))):
        want = repr(oracle(array).as_subclass(MyTorch))

        class Mine(flambeau.Tensor):
            pass

        Mine.__name__ = "MyT"
        assert repr(make(array).as_subclass(Mine)) == want


def test_parameter():
    for array in (np.float32(1.5), np.full((2, 30), 1.5, np.float64)):
        want = repr(torch.nn.Parameter(oracle(array)))
        assert repr(flambeau.nn.Parameter(make(array))) == want


def test_derived_parameter():
    class TorchDerived(torch.nn.Parameter):
        pass

    TorchDerived.__name__ = "DerivedParameter"
    array = np.full((2, 30), 1.5, np.float32)
    want = repr(TorchDerived(oracle(array)))

    class Derived(flambeau.nn.Parameter):
        pass

    Derived.__name__ = "DerivedParameter"
    assert repr(Derived(make(array))) == want


def test_tensor_contents():
    array = np.ones(3, np.int32)
    for text in ("hey", "hey" * 30, "hey" * 30 + "\nx"):
        got = printing.tensor_repr(make(array), tensor_contents=text)
        assert got == oracle(array).__repr__(tensor_contents=text)


# --------------------------------------------------------------------------
# format()


def _outcome(function, *args):
    try:
        return function(*args)
    except (TypeError, ValueError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("spec", ["", ".3f", "d", "10.2e", ">8", "x", "%", ","])
@pytest.mark.parametrize(
    "array",
    [
        np.float32(1.5),
        np.float64(0.1),
        np.int64(3),
        np.bool_(True),
        np.complex64(1 + 2j),
        np.ones(1, np.float32),
        np.ones((2, 2), np.int64),
    ],
    ids=repr,
)
def test_format(array, spec):
    assert _outcome(format, make(array), spec) == _outcome(format, oracle(array), spec)


def test_format_meta_and_grad():
    one = np.float32(1.5)
    for kw in ({"device": "meta"}, {"requires_grad": True}):
        for spec in ("", ".2f"):
            got = _outcome(format, make(one, **kw), spec)
            assert got == _outcome(format, oracle(one, **kw), spec)


# --------------------------------------------------------------------------
# Options


def _theirs():
    return torch._tensor_str.get_printoptions()


@pytest.mark.parametrize(
    "calls",
    [
        [{"profile": "short"}],
        [{"profile": "full"}],
        [{"profile": "short"}, {"profile": "default"}],
        [{"profile": "SHORT"}],
        [{"profile": "nothing"}],
        [{"profile": "short", "precision": 7}],
        [{"precision": 2}, {"edgeitems": 9}, {"linewidth": 30}, {"threshold": 5}],
        [{"sci_mode": True}, {"precision": 3}],
        [{"sci_mode": False}, {}],
        [{"precision": 0}],
    ],
    ids=str,
)
def test_set_printoptions(calls):
    for options in calls:
        set_both(**options)
        assert printing.get_printoptions() == _theirs()
        prints_alike(np.linspace(-3, 5, 1200, dtype=np.float32).reshape(30, 40))
        prints_alike(np.linspace(-3, 5, 7, dtype=np.float64))


def test_printoptions_context():
    array = np.array([1.23456789, 2.0])
    before = printing.get_printoptions()
    new = {"precision": 2, "sci_mode": True}
    with printing.printoptions(**new), torch._tensor_str.printoptions(**new):
        assert printing.get_printoptions() == _theirs()
        prints_alike(array)
    assert printing.get_printoptions() == before == _theirs()
    with pytest.raises(ZeroDivisionError), printing.printoptions(profile="full"):
        assert printing.get_printoptions()["threshold"] == inf
        raise ZeroDivisionError
    assert printing.get_printoptions() == before


# --------------------------------------------------------------------------
# Cost


def test_only_what_is_shown_is_looked_at():
    """A look at all of it would take days, and terabytes."""
    assert repr(flambeau.zeros(()).expand(10, 10**6, 10**6)).count("0.") == 6 * 6 * 6


# --------------------------------------------------------------------------
# Random arrays


def _reals(rng, style, n, exponent, decimals):
    if style == "whole":
        v = np.round(rng.normal(size=n) * 10.0**exponent)
    elif style == "fixed":
        v = np.round(rng.normal(size=n) * 10.0 ** (exponent - 5), decimals)
    elif style == "wide":
        v = rng.normal(size=n) * 10.0 ** rng.uniform(-exponent - 1, exponent + 1, n)
    elif style == "edge":  # near the limits of the rules, and near carries
        near = [1e-4, 1e8, 1000.0, 9.99995, 0.99995, 99.99995, 1.0, 0.5, 1.00005]
        v = rng.choice(near, n) * (1 + rng.choice([0, 0, 1e-6, -1e-6, 1e-15], n))
    else:
        v = rng.uniform(0, 1, n)
    return v


def _random_array(seed, dtype, shape, style, exponent, decimals, special):
    rng = np.random.default_rng(seed)
    n = int(np.prod(shape))
    kind = DTYPES[dtype]
    with np.errstate(all="ignore"):
        if dtype == "bool":
            return (rng.uniform(size=n) < 0.5).reshape(shape)
        if dtype not in FLOATS + COMPLEX:
            info = np.iinfo(kind)
            top = min(int(info.max), 10 ** (exponent + 1))
            low = max(int(info.min), -top if decimals % 2 else 0)
            return rng.integers(low, top, n, endpoint=True).astype(kind).reshape(shape)

        def part():
            v = _reals(rng, style, n, exponent, decimals)
            if special:
                put = rng.uniform(size=n) < rng.choice([0.1, 0.9])
                v[put] = rng.choice([nan, inf, -inf, 0.0, -0.0], int(put.sum()))
            return v

        if dtype in COMPLEX:
            v = np.empty(n, np.complex128)
            v.real, v.imag = part(), part()
        else:
            v = part()
        return v.astype(kind).reshape(shape)


shapes = st.one_of(
    st.lists(st.integers(1, 6), max_size=4),
    st.lists(st.integers(0, 4), min_size=1, max_size=3),
    st.lists(st.integers(1, 60), min_size=1, max_size=2),
).map(tuple)

arrays = st.builds(
    lambda dtype, **kw: (dtype, _random_array(dtype=dtype, **kw)),
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from([*DTYPES, *FLOATS, *FLOATS, *COMPLEX]),
    shape=shapes,
    style=st.sampled_from(["whole", "fixed", "wide", "edge", "unit"]),
    exponent=st.integers(0, 10),
    decimals=st.integers(0, 6),
    special=st.booleans(),
)

options = st.fixed_dictionaries(
    {},
    optional={
        "precision": st.integers(0, 9),
        "threshold": st.integers(0, 60),
        "edgeitems": st.integers(0, 5),
        "linewidth": st.integers(1, 130),
        "sci_mode": st.booleans(),
        "profile": st.sampled_from(["short", "full", "default"]),
    },
)

quick = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@quick
@given(arrays)
def test_random(case):
    dtype, array = case
    prints_alike(array, dtype=dtype)


@quick
@given(arrays, options, st.sampled_from([None, True, "CloneBackward0"]))
def test_random_options(case, opts, grad):
    dtype, array = case
    kw = {}
    if grad and dtype in FLOATS + COMPLEX:
        kw = {"requires_grad": True} if grad is True else {"grad_fn": grad}
    set_both(**opts)
    try:
        prints_alike(array, dtype=dtype, **kw)
    finally:
        set_both(profile="default")


@quick
@given(st.lists(st.floats(width=64), max_size=8), st.sampled_from(["float64", "float32"]))
def test_random_values(values, dtype):
    with np.errstate(all="ignore"):
        array = np.array(values, np.float64).astype(DTYPES[dtype])
    prints_alike(array, dtype=dtype)
    prints_alike(array[None, :, None], dtype=dtype)
    if array.size:
        prints_alike(array[0], dtype=dtype)
