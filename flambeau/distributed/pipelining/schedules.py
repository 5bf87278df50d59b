"""Schedules: in which order a stage does the forward and backward passes of its microbatches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...autograd.modes import no_grad
from ...ops.core.export import FUNCTIONS
from ...tensors.tensor import Tensor
from .stage import PipelineStage, detached

__all__ = ["Schedule1F1B", "ScheduleGPipe"]


class _Schedule:
    """A batch is cut into microbatches along its first dimension; the outputs are joined.

    loss_fn(output, target), on the last stage, is taken to be a mean: with scale_grads the gradients of all microbatches are
    averaged.
    """

    def __init__(self, stage: PipelineStage, n_microbatches: int, loss_fn: Callable[..., Tensor] | None = None,
                 args_chunk_spec: Any = None, kwargs_chunk_spec: Any = None, output_merge_spec: Any = None,
                 scale_grads: bool = True):
        if args_chunk_spec is not None or kwargs_chunk_spec is not None or output_merge_spec is not None:
            raise NotImplementedError(f"{type(self).__name__}: batches are cut and joined along their first dimension in "
                                      "flambeau, other specs are not implemented")
        self._stage, self._n_microbatches, self._loss_fn, self.scale_grads = stage, n_microbatches, loss_fn, scale_grads

    def step(self, *args: Any, target: Any = None, losses: list[Any] | None = None, **kwargs: Any) -> Any:
        """One batch through the pipeline, forward and (with a loss function) backward. The first stage gives the inputs, the
        last one the target; the last one gets the output, and the losses of all microbatches in the list."""
        if self._stage.is_first and not args and not kwargs:
            raise RuntimeError("the first stage of a pipeline needs the inputs of the batch")
        if self._stage.is_last and self._loss_fn is not None and target is None:
            raise RuntimeError("the last stage of a pipeline needs the target of the batch: step(target=...)")
        pieces = self._cut(args)
        named = [dict(zip(kwargs, p)) for p in self._cut(tuple(kwargs.values()))]
        self._targets = [p[0] for p in self._cut((target,))]
        self._outputs: dict[int, Any] = {}
        self._losses: dict[int, Tensor] = {}
        self._done = 0
        self._run(pieces, named)
        self._stage.flush()
        if losses is not None:
            losses[:] = [self._losses[i].detach() for i in sorted(self._losses)]
        return self._joined() if self._stage.is_last else None

    def eval(self, *args: Any, target: Any = None, losses: list[Any] | None = None, **kwargs: Any) -> Any:
        """One batch forward only."""
        before, self._training = self._training, False
        try:
            with no_grad():
                return self.step(*args, target=target, losses=losses, **kwargs)
        finally:
            self._training = before
            self._stage.eval_only()

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

    def _forward(self, i: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        output = self._stage.forward_one_chunk(i, args, kwargs)
        if self._stage.is_last:
            self._outputs[i] = detached(output)
            if self._loss_fn is not None:
                self._losses[i] = self._loss_fn(output, self._targets[i])

    def _backward(self, i: int) -> None:
        self._done += 1
        scale = 1 / self._n_microbatches if self.scale_grads else 1.0
        self._stage.backward_one_chunk(i, self._losses.get(i), scale, self._done == self._n_microbatches)

    @property
    def _backwards(self) -> bool:
        """Whether backward passes follow: every stage has to be given a loss function, though only the last one calls it."""
        return self._training and self._loss_fn is not None

    def _run(self, args: list[Any], kwargs: list[Any]) -> None:
        raise NotImplementedError


class ScheduleGPipe(_Schedule):
    """All microbatches forward, then all backward: simple, and all activations are kept meanwhile."""

    def _run(self, args: list[Any], kwargs: list[Any]) -> None:
        for i in range(self._n_microbatches):
            self._forward(i, args[i], kwargs[i])
        if self._backwards:
            for i in range(self._n_microbatches):
                self._backward(i)


class Schedule1F1B(_Schedule):
    """One forward, one backward: a stage keeps the activations of as many microbatches as stages come after it."""

    def _run(self, args: list[Any], kwargs: list[Any]) -> None:
        n = self._n_microbatches
        if n < self._stage.num_stages:
            raise ValueError(f"Number of microbatches ({n}) must be greater than or equal to the number of stages "
                             f"({self._stage.num_stages}).")
        ahead = min(n, self._stage.num_stages - self._stage.stage_index) if self._backwards else n
        for i in range(ahead):
            self._forward(i, args[i], kwargs[i])
        if self._backwards:
            for i in range(n):
                self._backward(i)
                if i + ahead < n:
                    self._forward(i + ahead, args[i + ahead], kwargs[i + ahead])
