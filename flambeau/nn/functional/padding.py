"""pad."""

from __future__ import annotations

from typing import Any

from ...ops.layers.padding import pad_edges
from ...ops.shape.joining import constant_pad_nd
from ...tensors.tensor import Tensor
from .activations import functional

__all__ = ["pad"]


@functional
def pad(input: Tensor, pad: Any, mode: str = "constant", value: float | None = None) -> Tensor:
    """Pads the last dimensions: pad = (before, after) of the last one, then of the one before it...

    mode: "constant" (any number of dimensions), or "reflect", "replicate", "circular" (the last 1 to 3).

    >>> F.pad(torch.tensor([1, 2, 3]), (1, 2))
    tensor([0, 1, 2, 3, 0, 0])
    >>> F.pad(torch.tensor([[1.0, 2.0, 3.0]]), (1, 1), mode="reflect")
    tensor([[2., 1., 2., 3., 2.]])
    """
    if isinstance(pad, Tensor):
        pad = pad.tolist()
    if mode == "constant":
        return constant_pad_nd(input, pad, 0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if len(pad) % 2:
        raise RuntimeError(f"Padding length must be divisible by 2, but got {len(pad)}")
    if len(pad) // 2 > input.dim():
        raise RuntimeError("Padding length should be less than or equal to two times the input dimension but got "
                           f"padding length {len(pad)} and input of dimension {input.dim()}")
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    return pad_edges(input, pad, mode)
