"""PowerSGD: gradients as matrices of low rank. Each n x m gradient M travels as P (n x r) and Q (m x r) with M ~ P Q^T, one
step of a power iteration per pass; what that leaves out is kept by each process and added to its next gradient."""

from __future__ import annotations

import math
import random
from typing import Any

from .... import distributed as dist
from ....autograd.modes import no_grad
from ....creation.factories import zeros
from ....creation.random import Generator
from ....futures import Future
from ....ops.core.export import FUNCTIONS
from ....ops.linalg.decompose import linalg_qr
from ....ops.random.factories import randn
from ....tensors.tensor import Tensor
from . import default_hooks

__all__ = ["PowerSGDState", "batched_powerSGD_hook", "powerSGD_hook"]


class PowerSGDState:
    """What the hooks remember between passes: the errors, the last Q, and how often they were called.

    start_powerSGD_iter: so many passes are exchanged in full. min_compression_rate: only matrices that become smaller by this
    factor are compressed. use_error_feedback: what is left out of one pass is added to the next. warm_start: the power
    iteration goes on from the last pass (else it begins at random).
    """

    def __init__(self, process_group: Any = None, matrix_approximation_rank: int = 1, start_powerSGD_iter: int = 1_000,
                 min_compression_rate: float = 2, use_error_feedback: bool = True, warm_start: bool = True,
                 orthogonalization_epsilon: float = 0, random_seed: int = 0, compression_stats_logging_frequency: int = 10_000,
                 batch_tensors_with_same_shape: bool = False):
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError("Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because "
                             "PowerSGD can only be applied after the first two iterations in DDP.")
        self.process_group, self.matrix_approximation_rank = process_group, matrix_approximation_rank
        self.start_powerSGD_iter, self.min_compression_rate = start_powerSGD_iter, min_compression_rate
        self.use_error_feedback, self.warm_start = use_error_feedback, warm_start
        self.orthogonalization_epsilon, self.batch_tensors_with_same_shape = (
            orthogonalization_epsilon, batch_tensors_with_same_shape)
        self.compression_stats_logging_frequency = compression_stats_logging_frequency
        self.rng = random.Random(random_seed)
        self.error_dict: dict[int, Tensor] = {}
        self.q_memory_dict: dict[int, list[Tensor]] = {}
        self.iter = self.total_numel_before_compression = self.total_numel_after_compression = 0

    def maybe_increase_iter(self, bucket: Any) -> None:
        """Counts passes."""
        self.iter += bucket.is_last()

    def compression_stats(self) -> tuple[float, int, int]:
        """(rate, elements before, elements after) of all that was compressed."""
        before, after = self.total_numel_before_compression, self.total_numel_after_compression
        return before / after if after else 0, before, after


def _orthogonal(columns: Tensor, epsilon: float) -> Tensor:
    """The columns made orthonormal."""
    if epsilon == 0:
        return linalg_qr(columns)[0] if columns.shape[0] >= columns.shape[1] else columns
    for i in range(columns.shape[1]):
        column = columns[:, i:i + 1]
        column /= column.square().sum().sqrt() + epsilon
        rest = columns[:, i + 1:]
        if rest.shape[1]:
            rest -= (column * rest).sum(0) * column
    return columns


def _average(tensors: list[Tensor], state: PowerSGDState, mean: bool) -> list[Tensor]:
    """Sums (or means) over all processes, in one message."""
    if not tensors:
        return []
    flat = FUNCTIONS["cat"]([t.reshape(-1) for t in tensors])
    dist.all_reduce(flat, group=state.process_group)
    if mean:
        flat /= dist.get_world_size(state.process_group)
    return [piece.view(t.shape) for piece, t in zip(flat.split([t.numel() for t in tensors]), tensors)]


def _worthwhile(matrix: Tensor, state: PowerSGDState) -> bool:
    n, m = matrix.shape
    return (n + m) * state.matrix_approximation_rank * state.min_compression_rate < n * m


def _start(state: PowerSGDState, index: int, matrices: list[Tensor]) -> list[Tensor]:
    """A Q per matrix: that of the last pass, or the same random one on every process."""
    known = state.q_memory_dict.get(index)
    if known is not None and state.warm_start:
        return known
    source = Generator().manual_seed(state.rng.randrange(1_000_000_000))
    made = []
    for matrix in matrices:
        rank = min(*matrix.shape, state.matrix_approximation_rank)
        drawn = randn(matrix.shape[1], rank, generator=source, dtype=matrix.dtype).to(matrix.device)
        made.append(_orthogonal(drawn, state.orthogonalization_epsilon))
    return made


def _approximate(state: PowerSGDState, index: int, matrices: list[Tensor]) -> None:
    """Writes the approximated mean over all processes into the matrices."""
    qs = _start(state, index, matrices)
    ps = _average([m @ q for m, q in zip(matrices, qs)], state, mean=False)
    ps = [_orthogonal(p, state.orthogonalization_epsilon) for p in ps]
    qs = _average([m.t() @ p for m, p in zip(matrices, ps)], state, mean=True)
    for matrix, p, q in zip(matrices, ps, qs):
        matrix.copy_(p @ q.t())
    if state.warm_start:
        state.q_memory_dict[index] = [q.clone() for q in qs]
    state.total_numel_after_compression += sum(p.numel() + q.numel() for p, q in zip(ps, qs))


@no_grad()
def _with_error(state: PowerSGDState, bucket: Any, buffer: Tensor, work: Any) -> Future:
    """Runs `work` on the buffer with the error of the last pass added, and keeps what it leaves out; in the first passes the
    gradients travel as they are."""
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return default_hooks.allreduce_hook(state.process_group, bucket)
    index, before = bucket.index(), None
    if state.use_error_feedback:
        error = state.error_dict.get(index)
        if error is None or error.shape != buffer.shape:
            state.error_dict[index] = zeros(buffer.shape, dtype=buffer.dtype, device=buffer.device)
        else:
            buffer += error
        before = buffer.clone()
    work(index)
    if before is not None:
        state.error_dict[index] = before - buffer
    state.maybe_increase_iter(bucket)
    made: Future = Future()
    made.set_result(buffer)
    return made


def powerSGD_hook(state: PowerSGDState, bucket: Any) -> Future:
    """Each gradient as a matrix of low rank; vectors, and matrices that would not become smaller, travel as they are."""
    buffer = bucket.buffer()

    def work(index: int) -> None:
        matrices, others = [], []
        for gradient in bucket.gradients():
            matrix = gradient.view(gradient.shape[0], -1) if gradient.ndim else gradient.view(1, 1)
            (matrices if _worthwhile(matrix, state) else others).append(matrix)
        state.total_numel_before_compression += buffer.numel()
        state.total_numel_after_compression += sum(t.numel() for t in others)
        for target, mean in zip(others, _average(others, state, mean=True)):
            target.copy_(mean)
        _approximate(state, index, matrices)

    return _with_error(state, bucket, buffer, work)


def batched_powerSGD_hook(state: PowerSGDState, bucket: Any) -> Future:
    """The whole bucket as one square matrix: less work and less exact than powerSGD_hook."""
    buffer = bucket.buffer()

    def work(index: int) -> None:
        side = math.ceil(math.sqrt(buffer.numel()))
        square = zeros(side * side, dtype=buffer.dtype, device=buffer.device)
        square[:buffer.numel()].copy_(buffer)
        state.total_numel_before_compression += buffer.numel()
        _approximate(state, index, [square.view(side, side)])
        buffer.copy_(square[:buffer.numel()])

    return _with_error(state, bucket, buffer, work)
