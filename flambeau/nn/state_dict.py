"""`state_dict` and `load_state_dict`: a module's parameters and buffers by name, out and in."""

from __future__ import annotations

import warnings
import weakref
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from typing import Any

from ..autograd.hooks import RemovableHandle
from ..autograd.modes import no_grad
from ..ops.rare import swap_tensors
from ..tensors.tensor import Tensor
from .hooks import add_hook
from .parameter import Parameter, is_lazy

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What load_state_dict returns."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class _WithModule:
    """A load_state_dict pre-hook that wants the module as its first argument."""

    def __init__(self, hook: Callable, module: Any):
        self.hook, self.module = hook, weakref.ref(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {"hook": self.hook, "module": self.module()}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__init__(saved["hook"], saved["module"])


class StateDict:
    """The part of Module that saves and loads."""

    _version: int = 1

    # -------------------------------------------------------------------------------------------------------- hooks
    def _register_state_dict_hook(self, hook: Callable) -> RemovableHandle:
        """Calls hook(module, state_dict, prefix, local_metadata) when saved; a dict that it returns is the result."""
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError("Cannot register the same function as the state dict post hook that was previously "
                               "registered via register_state_dict_post_hook")
        return add_hook(self._state_dict_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """Calls hook(module, state_dict, prefix, local_metadata) when saved; it may change state_dict in place."""
        hook._from_public_api = True
        return add_hook(self._state_dict_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Calls hook(module, prefix, keep_vars) before this module is saved."""
        return add_hook(self._state_dict_pre_hooks, hook)

    def _register_load_state_dict_pre_hook(self, hook: Callable, with_module: bool = False) -> RemovableHandle:
        return add_hook(self._load_state_dict_pre_hooks, _WithModule(hook, self) if with_module else hook)

    def register_load_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Calls hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        before this module is loaded."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def register_load_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """Calls hook(module, incompatible_keys) after this module is loaded; it may change the keys in place."""
        return add_hook(self._load_state_dict_post_hooks, hook)

    # --------------------------------------------------------------------------------------------------- extra state
    def get_extra_state(self) -> Any:
        """To be defined together with set_extra_state by modules that save more than tensors."""
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called. Please define "
                           "get_extra_state() in the module's class.")

    def set_extra_state(self, state: Any) -> None:
        """Takes back what get_extra_state returned."""
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called. Please define "
                           "set_extra_state() in the module's class.")

    # -------------------------------------------------------------------------------------------------------- saving
    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Puts this module's own parameters, persistent buffers and extra state into the destination."""
        skipped = self._non_persistent_buffers_set
        for name, tensor in [*self._parameters.items(), *self._buffers.items()]:
            if tensor is not None and (name not in skipped or name in self._parameters):
                destination[prefix + name] = tensor if keep_vars or is_lazy(tensor) else tensor.detach()
        if type(self).get_extra_state is not StateDict.get_extra_state:
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """All parameters and persistent buffers by their full names; the tensors share memory with the module's."""
        if args:
            warnings.warn("Positional args are being deprecated, use kwargs instead. Refer to "
                          "https://pytorch.org/docs/main/generated/torch.nn.Module.html#torch.nn.Module.state_dict for "
                          "details.", FutureWarning, stacklevel=2)
            destination, prefix, keep_vars = (*args, *(destination, prefix, keep_vars)[len(args):])
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=prefix + name + ".", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            answer = hook(self, destination, prefix, local_metadata)
            if not getattr(hook, "_from_public_api", False):
                if answer is not None:
                    destination = answer
            elif answer is not None:
                raise RuntimeError("state_dict post-hook must return None")
        return destination

    # ------------------------------------------------------------------------------------------------------- loading
    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], strict: bool,
                              missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str]) -> None:
        """Loads this module's own entries, and adds to the three lists what did not fit."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        skipped = self._non_persistent_buffers_set
        own = {k: v for k, v in self._parameters.items() if v is not None}
        own |= {k: v for k, v in self._buffers.items() if v is not None and k not in skipped}
        assign = local_metadata.get("assign_to_params_buffers", False)
        loaded = getattr(state_dict, "_loaded", None)
        for name, tensor in own.items():
            key = prefix + name
            if key in state_dict:
                if _load_one(self, name, key, tensor, state_dict[key], assign, error_msgs) and loaded is not None:
                    loaded.append(key)
            elif strict:
                missing_keys.append(key)
        extra_key = prefix + _EXTRA_STATE_KEY_SUFFIX
        if type(self).set_extra_state is not StateDict.set_extra_state:
            if extra_key in state_dict:
                self.set_extra_state(state_dict[extra_key])
            elif strict:
                missing_keys.append(extra_key)
        elif strict and extra_key in state_dict:
            unexpected_keys.append(extra_key)
        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != extra_key:
                    first, *rest = key[len(prefix):].split(".", 1)
                    if first not in (self._modules if rest else own):
                        unexpected_keys.append(key)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True,
                        assign: bool = False) -> _IncompatibleKeys:
        """Copies parameters and buffers from a state_dict into this module and its descendants.

        strict: keys that are missing or unexpected are an error. assign: the tensors themselves become the module's.
        As in PyTorch what fits is loaded even when something else does not; the error then says which entries were.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        keys = _IncompatibleKeys([], [])
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        state_dict = OrderedDict(state_dict)
        state_dict._loaded = []
        if metadata is not None:
            state_dict._metadata = metadata
        _load_tree(self, state_dict, "", metadata or {}, assign, keys, errors)
        if strict:
            for title, found in (("Unexpected", keys.unexpected_keys), ("Missing", keys.missing_keys)):
                if found:
                    errors.insert(0, f"{title} key(s) in state_dict: {', '.join(f'{chr(34)}{k}{chr(34)}' for k in found)}. ")
        if errors:
            loaded = state_dict._loaded
            if loaded:
                errors.append(f"Loaded all the same: {', '.join(loaded)}. Everything else is as it was.")
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(errors))
        return keys


def _load_tree(module: Any, state_dict: Any, prefix: str, metadata: Any, assign: bool, keys: _IncompatibleKeys,
               errors: list[str]) -> None:
    """Loads a module and its descendants from the entries that start with the prefix."""
    local_metadata = metadata.get(prefix[:-1], {})
    if assign:
        local_metadata = {**local_metadata, "assign_to_params_buffers": True}
    module._load_from_state_dict(state_dict, prefix, local_metadata, True, keys.missing_keys, keys.unexpected_keys, errors)
    for name, child in module._modules.items():
        if child is not None:
            child_prefix = prefix + name + "."
            part = OrderedDict((k, v) for k, v in state_dict.items() if k.startswith(child_prefix))
            part._loaded = state_dict._loaded
            _load_tree(child, part, child_prefix, metadata, assign, keys, errors)
    incompatible = _IncompatibleKeys(keys.missing_keys, keys.unexpected_keys)
    for hook in module._load_state_dict_post_hooks.values():
        if hook(module, incompatible) is not None:
            raise AssertionError("Hooks registered with ``register_load_state_dict_post_hook`` are not expected to "
                                 "return new values, if incompatible_keys need to be modified, it should be done inplace.")


def _load_one(module: Any, name: str, key: str, tensor: Tensor, value: Any, assign: bool, errors: list[str]) -> bool:
    """Copies (or assigns) one entry; a misfit is described in `errors`."""
    if not isinstance(value, Tensor) and not hasattr(type(value), "__torch_function__"):
        errors.append(f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from '
                      f"checkpoint but received {type(value)}")
        return False
    if is_lazy(tensor) and is_lazy(value):
        return True  # neither has a shape yet: nothing to copy
    if not is_lazy(tensor):
        if len(tensor.shape) == 0 and len(value.shape) == 1:  # how PyTorch 0.3 wrote scalars
            value = value[0]
        if value.shape != tensor.shape:
            errors.append(f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, the "
                          f"shape in current model is {tensor.shape}.")
            return False
        if tensor.is_meta and not value.is_meta and not assign:
            warnings.warn(f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the "
                          "current model, which is a no-op. (Did you mean to pass `assign=True` to assign items in "
                          "the state dictionary to their corresponding key in the module instead of copying them in "
                          "place?)", stacklevel=5)
    from .. import __future__ as choices
    swap = choices.get_swap_module_params_on_conversion()
    try:
        with no_grad():
            if swap:
                _swap(tensor, value, assign)
            elif assign:
                _assign(module, name, tensor, value)
            else:
                tensor.copy_(value)
    except Exception as error:
        doing = "swapping" if swap else "copying"
        errors.append(f'While {doing} the parameter named "{key}", whose dimensions in the model are {tensor.size()} '
                      f"and whose dimensions in the checkpoint are {value.size()}, an exception occurred : {error.args}.")
        return False
    return True


def _assign(module: Any, name: str, tensor: Tensor, value: Any) -> None:
    """The checkpoint's tensor takes the place of the module's; a parameter keeps its requires_grad."""
    if isinstance(tensor, Parameter):
        if not isinstance(value, Parameter):
            value = Parameter(value, requires_grad=tensor.requires_grad)
        else:
            value.requires_grad_(tensor.requires_grad)
    setattr(module, name, value)


def _swap(tensor: Tensor, value: Tensor, assign: bool) -> None:
    """Exchanges the module's tensor with what `module_load` makes of the checkpoint's."""
    new = tensor.module_load(value, assign=assign)
    if new is value or new is tensor:
        raise RuntimeError("module_load returned one of self or other, please .detach() the result if returning one of "
                           "the inputs in module_load")
    if isinstance(tensor, Parameter):
        if not isinstance(new, Parameter):
            new = Parameter(new, requires_grad=tensor.requires_grad)
        else:
            new.requires_grad_(tensor.requires_grad)
    swap_tensors(tensor, new)
