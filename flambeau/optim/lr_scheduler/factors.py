"""Schedules that multiply the rates by a factor: given functions, steps, and straight, exponential and polynomial decay."""

from __future__ import annotations

import types
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from ..optimizer import Optimizer
from .base import LRScheduler


class _Lambdas(LRScheduler):
    """Shared by the schedules that are given functions: only callable objects go into a state dict."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable | list[Callable], last_epoch: int = -1):
        if isinstance(lr_lambda, (list, tuple)):
            if len(lr_lambda) != len(optimizer.param_groups):
                raise ValueError(f"Expected {len(optimizer.param_groups)} lr_lambdas, but got {len(lr_lambda)}")
            self.lr_lambdas = list(lr_lambda)
        else:
            self.lr_lambdas = [lr_lambda] * len(optimizer.param_groups)
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        state = {k: v for k, v in super().state_dict().items() if k != "lr_lambdas"}
        state["lr_lambdas"] = [None if isinstance(f, types.FunctionType) else f.__dict__.copy() for f in self.lr_lambdas]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        functions = state.pop("lr_lambdas")
        self.__dict__.update(state)
        for f, saved in zip(self.lr_lambdas, functions):
            if saved is not None:
                f.__dict__.update(saved)


class LambdaLR(_Lambdas, example="lambda step: 1 / (step + 1)", rates=[0.5, 0.3333, 0.25]):
    """The initial rate times a function of the epoch."""

    def get_lr(self) -> list[Any]:
        self._check_asked()
        return [base * f(self.last_epoch) for f, base in zip(self.lr_lambdas, self.base_lrs)]


class MultiplicativeLR(_Lambdas, example="lambda step: 0.5", rates=[0.5, 0.25, 0.125]):
    """The present rate times a function of the epoch."""

    def get_lr(self) -> list[Any]:
        self._check_asked()
        if self._is_initial:
            return self._rates()
        return [rate * f(self.last_epoch) for f, rate in zip(self.lr_lambdas, self._rates())]


class _Factors(LRScheduler):
    """Shared by the schedules that are given by numbers: the factor from epoch to epoch, and from the first epoch on."""

    def _step_factor(self) -> float | None:
        """What the present rates are multiplied by; None: they stay."""
        raise NotImplementedError

    def _total_factor(self) -> float:
        """What the initial rates are multiplied by."""
        raise NotImplementedError

    def get_lr(self) -> list[Any]:
        self._check_asked()
        factor = self._step_factor()
        return self._rates() if factor is None else [rate * factor for rate in self._rates()]

    def _get_closed_form_lr(self) -> list[Any]:
        factor = self._total_factor()
        return [base * factor for base in self.base_lrs]


class StepLR(_Factors, example="step_size=2, gamma=0.1", rates=[1.0, 0.1, 0.1]):
    """Times gamma every step_size epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def _step_factor(self) -> float | None:
        return None if self.last_epoch == 0 or self.last_epoch % self.step_size else self.gamma

    def _total_factor(self) -> float:
        return self.gamma ** (self.last_epoch // self.step_size)


class MultiStepLR(_Factors, example="milestones=[1, 3], gamma=0.1", rates=[0.1, 0.1, 0.01]):
    """Times gamma at each milestone."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1):
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def _step_factor(self) -> float | None:
        return self.gamma ** self.milestones[self.last_epoch] if self.last_epoch in self.milestones else None

    def _total_factor(self) -> float:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return self.gamma ** passed


class ConstantLR(_Factors, example="factor=0.5, total_iters=2", rates=[0.5, 1.0, 1.0]):
    """Times factor until total_iters epochs have passed."""

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1):
        if factor > 1.0 or factor < 0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _step_factor(self) -> float | None:
        if self.last_epoch == 0:
            return self.factor
        return 1.0 / self.factor if self.last_epoch == self.total_iters else None

    def _total_factor(self) -> float:
        return self.factor + (self.last_epoch >= self.total_iters) * (1 - self.factor)


class LinearLR(_Factors, example="start_factor=0.5, total_iters=2", rates=[0.75, 1.0, 1.0]):
    """From start_factor to end_factor in total_iters equal steps."""

    def __init__(self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5,
                 last_epoch: int = -1):
        if start_factor > 1.0 or start_factor <= 0:
            raise ValueError("Starting multiplicative factor expected to be greater than 0 and less or equal to 1.")
        if end_factor > 1.0 or end_factor < 0:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _step_factor(self) -> float | None:
        if self.last_epoch == 0:
            return self.start_factor
        if self._is_initial or self.last_epoch > self.total_iters:
            return None
        slope = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * slope
        return 1.0 + slope / before

    def _total_factor(self) -> float:
        done = min(self.total_iters, self.last_epoch) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * done


class ExponentialLR(_Factors, example="gamma=0.5", rates=[0.5, 0.25, 0.125]):
    """Times gamma every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _step_factor(self) -> float | None:
        return None if self._is_initial else self.gamma

    def _total_factor(self) -> float:
        return self.gamma ** self.last_epoch


class PolynomialLR(_Factors, example="total_iters=4", rates=[0.75, 0.5, 0.25]):
    """Down to zero in total_iters epochs along a power of what is left."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def _step_factor(self) -> float | None:
        if self._is_initial or self.last_epoch > self.total_iters:
            return None
        now, before = 1.0 - self.last_epoch / self.total_iters, 1.0 - (self.last_epoch - 1) / self.total_iters
        return (now / before) ** self.power

    def _total_factor(self) -> float:
        left = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return left ** self.power
