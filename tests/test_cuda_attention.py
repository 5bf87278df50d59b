"""Attention on a CUDA device beside the CPU: in half precision tile by tile, else by products."""

from __future__ import annotations

import pytest
from cuda_host import needs_gxx
from test_cuda import draw

import flambeau as fl
from flambeau.nn import functional as F

pytestmark = needs_gxx
HALF = dict(rtol=0.02, atol=0.02)  # weights and results are rounded to 8 bits (bfloat16)


def attend(*shapes, dtype=fl.float32, tolerance=None, heads_inside=False, mask=None, backward=True, **arguments):
    """The result and the gradients of query, key and value; half precision beside the CPU in single."""
    wide = fl.float32 if dtype.itemsize == 2 else dtype
    given = [(draw(*shape, seed=i) / 3).to(dtype) for i, shape in enumerate(shapes)]
    made = []
    for device, kind in (("cpu", wide), ("cuda", dtype)):
        leaves = [x.detach().to(device, kind).requires_grad_(backward) for x in given]
        seen = [x.transpose(1, 2) for x in leaves] if heads_inside else leaves
        there = None if mask is None else mask.to(device) if mask.dtype is fl.bool else mask.to(device, kind)
        y = F.scaled_dot_product_attention(*seen, attn_mask=there, **arguments)
        if backward:
            y.backward((draw(*y.shape, seed=9) / 3).to(dtype).to(device, kind))
        made.append((y, [y.detach(), *[x.grad for x in leaves if backward]]))
    assert made[1][0].dtype is dtype
    assert made[0][0].stride() == made[1][0].stride()
    for on_cpu, on_device in zip(made[0][1], made[1][1]):
        assert on_device.is_cuda
        fl.testing.assert_close(on_device.cpu().to(wide), on_cpu, **tolerance or (HALF if dtype.itemsize == 2 else {}))


SHAPE = (2, 3, 9, 8)


@pytest.mark.parametrize("dtype", [fl.float32, fl.float64])
def test_by_products(dtype, cuda):
    attend(SHAPE, SHAPE, SHAPE, dtype=dtype)
    attend(SHAPE, SHAPE, SHAPE, dtype=dtype, is_causal=True)
    attend((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4), dtype=dtype, scale=0.3)
    attend((2, 9, 3, 8), (2, 9, 3, 8), (2, 9, 3, 8), dtype=dtype, heads_inside=True, is_causal=True)


def test_masks(cuda):
    shapes = (2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)
    allowed = draw(2, 1, 5, 7) > 0
    allowed[0, 0, 2] = False  # a row that sees nothing
    attend(*shapes, mask=allowed)
    attend(*shapes, mask=draw(5, 7))
    attend(*shapes, mask=draw(2, 3, 1, 7))
    attend((5, 8), (7, 8), (7, 8))
    attend((3, 5, 8), (3, 7, 8), (3, 7, 8), mask=draw(3, 5, 7))


def test_pieces(cuda, monkeypatch):
    from flambeau.backends.cuda import attention
    for room in (150, 30):  # one head at a time, then a few rows of one
        monkeypatch.setattr(attention, "_SCORES", room)
        attend(SHAPE, SHAPE, SHAPE, is_causal=True)


def test_grouped_heads(cuda):
    attend((1, 4, 5, 8), (1, 2, 6, 8), (1, 2, 6, 8), enable_gqa=True)


@pytest.mark.parametrize("dtype", [fl.bfloat16, fl.float16])
def test_flash(dtype, cuda):
    attend((1, 2, 70, 32), (1, 2, 70, 32), (1, 2, 70, 32), dtype=dtype, is_causal=True)
    attend((1, 66, 2, 32), (1, 66, 2, 32), (1, 66, 2, 32), dtype=dtype, heads_inside=True)


FINE = dict(rtol=2e-3, atol=2e-3)  # 11 bits (float16)
LONGER, SHORTER = (1, 1, 300, 64), (1, 1, 131, 64)
BY_WARPGROUPS = {  # (shapes, arguments)
    "one tile": ([(1, 1, 70, 64)] * 3, {}),
    "tiles that add up, causal": ([(1, 2, 270, 64)] * 3, dict(is_causal=True)),
    "more keys": ([SHORTER, LONGER, LONGER], dict(scale=0.3)),
    "more keys, causal": ([SHORTER, LONGER, LONGER], dict(is_causal=True)),
    "more queries": ([LONGER, SHORTER, SHORTER], {}),
    "deep": ([(1, 1, 150, 128)] * 3, dict(is_causal=True)),
    "deep, more keys": ([(1, 1, 10, 128), (1, 1, 270, 128), (1, 1, 270, 128)], {}),
    "heads inside": ([(2, 140, 2, 64)] * 3, dict(is_causal=True, heads_inside=True)),
    "grouped heads": ([(1, 4, 33, 64), (1, 2, 40, 64), (1, 2, 40, 64)], dict(enable_gqa=True)),
}


@pytest.mark.parametrize("case", BY_WARPGROUPS)
def test_by_warpgroups(case, cuda, monkeypatch):
    from flambeau.backends.cuda import flash_hopper
    met = []
    for name in ("forward", "backward"):
        monkeypatch.setattr(flash_hopper, name, lambda *a, f=getattr(flash_hopper, name), n=name: met.append(n) or f(*a))
    shapes, arguments = BY_WARPGROUPS[case]
    attend(*shapes, dtype=fl.float16, tolerance=FINE, **arguments)
    assert met == ["forward", "backward"] or fl.cuda.get_device_capability()[0] != 9


def test_by_warpgroups_in_bfloat16(cuda):
    attend(*[(1, 1, 140, 64)] * 3, dtype=fl.bfloat16, is_causal=True)


def test_gradients_in_given_memory(cuda):
    """The gradients of query, key and value go to windows of one buffer, as a layer that makes all three at once wants them."""
    from flambeau.backends.cuda import flash
    from flambeau.backends.cuda.arrays import windows
    whole = fl.zeros(1, 140, 3, 2, 64, dtype=fl.float16, device="cuda")
    qkv = (draw(1, 140, 3, 2, 64) / 3).half().cuda()
    leaves = [qkv[:, :, i].transpose(1, 2).detach().requires_grad_() for i in range(3)]
    y = F.scaled_dot_product_attention(*leaves, is_causal=True)
    grad = (draw(*y.shape, seed=9) / 3).half().cuda()
    y.backward(grad)
    q, k, v, g, o = [x.detach()._array for x in (*leaves, grad, y)]
    statistic = windows.empty((1, 2, 140), windows.bare(fl.zeros(1)._array).dtype)
    flash.forward(q, k, v, None, True, 0.125, o, statistic)
    flash.backward(g, q, k, v, None, True, 0.125, o, statistic, tuple(whole[:, :, i].transpose(1, 2)._array for i in range(3)))
    for i, leaf in enumerate(leaves):
        assert fl.equal(whole[:, :, i].transpose(1, 2).cpu(), leaf.grad.cpu())


def test_windows_that_are_not_aligned(cuda):
    """Rows of 64 elements that begin in the middle of 16 bytes."""
    made = []
    for device, dtype in (("cpu", fl.float32), ("cuda", fl.float16)):
        x = (draw(3, 1, 1, 20, 67) / 3).half().to(device, dtype).requires_grad_()
        y = F.scaled_dot_product_attention(*x[..., 1:65])
        y.sum().backward()
        made.append((y.detach().cpu().float(), x.grad.cpu().float()))
    fl.testing.assert_close(made[1], made[0], **FINE)


def test_flash_of_odd_sizes(cuda):
    attend((1, 1, 5, 20), (1, 1, 71, 20), (1, 1, 71, 25), dtype=fl.bfloat16)
    attend((1, 1, 3, 17), (1, 1, 5, 17), (1, 1, 5, 17), dtype=fl.bfloat16, is_causal=True)


def test_flash_with_masks(cuda):
    shapes = (2, 1, 5, 32), (2, 1, 7, 32), (2, 1, 7, 32)
    allowed = draw(2, 1, 5, 7) > 0
    allowed[0, 0, 2] = False
    attend(*shapes, mask=allowed, dtype=fl.bfloat16)
    attend(*shapes, mask=draw(5, 7), dtype=fl.bfloat16)


def test_deep_heads(cuda):
    attend((1, 1, 3, 256), (1, 1, 40, 256), (1, 1, 40, 256), dtype=fl.bfloat16, backward=False)


def test_other_tiles(cuda, monkeypatch):
    from flambeau.backends.cuda import flash
    tiles = {"flash": {256: (32, 8, 16)}, "flash_queries": {256: (16, 2, 48)}, "flash_keys": {256: (32, 1, 32)}}
    monkeypatch.setattr(flash, "TILES", tiles)
    attend((1, 1, 70, 16), (1, 1, 70, 16), (1, 1, 70, 16), dtype=fl.bfloat16, is_causal=True)


@pytest.mark.parametrize("depth", [64, 128, 256])
def test_compiles(depth):
    """What is too large for the registers or the shared memory of a GPU is seen by its compiler."""
    import numpy as np

    from flambeau.backends.cuda import (  # noqa: F401  (the backend comes before its parts)
        backend,
        compile,
        driver,
        flash,
        flash_hopper,
    )
    try:
        compile.nvrtc()
    except driver.Unavailable as reason:
        pytest.skip(str(reason))
    for name in flash.TILES:
        tile = next(t for most, t in flash.TILES[name].items() if depth <= most)
        assert compile.cubin(flash._text(name, np.dtype(np.float16), "bool", depth, depth, tile, True), "sm_80")
    if depth in flash_hopper.DEPTHS:
        keys, *forward = flash_hopper.TILES[depth]
        queries, *back = flash_hopper.BACK[depth]
        for tile in (("flash", keys, 64, *forward), ("flash_back", 64 * back[0], queries, *back)):
            assert compile.cubin(flash_hopper._text(tile[0], np.dtype(np.float16), depth, *tile[1:]), "sm_90a")
