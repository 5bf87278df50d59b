"""Buckets of gradients: many small tensors laid into one, so that few large messages go between processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...autograd.modes import no_grad
from ...creation.factories import zeros
from ...ops.core.export import FUNCTIONS
from ...tensors.tensor import Tensor

__all__ = ["Bucket", "GradBucket", "assign", "flattened", "written_back"]


def assign(tensors: Sequence[Tensor], limits: Sequence[int], order: Sequence[int] | None = None) -> list[list[int]]:
    """Which tensors share a bucket, by their numbers. Tensors of one dtype and device fill a bucket until it has as many bytes
    as its limit: limits[0] for the first of its kind, then limits[1]..., the last for all others."""
    open_buckets: dict[Any, tuple[list[int], list[int]]] = {}  # kind -> ([bytes so far, which limit], numbers)
    made: list[list[int]] = []
    for i in range(len(tensors)) if order is None else order:
        t = tensors[i]
        count, numbers = open_buckets.setdefault((t.dtype, t.device), ([0, 0], []))
        numbers.append(i)
        count[0] += t.numel() * t.element_size()
        if count[0] >= limits[min(count[1], len(limits) - 1)]:
            made.append(numbers[:])
            numbers.clear()
            count[0], count[1] = 0, count[1] + 1
    return made + [numbers for _, numbers in open_buckets.values() if numbers]


def flattened(tensors: Sequence[Tensor]) -> Tensor:
    """All elements, one tensor after the other."""
    return FUNCTIONS["cat"]([t.detach().reshape(-1) for t in tensors])


def written_back(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    """The inverse of `flattened`: each tensor takes its elements."""
    with no_grad():
        for target, piece in zip(tensors, flat.split([t.numel() for t in tensors])):
            target.detach().copy_(piece.view(target.shape))


class Bucket:
    """One flat tensor and a window onto it per parameter."""

    def __init__(self, numbers: list[int], parameters: Sequence[Tensor]):
        self.numbers, self.parameters = numbers, [parameters[i] for i in numbers]
        first = self.parameters[0]
        sizes = [p.numel() for p in self.parameters]
        self.buffer = zeros(sum(sizes), dtype=first.dtype, device=first.device)
        self._cut(sizes)
        self.waiting: set[int] = set(numbers)  # parameters whose gradient has not come yet in this pass
        self.result: Any = None                # what the exchange of this pass will give: a Work, or a hook's Future

    def _cut(self, sizes: list[int]) -> None:
        self.views = [piece.view(p.shape) for piece, p in zip(self.buffer.split(sizes), self.parameters)]

    def replace(self, buffer: Tensor) -> None:
        """Another flat tensor takes this one's place."""
        self.buffer = buffer
        self._cut([p.numel() for p in self.parameters])


class GradBucket:
    """What a communication hook is given: the gradients of some parameters as one flat tensor."""

    def __init__(self, index: int, bucket: Bucket, last: bool):
        self._index, self._bucket, self._last = index, bucket, last

    def index(self) -> int:
        """The number of the bucket: they are exchanged in this order."""
        return self._index

    def buffer(self) -> Tensor:
        """The flat tensor."""
        return self._bucket.buffer

    def gradients(self) -> list[Tensor]:
        """Windows onto the flat tensor, one per parameter."""
        return list(self._bucket.views)

    def parameters(self) -> list[Tensor]:
        """The parameters, in the order of `gradients`."""
        return list(self._bucket.parameters)

    def is_last(self) -> bool:
        """Whether this bucket is the last one of the pass."""
        return self._last

    def set_buffer(self, tensor: Tensor) -> None:
        """Another flat tensor with as many elements takes the place of this one."""
        self._bucket.replace(tensor)
