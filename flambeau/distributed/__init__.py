"""`torch.distributed` for a world of one process: groups, collectives and DistributedDataParallel work, and change nothing.

Programs for several processes start with `init_process_group` and ask for their rank; with a world size of one they run
here as they are. A larger world raises NotImplementedError.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ..missing import refused_modules
from . import collectives, device_mesh, groups
from .collectives import *  # noqa: F403
from .device_mesh import *  # noqa: F403
from .groups import *  # noqa: F403

__all__ = [*groups.__all__, *collectives.__all__, *device_mesh.__all__]

sys.modules[f"{__name__}.distributed_c10d"] = distributed_c10d = sys.modules[__name__]  # PyTorch's file
_REASON = "training with several processes is not implemented"
refused_modules(__name__, _REASON, {
    "rpc": "init_rpc rpc_sync rpc_async remote shutdown RRef TensorPipeRpcBackendOptions get_worker_info BackendType",
    "autograd": "context backward get_gradients",
    "fsdp": "FullyShardedDataParallel fully_shard ShardingStrategy MixedPrecision CPUOffload BackwardPrefetch StateDictType "
            "FullStateDictConfig LocalStateDictConfig ShardedStateDictConfig FullOptimStateDictConfig FSDPModule "
            "MixedPrecisionPolicy CPUOffloadPolicy OffloadPolicy register_fsdp_forward_method",
    "fsdp.wrap": "always_wrap_policy lambda_auto_wrap_policy transformer_auto_wrap_policy size_based_auto_wrap_policy "
                 "enable_wrap wrap ModuleWrapPolicy CustomPolicy",
    "fsdp.fully_sharded_data_parallel": "FullyShardedDataParallel ShardingStrategy MixedPrecision CPUOffload "
                                        "BackwardPrefetch StateDictType FullStateDictConfig",
    "fsdp.sharded_grad_scaler": "ShardedGradScaler",
    "tensor": "DTensor Shard Replicate Partial Placement distribute_tensor distribute_module empty full ones rand randn zeros",
    "tensor.parallel": "parallelize_module ColwiseParallel RowwiseParallel SequenceParallel PrepareModuleInput "
                       "PrepareModuleOutput PrepareModuleInputOutput loss_parallel ParallelStyle",
    "_tensor": "DTensor Shard Replicate distribute_tensor distribute_module",
    "_composable": "checkpoint contract fully_shard replicate",
    "_shard": "ShardedTensor",
    "_functional_collectives": "all_reduce all_gather_tensor reduce_scatter_tensor AsyncCollectiveTensor",
    "pipelining": "pipeline Pipe PipelineStage ScheduleGPipe Schedule1F1B SplitPoint pipe_split build_stage",
    "checkpoint": "save load async_save FileSystemReader FileSystemWriter StorageReader StorageWriter Stateful",
    "checkpoint.state_dict": "get_state_dict set_state_dict get_model_state_dict set_model_state_dict "
                             "get_optimizer_state_dict set_optimizer_state_dict StateDictOptions",
    "optim": "DistributedOptimizer PostLocalSGDOptimizer ZeroRedundancyOptimizer",
    "optim.zero_redundancy_optimizer": "ZeroRedundancyOptimizer",
    "nn": "RemoteModule",
    "nn.functional": "all_gather all_reduce all_to_all broadcast gather reduce reduce_scatter scatter",
    "algorithms": "",
    "algorithms.join": "Join Joinable JoinHook",
    "algorithms._checkpoint": "",
    "algorithms._checkpoint.checkpoint_wrapper": "checkpoint_wrapper apply_activation_checkpointing CheckpointImpl "
                                                 "CheckpointWrapper offload_wrapper",
    "algorithms.ddp_comm_hooks": "DDPCommHookType register_ddp_comm_hook",
    "algorithms.ddp_comm_hooks.default_hooks": "allreduce_hook fp16_compress_hook bf16_compress_hook fp16_compress_wrapper",
    "algorithms.ddp_comm_hooks.powerSGD_hook": "PowerSGDState powerSGD_hook batched_powerSGD_hook",
    "algorithms.model_averaging": "",
    "algorithms.model_averaging.averagers": "PeriodicModelAverager",
    "elastic": "",
    "elastic.agent": "",
    "elastic.rendezvous": "RendezvousParameters RendezvousHandler",
    "elastic.multiprocessing": "start_processes Std",
    "launcher": "launch_agent elastic_launch LaunchConfig",
    "launch": "launch main",
    "run": "main run config_from_args",
    "rendezvous": "rendezvous register_rendezvous_handler",
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


def _record(fn: Any = None, error_handler: Any = None) -> Any:
    """A decorator for main functions that writes errors to a file for the launcher: there is none, errors just rise."""
    return fn if fn is not None else lambda function: function


_errors = {"elastic.multiprocessing.errors": "ChildFailedError ErrorHandler"}
refused_modules(__name__, _REASON, _errors)["elastic.multiprocessing.errors"].record = _record


def __getattr__(name: str) -> Any:
    if name == "DistributedDataParallel":
        return importlib.import_module("..nn.parallel", __name__).DistributedDataParallel
    if name.startswith("__"):
        raise AttributeError(name)
    from .. import MissingName
    raise MissingName(f"flambeau.distributed.{name}: training with several processes is not implemented in flambeau")

