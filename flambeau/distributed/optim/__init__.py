"""Optimizers over several processes."""

from ...missing import refused
from .zero_redundancy_optimizer import ZeroRedundancyOptimizer

__all__ = ["ZeroRedundancyOptimizer"]
globals().update(refused("distributed.optim", "it is not implemented", "DistributedOptimizer PostLocalSGDOptimizer"))
