"""`PipelineStage`: the layers of one process in a pipeline, and what goes between it and its neighbours."""

from __future__ import annotations

from typing import Any

from ... import distributed as dist
from ...autograd.modes import no_grad
from ...autograd.passes import backward as _backward
from ...creation.factories import empty, tensor, zeros_like
from ...tensors.tensor import Tensor
from ...utils._pytree import tree_map

__all__ = ["PipelineStage"]


class PipelineStage:
    """One stage of a pipeline: process i of the group runs stage i, and where there are more stages than processes also stage
    i + the group's size, and so on.

    Shapes between stages are told by the first microbatch; they have to stay the same.
    """

    def __init__(self, submodule: Any, stage_index: int, num_stages: int, device: Any, input_args: Any = None,
                 output_args: Any = None, group: Any = None, dw_builder: Any = None):
        if dw_builder is not None:
            raise NotImplementedError("PipelineStage(dw_builder=...) is not implemented in flambeau")
        if stage_index >= num_stages:
            raise ValueError(f"Stage index {stage_index} is out of range of {num_stages}")
        self.submod, self.stage_index, self.num_stages, self.device, self.group = (
            submodule, stage_index, num_stages, device, group)
        self.group_rank, self.group_size = dist.get_rank(group), dist.get_world_size(group)
        if num_stages % self.group_size or self.group_rank != stage_index % self.group_size:
            raise NotImplementedError(f"PipelineStage: stage {stage_index} of {num_stages} on rank {self.group_rank} of "
                                      f"{self.group_size}: stages in the order of ranks, again and again, are implemented in "
                                      "flambeau")
        self.before, self.after = ((stage_index + step) % self.group_size for step in (-1, 1))
        self.alone = self.group_size == num_stages          # of this process: no other stage's messages go the same way
        self.mail: dict[int, list[list[Tensor]]] = {}       # tag -> what stages of this process send each other
        self.is_first, self.is_last = stage_index == 0, stage_index == num_stages - 1
        self.expected: list[tuple[Any, Any]] | None = None  # (shape, dtype) of what comes from the stage before
        self.told = False                                   # whether the next stage knows what it gets
        self.kept: dict[int, tuple[list[Tensor], list[Tensor]]] = {}  # microbatch -> inputs, outputs of its forward pass
        self.sent: list[Any] = []                           # (work, tensor) under way

    # ----------------------------------------------------------------------------------------------------- neighbours
    def _tag(self, stage: int, backward: bool) -> int:
        """Tells what a stage sends from what others do between the same two processes."""
        return 0 if self.alone else 1 + 2 * stage + backward

    def _send(self, tensors: list[Tensor], rank: int, tag: int) -> None:
        if rank == self.group_rank:
            self.mail.setdefault(tag, []).append([t.detach().clone() for t in tensors])
            return
        for t in tensors:
            t = t.detach().contiguous()
            self.sent.append((dist.isend(t, group_dst=rank, group=self.group, tag=tag), t))

    def _receive(self, geometry: list[tuple[Any, Any]], rank: int, tag: int) -> list[Tensor]:
        if rank == self.group_rank:
            return self.mail[tag].pop(0)
        made = [empty(shape, dtype=dtype, device=self.device) for shape, dtype in geometry]
        for t in made:
            dist.recv(t, group_src=rank, group=self.group, tag=tag)
        return made

    def flush(self) -> None:
        """Waits until all that was sent has arrived."""
        for work, _ in self.sent:
            work.wait()
        self.sent = []

    def _inputs(self) -> list[Tensor]:
        if self.expected is None and self.before != self.group_rank:
            said: list[Any] = [None]
            dist.recv_object_list(said, group_src=self.before, group=self.group)
            self.expected = said[0]
        made = self._receive(self.expected or [], self.before, self._tag(self.stage_index - 1, False))
        return [t.requires_grad_(t.is_floating_point()) for t in made]

    # --------------------------------------------------------------------------------------------------------- passes
    def forward_one_chunk(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The forward pass of a microbatch; its outputs go to the next stage."""
        inputs = list(args) if self.is_first else self._inputs()
        with _quiet(self.submod):
            output = self.submod(*inputs, **kwargs)
        outputs = list(output) if isinstance(output, (tuple, list)) else [output]
        if any(not isinstance(t, Tensor) for t in outputs):
            raise TypeError(f"PipelineStage: stage {self.stage_index} returned {[type(t).__name__ for t in outputs]}; stages "
                            "pass tensors on")
        self.kept[number] = ([t for t in inputs if isinstance(t, Tensor)], outputs)
        if not self.is_last:
            if not self.told and self.after != self.group_rank:
                geometry = [(tuple(t.shape), t.dtype) for t in outputs]
                dist.send_object_list([geometry], group_dst=self.after, group=self.group)
                self.told = True
            self._send(outputs, self.after, self._tag(self.stage_index, False))
        return output

    def backward_one_chunk(self, number: int, loss: Tensor | None, scale: float, last: bool) -> None:
        """The backward pass of a microbatch; its inputs' gradients go to the stage before. last: no other follows."""
        inputs, outputs = self.kept.pop(number)
        _synchronize(self.submod, outputs, last)
        if self.is_last:
            _backward([loss], [tensor(scale, dtype=loss.dtype, device=loss.device)])
        else:
            wanted = [t for t in outputs if t.requires_grad]
            tag = self._tag(self.stage_index + 1, True)
            grads = self._receive([(tuple(t.shape), t.dtype) for t in wanted], self.after, tag)
            if wanted:
                _backward(wanted, grads)
        if not self.is_first:
            with no_grad():
                self._send([zeros_like(t) if t.grad is None else t.grad for t in inputs if t.requires_grad],
                           self.before, self._tag(self.stage_index, True))

    def eval_only(self) -> None:
        """Forgets forward passes that no backward pass follows."""
        self.kept.clear()


class _quiet:
    """Forward passes of a data-parallel module that announce no exchange: `_synchronize` does, before the last pass."""

    def __init__(self, module: Any):
        self.inner = module.no_sync() if hasattr(module, "no_sync") else None

    def __enter__(self) -> None:
        if self.inner is not None:
            self.inner.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self.inner is not None:
            self.inner.__exit__(*error)


def _synchronize(module: Any, outputs: list[Tensor], last: bool) -> None:
    """Gradients are exchanged once, with the last microbatch."""
    if hasattr(module, "reducer"):
        if last:
            module.reducer.prepare(outputs)
    elif hasattr(module, "set_requires_gradient_sync"):
        module.set_requires_gradient_sync(last)


def detached(value: Any) -> Any:
    """Outputs as the user gets them."""
    return tree_map(lambda v: v.detach() if isinstance(v, Tensor) else v, value)
