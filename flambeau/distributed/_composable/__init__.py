"""Where PyTorch had `fully_shard` at first."""

from ...missing import refused
from ..fsdp import fully_shard

__all__ = ["fully_shard"]
globals().update(refused("distributed._composable", "it is not implemented", "checkpoint contract replicate"))
