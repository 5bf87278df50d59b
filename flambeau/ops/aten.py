"""`torch.ops.aten`: operations by their internal names, `aten.add.Tensor(x, y)` as well as `aten.add(x, y)`."""

from __future__ import annotations

from typing import Any

_PREFIXES = ("linalg", "fft", "special")


class Packet:
    """An operation; its overloads (`.default`, `.Tensor`, `.Scalar`...) are the operation itself."""

    def __init__(self, name: str, overload: str = ""):
        self.__name__, self._overload = name, overload
        self._qualified_op_name = f"aten::{name}"

    def _function(self) -> Any:
        import flambeau
        name = self.__name__
        for prefix in _PREFIXES:
            space = getattr(flambeau, prefix)
            if name.startswith(prefix + "_") and hasattr(space, name[len(prefix) + 1:]):
                return getattr(space, name[len(prefix) + 1:])
        for space in (flambeau, flambeau.Tensor, flambeau.nn.functional, flambeau._C._nn):
            if hasattr(space, name):
                return getattr(space, name)
        raise NotImplementedError(f"torch.ops.aten.{name}: flambeau has no operation of this name")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function()(*args, **kwargs)

    def __getattr__(self, overload: str) -> Packet:
        if overload.startswith("_"):  # no overload: `_schema`, say
            raise AttributeError(overload)
        made = Packet(self.__name__, overload)
        self.__dict__[overload] = made
        return made

    def overloads(self) -> list[str]:
        """The names of the overloads: flambeau has one."""
        return ["default"]

    def __str__(self) -> str:
        return f"aten.{self.__name__}" + (f".{self._overload}" if self._overload else "")

    def __repr__(self) -> str:
        if self._overload:
            return f"<OpOverload(op='aten.{self.__name__}', overload='{self._overload}')>"
        return f"<OpOverloadPacket(op='aten.{self.__name__}')>"


def __getattr__(name: str) -> Packet:
    if name.startswith("__"):
        raise AttributeError(name)
    made = globals()[name] = Packet(name)
    return made
