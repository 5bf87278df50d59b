"""Parametrizations: a module's tensor becomes a function of other tensors, computed whenever it is read.

`register_parametrization(module, "weight", P)` gives the module a class of its own, in which `weight` is a property:
reading it runs P on what is stored (`module.parametrizations.weight.original`), assigning to it stores
`P.right_inverse(value)`.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from ...autograd.modes import no_grad
from ...tensors.parameter import Parameter
from ...tensors.tensor import Tensor
from ..containers import ModuleDict, ModuleList
from ..module import Module

__all__ = ["cached", "ParametrizationList", "register_parametrization", "is_parametrized", "remove_parametrizations",
           "type_before_parametrizations", "transfer_parametrizations_and_params"]
_cache_enabled = 0
_cache: dict[tuple[int, str], Tensor | None] = {}


@contextmanager
def cached():
    """Inside, a parametrized tensor is computed the first time it is read and kept until the end of the block."""
    global _cache, _cache_enabled
    _cache_enabled += 1
    try:
        yield
    finally:
        _cache_enabled -= 1
        if not _cache_enabled:
            _cache = {}


def _register_parameter_or_buffer(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _store(target: Tensor, value: Tensor) -> None:
    """Makes value the data of target, whatever shape target had."""
    if target.dtype is value.dtype and target.device == value.device:
        target.data = value.data if isinstance(value, Tensor) else value
    else:
        target.data = value.to(dtype=target.dtype, device=target.device).data


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, applied in order, and what it is computed from: `original` (or `original0`,
    `original1`... when the first one's right_inverse returns several tensors)."""

    original: Tensor
    unsafe: bool

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False):
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        new = original
        with no_grad():
            for module in reversed(self):
                if hasattr(module, "right_inverse"):
                    try:
                        new = module.right_inverse(new)
                    except NotImplementedError:
                        pass
        if not isinstance(new, Tensor) and not isinstance(new, Sequence):
            raise ValueError("'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got "
                             f"{type(new).__name__}")
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            self._keep_one(original, new)
        else:
            self._keep_several(original, new)
        if not self.unsafe:
            self._check_unchanged(shape, dtype)

    def _keep_one(self, original: Tensor, new: Tensor) -> None:
        if original.dtype is not new.dtype:
            raise ValueError("When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                             f"original.dtype: {original.dtype}\nright_inverse(original).dtype: {new.dtype}")
        if original.device != new.device:
            raise ValueError("When `right_inverse` outputs one tensor, it may not change the device.\n"
                             f"original.device: {original.device}\nright_inverse(original).device: {new.device}")
        with no_grad():
            _store(original, new)  # the same object, so that optimizers go on knowing it
        _register_parameter_or_buffer(self, "original", original)

    def _keep_several(self, original: Tensor, new: Sequence[Any]) -> None:
        for i, part in enumerate(new):
            if not isinstance(part, Tensor):
                raise ValueError("'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got "
                                 f"element {i} of the sequence with type {type(part).__name__}.")
            if isinstance(original, Parameter):
                part = Parameter(part, original.requires_grad)
            part.requires_grad_(original.requires_grad)
            _register_parameter_or_buffer(self, f"original{i}", part)

    def _check_unchanged(self, shape: Any, dtype: Any) -> None:
        value = self()
        if not isinstance(value, Tensor):
            raise ValueError(f"A parametrization must return a tensor. Got {type(value).__name__}.")
        for what, before, now in (("dtype", dtype, value.dtype), ("shape", shape, value.shape)):
            if before != now:
                raise ValueError(f"Registering a parametrization may not change the {what} of the tensor, unless "
                                 f"`unsafe` flag is enabled.\nunparametrized {what}: {before}\nparametrized {what}: {now}")

    def right_inverse(self, value: Tensor) -> None:
        """Stores what the tensor must be computed from to come out as `value`."""
        with no_grad():
            for module in reversed(self):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                value = module.right_inverse(value)
            if self.is_tensor:
                if not isinstance(value, Tensor):
                    raise ValueError(f"`right_inverse` should return a tensor. Got {type(value).__name__}")
                if value.dtype is not self.original.dtype:
                    raise ValueError("The tensor returned by `right_inverse` has dtype "
                                     f"{value.dtype} while `original` has dtype {self.original.dtype}")
                _store(self.original, value)
                return
            if not isinstance(value, collections.abc.Sequence):
                raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {type(value).__name__}.")
            if len(value) != self.ntensors:
                raise ValueError("'right_inverse' must return a sequence of tensors of length "
                                 f"{self.ntensors}. Got a sequence of length {len(value)}.")
            for i, part in enumerate(value):
                original = getattr(self, f"original{i}")
                if not isinstance(part, Tensor):
                    raise ValueError(f"`right_inverse` must return a sequence of tensors. Got element {i} of type "
                                     f"{type(part).__name__}")
                if original.dtype is not part.dtype:
                    raise ValueError(f"Tensor {i} returned by `right_inverse` has dtype {part.dtype} while "
                                     f"`original{i}` has dtype {original.dtype}")
                _store(original, part)

    def forward(self) -> Tensor:
        if self.is_tensor:
            value = self[0](self.original)
        else:
            value = self[0](*(getattr(self, f"original{i}") for i in range(self.ntensors)))
        for module in list(self)[1:]:
            value = module(value)
        return value


# ------------------------------------------------------------------------------------------- the class with properties
def _inject_new_class(module: Module) -> None:
    """Gives the module a class of its own, where properties can be put."""
    cls = type(module)

    def deep_copy(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        memo[id(self)] = replica = self.__new__(type(self))
        replica.__dict__ = deepcopy(self.__dict__, memo)
        return replica

    def no_pickle(self):
        raise RuntimeError("Serialization of parametrized modules is only supported through state_dict(). See:\n"
                           "https://pytorch.org/tutorials/beginner/saving_loading_models.html"
                           "#saving-loading-a-general-checkpoint-for-inference-and-or-resuming-training")

    members: dict[str, Any] = {"__getstate__": no_pickle, "__module__": __name__}
    if "__deepcopy__" not in cls.__dict__ and not hasattr(cls, "__deepcopy__"):
        members["__deepcopy__"] = deep_copy
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), members)


def _inject_property(module: Module, name: str) -> None:
    if hasattr(type(module), name) and isinstance(getattr(type(module), name), property):
        raise AssertionError(f"{name} is a property of the class already")

    def read(self):
        group = self.parametrizations[name]
        if not _cache_enabled:
            return group()
        key = (id(module), name)
        value = _cache.get(key)
        if value is None:
            value = _cache[key] = group()
        return value

    def write(self, value):
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(read, write))


def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *,
                             unsafe: bool = False) -> Module:
    """Makes module.<tensor_name> the result of the parametrization (after those it has already).

    unsafe: do not check that the shape and dtype stay what they are.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _check_consistent(getattr(module, tensor_name), parametrization, tensor_name)
        group = module.parametrizations[tensor_name]
        group.append(parametrization)
        group.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        group = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _inject_new_class(module)
            module.parametrizations = ModuleDict()
        _inject_property(module, tensor_name)
        module.parametrizations[tensor_name] = group
    else:
        raise ValueError(f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
                         f"'{tensor_name}'")
    return module


def _check_consistent(before: Tensor, parametrization: Module, name: str) -> None:
    """A further parametrization must map to the same dtype and shape, and back."""
    after = parametrization(before)
    if not isinstance(after, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(after).__name__}.")
    _check_alike(before, after, name, "Registering a parametrization may not change the {what} of the tensor",
                 f"parametrization(module.{name}).{{what}}")
    if hasattr(parametrization, "right_inverse"):
        try:
            back = parametrization.right_inverse(after)
        except NotImplementedError:
            return
        if not isinstance(back, Tensor):
            raise ValueError(f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}")
        _check_alike(before, back, name, "The tensor returned by parametrization.right_inverse must have the same {what} as "
                     f"module.{name}", "returned {what}")


def _check_alike(before: Tensor, made: Tensor, name: str, rule: str, label: str) -> None:
    for what in ("dtype", "shape"):
        if getattr(made, what) != getattr(before, what):
            raise ValueError(f"{rule}, unless the `unsafe` flag is enabled.\nmodule.{name}.{what}: {getattr(before, what)}\n"
                             f"{label}: {getattr(made, what)}".replace("{what}", what))


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module (or its tensor of this name) has parametrizations."""
    parametrizations = getattr(module, "parametrizations", None)
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Takes the parametrizations off; the tensor keeps its computed value (leave_parametrized) or the original one."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    group = module.parametrizations[tensor_name]
    if group.is_tensor:
        original = group.original
        if leave_parametrized:
            with no_grad():
                value = getattr(module, tensor_name)
            with no_grad():
                if type(original) is Tensor or isinstance(original, Parameter):
                    original.data = value.data
                else:
                    raise RuntimeError("Calling remove_parametrizations() with leave_parametrized=True for a parameter "
                                       "that is an instance of a tensor subclass requires set_() to be implemented "
                                       "correctly for it.")
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value) if value.requires_grad else value
    else:
        raise ValueError("Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in "
                         "terms of a sequence of tensors.")
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register_parameter_or_buffer(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class that the module had before its first parametrization."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module: Module, to_module: Module,
                                         tensor_name: str | None = None) -> Module:
    """Puts the parametrizations of one module, with their tensors, on another one."""
    if not is_parametrized(from_module):
        return to_module
    if tensor_name is not None and not hasattr(from_module.parametrizations, tensor_name):
        raise AssertionError(f"{tensor_name} is not parametrized in the module to transfer from")
    for name in from_module.parametrizations if tensor_name is None else [tensor_name]:
        source = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(source.original if source.is_tensor else source.original0))
        for parametrization in source:
            register_parametrization(to_module, name, parametrization)
        target = to_module.parametrizations[name]
        for original in ["original"] if source.is_tensor else [f"original{i}" for i in range(source.ntensors)]:
            setattr(target, original, getattr(source, original))
    return to_module
