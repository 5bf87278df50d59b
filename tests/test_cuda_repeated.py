"""Calls that native code repeats (backends/cuda/repeated.py): later ones are right whatever was remembered of the first."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from cuda_host import needs_gxx

import flambeau as fl
from flambeau.nn import functional as F

pytestmark = [needs_gxx, pytest.mark.usefixtures("cuda")]


def pair(*shape, dtype=fl.float32):
    x = fl.tensor(np.random.default_rng(sum(shape)).normal(size=shape), dtype=dtype)
    return x, x.cuda()


def both(function, *made):
    """The function on the CPU and twice on the device."""
    wanted = function(*[x for x, _ in made])
    for _ in range(3):
        got = function(*[y for _, y in made])
        fl.testing.assert_close(got.cpu(), wanted, rtol=1e-5, atol=1e-6)


def test_operands_at_one_address_are_told_from_others():
    x, y = pair(3, 4), pair(3, 4)
    y[0].add_(1), y[1].add_(1)
    for _ in range(2):
        both(lambda a, b: a * a, x, y)
        both(lambda a, b: a * b, x, y)
        both(lambda a, b: b - a, x, y)
        both(lambda a, b: a - a, x, y)


def test_numbers_are_those_of_the_call():
    x = pair(5)
    for low, high in ((0.5, 0.5), (-1.0, 1.0), (0.1, 0.2)):
        both(lambda a: a.clamp(low, high), x)
    for n in (2, 3, 0.5, -1, 2.5, True):
        both(lambda a: a * n, x)
        both(lambda a: a.abs() ** n, x)
        both(lambda a: F.leaky_relu(a, float(n)), x)
    i = fl.arange(5), fl.arange(5, device="cuda")
    for n in (2, 3, 1 << 40):
        both(lambda a: a + n, i)


@pytest.mark.parametrize("function", [
    lambda a: a.sum(), lambda a: a.sum(0), lambda a: a.mean(1, keepdim=True), lambda a: a.amax(0), lambda a: a.softmax(0),
    lambda a: a.softmax(1), lambda a: F.layer_norm(a, (6,)), lambda a: fl.cat([a, a]), lambda a: fl.cat([a, a[1:]], 0),
    lambda a: fl.stack([a, a + 1], 1), lambda a: a.t().contiguous(), lambda a: a.to(fl.bfloat16).to(fl.float32),
    lambda a: a @ a.t(), lambda a: a.cumsum(1), lambda a: a.clone(), lambda a: a[:, 1:].clone(), lambda a: a.flip(0)])
def test_repeated(function):
    both(function, pair(4, 6))
    both(function, pair(8, 6))
    x = pair(9, 6)
    both(function, tuple(t[1::2] for t in x))
    both(function, tuple(t[1:5] for t in x))  # an address that is no multiple of 16


def test_in_place():
    for other in (lambda a: a, lambda a: a + 1, lambda a: a[:1] + 0, lambda a: 2.5):
        def changed(a, other=other):
            a = a.clone()
            a.mul_(other(a))
            a.add_(other(a))
            a.exp_()
            return a
        both(changed, pair(3, 4))
    x = fl.ones(6, device="cuda")
    for _ in range(3):
        with pytest.raises(RuntimeError, match="single memory location"):
            x[1:].add_(x[:-1])
        with pytest.raises(RuntimeError, match="broadcast shape"):
            x.add_(fl.ones(2, 6, device="cuda"))
    x[:3].add_(x[3:])
    assert x.tolist() == [2, 2, 2, 1, 1, 1]


def test_gradients_are_repeated():
    x, y = pair(4, 6)
    for _ in range(3):
        grads = []
        for leaf in (x.clone().requires_grad_(), y.clone().requires_grad_()):
            ((leaf * 1.5 + leaf).tanh() @ leaf.t()).softmax(1).square().sum().backward()
            grads.append(leaf.grad.cpu())
        fl.testing.assert_close(*grads)


@pytest.mark.parametrize("dtype", [fl.bfloat16, fl.float16])
def test_half_types_are_computed_in_float32(dtype):
    x, y = pair(4, 6, dtype=dtype)
    wide = pair(4, 6)
    for function in (lambda a, b: F.gelu(a, approximate="tanh"), lambda a, b: a.tanh() * 1.01, lambda a, b: a + b,
                     lambda a, b: b / (a.abs() + 1), lambda a, b: fl.where(a > 0, a, b), lambda a, b: a.sigmoid() ** 2,
                     lambda a, b: fl.lerp(a, a * 2, 0.3), lambda a, b: F.silu(a) - 0.1):
        wanted = function(x, wide[0])
        for _ in range(2):
            got = function(y, wide[1])
            assert got.dtype == wanted.dtype
            fl.testing.assert_close(got.cpu(), wanted)
    with fl.autocast("cuda", dtype=dtype):
        made = F.gelu(wide[1] @ wide[1].t()) + wide[1].sum()
        assert (wide[1] @ wide[1].t()).dtype == dtype
        assert wide[1].exp().dtype == fl.float32
        assert made.dtype == dtype or made.dtype == fl.float32


def test_draws_are_not():
    x = fl.ones(64, device="cuda")
    assert not fl.equal(F.dropout(x, 0.5), F.dropout(x, 0.5)) or not fl.equal(F.dropout(x, 0.5), F.dropout(x, 0.5))
    q = fl.ones(1, 1, 8, 16, device="cuda")
    torn = [F.scaled_dot_product_attention(q, q, q, dropout_p=0.5) for _ in range(4)]
    assert any([not fl.equal(torn[0], t) for t in torn[1:]])


def test_fills_and_ranges():
    for dtype in (fl.float32, fl.float64, fl.bfloat16, fl.float16, fl.int64, fl.int8, fl.uint8, fl.bool, fl.complex64,
                  fl.complex128):
        for value in (0, 1, 3):
            made = fl.full((3, 5), value, dtype=dtype, device="cuda")
            assert fl.equal(made.cpu(), fl.full((3, 5), value, dtype=dtype))
            made[:, ::2] = value + 1
            assert made[:, ::2].cpu().tolist() == fl.full((3, 3), value + 1, dtype=dtype).tolist()
            assert made[:, 1::2].cpu().tolist() == fl.full((3, 2), value, dtype=dtype).tolist()
        assert fl.equal(fl.eye(3, 5, dtype=dtype, device="cuda").cpu(), fl.eye(3, 5, dtype=dtype))
    minus = fl.full((2,), -0.0, device="cuda").cpu()
    assert fl.signbit(minus).all()
    for dtype in (fl.int64, fl.int32, fl.uint8, fl.float32, fl.float64, fl.bfloat16):
        for start, end, step in ((0, 10, 1), (3, 50, 7)):
            fl.testing.assert_close(fl.arange(start, end, step, dtype=dtype, device="cuda").cpu(),
                                    fl.arange(start, end, step, dtype=dtype))
        for steps in (1, 2, 7):
            fl.testing.assert_close(fl.linspace(1, 9, steps, dtype=dtype, device="cuda").cpu(),
                                    fl.linspace(1, 9, steps, dtype=dtype))
    fl.testing.assert_close(fl.arange(0.5, 4, 0.3, device="cuda").cpu(), fl.arange(0.5, 4, 0.3))
    assert fl.arange(5, -5, -2, device="cuda").tolist() == [5, 3, 1, -1, -3]


def test_memory_is_counted():
    x = fl.ones(1000, device="cuda")
    x * 2, x * 2
    before = fl.cuda.memory_allocated()
    y = x * 2
    assert fl.cuda.memory_allocated() == before + 4096
    fl.cuda.reset_peak_memory_stats()
    z = x * 2
    del y, z
    assert fl.cuda.memory_allocated() == before
    assert fl.cuda.max_memory_allocated() == before + 8192


def test_threads_and_streams_take_memory_of_their_own():
    x, wanted = fl.ones(100, device="cuda"), []

    def work(stream):
        with fl.cuda.stream(stream):
            for _ in range(20):
                made = x * 3
            wanted.append((made.sum().item(), made._array.base.home.stream))

    streams = [fl.cuda.Stream(), fl.cuda.current_stream()]
    for stream in streams:  # one by one: the memory that the host plays is shut for all threads at once
        thread = threading.Thread(target=work, args=(stream,))
        thread.start()
        thread.join()
    assert sorted(wanted) == sorted([(300.0, s.cuda_stream) for s in streams])


def test_a_block_that_another_stream_uses_comes_back():
    x = fl.ones(100, device="cuda")
    before = fl.cuda.memory_allocated()
    y = x * 2
    y.record_stream(fl.cuda.Stream())
    del y
    assert fl.cuda.memory_allocated() == before
