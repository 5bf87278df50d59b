"""The two kinds of pipes, and how a class becomes a method of all pipes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..dataset import Dataset, IterableDataset

__all__ = ["DataChunk", "IterDataPipe", "MapDataPipe", "functional_datapipe"]


class _Chained:
    """Pipes have a method for each registered class; what is not there says so."""

    functions: dict[str, Callable[..., Any]]

    def __getattr__(self, name: str) -> Any:
        made = type(self).functions.get(name)
        if made is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}' (if PyTorch's pipes have "
                                 "it: it is not implemented)")
        return lambda *args, **kwargs: made(self, *args, **kwargs)

    @classmethod
    def register_function(cls, function_name: str, function: Callable[..., Any]) -> None:
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(cls, function_name: str, cls_to_register: type,
                                      enable_df_api_tracing: bool = False) -> None:
        if function_name in cls.functions:
            raise Exception(f"Unable to add DataPipe function name {function_name} as it is already taken")
        cls.functions[function_name] = cls_to_register

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return type(self).__qualname__


class IterDataPipe(_Chained, IterableDataset[Any]):
    """A pipe that is walked through."""

    functions: dict[str, Callable[..., Any]] = {}


class MapDataPipe(_Chained, Dataset[Any]):
    """A pipe that is asked by key."""

    functions: dict[str, Callable[..., Any]] = {}


class functional_datapipe:
    """Makes a class a method of all pipes of its kind."""

    def __init__(self, name: str, enable_df_api_tracing: bool = False):
        self.name = name

    def __call__(self, cls: type) -> type:
        if not issubclass(cls, (IterDataPipe, MapDataPipe)):
            raise TypeError(f"`functional_datapipe` can only decorate IterDataPipe or MapDataPipe, not {cls.__name__}")
        cls.register_datapipe_as_function(self.name, cls)
        return cls


class DataChunk(list):
    """A batch of a pipe."""

    def __init__(self, items: Any):
        items = list(items)
        super().__init__(items)
        self.items = items

    def as_str(self, indent: str = "") -> str:
        return indent + "[" + ", ".join(str(i) for i in iter(self)) + "]"

    def raw_iterator(self) -> Any:
        yield from self.items
