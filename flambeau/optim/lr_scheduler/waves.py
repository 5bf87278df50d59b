"""Schedules that go up and down: cosines, with and without restarts, and cycles."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

from ..optimizer import Optimizer
from .base import LRScheduler, _checked, _per_group, _set_rate


class CosineAnnealingLR(LRScheduler, example="T_max=4", rates=[0.8536, 0.5, 0.1464]):
    """Down to eta_min and up again along a cosine of half period T_max."""

    def __init__(self, optimizer: Optimizer, T_max: float, eta_min: float = 0.0, last_epoch: int = -1):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._check_asked()
        if self._is_initial:
            return self._rates()
        low, period, epoch = self.eta_min, self.T_max, self.last_epoch
        if self._step_count == 1 and epoch > 0:
            return [low + (base - low) * (1 + math.cos(epoch * math.pi / period)) / 2 for base in self.base_lrs]
        if (epoch - 1 - period) % (2 * period) == 0:
            return [rate + (base - low) * (1 - math.cos(math.pi / period)) / 2
                    for base, rate in zip(self.base_lrs, self._rates())]
        ratio = (1 + math.cos(math.pi * epoch / period)) / (1 + math.cos(math.pi * (epoch - 1) / period))
        return [ratio * (rate - low) + low for rate in self._rates()]

    def _get_closed_form_lr(self) -> list[Any]:
        return [self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
                for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler, example="T_0=2", rates=[0.5, 1.0, 0.5]):
    """Cosine cycles of T_0 epochs, each T_mult times as long as the last; step() also takes a fraction of an epoch."""

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1):
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0, self.T_i, self.T_mult, self.eta_min, self.T_cur = T_0, T_0, T_mult, eta_min, last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        return [self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
                for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        else:
            if epoch < 0:
                raise ValueError(f"Expected non-negative epoch, but got {epoch}")
            if epoch >= self.T_0:
                if self.T_mult == 1:
                    self.T_cur = epoch % self.T_0
                else:
                    n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
                    self.T_cur = epoch - self.T_0 * (self.T_mult ** n - 1) / (self.T_mult - 1)
                    self.T_i = self.T_0 * self.T_mult ** n
            else:
                self.T_i, self.T_cur = self.T_0, epoch
        self.last_epoch = math.floor(epoch)
        self._set_rates(self.get_lr())


class _WithMomentum(LRScheduler):
    """Shared by the schedules that move momentum, or the first of Adam's betas, against the rate."""

    def _start_momentum(self, base_momentum: Any, max_momentum: Any, fresh: bool) -> tuple[list[Any], list[Any]]:
        """The least and the highest of each group, which begins with the highest unless a run is resumed."""
        known = self.optimizer.defaults
        if "momentum" not in known and "betas" not in known:
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        self.use_beta1 = "betas" in known
        low = _per_group(self.optimizer, base_momentum, "base_momentum")
        high = _per_group(self.optimizer, max_momentum, "max_momentum")
        if fresh:
            for least, most, group in zip(low, high, self.optimizer.param_groups):
                self._set_momentum(group, most)
                group["max_momentum"], group["base_momentum"] = most, least
        return low, high

    def _set_momentum(self, group: dict[str, Any], value: float) -> None:
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value


class CyclicLR(_WithMomentum, example="base_lr=0.1, max_lr=1.0, step_size_up=2", rates=[0.55, 1.0, 0.55]):
    """Up and down between base_lr and max_lr, batch by batch; momentum runs the other way round."""

    def __init__(self, optimizer: Optimizer, base_lr: Any, max_lr: Any, step_size_up: int = 2000,
                 step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
                 scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle", cycle_momentum: bool = True,
                 base_momentum: Any = 0.8, max_momentum: Any = 0.9, last_epoch: int = -1):
        self.optimizer = _checked(optimizer)
        low = _per_group(optimizer, base_lr, "base_lr")
        if last_epoch == -1:
            for rate, group in zip(low, optimizer.param_groups):
                _set_rate(group, rate)
        self.max_lrs = _per_group(optimizer, max_lr, "max_lr")
        up = float(step_size_up)
        down = float(step_size_down) if step_size_down is not None else up
        self.total_size = up + down
        self.step_ratio = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode, self.gamma, self._scale_fn_custom = mode, gamma, scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.base_momentums, self.max_momentums = self._start_momentum(base_momentum, max_momentum, last_epoch == -1)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = low

    def scale_fn(self, x: float) -> float:
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        return {"triangular": 1.0, "triangular2": 1 / 2.0 ** (x - 1), "exp_range": self.gamma ** x}[self.mode]

    def get_lr(self) -> list[Any]:
        self._check_asked()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        factor = height * self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for least, high, group in zip(self.base_momentums, self.max_momentums, self.optimizer.param_groups):
                self._set_momentum(group, high - (high - least) * factor)
        return [low + (high - low) * factor for low, high in zip(self.base_lrs, self.max_lrs)]

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        custom = state.pop("_scale_fn_custom", None)
        state["_scale_fn_custom"] = custom.__dict__.copy() if custom is not None and not isinstance(
            custom, types.FunctionType) else None
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        custom = state.pop("_scale_fn_custom", None)
        super().load_state_dict(state)
        if custom is not None:
            self._scale_fn_custom.__dict__.update(custom)


class OneCycleLR(_WithMomentum, example="max_lr=1.0, total_steps=4", rates=[0.8117, 0.2831, 0.0]):
    """One rise to max_lr and one long fall, over a known number of batches."""

    def __init__(self, optimizer: Optimizer, max_lr: Any, total_steps: int | None = None, epochs: int | None = None,
                 steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: str = "cos",
                 cycle_momentum: bool = True, base_momentum: Any = 0.85, max_momentum: Any = 0.95,
                 div_factor: float = 25.0, final_div_factor: float = 1e4, three_phase: bool = False, last_epoch: int = -1):
        self.optimizer = _checked(optimizer)
        self.total_steps = self._total(total_steps, epochs, steps_per_epoch)
        if pct_start < 0 or pct_start > 1 or not isinstance(pct_start, float):
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError("anneal_strategy must be one of 'cos' or 'linear', instead got " + str(anneal_strategy))
        self._anneal_func_type = anneal_strategy
        self._schedule_phases = self._phases(pct_start, three_phase)
        highest = _per_group(optimizer, max_lr, "max_lr")
        if last_epoch == -1:
            for group, high in zip(optimizer.param_groups, highest):
                group["initial_lr"] = high / div_factor
                group["max_lr"] = high
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._start_momentum(base_momentum, max_momentum, last_epoch == -1)
        super().__init__(optimizer, last_epoch)

    @staticmethod
    def _total(total_steps, epochs, steps_per_epoch) -> int:
        if total_steps is not None:
            if total_steps <= 0 or not isinstance(total_steps, int):
                raise ValueError(f"Expected positive integer total_steps, but got {total_steps}")
            return total_steps
        if epochs is None or steps_per_epoch is None:
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        if not isinstance(epochs, int) or epochs <= 0:
            raise ValueError(f"Expected positive integer epochs, but got {epochs}")
        if not isinstance(steps_per_epoch, int) or steps_per_epoch <= 0:
            raise ValueError(f"Expected positive integer steps_per_epoch, but got {steps_per_epoch}")
        return epochs * steps_per_epoch

    def _phases(self, share: float, three: bool) -> list[dict[str, Any]]:
        up = float(share * self.total_steps) - 1
        rise = dict(end_step=up, start_lr="initial_lr", end_lr="max_lr", start_momentum="max_momentum",
                    end_momentum="base_momentum")
        fall = dict(end_step=float(2 * share * self.total_steps) - 2 if three else self.total_steps - 1,
                    start_lr="max_lr", end_lr="initial_lr" if three else "min_lr", start_momentum="base_momentum",
                    end_momentum="max_momentum")
        if not three:
            return [rise, fall]
        rest = dict(end_step=self.total_steps - 1, start_lr="initial_lr", end_lr="min_lr", start_momentum="max_momentum",
                    end_momentum="max_momentum")
        return [rise, fall, rest]

    def _anneal(self, start: float, end: float, done: float) -> float:
        if self._anneal_func_type == "linear":
            return (end - start) * done + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * done) + 1)

    def get_lr(self) -> list[Any]:
        self._check_asked()
        now = self.last_epoch
        if now > self.total_steps:
            raise ValueError(f"Tried to step {now} times. The total number of steps is {self.total_steps}")
        rates = []
        for group in self.optimizer.param_groups:
            begin = 0.0
            for i, phase in enumerate(self._schedule_phases):
                end = phase["end_step"]
                if now <= end or i == len(self._schedule_phases) - 1:
                    done = (now - begin) / (end - begin)
                    rates.append(self._anneal(group[phase["start_lr"]], group[phase["end_lr"]], done))
                    if self.cycle_momentum:
                        self._set_momentum(
                            group, self._anneal(group[phase["start_momentum"]], group[phase["end_momentum"]], done))
                    break
                begin = end
        return rates
