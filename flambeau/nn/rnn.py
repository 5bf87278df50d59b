"""Recurrent layers: RNN, LSTM, GRU, and their cells for one step."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any

from ..autograd.state import AUTOCAST, state
from ..creation import factories as creation
from ..ops.layers import rnn as _ops
from ..tensors.tensor import Tensor
from . import init
from .explain import wrong_size
from .module import Module
from .parameter import Parameter
from .utils.rnn import PackedSequence

__all__ = ["RNNBase", "RNN", "LSTM", "GRU", "RNNCellBase", "RNNCell", "LSTMCell", "GRUCell"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
_FUNCTIONS = {"LSTM": _ops.lstm, "GRU": _ops.gru, "RNN_TANH": _ops.rnn_tanh, "RNN_RELU": _ops.rnn_relu}


def apply_permutation(tensor: Tensor, permutation: Tensor, dim: int = 1) -> Tensor:
    """The tensor with one dimension in another order."""
    return tensor.index_select(dim, permutation)


_apply_permutation = apply_permutation


class RNNBase(Module):
    """What RNN, LSTM and GRU share: their weights, their checks, and the walk over packed and padded input.

    Weights are named weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0 (and weight_hr_l0), then l1...; those of the
    direction from the end have the suffix _reverse.

    >>> isinstance(nn.LSTM(2, 3), nn.RNNBase)
    True
    """

    __constants__ = ["mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout",
                     "bidirectional", "proj_size"]

    def __init__(self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        _check_options(mode, input_size, hidden_size, num_layers, bias, batch_first, dropout, proj_size)
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        if dropout > 0 and num_layers == 1:
            warnings.warn("dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
                          f"num_layers greater than 1, but got dropout={dropout} and num_layers={num_layers}", stacklevel=2)
        self._all_weights: list[list[str]] = []
        ways = 2 if bidirectional else 1
        width, rows = proj_size or hidden_size, _GATES[mode] * hidden_size
        for layer in range(num_layers):
            for way in range(ways):
                suffix = f"_l{layer}{'_reverse' if way else ''}"
                shapes: dict[str, tuple[int, ...]] = {
                    "weight_ih": (rows, input_size if layer == 0 else width * ways), "weight_hh": (rows, width)}
                if bias:
                    shapes.update(bias_ih=(rows,), bias_hh=(rows,))
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    setattr(self, name + suffix, Parameter(creation.empty(shape, device=device, dtype=dtype)))
                self._all_weights.append([name + suffix for name in shapes])
        self._flat_weights_names = [name for names in self._all_weights for name in names]
        self.reset_parameters()

    @property
    def _flat_weights(self) -> list[Any]:
        """The weights as they are now, in PyTorch's order."""
        return [getattr(self, name, None) for name in self._flat_weights_names]

    @_flat_weights.setter
    def _flat_weights(self, value: Any) -> None:
        pass  # they are looked up by name

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The weights of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Does nothing: only GPUs have a use for weights in one piece of memory."""

    def reset_parameters(self) -> None:
        """Draws all weights from a uniform distribution within 1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _mismatch(self, input: Tensor, name: str) -> str:
        return wrong_size(input, -1, self.input_size, "input_size", name)

    # ---------------------------------------------------------------------------------------------------- checks
    def _mismatch(self, input: Tensor, name: str) -> str:
        return wrong_size(input, -1, self.input_size, "input_size", name)

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """The dtype, the dimensions and the features of the input."""
        weight = getattr(self, self._flat_weights_names[0])
        if input.dtype is not weight.dtype and not state.mode & AUTOCAST:
            raise ValueError(f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). Convert "
                             f"input: input.to({weight.dtype}), or convert model: model.to({input.dtype})")
        expected = 2 if batch_sizes is not None else 3
        if input.ndim != expected:
            raise RuntimeError(f"input must have {expected} dimensions, got {input.ndim}")
        if self.input_size != input.shape[-1]:
            raise RuntimeError(f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got "
                               f"{input.shape[-1]}")

    def _state_size(self, input: Tensor, batch_sizes: Tensor | None, width: int) -> tuple[int, int, int]:
        if batch_sizes is not None:
            batch = int(batch_sizes[0])
        else:
            batch = input.shape[0 if self.batch_first else 1]
        return self.num_layers * (2 if self.bidirectional else 1), batch, width

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """(layers * directions, batch, features) of h."""
        return self._state_size(input, batch_sizes, self.proj_size or self.hidden_size)

    def check_hidden_size(self, hx: Tensor, expected_hidden_size: tuple[int, int, int],
                          msg: str = "Expected hidden size {}, got {}") -> None:
        """RuntimeError unless hx has the expected shape."""
        if tuple(hx.shape) != tuple(expected_hidden_size):
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.shape)))

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """All checks of input and state."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """The state with its batch in another order."""
        return hx if permutation is None else apply_permutation(hx, permutation)

    # --------------------------------------------------------------------------------------------------- forward
    def forward(self, input: Any, hx: Any = None) -> Any:
        """(output of each step, state at the end), from padded or packed input."""
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        name = self.mode.partition("_")[0]
        if input.ndim not in (2, 3):
            raise ValueError(f"{name}: Expected input to be 2D or 3D, got {input.ndim}D "
                             f"{'tensor ' if name == 'RNN' else ''}instead")
        batched, batch_dim = input.ndim == 3, 0 if self.batch_first else 1
        if not batched:
            input = input.unsqueeze(batch_dim)
        if hx is None:
            hx = self._zeros(input, None)
        else:
            hx = self._checked_state(hx, batched)
        self.check_forward_args(input, hx, None)
        output, *hidden = _FUNCTIONS[self.mode](input, hx, self._flat_weights, self.bias, self.num_layers, self.dropout,
                                                self.training, self.bidirectional, self.batch_first)
        if not batched:
            output, hidden = output.squeeze(batch_dim), [h.squeeze(1) for h in hidden]
        return output, self._joined(hidden)

    def _forward_packed(self, packed: PackedSequence, hx: Any) -> Any:
        data, batch_sizes, sorted_indices, unsorted_indices = packed
        hx = self._zeros(data, batch_sizes) if hx is None else self.permute_hidden(hx, sorted_indices)
        self.check_forward_args(data, hx, batch_sizes)
        output, *hidden = _FUNCTIONS[self.mode](data, batch_sizes, hx, self._flat_weights, self.bias, self.num_layers,
                                                self.dropout, self.training, self.bidirectional)
        return (PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices),
                self.permute_hidden(self._joined(hidden), unsorted_indices))

    def _zeros(self, input: Tensor, batch_sizes: Tensor | None) -> Any:
        return input.new_zeros(self.get_expected_hidden_size(input, batch_sizes))

    def _checked_state(self, hx: Tensor, batched: bool) -> Tensor:
        expected = 3 if batched else 2
        if hx.ndim != expected:
            raise RuntimeError(f"For {'batched 3-D' if batched else 'unbatched 2-D'} input, hx should also be "
                               f"{expected}-D but got {hx.ndim}-D tensor")
        return hx if batched else hx.unsqueeze(1)

    def _joined(self, hidden: list[Tensor]) -> Any:
        return hidden[0]

    def extra_repr(self) -> str:
        made = f"{self.input_size}, {self.hidden_size}"
        for name, usual in (("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0),
                            ("bidirectional", False)):
            value = getattr(self, name)
            if value != usual:
                made += f", {name}={value}"
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_flat_weights": self._flat_weights}  # PyTorch looks for them in a pickle

    def __setstate__(self, state: dict[str, Any]) -> None:
        state.pop("_flat_weights", None)
        super().__setstate__(state)
        self.__dict__.setdefault("proj_size", 0)


def _check_options(mode: str, input_size: Any, hidden_size: Any, num_layers: int, bias: Any, batch_first: Any,
                   dropout: Any, proj_size: int) -> None:
    if not isinstance(dropout, numbers.Number) or isinstance(dropout, bool) or not 0 <= dropout <= 1:
        raise ValueError("dropout should be a number in range [0, 1] representing the probability of an element being zeroed")
    for name, value, kind in (("bias", bias, bool), ("batch_first", batch_first, bool), ("input_size", input_size, int),
                              ("hidden_size", hidden_size, int)):
        if not isinstance(value, kind):
            raise TypeError(f"{name} should be of type {kind.__name__}, got: {type(value).__name__}")
    for name, value in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
        if value <= 0:
            raise ValueError(f"{name} must be greater than zero")
    if proj_size < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if proj_size >= hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")
    if mode not in _GATES:
        raise ValueError("Unrecognized RNN mode: " + mode)


def _refuse_projection(options: dict[str, Any]) -> None:
    if "proj_size" in options:
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")


class RNN(RNNBase):
    """h = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu with nonlinearity='relu'.

    RNN(input_size, hidden_size, num_layers=1, nonlinearity='tanh', bias=True, batch_first=False, dropout=0.0,
    bidirectional=False): input (steps, batch, features), state (layers * directions, batch, hidden_size).

    Shapes: (length, batch, input_size), or (batch, length, input_size) with batch_first; gives all states (length, batch,
    hidden_size) and the last (num_layers, batch, hidden_size).

    >>> out, last = nn.RNN(10, 20, batch_first=True)(torch.randn(3, 5, 10))
    >>> out.shape, last.shape
    (torch.Size([3, 5, 20]), torch.Size([1, 3, 20]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse_projection(kwargs)
        if len(args) > 3:
            kind, args = args[3], args[:3] + args[4:]
        else:
            kind = kwargs.pop("nonlinearity", "tanh")
        if kind not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{kind}'. Select from 'tanh' or 'relu'.")
        super().__init__(f"RNN_{kind.upper()}", *args, **kwargs)
        self.nonlinearity = kind


class LSTM(RNNBase):
    """Long short-term memory: c = f * c + i * g, h = o * tanh(c), with gates i, f, g, o of the input and of h.

    LSTM(input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False,
    proj_size=0); the state is the pair (h, c).

    Shapes: (length, batch, input_size), or (batch, length, input_size) with batch_first; gives all states and (last state,
    last cell), each (num_layers, batch, hidden_size).

    >>> lstm = nn.LSTM(10, 20, num_layers=2, batch_first=True)
    >>> out, (state, cell) = lstm(torch.randn(3, 5, 10))
    >>> out.shape, state.shape, cell.shape
    (torch.Size([3, 5, 20]), torch.Size([2, 3, 20]), torch.Size([2, 3, 20]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """(layers * directions, batch, hidden_size)."""
        return self._state_size(input, batch_sizes, self.hidden_size)

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """All checks of input and state."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden[0], self.get_expected_hidden_size(input, batch_sizes),
                               "Expected hidden[0] size {}, got {}")
        self.check_hidden_size(hidden[1], self.get_expected_cell_size(input, batch_sizes),
                               "Expected hidden[1] size {}, got {}")

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """The state with its batch in another order."""
        return hx if permutation is None else tuple([apply_permutation(h, permutation) for h in hx])

    def _zeros(self, input: Tensor, batch_sizes: Tensor | None) -> Any:
        return (input.new_zeros(self.get_expected_hidden_size(input, batch_sizes)),
                input.new_zeros(self.get_expected_cell_size(input, batch_sizes)))

    def _checked_state(self, hx: Any, batched: bool) -> Any:
        expected = 3 if batched else 2
        if hx[0].ndim != expected or hx[1].ndim != expected:
            raise RuntimeError(f"For {'batched 3-D' if batched else 'unbatched 2-D'} input, hx and cx should also be "
                               f"{expected}-D but got ({hx[0].ndim}-D, {hx[1].ndim}-D) tensors")
        return tuple(hx) if batched else (hx[0].unsqueeze(1), hx[1].unsqueeze(1))

    def _joined(self, hidden: list[Tensor]) -> Any:
        return tuple(hidden)


class GRU(RNNBase):
    """Gated recurrent unit: h = (1 - z) * n + z * h with n = tanh(W x + r * (U h)), gates r, z of the input and of h.

    GRU(input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False).

    Shapes: (length, batch, input_size), or (batch, length, input_size) with batch_first; gives all states and the last
    (num_layers, batch, hidden_size).

    >>> out, last = nn.GRU(10, 20, bidirectional=True)(torch.randn(5, 3, 10))
    >>> out.shape, last.shape
    (torch.Size([5, 3, 40]), torch.Size([2, 3, 20]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse_projection(kwargs)
        super().__init__("GRU", *args, **kwargs)


# ------------------------------------------------------------------------------------------------------------- cells
class RNNCellBase(Module):
    """The weights of a cell: weight_ih, weight_hh, bias_ih, bias_hh.

    >>> isinstance(nn.GRUCell(2, 3), nn.RNNCellBase)
    True
    """

    __constants__ = ["input_size", "hidden_size", "bias"]

    def __init__(self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = num_chunks * hidden_size
        shapes = dict(weight_ih=(rows, input_size), weight_hh=(rows, hidden_size), bias_ih=(rows,), bias_hh=(rows,))
        for name, shape in shapes.items():
            wanted = bias or name.startswith("weight")
            self.register_parameter(name, Parameter(creation.empty(shape, device=device, dtype=dtype)) if wanted
                                    else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all weights from a uniform distribution within 1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        made = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            made += f", bias={self.bias}"
        kind = self.__dict__.get("nonlinearity", "tanh")
        return made if kind == "tanh" else made + f", nonlinearity={kind}"

    def _step(self, function: Any, input: Tensor, hx: Any) -> Any:
        name = type(self).__name__
        if input.ndim not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.ndim}D instead")
        pair = isinstance(self, LSTMCell)
        for k, h in enumerate(() if hx is None else hx if pair else (hx,)):
            if h.ndim not in (1, 2):
                raise ValueError(f"{name}: Expected {f'hx[{k}]' if pair else 'hidden'} to be 1D or 2D, got {h.ndim}D instead")
        batched = input.ndim == 2
        if not batched:
            input = input.unsqueeze(0)
        if hx is None:
            zeros = input.new_zeros((input.shape[0], self.hidden_size))
            hx = (zeros, zeros) if pair else zeros
        elif not batched:
            hx = tuple([h.unsqueeze(0) for h in hx]) if pair else hx.unsqueeze(0)
        made = function(input, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        if batched:
            return made
        return tuple([m.squeeze(0) for m in made]) if pair else made.squeeze(0)


class RNNCell(RNNCellBase):
    """One step of an RNN: tanh(W_ih x + b_ih + W_hh h + b_hh), or relu.

    Shapes: (batch, input_size) to (batch, hidden_size).

    >>> nn.RNNCell(10, 20)(torch.randn(3, 10)).shape
    torch.Size([3, 20])
    """

    __constants__ = ["input_size", "hidden_size", "bias", "nonlinearity"]

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh",
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=1, device=device, dtype=dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next h."""
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step(_ops.rnn_tanh_cell if self.nonlinearity == "tanh" else _ops.rnn_relu_cell, input, hx)


class LSTMCell(RNNCellBase):
    """One step of an LSTM.

    Shapes: (batch, input_size) to a pair of (batch, hidden_size).

    >>> state, cell = nn.LSTMCell(10, 20)(torch.randn(3, 10))
    >>> state.shape
    torch.Size([3, 20])
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=4, device=device, dtype=dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """The next (h, c)."""
        return self._step(_ops.lstm_cell, input, hx)


class GRUCell(RNNCellBase):
    """One step of a GRU.

    Shapes: (batch, input_size) to (batch, hidden_size).

    >>> nn.GRUCell(10, 20)(torch.randn(3, 10)).shape
    torch.Size([3, 20])
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=3, device=device, dtype=dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next h."""
        return self._step(_ops.gru_cell, input, hx)
