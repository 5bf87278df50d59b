"""`NestedTensor`: a batch of tensors whose sizes differ, in one piece of memory.

In the layout `jagged` one dimension differs: the values lie one after the other along it, and `offsets` says where each begins.
In the layout `strided` any dimensions may differ, and the values are one flat list. Either way `_held_values` is an ordinary
tensor (sparse/held.py), whose gradient is the nested tensor's.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from ..backends.cpu.sparse import placeholder
from ..ops.core import overrides as _overrides
from ..ops.core.row import FUNCTIONS
from ..sparse.held import Handlers, Held
from ..tensors import formats
from ..tensors.tensor import Tensor

_new = object.__new__
HANDLERS = Handlers()
_numbers = itertools.count(1)


class NestedInt:
    """The length of a ragged dimension: equal to itself, and to that of tensors with the same offsets."""

    def __init__(self):
        self.number = next(_numbers)

    def __repr__(self) -> str:
        return f"j{self.number}"


class NestedSize(tuple):
    """The sizes of a jagged tensor."""

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(str, self))}])"

    def numel(self) -> int:
        raise RuntimeError("the number of elements of a nested tensor is its numel()")


class Ragged:
    """Where the parts of a jagged tensor begin and end: what tensors of the same structure share."""

    def __init__(self, offsets: Tensor, lengths: Tensor | None = None):
        self.offsets, self.given, self.name = offsets, lengths, NestedInt()
        starts = offsets.tolist()
        counts = [b - a for a, b in itertools.pairwise(starts)] if lengths is None else lengths.tolist()
        self.starts, self.counts = starts[:len(counts)], counts

    @property
    def dense(self) -> bool:
        """Whether every element of the values belongs to a part."""
        return self.given is None

    def owners(self) -> Tensor:
        """For each element of the values, which part it belongs to."""
        return FUNCTIONS["arange"](len(self.counts)).repeat_interleave(FUNCTIONS["tensor"](self.counts))


def inner_dim(ndim: int, dim: Any, ragged_dim: int, canonicalize: bool = False) -> Any:
    """Which dimension of the values a dimension of a jagged tensor is; the batch lies along the ragged one."""
    if isinstance(dim, (tuple, list)):
        return type(dim)(dict.fromkeys([inner_dim(ndim, d, ragged_dim, canonicalize) for d in dim]))
    if canonicalize and dim < 0:
        dim += ndim
    if not 0 <= dim < ndim:
        raise AssertionError(f"dim {dim} out of range for ndim {ndim}")
    return (dim or ragged_dim) - 1


class NestedTensor(Held):
    """A tensor of unequal parts: of layout jagged where `_ragged` tells where they are, else of layout strided."""

    is_nested = True
    _handlers, _refusal = HANDLERS, "nested tensors in flambeau; to_padded_tensor() makes an ordinary tensor"

    @property
    def layout(self) -> Any:
        return formats.strided if self._ragged is None else formats.jagged

    def _rebuilt(self, values: Tensor) -> NestedTensor:
        return jagged(values, self._ragged, self._at) if self._ragged is not None else strided(values, self._sizes)

    def _take(self, other: NestedTensor) -> None:
        self._held_values, self._ragged, self._at, self._sizes = (
            other._held_values, other._ragged, other._at, other._sizes)
        self._array = other._array

    # ------------------------------------------------------------------------------------------------- what it holds
    def values(self) -> Tensor:
        if self._ragged is None:
            raise RuntimeError("values(): expected a nested tensor of layout jagged")
        return self._held_values

    def offsets(self) -> Tensor:
        return self._ragged.offsets

    def lengths(self) -> Tensor | None:
        return self._ragged.given

    # PyTorch's names of the same, which its tests read.
    _values, _offsets, _lengths = property(values), property(offsets), property(lengths)
    _max_seqlen_tensor = _min_seqlen_tensor = None

    @property
    def _ragged_idx(self) -> int:
        return self._at

    def _get_max_seqlen(self) -> int:
        return max(self._ragged.counts, default=0)

    def _get_min_seqlen(self) -> int:
        return min(self._ragged.counts, default=0)

    _max_seqlen, _min_seqlen = property(_get_max_seqlen), property(_get_min_seqlen)

    def dim(self) -> int:
        return self._held_values.ndim + 1 if self._ragged is not None else len(self._sizes[0]) + 1 if self._sizes else 1

    ndim = property(dim)

    def numel(self) -> int:
        return sum(math.prod(p) for p in self._part_sizes())

    def _part_sizes(self) -> list[tuple[int, ...]]:
        if self._ragged is None:
            return self._sizes
        shape, at = list(self._held_values.shape), self._at - 1
        return [(*shape[:at], n, *shape[at + 1:]) for n in self._ragged.counts]

    @property
    def shape(self) -> Any:
        if self._ragged is None:
            raise RuntimeError("a nested tensor of layout strided has no shape: ask size(dim), or unbind() for its parts")
        inner = list(self._held_values.shape)
        inner[self._at - 1] = self._ragged.name
        return NestedSize((len(self._ragged.counts), *inner))

    def size(self, dim: int | None = None) -> Any:
        if dim is None:
            return self.shape
        dim = self._wrapped(dim)
        if self._ragged is not None:
            return self.shape[dim]
        if dim == 0:
            return len(self._sizes)
        found = {size[dim - 1] for size in self._sizes}
        if len(found) != 1:
            raise RuntimeError(f"Given dimension {dim} is irregular and does not have a size.")
        return found.pop()

    def _wrapped(self, dim: int) -> int:
        n = self.dim()
        if not -n <= dim < n:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})")
        return dim % n

    def __len__(self) -> int:
        return len(self._part_sizes())

    def is_contiguous(self, memory_format: Any = None) -> bool:
        return self._held_values.is_contiguous() and (self._ragged is None or self._ragged.dense)

    def parts(self) -> list[Tensor]:
        """The tensors that it is made of, which share its memory."""
        if self._ragged is not None:
            return [self._held_values.narrow(self._at - 1, start, count)
                    for start, count in zip(self._ragged.starts, self._ragged.counts)]
        made, start = [], 0
        for size in self._sizes:
            count = math.prod(size)
            made.append(self._held_values.narrow(0, start, count).view(size))
            start += count
        return made

    def unbind(self, dim: int = 0) -> tuple[Tensor, ...]:
        if self._wrapped(dim):
            raise RuntimeError(f"unbind(): only supported for dim=0 of a nested tensor, got {dim}")
        return tuple(self.parts())

    def __iter__(self) -> Any:
        return iter(self.parts())

    def to_padded_tensor(self, padding: float, output_size: Any = None) -> Tensor:
        """An ordinary tensor, filled up with `padding` to the largest sizes or to output_size (of a jagged one its ragged
        dimension alone, which may be cut)."""
        parts = self.parts()
        wide = [max(sizes) for sizes in zip(*self._part_sizes())]
        if output_size is not None and self._ragged is not None:
            at = self._at - 1
            wide[at] = int(output_size[self._at])
            parts = [p.narrow(at, 0, min(p.shape[at], wide[at])) for p in parts]
        elif output_size is not None:
            wanted = [int(n) for n in output_size][1:]
            if len(wanted) != len(wide) or any(n < m for n, m in zip(wanted, wide)):
                raise RuntimeError(f"Value in output_size is less than NestedTensor padded size. Truncation is not supported: "
                                   f"got {list(output_size)} for parts of up to {wide}.")
            wide = wanted
        made = []
        for part in parts:
            rest = [pair for n, m in reversed(list(zip(wide, part.shape))) for pair in (0, n - m)]
            made.append(FUNCTIONS["constant_pad_nd"](part, rest, padding) if any(rest) else part)
        return FUNCTIONS["stack"](made)

    def clone(self, *, memory_format: Any = None) -> NestedTensor:
        return self._rebuilt(self._held_values.clone())

    def contiguous(self, memory_format: Any = None) -> NestedTensor:
        return self if self.is_contiguous() else of_parts(self.parts(), self.layout, self._at)

    def numpy(self, **kwargs: Any) -> Any:
        raise RuntimeError(".numpy() is not supported for nested tensors: unbind() gives their parts")

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        grad = f", grad_fn=<{self.grad_fn.name()}>" if self.grad_fn is not None else (
            ", requires_grad=True" if self.requires_grad else "")
        if self._ragged is not None:
            sizes = ", ".join(map(str, self.shape))
            return f"NestedTensor(size=({sizes}), offsets={self._ragged.offsets}{grad}, contiguous={self.is_contiguous()})"
        parts = ",\n".join("  " + repr(p.detach()).replace("\n", "\n  ") for p in self.parts())
        return f"nested_tensor([\n{parts}\n]{grad})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return of_parts, ([p.detach() for p in self.parts()], self.layout, self._at)

    def __deepcopy__(self, memo: Any) -> NestedTensor:
        made = self.clone().detach()
        return made.requires_grad_() if self.requires_grad else made


def _made(values: Tensor, shape: tuple[int, ...]) -> NestedTensor:
    _overrides.activate()
    t = _new(NestedTensor)
    t._array = placeholder(shape, values._array.dtype)
    t._node = t._counter = None
    t._held_values, t._ragged, t._at, t._sizes = values, None, 1, None
    return t


def jagged(values: Tensor, ragged: Ragged, at: int = 1) -> NestedTensor:
    """A jagged tensor over values; at: its ragged dimension, which is dimension at - 1 of the values."""
    longest = max(ragged.counts, default=0)
    shape = list(values.shape)
    shape[at - 1] = longest
    made = _made(values, (len(ragged.counts), *shape))
    made._ragged, made._at = ragged, at
    return made


def strided(values: Tensor, sizes: list[tuple[int, ...]]) -> NestedTensor:
    """A nested tensor over a flat list of values, with the sizes of its parts."""
    made = _made(values, (len(sizes), *[max(n) for n in zip(*sizes)]))
    made._sizes = sizes
    return made


def of_parts(parts: list[Tensor], layout: Any = None, at: int | None = None) -> NestedTensor:
    """A nested tensor of given parts; gradients flow to them. at: the ragged dimension, if it is not the one that differs."""
    if any(p.ndim != parts[0].ndim for p in parts):
        raise RuntimeError("When constructing a nested tensor, all tensors in list must have the same dim")
    if layout is None or layout is formats.strided:
        if not parts:
            return strided(FUNCTIONS["zeros"](0), [])
        return strided(FUNCTIONS["cat"]([p.reshape(-1) for p in parts]), [tuple(p.shape) for p in parts])
    if layout is not formats.jagged:
        raise RuntimeError(f"Specified layout is unsupported for nested tensors: {layout}")
    if not parts or not parts[0].ndim:
        raise RuntimeError("Cannot construct a nested tensor of layout jagged from no tensors, or from numbers")
    differing = [d for d in range(parts[0].ndim) if len({p.shape[d] for p in parts}) > 1]
    if len(differing) > 1:
        raise RuntimeError("nested tensors of layout jagged have one ragged dimension, but the tensors differ in several")
    dim = differing[0] if differing else (at or 1) - 1
    starts = [0, *itertools.accumulate(p.shape[dim] for p in parts)]
    return jagged(FUNCTIONS["cat"](parts, dim), Ragged(FUNCTIONS["tensor"](starts)), dim + 1)
