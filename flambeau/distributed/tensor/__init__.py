"""Tensors spread over the processes of a device mesh."""

from ...missing import refused_modules
from .dispatch import implicit_replication
from .dtensor import DTensor, distribute_module, distribute_tensor, empty, full, ones, zeros
from .placement_types import Partial, Placement, Replicate, Shard
from .random import rand, randn

__all__ = ["DTensor", "Partial", "Placement", "Replicate", "Shard", "distribute_module", "distribute_tensor", "empty", "full",
           "ones", "rand", "randn", "zeros"]
refused_modules(__name__, "it is not implemented", {
    "experimental": "context_parallel local_map register_sharding",
    "experimental._attention": "context_parallel context_parallel_unshard set_rotate_method"})["experimental"].__dict__.update(
    implicit_replication=implicit_replication)
