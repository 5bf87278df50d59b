"""Sizes of results, as kernels and shape rules compute them. No arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Ints = "tuple[int, ...]"
RUNS = "runs"  # in place of a shape rule: the kernel itself, as it touches no element


def out_size(size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Ints:
    """How many windows fit along each dimension."""
    return tuple([(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p,
                  d in zip(size, kernel, stride, padding, dilation)])


def transposed_size(size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, output_padding: Ints) -> Ints:
    """The input of windows that fit `size` times: what a transposed convolution makes."""
    return tuple([(n - 1) * s - 2 * p + d * (k - 1) + more + 1 for n, s, p, d, k, more in
                  zip(size, stride, padding, dilation, kernel, output_padding)])


def reduced_shape(shape: Ints, axes: Any, keepdim: bool) -> Ints:
    if axes is None:
        return (1,) * len(shape) if keepdim else ()
    if keepdim:
        return tuple([1 if i in axes else n for i, n in enumerate(shape)])
    return tuple([n for i, n in enumerate(shape) if i not in axes])


def padded_shape(shape: Ints, pad: Ints) -> Ints:
    """Of pairs (before, after), last dimension first."""
    out = list(shape)
    for i in range(len(pad) // 2):
        out[-1 - i] += pad[2 * i] + pad[2 * i + 1]
    return tuple(out)


def placed(arrays: Sequence[Any]) -> tuple[list[int], int]:
    """Of x[arrays]: the indexed dimensions, and where the dimensions of the index arrays stand in the result."""
    given = [d for d, a in enumerate(arrays) if a is not None]
    adjacent = given == list(range(given[0], given[-1] + 1)) if given else True
    return given, given[0] if given and adjacent else 0


def indexed_shape(shape: Ints, arrays: Sequence[Any], common: Ints) -> Ints:
    """The shape of x[arrays], where the index arrays broadcast to `common`."""
    given, at = placed(arrays)
    rest = [n for d, n in enumerate(shape) if d not in given]
    return (*rest[:at], *common, *rest[at:])


def broadcasts_to(value: Ints, shape: Ints) -> bool:
    return len(value) <= len(shape) and all(a in (b, 1) for a, b in zip(reversed(value), reversed(shape)))


def value_shape_error(got: Ints, wanted: Ints) -> RuntimeError:
    return RuntimeError(f"shape mismatch: value tensor of shape {list(got)} cannot be broadcast to indexing result of "
                        f"shape {list(wanted)}")
