"""Recurrent layers: one fused row for each direction of a layer, and the functions that stack them (torch.lstm, gru...).

Weights come in PyTorch's order: w_ih, w_hh, then b_ih, b_hh, then w_hr (LSTM with a projection), for each layer and in it
for each direction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...autograd.state import AUTOCAST, FORWARD_AD, state
from ...backends import registry
from ...backends.cpu.layers import rnn as _kernels  # noqa: F401  (enters the kernels into the table)
from ...tensors.tensor import Tensor
from ..core.row import FUNCTIONS, Row, _type_word, public
from ..core.steps import by_steps
from ..linalg.matmul import linear
from ..rules import layers


# --------------------------------------------------------------------------------------------------- in small operations
def _recurrence(x: Tensor, state_: list[Tensor], sizes: tuple[int, ...], reverse: bool,
                step: Callable[[Tensor, list[Tensor]], tuple[Tensor, list[Tensor]]]) -> tuple[Tensor, list[Tensor]]:
    """Runs step over the rows of each step; the state's rows beyond a step's count stay as they are."""
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    outputs: list[Any] = [None] * len(sizes)
    for k in (reversed(range(len(sizes))) if reverse else range(len(sizes))):
        n = sizes[k]
        rows = x.narrow(0, starts[k], n)
        outputs[k], changed = step(rows, [s.narrow(0, 0, n) for s in state_])
        state_ = [c if n == s.shape[0] else FUNCTIONS["cat"]([c, s.narrow(0, n, s.shape[0] - n)])
                  for c, s in zip(changed, state_)]
    return FUNCTIONS["cat"](outputs), state_


def _lstm_steps(x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, sizes, reverse):
    def step(rows, before):
        h, c = before
        i, f, g, o = (linear(rows, w_ih, b_ih) + linear(h, w_hh, b_hh)).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        h = h if w_hr is None else linear(h, w_hr)
        return h, [h, c]

    out, (h, c) = _recurrence(x, [h0, c0], sizes, reverse, step)
    return out, h, c


def _gru_steps(x, h0, w_ih, w_hh, b_ih, b_hh, sizes, reverse):
    def step(rows, before):
        (h,) = before
        r, z, n = linear(rows, w_ih, b_ih).chunk(3, 1)
        hr, hz, hn = linear(h, w_hh, b_hh).chunk(3, 1)
        r, z = (r + hr).sigmoid(), (z + hz).sigmoid()
        n = (n + r * hn).tanh()
        h = (h - n) * z + n
        return h, [h]

    out, (h,) = _recurrence(x, [h0], sizes, reverse, step)
    return out, h


def _rnn_steps(x, h0, w_ih, w_hh, b_ih, b_hh, sizes, reverse, relu):
    def step(rows, before):
        h = linear(rows, w_ih, b_ih) + linear(before[0], w_hh, b_hh)
        h = h.relu() if relu else h.tanh()
        return h, [h]

    out, (h,) = _recurrence(x, [h0], sizes, reverse, step)
    return out, h


# ----------------------------------------------------------------------------------------------------------- the rows
def _layer(name: str, wanted: str, numbers: str, steps: Callable, backward: str, **options: Any) -> Row:
    """One direction of one layer. backward: the call of the kernel that gives the gradients of all that is wanted."""
    args = f"{wanted} {numbers}"
    return Row(f"{name}_layer", args, backward=by_steps(steps, args, wanted), fused={wanted: backward}, **options)


_lstm_layer = _layer(
    "lstm", "input hx cx w_ih w_hh b_ih b_hh w_hr", "sizes reverse", _lstm_steps,
    "lstm_layer_backward(grads[0], grads[1], grads[2], input, hx, cx, w_ih, w_hh, w_hr, sizes, reverse, result0, result3, "
    "result4, result5, (needs[0], any(needs[3:])))", shape=layers.lstm, node="MkldnnRnnLayerBackward0", constant=(3, 4, 5))
_gru_layer = _layer(
    "gru", "input hx w_ih w_hh b_ih b_hh", "sizes reverse", _gru_steps,
    "gru_layer_backward(grads[0], grads[1], input, hx, w_ih, w_hh, sizes, reverse, result0, result2, result3, "
    "(needs[0], any(needs[2:])))", shape=layers.gru, node="GruLayerBackward0", constant=(2, 3))
_rnn_layer = _layer(
    "rnn", "input hx w_ih w_hh b_ih b_hh", "sizes reverse relu", _rnn_steps,
    "rnn_layer_backward(grads[0], grads[1], input, hx, w_ih, w_hh, sizes, reverse, relu, result0, "
    "(needs[0], any(needs[2:])))", shape=layers.rnn, node="RnnLayerBackward0")


def _fusable(*tensors: Any) -> bool:
    """Whether the fused rows can run: real numbers in main memory (or none), and nobody wants forward-mode derivatives."""
    return not state.mode & FORWARD_AD and all(
        [t is None or (registry.backend_of(t._array).NAME in ("cpu", "meta") and t.dtype.is_floating_point) for t in tensors])


class _Kind:
    """A kind of layer: the number of gates, and one direction of one layer over rows that lie step after step."""

    def __init__(self, name: str, gates: int):
        self.name, self.gates = name, gates

    def layer(self, x: Tensor, hidden: list[Tensor], weights: list[Any], sizes: tuple[int, ...],
              reverse: bool) -> tuple[Tensor, list[Tensor]]:
        """(output rows, the state at the end)."""
        w_ih, w_hh, b_ih, b_hh, w_hr = weights
        if not state.mode & AUTOCAST:
            _same_dtype(self.name, x, *hidden, *weights)
        casting = state.mode & AUTOCAST  # each small operation then chooses its own precision, as in PyTorch
        fusable = not casting and _fusable(x, *hidden, *weights)
        if self.name == "lstm":
            run = _lstm_layer if fusable else _lstm_steps
            made = run(x, *hidden, w_ih, w_hh, b_ih, b_hh, w_hr, sizes, reverse)
            return made[0], list(made[1:3])
        if self.name == "gru":
            made = (_gru_layer if fusable else _gru_steps)(x, *hidden, w_ih, w_hh, b_ih, b_hh, sizes, reverse)
        else:
            made = (_rnn_layer if fusable else _rnn_steps)(x, *hidden, w_ih, w_hh, b_ih, b_hh, sizes, reverse,
                                                         self.name == "rnn_relu")
        return made[0], [made[1]]


def _same_dtype(name: str, x: Tensor, *others: Any) -> None:
    for t in others:
        if t is not None and t.dtype is not x.dtype:
            raise RuntimeError("mat1 and mat2 must have the same dtype, but got "
                               f"{_short(x)} and {_short(t)} ({name}: {x.dtype.c_word} != {t.dtype.c_word})")


def _short(t: Tensor) -> str:
    return _type_word(t.dtype)


_LSTM, _GRU = _Kind("lstm", 4), _Kind("gru", 3)
_TANH, _RELU = _Kind("rnn_tanh", 1), _Kind("rnn_relu", 1)


# ------------------------------------------------------------------------------------------------------- stacks of layers
def _grouped(params: Any, has_biases: bool, projected: bool, layers: int, directions: int, name: str) -> list[list[Any]]:
    """The flat list of weights as [w_ih, w_hh, b_ih, b_hh, w_hr] for each layer and direction, None where missing."""
    each = 2 + 2 * bool(has_biases) + bool(projected)
    if len(params) != each * layers * directions:
        raise RuntimeError(f"{name}: got an incorrect number of RNN parameters: expected {each * layers * directions}, got "
                           f"{len(params)}")
    made = []
    for k in range(0, len(params), each):
        group = list(params[k:k + each])
        biases = group[2:4] if has_biases else [None, None]
        made.append([*group[:2], *biases, group[-1] if projected else None])
    return made


def _stack(kind: _Kind, x: Tensor, hidden: list[Tensor], params: Any, has_biases: bool, layers: int, dropout: float,
           train: bool, bidirectional: bool, sizes: tuple[int, ...]) -> tuple[Tensor, list[Tensor]]:
    """All layers over rows that lie step after step; hidden: (layers * directions, batch, features) each."""
    directions = 2 if bidirectional else 1
    projected = kind.name == "lstm" and hidden[0].shape[2] != hidden[1].shape[2]
    groups = _grouped(params, has_biases, projected, layers, directions, kind.name)
    ends: list[list[Tensor]] = []
    starts = [h.unbind(0) for h in hidden]
    for layer in range(layers):
        outs = []
        for way in range(directions):
            k = layer * directions + way
            out, end = kind.layer(x, [s[k] for s in starts], groups[k], sizes, way == 1)
            outs.append(out)
            ends.append(end)
        x = outs[0] if directions == 1 else FUNCTIONS["cat"](outs, 1)
        if dropout and train and layer < layers - 1:
            x = FUNCTIONS["dropout"](x, dropout, True)
    return x, [FUNCTIONS["stack"]([e[k] for e in ends], 0) for k in range(len(hidden))]


def _forward(kind: _Kind, args: tuple[Any, ...]) -> tuple[Tensor, list[Tensor]]:
    """Both forms of torch.lstm and its like: (input, hx, ...) and, packed, (data, batch_sizes, hx, ...)."""
    packed = (isinstance(args[3], (list, tuple)) and not isinstance(args[2], (list, tuple))) or (
        kind.name == "lstm" and isinstance(args[2], (list, tuple)) and isinstance(args[3], (list, tuple)))
    if packed:
        data, batch_sizes, hx, params, has_biases, layers, dropout, train, bidirectional = args
        hidden = list(hx) if isinstance(hx, (list, tuple)) else [hx]
        return _stack(kind, data, hidden, params, has_biases, layers, dropout, train, bidirectional,
                      tuple(batch_sizes.tolist()))
    x, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first = args
    hidden = list(hx) if isinstance(hx, (list, tuple)) else [hx]
    if batch_first:
        x = x.transpose(0, 1)
    if x.ndim != 3:
        raise RuntimeError(f"{kind.name}: Expected 3-D input (time, batch, features), got {x.ndim}-D")
    steps, batch, size = x.shape
    if steps == 0:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    rows, hidden = _stack(kind, x.reshape(steps * batch, size), hidden, params, has_biases, layers, dropout, train,
                          bidirectional, (batch,) * steps)
    out = rows.view(steps, batch, rows.shape[1])
    return out.transpose(0, 1) if batch_first else out, hidden


@public(method=False, out=False, autocast="lower")
def lstm(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    """lstm(input, (h, c), params, has_biases, num_layers, dropout, train, bidirectional, batch_first), or packed
    lstm(data, batch_sizes, (h, c), params, has_biases, num_layers, dropout, train, bidirectional).

    >>> layer = nn.LSTM(3, 4)
    >>> state = torch.zeros(1, 2, 4), torch.zeros(1, 2, 4)
    >>> out, h, c = torch.lstm(torch.ones(5, 2, 3), state, layer._flat_weights, True, 1, 0.0, False, False, False)
    >>> out.shape, h.shape, c.shape
    (torch.Size([5, 2, 4]), torch.Size([1, 2, 4]), torch.Size([1, 2, 4]))
    """
    for a in args:
        if isinstance(a, (list, tuple)):
            if len(a) != 2:
                raise RuntimeError("lstm expects two hidden states")
            break
    out, (h, c) = _forward(_LSTM, args)
    return out, h, c


def _one_state(kind: _Kind) -> Callable:
    def function(*args: Any) -> tuple[Tensor, Tensor]:
        out, (h,) = _forward(kind, args)
        return out, h

    function.__name__ = kind.name
    function.__doc__ = (f"{kind.name}(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, "
                        "batch_first), or packed: (data, batch_sizes, hx, ...).")
    return public(function, method=False, out=False)


gru, rnn_tanh, rnn_relu = _one_state(_GRU), _one_state(_TANH), _one_state(_RELU)


# ----------------------------------------------------------------------------------------------------------------- cells
def _check_cell(name: str, x: Tensor, hidden: list[Tensor], w_ih: Tensor, w_hh: Tensor, gates: int) -> None:
    if x.shape[1] != w_ih.shape[1]:
        raise RuntimeError(f"input has inconsistent input_size: got {x.shape[1]} expected {w_ih.shape[1]}")
    for k, h in enumerate(hidden):
        if x.shape[0] != h.shape[0]:
            raise RuntimeError(f"Input batch size {x.shape[0]} doesn't match hidden{k} batch size {h.shape[0]}")
        if h.shape[1] * gates != w_hh.shape[0]:
            raise RuntimeError(f"{name}: hidden{k} has inconsistent hidden_size: got {h.shape[1]}, expected "
                               f"{w_hh.shape[0] // gates}")


def _cell(kind: _Kind, x: Tensor, hidden: list[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any) -> list[Tensor]:
    single = x.ndim == 1
    if single:
        x, hidden = x.unsqueeze(0), [h.unsqueeze(0) for h in hidden]
    _check_cell(kind.name, x, hidden, w_ih, w_hh, kind.gates)
    if (b_ih is None) != (b_hh is None):
        b_ih, b_hh = [w_ih.new_zeros(w_ih.shape[0]) if b is None else b for b in (b_ih, b_hh)]
    _, made = kind.layer(x, hidden, [w_ih, w_hh, b_ih, b_hh, None], (x.shape[0],), False)
    return [m.squeeze(0) for m in made] if single else made


@public(method=False, out=False)
def lstm_cell(input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
              b_hh: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """One step of an LSTM: (h, c).

    >>> state = torch.zeros(2, 4), torch.zeros(2, 4)
    >>> h, c = torch.lstm_cell(torch.ones(2, 3), state, torch.ones(16, 3), torch.ones(16, 4))
    >>> h.shape, c.shape
    (torch.Size([2, 4]), torch.Size([2, 4]))
    """
    if len(hx) != 2:
        raise RuntimeError("lstm_cell expects two hidden states")
    h, c = _cell(_LSTM, input, list(hx), w_ih, w_hh, b_ih, b_hh)
    return h, c


def _one_state_cell(kind: _Kind) -> Callable:
    def function(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
                 b_hh: Tensor | None = None) -> Tensor:
        return _cell(kind, input, [hx], w_ih, w_hh, b_ih, b_hh)[0]

    function.__name__ = kind.name + "_cell"
    function.__doc__ = f"One step of a layer of kind {kind.name}: h."
    return public(function, method=False, out=False)


gru_cell, rnn_tanh_cell, rnn_relu_cell = _one_state_cell(_GRU), _one_state_cell(_TANH), _one_state_cell(_RELU)
