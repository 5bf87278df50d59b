"""`DistributedDataParallel`: one copy of a model per process, each with its own share of the batch; gradients are averaged."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ... import distributed as dist
from ...autograd.modes import is_grad_enabled
from ...creation.factories import ones, tensor, zeros
from ...distributed.algorithms.join import Join, Joinable, JoinHook
from ...tensors.tensor import Tensor
from ..module import Module
from ..parameter import is_lazy
from .buckets import assign, flattened, written_back
from .reducer import Reducer

__all__ = ["DistributedDataParallel"]

_MEGABYTE = 1024 * 1024
_BROADCAST_BYTES = 250 * _MEGABYTE  # of parameters and buffers that are sent in one piece
_WITHOUT = {"delay_all_reduce_named_params": "gradients that are exchanged late",
            "param_to_hook_all_reduce": "gradients that are exchanged late", "mixed_precision": "a precision of its own",
            "skip_all_reduce_unused_params": "skipping parameters that no process uses",
            "batched_grad_copy": "copying gradients in batches"}
_logger = logging.getLogger(__name__)


def _find_tensors(found: Any) -> list[Tensor]:
    """All tensors in nested containers and dataclasses."""
    if isinstance(found, Tensor):
        return [found]
    if isinstance(found, dict):
        found = list(found.values())
    elif dataclasses.is_dataclass(found) and not isinstance(found, type):
        found = [getattr(found, f.name) for f in dataclasses.fields(found)]
    return [t for value in found for t in _find_tensors(value)] if isinstance(found, (list, tuple)) else []


def broadcast_all(tensors: Sequence[Tensor], src: int, group: Any) -> None:
    """All processes take the values of one (by its rank in the group), in few messages."""
    for numbers in assign(tensors, [_BROADCAST_BYTES]):
        some = [tensors[i] for i in numbers]
        flat = flattened(some)
        dist.broadcast(flat, group_src=src, group=group)
        written_back(flat, some)


class DistributedDataParallel(Module, Joinable):
    """Holds a module as `.module` (whose name is in the state_dict's keys) and averages its gradients over the processes of a
    group, while the backward pass is still under way.

    All processes start from rank 0's parameters. What each does with its own batch is then what one process would do with all
    batches together, if the loss is a mean and batches have one size.

    bucket_cap_mb: gradients travel in pieces of this size (the first one is of 1 MB, so that sending begins early).
    find_unused_parameters: looks in each iteration which parameters the outputs depend on; without it each must get a gradient.
    static_graph: says that every iteration uses the same parameters as often as the first one.
    gradient_as_bucket_view: `.grad` are windows onto the pieces that travel, which saves a copy.
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0,
                 broadcast_buffers: bool | None = None, init_sync: bool = True, process_group: Any = None,
                 bucket_cap_mb: float | None = None, find_unused_parameters: bool = False, check_reduction: bool = False,
                 gradient_as_bucket_view: bool = False, static_graph: bool = False, delay_all_reduce_named_params: Any = None,
                 param_to_hook_all_reduce: Any = None, mixed_precision: Any = None, device_mesh: Any = None,
                 skip_all_reduce_unused_params: bool = False, bucket_cap_mb_list: list[int] | None = None,
                 batched_grad_copy: bool = False, forward_sync_buffers: bool | None = None):
        super().__init__()
        Joinable.__init__(self)
        given = locals()
        for name, what in _WITHOUT.items():
            if given[name]:
                raise NotImplementedError(f"DistributedDataParallel({name}=...): {what} is not implemented in flambeau")
        self.process_group = self._group(process_group, device_mesh)
        self._named = self._trainable(module)
        self.device, self.device_ids = self._device(device_ids, output_device)
        self.output_device = self.device_ids[0] if output_device is None and self.device_ids else output_device
        self.module, self.dim, self.static_graph = module, dim, static_graph
        self.find_unused_parameters, self.gradient_as_bucket_view = find_unused_parameters, gradient_as_bucket_view
        self.forward_sync_buffers = self.broadcast_buffers = _sync_buffers(broadcast_buffers, forward_sync_buffers)
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self.bucket_cap_mb = 25 if bucket_cap_mb is None else bucket_cap_mb
        limits = [_MEGABYTE, int(self.bucket_cap_mb * _MEGABYTE)] if bucket_cap_mb is None else [
            int(self.bucket_cap_mb * _MEGABYTE)]
        limits = [int(c * _MEGABYTE) for c in bucket_cap_mb_list] if bucket_cap_mb_list else limits
        names, parameters = list(self._named), list(self._named.values())
        if init_sync:
            self._verify(names, parameters)
            broadcast_all([*module_tensors(module, self._ignored(module))], 0, self.process_group)
        self.reducer = Reducer(parameters, names, self.process_group, limits, find_unused_parameters, gradient_as_bucket_view,
                               static_graph)
        self._divide_by_initial = True

    # ------------------------------------------------------------------------------------------------- construction
    @staticmethod
    def _group(process_group: Any, device_mesh: Any) -> Any:
        if process_group is not None and device_mesh is not None:
            raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
        if device_mesh is not None:
            if device_mesh.ndim != 1:
                raise RuntimeError(f"Only 1D device mesh is supported, but got {device_mesh}.")
            return device_mesh.get_group(mesh_dim=0)
        if process_group is None and not dist.is_initialized():
            raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
        return dist.group.WORLD if process_group is None else process_group

    @staticmethod
    def _ignored(module: Module) -> set[str]:
        return set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))

    def _trainable(self, module: Module) -> dict[str, Tensor]:
        ignored = self._ignored(module)
        found = {n: p for n, p in module.named_parameters() if p.requires_grad and n not in ignored}
        if not found:
            raise RuntimeError("DistributedDataParallel is not needed when a module doesn't have any parameter that requires a "
                               "gradient.")
        if any(hasattr(p, "device_mesh") for p in found.values()):
            raise NotImplementedError("DistributedDataParallel of DTensor parameters is not implemented in flambeau: "
                                      "fully_shard goes together with tensor parallel")
        if any(is_lazy(p) for p in found.values()):
            raise RuntimeError("Modules with uninitialized parameters can't be used with `DistributedDataParallel`. Run a "
                               "dummy forward pass to correctly initialize the modules")
        return found

    def _device(self, device_ids: Any, output_device: Any) -> tuple[Any, list[Any] | None]:
        devices = {p.device for p in self._named.values()}
        if len({d.type for d in devices}) != 1:
            raise ValueError("DistributedDataParallel's input module must be on the same type of devices, but input module "
                             f"parameters locate in {sorted({d.type for d in devices})}.")
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError("device_ids can only be None or contain a single element.")
        kind = next(iter(devices)).type
        if (kind == "cpu" and (device_ids or output_device is not None)) or (len(devices) > 1 and device_ids):
            raise ValueError("DistributedDataParallel device_ids and output_device arguments only work with "
                             "single-device/multiple-device GPU modules or CPU modules, but got device_ids "
                             f"{device_ids}, output_device {output_device}, and module parameters {devices}.")
        ids = None if not device_ids else [d.index if hasattr(d, "index") and not isinstance(d, int) else d for d in device_ids]
        return next(iter(devices)), ids

    def _verify(self, names: list[str], parameters: list[Tensor]) -> None:
        """All processes must have the same parameters: the first that differs is named, with the ranks."""
        own = [(n, tuple(p.shape), str(p.dtype)) for n, p in zip(names, parameters)]
        everybody: list[Any] = [None] * dist.get_world_size(self.process_group)
        dist.all_gather_object(everybody, own, group=self.process_group)
        rank = dist.get_rank(self.process_group)
        for other, theirs in enumerate(everybody):
            if len(theirs) != len(own):
                raise RuntimeError(f"DDP expects same model across all ranks, but Rank {rank} has {len(own)} params, while "
                                   f"rank {other} has inconsistent {len(theirs)} params.")
            for i, (a, b) in enumerate(zip(own, theirs)):
                if a[1:] != b[1:]:
                    raise RuntimeError(f"[{i}]: params[{i}] in this process with sizes {list(a[1])} appears not to match "
                                       f"sizes of the same param in process {other}: there '{b[0]}' has sizes "
                                       f"{list(b[1])} and dtype {b[2]}, here (rank {rank}) '{a[0]}' has dtype {a[2]}")

    # ------------------------------------------------------------------------------------------------------ calling
    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        inputs, kwargs = self._pre_forward(inputs, kwargs)
        output = self.module(*inputs, **kwargs)
        if is_grad_enabled() and self.require_backward_grad_sync:
            self.require_forward_param_sync = True
            self.reducer.prepare(_find_tensors(output) if self.find_unused_parameters or self.static_graph else ())
        else:
            self.require_forward_param_sync = False
        return output

    def _pre_forward(self, inputs: Any, kwargs: Any) -> tuple[Any, Any]:
        exchange = is_grad_enabled() and self.require_backward_grad_sync
        work = Join.notify_join_context(self)
        if work is not None:
            self.reducer.divisor = dist.get_world_size(self.process_group)
            if not self._divide_by_initial:
                work.wait()
                self.reducer.divisor = int(work.result()[0].item())
        if exchange:
            self.reducer.check_finished()
            if self.reducer.rebuild():
                _logger.info("Reducer buckets have been rebuilt in this iteration.")
        if self._will_sync_buffers():
            self._broadcast_buffers(0)
        if self._join_config.enable:
            self._tell_backward_sync(joined=False)
        if self.device_ids:
            inputs, kwargs = _moved(inputs, self.device), _moved(kwargs, self.device)
        return inputs, kwargs

    def _will_sync_buffers(self) -> bool:
        return self.require_forward_param_sync and self.forward_sync_buffers and bool(self._buffers_to_send())

    def _buffers_to_send(self) -> list[Tensor]:
        ignored = self._ignored(self.module)
        return [b for n, b in self.module.named_buffers() if n not in ignored]

    def _broadcast_buffers(self, src: int) -> None:
        broadcast_all(self._buffers_to_send(), src, self.process_group)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Forward passes inside are not followed by an exchange: gradients add up on each process, until a pass outside."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    # -------------------------------------------------------------------------------------------------------- hooks
    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> None:
        """hook(state, bucket) takes over the exchange: it returns a future of the bucket's averaged gradients."""
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self.reducer.hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        self.reducer.hook = (state, hook)

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        from ...distributed.algorithms.ddp_comm_hooks import default_hooks
        hooks = {"ALLREDUCE": default_hooks.allreduce_hook, "FP16_COMPRESS": default_hooks.fp16_compress_hook}
        self.register_comm_hook(self.process_group, hooks[comm_hook_type.name])

    def _set_static_graph(self) -> None:
        """From now on every iteration uses the same parameters as often as the first one."""
        if self.static_graph:
            warnings.warn("You've set static_graph to be True, no need to set it again.", stacklevel=2)
            return
        if self.reducer.order or self.reducer.rebuilt:
            raise RuntimeError("_set_static_graph() should be called before training loop starts: a backward pass has been")
        self.static_graph = self.reducer.static = True

    # --------------------------------------------------------------------------------------------------------- join
    def join(self, divide_by_initial_world_size: bool = True, enable: bool = True,
             throw_on_early_termination: bool = False) -> Any:
        """Inside, processes may have different numbers of batches: one that is through takes part with zeros."""
        return Join([self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size)

    def join_hook(self, **kwargs: Any) -> JoinHook:
        self._divide_by_initial = kwargs.get("divide_by_initial_world_size", True)
        return _DDPJoinHook(self)

    @property
    def join_device(self) -> Any:
        return self.device

    @property
    def join_process_group(self) -> Any:
        return self.process_group

    def _tell_backward_sync(self, joined: bool) -> bool:
        """Whether the processes that still have inputs will exchange gradients in this iteration."""
        wanted = not joined and self.require_backward_grad_sync
        told = ones(1, device=self.device) if wanted else zeros(1, device=self.device)
        dist.all_reduce(told, group=self.process_group)
        return bool(told.item())

    # ------------------------------------------------------------------------------------------------------ copying
    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__().copy()
        for name in ("process_group", "reducer", "_join_config"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        Joinable.__init__(self)
        self.process_group = self._group(None, None)
        self._named = self._trainable(self.module)
        limits = [_MEGABYTE, int(self.bucket_cap_mb * _MEGABYTE)]
        self.reducer = Reducer(list(self._named.values()), list(self._named), self.process_group, limits,
                               self.find_unused_parameters, self.gradient_as_bucket_view, self.static_graph)

    def train(self, mode: bool = True) -> DistributedDataParallel:
        super().train(mode)
        return self


class _DDPJoinHook(JoinHook):
    """What a process does for a wrapped model when it has no batches left."""

    def __init__(self, ddp: DistributedDataParallel):
        self.ddp = ddp

    def main_hook(self) -> None:
        """One iteration of the others."""
        ddp = self.ddp
        if ddp.require_backward_grad_sync:
            ddp.reducer.rebuild()
        if ddp._will_sync_buffers():
            ddp._broadcast_buffers(0)
        exchange = ddp._tell_backward_sync(joined=True)
        ddp.require_forward_param_sync = exchange
        if exchange:
            ddp.reducer.shadow()

    def post_hook(self, is_last_joiner: bool) -> None:
        """All take the model of one that had the most batches."""
        ddp = self.ddp
        rank = tensor([dist.get_rank(ddp.process_group) if is_last_joiner else -1], device=ddp.device)
        dist.all_reduce(rank, op=dist.ReduceOp.MAX, group=ddp.process_group)
        broadcast_all([*module_tensors(ddp.module, ddp._ignored(ddp.module))], int(rank.item()), ddp.process_group)


def module_tensors(module: Module, ignored: set[str]) -> list[Tensor]:
    """All parameters and buffers of a module."""
    return [t for n, t in [*module.named_parameters(), *module.named_buffers()] if n not in ignored]


def _sync_buffers(old: bool | None, new: bool | None) -> bool:
    """Whether buffers are sent at each forward pass: `forward_sync_buffers`, which was called broadcast_buffers before."""
    if new is not None:
        if old is not None:
            warnings.warn("Both `broadcast_buffers` and `forward_sync_buffers` were given: `broadcast_buffers` is ignored when "
                          "`forward_sync_buffers` is provided.", stacklevel=3)
        return new
    return True if old is None else old


def _moved(value: Any, device: Any) -> Any:
    """All tensors in nested containers, on a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {k: _moved(v, device) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[_moved(v, device) for v in value])
    return type(value)([_moved(v, device) for v in value]) if isinstance(value, (list, tuple)) else value
