"""Averages of a model's weights over training: AveragedModel, moving averages, SWALR and update_bn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

from ..autograd.modes import no_grad
from ..creation.factories import tensor
from ..nn import Module
from ..tensors.dtypes import long
from ..tensors.tensor import Tensor
from .lr_scheduler.base import LRScheduler, _per_group
from .optimizer import Optimizer

__all__ = ["AveragedModel", "update_bn", "SWALR", "get_ema_multi_avg_fn", "get_swa_multi_avg_fn", "get_ema_avg_fn",
           "get_swa_avg_fn"]


def _count(value: Any) -> float:
    return value.item() if isinstance(value, Tensor) else value


def _check_decay(decay: float) -> None:
    if decay < 0.0 or decay > 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable:
    """An exponential moving average of lists of parameters."""
    _check_decay(decay)

    @no_grad()
    def ema_update(averaged, current, _):
        for a, c in zip(averaged, current):
            if a.is_floating_point() or a.is_complex():
                a.lerp_(c.to(a.dtype), 1 - decay)
            else:
                a.copy_(a * decay + c * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> Callable:
    """The equal average of lists of parameters."""

    @no_grad()
    def swa_update(averaged, current, num_averaged):
        weight = 1 / (_count(num_averaged) + 1)
        for a, c in zip(averaged, current):
            if a.is_floating_point() or a.is_complex():
                a.lerp_(c.to(a.dtype), weight)
            else:
                a.copy_(a + (c - a) * weight)

    return swa_update


def get_ema_avg_fn(decay: float = 0.999) -> Callable:
    _check_decay(decay)

    @no_grad()
    def ema_update(averaged, current, num_averaged):
        return decay * averaged + (1 - decay) * current

    return ema_update


def get_swa_avg_fn() -> Callable:
    @no_grad()
    def swa_update(averaged, current, num_averaged):
        return averaged + (current - averaged) / (num_averaged + 1)

    return swa_update


class AveragedModel(Module):
    """A copy of a model whose parameters are averages; call `update_parameters(model)` as training goes on."""

    def __init__(self, model: Module, device: Any = None, avg_fn: Callable | None = None,
                 multi_avg_fn: Callable | None = None, use_buffers: bool = False):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=long, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Takes the model's present weights into the average."""
        def values(m):
            return [*m.parameters(), *(m.buffers() if self.use_buffers else ())]

        mine, theirs = values(self.module), values(model)
        mine, theirs = [m.detach() for m in mine], [t.detach().to(m.device) for m, t in zip(mine, theirs)]
        if self.n_averaged.item() == 0:
            for m, t in zip(mine, theirs):
                m.copy_(t)
        elif self.avg_fn is not None:
            for m, t in zip(mine, theirs):
                m.copy_(self.avg_fn(m, t, self.n_averaged))
        else:
            (self.multi_avg_fn or get_swa_multi_avg_fn())(mine, theirs, self.n_averaged)
        if not self.use_buffers:
            for m, t in zip(self.module.buffers(), model.buffers()):
                m.detach().copy_(t.detach().to(m.device))
        self.n_averaged += 1


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Recomputes the batch-norm statistics of a model in one pass over the data."""
    from ..nn.norm import _BatchNorm
    momenta = {}
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.reset_running_stats()
            momenta[module] = module.momentum
    if not momenta:
        return
    was_training = model.training
    model.train()
    for module in momenta:
        module.momentum = None
    for batch in loader:
        if isinstance(batch, (list, tuple)):
            batch = batch[0]
        model(batch.to(device) if device is not None else batch)
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Anneals every rate to a fixed value and keeps it there."""

    def __init__(self, optimizer: Optimizer, swa_lr: Any, anneal_epochs: int = 10, anneal_strategy: str = "cos",
                 last_epoch: int = -1):
        for group, rate in zip(optimizer.param_groups, _per_group(optimizer, swa_lr, "swa_lr")):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must by one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._anneal_strategy = anneal_strategy
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, t: float) -> float:
        t = max(0.0, min(1.0, t))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[Any]:
        self._check_asked()
        step = self._step_count - 1
        before = self._share((step - 1) / max(1, self.anneal_epochs)) if self.anneal_epochs else 1.0
        now = self._share(step / max(1, self.anneal_epochs)) if self.anneal_epochs else 1.0
        rates = []
        for group in self.optimizer.param_groups:
            start = group["lr"] if before == 1 else (group["lr"] - before * group["swa_lr"]) / (1 - before)
            rates.append(group["swa_lr"] * now + start * (1 - now))
        return rates
