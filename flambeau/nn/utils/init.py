"""Building a module without paying for its initial values."""

from __future__ import annotations

from inspect import signature
from typing import Any

from ..module import Module


def skip_init(module_cls: type, *args: Any, **kwargs: Any) -> Module:
    """A module whose parameters are not initialised: built on the meta device, then given memory on `device`.

    >>> nn.utils.skip_init(nn.Linear, 2, 3).weight.shape
    torch.Size([3, 2])
    """
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if not _takes_device(module_cls):
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    final = kwargs.pop("device", "cpu")
    return module_cls(*args, **{**kwargs, "device": "meta"}).to_empty(device=final)


def _takes_device(module_cls: type) -> bool:
    return "device" in signature(module_cls).parameters
