"""Learning-rate schedules. `step()` once per epoch (or per batch, where a schedule is meant for that).

A schedule says in `get_lr` what the rates are at `last_epoch`, from the groups' present and initial rates; the base class
counts, writes the rates into the optimizer and keeps `get_last_lr`.
"""

from ..optimizer import Optimizer  # noqa: F401  (PyTorch's module has the name)
from .base import EPOCH_DEPRECATION_WARNING, LRScheduler, _LRScheduler  # noqa: F401
from .combined import ChainedScheduler, SequentialLR
from .factors import (
    ConstantLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from .plateau import ReduceLROnPlateau
from .waves import CosineAnnealingLR, CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR

__all__ = ["LRScheduler", "LambdaLR", "MultiplicativeLR", "StepLR", "MultiStepLR", "ConstantLR", "LinearLR",
           "ExponentialLR", "SequentialLR", "CosineAnnealingLR", "ChainedScheduler", "ReduceLROnPlateau", "CyclicLR",
           "CosineAnnealingWarmRestarts", "OneCycleLR", "PolynomialLR"]
for _name in __all__:
    globals()[_name].__module__ = __name__  # where users find it, and how it is pickled
