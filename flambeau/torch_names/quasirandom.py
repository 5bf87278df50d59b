"""Quasi-random numbers: points that fill a cube evenly."""

from __future__ import annotations

from typing import Any

from .backends.cpu.random import sobol as _kernels
from .creation.random import Generator
from .ops.random.factories import randint
from .tensors import dtypes as _dtypes
from .tensors.tensor import Tensor, wrap

__all__ = ["SobolEngine"]


class SobolEngine:
    """Points of a Sobol sequence, with PyTorch's numbers; `scramble` shuffles their bits by a seed."""

    MAXBIT = _kernels.BITS
    MAXDIM = _kernels.DIMENSIONS

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None):
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]")
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self.sobolstate = wrap(_kernels.directions(dimension))
        if scramble:
            source = None if seed is None else Generator().manual_seed(seed)
            bits = randint(2, (dimension, self.MAXBIT), generator=source)
            self.shift = wrap((bits._array << _places(self.MAXBIT)).sum(1))
            matrices = randint(2, (dimension, self.MAXBIT, self.MAXBIT), generator=source)
            self.sobolstate = wrap(_kernels.scrambled(self.sobolstate._array, matrices._array))
        else:
            self.shift = wrap(self.sobolstate._array[:, 0] * 0)
        self.reset()

    def reset(self) -> SobolEngine:
        """Starts over."""
        self.quasi = self.shift.clone()
        self.num_generated = 0
        return self

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next n points, (n, dimension) within [0, 1)."""
        dtype = dtype or _dtypes.get_default_dtype()
        rows = self._next(n)
        made = wrap(rows).to(dtype) * (1.0 / 2**self.MAXBIT)
        if out is None:
            return made
        out.resize_(made.shape)
        return out.copy_(made)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next 2 ** m points, so that 2 ** k points are out in all."""
        total = self.num_generated + 2**m
        if total & total - 1:
            raise ValueError(f"draw_base2: {self.num_generated} points are out, and 2**{m} more would make {total}: not a "
                             "power of two. Use draw() instead.")
        return self.draw(2**m, out, dtype)

    def fast_forward(self, n: int) -> SobolEngine:
        """Leaves n points out."""
        self._next(n)
        return self

    def _next(self, n: int) -> Any:
        """Integers of the next n points; the very first is the shift itself."""
        last = self.quasi._array
        if self.num_generated:
            rows = _kernels.points(self.sobolstate._array, last, n, self.num_generated - 1)
        else:
            rows = _kernels.points(self.sobolstate._array, last, max(n - 1, 0), 0)
            rows = _kernels.joined(last, rows)[:n]
        if n:
            self.quasi = wrap(rows[-1].copy())
            self.num_generated += n
        return rows

    def __repr__(self) -> str:
        parts = [f"dimension={self.dimension}"]
        if self.scramble:
            parts.append("scramble=True")
        if self.seed is not None:
            parts.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(parts)})"


def _places(bits: int) -> Any:
    from .creation.factories import arange
    return arange(bits)._array
