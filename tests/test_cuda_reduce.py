"""Extremes, scans, sorts and tests on a CUDA device, beside the CPU. Without a GPU the host plays one."""

from __future__ import annotations

import pytest
from cuda_host import needs_gxx
from test_cuda import agree, draw
from test_cuda_rows import with_gradients

import flambeau as fl

pytestmark = needs_gxx
NAN = float("nan")


def twice(x):
    """With equal elements, so that their order counts."""
    return (x * 2).round() / 2


# ----------------------------------------------------------------------------------------------------------- extremes
@pytest.mark.parametrize("dtype", [fl.float32, fl.int64])
def test_places_of_extremes(dtype, cuda):
    x = twice(draw(4, 5, 6)).to(dtype)
    for dim in (0, 1, 2):
        agree(lambda x, d=dim: (*x.max(d), *x.min(d), x.argmax(d), x.argmin(d, keepdim=True)), x)
    agree(lambda x: (x.argmax(), x.argmin(), x.max(), x.min(), x[:, ::2, 1:].argmax(1), x[0, 0, 0].argmax(0)), x)


def test_extremes_of_many(cuda):
    x = draw(3, 9001)
    agree(lambda x: (x.argmax(), x.argmin(1), *x.max(1), *x.T.max(0), *x.aminmax()), x)
    with_gradients(lambda x: x.max(1)[0], x)
    x[1, 5000] = x[1, 8000] = NAN
    agree(lambda x: (x.argmax(), x.argmin(1), *x.max(1)), x)


# ----------------------------------------------------------------------------------------------------- sums over rows
@pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16, fl.uint8])
def test_folds_of_columns(dtype, cuda):
    """Runs of columns, odd ones, and columns that are cut into chunks; also of rows that start anywhere."""
    for shape in ((6, 16), (5, 7), (300, 40), (9000, 16), (3000, 33)):
        x = (draw(*shape) * 8).round().clamp(0, 200).to(dtype)
        agree(lambda x: (x.sum(0, dtype=fl.float64), x.amax(0), x[:, None].amax((0, 1))), x)
    agree(lambda x: x.reshape(-1)[3:3 + 5 * 16].reshape(5, 16).amax(0), x)


def test_sums_over_rows_do_not_change(cuda):
    x = draw(9000, 24).to(cuda)
    assert all([fl.equal(x.sum(0).cpu(), x.sum(0).cpu()) for _ in range(3)])
    fl.testing.assert_close(x.bfloat16().sum(0).cpu().float(), x.cpu().bfloat16().float().sum(0), rtol=2 ** -7, atol=0.5)


# -------------------------------------------------------------------------------------------------------- other folds
@pytest.mark.parametrize("dtype", [fl.float32, fl.bool, fl.uint8])
def test_tests_and_products(dtype, cuda):
    x = (draw(4, 5, 6) * (draw(4, 5, 6, seed=1) > 0)).to(dtype)
    agree(lambda x: (x.any(), x.all(), x.any(1), x.all(2, keepdim=True), x.count_nonzero(), x.count_nonzero(1)), x)
    agree(lambda x: (x[:, :0].any(1), x[:, :0].all(1), x[:, :0].sum(1)), x)
    if dtype is not fl.bool:
        agree(lambda x: (x.prod(), x.prod(1), x[:, :0].prod(1)), x.clamp(1, 2) if dtype is fl.uint8 else x[:3, :3, :3])
    if dtype is fl.float32:
        x[1, 2] = NAN
        agree(lambda x: (x.nansum(), x.nansum(1), x.any(2), x.prod(1)), x)


# -------------------------------------------------------------------------------------------------------------- scans
@pytest.mark.parametrize("dtype", [fl.float32, fl.int32])
def test_running(dtype, cuda):
    x = twice(draw(4, 5, 6)).to(dtype)
    for dim in (0, 2):
        agree(lambda x, d=dim: (x.cumsum(d), x.cumprod(d), *x.cummax(d), *x.cummin(d)), x)
    agree(lambda x: (x.transpose(0, 2).cumsum(1).contiguous(), x[:, :0].cumsum(1), x[0, 0, 0].cumsum(0)), x)
    agree(lambda x: x.cumsum(1, dtype=fl.float64), x)


def test_running_over_many(cuda):
    x = draw(2, 17_000, dtype=fl.float64)
    agree(lambda x: (x.cumsum(1), *x.cummax(1), x.logcumsumexp(1)), x)
    with_gradients(lambda x: x.cumsum(1), x)
    agree(lambda x: x.cumsum(0), draw(40_000, 1).int())
    x = draw(3, 40)
    with_gradients(lambda x: x.cumprod(1), x)
    with_gradients(lambda x: x.logcumsumexp(0), x)
    x[1, 3] = NAN
    x[2, 4], x[0, 0] = float("inf"), -float("inf")
    agree(lambda x: (x.cumsum(1), *x.cummax(1), *x.cummin(1), x.logcumsumexp(1)), x)


# -------------------------------------------------------------------------------------------------------------- sorts
@pytest.mark.parametrize("dtype", [fl.float32, fl.float64, fl.bfloat16, fl.int64, fl.uint8, fl.bool])
def test_sort(dtype, cuda):
    x = twice(draw(5, 40)).to(dtype)
    agree(lambda x: (*x.sort(1, stable=True), *x.sort(1, descending=True, stable=True), x.argsort(0, stable=True)), x)


def test_sort_of_many(cuda):
    x = twice(draw(2, 5000))
    x[0, 7] = x[1, 4000] = NAN
    x[0, 9], x[0, 11], x[1, 0] = -0.0, 0.0, -float("inf")
    agree(lambda x: (*x.sort(1, stable=True), *x.sort(1, descending=True, stable=True)), x)
    agree(lambda x: x.sort(-1, stable=True), draw(300))


def test_sorted_parts(cuda):
    x = draw(3, 40, 2)
    with_gradients(lambda x: x.topk(7, 1)[0], x)
    agree(lambda x: (*x.topk(7, 1), *x.topk(3, 1, largest=False), *x.kthvalue(5, 1), *x.kthvalue(2, 2, keepdim=True)), x)
    agree(lambda x: (*x.median(1), x.median(), *x.nanmedian(1), *x.int().median(1)), x)
    x[1, 3, 0] = x[1, 4, 0] = NAN
    agree(lambda x: (*x.median(1), x.median(), *x.nanmedian(1), x.nanmedian()), x)


# ----------------------------------------------------------------------------------------------------------- counting
def test_counting(cuda):
    at = fl.tensor([3, 0, 3, 5, 3])
    agree(lambda i: (i.bincount(), i.bincount(minlength=9), i[:0].bincount(), i.bincount(i.float() / 3)), at)
    with pytest.raises(RuntimeError, match="non-negative"):
        (at.to(cuda) - 1).bincount()
    agree(lambda x: (x.histc(7), x.histc(5, -1, 2), x[:0].histc(4)), draw(300))


def test_searching(cuda):
    edges, values = draw(3, 9).sort(-1)[0], fl.cat([draw(3, 5, seed=1), draw(3, 9).sort(-1)[0][:, 2:4]], 1)
    values[1, 1] = NAN
    for right in (False, True):
        agree(lambda e, v, r=right: (fl.searchsorted(e, v, right=r), fl.searchsorted(e[0].contiguous(), v, right=r),
                                     fl.bucketize(v, e[1].contiguous(), out_int32=True, right=r)), edges, values)


def test_distinct_elements(cuda):
    x = twice(draw(4, 30))
    agree(lambda x: (x.unique(), *x.unique(return_inverse=True, return_counts=True), x[:0].unique(), x[0, :1].unique()), x)
    agree(lambda x: x.unique_consecutive(return_inverse=True, return_counts=True), (x > 0).long())
