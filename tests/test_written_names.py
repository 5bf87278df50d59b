"""What the graph shows after a tensor was written to by index: PyTorch's names."""

from __future__ import annotations

import pytest
import torch

import flambeau

WRITES = {
    "y[...] = 1": lambda T, y, v: y.__setitem__(..., 1.0),
    "y[...] = v": lambda T, y, v: y.__setitem__(..., v),
    "y[:] = 1": lambda T, y, v: y.__setitem__(slice(None), 1.0),
    "y[:] = v": lambda T, y, v: y.__setitem__(slice(None), v),
    "y[0:3, :] = v": lambda T, y, v: y.__setitem__((slice(0, 3), slice(None)), v),
    "y[:, ...] = v": lambda T, y, v: y.__setitem__((slice(None), ...), v),
    "y[:] = v.sum()": lambda T, y, v: y.__setitem__(slice(None), v.sum()),
    "y[...] = whole numbers": lambda T, y, v: y.__setitem__(..., T.ones(3, 4, dtype=T.int64)),
    "y[0] = 1": lambda T, y, v: y.__setitem__(0, 1.0),
    "y[0] = v[0]": lambda T, y, v: y.__setitem__(0, v[0]),
    "y[1:] = 1": lambda T, y, v: y.__setitem__(slice(1, None), 1.0),
    "y[::2] = v": lambda T, y, v: y.__setitem__(slice(None, None, 2), v[::2]),
    "y[:, 1] = 0": lambda T, y, v: y.__setitem__((slice(None), 1), 0),
    "y[0, 0] = v.sum()": lambda T, y, v: y.__setitem__((0, 0), v.sum()),
    "y[mask] = 1": lambda T, y, v: y.__setitem__(T.eye(3, 4).bool(), 1.0),
    "y[positions] = v": lambda T, y, v: y.__setitem__(T.tensor([0, 1]), v[:2]),
    "fill_": lambda T, y, v: y.fill_(1.0),
    "zero_": lambda T, y, v: y.zero_(),
    "copy_": lambda T, y, v: y.copy_(v),
}


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("write", WRITES)
def test_names_and_gradients_after_a_write(write, recorded):
    seen = []
    for T in (torch, flambeau):
        x, v = T.ones(3, 4, requires_grad=True), (T.ones(3, 4) * 3).requires_grad_(recorded)
        y = x * 2
        WRITES[write](T, y, v)
        (y * T.arange(12.0).reshape(3, 4)).sum().backward()
        seen.append((y.grad_fn.name(), [None if n is None else n.name() for n, _ in y.grad_fn.next_functions], y.tolist(),
                     x.grad.tolist(), None if v.grad is None else v.grad.tolist()))
    assert seen[0] == seen[1]
