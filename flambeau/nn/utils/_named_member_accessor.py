"""A module's parameters, buffers and submodules by dotted names: read, set, exchanged and deleted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...tensors.tensor import Tensor
from ..module import Module

_MISSING = object()


def _checked(value: Any) -> Any:
    if value is not None and not isinstance(value, Tensor):
        raise TypeError(f"{value} is not an instance of torch.Tensor")
    return value


def _table(module: Module, name: str) -> dict[str, Any] | None:
    """The table that holds the parameter or buffer of that name; None where there is no such."""
    if not isinstance(module, Module):
        raise TypeError(f"{module} is not an instance of torch.nn.Module")
    if "." in name:
        raise KeyError('tensor name can\'t contain "."')
    if name == "":
        raise KeyError('tensor name can\'t be empty string ""')
    return next((table for table in (module._parameters, module._buffers) if name in table), None)


def set_tensor(module: Module, name: str, tensor: Tensor) -> None:
    """Puts a tensor in the place of a parameter, buffer or attribute."""
    table = _table(module, name)
    if table is not None:
        table[name] = _checked(tensor)
    else:
        setattr(module, name, _checked(tensor))


def swap_tensor(module: Module, name: str, tensor: Any, allow_missing: bool = False) -> Any:
    """Puts a tensor in the place of another, which is returned."""
    table = _table(module, name)
    if tensor is not _MISSING:
        _checked(tensor)
    before = getattr(module, name, _MISSING) if table is None else table[name]
    if before is _MISSING and not allow_missing:
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    if before is not _MISSING and before is not None and not isinstance(before, Tensor):
        raise TypeError(f"attribute `{name}`: {before} is not an instance of torch.Tensor")
    if tensor is not _MISSING and table is not None:
        table[name] = tensor
    elif tensor is not _MISSING:
        setattr(module, name, tensor)
    elif before is not _MISSING:
        delattr(module, name)
    return before


def swap_submodule(module: Module, name: str, submodule: Module) -> Module:
    """Puts a module in the place of a child, which is returned."""
    if not isinstance(module, Module):
        raise TypeError(f"{module} is not an instance of torch.nn.Module")
    if not isinstance(submodule, Module):
        raise TypeError(f"{submodule} is not an instance of torch.nn.Module")
    if "." in name:
        raise KeyError('submodule name can\'t contain "."')
    if name not in module._modules:
        raise KeyError(f"submodule {name} does not exist")
    before = module._modules[name]
    if not isinstance(before, Module):
        raise TypeError(f"{name} attribute is not an instance of torch.nn.Module")
    module._modules[name] = submodule
    return before


class NamedMemberAccessor:
    """The members of a module by dotted names; the modules on the way are looked up once."""

    def __init__(self, module: Module):
        self.module = module
        self.memo: dict[str, Module] = {"": module}

    def get_submodule(self, name: str) -> Module:
        if name not in self.memo:
            prefix, _, attribute = name.rpartition(".")
            owner = self.get_submodule(prefix)
            found = getattr(owner, attribute, None)
            if not hasattr(owner, attribute):
                raise AttributeError(f"{owner._get_name()} has no attribute `{attribute}`")
            if not isinstance(found, Module):
                raise TypeError(f"submodule `{name}`: {found} is not an instance of torch.nn.Module")
            self.memo[name] = found
        return self.memo[name]

    def _owner(self, name: str) -> tuple[Module, str]:
        prefix, _, attribute = name.rpartition(".")
        return self.get_submodule(prefix), attribute

    def swap_submodule(self, path: str, value: Module) -> Module:
        owner, name = self._owner(path)
        before = swap_submodule(owner, name, value)
        self.memo = {"": self.module}
        return before

    def get_tensor(self, name: str) -> Tensor:
        owner, attribute = self._owner(name)
        if not hasattr(owner, attribute):
            raise AttributeError(f"{owner._get_name()} has no attribute `{name}`")
        return _checked(getattr(owner, attribute))

    def set_tensor(self, name: str, value: Tensor) -> None:
        set_tensor(*self._owner(name), value)

    def del_tensor(self, name: str) -> None:
        owner, attribute = self._owner(name)
        self.get_tensor(name)
        delattr(owner, attribute)

    def swap_tensor(self, name: str, value: Tensor, allow_missing: bool = False) -> Tensor:
        return swap_tensor(*self._owner(name), value, allow_missing)

    def get_tensors(self, names: Iterable[str]) -> list[Tensor]:
        return [self.get_tensor(name) for name in names]

    def set_tensors(self, names: Iterable[str], values: Iterable[Tensor]) -> None:
        names, values = list(names), list(values)
        if len(names) != len(values):
            raise ValueError("names and values must have the same length")
        for name, value in zip(names, values):
            self.set_tensor(name, value)

    def set_tensors_dict(self, named_tensors: dict[str, Tensor]) -> None:
        self.set_tensors(named_tensors.keys(), named_tensors.values())

    def del_tensors(self, names: Iterable[str]) -> None:
        for name in names:
            self.del_tensor(name)

    def swap_tensors(self, names: Iterable[str], values: Iterable[Tensor], allow_missing: bool = False) -> list[Tensor]:
        names, values = list(names), list(values)
        if len(names) != len(values):
            raise ValueError("names and values must have the same length")
        return [self.swap_tensor(name, value, allow_missing) for name, value in zip(names, values)]

    def swap_tensors_dict(self, named_tensors: dict[str, Tensor],
                          allow_missing: bool = False) -> tuple[dict[str, Tensor], list[str]]:
        """(the tensors that were there, names that had none). After an error everything is as it was."""
        before: dict[str, Tensor] = {}
        try:
            for name, tensor in named_tensors.items():
                before[name] = self.swap_tensor(name, tensor, allow_missing=True)
                if before[name] is _MISSING and not allow_missing:
                    raise RuntimeError(f"Missing key(s): {name!r}.")
        except Exception:
            for name, tensor in before.items():
                self.swap_tensor(name, tensor, allow_missing=True)
            raise
        return before, [name for name, tensor in before.items() if tensor is _MISSING]

    def check_keys(self, keys: Iterable[str]) -> tuple[list[str], list[str]]:
        """(names of tensors that are not among the keys, keys that name no tensor)."""
        given, there = set(keys), {name for name, _ in self.named_tensors(remove_duplicate=False)}
        return sorted(there - given), sorted(given - there)

    def named_parameters(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Tensor]]:
        yield from self.module.named_parameters(remove_duplicate=remove_duplicate)

    def named_buffers(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Tensor]]:
        yield from self.module.named_buffers(remove_duplicate=remove_duplicate)

    def named_tensors(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Tensor]]:
        yield from self.named_parameters(remove_duplicate)
        yield from self.named_buffers(remove_duplicate)

    def named_modules(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Module]]:
        yield from self.module.named_modules(remove_duplicate=remove_duplicate)
