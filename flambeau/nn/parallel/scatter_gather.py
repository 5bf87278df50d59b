"""Sending inputs to devices and collecting outputs, for one device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..module import Module

__all__ = ["gather", "replicate", "scatter", "scatter_kwargs"]


def one_device(devices: Any, what: str) -> None:
    count = len(devices) if isinstance(devices, Sequence) and not isinstance(devices, str) else 1
    if count != 1:
        raise NotImplementedError(f"{what} over {count} devices is not implemented in flambeau: there is one")


def scatter(inputs: Any, target_gpus: Any, dim: int = 0) -> list[Any]:
    """One share for the one device."""
    one_device(target_gpus, "scatter")
    return [inputs]


def scatter_kwargs(inputs: Any, kwargs: Any, target_gpus: Any, dim: int = 0) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    one_device(target_gpus, "scatter")
    return (inputs,), (kwargs or {},)


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """The outputs of all devices as one."""
    outputs = list(outputs)
    one_device(outputs, "gather")
    return outputs[0]


def replicate(network: Module, devices: Any, detach: bool = False) -> list[Module]:
    """The module, once for each device."""
    one_device(devices, "replicate")
    return [network]
