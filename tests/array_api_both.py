"""The array API's two namespaces, flambeau's and array-api-strict's, and what it means that a result of both is the same."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import flambeau
import flambeau.array_api as ours  # noqa: F401  (for those who import it from here)

strict = pytest.importorskip("array_api_strict", reason="array-api-strict (extra: test) is not installed")

KINDS = {"b": "bool", "i": "int8 int16 int32 int64", "u": "uint8 uint16 uint32 uint64", "f": "float32 float64",
         "c": "complex64 complex128"}
DTYPES = {letter: names.split() for letter, names in KINDS.items()}
ALL = [name for names in DTYPES.values() for name in names]


@pytest.fixture(autouse=True)
def double_by_default():
    """array-api-strict makes float64 where nothing is said."""
    before = flambeau.get_default_dtype()
    flambeau.set_default_dtype(flambeau.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, about infinities
        yield
    flambeau.set_default_dtype(before)


def same(got, wanted, tolerance: float, where: str) -> None:
    """Fails unless dtype, shape and values are the same, signs of zeros included."""
    if isinstance(wanted, tuple):
        assert len(got) == len(wanted), where
        for one, other in zip(got, wanted):
            same(one, other, tolerance, where)
        return
    if isinstance(wanted, strict._dtypes.DType):
        assert str(got).removeprefix("torch.") == str(wanted).removeprefix("array_api_strict."), where
        return
    if type(wanted) in (int, float, bool):
        assert type(got) is type(wanted), where
        assert got == wanted or (got != got and wanted != wanted), f"{where}: {got}, not {wanted}"
        return
    assert isinstance(got, flambeau.Tensor), where
    got, wanted = got.resolve_conj().numpy(), np.asarray(wanted)
    assert got.dtype == wanted.dtype, f"{where}: {got.dtype}, not {wanted.dtype}"
    assert got.shape == wanted.shape, f"{where}: {got.shape}, not {wanted.shape}"
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance if wanted.dtype.kind in "fc" else 0, err_msg=where)
    if wanted.dtype.kind == "f":
        zeros = (wanted == 0) & (got == 0)
        np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(wanted[zeros]), err_msg=where)
