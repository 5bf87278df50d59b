"""The same element of a base, addressed through another layout of that base."""

from __future__ import annotations


def map_geometry(base_size, base_stride, other_stride, size, stride, offset):
    """(stride, offset) that a view has in a tensor of `base_size` laid out by `other_stride` instead of `base_stride`.

    Works when every step of the view is a whole number of steps of the base's dimensions, which holds for all views
    made of a dense base by slicing, selecting and permuting.
    """
    order = sorted((i for i in range(len(base_size)) if base_size[i] > 1), key=lambda i: -base_stride[i])

    def translate(distance: int) -> int:
        moved = 0
        for i in order:
            steps, distance = divmod(distance, base_stride[i])
            moved += steps * other_stride[i]
        return moved

    return tuple(translate(s) for s in stride), translate(offset)
