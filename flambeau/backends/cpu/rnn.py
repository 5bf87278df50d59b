"""One direction of one recurrent layer: LSTM, GRU and plain RNN, forward and back through time.

Rows of all steps lie one after the other, (rows, features); `sizes` says how many belong to each step. They may shrink
from step to step (packed sequences): the state keeps its rows that are done, or not begun. What does not depend on the
recurrence is done for all steps at once: the product with the input before the loop, the factors of the derivative
before the loop back, and the gradients of the weights after it. Inside the loop there is one product and a few passes
over contiguous memory.

The gates' sigmoid is 0.5 * tanh(x / 2) + 0.5, so all gates take one call of tanh; the halves are in the weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from . import memory
from .table import kernel

_FLOAT32 = np.dtype(np.float32)
_Maybe = ndarray | None


def _wide(*arrays: _Maybe) -> list[Any]:
    return [a if a is None or a.dtype.char in "fd" else a.astype(_FLOAT32) for a in arrays]


def _narrow(dtype: np.dtype, *arrays: _Maybe) -> tuple[Any, ...]:
    return tuple([a if a is None or a.dtype == dtype else a.astype(dtype) for a in arrays])


def _order(sizes: tuple[int, ...], reverse: bool) -> list[tuple[int, int, int]]:
    """(first row, last row + 1, count) of each step, in the order of the recurrence."""
    made, start = [], 0
    for n in sizes:
        made.append((start, start + n, n))
        start += n
    return made[::-1] if reverse else made


def _before(first: ndarray, after: ndarray, steps: list[tuple[int, int, int]]) -> ndarray:
    """The state in front of each step, from the one at the start and those after each step."""
    made = memory.empty(after.shape, after.dtype)
    state = first.copy()
    for start, stop, n in steps:
        made[start:stop] = state[:n]
        state[:n] = after[start:stop]
    return made


def _scales(gates: str, hidden: int, dtype: np.dtype) -> tuple[ndarray, ndarray]:
    """Per column of the gates: the factor inside and outside of tanh, and what is added ("s": sigmoid, "t": tanh)."""
    factor = np.repeat(np.array([0.5 if g == "s" else 1.0 for g in gates], dtype), hidden)
    return factor, (1 - factor)


def _projected(x: ndarray, weight: ndarray, bias: _Maybe, factor: ndarray) -> ndarray:
    """(x @ weight.T + bias) * factor, for the rows of all steps."""
    made = np.matmul(x, weight.T * factor, out=memory.empty((x.shape[0], weight.shape[0]), x.dtype))
    if bias is not None:
        np.add(made, bias * factor, out=made)
    return made


def _sum(a: _Maybe, b: _Maybe) -> _Maybe:
    return b if a is None else a if b is None else a + b


def _column_sums(x: ndarray) -> ndarray:
    return np.dot(np.ones(x.shape[0], x.dtype), x)


# ------------------------------------------------------------------------------------------------------------ LSTM
@kernel
def lstm_layer(x: ndarray, h0: ndarray, c0: ndarray, w_ih: ndarray, w_hh: ndarray, b_ih: _Maybe, b_hh: _Maybe,
               w_hr: _Maybe, sizes: tuple[int, ...], reverse: bool) -> tuple[ndarray, ...]:
    """(output, last h, last c, gates, cells, tanh of the cells); the last three are for the backward pass."""
    native = x.dtype
    x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr = _wide(x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr)
    hidden = c0.shape[1]
    factor, shift = _scales("ssts", hidden, x.dtype)
    gates = _projected(x, w_ih, _sum(b_ih, b_hh), factor)
    weight = w_hh.T * factor
    rows = x.shape[0]
    cells, tanh_cells = (memory.empty((rows, hidden), x.dtype) for _ in range(2))
    out = memory.empty((rows, h0.shape[1]), x.dtype)
    h, c = h0.copy(), c0.copy()
    product, part = np.empty((h.shape[0], 4 * hidden), x.dtype), np.empty((h.shape[0], hidden), x.dtype)
    project = None if w_hr is None else np.ascontiguousarray(w_hr.T)
    for start, stop, n in _order(sizes, reverse):
        g = gates[start:stop]
        np.add(g, np.matmul(h[:n], weight, out=product[:n]), out=g)
        np.tanh(g, out=g)
        np.multiply(g, factor, out=g)
        np.add(g, shift, out=g)
        cell, t = c[:n], part[:n]
        np.multiply(cell, g[:, hidden:2 * hidden], out=cell)
        np.multiply(g[:, :hidden], g[:, 2 * hidden:3 * hidden], out=t)
        np.add(cell, t, out=cell)
        cells[start:stop] = cell
        tc = np.tanh(cell, out=tanh_cells[start:stop])
        if project is None:
            np.multiply(g[:, 3 * hidden:], tc, out=out[start:stop])
        else:
            np.matmul(np.multiply(g[:, 3 * hidden:], tc, out=t), project, out=out[start:stop])
        h[:n] = out[start:stop]
    return (*_narrow(native, out, h, c), gates, cells, tanh_cells)


@kernel
def lstm_layer_backward(grad_out: _Maybe, grad_h: _Maybe, grad_c: _Maybe, x: ndarray, h0: ndarray, c0: ndarray,
                        w_ih: ndarray, w_hh: ndarray, w_hr: _Maybe, sizes: tuple[int, ...], reverse: bool, out: ndarray,
                        gates: ndarray, cells: ndarray, tanh_cells: ndarray, needs: Any) -> tuple[Any, ...]:
    """Gradients of x, h0, c0, w_ih, w_hh, the biases (one for both) and w_hr."""
    native = x.dtype
    grad_out, grad_h, grad_c, x, h0, c0, w_ih, w_hh, w_hr, out = _wide(grad_out, grad_h, grad_c, x, h0, c0, w_ih, w_hh,
                                                                      w_hr, out)
    rows, hidden = cells.shape
    steps = _order(sizes, reverse)
    four = gates.reshape(rows, 4, hidden)
    i, f, g, o = (four[:, k] for k in range(4))
    # d holds the derivative of each gate times what it multiplies; the loop multiplies by the gradient of c or h.
    d = np.multiply(four, four, out=memory.empty(four.shape, four.dtype))
    np.subtract(four, d, out=d)
    np.subtract(1, np.multiply(g, g, out=d[:, 2]), out=d[:, 2])
    d[:, 0] *= g
    d[:, 1] *= _before(c0, cells, steps)
    d[:, 2] *= i
    d[:, 3] *= tanh_cells
    through = np.multiply(tanh_cells, tanh_cells, out=memory.empty(cells.shape, cells.dtype))
    np.multiply(np.subtract(1, through, out=through), o, out=through)
    flat = d.reshape(rows, 4 * hidden)
    dh = np.zeros(h0.shape, x.dtype) if grad_h is None else np.array(grad_h, order="C")
    dc = np.zeros(c0.shape, x.dtype) if grad_c is None else np.array(grad_c, order="C")
    inner = None if w_hr is None else memory.empty((rows, h0.shape[1]), x.dtype)
    for start, stop, n in reversed(steps):
        dhs, dcs, part = dh[:n], dc[:n], d[start:stop]
        if grad_out is not None:
            np.add(dhs, grad_out[start:stop], out=dhs)
        dm = dhs
        if inner is not None:
            inner[start:stop] = dhs
            dm = np.matmul(dhs, w_hr)
        a = through[start:stop]
        np.add(dcs, np.multiply(a, dm, out=a), out=dcs)
        np.multiply(part[:, :3], dcs[:, None], out=part[:, :3])
        np.multiply(part[:, 3], dm, out=part[:, 3])
        np.multiply(dcs, f[start:stop], out=dcs)
        np.matmul(flat[start:stop], w_hh, out=dhs)
    made = _weight_gradients(flat, flat, x, w_ih, lambda: _before(h0, out, steps), needs)
    d_hr = None if inner is None else np.matmul(inner.T, o * tanh_cells)
    return _narrow(native, made[0], dh, dc, *made[1:], d_hr)


def _weight_gradients(inside: ndarray, recurrent: ndarray, x: ndarray, w_ih: ndarray, before: Any,
                      needs: Any) -> tuple[Any, ...]:
    """Gradients of x, w_ih, w_hh, b_ih and b_hh from those of the gates, one product each; needs: (x, weights)."""
    dx = np.matmul(inside, w_ih, out=memory.empty(x.shape, x.dtype)) if needs[0] else None
    if not needs[1]:
        return dx, None, None, None, None
    first = _column_sums(inside)
    second = first.copy() if recurrent is inside else _column_sums(recurrent)
    return dx, np.matmul(inside.T, x), np.matmul(recurrent.T, before()), first, second


# ------------------------------------------------------------------------------------------------------------- GRU
@kernel
def gru_layer(x: ndarray, h0: ndarray, w_ih: ndarray, w_hh: ndarray, b_ih: _Maybe, b_hh: _Maybe, sizes: tuple[int, ...],
              reverse: bool) -> tuple[ndarray, ...]:
    """(output, last h, gates r z n, the recurrent part of n before r)."""
    native = x.dtype
    x, h0, w_ih, w_hh, b_ih, b_hh = _wide(x, h0, w_ih, w_hh, b_ih, b_hh)
    rows, hidden = x.shape[0], h0.shape[1]
    factor, _ = _scales("sst", hidden, x.dtype)
    both, own = None, None
    if b_ih is not None:
        both, own = b_ih.copy(), b_hh[2 * hidden:]
        both[:2 * hidden] += b_hh[:2 * hidden]
    gates = _projected(x, w_ih, both, factor)
    weight = w_hh.T * factor
    recurrent, out = (memory.empty((rows, hidden), x.dtype) for _ in range(2))
    h = h0.copy()
    product, part = np.empty((h.shape[0], 3 * hidden), x.dtype), np.empty((h.shape[0], hidden), x.dtype)
    for start, stop, n in _order(sizes, reverse):
        g, p, t, state = gates[start:stop], product[:n], part[:n], h[:n]
        np.matmul(state, weight, out=p)
        rz = g[:, :2 * hidden]
        np.add(rz, p[:, :2 * hidden], out=rz)
        np.tanh(rz, out=rz)
        np.multiply(rz, 0.5, out=rz)
        np.add(rz, 0.5, out=rz)
        kept = recurrent[start:stop]
        if own is None:
            kept[...] = p[:, 2 * hidden:]
        else:
            np.add(p[:, 2 * hidden:], own, out=kept)
        new = g[:, 2 * hidden:]
        np.add(new, np.multiply(g[:, :hidden], kept, out=t), out=new)
        np.tanh(new, out=new)
        np.subtract(state, new, out=state)
        np.multiply(state, g[:, hidden:2 * hidden], out=state)
        np.add(state, new, out=state)
        out[start:stop] = state
    return (*_narrow(native, out, h), gates, recurrent)


@kernel
def gru_layer_backward(grad_out: _Maybe, grad_h: _Maybe, x: ndarray, h0: ndarray, w_ih: ndarray, w_hh: ndarray,
                       sizes: tuple[int, ...], reverse: bool, out: ndarray, gates: ndarray, recurrent: ndarray,
                       needs: Any) -> tuple[Any, ...]:
    """Gradients of x, h0, w_ih, w_hh, b_ih, b_hh. All of a step's are multiples of the gradient of its h."""
    native = x.dtype
    grad_out, grad_h, x, h0, w_ih, w_hh, out = _wide(grad_out, grad_h, x, h0, w_ih, w_hh, out)
    rows, hidden = recurrent.shape
    steps = _order(sizes, reverse)
    before = _before(h0, out, steps)
    three = gates.reshape(rows, 3, hidden)
    r, z, new = three[:, 0], three[:, 1], three[:, 2]
    inner = np.multiply(1 - z, 1 - new * new)             # of what is inside n's tanh
    d = memory.empty(three.shape, three.dtype)
    np.multiply(inner, recurrent * (r - r * r), out=d[:, 0])
    np.multiply(before - new, z - z * z, out=d[:, 1])
    np.multiply(inner, r, out=d[:, 2])
    flat = d.reshape(rows, 3 * hidden)
    dh = np.zeros(h0.shape, x.dtype) if grad_h is None else np.array(grad_h, order="C")
    product = np.empty_like(dh)
    for start, stop, n in reversed(steps):
        dhs, part, p = dh[:n], d[start:stop], product[:n]
        if grad_out is not None:
            np.add(dhs, grad_out[start:stop], out=dhs)
        np.multiply(part, dhs[:, None], out=part)
        inside = inner[start:stop]
        np.multiply(inside, dhs, out=inside)
        np.multiply(dhs, z[start:stop], out=dhs)
        np.add(dhs, np.matmul(flat[start:stop], w_hh, out=p), out=dhs)
    own = flat.copy()
    own[:, 2 * hidden:] = inner
    dx, *weights = _weight_gradients(own, flat, x, w_ih, lambda: before, needs)
    return _narrow(native, dx, dh, *weights)


# ------------------------------------------------------------------------------------------------------- plain RNN
@kernel
def rnn_layer(x: ndarray, h0: ndarray, w_ih: ndarray, w_hh: ndarray, b_ih: _Maybe, b_hh: _Maybe, sizes: tuple[int, ...],
              reverse: bool, relu: bool) -> tuple[ndarray, ndarray]:
    """(output, last h) of h = tanh(or relu)(w_ih x + b_ih + w_hh h + b_hh)."""
    native = x.dtype
    x, h0, w_ih, w_hh, b_ih, b_hh = _wide(x, h0, w_ih, w_hh, b_ih, b_hh)
    out = _projected(x, w_ih, _sum(b_ih, b_hh), np.ones(w_ih.shape[0], x.dtype))
    weight = np.ascontiguousarray(w_hh.T)
    h = h0.copy()
    product = np.empty_like(h)
    for start, stop, n in _order(sizes, reverse):
        o = out[start:stop]
        np.add(o, np.matmul(h[:n], weight, out=product[:n]), out=o)
        np.maximum(o, 0, out=o) if relu else np.tanh(o, out=o)
        h[:n] = o
    return _narrow(native, out, h)


@kernel
def rnn_layer_backward(grad_out: _Maybe, grad_h: _Maybe, x: ndarray, h0: ndarray, w_ih: ndarray, w_hh: ndarray,
                       sizes: tuple[int, ...], reverse: bool, relu: bool, out: ndarray, needs: Any) -> tuple[Any, ...]:
    """Gradients of x, h0, w_ih, w_hh, b_ih, b_hh."""
    native = x.dtype
    grad_out, grad_h, x, h0, w_ih, w_hh, out = _wide(grad_out, grad_h, x, h0, w_ih, w_hh, out)
    steps = _order(sizes, reverse)
    d = (out > 0).astype(out.dtype) if relu else 1 - out * out
    dh = np.zeros(h0.shape, x.dtype) if grad_h is None else np.array(grad_h, order="C")
    for start, stop, n in reversed(steps):
        dhs, part = dh[:n], d[start:stop]
        if grad_out is not None:
            np.add(dhs, grad_out[start:stop], out=dhs)
        np.multiply(part, dhs, out=part)
        np.matmul(part, w_hh, out=dhs)
    dx, *weights = _weight_gradients(d, d, x, w_ih, lambda: _before(h0, out, steps), needs)
    return _narrow(native, dx, dh, *weights)

