"""What all schedules have in common: counting, writing the rates into the optimizer, `get_last_lr`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from ...tensors.tensor import Tensor
from ..optimizer import Optimizer

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use "
    "`scheduler.step()` to step the scheduler.")


def _checked(optimizer: Any) -> Optimizer:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
    return optimizer


def _function_of(step: Any) -> Any:
    return getattr(step, "__func__", step)


def _set_rate(group: dict[str, Any], value: Any) -> None:
    """A rate that is a tensor keeps being that tensor."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(value.item() if isinstance(value, Tensor) else value)
    else:
        group["lr"] = value


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


_EXAMPLE = """{doc}

    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    >>> schedule = torch.optim.lr_scheduler.{name}(optimizer, {arguments})
    >>> rates = []
    >>> for _ in range(3):
    ...     optimizer.step()
    ...     schedule.step()
    ...     rates.append(round(optimizer.param_groups[0]["lr"], 4))
    >>> rates
    {rates}
    """


class LRScheduler:
    """The base of all schedules but ReduceLROnPlateau's rule.

    >>> class Halving(torch.optim.lr_scheduler.LRScheduler):
    ...     def get_lr(self):
    ...         return [base * 0.5 ** self.last_epoch for base in self.base_lrs]
    >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0)
    >>> scheduler = Halving(optimizer)
    >>> optimizer.step(); scheduler.step()
    >>> scheduler.get_last_lr()
    [0.5]
    """

    _get_lr_called_within_step = False
    _is_initial = False

    def __init_subclass__(cls, example: str = "", rates: Any = None, **kwargs: Any) -> None:
        """example: arguments with which the docstring shows three steps; rates: those that they set."""
        super().__init_subclass__(**kwargs)
        if example and cls.__doc__:  # (there is none under -OO)
            cls.__doc__ = _EXAMPLE.format(doc=cls.__doc__, name=cls.__name__, arguments=example, rates=rates)

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        self.optimizer = _checked(optimizer)
        if last_epoch == -1:
            for group in optimizer.param_groups:
                group.setdefault("initial_lr", _copy(group["lr"]))
        else:
            for i, group in enumerate(optimizer.param_groups):
                if "initial_lr" not in group:
                    raise KeyError(f"param 'initial_lr' is not specified in param_groups[{i}] when resuming an optimizer")
        self.base_lrs = [_copy(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        optimizer._opt_called, optimizer._scheduled_step = False, _function_of(optimizer.step)
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._get_lr_called_within_step = False
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """The rates that the last step set."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        raise NotImplementedError

    def step(self, epoch: int | None = None) -> None:
        """Goes on to the next epoch and sets its rates."""
        if self._step_count == 1 and not self._is_initial:
            if self.optimizer._scheduled_step is not _function_of(self.optimizer.step):
                warnings.warn("Seems like `optimizer.step()` has been overridden after learning rate scheduler "
                              "initialization. Please, make sure to call `optimizer.step()` before "
                              "`lr_scheduler.step()`.", UserWarning, stacklevel=2)
            elif not self.optimizer._opt_called:
                warnings.warn("Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and "
                              "later, you should call them in the opposite order: `optimizer.step()` before "
                              "`lr_scheduler.step()`. Failure to do this will result in PyTorch skipping the first value "
                              "of the learning rate schedule.", UserWarning, stacklevel=2)
        self._step_count += 1
        self._get_lr_called_within_step = True
        if epoch is None:
            self.last_epoch += 1
            rates = self.get_lr()
        else:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
            self.last_epoch = epoch
            rates = self._closed() if hasattr(self, "_get_closed_form_lr") else self.get_lr()
        self._get_lr_called_within_step = False
        self._set_rates(rates)

    def _set_rates(self, rates: Iterable[Any]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates):
            _set_rate(group, rate)
        self._last_lr = [_copy(rate) for rate in self._rates()]

    def _closed(self) -> list[Any]:
        return self._get_closed_form_lr()

    def _check_asked(self) -> None:
        if not self._get_lr_called_within_step:
            warnings.warn("To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
                          UserWarning, stacklevel=3)

    def _rates(self) -> list[Any]:
        return [group["lr"] for group in self.optimizer.param_groups]


_LRScheduler = LRScheduler


def _per_group(optimizer: Optimizer, value: Any, name: str) -> list[Any]:
    if isinstance(value, (list, tuple)):
        if len(value) != len(optimizer.param_groups):
            raise ValueError(f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} values, "
                             f"param_groups has {len(optimizer.param_groups)}.")
        return list(value)
    return [value] * len(optimizer.param_groups)
