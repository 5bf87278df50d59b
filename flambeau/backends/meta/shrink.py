"""Shapes of results too large to compute: the kernel runs on small arrays whose sizes stand for the large ones.

Every large size becomes a prime number of its own, so that a size of the result tells which sizes it came from: a prime
is the size it stands for, a product of primes is a product of sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from .arrays import MetaArray, reserve_strided

_PRIMES = (53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103)
LARGE_SIZE, LARGE_COUNT = 2048, 1 << 20  # from here on a size, or a number of elements, is worth avoiding
_SMALL = 48                              # sizes up to here stay as they are


def _arrays(args: Any) -> list[ndarray]:
    found = []
    for a in args:
        if isinstance(a, ndarray):
            found.append(a)
        elif a.__class__ in (list, tuple):
            found += _arrays(a)
    return found


def is_large(args: tuple[Any, ...]) -> bool:
    arrays = _arrays(args)
    return any(max(a.shape, default=0) > LARGE_SIZE for a in arrays) or sum(a.size for a in arrays) > LARGE_COUNT


def shrunk(name: str, kernel: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The kernel's results on small stand-ins, with the large sizes put back."""
    sizes = sorted({n for a in _arrays(args) for n in a.shape if n > _SMALL})
    taken = {n for a in _arrays(args) for n in a.shape}
    primes = [p for p in _PRIMES if p not in taken]
    if len(sizes) > len(primes):
        raise NotImplementedError(f"{name} on meta tensors of this many different large sizes: {sizes}")
    stands_for = dict(zip(primes, sizes))
    small = {size: prime for prime, size in stands_for.items()}
    made = kernel(*[_smaller(a, small) for a in args])
    return _restored(name, made, stands_for)


def _smaller(value: Any, small: dict[int, int]) -> Any:
    if isinstance(value, ndarray):
        order = sorted(range(value.ndim), key=lambda i: -value.strides[i])  # the layout of results may follow it
        ordered = np.zeros([small.get(value.shape[i], value.shape[i]) for i in order], value.dtype)
        return ordered.transpose(sorted(range(value.ndim), key=order.__getitem__))
    if value.__class__ in (list, tuple):
        return type(value)(_smaller(v, small) if v.__class__ is not int else small.get(v, v) for v in value)
    return value


def _restored(name: str, made: Any, stands_for: dict[int, int]) -> Any:
    if made.__class__ in (list, tuple):
        return made.__class__(_restored(name, m, stands_for) for m in made)
    if not isinstance(made, (ndarray, np.generic)):
        return made
    shape = tuple(_size(name, n, stands_for) for n in made.shape)
    order = sorted(range(made.ndim), key=lambda i: -made.strides[i])
    steps, step = [0] * made.ndim, 1
    for i in reversed(order):
        steps[i] = step
        step *= max(shape[i], 1)
    return reserve_strided(shape, steps, made.dtype)


def _size(name: str, n: int, stands_for: dict[int, int]) -> int:
    """The size that a size of the small result means."""
    found, rest = [], n
    for prime, size in stands_for.items():
        while rest % prime == 0 and rest:
            found.append(size)
            rest //= prime
    if rest > _SMALL:
        total = _sum_of(n, stands_for)
        if total is None:
            raise NotImplementedError(f"{name}: the shape of its result for meta tensors this large is not known")
        return total
    return math.prod(found) * rest


def _sum_of(n: int, stands_for: dict[int, int]) -> int | None:
    """n as a sum of a few primes and a small rest (sizes that were joined, or padded)."""
    for prime, size in stands_for.items():
        if 0 <= n - prime <= _SMALL:
            return size + n - prime
        for other, other_size in stands_for.items():
            if 0 <= n - prime - other <= _SMALL:
                return size + other_size + n - prime - other
    return None


__all__ = ["MetaArray", "is_large", "shrunk"]
