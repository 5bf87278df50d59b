"""One direction of one recurrent layer: LSTM, GRU and plain RNN, forward and back through time.

Rows of all steps lie one after the other, (rows, features); `sizes` says how many belong to each step. They may shrink
from step to step (packed sequences): the state keeps its rows that are done, or not begun. What does not depend on the
recurrence is done for all steps at once: the product with the input before the loop, and the gradients of the weights
after the loop back.

Inside the loop everything has the features first, (features, rows of the step): weight @ state is then a tall product,
which BLAS does some 40 % faster than its transpose, and each gate is a contiguous piece of the result. What the backward
pass needs is kept that way, one block after the other.

The gates' sigmoid is 0.5 * tanh(x / 2) + 0.5, so all gates take one call of tanh; the halves are in the weights.

That is NumPy's way. Native code (native/rnn.c) takes the rows as they come and keeps everything for the backward pass that
way, (rows, features): two dimensions where NumPy's way keeps one, by which the backward pass knows who ran forward.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy import ndarray

from ....native import library, pointer
from .. import memory
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


def _blocks(flat: ndarray, features: int, steps: list[tuple[int, int, int]]) -> list[ndarray]:
    """The piece of each step, (features, count)."""
    return [flat[features * start:features * stop].reshape(features, n) for start, stop, n in steps]


def _room(rows: int, features: int, dtype: np.dtype) -> ndarray:
    return memory.empty((rows * features,), dtype)


def _factor(gates: str, hidden: int, dtype: np.dtype) -> ndarray:
    """What the weights of each gate are multiplied by: a half for a sigmoid ("s"), one for tanh ("t")."""
    return np.repeat(np.array([0.5 if g == "s" else 1.0 for g in gates], dtype), hidden)


def _projected(x: ndarray, weight: ndarray, bias: _Maybe, factor: ndarray) -> ndarray:
    """(weight x + bias) * factor for all steps in one product; (features, rows)."""
    made = _matmul(_scaled(weight, factor), x.T)
    return made if bias is None else np.add(made, (bias * factor)[:, None], out=made)


def _matmul(a: ndarray, b: ndarray) -> ndarray:
    return np.matmul(a, b, out=memory.empty((a.shape[0], b.shape[1]), a.dtype))


def _scaled(weight: ndarray, factor: ndarray) -> ndarray:
    return np.multiply(weight, factor[:, None], out=memory.empty(weight.shape, weight.dtype))


def _sum(a: _Maybe, b: _Maybe) -> _Maybe:
    return b if a is None else a if b is None else a + b


def _start(gradient: _Maybe, like: ndarray, dtype: np.dtype) -> ndarray:
    """The gradient of the last state, features first, to be changed in place."""
    return np.zeros(like.shape[::-1], dtype) if gradient is None else np.array(gradient.T, order="C")


def _weight_gradients(inside: ndarray, recurrent: ndarray, x: ndarray, w_ih: ndarray, before: Any,
                      needs: Any) -> tuple[Any, ...]:
    """Gradients of x, w_ih, w_hh, b_ih and b_hh from those of the gates, one product each; needs: (x, weights)."""
    dx = np.matmul(inside, w_ih, out=memory.empty(x.shape, x.dtype)) if needs[0] else None
    if not needs[1]:
        return dx, None, None, None, None
    ones = np.ones(inside.shape[0], x.dtype)
    first = np.dot(ones, inside)
    second = first.copy() if recurrent is inside else np.dot(ones, recurrent)
    return dx, _matmul(inside.T, x), _matmul(recurrent.T, before()), first, second


# ---------------------------------------------------------------------------------------------------------- native code
_FEW_STEPS = 3  # steps of a plain RNN for which packing the weights does not pay, unless they are small
_SMALL = 1 << 14
_ran: Any = None  # the library that ran forward, which must also run back


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
    global _ran
    if library("rnn") is None:
        return None
    _ran, order = library("rnn"), _order_array(sizes, reverse)
    return None if order is None else (_ran, order)


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


def _native_backward(name: str, gates: int, grad_out: _Maybe, grad_h: _Maybe, grad_c: _Maybe, x: ndarray, h0: ndarray,
                     c0: _Maybe, w_ih: ndarray, w_hh: ndarray, saved: tuple[_Maybe, ...], sizes: tuple[int, ...],
                     reverse: bool, needs: Any, *more: int) -> list[Any]:
    """Gradients of x, h0, c0, w_ih, w_hh, b_ih, b_hh; None for those that are not needed."""
    order = _order_array(sizes, reverse)
    given = _dense(grad_out, grad_h, grad_c, x, h0, c0, w_ih, w_hh, *saved)
    x, w_ih, w_hh = given[3], given[6], given[7]
    dtype = x.dtype
    made = [memory.empty(x.shape, dtype) if needs[0] else None, memory.empty(h0.shape, dtype),
            None if c0 is None else memory.empty(c0.shape, dtype), None, None, None, None]
    if needs[1]:
        made[3:] = [memory.empty(shape, dtype) for shape in (w_ih.shape, w_hh.shape, w_hh.shape[:1], w_hh.shape[:1])]
    _call(_ran, name, (*given, *made), x, sizes, h0.shape[1], gates, order, *more)
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
    steps = _order(sizes, reverse)
    factor = _factor("ssts", hidden, x.dtype)
    projected = _projected(x, w_ih, _sum(b_ih, b_hh), factor)
    weight = _scaled(w_hh, factor)
    gates, cells, tanh_cells = (_room(rows, n * hidden, x.dtype) for n in (4, 1, 1))
    out = memory.empty((rows, h0.shape[1]), x.dtype)
    h, c = np.array(h0.T, order="C"), np.array(c0.T, order="C")
    scratch = np.empty(hidden * h.shape[1], x.dtype)
    two, three = 2 * hidden, 3 * hidden
    for (start, stop, n), g, cell, tc in zip(steps, _blocks(gates, 4 * hidden, steps), _blocks(cells, hidden, steps),
                                             _blocks(tanh_cells, hidden, steps)):
        t = scratch[:hidden * n].reshape(hidden, n)
        np.add(np.matmul(weight, h[:, :n], out=g), projected[:, start:stop], out=g)
        np.tanh(g, out=g)
        for part in (g[:two], g[three:]):
            np.multiply(part, 0.5, out=part)
            np.add(part, 0.5, out=part)
        np.multiply(c[:, :n], g[hidden:two], out=cell)
        np.add(cell, np.multiply(g[:hidden], g[two:three], out=t), out=cell)
        c[:, :n] = cell
        np.tanh(cell, out=tc)
        if w_hr is None:
            np.multiply(g[three:], tc, out=h[:, :n])
        else:
            np.matmul(w_hr, np.multiply(g[three:], tc, out=t), out=h[:, :n])
        out[start:stop] = h[:, :n].T
    return (*_narrow(native, out, np.array(h.T, order="C"), np.array(c.T, order="C")), gates, cells, tanh_cells)


@kernel
def lstm_layer_backward(grad_out: _Maybe, grad_h: _Maybe, grad_c: _Maybe, x: ndarray, h0: ndarray, c0: ndarray,
                        w_ih: ndarray, w_hh: ndarray, w_hr: _Maybe, sizes: tuple[int, ...], reverse: bool, out: ndarray,
                        gates: ndarray, cells: ndarray, tanh_cells: ndarray, needs: Any) -> tuple[Any, ...]:
    """Gradients of x, h0, c0, w_ih, w_hh, the two biases and w_hr."""
    if gates.ndim == 2:
        return (*_native_backward("lstm_backward", 4, grad_out, grad_h, grad_c, x, h0, c0, w_ih, w_hh,
                                  (out, gates, cells, tanh_cells), sizes, reverse, needs), None)
    native = x.dtype
    grad_out, grad_h, grad_c, x, h0, c0, w_ih, w_hh, w_hr, out = _wide(grad_out, grad_h, grad_c, x, h0, c0, w_ih, w_hh,
                                                                      w_hr, out)
    rows, hidden = x.shape[0], c0.shape[1]
    steps = _order(sizes, reverse)
    befores = _cells_before(c0, _blocks(cells, hidden, steps), steps)
    flat = memory.empty((rows, 4 * hidden), x.dtype)  # the gradients of the gates, before their tanh and sigmoid
    dh, dc = _start(grad_h, h0, x.dtype), _start(grad_c, c0, x.dtype)
    inner = products = None
    if w_hr is not None:
        inner, products = memory.empty((rows, h0.shape[1]), x.dtype), memory.empty((rows, hidden), x.dtype)
    scratch = np.empty((5 * hidden) * dh.shape[1], x.dtype)
    two, three = 2 * hidden, 3 * hidden
    for (start, stop, n), g, c, tc in zip(reversed(steps), reversed(_blocks(gates, 4 * hidden, steps)), reversed(befores),
                                          reversed(_blocks(tanh_cells, hidden, steps))):
        d, dm, dcs = scratch[:5 * hidden * n].reshape(5 * hidden, n), dh[:, :n], dc[:, :n]
        d, t = d[:4 * hidden], d[4 * hidden:]
        if grad_out is not None:
            np.add(dm, grad_out[start:stop].T, out=dm)
        if w_hr is not None:
            inner[start:stop] = dm.T
            products[start:stop] = np.multiply(g[three:], tc, out=t).T
            dm = np.matmul(w_hr.T, dm)
        np.multiply(g, g, out=d)
        np.subtract(g[:two], d[:two], out=d[:two])
        np.subtract(1, d[two:three], out=d[two:three])
        last = np.subtract(g[three:], d[three:], out=d[three:])
        np.multiply(np.multiply(last, tc, out=last), dm, out=last)
        np.subtract(1, np.multiply(tc, tc, out=t), out=t)
        np.add(dcs, np.multiply(np.multiply(t, g[three:], out=t), dm, out=t), out=dcs)
        np.multiply(d[:hidden], g[two:three], out=d[:hidden])
        np.multiply(d[hidden:two], c, out=d[hidden:two])
        np.multiply(d[two:three], g[:hidden], out=d[two:three])
        first = d[:three].reshape(3, hidden, n)
        np.multiply(first, dcs, out=first)
        np.multiply(dcs, g[hidden:two], out=dcs)
        np.matmul(w_hh.T, d, out=dh[:, :n])
        flat[start:stop] = d.T
    made = _weight_gradients(flat, flat, x, w_ih, lambda: _before(h0, out, steps), needs)
    d_hr = None if inner is None else np.matmul(inner.T, products)
    return _narrow(native, made[0], np.array(dh.T, order="C"), np.array(dc.T, order="C"), *made[1:], d_hr)


def _cells_before(c0: ndarray, blocks: list[ndarray], steps: list[tuple[int, int, int]]) -> list[ndarray]:
    """c in front of each step, in blocks; while no step is larger than the one before it, that step's own block."""
    state = np.array(c0.T, order="C")
    made, previous = [], state
    for (_, _, n), block in zip(steps, blocks):
        if previous.shape[1] >= n:
            made.append(previous[:, :n])
        else:  # rows that begin here
            made.append(np.concatenate([previous, state[:, previous.shape[1]:n]], axis=1))
        previous = block
    return made


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
    steps = _order(sizes, reverse)
    factor = _factor("sst", hidden, x.dtype)
    both, own = None, None
    if b_ih is not None:
        both, own = b_ih.copy(), b_hh[2 * hidden:, None]
        both[:2 * hidden] += b_hh[:2 * hidden]
    projected = _projected(x, w_ih, both, factor)
    weight = _scaled(w_hh, factor)
    gates, recurrent = _room(rows, 3 * hidden, x.dtype), _room(rows, hidden, x.dtype)
    out = memory.empty((rows, hidden), x.dtype)
    h = np.array(h0.T, order="C")
    two = 2 * hidden
    for (start, stop, n), g, kept in zip(steps, _blocks(gates, 3 * hidden, steps), _blocks(recurrent, hidden, steps)):
        state, rz, new = h[:, :n], g[:two], g[two:]
        np.matmul(weight, state, out=g)
        np.add(rz, projected[:two, start:stop], out=rz)
        np.tanh(rz, out=rz)
        np.multiply(rz, 0.5, out=rz)
        np.add(rz, 0.5, out=rz)
        if own is None:
            kept[...] = new
        else:
            np.add(new, own, out=kept)
        np.add(np.multiply(g[:hidden], kept, out=new), projected[two:, start:stop], out=new)
        np.tanh(new, out=new)
        np.subtract(state, new, out=state)
        np.multiply(state, g[hidden:two], out=state)
        np.add(state, new, out=state)
        out[start:stop] = state.T
    return (*_narrow(native, out, np.array(h.T, order="C")), gates, recurrent)


@kernel
def gru_layer_backward(grad_out: _Maybe, grad_h: _Maybe, x: ndarray, h0: ndarray, w_ih: ndarray, w_hh: ndarray,
                       sizes: tuple[int, ...], reverse: bool, out: ndarray, gates: ndarray, recurrent: ndarray,
                       needs: Any) -> tuple[Any, ...]:
    """Gradients of x, h0, w_ih, w_hh, b_ih, b_hh."""
    if gates.ndim == 2:
        dx, dh, _, *rest = _native_backward("gru_backward", 3, grad_out, grad_h, None, x, h0, None, w_ih, w_hh,
                                            (out, gates, recurrent, None), sizes, reverse, needs)
        return dx, dh, *rest
    native = x.dtype
    grad_out, grad_h, x, h0, w_ih, w_hh, out = _wide(grad_out, grad_h, x, h0, w_ih, w_hh, out)
    rows, hidden = x.shape[0], h0.shape[1]
    steps = _order(sizes, reverse)
    before = _before(h0, out, steps)
    # The gradients of the gates as the input sees them, and as h does: they differ in n, where h comes in times r.
    inside, flat = (memory.empty((rows, 3 * hidden), x.dtype) for _ in range(2))
    dh = _start(grad_h, h0, x.dtype)
    scratch = np.empty((4 * hidden) * dh.shape[1], x.dtype)
    two = 2 * hidden
    for (start, stop, n), g, kept in zip(reversed(steps), reversed(_blocks(gates, 3 * hidden, steps)),
                                         reversed(_blocks(recurrent, hidden, steps))):
        d, dhs = scratch[:4 * hidden * n].reshape(4 * hidden, n), dh[:, :n]
        d, t = d[:3 * hidden], d[3 * hidden:]
        if grad_out is not None:
            np.add(dhs, grad_out[start:stop].T, out=dhs)
        r, z, new = g[:hidden], g[hidden:two], g[two:]
        np.subtract(1, np.multiply(new, new, out=t), out=t)
        np.multiply(np.multiply(t, np.subtract(1, z, out=d[:hidden]), out=t), dhs, out=t)  # inside n's tanh
        rz = d[:two]
        np.subtract(g[:two], np.multiply(g[:two], g[:two], out=rz), out=rz)
        np.multiply(np.multiply(d[:hidden], kept, out=d[:hidden]), t, out=d[:hidden])
        np.subtract(before[start:stop].T, new, out=d[two:])
        np.multiply(np.multiply(d[hidden:two], d[two:], out=d[hidden:two]), dhs, out=d[hidden:two])
        np.multiply(t, r, out=d[two:])
        np.multiply(dhs, z, out=dhs)
        np.add(dhs, np.matmul(w_hh.T, d), out=dhs)
        flat[start:stop] = d.T
        d[two:] = t
        inside[start:stop] = d.T
    dx, *weights = _weight_gradients(inside, flat, x, w_ih, lambda: before, needs)
    return _narrow(native, dx, np.array(dh.T, order="C"), *weights)


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
    rows, hidden = x.shape[0], h0.shape[1]
    projected = _projected(x, w_ih, _sum(b_ih, b_hh), np.ones(hidden, x.dtype))
    out = memory.empty((rows, hidden), x.dtype)
    h = np.array(h0.T, order="C")
    product = np.empty(hidden * h.shape[1], x.dtype)
    for start, stop, n in _order(sizes, reverse):
        o, state = product[:hidden * n].reshape(hidden, n), h[:, :n]
        np.add(np.matmul(w_hh, state, out=o), projected[:, start:stop], out=o)
        np.maximum(o, 0, out=state) if relu else np.tanh(o, out=state)
        out[start:stop] = state.T
    return _narrow(native, out, np.array(h.T, order="C"))


@kernel
def rnn_layer_backward(grad_out: _Maybe, grad_h: _Maybe, x: ndarray, h0: ndarray, w_ih: ndarray, w_hh: ndarray,
                       sizes: tuple[int, ...], reverse: bool, relu: bool, out: ndarray, needs: Any) -> tuple[Any, ...]:
    """Gradients of x, h0, w_ih, w_hh, b_ih, b_hh."""
    if _native(x, w_hh, sizes, reverse) is not None:
        dx, dh, _, *rest = _native_backward("rnn_backward", 1, grad_out, grad_h, None, x, h0, None, w_ih, w_hh,
                                            (out, None, None, None), sizes, reverse, needs, relu)
        return dx, dh, *rest
    native = x.dtype
    grad_out, grad_h, x, h0, w_ih, w_hh, out = _wide(grad_out, grad_h, x, h0, w_ih, w_hh, out)
    steps = _order(sizes, reverse)
    d = (out > 0).astype(out.dtype) if relu else 1 - out * out
    dh = _start(grad_h, h0, x.dtype)
    for start, stop, n in reversed(steps):
        dhs, part = dh[:, :n], d[start:stop]
        if grad_out is not None:
            np.add(dhs, grad_out[start:stop].T, out=dhs)
        np.multiply(part, dhs.T, out=part)
        np.matmul(w_hh.T, part.T, out=dhs)
    dx, *weights = _weight_gradients(d, d, x, w_ih, lambda: _before(h0, out, steps), needs)
    return _narrow(native, dx, np.array(dh.T, order="C"), *weights)
