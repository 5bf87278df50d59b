"""`rearrange`: permute, split, join, add and drop dimensions, told by a pattern of names (einops' language)."""

from __future__ import annotations

import math
from typing import Any

from ..ops.core.export import FUNCTIONS
from ..tensors.tensor import Tensor

__all__ = ["rearrange"]
_Axes = list[list[str]]  # per dimension the names of what it is made of; a dimension of size 1 has none


def _side(text: str, dots: list[str]) -> _Axes:
    """One side of a pattern: `b (h w)` as [["b"], ["h", "w"]]. dots: what stands in the place of `...`."""
    if text.count("...") > 1 or "." in text.replace("...", ""):
        raise ValueError(f"Expression may contain dots only inside ellipsis (...), once: '{text}'")
    made: _Axes = []
    inside: list[str] | None = None
    for word in text.replace("(", " ( ").replace(")", " ) ").replace("...", " ... ").split():
        if word in "()":
            if (inside is None) != (word == "("):
                raise ValueError(f"Imbalanced parentheses in expression: '{text}' (one level of them is allowed)")
            if word == "(":
                inside = []
            else:
                made.append(inside or [])
                inside = None
            continue
        if word.isdecimal():
            if word != "1":
                raise ValueError("rearrange only supports unnamed axes of size 1")
            names = []
        elif word == "..." or (word.isidentifier() and not word.startswith("_") and not word.endswith("_")):
            names = [word]
        else:
            raise ValueError(f"Invalid axis identifier: {word}")
        names = dots if word == "..." else names
        if inside is not None:
            inside += names
        else:
            made += [[name] for name in names] if names else [[]] * (word != "...")
    if inside is not None:
        raise ValueError(f"Imbalanced parentheses in expression: '{text}'")
    every = [name for names in made for name in names]
    if twice := {name for name in every if every.count(name) > 1}:
        raise ValueError(f"Indexing expression contains duplicate dimension '{min(twice)}'")
    return made


def _sides(pattern: str, ndim: int, axes_lengths: dict[str, int]) -> tuple[_Axes, _Axes]:
    """Both sides of a pattern, `...` spelt out for a tensor of so many dimensions."""
    if pattern.count("->") != 1:
        raise ValueError("Pattern must contain a single '->' separator")
    texts = pattern.split("->")
    left, right = (_side(text, ["..."]) for text in texts)
    names = [{name for axis in side for name in axis} for side in (left, right)]
    if any("..." in axis and len(axis) > 1 for axis in left) or "(...)" in texts[0].replace(" ", ""):
        raise ValueError("Ellipsis inside parentheses on the left side is not allowed: its sizes are not known")
    if unmatched := names[0] ^ names[1]:
        raise ValueError(f"Identifiers only on one side of rearrange expression (should be on both): {unmatched}")
    if unknown := axes_lengths.keys() - names[0]:
        raise ValueError(f"Identifiers not found in rearrange expression: {unknown}")
    more = ndim - len(left) + 1 if ["..."] in left else 0
    if more < 0 or (["..."] not in left and ndim != len(left)):
        raise ValueError(f"Number of dimensions in pattern ({len(left)}) must be equal to the number of dimensions in the "
                         f"tensor ({ndim})")
    spelt = [f"... {i}" for i in range(more)]
    return _side(texts[0], spelt), _side(texts[1], spelt)


def _lengths(axis: list[str], size: int, known: dict[str, int]) -> None:
    """Enters the sizes of what a dimension is made of; one of them may be left to follow from the others."""
    open_ones = [name for name in axis if name not in known]
    product = math.prod(known[name] for name in axis if name in known)
    if len(open_ones) > 1:
        raise ValueError(f"the sizes of {open_ones} are not known: give all but one of them")
    if open_ones and product and size % product == 0:
        known[open_ones[0]] = size // product
    elif open_ones or product != size:
        raise ValueError(f"a dimension of size {size} is not ({' '.join(axis) or 1}) with sizes {known}")


def rearrange(tensor: Tensor | list[Tensor] | tuple[Tensor, ...], pattern: str, **axes_lengths: int) -> Tensor:
    """The tensor with its dimensions in another order, split and joined as a pattern says.

    Names stand for dimensions, `(a b)` for one that consists of several, `...` for any number of them, and `1` or `()` for one
    of size 1. Sizes that do not follow are given by name. A list of tensors counts as one, stacked along a first dimension.

    >>> images = torch.zeros(32, 30, 40, 3)
    >>> torch.func.rearrange(images, "b h w c -> b c h w").shape
    torch.Size([32, 3, 30, 40])
    >>> torch.func.rearrange(images, "b (h h2) (w w2) c -> b h w (c h2 w2)", h2=2, w2=2).shape
    torch.Size([32, 15, 20, 12])
    """
    if isinstance(tensor, (list, tuple)):
        tensor = FUNCTIONS["stack"](list(tensor))
    left, right = _sides(pattern, tensor.ndim, axes_lengths)
    known: dict[str, Any] = dict(axes_lengths)
    for axis, size in zip(left, tensor.shape):
        _lengths(axis, size, known)
    names = [name for axis in left for name in axis]
    order = [names.index(name) for axis in right for name in axis]
    apart = tensor.reshape([known[name] for name in names]).permute(order)
    return apart.reshape([math.prod(known[name] for name in axis) for axis in right])
