"""Schedules: in which order a stage does the forward and backward passes of its microbatches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...autograd.modes import no_grad
from ...ops.core.export import FUNCTIONS
from ...tensors.tensor import Tensor
from .stage import PipelineStage, detached

__all__ = ["Schedule1F1B", "ScheduleGPipe", "ScheduleInterleaved1F1B", "ScheduleLoopedBFS", "get_schedule_class"]
Step = tuple[bool, int, int]  # whether it is a forward pass; which of the process' stages; which microbatch


class _Schedule:
    """A batch is cut into microbatches along its first dimension; the outputs are joined.

    loss_fn(output, target), on the last stage, is taken to be a mean: with scale_grads the gradients of all microbatches are
    averaged.
    """

    def __init__(self, stages: list[PipelineStage], n_microbatches: int, loss_fn: Callable[..., Tensor] | None,
                 specs: tuple[Any, ...], scale_grads: bool):
        if any(spec is not None for spec in specs):
            raise NotImplementedError(f"{type(self).__name__}: batches are cut and joined along their first dimension in "
                                      "flambeau, other specs are not implemented")
        self._stages, self._n_microbatches, self._loss_fn, self.scale_grads = stages, n_microbatches, loss_fn, scale_grads
        self._is_first, self._is_last = any(s.is_first for s in stages), any(s.is_last for s in stages)
        for stage in stages:
            stage.mail = stages[0].mail

    def step(self, *args: Any, target: Any = None, losses: list[Any] | None = None, **kwargs: Any) -> Any:
        """One batch through the pipeline, forward and (with a loss function) backward. The first stage gives the inputs, the
        last one the target; the last one gets the output, and the losses of all microbatches in the list."""
        if self._is_first and not args and not kwargs:
            raise RuntimeError("the first stage of a pipeline needs the inputs of the batch")
        if self._is_last and self._loss_fn is not None and target is None:
            raise RuntimeError("the last stage of a pipeline needs the target of the batch: step(target=...)")
        pieces = self._cut(args)
        named = [dict(zip(kwargs, p)) for p in self._cut(tuple(kwargs.values()))]
        self._targets = [p[0] for p in self._cut((target,))]
        self._outputs: dict[int, Any] = {}
        self._losses: dict[int, Tensor] = {}
        self._done = [0] * len(self._stages)
        for forward, which, i in self._order():
            if forward:
                self._forward(self._stages[which], i, pieces[i], named[i])
            elif self._training and self._loss_fn is not None:  # every stage is given a loss function; the last one calls it
                self._backward(which, i)
        for stage in self._stages:
            stage.flush()
        if losses is not None:
            losses[:] = [self._losses[i].detach() for i in sorted(self._losses)]
        return self._joined() if self._is_last else None

    def eval(self, *args: Any, target: Any = None, losses: list[Any] | None = None, **kwargs: Any) -> Any:
        """One batch forward only."""
        before, self._training = self._training, False
        try:
            with no_grad():
                return self.step(*args, target=target, losses=losses, **kwargs)
        finally:
            self._training = before
            for stage in self._stages:
                stage.eval_only()

    _training = True

    def _cut(self, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        n = self._n_microbatches
        columns = []
        for value in values:
            if isinstance(value, Tensor):
                if value.shape[0] < n:
                    raise RuntimeError(f"a batch of {value.shape[0]} cannot be cut into {n} microbatches")
                columns.append(FUNCTIONS["tensor_split"](value, n))
            else:
                columns.append([value] * n)
        return list(zip(*columns)) if columns else [()] * n

    def _joined(self) -> Any:
        parts = [self._outputs[i] for i in range(self._n_microbatches)]
        if isinstance(parts[0], (tuple, list)):
            return type(parts[0])(FUNCTIONS["cat"](list(column)) for column in zip(*parts))
        return FUNCTIONS["cat"](parts)

    def _forward(self, stage: PipelineStage, i: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        output = stage.forward_one_chunk(i, args, kwargs)
        if stage.is_last:
            self._outputs[i] = detached(output)
            if self._loss_fn is not None:
                self._losses[i] = self._loss_fn(output, self._targets[i])

    def _backward(self, which: int, i: int) -> None:
        self._done[which] += 1
        stage, scale = self._stages[which], 1 / self._n_microbatches if self.scale_grads else 1.0
        stage.backward_one_chunk(i, self._losses.get(i) if stage.is_last else None, scale,
                                 self._done[which] == self._n_microbatches)

    def _order(self) -> Iterator[Step]:
        """What this process does, one after another."""
        raise NotImplementedError


class _Single(_Schedule):
    """One stage per process."""

    def __init__(self, stage: PipelineStage, n_microbatches: int, loss_fn: Callable[..., Tensor] | None = None,
                 args_chunk_spec: Any = None, kwargs_chunk_spec: Any = None, output_merge_spec: Any = None,
                 scale_grads: bool = True):
        super().__init__([stage], n_microbatches, loss_fn, (args_chunk_spec, kwargs_chunk_spec, output_merge_spec), scale_grads)
        if not stage.alone:
            raise ValueError(f"{type(self).__name__} is for one stage per process, not for {stage.num_stages} on "
                             f"{stage.group_size}: ScheduleInterleaved1F1B and ScheduleLoopedBFS take several")
        self._stage = stage


class ScheduleGPipe(_Single):
    """All microbatches forward, then all backward: simple, and all activations are kept meanwhile."""

    def _order(self) -> Iterator[Step]:
        for forward in (True, False):
            yield from ((forward, 0, i) for i in range(self._n_microbatches))


class Schedule1F1B(_Single):
    """One forward, one backward: a stage keeps the activations of as many microbatches as stages come after it."""

    def _order(self) -> Iterator[Step]:
        n, stage = self._n_microbatches, self._stage
        if n < stage.num_stages:
            raise ValueError(f"Number of microbatches ({n}) must be greater than or equal to the number of stages "
                             f"({stage.num_stages}).")
        yield from alternating([(True, 0, i) for i in range(n)], [(False, 0, i) for i in range(n)],
                               stage.num_stages - stage.stage_index - 1)


class _Several(_Schedule):
    """Several stages per process: stage i, i + the group's size, ..., in this order."""

    def __init__(self, stages: list[PipelineStage], n_microbatches: int, loss_fn: Callable[..., Tensor] | None = None,
                 args_chunk_spec: Any = None, kwargs_chunk_spec: Any = None, output_merge_spec: Any = None,
                 scale_grads: bool = True):
        super().__init__(list(stages), n_microbatches, loss_fn, (args_chunk_spec, kwargs_chunk_spec, output_merge_spec),
                         scale_grads)
        size, found = stages[0].group_size, [s.stage_index for s in stages]
        if found != list(range(stages[0].group_rank, stages[0].num_stages, size)):
            raise ValueError(f"{type(self).__name__}: rank {stages[0].group_rank} of {size} has the stages {found}, expected "
                             f"every {size}th of {stages[0].num_stages}, in order")


class ScheduleLoopedBFS(_Several):
    """All microbatches through one stage after the other, then all backward."""

    def _order(self) -> Iterator[Step]:
        for which in range(len(self._stages)):
            yield from ((True, which, i) for i in range(self._n_microbatches))
        for which in reversed(range(len(self._stages))):
            yield from ((False, which, i) for i in reversed(range(self._n_microbatches)))


class ScheduleInterleaved1F1B(_Several):
    """One forward, one backward, in rounds of about as many microbatches as there are processes: each stage does those of a
    round before the process turns to its next stage. A process waits less than with one stage, and sends more."""

    def _order(self) -> Iterator[Step]:
        n, many, size = self._n_microbatches, len(self._stages), self._stages[0].group_size
        rounds = max(1, n // size)
        if n % rounds:
            raise ValueError(f"The number of microbatches ({n}) must be a multiple of the number of rounds ({rounds})")
        each = n // rounds
        turns = [(which, r * each + i) for r in range(rounds) for which in range(many) for i in range(each)]
        ahead = (many - 1) * each + 2 * (size - 1 - self._stages[0].group_rank)
        yield from alternating([(True, *turn) for turn in turns], [(False, many - 1 - which, i) for which, i in turns], ahead)


def alternating(forward: list[Step], backward: list[Step], ahead: int) -> Iterator[Step]:
    """So many forward steps, then one forward and one backward in turn, then the backward steps that are left."""
    ahead = min(ahead, len(forward))
    yield from forward[:ahead]
    for i, step in enumerate(forward[ahead:]):
        yield step
        yield backward[i]
    yield from backward[len(forward) - ahead:]


def get_schedule_class(schedule_name: str) -> type[_Schedule]:
    """The schedule of a name: GPipe, 1F1B, Interleaved1F1B or LoopedBFS."""
    known = {kind.__name__.removeprefix("Schedule").lower(): kind
             for kind in (ScheduleGPipe, Schedule1F1B, ScheduleInterleaved1F1B, ScheduleLoopedBFS)}
    if schedule_name.lower() not in known:
        raise ValueError(f"Unknown schedule '{schedule_name}'. The available schedules are {sorted(known)}")
    return known[schedule_name.lower()]
