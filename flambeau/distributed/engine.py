"""What a group's processes do together, whatever carries it: the base of the engines, and the one for a group of one process.

An engine's methods start an operation and return its Work. They get what the functions of collectives.py have checked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .. import native
from ..autograd.state import looked_at
from ..tensors.tensor import Tensor
from . import reductions
from .work import Work

__all__ = ["Engine", "Lone", "address"]


def address(tensor: Tensor) -> int:
    """Where a contiguous tensor's elements lie, for whoever reads and writes them there: in a compiled call kernels may still
    have to compute them, also those of a copy that was made for the purpose."""
    looked_at(tensor._array, "a collective", writing=True)
    return native.pointer(tensor._array) or 0


class Engine:
    """Starts collectives for one group."""

    def __init__(self, group: Any):
        self.group = group
        self.rank, self.size = group.rank(), group.size()

    repeatable = False  # whether all that its operations do is done by kernels, which a compiled program can repeat

    def close(self) -> None:
        """Gives back what the engine holds."""

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Messages that are started together."""
        yield


class Lone(Engine):
    """A group of one process: each operation gives what it was given."""

    repeatable = True

    def _copied(self, name: str, outputs: list[Tensor], inputs: list[Tensor]) -> Work:
        def copy() -> None:
            for output, given in zip(outputs, inputs):
                if output is not given:
                    output.copy_(given.reshape(output.shape))

        return Work(self.group, name, None, copy, outputs)

    def all_reduce(self, tensor: Tensor, op: Any) -> Work:
        factor = reductions.factor(op)
        return Work(self.group, "all_reduce", None, None if factor is None else lambda: tensor.mul_(factor), [tensor])

    def reduce(self, tensor: Tensor, root: int, op: Any) -> Work:
        return self.all_reduce(tensor, op)

    def broadcast(self, tensor: Tensor, root: int) -> Work:
        return Work(self.group, "broadcast", result=[tensor])

    def all_gather(self, outputs: list[Tensor], tensor: Tensor) -> Work:
        return self._copied("all_gather", outputs, [tensor])

    def all_gather_into_tensor(self, output: Tensor, tensor: Tensor) -> Work:
        return self._copied("all_gather_into_tensor", [output], [tensor])

    def gather(self, tensor: Tensor, outputs: list[Tensor] | None, root: int) -> Work:
        return self._copied("gather", outputs or [], [tensor])

    def scatter(self, tensor: Tensor, inputs: list[Tensor] | None, root: int) -> Work:
        return self._copied("scatter", [tensor], inputs or [])

    def reduce_scatter(self, output: Tensor, inputs: list[Tensor], op: Any) -> Work:
        factor = reductions.factor(op)
        return self._copied("reduce_scatter", [output], inputs if factor is None else [i * factor for i in inputs])

    def reduce_scatter_tensor(self, output: Tensor, tensor: Tensor, op: Any) -> Work:
        return self.reduce_scatter(output, [tensor], op)

    def all_to_all(self, outputs: list[Tensor], inputs: list[Tensor]) -> Work:
        return self._copied("all_to_all", outputs, inputs)

    def all_to_all_single(self, output: Tensor, tensor: Tensor, output_rows: Any, input_rows: Any) -> Work:
        return self._copied("all_to_all_single", [output], [tensor])

    def barrier(self) -> Work:
        return Work(self.group, "barrier")

    def agree(self, what: str) -> Work:
        return Work(self.group, what)
