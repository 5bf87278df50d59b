"""`PostLocalSGDOptimizer`: an optimizer after whose steps parameters are averaged now and then."""

from __future__ import annotations

import warnings
from typing import Any

from ...optim.optimizer import Optimizer
from ..algorithms.model_averaging.averagers import ModelAverager

__all__ = ["PostLocalSGDOptimizer"]


class PostLocalSGDOptimizer(Optimizer):
    """Steps of `optim`, each followed by `averager`. DistributedDataParallel with `post_localSGD_hook` averages gradients for
    as many steps as the averager warms up."""

    def __init__(self, optim: Optimizer, averager: ModelAverager):
        self.optim, self.averager = optim, averager
        self.param_groups = optim.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self.optim.state

    def __repr__(self) -> str:
        return repr(self.optim)

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's, and under "step" the averager's count."""
        return {**self.optim.state_dict(), "step": self.averager.step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        own = {name: value for name, value in state_dict.items() if name != "step"}
        self.optim.load_state_dict(own)
        self.param_groups = self.optim.param_groups
        if "step" not in state_dict:
            warnings.warn("Loaded state dict does not contain a step counter for an averager. Setting step counter to 0.",
                          stacklevel=2)
        self.averager.step = state_dict.get("step", 0)

    def step(self) -> None:  # type: ignore[override]
        self.optim.step()
        self.averager.average_parameters(params=self.param_groups)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optim.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.optim.add_param_group(param_group)
