"""Arithmetic on strides: which geometry a view has. Strides count elements. No arrays."""

from __future__ import annotations

from collections.abc import Sequence


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    out, step = [], 1
    for n in reversed(shape):
        out.append(step)
        step *= max(n, 1)
    return tuple(reversed(out))


def view_strides(shape: Sequence[int], stride: Sequence[int], new_shape: Sequence[int]) -> tuple[int, ...] | None:
    """The strides that make a view of `new_shape`, or None when no strides can.

    Runs of old dimensions that are contiguous among themselves form chunks; each chunk must be filled exactly by a run
    of new dimensions.
    """
    if 0 in shape:
        return tuple(stride) if tuple(shape) == tuple(new_shape) else contiguous_strides(new_shape)
    if not shape:
        return (1,) * len(new_shape)
    out = [0] * len(new_shape)
    at = len(new_shape) - 1
    step, old_count, new_count = stride[-1], 1, 1
    for d in range(len(shape) - 1, -1, -1):
        old_count *= shape[d]
        if d == 0 or (shape[d - 1] != 1 and stride[d - 1] != old_count * step):
            while at >= 0 and (new_count < old_count or new_shape[at] == 1):
                out[at] = new_count * step
                new_count *= new_shape[at]
                at -= 1
            if new_count != old_count:
                return None
            if d > 0:
                step, old_count, new_count = stride[d - 1], 1, 1
    return tuple(out) if at == -1 else None


def expand_strides(shape: Sequence[int], stride: Sequence[int], new_shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a broadcast view: 0 where a dimension of length one is stretched."""
    extra = len(new_shape) - len(shape)
    out = [0] * len(new_shape)
    for i in range(len(new_shape) - 1, -1, -1):
        if i >= extra:
            n, s = shape[i - extra], stride[i - extra]
        else:
            n, s = 1, out[i + 1] * new_shape[i + 1] if i + 1 < len(new_shape) else 1
        out[i] = s if n == new_shape[i] else 0
    return tuple(out)


def unsqueeze_stride(shape: Sequence[int], stride: Sequence[int], dim: int) -> int:
    return shape[dim] * stride[dim] if dim < len(shape) else 1
