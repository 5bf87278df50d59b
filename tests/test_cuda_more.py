"""Kernels of a CUDA device for rarer operations, beside the CPU. Without a GPU the host plays one."""

from __future__ import annotations

import gc

import pytest
from cuda_host import needs_gxx
from test_cuda import agree, draw
from test_cuda_rows import with_gradients

import flambeau as fl
import flambeau.nn.functional as F
from flambeau.ops.shape.views import clone_strided

pytestmark = needs_gxx
AT = fl.tensor([2, 0, 2, 1, 3, 2])


# ------------------------------------------------------------------------------------------------------------ positions
def pulled_back(function):
    """The gradient of a function's first argument, with its result as what comes from above."""
    def run(x, *rest):
        x = x.detach().requires_grad_()
        made = function(x, *rest)
        made.backward(made.detach())
        return x.grad
    return run


@pytest.mark.parametrize("dtype", [fl.complex64, fl.complex128])
def test_complex_numbers_are_added_up(dtype, cuda):
    x, source, apart = draw(4, 5, dtype=dtype), draw(6, 5, dtype=dtype, seed=1), fl.tensor([3, 0, 1])
    at = AT[:, None].expand(6, 5).contiguous()
    agree(lambda x, i, s: (x.index_add(0, i, s), x.index_add(0, i, s, alpha=0.5)), x, AT, source)
    agree(lambda x, i, s: (x.scatter_add(0, i, s), x.gather(0, i)), x, at, source)
    agree(lambda x, i, s: x.index_put((i,), s, accumulate=True), x, AT, source)
    agree(lambda x, i, s: x.scatter(0, i[:, None].expand(3, 5), s[:3]), x, apart, source)
    agree(pulled_back(lambda x, i: x[i]), x, AT)
    agree(pulled_back(lambda x, i: x.gather(0, i)), x, at)
    agree(pulled_back(lambda x, i: x.index_select(0, i)), x, AT)


# ------------------------------------------------------------------------------------------------- sorted and counted
def test_most_frequent_elements(cuda):
    x = (draw(5, 40) * 2).round()
    agree(lambda x: (*x.mode(), *x.mode(0), *x.mode(1, keepdim=True)), x)
    agree(lambda x: x.mode(), (draw(3, 700) * 3).to(fl.int64))
    agree(lambda x: x.mode(), draw())
    x[0, 3] = x[0, 7] = float("nan")
    agree(lambda x: x.mode()[1], x)


def test_histograms(cuda):
    x, weight = draw(300), draw(300, seed=1).abs()
    agree(lambda x: fl.histogram(x, 7), x)
    agree(lambda x, w: fl.histogram(x, 5, range=(-1.0, 1.0), weight=w, density=True), x, weight)
    agree(lambda x, e: fl.histogram(x, e), x, fl.tensor([-1.0, -0.5, 0.25, 1.0]))
    points = draw(100, 2)
    agree(lambda p: (fl.histogramdd(p, [3, 4]).hist, *fl.histogramdd(p, [3, 4], density=True).bin_edges), points)


def test_searches_by_an_order(cuda):
    edges, values = draw(3, 9), draw(3, 5, seed=1)
    agree(lambda e, v: fl.searchsorted(e, v, sorter=e.argsort(-1)), edges, values)
    agree(lambda e, v: fl.searchsorted(e[0], v, right=True, sorter=e[0].argsort(-1)), edges, values)
    agree(lambda e: (fl.searchsorted(e, 0.25), fl.bucketize(1, e)), edges[0].sort().values)


def test_copies_with_holes(cuda):
    holes = lambda x: fl.as_strided(clone_strided(x, (1, 4)), (10,), (1,))
    agree(holes, draw(2, 3))


def test_hashes(cuda):
    for dtype in (fl.float32, fl.float64, fl.bfloat16, fl.int64, fl.int8):
        x = (draw(4, 5) * 9).to(dtype)
        agree(lambda x: (fl.hash_tensor(x), fl.hash_tensor(x, 1), fl.hash_tensor(x, 0, keepdim=True)), x)


# ------------------------------------------------------------------------------------------------------------ embeddings
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(mode, cuda):
    weight, at, starts = draw(7, 5), fl.tensor([1, 5, 5, 0, 5, 2, 6, 1, 1]), fl.tensor([0, 2, 2, 6])
    with_gradients(lambda w, i, o: F.embedding_bag(i, w, o, mode=mode), weight, at, starts)
    with_gradients(lambda w, i, o: F.embedding_bag(i, w, o, mode=mode, padding_idx=5), weight, at, starts)
    with_gradients(lambda w, i, o: F.embedding_bag(i, w, o, mode=mode, include_last_offset=True), weight, at, starts)
    with_gradients(lambda w, i: F.embedding_bag(i, w, mode=mode), weight.to(fl.bfloat16), at.reshape(3, 3))
    with_gradients(lambda w, i, o: F.embedding_bag(i[:0], w, o, mode=mode), weight, at, fl.tensor([0, 0]))
    if mode != "max":
        with_gradients(lambda w, i, o: F.embedding_bag(i, w, o, mode=mode, scale_grad_by_freq=True), weight, at, starts)
    if mode == "sum":
        given = weight, at, starts, draw(9)
        with_gradients(lambda w, i, o, s: F.embedding_bag(i, w, o, mode=mode, per_sample_weights=s), *given)
    with pytest.raises(RuntimeError, match="found idx to be 7"):
        F.embedding_bag(at.to(cuda) + 1, weight.to(cuda), starts.to(cuda), mode=mode).cpu()


def test_rows_are_kept_short(cuda):
    at = fl.tensor([[1, 5, 5], [0, 5, 2]])
    for order in (2.0, 1.0, 3.0, float("inf")):
        def looked_up(w, i, order=order):
            w = w.clone()
            return F.embedding(i, w, max_norm=0.5, norm_type=order), w
        agree(looked_up, draw(7, 300), at)
    agree(lambda w, i: F.embedding_bag(i, w.clone(), max_norm=0.5), draw(7, 3), at)


# --------------------------------------------------------------------------------------------------------------- losses
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_margins_of_several_labels(reduction, cuda):
    x, target = draw(3, 5), fl.tensor([[3, 0, -1, 1, 2], [-1, 0, 1, 2, 3], [1, 1, 4, 0, 2]])
    with_gradients(lambda x, t: F.multilabel_margin_loss(x, t, reduction=reduction), x, target)
    with_gradients(lambda x, t: F.multilabel_margin_loss(x, t, reduction=reduction), x[0].double(), target[0])


@pytest.mark.parametrize("dtype", [fl.float32, fl.float64])
def test_ctc(dtype, cuda):
    x = draw(12, 4, 6, dtype=dtype).log_softmax(2)
    targets, inputs, lengths = fl.tensor([[1, 2, 2], [3, 0, 0], [5, 1, 5], [4, 4, 4]]), [12, 10, 7, 3], [3, 1, 2, 3]
    given = (fl.tensor(inputs), fl.tensor(lengths))
    with_gradients(lambda x, t: F.ctc_loss(x, t, inputs, lengths, zero_infinity=True), x, targets)
    with_gradients(lambda x, t, i, n: F.ctc_loss(x, t, i, n, reduction="sum", blank=5, zero_infinity=True), x, targets, *given)
    agree(lambda x, t: F.ctc_loss(x, t, inputs, lengths, reduction="none"), x, targets)
    joined = fl.tensor([1, 2, 2, 3, 5, 1, 4, 3])
    with_gradients(lambda x, t: F.ctc_loss(x, t, (12, 10, 7, 8), (3, 1, 2, 2)), x, joined)
    agree(pulled_back(lambda x, t: F.ctc_loss(x, t, inputs, lengths)), x, targets)  # one sequence is impossible
    with_gradients(lambda x, t: F.ctc_loss(x, t, (12,), (3,)), x[:, 0], targets[0])


# ------------------------------------------------------------------------------------------------------------- launches
def test_a_launch_keeps_what_it_needs(cuda):
    from flambeau.backends.cuda.launch import Plan, kernel
    text = '#include "elements.cuh"\nextern "C" __global__ void one(const long n, float *o) {\n' \
           '    for (long i = 0; i < n; i++) o[i] = 7;\n}\n'
    x = fl.zeros(5, device=cuda)
    run = Plan(kernel(text, "one", 0), 0, 1, 1, "p", (5).to_bytes(8, "little")).run
    gc.collect()
    [bytearray(200) for _ in range(1000)]
    run(x._array)
    assert x.tolist() == [7.0] * 5


# --------------------------------------------------------------------------------------------------------------- sparse
def test_sparse_tensors_are_all_on_the_device(cuda):
    at, values = [[0, 2, 0], [1, 0, 1]], [1.0, 2.0, 3.0]
    made = fl.sparse_coo_tensor(at, values, (3, 2), device=cuda)
    assert made._indices().is_cuda
    assert made._values().is_cuda
    fl.testing.assert_close(made.to_dense().cpu(), fl.sparse_coo_tensor(at, values, (3, 2)).to_dense())
    assert fl.sparse_coo_tensor(at, fl.tensor(values, device=cuda)).device == fl.device("cuda:0")
    assert fl.sparse_coo_tensor(fl.tensor(at), fl.tensor(values), device=cuda)._indices().is_cuda
    assert fl.sparse_coo_tensor((3, 2), device=cuda)._indices().is_cuda
    there = made.cpu()
    assert (there.device.type, there._indices().device.type) == ("cpu", "cpu")
    for back in (there.cuda(), there.to(cuda)):
        assert back._indices().is_cuda
        assert back.is_cuda
