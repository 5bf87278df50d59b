"""One direction of one recurrent layer: LSTM, GRU and plain RNN, forward and back through time.

Rows of all steps lie one after the other, (rows, features); `sizes` says how many belong to each step. They may shrink
from step to step (packed sequences): the state keeps its rows that are done, or not begun. What does not depend on the
recurrence is done for all steps at once: the product with the input before the loop, and the gradients of the weights
after the loop back. What the backward pass needs is kept as (rows, features) too, by native code (native/rnn.c) and by the
formulas here, which serve where that does not.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy import ndarray

from ....native import library, pointer
from .. import memory
from ..linalg.matmul import mm
from ..table import kernel

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
    """The state in front of each step, from the one at the start and those after each step; (rows, features)."""
    made = memory.empty(after.shape, after.dtype)
    state = first.copy()
    for start, stop, n in steps:
        made[start:stop] = state[:n]
        state[:n] = after[start:stop]
    return made


def _projected(x: ndarray, weight: ndarray, bias: _Maybe) -> ndarray:
    """The part of the gates that comes from the input, of all steps in one product; (rows, features)."""
    made = mm(x, weight.T)
    return made if bias is None else np.add(made, bias, out=made)


def _activated(x: ndarray, scale: Any) -> ndarray:
    """The sigmoid of x where `scale` is a half, the tanh where it is one."""
    return scale * np.tanh(scale * x) + (1 - scale)


def _sum(a: _Maybe, b: _Maybe) -> _Maybe:
    return b if a is None else a if b is None else a + b


def _start(gradient: _Maybe, like: ndarray, dtype: np.dtype) -> ndarray:
    """The gradient of the last state, to be changed in place."""
    return np.zeros(like.shape, dtype) if gradient is None else gradient.copy()


def _arrived(dh: ndarray, grad_out: _Maybe, start: int, stop: int) -> ndarray:
    """The gradient of the state after a step: from the steps behind it and from the output."""
    return dh[:stop - start] if grad_out is None else dh[:stop - start] + grad_out[start:stop]


def _weight_gradients(inside: ndarray, recurrent: ndarray, x: ndarray, w_ih: ndarray, before: ndarray,
                      needs: Any) -> tuple[Any, ...]:
    """Gradients of x, w_ih, w_hh, b_ih and b_hh from those of the gates, one product each; needs: (x, weights)."""
    dx = mm(inside, w_ih) if needs[0] else None
    if not needs[1]:
        return dx, None, None, None, None
    ones = np.ones(inside.shape[0], x.dtype)
    first = np.dot(ones, inside)
    second = first.copy() if recurrent is inside else np.dot(ones, recurrent)
    return dx, mm(inside.T, x), mm(recurrent.T, before), first, second


# ---------------------------------------------------------------------------------------------------------- native code
_FEW_STEPS = 3  # steps of a plain RNN for which packing the weights does not pay, unless they are small
_SMALL = 1 << 14


def native_order(sizes: tuple[int, ...], reverse: bool) -> list[int] | None:
    """(first row, count) of each step in the order of the recurrence, flat; None if the counts go up and down."""
    if min(sizes) < 1 or list(sizes) != sorted(sizes, reverse=True):
        return None
    return [number for start, _, n in _order(sizes, reverse) for number in (start, n)]


@lru_cache(256)
def _order_array(sizes: tuple[int, ...], reverse: bool) -> ndarray | None:
    order = native_order(sizes, reverse)
    return None if order is None else np.array(order, np.int64)


def _native(x: ndarray, w_hh: ndarray, sizes: tuple[int, ...], reverse: bool) -> tuple[Any, ndarray] | None:
    """The library and the order of steps, where native code serves these and is worth it."""
    if x.dtype.char not in "fd" or not x.size:
        return None
    if len(sizes) < _FEW_STEPS and w_hh.size > _SMALL and w_hh.shape[0] == w_hh.shape[1]:
        return None
    lib, order = library("rnn"), _order_array(sizes, reverse)
    return None if lib is None or order is None else (lib, order)


def work_elements(rows: int, hidden: int, gates: int) -> int:
    """Elements of the workspace of a native call, forward or back: packed weights, biases, gradients of gates, states."""
    padded = hidden + 64  # the last vectors that a thread takes may be partly empty
    return padded * (gates * hidden + 4) + rows * hidden * (2 * gates + 1) + 32


def _call(lib: Any, name: str, arrays: tuple[_Maybe, ...], x: ndarray, sizes: tuple[int, ...], hidden: int, gates: int,
          order: ndarray, *more: int) -> None:
    """Calls a native function with a table of the arrays and a workspace."""
    rows, features = x.shape
    batch = max(sizes[0], sizes[-1])
    suffix = "f32" if x.dtype.char == "f" else "f64"
    work = memory.empty((work_elements(rows, hidden, gates),), x.dtype)
    table = np.array([0 if a is None else pointer(a) for a in (*arrays, work)], np.int64)
    getattr(lib, f"fl_{name}_{suffix}")(table, len(sizes), batch, rows, features, hidden, order, *more)


def _dense(*arrays: _Maybe) -> list[Any]:
    return [a if a is None else np.ascontiguousarray(a) for a in arrays]


def _native_forward(name: str, gates: int, found: tuple[Any, ndarray], x: ndarray, h0: ndarray, c0: _Maybe, w_ih: ndarray,
                    w_hh: ndarray, b_ih: _Maybe, b_hh: _Maybe, sizes: tuple[int, ...], *more: int) -> list[Any]:
    """[out, h, c, gates, cells or GRU's recurrent part, tanh of the cells]; None for what the kind does not have."""
    x, h0, c0, w_ih, w_hh, b_ih, b_hh = _dense(x, h0, c0, w_ih, w_hh, b_ih, b_hh)
    rows, hidden, dtype = x.shape[0], h0.shape[1], x.dtype
    made: list[Any] = [memory.empty((rows, hidden), dtype), memory.empty(h0.shape, dtype), None, None, None, None]
    if gates > 1:
        made[3], made[4] = memory.empty((rows, gates * hidden), dtype), memory.empty((rows, hidden), dtype)
    if c0 is not None:
        made[2], made[5] = memory.empty(c0.shape, dtype), memory.empty((rows, hidden), dtype)
    _call(found[0], name, (x, h0, c0, w_ih, w_hh, b_ih, b_hh, *made), x, sizes, hidden, gates, found[1], *more)
    return made


def _native_backward(name: str, gates: int, found: tuple[Any, ndarray], grad_out: _Maybe, grad_h: _Maybe, grad_c: _Maybe,
                     x: ndarray, h0: ndarray, c0: _Maybe, w_ih: ndarray, w_hh: ndarray, saved: tuple[_Maybe, ...],
                     sizes: tuple[int, ...], needs: Any, *more: int) -> list[Any]:
    """Gradients of x, h0, c0, w_ih, w_hh, b_ih, b_hh; None for those that are not needed."""
    given = _dense(grad_out, grad_h, grad_c, x, h0, c0, w_ih, w_hh, *saved)
    x, w_ih, w_hh = given[3], given[6], given[7]
    dtype = x.dtype
    made = [memory.empty(x.shape, dtype) if needs[0] else None, memory.empty(h0.shape, dtype),
            None if c0 is None else memory.empty(c0.shape, dtype), None, None, None, None]
    if needs[1]:
        made[3:] = [memory.empty(shape, dtype) for shape in (w_ih.shape, w_hh.shape, w_hh.shape[:1], w_hh.shape[:1])]
    _call(found[0], name, (*given, *made), x, sizes, h0.shape[1], gates, found[1], *more)
    return made


# ------------------------------------------------------------------------------------------------------------ LSTM
@kernel
def lstm_layer(x: ndarray, h0: ndarray, c0: ndarray, w_ih: ndarray, w_hh: ndarray, b_ih: _Maybe, b_hh: _Maybe,
               w_hr: _Maybe, sizes: tuple[int, ...], reverse: bool) -> tuple[ndarray, ...]:
    """(output, last h, last c, gates, cells, tanh of the cells); the last three are for the backward pass."""
    found = None if w_hr is not None else _native(x, w_hh, sizes, reverse)
    if found is not None:
        return tuple(_native_forward("lstm", 4, found, x, h0, c0, w_ih, w_hh, b_ih, b_hh, sizes))
    native = x.dtype
    x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr = _wide(x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr)
    rows, hidden = x.shape[0], c0.shape[1]
    gates = _projected(x, w_ih, _sum(b_ih, b_hh))
    scale = np.repeat(np.array([0.5, 0.5, 1, 0.5], x.dtype), hidden)
    cells, tanh_cells = (memory.empty((rows, hidden), x.dtype) for _ in range(2))
    out, h, c = memory.empty((rows, h0.shape[1]), x.dtype), h0.copy(), c0.copy()
    for start, stop, n in _order(sizes, reverse):
        g = gates[start:stop]
        g += mm(h[:n], w_hh.T)
        g[...] = _activated(g, scale)
        i, f, new, o = np.split(g, 4, axis=1)
        cells[start:stop] = c[:n] = f * c[:n] + i * new
        tanh_cells[start:stop] = np.tanh(c[:n])
        made = o * tanh_cells[start:stop]
        out[start:stop] = h[:n] = made if w_hr is None else mm(made, w_hr.T)
    return (*_narrow(native, out, h, c), gates, cells, tanh_cells)


@kernel
def lstm_layer_backward(grad_out: _Maybe, grad_h: _Maybe, grad_c: _Maybe, x: ndarray, h0: ndarray, c0: ndarray,
                        w_ih: ndarray, w_hh: ndarray, w_hr: _Maybe, sizes: tuple[int, ...], reverse: bool, out: ndarray,
                        gates: ndarray, cells: ndarray, tanh_cells: ndarray, needs: Any) -> tuple[Any, ...]:
    """Gradients of x, h0, c0, w_ih, w_hh, the two biases and w_hr."""
    found = None if w_hr is not None else _native(x, w_hh, sizes, reverse)
    if found is not None:
        return (*_native_backward("lstm_backward", 4, found, grad_out, grad_h, grad_c, x, h0, c0, w_ih, w_hh,
                                  (out, gates, cells, tanh_cells), sizes, needs), None)
    native = x.dtype
    grad_out, grad_h, grad_c, x, h0, c0, w_ih, w_hh, w_hr, out = _wide(grad_out, grad_h, grad_c, x, h0, c0, w_ih, w_hh,
                                                                      w_hr, out)
    steps = _order(sizes, reverse)
    before = _before(c0, cells, steps)
    inside = memory.empty(gates.shape, x.dtype)  # the gradients of the gates, before their tanh and sigmoid
    arrived = memory.empty(out.shape, x.dtype)
    dh, dc = _start(grad_h, h0, x.dtype), _start(grad_c, c0, x.dtype)
    for start, stop, n in reversed(steps):
        i, f, new, o = np.split(gates[start:stop], 4, axis=1)
        tanh = tanh_cells[start:stop]
        d = arrived[start:stop] = _arrived(dh, grad_out, start, stop)
        if w_hr is not None:
            d = mm(d, w_hr)
        cell = dc[:n] + d * o * (1 - tanh * tanh)
        parts = (cell * new * i * (1 - i), cell * before[start:stop] * f * (1 - f), cell * i * (1 - new * new),
                 d * tanh * o * (1 - o))
        inside[start:stop] = np.concatenate(parts, axis=1)
        dc[:n] = cell * f
        dh[:n] = mm(inside[start:stop], w_hh)
    dx, *weights = _weight_gradients(inside, inside, x, w_ih, _before(h0, out, steps), needs)
    d_hr = None if w_hr is None else mm(arrived.T, gates[:, -c0.shape[1]:] * tanh_cells)
    return _narrow(native, dx, dh, dc, *weights, d_hr)


# ------------------------------------------------------------------------------------------------------------- GRU
@kernel
def gru_layer(x: ndarray, h0: ndarray, w_ih: ndarray, w_hh: ndarray, b_ih: _Maybe, b_hh: _Maybe, sizes: tuple[int, ...],
              reverse: bool) -> tuple[ndarray, ...]:
    """(output, last h, gates r z n, the recurrent part of n before r)."""
    found = _native(x, w_hh, sizes, reverse)
    if found is not None:
        out, h, _, gates, recurrent, _ = _native_forward("gru", 3, found, x, h0, None, w_ih, w_hh, b_ih, b_hh, sizes)
        return out, h, gates, recurrent
    native = x.dtype
    x, h0, w_ih, w_hh, b_ih, b_hh = _wide(x, h0, w_ih, w_hh, b_ih, b_hh)
    rows, hidden = x.shape[0], h0.shape[1]
    gates = _projected(x, w_ih, b_ih)
    recurrent, out = (memory.empty((rows, hidden), x.dtype) for _ in range(2))
    h = h0.copy()
    for start, stop, n in _order(sizes, reverse):
        come = mm(h[:n], w_hh.T)
        come = come if b_hh is None else come + b_hh
        r, z, new = np.split(gates[start:stop], 3, axis=1)
        both = gates[start:stop, :2 * hidden]
        both[...] = _activated(both + come[:, :2 * hidden], 0.5)
        recurrent[start:stop] = come[:, 2 * hidden:]
        new[...] = np.tanh(new + r * recurrent[start:stop])
        out[start:stop] = h[:n] = (h[:n] - new) * z + new
    return (*_narrow(native, out, h), gates, recurrent)


@kernel
def gru_layer_backward(grad_out: _Maybe, grad_h: _Maybe, x: ndarray, h0: ndarray, w_ih: ndarray, w_hh: ndarray,
                       sizes: tuple[int, ...], reverse: bool, out: ndarray, gates: ndarray, recurrent: ndarray,
                       needs: Any) -> tuple[Any, ...]:
    """Gradients of x, h0, w_ih, w_hh, b_ih, b_hh."""
    found = _native(x, w_hh, sizes, reverse)
    if found is not None:
        dx, dh, _, *rest = _native_backward("gru_backward", 3, found, grad_out, grad_h, None, x, h0, None, w_ih, w_hh,
                                            (out, gates, recurrent, None), sizes, needs)
        return dx, dh, *rest
    native = x.dtype
    grad_out, grad_h, x, h0, w_ih, w_hh, out = _wide(grad_out, grad_h, x, h0, w_ih, w_hh, out)
    steps = _order(sizes, reverse)
    before = _before(h0, out, steps)
    # The gradients of the gates as the input sees them, and as h does: they differ in n, where h comes in times r.
    inside, recurring = (memory.empty(gates.shape, x.dtype) for _ in range(2))
    dh = _start(grad_h, h0, x.dtype)
    for start, stop, n in reversed(steps):
        r, z, new = np.split(gates[start:stop], 3, axis=1)
        d = _arrived(dh, grad_out, start, stop)
        d_new = d * (1 - z) * (1 - new * new)
        d_r = d_new * recurrent[start:stop] * r * (1 - r)
        d_z = d * (before[start:stop] - new) * z * (1 - z)
        inside[start:stop] = np.concatenate((d_r, d_z, d_new), axis=1)
        recurring[start:stop] = np.concatenate((d_r, d_z, d_new * r), axis=1)
        dh[:n] = d * z + mm(recurring[start:stop], w_hh)
    dx, *weights = _weight_gradients(inside, recurring, x, w_ih, before, needs)
    return _narrow(native, dx, dh, *weights)


# ------------------------------------------------------------------------------------------------------- plain RNN
@kernel
def rnn_layer(x: ndarray, h0: ndarray, w_ih: ndarray, w_hh: ndarray, b_ih: _Maybe, b_hh: _Maybe, sizes: tuple[int, ...],
              reverse: bool, relu: bool) -> tuple[ndarray, ndarray]:
    """(output, last h) of h = tanh(or relu)(w_ih x + b_ih + w_hh h + b_hh)."""
    found = _native(x, w_hh, sizes, reverse)
    if found is not None:
        return tuple(_native_forward("rnn", 1, found, x, h0, None, w_ih, w_hh, b_ih, b_hh, sizes, relu)[:2])
    native = x.dtype
    x, h0, w_ih, w_hh, b_ih, b_hh = _wide(x, h0, w_ih, w_hh, b_ih, b_hh)
    out, h = _projected(x, w_ih, _sum(b_ih, b_hh)), h0.copy()
    for start, stop, n in _order(sizes, reverse):
        inside = out[start:stop] + mm(h[:n], w_hh.T)
        out[start:stop] = h[:n] = np.maximum(inside, 0) if relu else np.tanh(inside)
    return _narrow(native, out, h)


@kernel
def rnn_layer_backward(grad_out: _Maybe, grad_h: _Maybe, x: ndarray, h0: ndarray, w_ih: ndarray, w_hh: ndarray,
                       sizes: tuple[int, ...], reverse: bool, relu: bool, out: ndarray, needs: Any) -> tuple[Any, ...]:
    """Gradients of x, h0, w_ih, w_hh, b_ih, b_hh."""
    found = _native(x, w_hh, sizes, reverse)
    if found is not None:
        dx, dh, _, *rest = _native_backward("rnn_backward", 1, found, grad_out, grad_h, None, x, h0, None, w_ih, w_hh,
                                            (out, None, None, None), sizes, needs, relu)
        return dx, dh, *rest
    native = x.dtype
    grad_out, grad_h, x, h0, w_ih, w_hh, out = _wide(grad_out, grad_h, x, h0, w_ih, w_hh, out)
    steps = _order(sizes, reverse)
    inside = (out > 0).astype(out.dtype) if relu else 1 - out * out
    dh = _start(grad_h, h0, x.dtype)
    for start, stop, n in reversed(steps):
        inside[start:stop] *= _arrived(dh, grad_out, start, stop)
        dh[:n] = mm(inside[start:stop], w_hh)
    dx, *weights = _weight_gradients(inside, inside, x, w_ih, _before(h0, out, steps), needs)
    return _narrow(native, dx, dh, *weights)
