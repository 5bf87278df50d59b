"""Each collective in MPI's words. Everything is started, and not waited for: a Work does that, with a limit of time."""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable
from typing import Any

from ... import native
from ...autograd.modes import no_grad
from ...creation.factories import empty
from ...ops.pointwise.complex import view_as_real
from ...ops.shape.joining import cat
from ...tensors import dtypes
from ...tensors.tensor import Tensor
from .. import reductions
from ..engine import Engine, address
from ..reductions import ReduceOp
from ..work import Work
from .agreement import Agreement
from .requests import Pending
from .start import module

__all__ = ["MpiEngine"]

_TYPES = {"float32": "FLOAT", "float64": "DOUBLE", "int8": "INT8_T", "int16": "INT16_T", "int32": "INT32_T",
          "int64": "INT64_T", "uint8": "UINT8_T", "uint16": "UINT16_T", "uint32": "UINT32_T", "uint64": "UINT64_T"}
_OPS = {ReduceOp.SUM: "SUM", ReduceOp.AVG: "SUM", ReduceOp.PREMUL_SUM: "SUM", ReduceOp.PRODUCT: "PROD", ReduceOp.MIN: "MIN",
        ReduceOp.MAX: "MAX", ReduceOp.BAND: "BAND", ReduceOp.BOR: "BOR", ReduceOp.BXOR: "BXOR"}
# Of truth values: a sum is true where one of them is, as NCCL has it; a product where all are.
_OPS_OF_BOOL = {ReduceOp.SUM: "BOR", ReduceOp.MAX: "BOR", ReduceOp.BOR: "BOR", ReduceOp.PRODUCT: "BAND", ReduceOp.MIN: "BAND",
                ReduceOp.BAND: "BAND", ReduceOp.BXOR: "BXOR"}
_DTYPE_CODES = {dtype: code for code, dtype in enumerate(dtypes.ALL)}
_PIECE = 16 << 20  # bytes
_TAG_STEP = 64  # a message's tag is the user's and the dtype's: what was sent as another dtype is not received


class MpiEngine(Engine):
    """The collectives of a group over a communicator of MPI's."""

    def __init__(self, group: Any, communicator: Any):
        super().__init__(group)
        self.MPI, self.communicator = module(), communicator
        self.agreement = Agreement(group, communicator.Dup())
        self.types = {d: getattr(self.MPI, _TYPES[d.native.name]) for d in dtypes.ALL if d.native.name in _TYPES}
        self.types[dtypes.bool_] = self.MPI.UINT8_T
        self.ops = {name: getattr(self.MPI, name) for name in {*_OPS.values(), *_OPS_OF_BOOL.values()}}
        self.most_tag = communicator.Get_attr(self.MPI.TAG_UB) // _TAG_STEP - 1

    def close(self) -> None:
        """The communicators stay: freeing them waits for all processes, and there may be messages under way."""

    # ------------------------------------------------------------------------------------------------------- memory
    def _raw(self, tensor: Tensor) -> list[Any]:
        """A contiguous tensor's memory, as bytes."""
        array = tensor._array
        return [self.MPI.buffer.fromaddress(address(tensor), array.nbytes), array.nbytes, self.MPI.BYTE]

    def _typed(self, tensor: Tensor) -> list[Any]:
        array = tensor._array
        return [self.MPI.buffer.fromaddress(address(tensor), array.nbytes), array.size, self.types[tensor.dtype]]

    def _sent(self, tensor: Tensor) -> Tensor:
        """The tensor's elements as MPI can read them: contiguous, in the host's memory."""
        with no_grad():
            return (tensor if tensor.device.type == "cpu" else tensor.cpu()).contiguous()

    def _received(self, tensor: Tensor) -> tuple[Tensor, Callable[[], None] | None]:
        """Memory that MPI can write to, and how it gets from there into the tensor, where it is not the tensor's own."""
        if tensor.device.type == "cpu" and tensor.is_contiguous():
            return tensor, None
        with no_grad():
            made = empty(tuple(tensor.shape), dtype=tensor.dtype)
        return made, lambda: _put(tensor, made)

    def _shape(self, tensor: Tensor) -> list[tuple[int, ...]]:
        """Shapes must be the same where ranks are asked to be careful; else only the number of elements must."""
        return [tuple(tensor.shape)] if self.group.careful else []

    def _work(self, name: str, start: Callable[[], list[Any]], after: Callable[[], None] | None, result: list[Tensor],
              keep: Any, *facts: Any, later: tuple[Callable[[], Any], ...] = ()) -> Work:
        """Starts an operation whose facts must be the same on all ranks."""
        check = self.agreement.start(name, *facts)
        requests = start()
        pending = Pending([check.request, *requests], (keep, check))
        return Work(self.group, name, pending, after, result, check, later)

    # --------------------------------------------------------------------------------------------------- reductions
    def _summands(self, tensor: Tensor, op: Any) -> tuple[Tensor, Any]:
        """The values to combine, of a type that MPI can, and MPI's operation."""
        kind, factor = reductions.kind(op), reductions.factor(op)
        source = self._sent(tensor)
        with no_grad():
            if source.dtype is dtypes.bool_:
                if kind not in _OPS_OF_BOOL:
                    raise RuntimeError(f"Cannot use {kind} with torch.bool")
                return source, self.ops[_OPS_OF_BOOL[kind]]
            values = view_as_real(source) if source.dtype.is_complex else source
            if values.dtype not in self.types:  # half precision: summed in single, and rounded once
                values = values.to(dtypes.float32)
            if factor is not None:
                values = values * factor
            return values, self.ops[_OPS[kind]]

    def _combined(self, target: Tensor, values: Tensor, op: Any) -> None:
        """Puts combined values where they belong."""
        if reductions.kind(op) is ReduceOp.AVG:
            values.div_(self.size) if values.dtype.is_floating_point else values.div_(self.size, rounding_mode="trunc")
        if native.pointer(values._array) != native.pointer(target._array) or values.dtype is not target.dtype:
            _put(view_as_real(target) if target.dtype.is_complex else target, values)

    def all_reduce(self, tensor: Tensor, op: Any) -> Work:
        values, combine = self._summands(tensor, op)
        first, *rest = self._memory_in_pieces(values)
        start = self.communicator.Iallreduce
        return self._work(
            "all_reduce", lambda: [start(self.MPI.IN_PLACE, first, combine)], lambda: self._combined(tensor, values, op),
            [tensor], values, tensor.dtype, tensor.numel(), reductions.kind(op).name, *self._shape(tensor),
            later=tuple(functools.partial(self._piece, piece, combine, values) for piece in rest))

    def _piece(self, piece: list[Any], combine: Any, values: Tensor) -> Pending:
        return Pending([self.communicator.Iallreduce(self.MPI.IN_PLACE, piece, combine)], values)

    def _memory_in_pieces(self, tensor: Tensor) -> list[list[Any]]:
        """The tensor's memory, in pieces where it is large: for each operation MPI takes scratch memory of its size, and beyond
        32 MB the system hands out, and fills with zeros, fresh pages every time."""
        memory, count, kind = self._typed(tensor)
        if memory.nbytes <= 2 * _PIECE:
            return [[memory, count, kind]]
        start, item = address(tensor), tensor.element_size()
        step = _PIECE // item
        return [[self.MPI.buffer.fromaddress(start + at * item, min(step, count - at) * item), min(step, count - at), kind]
                for at in range(0, count, step)]

    def reduce(self, tensor: Tensor, root: int, op: Any) -> Work:
        mine = self.rank == root
        values, combine = self._summands(tensor, op)
        send, receive = (self.MPI.IN_PLACE, self._typed(values)) if mine else (self._typed(values), None)
        return self._work(
            "reduce", lambda: [self.communicator.Ireduce(send, receive, combine, root)],
            (lambda: self._combined(tensor, values, op)) if mine else None, [tensor], values, tensor.dtype, tensor.numel(),
            reductions.kind(op).name, root, *self._shape(tensor))

    def reduce_scatter(self, output: Tensor, inputs: list[Tensor], op: Any) -> Work:
        values, combine = self._summands(_joined(inputs), op)
        counts = [values.numel() // max(1, sum(i.numel() for i in inputs)) * i.numel() for i in inputs]
        with no_grad():
            made = empty((counts[self.rank],), dtype=values.dtype)
        return self._work(
            "reduce_scatter", lambda: [self.communicator.Ireduce_scatter(self._typed(values), self._typed(made), counts,
                                                                         combine)],
            lambda: self._combined(output, made.reshape(_real_shape(output)), op), [output], (values, made), output.dtype,
            *[i.numel() for i in inputs], reductions.kind(op).name)

    def reduce_scatter_tensor(self, output: Tensor, tensor: Tensor, op: Any) -> Work:
        values, combine = self._summands(tensor, op)
        direct = values.dtype is output.dtype and output.is_contiguous() and output.device.type == "cpu"
        with no_grad():
            made = output if direct else empty(_real_shape(output), dtype=values.dtype)
        send = [self._typed(values)[0], *self._typed(made)[1:]]  # counted in pieces
        return self._work(
            "reduce_scatter_tensor", lambda: [self.communicator.Ireduce_scatter_block(send, self._typed(made),
                                                                                      combine)],
            lambda: self._combined(output, made, op), [output], (values, made), output.dtype, output.numel(),
            reductions.kind(op).name)

    # ----------------------------------------------------------------------------------------------------- movements
    def broadcast(self, tensor: Tensor, root: int) -> Work:
        if self.rank == root:
            buffer, back = self._sent(tensor), None
        else:
            buffer, back = self._received(tensor)
        return self._work("broadcast", lambda: [self.communicator.Ibcast(self._raw(buffer), root)], back, [tensor], buffer,
                          tensor.dtype, tensor.numel(), root, *self._shape(tensor))

    def all_gather_into_tensor(self, output: Tensor, tensor: Tensor) -> Work:
        buffer, (made, back) = self._sent(tensor), self._received(output)
        return self._work("all_gather_into_tensor",
                          lambda: [self.communicator.Iallgather(self._raw(buffer), self._raw_each(made))],
                          back, [output], (buffer, made), tensor.dtype, tensor.numel())

    def _raw_each(self, tensor: Tensor) -> list[Any]:
        """Memory of which each rank has the same share."""
        memory, size, kind = self._raw(tensor)
        return [memory, size // self.size, kind]

    def _raw_parts(self, tensor: Tensor, counts: list[int]) -> list[Any]:
        """Memory of which each rank has so many elements."""
        memory, _, kind = self._raw(tensor)
        item = tensor.element_size()
        starts = [sum(counts[:i]) * item for i in range(len(counts))]
        return [memory, [n * item for n in counts], starts, kind]

    def all_gather(self, outputs: list[Tensor], tensor: Tensor) -> Work:
        counts, buffer = [o.numel() for o in outputs], self._sent(tensor)
        with no_grad():
            made = empty((sum(counts),), dtype=tensor.dtype)
        return self._work("all_gather",
                          lambda: [self.communicator.Iallgatherv(self._raw(buffer), self._raw_parts(made, counts))],
                          lambda: _divided(outputs, made), outputs, (buffer, made), tensor.dtype, *counts)

    def gather(self, tensor: Tensor, outputs: list[Tensor] | None, root: int) -> Work:
        buffer, made = self._sent(tensor), None
        if self.rank == root:
            with no_grad():
                made = empty((sum(o.numel() for o in outputs),), dtype=tensor.dtype)
        receive = None if made is None else self._raw_each(made)
        return self._work("gather", lambda: [self.communicator.Igather(self._raw(buffer), receive, root)],
                          None if made is None else lambda: _divided(outputs, made), outputs or [], (buffer, made),
                          tensor.dtype, tensor.numel(), root)

    def scatter(self, tensor: Tensor, inputs: list[Tensor] | None, root: int) -> Work:
        joined = self._sent(_joined(inputs)) if self.rank == root else None
        made, back = self._received(tensor)
        return self._work("scatter", lambda: [self.communicator.Iscatter(None if joined is None else self._raw_each(joined),
                                                                         self._raw(made), root)],
                          back, [tensor], (joined, made), tensor.dtype, tensor.numel(), root)

    def all_to_all(self, outputs: list[Tensor], inputs: list[Tensor]) -> Work:
        with no_grad():
            made = empty((sum(o.numel() for o in outputs),), dtype=inputs[0].dtype)
        return self._exchange("all_to_all", self._sent(_joined(inputs)), [i.numel() for i in inputs], made,
                              [o.numel() for o in outputs], lambda: _divided(outputs, made), outputs)

    def all_to_all_single(self, output: Tensor, tensor: Tensor, output_rows: list[int], input_rows: list[int]) -> Work:
        (made, back), buffer = self._received(output), self._sent(tensor)
        sent, received = (t.numel() // max(1, t.shape[0]) if t.ndim else 1 for t in (tensor, output))
        return self._exchange("all_to_all_single", buffer, [n * sent for n in input_rows], made,
                              [n * received for n in output_rows], back, [output])

    def _exchange(self, name: str, buffer: Tensor, given: list[int], made: Tensor, wanted: list[int],
                  after: Callable[[], None] | None, result: list[Tensor]) -> Work:
        """What one rank gives another must be what that one wants of it: they tell each other, at the same time."""
        counts, told = array("q", given), array("q", [0] * self.size)
        tell = self.agreement.communicator.Ialltoall(counts, told)

        def compare() -> None:
            for other, (said, expected) in enumerate(zip(told, wanted)):
                if said != expected:
                    raise self.group.wrong(name, f"rank {self.group.ranks[other]} sends {said} elements to rank "
                                                 f"{self.group.ranks[self.rank]}, which expects {expected}")
            if after is not None:
                after()

        return self._work(name, lambda: [self.communicator.Ialltoallv(self._raw_parts(buffer, given),
                                                                      self._raw_parts(made, wanted)), tell],
                          compare, result, (buffer, made, counts, told), buffer.dtype)

    def barrier(self) -> Work:
        return self._work("barrier", lambda: [self.communicator.Ibarrier()], None, [], None)

    def agree(self, what: str) -> Work:
        """Finds out whether all ranks do the same."""
        return self._work(what, lambda: [], None, [], None)

    # -------------------------------------------------------------------------------------------------- one to another
    def _tag(self, tag: int, tensor: Tensor) -> int:
        if not 0 <= tag <= self.most_tag:
            raise ValueError(f"tag={tag}: tags are from 0 to {self.most_tag}")
        return tag * _TAG_STEP + _DTYPE_CODES[tensor.dtype]

    def send(self, tensor: Tensor, to: int, tag: int) -> Work:
        buffer = self._sent(tensor)
        request = self.communicator.Isend(self._raw(buffer), to, self._tag(tag, tensor))
        return Work(self.group, f"send to rank {self.group.ranks[to]}", Pending([request], (buffer, tensor)), None, [tensor])

    def recv(self, tensor: Tensor, source: int | None, tag: int) -> Work:
        from .receive import Receive
        return Receive(self, tensor, source, tag)


def _put(target: Tensor, values: Tensor) -> None:
    target.copy_(values.reshape(tuple(target.shape)))


def _joined(tensors: list[Tensor]) -> Tensor:
    with no_grad():
        return cat([t.reshape(-1) for t in tensors])


def _divided(outputs: list[Tensor], made: Tensor) -> None:
    at = 0
    for output in outputs:
        _put(output, made[at:at + output.numel()])
        at += output.numel()


def _real_shape(tensor: Tensor) -> tuple[int, ...]:
    return (*tensor.shape, 2) if tensor.dtype.is_complex else tuple(tensor.shape)
