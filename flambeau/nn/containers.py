"""Modules that hold modules (Sequential, ModuleList, ModuleDict) or parameters (ParameterList, ParameterDict)."""

from __future__ import annotations

import operator
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from ..tensors.parameter import Parameter
from ..tensors.tensor import Tensor
from .module import Module, _addindent

__all__ = ["Container", "Identity", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"]


class Identity(Module):
    """Returns its input; takes any arguments and ignores them.

    Shapes: Any shape, kept.

    >>> nn.Identity()(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()

    def forward(self, input: Any) -> Any:
        return input


class Container(Module):
    """The oldest way of holding modules by name; Module itself does it now.

    >>> nn.Container(first=nn.ReLU())
    Container(
      (first): ReLU()
    )
    """

    def __init__(self, **kwargs: Any):
        super().__init__()
        warnings.warn("`nn.Container` is deprecated. All of its functionality is now implemented in `nn.Module`. "
                      "Subclass that instead.", FutureWarning, stacklevel=2)
        for name, module in kwargs.items():
            self.add_module(name, module)


def _position(index: Any, length: int) -> int:
    """A list index as a number in [0, length)."""
    index = operator.index(index)
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of range")
    return index % length


def _renumber(owner: Module) -> None:
    """After a deletion: the modules' names are 0, 1, 2... again."""
    modules = list(owner._modules.values())
    owner._modules.clear()
    owner._modules.update((str(i), m) for i, m in enumerate(modules))


class _Held(Module):
    """Containers: what is in them is looked up, taken out and counted alike."""

    def __len__(self) -> int:
        return len(self._modules)

    def pop(self, key: Any) -> Any:
        """Takes a value out and returns it."""
        value = self[key]
        del self[key]
        return value


class _Listed(_Held):
    """Modules under the names 0, 1, 2..."""

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def append(self, module: Module) -> Any:
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self


class Sequential(_Listed):
    """Modules that run one after the other; also takes an OrderedDict of named ones.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> model(torch.randn(3, 4)).shape
    torch.Size([3, 2])
    >>> model[0]
    Linear(in_features=4, out_features=8, bias=True)
    """

    def __init__(self, *args: Any):
        super().__init__()
        named = args[0].items() if len(args) == 1 and isinstance(args[0], OrderedDict) else (
            (str(i), m) for i, m in enumerate(args))
        for name, module in named:
            self.add_module(name, module)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input

    def _name_at(self, index: Any) -> str:
        return list(self._modules)[_position(index, len(self))]

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return type(self)(OrderedDict(list(self._modules.items())[idx]))
        return self._modules[self._name_at(idx)]

    def __setitem__(self, idx: int, module: Module) -> None:
        setattr(self, self._name_at(idx), module)

    def __delitem__(self, idx: Any) -> None:
        for name in list(self._modules)[idx] if isinstance(idx, slice) else [self._name_at(idx)]:
            delattr(self, name)
        _renumber(self)

    def __add__(self, other: Any) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return Sequential(*self, *other)

    def __iadd__(self, other: Any) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return self.extend(list(other))

    def __mul__(self, other: int) -> Sequential:
        self._check_factor(other)
        return Sequential(*list(self) * other)

    __rmul__ = __mul__

    def __imul__(self, other: int) -> Sequential:
        self._check_factor(other)
        return self.extend(list(self) * (other - 1))

    def _check_factor(self, factor: Any) -> None:
        if not isinstance(factor, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(factor)}")
        if factor <= 0:
            raise ValueError(f"Non-positive multiplication factor {factor} for {type(self)}")

    def insert(self, index: int, module: Module) -> Sequential:
        """Adds a module before the one at this index."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        count = len(self)
        if not -count <= index <= count:
            raise IndexError(f"Index out of range: {index}")
        modules = list(self._modules.values())
        modules.insert(index + count if index < 0 else index, module)
        self._modules.clear()
        for i, m in enumerate(modules):
            self._modules[str(i)] = m
        return self

    def extend(self, sequential: Iterable[Module]) -> Sequential:
        """Adds modules at the end."""
        for module in sequential:
            self.append(module)
        return self


class ModuleList(_Listed):
    """A list whose modules are registered.

    >>> layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
    >>> len(layers), len(list(layers.parameters()))
    (3, 6)
    """

    def __init__(self, modules: Iterable[Module] | None = None):
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _get_abs_string_index(self, idx: Any) -> str:
        return str(_position(idx, len(self)))

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return type(self)(list(self._modules.values())[idx])
        return self._modules[self._get_abs_string_index(idx)]

    def __setitem__(self, idx: int, module: Module) -> None:
        setattr(self, self._get_abs_string_index(idx), module)

    def __delitem__(self, idx: Any) -> None:
        numbers = range(len(self))[idx] if isinstance(idx, slice) else [self._get_abs_string_index(idx)]
        for number in numbers:
            delattr(self, str(number))
        _renumber(self)

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        combined = ModuleList()
        for i, module in enumerate(chain(self, other)):
            combined.add_module(str(i), module)
        return combined

    def __repr__(self) -> str:
        """Runs of equal modules share a line: (0-2): 3 x Linear(...)."""
        runs: list[list[Any]] = []
        for i, text in enumerate([repr(m) for m in self]):
            if runs and runs[-1][2] == text:
                runs[-1][1] = i
            else:
                runs.append([i, i, text])
        if not runs:
            return self._get_name() + "()"
        lines = [f"({first}): {text}" if first == last else f"({first}-{last}): {last - first + 1} x {text}"
                 for first, last, text in runs]
        return f"{self._get_name()}(\n  " + "\n  ".join(_addindent(line, 2) for line in lines) + "\n)"

    def insert(self, index: int, module: Module) -> None:
        """Adds a module before the one at this index."""
        modules = list(self._modules.values())
        modules.insert(index, module)
        for i, m in enumerate(modules):
            self._modules[str(i)] = m

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Adds modules at the end."""
        if not isinstance(modules, Iterable):
            raise TypeError(f"ModuleList.extend should be called with an iterable, but got {type(modules).__name__}")
        offset = len(self)
        for i, module in enumerate(modules):
            self.add_module(str(offset + i), module)
        return self


class ModuleDict(_Held):
    """A dictionary whose modules are registered; keeps the order of insertion.

    >>> parts = nn.ModuleDict({"first": nn.Linear(2, 3)})
    >>> parts["first"].out_features
    3
    """

    def __init__(self, modules: Any = None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Takes all modules out."""
        self._modules.clear()

    def keys(self) -> Any:
        """The names."""
        return self._modules.keys()

    def items(self) -> Any:
        """(name, module) pairs."""
        return self._modules.items()

    def values(self) -> Any:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Adds modules from a mapping or from (name, module) pairs."""
        for key, module in _pairs(modules, "ModuleDict.update", "ModuleDict", (ModuleDict, Mapping)):
            self[key] = module


def _pairs(given: Any, function: str, kind: str, mappings: tuple[type, ...]) -> Iterator[tuple[str, Any]]:
    """(key, value) pairs from a mapping or a sequence of pairs, with the complaints of dict.update."""
    if not isinstance(given, Iterable):
        raise TypeError(f"{function} should be called with an iterable of key/value pairs, but got {type(given).__name__}")
    if isinstance(given, mappings):
        yield from given.items()
        return
    for i, pair in enumerate(given):
        if not isinstance(pair, Iterable):
            raise TypeError(f"{kind} update sequence element #{i} should be Iterable; is{type(pair).__name__}")
        if len(pair) != 2:
            raise ValueError(f"{kind} update sequence element #{i} has length {len(pair)}; 2 is required")
        yield pair[0], pair[1]


def _as_parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _describe(value: Any, kind: str) -> str:
    """How ParameterList and ParameterDict show a tensor."""
    size = "x".join(str(n) for n in value.size())
    where = f" (GPU {value.get_device()})" if value.is_cuda else ""
    return f"{'Parameter' if isinstance(value, Parameter) else 'Tensor'} containing: [{kind} of size {size}{where}]"


class ParameterList(Module):
    """A list whose tensors are registered as parameters; other values are kept as they are.

    >>> weights = nn.ParameterList([nn.Parameter(torch.ones(2))])
    >>> len(list(weights.parameters()))
    1
    """

    def __init__(self, values: Iterable[Any] | None = None):
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            made = type(self)()
            for i in range(*idx.indices(len(self))):
                made.append(self[i])
            return made
        return getattr(self, str(_position(idx, len(self))))

    def __setitem__(self, idx: int, param: Any) -> None:
        # The bounds are those of append too, which writes one past the end.
        setattr(self, str(_position(idx, len(self))), _as_parameter(param))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter(self[i] for i in range(len(self)))

    def __iadd__(self, parameters: Iterable[Any]) -> ParameterList:
        return self.extend(parameters)

    def append(self, value: Any) -> ParameterList:
        """Adds a value at the end."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Adds values at the end."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(f"  ({i}): " + (_describe(v, str(v.dtype)) if isinstance(v, Tensor) else
                                         f"Object of type: {type(v).__name__}") for i, v in enumerate(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(_Held):
    """A dictionary whose tensors are registered as parameters; other values are kept as they are.

    >>> weights = nn.ParameterDict({"scale": torch.ones(2)})
    >>> list(weights.keys())
    ['scale']
    """

    def __init__(self, parameters: Any = None):
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def _key_to_attr(self, key: Any) -> str:
        if not isinstance(key, str):
            raise TypeError("Index given to ParameterDict cannot be used as a key as it is not a string (type is "
                            f"'{type(key).__name__}'). Open an issue on github if you need non-string keys.")
        return key

    def __getitem__(self, key: str) -> Any:
        return getattr(self, self._key_to_attr(key))

    def __setitem__(self, key: str, value: Any) -> None:
        name = self._key_to_attr(key)
        setattr(self, name, _as_parameter(value))
        self._keys[key] = None

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, self._key_to_attr(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def copy(self) -> ParameterDict:
        """Another ParameterDict with the same values."""
        return ParameterDict(OrderedDict((k, self[k]) for k in self._keys))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of a key, which is set to the default where it is not there."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Takes everything out."""
        for key in self._keys.copy():
            del self[key]

    def popitem(self) -> tuple[str, Any]:
        """Takes the last (key, value) pair out."""
        key, _ = self._keys.popitem()
        self._keys[key] = None
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default."""
        return self[key] if key in self else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A new ParameterDict with the default for every key."""
        return ParameterDict((k, default) for k in keys)

    def keys(self) -> Any:
        """The keys."""
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """(key, value) pairs."""
        return ((k, self[k]) for k in self._keys)

    def values(self) -> Iterable[Any]:
        """The values."""
        return (self[k] for k in self._keys)

    def update(self, parameters: Any) -> None:
        """Adds values from a mapping or from pairs; those of a plain dict in the order of their keys."""
        if isinstance(parameters, (OrderedDict, ParameterDict)) or not isinstance(parameters, Mapping):
            pairs = _pairs(parameters, "ParametersDict.update", "ParameterDict", (OrderedDict, ParameterDict))
        else:
            pairs = sorted(parameters.items(), key=lambda pair: pair[0])
        for key, value in pairs:
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(f"  ({k}): " + (_describe(v, v.type()) if isinstance(v, Tensor) else
                                         f"Object of type: {type(v).__name__}") for k, v in self.items())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterDict should not be called.")

    def __or__(self, other: Any) -> ParameterDict:
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: Any) -> Any:
        made = other.copy()
        made.update(self)
        return made

    def __ior__(self, other: Any) -> ParameterDict:
        self.update(other)
        return self
