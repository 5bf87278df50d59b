"""Picking, replacing and adding up by position on a CUDA device, beside the CPU. Without a GPU the host plays one."""

from __future__ import annotations

import pytest
from cuda_host import needs_gxx
from test_cuda import agree, draw
from test_cuda_rows import with_gradients

import flambeau as fl
import flambeau.nn.functional as F

pytestmark = needs_gxx
AT = fl.tensor([2, 0, 2, 1, 3, 2])


def test_rows_are_taken(cuda):
    x = draw(4, 5, 6)
    with_gradients(lambda x, i: x.index_select(1, i), x, AT)
    with_gradients(lambda x, i: x[i], x, AT - 2)
    with_gradients(lambda x, i: x[:, i], x, AT.reshape(2, 3) - 2)
    agree(lambda x, i: (x.transpose(0, 2)[:, i], x[i.int()], x.take(i * 7), x[:0][:, i], x[i[:0]]), x, AT)
    agree(lambda x, i: x[i], draw(8, 2048), AT)
    for dtype in (fl.bool, fl.int8, fl.bfloat16, fl.float64, fl.complex64, fl.complex128):
        agree(lambda x, i: x[i], draw(4, 4, dtype=dtype), AT)


def test_several_index_arrays(cuda):
    x, i, j = draw(4, 5, 6), AT, fl.tensor([[0], [-3]])
    with_gradients(lambda x, i, j: x[i, j], x, i, j)
    with_gradients(lambda x, i, j: x[:, i, j], x, i, j)
    with_gradients(lambda x, i, j: x[i, :, j], x, i, j)
    agree(lambda x, i: x[i, i, i], x, i)
    with pytest.raises(IndexError, match="indexing tensors could not be broadcast together"):
        x.to(cuda)[i.to(cuda), i[:4].to(cuda)]


def test_embedding(cuda):
    at = fl.tensor([[1, 5, 5], [0, 5, 2]])
    with_gradients(lambda w, i: F.embedding(i, w), draw(7, 5), at)
    with_gradients(lambda w, i: F.embedding(i, w, padding_idx=5), draw(7, 5), at)
    with_gradients(lambda w, i: F.embedding(i, w, scale_grad_by_freq=True), draw(7, 5), at)
    with_gradients(lambda w, i: F.embedding(i, w), draw(7, 4, dtype=fl.bfloat16), at)
    many = (fl.arange(5000) * 7919) % 11
    with_gradients(lambda w, i: F.embedding(i, w), draw(11, 3, dtype=fl.float64), many)
    with_gradients(lambda w, i: F.embedding(i, w), draw(390, 35), (many * 31) % 390)  # too many for a table of each warp
    with_gradients(lambda w, i: F.embedding(i, w, padding_idx=3), draw(65, 40), many[:700] * 5)
    agree(lambda x, i, s: x.index_add(0, i, s), draw(20, 33), many[:200], draw(200, 33, seed=1))


def test_gather_and_scatter(cuda):
    x, at = draw(3, 5, 4), fl.tensor([[[0, 4, 2], [1, 1, 3]]]).expand(2, 2, 3)
    with_gradients(lambda x, i: x.gather(1, i), x, at)
    agree(lambda x, i: (x.transpose(1, 2).gather(2, i), x[0, 0].gather(0, i[0, 0] * 0), x.gather(0, i[:, :, :0])), x, at % 4)
    source = draw(2, 2, 3, seed=1)
    unlike = fl.tensor([[[0, 4, 2], [1, 2, 3]]]).expand(2, 2, 3)  # which of equal positions stays is open
    with_gradients(lambda x, i, s: x.scatter(1, i, s), x, unlike, source)
    agree(lambda x, i: (x.scatter(1, i, 2.5), x.clone().transpose(0, 1).scatter_(0, i.transpose(0, 1), -1.0)), x, at)
    with_gradients(lambda x, i, s: x.scatter_add(1, i, s), x, at, source)
    agree(lambda x, i, s: x.to(fl.int64).scatter_add(1, i, s.to(fl.int64)), x, at, source)
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        for own in (True, False):
            agree(lambda x, i, s, r=reduce, o=own: x.scatter_reduce(1, i, s, r, include_self=o), x, at, source)
    agree(lambda x, i, s: (x.scatter(1, i, s, reduce="add"), x.scatter(1, i, s, reduce="multiply")), x, at, source)


def test_adding_and_replacing(cuda):
    x, source = draw(4, 5, 6), draw(4, 6, 6, seed=1)
    with_gradients(lambda x, i, s: x.index_add(1, i, s, alpha=0.5), x, AT, source)
    apart = fl.tensor([3, 0, 1])
    with_gradients(lambda x, i, s: x.index_copy(1, i, s[:, :3]), x, apart, source)
    agree(lambda x, i: (x.index_fill(1, i, 3.0), x.clone().transpose(0, 1).index_fill_(2, i, 2.0)), x, AT)
    agree(lambda x, i, s: x.index_reduce(1, i, s, "amax"), x, AT, source)
    agree(lambda x, i, s: x.put(i, s[0, :1], accumulate=True), x, AT + 20, source)
    agree(lambda x, i, s: x.put(i, s[0, 0, :3]), x, apart + 20, source)  # which of two writes to one place stays is open


def test_index_put(cuda):
    def assigned(x, i, v):
        x = x.clone()
        x[i] = v
        x[:, i] = 3.0
        x[0, i, 2:4] = v[0, :1, 2:4]
        return x
    agree(assigned, draw(4, 5, 6), fl.tensor([3, 0]), draw(2, 5, 6, seed=1))
    at = (AT, AT - 1)
    agree(lambda x, v, i, j: x.index_put((i, j), v, accumulate=True), draw(4, 5, 6), draw(6, 6, seed=1), *at)
    agree(lambda x, v, i, j: x.index_put((i, j), v[0], accumulate=True), draw(4, 5), draw(6, 6, seed=1), *at)


def test_masks(cuda):
    x = draw(4, 5, 6)
    with_gradients(lambda x: x[x > 1], x)
    with_gradients(lambda x: x.masked_fill(x > 1, 0.5), x)
    agree(lambda x: (x.masked_fill(x[0] > 0, 2.0), x.clone().masked_fill_(x > 0, x[0, 0, 0]), x[x[:, :, 0] > 0]), x)
    agree(lambda x: (x.nonzero(), (x > 0).nonzero(), (x[0, 0, 0] > 5).nonzero()), x.relu())
    agree(lambda x: (x > 2).nonzero(), draw(100, 101))
    assert x[:0].to(cuda).nonzero().shape == (0, 3)
    agree(lambda x: (x.masked_select(x > 0), x.masked_select(x[0] > 0), x.masked_scatter(x > 0, x * 2)), x)

    def assigned(x):
        x = x.clone()
        x[x > 1] = 0
        x[x < -1] = fl.ones((), device=x.device)
        x[:, x[0, :, 0] > 0] *= 2
        return x
    agree(assigned, x)


def test_triangles_and_one_hot(cuda):
    x = draw(2, 5, 6)
    with_gradients(lambda x: x.tril(), x)
    agree(lambda x: (x.tril(1), x.triu(-1), x.triu(2), x.transpose(1, 2).tril(), x[:, ::2].triu()), x)
    agree(lambda x: (x.tril(), x[:, :0].tril()), draw(3, 5, 6, dtype=fl.bool))
    agree(lambda i: (F.one_hot(i), F.one_hot(i, 7)), AT)


def test_positions_of_the_host(cuda):
    x = draw(4, 5)
    fl.testing.assert_close(x.to(cuda)[AT].cpu(), x[AT])  # index arrays may be the CPU's, as in PyTorch
    fl.testing.assert_close(x.to(cuda)[[2, 0]].cpu(), x[[2, 0]])
    for run in (lambda: x.to(cuda).gather(0, AT[None, :5] * 0), lambda: F.embedding(AT, x.to(cuda)),
                lambda: x.to(cuda).index_add(0, AT[:4], x), lambda: F.nll_loss(x[0].to(cuda), AT[0]),
                lambda: F.cross_entropy(x.to(cuda), AT[:4])):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            run()


def test_positions_out_of_range(cuda):
    x, bad = draw(4, 5).to(cuda), fl.tensor([0, 4]).to(cuda)
    for run, error in ((lambda: x[bad], "index 4 is out of bounds for dimension 0 with size 4"),
                       (lambda: x[bad - 8], "index -8 is out of bounds for dimension 0 with size 4"),
                       (lambda: F.embedding(bad, x), "index out of range in self"),
                       (lambda: x.index_select(0, bad), "index out of range in self"),
                       (lambda: x.index_add(0, bad, x[:2]), "index out of range in self"),
                       (lambda: x.take(bad * 5), "out of range: tried to access index 20 on a tensor of 20 elements")):
        with pytest.raises(IndexError, match=error):
            run().cpu()
    F.embedding(bad, x)
    with pytest.raises(IndexError, match="index out of range in self"):
        fl.cuda.synchronize()
    with pytest.raises(RuntimeError, match="index 4 is out of bounds for dimension 0 with size 4"):
        x.gather(0, bad[None]).cpu()
    fl.testing.assert_close(x[bad - 1].cpu(), x.cpu()[(bad - 1).cpu()])  # and all is well again
