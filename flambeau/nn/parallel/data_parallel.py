"""`DataParallel`: there is one device, so it runs the module as it is; programs that wrap a model in it still work."""

from __future__ import annotations

from typing import Any

from ..module import Module

__all__ = ["DataParallel", "data_parallel"]


class DataParallel(Module):
    """Holds a module as `.module` (whose name is in the state_dict's keys) and passes calls on to it.

    >>> nn.DataParallel(nn.Linear(2, 3))(torch.ones(4, 2)).shape
    torch.Size([4, 3])
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0):
        super().__init__()
        if device_ids is not None and len(list(device_ids)) > 1:
            raise NotImplementedError(f"DataParallel over several devices {list(device_ids)} is not implemented; leave "
                                      "device_ids out to run on one")
        self.dim = dim
        self.module = module
        self.device_ids = [] if device_ids is None else list(device_ids)
        self.output_device = output_device

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(module: Module, inputs: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0,
                  module_kwargs: dict[str, Any] | None = None) -> Any:
    """module(*inputs) on the one device there is."""
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*inputs, **(module_kwargs or {}))
