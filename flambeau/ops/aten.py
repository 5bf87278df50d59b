"""`torch.ops.aten`: operations by PyTorch's internal names, `aten.add.Tensor(x, y)` as well as `aten.add(x, y)`."""

from __future__ import annotations

from .dispatch.overloads import OpOverload, OpOverloadPacket, packet

__all__ = ["OpOverload", "OpOverloadPacket"]


def __getattr__(name: str) -> OpOverloadPacket:
    if name.startswith("__"):
        raise AttributeError(name)
    made = globals()[name] = packet("aten", name)
    return made
