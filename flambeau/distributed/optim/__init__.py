"""Optimizers over several processes."""

from ...missing import refused
from .post_localSGD_optimizer import PostLocalSGDOptimizer
from .zero_redundancy_optimizer import ZeroRedundancyOptimizer

__all__ = ["PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]
globals().update(refused("distributed.optim", "it is not implemented", "DistributedOptimizer"))
