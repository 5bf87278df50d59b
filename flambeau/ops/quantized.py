"""What quantized tensors answer to, as functions and methods: of ordinary tensors they are errors, apart from `dequantize`.

A QuantizedTensor (torch_names/quantized_tensors.py) has methods of these names, and hears of the functions by
`__torch_function__`.
"""

from __future__ import annotations

from typing import Any

from ..tensors.tensor import Tensor
from .core.row import public

_NAMES = {
    "int_repr": "The integers of a quantized tensor.",
    "q_scale": "The scale of a tensor that is quantized with one.",
    "q_zero_point": "The integer that stands for zero.",
    "q_per_channel_scales": "The scales of a tensor that is quantized with one per channel.",
    "q_per_channel_zero_points": "The integers that stand for zero, one per channel.",
    "q_per_channel_axis": "The dimension that the channels lie along.",
}


@public(out=False, also={"tensors": "input", "qtensor": "input"})
def dequantize(input: Any) -> Any:
    """A quantized tensor as an ordinary one; an ordinary one as it is (a list of them: one by one).

    >>> torch.quantize_per_tensor(torch.tensor([0.26, -1.0]), 0.1, 0, torch.qint8).dequantize()
    tensor([ 0.3000, -1.0000])
    """
    if isinstance(input, (list, tuple)):
        return type(input)([dequantize(t) for t in input])
    return input.float()


def _of_quantized(name: str, text: str) -> None:
    def function(input: Tensor) -> Any:
        raise NotImplementedError(f"Could not run 'aten::{name}' with arguments from the 'CPU' backend: the tensor is of dtype "
                                  f"{input.dtype}, and not quantized (quantize_per_tensor makes one that is)")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{text}\n\n    >>> q = torch.quantize_per_{_EXAMPLES[name]}\n    "
    public(function, name=name, out=False)


_TENSOR = "tensor(torch.tensor([0.2, -1.0]), 0.1, 0, torch.qint8)\n    >>> torch."
_CHANNEL = ("channel(torch.eye(2), torch.tensor([0.5, 0.25]), torch.tensor([0, 0]), 0, torch.qint8)\n    >>> torch.")
_EXAMPLES = {
    "int_repr": _TENSOR + "int_repr(q)\n    tensor([  2, -10], dtype=torch.int8)",
    "q_scale": _TENSOR + "q_scale(q)\n    0.1",
    "q_zero_point": _TENSOR + "q_zero_point(q)\n    0",
    "q_per_channel_scales": _CHANNEL + "q_per_channel_scales(q)\n    tensor([0.5000, 0.2500], dtype=torch.float64)",
    "q_per_channel_zero_points": _CHANNEL + "q_per_channel_zero_points(q)\n    tensor([0, 0])",
    "q_per_channel_axis": _CHANNEL + "q_per_channel_axis(q)\n    0",
}
for _name, _text in _NAMES.items():
    _of_quantized(_name, _text)


@public(toplevel=False, out=False)
def qscheme(self: Tensor) -> Any:
    """How a tensor is quantized.

    >>> torch.quantize_per_tensor(torch.ones(1), 0.1, 0, torch.qint8).qscheme()
    torch.per_tensor_affine
    """
    raise NotImplementedError("Could not run 'aten::qscheme' with arguments from the 'CPU' backend: it is not quantized")
