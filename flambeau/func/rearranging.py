"""`rearrange`: a tensor's dimensions by name, split, joined and put in another order."""

from __future__ import annotations

import functools
import math
import re
from typing import Any

from ..ops.shape.joining import stack
from ..tensors.tensor import Tensor

_ELLIPSIS = "..."
Groups = tuple[Any, ...]  # of each dimension, a tuple of the names that it is made of; or the ellipsis


def rearrange(tensor: Tensor | list[Tensor] | tuple[Tensor, ...], pattern: str, **axes_lengths: int) -> Tensor:
    """The elements of a tensor in other dimensions: names say which is which, and names in brackets are one dimension.

    A list of tensors is stacked first; `...` stands for any number of dimensions; axes_lengths are sizes that a bracket on
    the left does not tell.

    >>> images = torch.arange(24).reshape(2, 3, 4)
    >>> torch.func.rearrange(images, "b h w -> w (b h)").shape
    torch.Size([4, 6])
    >>> torch.func.rearrange(images, "b h (w two) -> (b two) h w", two=2).shape
    torch.Size([4, 3, 2])
    """
    if not isinstance(tensor, Tensor):
        tensor = stack(tensor)
    left, right = _read(pattern, frozenset(axes_lengths))
    given = len(left) - (_ELLIPSIS in left)
    if given > tensor.ndim or (given == len(left) and given != tensor.ndim):
        raise ValueError(f"Number of dimensions in pattern ({given}) must be equal to the number of dimensions in the tensor "
                         f"({tensor.ndim})")
    some = [f".{i}" for i in range(tensor.ndim - given)]  # what the ellipsis stands for
    before, after = _spread(left, some), _spread(right, some)
    sizes: dict[str, int] = dict(axes_lengths)
    for group, size in zip(before, tensor.shape):
        _infer(group, size, sizes)
    names = [name for group in before for name in group]
    found = tensor.reshape([sizes[name] for name in names]).permute([names.index(name) for group in after for name in group])
    return found.reshape([math.prod([sizes[name] for name in group]) for group in after])


def _spread(side: Groups, some: list[str]) -> list[list[str]]:
    """A side with names in place of the ellipsis: a dimension for each of them, or one of them all where it is in brackets."""
    spread: list[list[str]] = []
    for group in side:
        if group == _ELLIPSIS:
            spread += [[name] for name in some]
        else:
            spread.append([s for name in group for s in (some if name == _ELLIPSIS else [name])])
    return spread


def _infer(group: tuple[str, ...], size: int, sizes: dict[str, int]) -> None:
    """Enters the sizes of a dimension's names, of which at most one is not known."""
    unknown = [name for name in group if name not in sizes]
    known = math.prod([sizes[name] for name in group if name in sizes])
    if len(unknown) > 1:
        raise ValueError(f"cannot infer the sizes of two dimensions at once {unknown[0]} and {unknown[1]}")
    if unknown and known and size % known == 0:
        sizes[unknown[0]] = size // known
    elif unknown or known != size:
        shown = ", ".join([str(sizes.get(name, "?")) for name in group])
        raise ValueError(f"inferred dimension does not evenly fit into larger dimension: {size} vs ({shown})")


@functools.lru_cache(256)
def _read(pattern: str, lengths: frozenset[str]) -> tuple[Groups, Groups]:
    """Both sides of a pattern."""
    sides = pattern.split("->")
    if len(sides) != 2:
        raise ValueError("Pattern must contain a single '->' separator")
    left, right = (_groups(side) for side in sides)
    if any(group != _ELLIPSIS and _ELLIPSIS in group for group in left):
        raise ValueError(f"Ellipsis is parenthesis in the left side is not allowed: {pattern}")
    on_left, on_right = ({name for group in _spread(side, [_ELLIPSIS]) for name in group} for side in (left, right))
    if on_left != on_right:
        raise ValueError(f"Identifiers only on one side of rearrange expression (should be on both): {on_left ^ on_right}")
    if lengths - on_left:
        raise ValueError(f"Identifiers not found in rearrange expression: {set(lengths - on_left)}")
    return left, right


def _groups(side: str) -> Groups:
    """The dimensions of one side. A 1 is a dimension that is made of no names."""
    groups: list[Any] = []
    inside, seen = False, set()
    for token in re.findall(r"\.\.\.|[()]|\w+|\S", side):
        if token in ("(", ")"):
            if inside is (token == "("):
                raise ValueError("Axis composition is one-level (brackets inside brackets not allowed)" if inside else
                                 "Brackets are not balanced")
            inside = not inside
            groups += [()] if inside else []
            continue
        if token in seen:
            raise ValueError(f"Indexing expression contains duplicate dimension '{token}'")
        names: tuple[str, ...] = () if token == "1" else (_checked(token),)
        seen.update(names)
        if inside:
            groups[-1] += names
        else:
            groups.append(token if token == _ELLIPSIS else names)
    if inside:
        raise ValueError(f"Brackets are not balanced: {side}")
    return tuple(groups)


def _checked(token: str) -> str:
    if token != _ELLIPSIS and not re.fullmatch(r"\w+", token):
        raise ValueError(f"Unknown character '{token}'")
    if token != _ELLIPSIS and (not token.isidentifier() or token[0] == "_" or token[-1] == "_"):
        raise ValueError(f"Invalid axis identifier: {token}\naxis name should be an identifier that neither starts nor ends "
                         "with an underscore")
    return token
