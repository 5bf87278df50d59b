"""Padding with a reflection, the edge's value or the other end (with a constant: ops/shape/joining.py)."""

from __future__ import annotations

from typing import Any

from ...tensors.tensor import Tensor
from ..core.row import Row, check_on_cpu, moving, public
from ..rules import images
from .layouts import keeping_layout

_edges_grad = moving("pad_edges_backward", "grad pad mode", batch="pad_edges", shape=images.edges_backward, backward=dict(
    grad=lambda grad, pad, mode: _edges["circular", 0](grad, pad, mode)))


def _edges_self(grad, pad, mode):
    return _edges_grad(grad, pad, mode)


_edges = {("circular", 0): moving("pad_circular", "self pad mode", shape=images.edges,
                               kernel="pad_edges", node="PadCircularBackward0",
                               forward="linear", backward=dict(self=_edges_self))}
for _mode, _word in (("reflect", "Reflection"), ("replicate", "Replication")):
    for _n in (1, 2, 3):
        _edges[_mode, _n] = Row(f"pad_{_mode}{_n}", "self pad mode", kernel="pad_edges", forward="linear",
                                node=f"{_word}Pad{_n}DBackward0", backward=dict(self=_edges_self))


def _pairs(pad: Any, ndim: int) -> tuple[tuple[int, int], ...]:
    """(before, after) for each dimension, from PyTorch's list, which starts at the last dimension."""
    pad = [int(p) for p in pad]
    if len(pad) % 2:
        raise RuntimeError(f"Padding length must be divisible by 2, but got {len(pad)}")
    if len(pad) // 2 > ndim:
        raise RuntimeError("Padding length should be less than or equal to two times the input dimension but got padding "
                           f"length {len(pad)} and input of dimension {ndim}")
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)][::-1]
    return ((0, 0),) * (ndim - len(pairs)) + tuple(pairs)


def _cut(x: Tensor, pads: Any) -> Tensor:
    """Negative padding cuts elements off."""
    for d, (before, after) in enumerate(pads):
        before, after = min(before, 0), min(after, 0)
        if before or after:
            left = x.shape[d] + before + after
            if left < 0:
                raise RuntimeError(f"The input size {x.shape[d]}, plus negative padding {before} and {after} resulted in "
                                   f"a negative output size, which is invalid. Check dimension {d} of your input.")
            x = x.narrow(d, -before, left)
    return x


def pad_edges(input: Tensor, pad: Any, mode: str) -> Tensor:
    """Padding by the tensor's own values: `reflect`, `replicate` or `circular`, in the last 1 to 3 dimensions."""
    n, ndim = len(pad) // 2, input.ndim
    if len(pad) % 2 or n not in (1, 2, 3) or ndim not in (n + 1, n + 2):
        if mode == "circular" and not len(pad) % 2 and ndim == n + 2:
            pass
        else:
            raise NotImplementedError(f"Padding size {len(pad)} is not supported for {ndim}D input tensor.\nOnly 2D, 3D, "
                                      "4D, 5D padding with non-constant padding are supported for now: 2 numbers pad the "
                                      "last dimension of 2D and 3D input, 4 the last two of 3D and 4D, 6 the last three of "
                                      f"4D and 5D (mode '{mode}')")
    pads = _pairs(pad, ndim)
    _check_sizes(input, pads, mode, n)
    grown = tuple([(max(a, 0), max(b, 0)) for a, b in pads])
    if mode == "circular":  # here what is cut off does not come back at the other end
        return _edges["circular", 0](_cut(input, pads), grown, mode)

    check_on_cpu(f"{'reflection' if mode == 'reflect' else 'replication'}_pad{n}d", input, "ifch")

    def padded(x: Tensor) -> Tensor:
        made = _edges[mode, n](x, grown, mode)
        return made if grown == tuple(pads) else _cut(made, pads).contiguous()

    return keeping_layout(padded, input)


def _check_sizes(input: Tensor, pads: Any, mode: str, n: int) -> None:
    shape = list(input.shape)
    if mode != "circular":
        inner = shape[1:] if input.ndim == n + 2 else shape
        if 0 in inner:
            raise RuntimeError(f"Expected {n + 1}D or {n + 2}D (batch mode) tensor with possibly 0 batch size and "
                               f"other non-zero dimensions for input, but got: {shape}")
    for d, (before, after) in enumerate(pads):
        if mode == "reflect" and max(before, after) >= shape[d] and (before or after):
            raise RuntimeError(f"Argument #{2 * (input.ndim - d) + 2}: Padding size should be less than the "
                               f"corresponding input dimension, but got: padding ({before}, {after}) at dimension "
                               f"{d} of input {shape}")
        if mode == "circular" and max(before, after) > shape[d]:
            raise RuntimeError("Padding value causes wrapping around more than once: got padding "
                               f"({before}, {after}) at dimension {d} of input {shape}")
        if shape[d] + before + after < 1 and (before or after) and mode != "circular":
            raise RuntimeError(f"input (size {shape[d]} at dimension {d}) is too small: padding ({before}, {after}) "
                               f"leaves {shape[d] + before + after} elements")
        if mode == "circular" and shape[d] + before + after < 0:
            raise RuntimeError("Negative padding value is resulting in an empty dimension")


def _pad_form(word: str, mode: str, n: int) -> Any:
    """`reflection_pad1d` and its kin, which torch._C._nn and torch.ops.aten have."""
    def function(input: Tensor, padding: Any) -> Tensor:
        if len(padding) != 2 * n:
            raise RuntimeError(f"padding size is expected to be {2 * n}")
        if input.ndim not in (n + 1, n + 2):
            raise RuntimeError(f"Expected {n + 1}D or {n + 2}D (batch mode) tensor with possibly 0 batch size and other "
                               f"non-zero dimensions for input, but got: {list(input.shape)}")
        return pad_edges(input, padding, mode)

    function.__name__ = f"{word}_pad{n}d"
    function.__doc__ = f"Padding of the last dimensions ({n}) in mode `{mode}`."
    return public(function, method=False, toplevel=False)


FORMS = {f"{word}_pad{n}d": _pad_form(word, mode, n)
         for word, mode in (("reflection", "reflect"), ("replication", "replicate")) for n in (1, 2, 3)}
