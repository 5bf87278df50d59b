"""`torch.torch_version`: a version string that compares by its numbers."""

from __future__ import annotations

import re
from typing import Any


def _numbers(version: Any) -> tuple[int, ...]:
    if isinstance(version, (tuple, list)):
        return tuple(int(v) for v in version[:3])
    return tuple(int(n) for n in re.findall(r"\d+", str(version).split("+")[0])[:3])


class TorchVersion(str):
    """A str like "2.1.0" with <, >= and so on against other versions, strings and tuples."""

    def __lt__(self, other: Any) -> bool:
        return _numbers(self) < _numbers(other)

    def __le__(self, other: Any) -> bool:
        return _numbers(self) <= _numbers(other)

    def __gt__(self, other: Any) -> bool:
        return _numbers(self) > _numbers(other)

    def __ge__(self, other: Any) -> bool:
        return _numbers(self) >= _numbers(other)

    def __eq__(self, other: Any) -> bool:
        return str.__eq__(self, other) if isinstance(other, str) else _numbers(self) == _numbers(other)

    def __hash__(self) -> int:
        return str.__hash__(self)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from . import __version__
        return TorchVersion(__version__)
    raise AttributeError(name)
