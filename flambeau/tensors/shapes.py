"""Arithmetic on shapes and dimension numbers. No arrays."""

from __future__ import annotations

from typing import Any

MOST_DIMS = 64  # of a NumPy array


def wrap_dim(dim: int, ndim: int) -> int:
    """A dimension number in 0..ndim-1; zero-dim tensors count as one-dimensional here."""
    n = ndim or 1
    if not -n <= dim < n:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})")
    return dim + n if dim < 0 else dim


def wrap_dims(dims: Any, ndim: int) -> tuple[int, ...]:
    """Several dimension numbers, each at most once; None means all."""
    if dims is None:
        return tuple(range(ndim))
    if isinstance(dims, int):
        return (wrap_dim(dims, ndim),)
    out = tuple(wrap_dim(int(d), ndim) for d in dims)
    if len(set(out)) != len(out):
        twice = next(d for d in out if out.count(d) > 1)
        raise RuntimeError(f"dim {twice} appears multiple times in the list of dims")
    return out


def check_dims(count: int) -> None:
    if count > MOST_DIMS:
        raise RuntimeError(f"only tensors with up to {MOST_DIMS} dims are supported, got {count}")


def shape_of(args: tuple[Any, ...]) -> tuple[int, ...]:
    """A shape given as f(2, 3), f((2, 3)) or f([2, 3])."""
    if len(args) == 1 and not isinstance(args[0], int) and hasattr(args[0], "__iter__") and getattr(args[0], "ndim", 1):
        args = tuple(args[0])
    check_dims(len(args))
    return tuple([a if a.__class__ is int else as_int(a) for a in args])


def as_int(value: Any) -> int:
    """An integer from an int, a zero-dim integer tensor or anything with __index__."""
    if isinstance(value, bool):
        raise TypeError("expected an int, not bool")
    try:
        return value.__index__()
    except AttributeError:
        raise TypeError(f"expected an int, not {type(value).__name__}") from None


def numel(shape: tuple[int, ...]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def infer_shape(shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Replaces one -1 so that the shape has `count` elements."""
    unknown = [i for i, n in enumerate(shape) if n == -1]
    if len(unknown) > 1:
        raise RuntimeError("only one dimension can be inferred")
    for n in shape:
        if n < -1:
            raise RuntimeError(f"invalid shape dimension {n} at index {shape.index(n)} of shape {list(shape)}")
    known = numel(tuple(n for n in shape if n != -1))
    if unknown:
        if known == 0 and count == 0:
            raise RuntimeError(f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified "
                               f"dimension size -1 can be any value and is ambiguous")
        if known == 0 or count % known:
            raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {count}: {count} elements cannot be "
                               f"shared out among {known}")
        return tuple(count // known if n == -1 else n for n in shape)
    if known != count:
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {count}: it has room for {known} elements")
    return shape


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape of several; RuntimeError when there is none."""
    out: list[int] = []
    for shape in shapes:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        for n in shape:
            if n < 0:
                raise ValueError("Attempting to broadcast a dimension with negative length!")
        if len(shape) > len(out):
            out = [1] * (len(shape) - len(out)) + out
        for i in range(1, len(shape) + 1):
            n = shape[-i]
            if n != 1 and n != out[-i]:
                if out[-i] != 1:
                    raise RuntimeError("Shape mismatch: objects cannot be broadcast to a single shape: "
                                       + ", ".join(str(list(s) if not isinstance(s, int) else s) for s in shapes))
                out[-i] = n
    return tuple(out)
