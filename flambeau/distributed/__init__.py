"""`torch.distributed`: several processes that compute together, on one machine or many.

groups.py says who they are, initialize.py and rendezvous.py how they find one another, collectives.py, messages.py and
objects.py what they do together; engine.py and mpi/ (or nccl.py) carry it, work.py waits for it, monitor.py notices who is
gone.
MPI and NCCL are loaded when a group of several processes is made. One process alone needs neither.
"""

from __future__ import annotations

import functools
import importlib
import sys
import traceback
from typing import Any

from ..missing import refused_modules
from . import (
    collectives,
    device_mesh,
    errors,
    groups,
    initialize,
    messages,
    objects,
    placements,
    reductions,
    stores,
    tcp_store,
    work,
)
from .collectives import *  # noqa: F403
from .collectives import _coalescing_manager, _CoalescingManager  # noqa: F401
from .device_mesh import *  # noqa: F403
from .ending import write_error
from .errors import *  # noqa: F403
from .groups import *  # noqa: F403
from .groups import (  # noqa: F401
    _get_default_group,
    _get_default_store,
    _get_process_group_name,
    _rank_not_in_group,
    _resolve_process_group,
    world,
)
from .initialize import *  # noqa: F403
from .messages import *  # noqa: F403
from .objects import *  # noqa: F403
from .reductions import *  # noqa: F403
from .reductions import _make_nccl_premul_sum  # noqa: F401
from .rendezvous import register_rendezvous_handler, rendezvous
from .stores import *  # noqa: F403
from .tcp_store import *  # noqa: F403
from .work import *  # noqa: F403

__all__ = [*groups.__all__, *collectives.__all__, *device_mesh.__all__, *errors.__all__, *initialize.__all__, *messages.__all__,
           *objects.__all__, *reductions.__all__, *stores.__all__, *tcp_store.__all__, *work.__all__,
           "register_rendezvous_handler", "rendezvous"]

_all_gather_base = collectives.all_gather_into_tensor  # its old name
_reduce_scatter_base = collectives.reduce_scatter_tensor
sys.modules[f"{__name__}.distributed_c10d"] = distributed_c10d = sys.modules[__name__]  # PyTorch's file
_REASON = "this part of torch.distributed is not implemented"
refused_modules(__name__, _REASON, {
    "rpc": "PyRRef init_rpc rpc_sync rpc_async remote shutdown RRef TensorPipeRpcBackendOptions get_worker_info BackendType",
    "autograd": "context backward get_gradients",
    "fsdp": "FullyShardedDataParallel fully_shard ShardingStrategy MixedPrecision CPUOffload BackwardPrefetch StateDictType "
            "FullStateDictConfig LocalStateDictConfig ShardedStateDictConfig FullOptimStateDictConfig FSDPModule "
            "OptimStateKeyType MixedPrecisionPolicy CPUOffloadPolicy OffloadPolicy register_fsdp_forward_method",
    "fsdp.wrap": "always_wrap_policy lambda_auto_wrap_policy transformer_auto_wrap_policy size_based_auto_wrap_policy "
                 "enable_wrap wrap ModuleWrapPolicy CustomPolicy _or_policy",
    "fsdp.fully_sharded_data_parallel": "FullyShardedDataParallel ShardingStrategy MixedPrecision CPUOffload "
                                        "BackwardPrefetch StateDictType FullStateDictConfig LocalStateDictConfig "
                                        "ShardedStateDictConfig FullOptimStateDictConfig LocalOptimStateDictConfig "
                                        "ShardedOptimStateDictConfig StateDictSettings",
    "fsdp.sharded_grad_scaler": "ShardedGradScaler",
    "fsdp.api": "BackwardPrefetch CPUOffload FullOptimStateDictConfig FullStateDictConfig LocalOptimStateDictConfig "
                "LocalStateDictConfig MixedPrecision OptimStateDictConfig ShardedOptimStateDictConfig ShardedStateDictConfig "
                "ShardingStrategy StateDictConfig StateDictSettings StateDictType",
    "tensor": "DTensor distribute_tensor distribute_module empty full ones rand randn zeros",
    "tensor.parallel": "parallelize_module ColwiseParallel RowwiseParallel SequenceParallel PrepareModuleInput "
                       "PrepareModuleOutput PrepareModuleInputOutput loss_parallel ParallelStyle",
    "tensor._utils": "compute_local_shape_and_global_offset compute_global_tensor_info",
    "tensor.placement_types": "_StridedShard",
    "tensor.experimental": "context_parallel implicit_replication local_map register_sharding",
    "tensor.experimental._attention": "context_parallel context_parallel_unshard set_rotate_method",
    "_tensor": "DTensor distribute_tensor distribute_module",
    "_tensor.experimental": "implicit_replication local_map",
    "_composable": "checkpoint contract fully_shard replicate",
    "_composable.fsdp": "FSDPModule MixedPrecisionPolicy CPUOffloadPolicy OffloadPolicy fully_shard",
    "_shard": "ShardedTensor",
    "pipelining": "pipeline Pipe PipelineStage ScheduleGPipe Schedule1F1B SplitPoint pipe_split build_stage",
    "checkpoint": "save load async_save load_state_dict save_state_dict FileSystemReader FileSystemWriter StorageReader "
                  "StorageWriter Stateful",
    "checkpoint.state_dict": "get_state_dict set_state_dict get_model_state_dict set_model_state_dict "
                             "get_optimizer_state_dict set_optimizer_state_dict StateDictOptions",
    "checkpoint.default_planner": "DefaultLoadPlanner DefaultSavePlanner",
    "checkpoint.format_utils": "dcp_to_torch_save torch_save_to_dcp BroadcastingTorchSaveReader DynamicMetaLoadPlanner "
                               "_EmptyStateDictLoadPlanner",
    "checkpoint.optimizer": "load_sharded_optimizer_state_dict",
    "checkpoint.state_dict_loader": "load load_state_dict _load_state_dict",
    "checkpoint.hf_storage": "HuggingFaceStorageReader HuggingFaceStorageWriter",
    "checkpoint._consolidate_hf_safetensors": "consolidate_safetensors_files",
    "optim": "DistributedOptimizer PostLocalSGDOptimizer ZeroRedundancyOptimizer",
    "optim.zero_redundancy_optimizer": "ZeroRedundancyOptimizer",
    "algorithms": "",
    "algorithms.join": "Join Joinable JoinHook",
    "algorithms._checkpoint": "",
    "algorithms._checkpoint.checkpoint_wrapper": "checkpoint_wrapper apply_activation_checkpointing CheckpointImpl "
                                                 "CheckpointWrapper offload_wrapper",
    "algorithms.ddp_comm_hooks": "DDPCommHookType register_ddp_comm_hook",
    "algorithms.ddp_comm_hooks.default_hooks": "allreduce_hook fp16_compress_hook bf16_compress_hook fp16_compress_wrapper "
                                               "bf16_compress_wrapper",
    "algorithms.ddp_comm_hooks.post_localSGD_hook": "PostLocalSGDState post_localSGD_hook",
    "algorithms.ddp_comm_hooks.powerSGD_hook": "PowerSGDState powerSGD_hook batched_powerSGD_hook",
    "algorithms.model_averaging": "",
    "algorithms.model_averaging.averagers": "ModelAverager PeriodicModelAverager",
    "elastic": "",
    "elastic.agent": "",
    "elastic.rendezvous": "RendezvousParameters RendezvousHandler",
    "elastic.multiprocessing": "start_processes Std",
    "launcher": "launch_agent elastic_launch LaunchConfig",
    "launcher.api": "launch_agent elastic_launch LaunchConfig",
    "remote_device": "_remote_device",
    "utils": "",
    "constants": "",
    "c10d_logger": "",
    "argparse_util": "env check_env",
    "logging_handlers": "",
    "collective_utils": "broadcast all_gather",
})
constants = sys.modules[f"{__name__}.constants"]
constants.default_pg_timeout = groups.default_pg_timeout
for _inner in ("tensor", "tensor.placement_types", "_tensor"):
    _module = sys.modules[f"{__name__}.{_inner}"]
    _module.__dict__.update({name: getattr(placements, name) for name in placements.__all__})
    _module.__all__ += placements.__all__


def _record(fn: Any = None, error_handler: Any = None) -> Any:
    """A decorator for main functions: an error is written to a file for the launcher, which shows the first of all ranks."""
    if fn is None:
        return lambda function: _record(function, error_handler)
    if error_handler is not None:
        raise NotImplementedError("record: error_handler is not implemented in flambeau")

    @functools.wraps(fn)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except Exception:
            write_error(traceback.format_exc())
            raise

    return recorded


_errors = {"elastic.multiprocessing.errors": "ChildFailedError ErrorHandler"}
refused_modules(__name__, _REASON, _errors)["elastic.multiprocessing.errors"].record = _record


def __getattr__(name: str) -> Any:
    if name == "DistributedDataParallel":
        return importlib.import_module("..nn.parallel", __name__).DistributedDataParallel
    if name.startswith("__"):
        raise AttributeError(name)
    from .. import MissingName
    raise MissingName(f"flambeau.distributed.{name} is not implemented in flambeau")

