"""The array API standard: every function of it beside array-api-strict, the standard's own reference namespace.

Each line below has expressions that both namespaces compute: with `x` and `y` of each dtype of the kinds before the bar.
Shape, dtype and values must be the same, signs of zeros included.
"""

from __future__ import annotations

import array
import inspect
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
from array_api_both import ALL, DTYPES, double_by_default, ours, same, strict  # noqa: F401  (a fixture among them)

import flambeau

ELEMENTWISE = """
    iufc | xp.abs(x)
    fc | xp.acos(x), xp.acosh(x), xp.asin(x), xp.asinh(x), xp.atan(x), xp.atanh(x), xp.sin(x), xp.cos(x), xp.tan(x)
    fc | xp.sinh(x), xp.cosh(x), xp.tanh(x), xp.exp(x), xp.expm1(x), xp.log(x), xp.log1p(x), xp.log2(x), xp.log10(x)
    fc | xp.sqrt(x), xp.reciprocal(x), xp.divide(x, y), x / y
    iuf | xp.ceil(x), xp.floor(x), xp.trunc(x)
    iufc | xp.round(x), xp.sign(x), xp.square(x), xp.negative(x), xp.positive(x), -x, +x, abs(x)
    iufc | xp.isfinite(x), xp.isinf(x), xp.isnan(x), xp.conj(x)
    c | xp.real(x), xp.imag(x)
    f | xp.signbit(x), xp.atan2(x, y), xp.copysign(x, y), xp.hypot(x, y), xp.logaddexp(x, y), xp.nextafter(x, y)
    iufc | xp.add(x, y), xp.subtract(x, y), xp.multiply(x, y), x + y, x - y, x * y
    f | xp.pow(x, y), xp.remainder(x, y)
    c | xp.pow(x, y), xp.pow(x, 2)
    iu | xp.pow(x, xp.asarray(3, dtype=x.dtype)), xp.floor_divide(x, positive(y)), xp.remainder(x, positive(y))
    iuf | xp.maximum(x, y), xp.minimum(x, y), xp.clip(x, 1, 3), xp.clip(x, min=y), xp.clip(x, max=y), xp.clip(x)
    f | xp.clip(y, min=x), xp.clip(y, max=x)
    biufc | xp.equal(x, y), xp.not_equal(x, y), x == y, x != y
    iuf | xp.greater(x, y), xp.greater_equal(x, y), xp.less(x, y), xp.less_equal(x, y), x > y, x >= y, x < y, x <= y
    b | xp.logical_and(x, y), xp.logical_or(x, y), xp.logical_xor(x, y), xp.logical_not(x)
    biu | xp.bitwise_and(x, y), xp.bitwise_or(x, y), xp.bitwise_xor(x, y), xp.bitwise_invert(x), x & y, x | y, x ^ y, ~x
    iu | xp.bitwise_left_shift(x, small(y)), xp.bitwise_right_shift(x, small(y)), x << small(y), x >> small(y)
    iuf | xp.add(x, 2), xp.subtract(2, x), xp.less(x, 2), xp.equal(0, x), xp.maximum(x, 1), xp.where(x > y, x, 1)
    f | xp.divide(x, 2.5), xp.atan2(1.5, x), xp.add(x, 1.5), xp.hypot(x, 3), xp.copysign(x, -1.0), xp.pow(2.0, x)
"""
REDUCTIONS = """
    biufc | xp.all(x), xp.any(x), xp.all(x, axis=0), xp.any(x, axis=(0, 1), keepdims=True), xp.all(x, axis=())
    biufc | xp.count_nonzero(x)
    iufc | xp.count_nonzero(x, axis=1), xp.count_nonzero(x, axis=(0, 1), keepdims=True), xp.sum(x), xp.prod(small(x))
    iufc | xp.sum(x, axis=0), xp.sum(x, axis=(0, -1), keepdims=True), xp.prod(small(x), axis=-1), xp.prod(small(x), axis=(0, 1))
    iufc | xp.sum(x, axis=()), xp.prod(x, axis=()), xp.sum(x[:0, :], axis=0), xp.prod(x[:0, :], axis=0)
    i | xp.sum(x, dtype=xp.float64), xp.prod(small(x), dtype=xp.int32)
    iuf | xp.max(x), xp.min(x), xp.max(x, axis=0), xp.min(x, axis=(0, 1), keepdims=True), xp.max(x, axis=()), xp.min(x, axis=-1)
    f | xp.mean(x), xp.mean(x, axis=0), xp.mean(x, axis=(0, 1), keepdims=True), xp.mean(x, axis=())
    f | xp.var(y), xp.std(y), xp.var(y, axis=0, correction=1), xp.std(y, axis=(0, 1), correction=0.5, keepdims=True)
    f | xp.var(y, axis=()), xp.std(y, axis=1, correction=1.5)
    iufc | xp.cumulative_sum(x, axis=0), xp.cumulative_sum(x[0, :]), xp.cumulative_sum(x, axis=-1, include_initial=True)
    iufc | xp.cumulative_prod(small(x), axis=0), xp.cumulative_prod(small(x)[0, :])
    iufc | xp.cumulative_prod(x, axis=1, include_initial=True)
    iufc | xp.diff(x), xp.diff(x, axis=0, n=2), xp.diff(x, prepend=y, append=x)
"""
SEARCHING = """
    iuf | xp.argmax(x), xp.argmin(x), xp.argmax(x, axis=0), xp.argmin(x, axis=-1, keepdims=True), xp.argmax(x, keepdims=True)
    biufc | xp.nonzero(x), xp.where(x == y, x, y), xp.where(xp.asarray(True), x, y)
    iuf | xp.searchsorted(xp.sort(y[0, :]), x), xp.searchsorted(y[0, :], x[1, :], side='right', sorter=xp.argsort(y[0, :]))
    iuf | xp.sort(x), xp.sort(x, axis=0), xp.sort(x[0, :], descending=True), xp.sort(y, descending=True), xp.argsort(y)
    iuf | xp.argsort(y, axis=0, descending=True)
    iuf | xp.sort(x, stable=False), xp.argsort(small(x), stable=True), xp.argsort(small(x), descending=True)
    biuf | xp.unique_values(y), xp.unique_counts(y), xp.unique_values(x[0, :]), xp.unique_inverse(x), xp.unique_all(x)
    biuf | xp.unique_all(x[:0, :])
    iu | xp.isin(x, y), xp.isin(x, 2)
    biufc | xp.take(x, xp.asarray([2, 0]), axis=1), xp.take(x[0, :], xp.asarray([1, 1, 0]))
    biufc | xp.take(x, xp.asarray([-1]), axis=0)
    biufc | xp.take_along_axis(x, xp.asarray([[2, 0], [1, 1], [0, -1]]), axis=1)
    biufc | xp.take_along_axis(x, xp.asarray([[1]]), axis=0)
"""
SHAPES = """
    biufc | xp.broadcast_arrays(x, x[0, :]), xp.broadcast_to(x, (2, 3, 4)), xp.concat([x, y]), xp.concat([x, y], axis=-1)
    biufc | xp.concat([x, y], axis=None), xp.expand_dims(x, axis=0), xp.expand_dims(x, axis=-1), xp.flip(x), xp.flip(x, axis=1)
    biufc | xp.flip(x, axis=(0, 1)), xp.moveaxis(x, 0, 1), xp.permute_dims(x, (1, 0)), xp.matrix_transpose(x), x.T, x.mT
    biufc | xp.repeat(x, 2), xp.repeat(x, 3, axis=1), xp.repeat(x, xp.asarray([1, 0, 2], dtype=xp.int32), axis=0)
    biufc | xp.reshape(x, (2, 6)), xp.reshape(x, (-1,), copy=True), xp.reshape(x, (4, 3), copy=False), xp.reshape(x.T, (12,))
    biufc | xp.roll(x, 2), xp.roll(x, 1, axis=0), xp.roll(x, (1, -2), axis=(0, 1)), xp.roll(x, 1, axis=(0, 1))
    biufc | xp.squeeze(x[:, :1], axis=1), xp.squeeze(x[:1, :1], axis=(0, 1)), xp.stack([x, y]), xp.stack([x, y], axis=-1)
    biufc | xp.tile(x, (2, 1)), xp.tile(x, (2,)), xp.tile(x, (2, 1, 2)), xp.unstack(x), xp.unstack(x, axis=1)
    biufc | x[1, 2], x[..., 1], x[None, 1:, :], x[:, ::2], x[y == x], x[xp.asarray([0, 2]), xp.asarray([1, 1])]
"""
CREATION = """
    biufc | xp.asarray(x), xp.asarray(x, copy=True), xp.zeros_like(x), xp.ones_like(x), xp.full_like(x, 1)
    biufc | xp.empty_like(x).shape
    biufc | xp.zeros(3, dtype=x.dtype), xp.ones((2, 1), dtype=x.dtype), xp.full((2,), 1, dtype=x.dtype), xp.full(2, True)
    biufc | xp.eye(3, dtype=x.dtype), xp.eye(3, 4, k=1, dtype=x.dtype), xp.eye(2, 3, k=-1, dtype=x.dtype)
    biufc | xp.empty((2, 3)).shape
    biufc | xp.tril(x), xp.triu(x), xp.tril(x, k=1), xp.triu(x, k=-1), xp.meshgrid(x[0, :], y[:, 0])
    biufc | xp.meshgrid(x[0, :], y[:, 0], x[0, :2], indexing='ij'), xp.astype(x, x.dtype), xp.astype(x, xp.complex128)
    iuf | xp.arange(5, dtype=x.dtype), xp.arange(1, 10, 3, dtype=x.dtype), xp.arange(3, 1, dtype=x.dtype)
    iuf | xp.astype(small(x), xp.int16)
    f | xp.linspace(0, 1, 5, dtype=x.dtype), xp.linspace(1, -1, 4, endpoint=False, dtype=x.dtype)
    f | xp.linspace(2, 2, 1, dtype=x.dtype)
    c | xp.linspace(0j, 1 + 2j, 5, dtype=x.dtype), xp.full((2,), 1 + 2j, dtype=x.dtype)
    b | xp.arange(4), xp.arange(0.5, 3), xp.arange(5, 1, -2), xp.full((), 3), xp.full((), 3.0), xp.full((), 3j)
    b | xp.linspace(0, 3, 4)
    b | xp.asarray([1, 2]), xp.asarray([1.5, 2]), xp.asarray([[True], [False]]), xp.asarray(2), xp.asarray([])
    b | xp.asarray([1j, 2])
    b | xp.asarray(2**64 - 1, dtype=xp.uint64), xp.zeros((0, 3)), xp.ones(()), xp.eye(2), xp.zeros(2), xp.from_dlpack(x)
    b | xp.e, xp.pi, xp.inf, xp.nan, xp.newaxis is None, xp.broadcast_shapes((2, 1), (3,)), xp.broadcast_shapes()
"""
DTYPE_FUNCTIONS = """
    f | xp.finfo(x).eps, xp.finfo(x.dtype).max, xp.finfo(x).min, xp.finfo(x).bits, xp.finfo(x).smallest_normal
    c | xp.finfo(x.dtype).eps, xp.finfo(x).bits
    iu | xp.iinfo(x).max, xp.iinfo(x.dtype).min, xp.iinfo(x).bits
    biufc | xp.isdtype(x.dtype, 'bool'), xp.isdtype(x.dtype, 'signed integer'), xp.isdtype(x.dtype, 'unsigned integer')
    biufc | xp.isdtype(x.dtype, 'integral'), xp.isdtype(x.dtype, 'real floating'), xp.isdtype(x.dtype, 'complex floating')
    biufc | xp.isdtype(x.dtype, 'numeric'), xp.isdtype(x.dtype, ('bool', 'integral'))
    biufc | xp.isdtype(x.dtype, (xp.int8, xp.float32))
    biufc | xp.isdtype(x.dtype, xp.float32), xp.result_type(x, y), xp.result_type(x.dtype)
    biufc | xp.result_type(x, True) if kind == 'b' else 0
    iufc | xp.result_type(x, 3), xp.result_type(x, y, 3, 4)
    fc | xp.result_type(x, 3.0), xp.result_type(x.dtype, 1)
"""
LINALG = """
    fc | xp.linalg.cholesky(square), xp.linalg.cholesky(square, upper=True), xp.linalg.det(square), xp.linalg.inv(square)
    fc | xp.linalg.eigh(square)[0], xp.linalg.eigvalsh(square), xp.linalg.slogdet(square), xp.linalg.svdvals(y)
    fc | xp.linalg.svd(y)[1]
    fc | xp.abs(xp.linalg.svd(y)[0]).shape, xp.linalg.svd(y, full_matrices=False).Vh.shape
    fc | xp.linalg.eigh(square).eigenvectors.shape
    fc | xp.linalg.qr(y).R.shape, xp.linalg.qr(y, mode='complete').Q.shape, xp.matmul(*xp.linalg.qr(y)), xp.linalg.pinv(y)
    fc | xp.linalg.pinv(y, rtol=0.3), xp.linalg.matrix_rank(y), xp.linalg.matrix_rank(square, rtol=0.5)
    fc | xp.linalg.matrix_power(square, 3)
    fc | xp.linalg.matrix_power(square, -1), xp.linalg.matrix_power(square, 0), xp.linalg.solve(square, y[:, 0])
    fc | xp.linalg.solve(square, y)
    fc | xp.linalg.solve(xp.stack([square, square]), y[:, 0]), xp.linalg.solve(xp.stack([square, square, square]), y[:, :3])
    fc | xp.linalg.matrix_norm(y), xp.linalg.matrix_norm(y, ord=1, keepdims=True), xp.linalg.matrix_norm(y, ord='nuc')
    fc | xp.linalg.matrix_norm(y, ord=-xp.inf), xp.linalg.matrix_norm(y, ord=2)
    fc | xp.linalg.matrix_norm(xp.stack([y, y]), ord=xp.inf)
    fc | xp.linalg.vector_norm(y), xp.linalg.vector_norm(y, axis=0, ord=1)
    fc | xp.linalg.vector_norm(y, axis=(0, 1), ord=3, keepdims=True)
    fc | xp.linalg.vector_norm(y, ord=xp.inf), xp.linalg.vector_norm(y, ord=0), xp.linalg.vector_norm(y, axis=1, ord=-xp.inf)
    iufc | xp.linalg.cross(y[:, :3], small(y)[:, :3]), xp.linalg.cross(y, small(y), axis=-2), xp.linalg.diagonal(y)
    iufc | xp.linalg.diagonal(y, offset=-1)
    iufc | xp.linalg.matmul(y, y.T), xp.linalg.matrix_transpose(y), xp.linalg.outer(y[0, :], y[:, 0]), xp.linalg.trace(y)
    iufc | xp.linalg.trace(y, offset=1), xp.linalg.tensordot(y, y, axes=2), xp.tensordot(y, y.T, axes=1)
    iufc | xp.tensordot(y, y, axes=0)
    iufc | xp.tensordot(y, y, axes=((0,), (0,))), xp.linalg.vecdot(y, y), xp.vecdot(y, y, axis=-2), xp.vecdot(y, y[0, :])
    iufc | xp.matmul(y, y.T), xp.matmul(y, y[0, :]), xp.matmul(y[0, :], y[0, :]), xp.matmul(xp.stack([y, y]), y.T), y @ y.T
"""
FFT = """
    fc | xp.fft.fft(c), xp.fft.ifft(c, n=6), xp.fft.fft(c, axis=0, norm='ortho'), xp.fft.fftn(c)
    fc | xp.fft.ifftn(c, s=(2, 5), axes=(0, 1))
    fc | xp.fft.irfft(c), xp.fft.irfft(c, n=7, norm='forward'), xp.fft.irfftn(c), xp.fft.hfft(c), xp.fft.hfft(c, n=5, axis=0)
    fc | xp.fft.fftshift(y), xp.fft.ifftshift(y, axes=0), xp.fft.fftshift(y, axes=(0, 1))
    fc | xp.fft.fftn(c, axes=(0,), norm='forward')
    f | xp.fft.rfft(y), xp.fft.rfft(y, n=3, axis=0), xp.fft.rfftn(y), xp.fft.rfftn(y, s=(4,), axes=(1,))
    f | xp.fft.ihfft(y, norm='ortho')
    f | xp.fft.fftfreq(5, d=0.5, dtype=x.dtype), xp.fft.rfftfreq(6, dtype=x.dtype), xp.fft.fftfreq(4)
"""
GROUPS = {"elementwise": ELEMENTWISE, "reductions": REDUCTIONS, "searching": SEARCHING, "shapes": SHAPES, "creation": CREATION,
          "dtypes": DTYPE_FUNCTIONS, "linalg": LINALG, "fft": FFT}


def _split(line: str) -> list[str]:
    """The expressions of a line: it is split at the commas outside of brackets."""
    found, depth = [""], 0
    for letter in line:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return [expression.strip() for expression in found]


LINES = [(kinds.strip(), expression) for text in GROUPS.values() for line in text.strip().splitlines()
         for kinds, _, rest in [line.partition("|")] for expression in _split(rest)]


def _numbers(dtype: str) -> dict[str, np.ndarray]:
    """x with the special values of the dtype, y without them, a positive definite matrix and some complex numbers."""
    rng = np.random.default_rng(3)
    plain = rng.integers(1, 9, (3, 4))
    kind = np.dtype(dtype).kind
    x = plain.astype(dtype)
    if kind in "iu":
        x[0, :3] = [np.iinfo(dtype).min, np.iinfo(dtype).max, 0]
    if kind == "f":
        plain = plain * 0.25 - 0.8
        x = plain.astype(dtype)
        x[:2, :3] = [[np.nan, np.inf, -np.inf], [0.0, -0.0, 2.0]]
    if kind == "b":
        x, plain = plain % 2 == 0, plain % 3 == 0
    if kind == "c":
        plain = plain * 0.25 - 1.5 + 1j * rng.integers(-3, 4, (3, 4))
        x = plain[::-1].astype(dtype)
    half = rng.standard_normal((3, 3)) + (1j * rng.standard_normal((3, 3)) if kind == "c" else 0)
    square = (half @ half.conj().T + np.eye(3)).astype(dtype if kind in "fc" else "float64")
    c = (rng.standard_normal((3, 4)) + 1j * rng.standard_normal((3, 4)))
    return {"x": x, "y": plain.astype(dtype), "square": square,
            "c": c.astype("complex64" if dtype in ("float32", "complex64") else "complex128")}


def _compute(xp, expression: str, dtype: str):
    arrays = {name: xp.asarray(value.copy()) for name, value in _numbers(dtype).items()}

    def small(a):
        three = xp.asarray(3, dtype=a.dtype)
        return xp.bitwise_and(a, three) if xp.isdtype(a.dtype, "integral") else a

    def positive(a):
        return xp.bitwise_or(small(a), xp.asarray(1, dtype=a.dtype))
    return eval(expression, {"xp": xp, "small": small, "positive": positive, "kind": np.dtype(dtype).kind, **arrays})


@pytest.mark.parametrize("kinds, expression", LINES, ids=lambda v: v)
def test_it_computes_what_the_reference_does(kinds, expression):
    for dtype in [name for letter in kinds for name in DTYPES[letter]]:
        tolerance = 2e-5 if dtype in ("float32", "complex64") else 1e-12
        same(_compute(ours, expression, dtype), _compute(strict, expression, dtype), tolerance, f"{expression} of {dtype}")


# ------------------------------------------------------------------------------------------------------- the whole of it
NOT_OF_THE_STANDARD = {"Device", "ArrayAPIStrictFlags", "get_array_api_strict_flags", "set_array_api_strict_flags",
                       "reset_array_api_strict_flags", "__version__"}


def _names(module) -> list[str]:
    return [name for name in module.__all__ if name not in NOT_OF_THE_STANDARD]


def test_every_name_is_there():
    with strict.ArrayAPIStrictFlags(api_version="2024.12"):
        assert [name for name in _names(strict) if not hasattr(ours, name)] == []
    for extension in ("linalg", "fft"):
        wanted = [name for name in getattr(strict, extension).__all__ if name not in ("eig", "eigvals")]  # (of 2025.12)
        assert [name for name in wanted if not hasattr(getattr(ours, extension), name)] == []
    assert ours.__array_api_version__ == "2024.12"


def test_every_function_is_compared():
    expressions = " ".join(expression for _, expression in LINES)
    functions = [name for name in _names(ours) if inspect.isfunction(getattr(ours, name))]
    functions += [f"{m}.{name}" for m in ("linalg", "fft") for name in getattr(ours, m).__all__]
    left = {"floor_divide", "can_cast", "__array_namespace_info__"}  # below
    assert {name for name in functions if not re.search(rf"\bxp\.{re.escape(name)}\(", expressions)} <= left


@pytest.mark.parametrize("place", ["", "linalg", "fft"])
def test_arguments_are_the_standards(place):
    """Each argument of the reference has the same name here, the same default, and may be given the same way."""
    mine, theirs = (getattr(xp, place) if place else xp for xp in (ours, strict))
    for name in mine.__all__:
        function, wanted = getattr(mine, name), getattr(theirs, name)
        if not inspect.isfunction(function):
            continue
        got = inspect.signature(function).parameters
        for argument in inspect.signature(wanted).parameters.values():
            assert argument.name in got, f"{name}: no argument {argument.name}"
            own = got[argument.name]
            assert own.kind in (argument.kind, inspect.Parameter.POSITIONAL_OR_KEYWORD), f"{name}: {own.kind} {argument}"
            if argument.default not in (argument.empty, *getattr(strict._creation_functions, "Undef", ())):
                assert own.default == argument.default, f"{name}: {own} by default, not {argument}"


@pytest.mark.parametrize("one", ALL)
def test_two_dtypes_give_what_the_standard_says(one):
    """All pairs, with dimensions and without. Pairs for which the standard has no answer are ours to choose."""
    for other in ALL:
        a, b = getattr(strict, one), getattr(strict, other)
        try:
            wanted = str(strict.result_type(a, b)).removeprefix("array_api_strict.")
        except TypeError:
            continue
        for shapes in (((2,), (2,)), ((2,), ()), ((), (2,)), ((), ())):
            x, y = (ours.ones(shape, dtype=getattr(ours, name)) for shape, name in zip(shapes, (one, other)))
            made = ours.concat([x, y]) if shapes == ((2,), (2,)) else ours.where(ours.asarray(True), x, y)
            assert ours.result_type(x, y) is made.dtype is getattr(ours, wanted), f"{one}, {other}"
            if one != "bool":
                assert ours.add(x, y).dtype is ours.multiply(x, y).dtype is made.dtype, f"{one}, {other}"
                assert ours.equal(x, y).all()


def test_uint64_goes_with_no_signed_integer():
    with pytest.raises(TypeError, match="no integer dtype"):
        ours.add(ours.ones(2, dtype=ours.uint64), ours.ones(2, dtype=ours.int8))


def test_casts():
    for one in ALL:
        for other in ALL:
            wanted = strict.can_cast(getattr(strict, one), getattr(strict, other))
            assert ours.can_cast(getattr(ours, one), getattr(ours, other)) is wanted, f"{one} to {other}"
    x = ours.asarray([1.5, -2.0])
    assert ours.astype(x, ours.float64, copy=False) is x
    assert ours.astype(x, ours.float64) is not x
    assert ours.astype(x, ours.int8).tolist() == [1, -2]
    with pytest.raises(TypeError, match="imaginary"):
        ours.astype(ours.asarray([1j]), ours.float64)
    assert ours.finfo(ours.complex64).dtype is ours.float32 and ours.iinfo(ours.uint16).dtype is ours.uint16


def test_quotients_of_infinities_follow_the_standard():
    """Where NumPy and Python give nan, or -1 for a finite number over an infinity of the other sign."""
    inf, nan = ours.inf, ours.nan
    x1 = ours.asarray([inf, inf, -inf, -inf, 3.0, -3.0, 3.0, -3.0, inf, 0.0, nan, 7.0, -7.0, 1.0])
    x2 = ours.asarray([2.0, -2.0, 2.0, -2.0, -inf, inf, inf, -inf, inf, 0.0, 1.0, 2.0, 2.0, 0.1])
    made = ours.floor_divide(x1, x2)
    np.testing.assert_array_equal(made, [inf, -inf, -inf, inf, -0.0, -0.0, 0.0, 0.0, nan, nan, nan, 3.0, -4.0, 9.0])
    assert made[4:8].signbit().tolist() == [True, True, False, False]


@pytest.mark.parametrize("expression, error", [
    ("xp.isdtype(xp.int8, 'whole')", ValueError), ("xp.isdtype(xp.int8, 8)", TypeError), ("xp.result_type()", ValueError),
    ("xp.squeeze(xp.ones((2, 1)), axis=0)", ValueError), ("xp.nonzero(xp.asarray(1))", ValueError),
    ("xp.reshape(xp.ones((2, 3)).T, (6,), copy=False)", ValueError), ("xp.cumulative_sum(xp.ones((2, 2)))", ValueError),
    ("xp.take(xp.ones((2, 2)), xp.asarray([0]))", ValueError), ("xp.ones(3)[5]", IndexError),
    ("xp.sin(x=xp.ones(1))", TypeError), ("xp.sum(xp.ones(1), 0)", TypeError), ("xp.arange(0, 3, 0)", ValueError),
    ("xp.expand_dims(xp.ones(1), axis=5)", IndexError),
    ("xp.linalg.matrix_transpose(xp.ones(2))", ValueError), ("xp.linalg.cross(xp.ones(2), xp.ones(2))", ValueError),
    ("xp.linalg.qr(xp.ones((2, 2)), mode='r')", ValueError), ("xp.add(1, 2)", ValueError),
    ("xp.ones(1).__array_namespace__(api_version='1999.01')", ValueError),
    ("xp.__array_namespace_info__().dtypes(kind='whole')", ValueError)])
def test_errors(expression, error):
    with pytest.raises(error):
        eval(expression, {"xp": ours})


def test_it_is_imported_when_asked_for():
    program = "import sys, flambeau; print('flambeau.array_api' in sys.modules, flambeau.array_api.pi)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
    assert said.split() == ["False", str(np.pi)]


def test_the_namespace_of_a_tensor():
    x = flambeau.ones(2)
    assert x.__array_namespace__() is ours
    assert all(x.__array_namespace__(api_version=version) is ours for version in ("2022.12", "2023.12", "2024.12"))
    assert ours.isin(x, 1).tolist() == [True, True] and ours.isin(x, 1, invert=True).tolist() == [False, False]


def test_what_it_says_of_itself():
    mine, theirs = ours.__array_namespace_info__(), strict.__array_namespace_info__()
    assert mine.capabilities().keys() >= {"boolean indexing", "data-dependent shapes", "max dimensions"}
    assert mine.default_device() == flambeau.device("cpu") and mine.devices() == [flambeau.device("cpu")]
    for kind in (None, "bool", "integral", "numeric", ("real floating", "complex floating")):
        assert {name: str(d).removeprefix("torch.") for name, d in mine.dtypes(kind=kind).items()} == {
            name: name for name in theirs.dtypes(kind=kind)}
    assert mine.default_dtypes() == {"real floating": ours.float64, "complex floating": ours.complex128,
                                     "integral": ours.int64, "indexing": ours.int64}


def test_gradients_flow_through_it():
    x = flambeau.tensor([0.5, 1.5], requires_grad=True)
    ours.sum(ours.multiply(ours.exp(x), 2)).backward()
    np.testing.assert_allclose(x.grad, 2 * np.exp([0.5, 1.5]), rtol=1e-6)


def test_the_array_object():
    x = ours.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert x.to_device("cpu") is x and x.to_device("meta").device.type == "meta"
    with pytest.raises(ValueError, match="stream"):
        x.to_device("cpu", stream=1)
    assert (x.ndim, tuple(x.shape), x.dtype, x.device) == (2, (2, 2), ours.float64, flambeau.device("cpu"))
    assert (bool(x[0, 0]), int(x[1, 1]), float(x[0, 1]), complex(x[0, 1])) == (True, 4, 2.0, 2 + 0j)
    assert [10, 20, 30][ours.asarray(1)] == 20


# ------------------------------------------------------------------------------------------ other libraries' memory
def test_asarray_shares_what_can_be_shared():
    numbers = np.arange(4.0)
    assert ours.asarray(numbers).data_ptr() == ours.asarray(numbers, copy=False).data_ptr() == numbers.ctypes.data
    assert ours.asarray(numbers, copy=True).data_ptr() != numbers.ctypes.data
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # PyTorch warns of memory that is read-only: here it is copied
        assert ours.asarray(numbers[::-1]).tolist() == ours.asarray(numbers[::-1], copy=True).tolist() == [3, 2, 1, 0]
        assert ours.asarray(np.broadcast_to(1.5, (1, 2))).tolist() == [[1.5, 1.5]]
    with pytest.raises(ValueError, match="stride"):
        ours.asarray(numbers[::-1], copy=False)


@pytest.mark.parametrize("code, dtype", [("b", "int8"), ("B", "uint8"), ("h", "int16"), ("i", "int32"), ("q", "int64"),
                                         ("f", "float32"), ("d", "float64")])
def test_asarray_knows_the_elements_of_a_buffer(code, dtype):
    buffer = array.array(code, [1, 2, 3])
    made = ours.asarray(buffer)
    assert made.dtype is getattr(ours, dtype) and made.tolist() == [1, 2, 3]
    buffer[1] = 7
    assert made.tolist() == [1, 7, 3]
    assert ours.asarray(b"ab").tolist() == [97, 98]
    assert ours.asarray(memoryview(bytes(6)).cast("B", (2, 3))).shape == (2, 3)


def test_from_dlpack():
    numbers = np.arange(4.0)
    shared = [ours.from_dlpack(numbers, **how) for how in ({}, {"copy": False}, {"device": "cpu"})]
    assert {t.data_ptr() for t in shared} == {numbers.ctypes.data}
    assert ours.from_dlpack(numbers, copy=True).data_ptr() != numbers.ctypes.data
    for copy in (None, False, True):
        with pytest.raises(BufferError, match="meta"):
            ours.from_dlpack(numbers, device="meta", copy=copy)
    assert ours.from_dlpack(strict.asarray([1, 2]), device=flambeau.device("cpu")).tolist() == [1, 2]


def test_from_dlpack_asks_for_no_copy_only_when_told_to():
    asked = []

    class Old:
        """A producer from before DLPack 1.0, as it takes no such arguments."""
        def __dlpack_device__(self): return (1, 0)
        def __dlpack__(self, stream=None): return np.arange(2.0).__dlpack__()

    class New(Old):
        def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
            asked.append(copy)
            if copy is False:
                raise BufferError("needs a copy")
            return np.arange(2.0).__dlpack__()
    assert ours.from_dlpack(Old(), copy=False).tolist() == ours.from_dlpack(New()).tolist() == [0, 1]
    with pytest.raises(BufferError, match="needs a copy"):
        ours.from_dlpack(New(), copy=False)
    assert asked == [None, False]


def test_export_through_dlpack():
    x = ours.asarray([1.0, 2.0])
    assert tuple(x.__dlpack_device__()) == (1, 0)
    assert np.shares_memory(np.from_dlpack(x), x.numpy()) and not np.shares_memory(np.from_dlpack(x, copy=True), x.numpy())
    assert '"dltensor_versioned"' in repr(x.__dlpack__(max_version=(1, 0))) and '"dltensor"' in repr(x.__dlpack__())
    with pytest.raises(BufferError):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(AssertionError, match="stream"):
        x.__dlpack__(stream=3)


def test_numpy_takes_tensors():
    x = ours.asarray([1.0, 2.0])
    assert np.shares_memory(np.asarray(x), x.numpy()) and not np.shares_memory(np.array(x), x.numpy())
    assert np.asarray(x, dtype="int32").dtype == "int32"
    with pytest.raises(ValueError, match="copy=False"):
        np.asarray(x, dtype="int32", copy=False)


# --------------------------------------------------------------------------- special values, and what is PyTorch's
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, 2.5, -2.5, 7.25]
OF_REAL_NUMBERS = """abs acos acosh asin asinh atan atanh ceil cos cosh exp expm1 floor isfinite isinf isnan log log10 log1p
    log2 negative positive reciprocal round sign signbit sin sinh sqrt square tan tanh trunc""".split()
OF_COMPLEX_NUMBERS = [name for name in OF_REAL_NUMBERS if name not in ("ceil", "floor", "trunc", "signbit", "sign")]
OF_TWO = """add atan2 copysign divide equal greater greater_equal hypot less less_equal logaddexp maximum minimum multiply
    nextafter not_equal pow remainder subtract""".split()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_special_values_of_real_numbers(dtype):
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    x, y = (part.ravel().astype(dtype) for part in np.meshgrid(SPECIAL, SPECIAL))
    for name in OF_REAL_NUMBERS:
        same(getattr(ours, name)(ours.asarray(x)), getattr(strict, name)(strict.asarray(x)), tolerance, name)
    for name in OF_TWO:
        got, wanted = (getattr(xp, name)(xp.asarray(x), xp.asarray(y)) for xp in (ours, strict))
        same(got, wanted, tolerance, name)


def test_special_values_of_complex_numbers():
    parts = np.meshgrid(SPECIAL, SPECIAL)
    z = (parts[0].astype(complex).ravel())
    z.imag = parts[1].ravel()
    for name in OF_COMPLEX_NUMBERS:
        got, wanted = getattr(ours, name)(ours.asarray(z)), getattr(strict, name)(strict.asarray(z))
        if not got.is_complex():
            same(got, wanted, 1e-12, name)
            continue
        for part in ("real", "imag"):
            np.testing.assert_allclose(getattr(got.resolve_conj().numpy(), part), getattr(np.asarray(wanted), part),
                                       rtol=1e-12, err_msg=name)
    assert ours.sign(ours.asarray([0j, 3 - 4j])).tolist() == [0j, 0.6 - 0.8j]
    assert ours.isnan(ours.sign(ours.asarray([complex("nan"), complex(1, np.nan)]))).all()


def test_complex_numbers_can_be_told_apart():
    """Which array-api-strict leaves out: NumPy's order of them is not the standard's."""
    found = ours.unique_all(ours.asarray([[2j, 1.0], [2j, complex("nan")], [1.0, 2j]]))
    assert found.values[:2].tolist() == [2j, 1.0] and found.values.shape == (3,)
    assert (found.indices.tolist(), found.counts.tolist()) == ([0, 1, 3], [3, 2, 1])
    assert found.inverse_indices.tolist() == [[0, 1], [0, 2], [1, 0]]


@pytest.mark.parametrize("expression", [
    "torch.ones(2, dtype=torch.int8) + torch.ones((), dtype=torch.int64)",
    "torch.ones(2, dtype=torch.uint16) + torch.ones(2, dtype=torch.int8)",
    "torch.ones(2, 2, dtype=torch.int8) @ torch.ones(2, 2, dtype=torch.int16)",
    "torch.tensor([inf, 3.0, -3.0]) // torch.tensor([2.0, -inf, inf])", "torch.ones(3)[::-1]", "torch.ones(2).size()",
    "torch.ones(2, 3)[torch.zeros(2, 0, dtype=torch.bool)]",
    "(torch.tensor([0.0, -0.0, 5.0]) % torch.tensor([-2.0, 2.0, -3.0])).signbit()",
    "(torch.tensor([0.0, -0.0]) % -2).signbit()",
    "torch.sgn(torch.tensor([complex(inf, 1), complex(nan, inf), complex(-inf, -0.0), 0j, 3 + 4j]))",
    "torch.ones(3, dtype=torch.int8).sum()", "torch.sign(torch.tensor(nan))"])
def test_tensors_themselves_stay_pytorchs(expression):
    """Where operators and methods deviate from the standard: docs/array_api.md lists them."""
    pytest.importorskip("torch", reason="PyTorch (extra: oracle) is not installed")
    from compare import agree_on
    flambeau.set_default_dtype(flambeau.float32)
    agree_on(expression)
