"""Models whose parameters, gradients and optimizer state are spread over the processes."""

from ...missing import refused, refused_modules
from .fully_shard import FSDPModule, UnshardHandle, fully_shard, register_fsdp_forward_method
from .policies import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy

__all__ = ["CPUOffloadPolicy", "FSDPModule", "MixedPrecisionPolicy", "OffloadPolicy", "UnshardHandle", "fully_shard",
           "register_fsdp_forward_method"]
_OLD = "the first version of FSDP is not implemented: use fully_shard"
_CONFIGS = ("BackwardPrefetch CPUOffload FullOptimStateDictConfig FullStateDictConfig LocalOptimStateDictConfig "
            "LocalStateDictConfig MixedPrecision OptimStateDictConfig ShardedOptimStateDictConfig ShardedStateDictConfig "
            "ShardingStrategy StateDictConfig StateDictSettings StateDictType")
globals().update(refused("distributed.fsdp", _OLD, f"FullyShardedDataParallel OptimStateKeyType {_CONFIGS}"))
refused_modules(__name__, _OLD, {
    "wrap": "always_wrap_policy lambda_auto_wrap_policy transformer_auto_wrap_policy size_based_auto_wrap_policy enable_wrap "
            "wrap ModuleWrapPolicy CustomPolicy _or_policy",
    "fully_sharded_data_parallel": f"FullyShardedDataParallel {_CONFIGS}",
    "sharded_grad_scaler": "ShardedGradScaler",
    "api": _CONFIGS,
})
