"""Algorithms over several processes: joining with uneven inputs, and how gradients travel."""

from ...missing import refused_modules

refused_modules(__name__, "it is not implemented", {
    "_checkpoint": "",
    "_checkpoint.checkpoint_wrapper": "checkpoint_wrapper apply_activation_checkpointing CheckpointImpl CheckpointWrapper "
                                      "offload_wrapper",
})
