"""`ZeroRedundancyOptimizer`: each process keeps the optimizer's state of its share of the parameters and updates those; then
everybody gets everybody's share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ... import distributed as dist
from ...autograd.modes import no_grad
from ...optim.optimizer import Optimizer
from ...tensors.tensor import Tensor
from ...utils._pytree import tree_map
from ..algorithms.join import Join, Joinable, JoinHook

__all__ = ["ZeroRedundancyOptimizer"]


class _ZeROJoinHook(JoinHook):
    """A process without inputs still updates its share and sends it."""

    def __init__(self, zero: ZeroRedundancyOptimizer):
        self.zero = zero

    def main_hook(self) -> None:
        self.zero.step()


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """Any optimizer, with its state spread over the processes of a group.

    optimizer_class: the optimizer that each process runs on its share; defaults: its arguments.
    parameters_as_bucket_view: parameters become windows onto the pieces that are sent, which saves a copy.
    """

    def __init__(self, params: Iterable[Any], optimizer_class: type[Optimizer], process_group: Any | None = None,
                 parameters_as_bucket_view: bool = False, overlap_with_ddp: bool = False, **defaults: Any):
        if overlap_with_ddp:
            raise NotImplementedError("ZeroRedundancyOptimizer(overlap_with_ddp=True): steps inside of the backward pass are "
                                      "not implemented in flambeau")
        self.initialized = False
        self.process_group = dist.group.WORLD if process_group is None else process_group
        self.world_size, self.rank = dist.get_world_size(self.process_group), dist.get_rank(self.process_group)
        self.parameters_as_bucket_view = parameters_as_bucket_view
        self._optim_constructor, self._optim_defaults = optimizer_class, defaults
        self._all_state_dicts: list[dict[str, Any]] = []
        Optimizer.__init__(self, _checked(params), defaults)
        Joinable.__init__(self)
        self._shares: list[list[list[Tensor]]] = [[] for _ in range(self.world_size)]  # rank -> group -> parameters
        self._load = [0] * self.world_size
        for group in self.param_groups:
            self._divide(group)
        own = [{**group, "params": mine} for group, mine in zip(self.param_groups, self._shares[self.rank])]
        self.optim: Any = optimizer_class(own, **defaults)
        self._copy_options(self.optim.param_groups, self.param_groups)
        self.state = self.optim.state
        self._lay_buckets()
        self.initialized = True

    # ----------------------------------------------------------------------------------------------------- shares
    def _divide(self, group: dict[str, Any]) -> None:
        """Gives each parameter of a group to the process that has least so far, large ones first."""
        mine: list[list[Tensor]] = [[] for _ in range(self.world_size)]
        for p in sorted(group["params"], key=lambda p: p.numel(), reverse=True):
            rank = self._load.index(min(self._load))
            mine[rank].append(p)
            self._load[rank] += p.numel()
        for rank, share in enumerate(mine):
            self._shares[rank].append(share)

    def _lay_buckets(self) -> None:
        """One piece per process and dtype: what it sends after a step."""
        from ...nn.parallel.buckets import assign, flattened
        self._buckets: list[tuple[int, list[Tensor], Tensor | None]] = []
        for rank in range(self.world_size):
            params = [p for group in self._shares[rank] for p in group]
            for numbers in assign(params, [1 << 62]):
                some, flat = [params[i] for i in numbers], None
                if self.parameters_as_bucket_view:
                    flat = flattened(some)
                    for p, piece in zip(some, flat.split([p.numel() for p in some])):
                        p.data = piece.view(p.shape)
                self._buckets.append((rank, some, flat))

    @property
    def _param_to_index(self) -> dict[Tensor, int]:
        return {p: i for i, p in enumerate(p for group in self.param_groups for p in group["params"])}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters with options of their own; they are divided among the processes."""
        Optimizer.add_param_group(self, param_group)
        if not self.initialized:
            return
        group = self.param_groups[-1]
        self._divide(group)
        self.optim.add_param_group({**group, "params": self._shares[self.rank][-1]})
        self._copy_options(self.optim.param_groups, self.param_groups)
        self._lay_buckets()

    @staticmethod
    def _copy_options(source: list[dict[str, Any]], target: list[dict[str, Any]]) -> None:
        for theirs, mine in zip(source, target):
            mine.update({k: v for k, v in theirs.items() if k not in ("params", "param_names")})

    # -------------------------------------------------------------------------------------------------------- step
    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """One update of this process's share, then all shares go to all."""
        Join.notify_join_context(self)
        self._copy_options(self.param_groups, self.optim.param_groups)  # a scheduler changes those that users see
        loss = self.optim.step(closure=closure, **kwargs) if closure is not None else self.optim.step(**kwargs)
        self._copy_options(self.optim.param_groups, self.param_groups)
        self._sync_params()
        return loss

    def _sync_params(self) -> None:
        from ...nn.parallel.buckets import flattened, written_back
        sent = []
        for rank, params, flat in self._buckets:
            flat = flattened(params) if flat is None else flat
            sent.append((flat, params, rank, dist.broadcast(flat, group_src=rank, group=self.process_group, async_op=True)))
        for flat, params, rank, work in sent:
            work.wait()
            if rank != self.rank and not self.parameters_as_bucket_view:
                written_back(flat, params)

    # --------------------------------------------------------------------------------------------------------- join
    def join_hook(self, **kwargs: Any) -> JoinHook:
        return _ZeROJoinHook(self)

    @property
    def join_device(self) -> Any:
        return self.param_groups[0]["params"][0].device

    @property
    def join_process_group(self) -> Any:
        return self.process_group

    # -------------------------------------------------------------------------------------------------- checkpoints
    def consolidate_state_dict(self, to: int = 0) -> None:
        """Collects the state of all shares at one process, which can then save it. To be called by all."""
        self._copy_options(self.param_groups, self.optim.param_groups)
        own = tree_map(lambda v: v.detach().cpu() if isinstance(v, Tensor) else v, self.optim.state_dict())
        found: list[Any] | None = [None] * self.world_size if self.rank == to else None
        dist.gather_object(own, found, group_dst=to, group=self.process_group)
        self._all_state_dicts = found or []

    def state_dict(self) -> dict[str, Any]:
        """The whole state, as the optimizer of a single process would save it; after `consolidate_state_dict`."""
        if not self._all_state_dicts:
            raise RuntimeError("Optimizer state has not been consolidated on this rank. Please call "
                               f"`consolidate_state_dict(to={self.rank})` on all ranks beforehand if you meant to save the "
                               "global state.")
        index = self._param_to_index
        state = {}
        for rank, saved in enumerate(self._all_state_dicts):
            for group, share in zip(saved["param_groups"], self._shares[rank]):
                for number, p in zip(group["params"], share):
                    if number in saved["state"]:
                        state[index[p]] = saved["state"][number]
        groups = [{**{k: v for k, v in group.items() if k != "params"}, "params": [index[p] for p in group["params"]]}
                  for group in self.param_groups]
        return {"state": dict(sorted(state.items())), "param_groups": groups}

    @no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a whole state; each process keeps what belongs to its share."""
        if len(state_dict["param_groups"]) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(a["params"]) != len(b["params"]) for a, b in zip(self.param_groups, state_dict["param_groups"])):
            raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")
        self._copy_options(state_dict["param_groups"], self.param_groups)
        saved_number = dict(zip([p for g in self.param_groups for p in g["params"]],
                                [n for g in state_dict["param_groups"] for n in g["params"]]))
        own = self.optim.state_dict()
        state = {}
        for group, share in zip(own["param_groups"], self._shares[self.rank]):
            for number, p in zip(group["params"], share):
                if saved_number[p] in state_dict["state"]:
                    state[number] = state_dict["state"][saved_number[p]]
        self.optim.load_state_dict({"state": state, "param_groups": own["param_groups"]})
        self._copy_options(self.param_groups, self.optim.param_groups)
        self.state = self.optim.state
        self._all_state_dicts = []


def _checked(params: Any) -> list[Any]:
    """The parameters, or groups of them, as a list; all dense and of one kind of thing."""
    if isinstance(params, Tensor):
        raise TypeError(f"`params` argument should be an iterable of Tensors, but got {params.type()}")
    found = list(params)
    if not found:
        raise ValueError("ZeroRedundancyOptimizer got an empty parameter list")
    if not all(isinstance(p, (Tensor, dict, tuple)) for p in found):
        raise TypeError("`params` argument should be an iterable of Tensors or dicts")
    return found
