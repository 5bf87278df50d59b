"""How DistributedDataParallel's gradients travel: communication hooks, by name."""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Any

from . import debugging_hooks, default_hooks, post_localSGD_hook, powerSGD_hook

__all__ = ["DDPCommHookType", "debugging_hooks", "default_hooks", "post_localSGD_hook", "powerSGD_hook",
           "register_ddp_comm_hook"]


class DDPCommHookType(Enum):
    """The hooks that come with flambeau."""

    ALLREDUCE = partial(default_hooks.allreduce_hook)
    FP16_COMPRESS = partial(default_hooks.fp16_compress_hook)
    BF16_COMPRESS = partial(default_hooks.bf16_compress_hook)
    POWER_SGD = partial(powerSGD_hook.powerSGD_hook)
    POWER_SGD_RANK2 = partial(powerSGD_hook.powerSGD_hook, rank=2)
    BATCHED_POWER_SGD = partial(powerSGD_hook.batched_powerSGD_hook)
    NOOP = partial(debugging_hooks.noop_hook)


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    """Registers one of these hooks. state: a process group, or for the POWER_SGD ones a PowerSGDState or a group."""
    hook = comm_hook_type.value
    if comm_hook_type.name.startswith(("POWER", "BATCHED")):
        if not isinstance(state, powerSGD_hook.PowerSGDState):
            rank = hook.keywords.get("rank", 1)
            state = powerSGD_hook.PowerSGDState(state, matrix_approximation_rank=rank)
        hook = hook.func
    model.register_comm_hook(state, hook)
