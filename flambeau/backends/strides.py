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


# -------------------------------------------------------------------------------------------------- fresh memory
CHANNEL_ORDER = {"channels_last": (0, 2, 3, 1), "channels_last_3d": (0, 2, 3, 4, 1)}  # slowest first


def ordered_strides(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Strides of dense memory in an order of dimensions, slowest first."""
    out, step = [0] * len(shape), 1
    for i in reversed(order):
        out[i] = step
        step *= max(shape[i], 1)
    return tuple(out)


def format_strides(shape: Sequence[int], name: str) -> tuple[int, ...]:
    """Strides of dense memory in a memory format ("contiguous" or a channels-last one)."""
    return ordered_strides(shape, CHANNEL_ORDER.get(name, range(len(shape))))


def dense_strides(shape: Sequence[int], *operands: Sequence[int]) -> list[int]:
    """Strides (in elements) without holes, in the order of dimensions that the operands' strides have.

    The first operand decides whose strides along two dimensions are not 0 and differ; of two dimensions of one stride
    the longer goes outside, as in PyTorch. What nobody decides stays where it is.
    """
    order = list(range(len(shape)))[::-1]  # fastest first
    for i in range(1, len(order)):
        at = i
        for j in range(i - 1, -1, -1):
            a, b = order[j], order[at]
            ahead = _ahead(shape, operands, a, b)
            if ahead > 0:
                order[j], order[at] = b, a
                at = j
            elif ahead < 0:
                break
    out, step = [0] * len(shape), 1
    for i in order:
        out[i] = step
        if shape[i] > 1:
            step *= shape[i]
    return out


def _ahead(shape: Sequence[int], operands: Sequence[Sequence[int]], a: int, b: int) -> int:
    """1: dimension a belongs outside of b, -1: inside of it, 0: nobody can tell."""
    for strides in operands:
        if strides[a] and strides[b]:
            if strides[a] != strides[b]:
                return 1 if strides[a] > strides[b] else -1
            if shape[a] > shape[b]:
                return 1
    return 0


def is_dense(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether some order of dimensions is without holes and overlaps."""
    expected = 1
    for s, n in sorted((s, n) for n, s in zip(shape, stride) if n != 1):
        if s != expected:
            return False
        expected *= n
    return True


def like_strides(shape: Sequence[int], stride: Sequence[int]) -> tuple[int, ...]:
    """The strides of fresh memory for a tensor like one of these."""
    return tuple(stride) if 0 in shape or is_dense(shape, stride) else tuple(dense_strides(shape, stride))


def elementwise_strides(shape: Sequence[int],
                        operands: Sequence[tuple[Sequence[int], Sequence[int]]]) -> tuple[int, ...] | None:
    """The strides of what work element by element makes of operands of (shape, stride); None: contiguous."""
    same = [tuple(stride) for given, stride in operands if tuple(given) == tuple(shape)]
    if len(same) == len(operands) and len(set(same)) == 1:
        return like_strides(shape, same[0])
    if len(same) == len(operands) and all(stride == contiguous_strides(shape) for stride in same):
        return None
    return tuple(dense_strides(shape, *[stretched(shape, given, stride) for given, stride in operands]))


def stretched(shape: Sequence[int], given: Sequence[int], stride: Sequence[int]) -> tuple[int, ...]:
    extra = len(shape) - len(given)
    return (0,) * extra + tuple([0 if n == 1 != m else s for n, m, s in zip(given, shape[extra:], stride)])
