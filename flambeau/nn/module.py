"""`Module`: the base of every layer and model.

A module keeps its parameters, buffers and submodules in three dictionaries of its own (`_parameters`, `_buffers`,
`_modules`), not among its attributes: `__setattr__` sorts values into them and `__getattr__` finds them there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, TypeVar

from ..autograd.hooks import RemovableHandle
from ..tensors.parameter import Buffer, Parameter
from ..tensors.tensor import Tensor
from . import hooks as _hooks
from .conversion import Conversion
from .explain import explain as _explain
from .hooks import (  # noqa: F401 (programs reach for nn.modules.module.register_module_forward_hook)
    _has_any_global_hook,
    add_hook,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from .state_dict import _EXTRA_STATE_KEY_SUFFIX, StateDict, _IncompatibleKeys  # noqa: F401

T = TypeVar("T", bound="Module")
T_destination = TypeVar("T_destination", bound=dict[str, Any])
__all__ = ["Module", "register_module_forward_pre_hook", "register_module_forward_hook",
           "register_module_full_backward_pre_hook", "register_module_backward_hook",
           "register_module_full_backward_hook",
           "register_module_buffer_registration_hook", "register_module_module_registration_hook",
           "register_module_parameter_registration_hook"]
_FUNCTIONS = ("flambeau.ops.", "flambeau.nn.functional.", "flambeau.random.", "flambeau.creation.")  # where they are defined
_global_calls = _hooks.calls
_changes = _hooks.changes


def _addindent(text: str, spaces: int) -> str:
    """Moves every line but the first to the right."""
    return text.replace("\n", "\n" + " " * spaces)


def _forward_unimplemented(self, *input: Any) -> None:
    """What the module computes: every subclass defines it."""
    raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')


class Module(Conversion, StateDict):
    """Base class for all neural network modules: subclass it, set submodules and parameters as attributes in
    `__init__`, and define `forward`.

    >>> class Double(nn.Module):
    ...     def forward(self, x):
    ...         return x * 2
    >>> Double()(torch.tensor([1.0, 2.0]))
    tensor([2., 4.])
    """

    training: bool
    dump_patches: bool = False
    call_super_init: bool = False
    _compiled_call_impl: Callable | None = None
    T_destination = T_destination

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """PyTorch's functions are built-in ones, which do not become methods: `act = torch.tanh` in a class is called
        without the module."""
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith("flambeau."):
            return
        for name, value in list(vars(cls).items()):
            if value.__class__ is FunctionType and (value.__module__ in ("flambeau", "torch") or (
                    f"{value.__module__}.".startswith(_FUNCTIONS))):
                setattr(cls, name, staticmethod(value))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and (args or kwargs):
            if kwargs:
                raise TypeError(f"{type(self).__name__}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'")
            raise TypeError(f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given")
        own = self.__dict__  # straight into the dictionary: __setattr__ has nothing to sort here
        own["training"] = True
        own["_parameters"] = {}
        own["_buffers"] = {}
        own["_non_persistent_buffers_set"] = set()
        for name in _HOOK_TABLES[:2]:
            own[name] = OrderedDict()
        own["_is_full_backward_hook"] = None
        for name in _HOOK_TABLES[2:]:
            own[name] = OrderedDict()
        own["_modules"] = {}
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    forward: Callable[..., Any] = _forward_unimplemented

    # ------------------------------------------------------------------------------------------------------ calling
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # On every layer's path: without hooks this costs five dictionary look-ups and the call.
        own = self.__dict__
        try:
            if not (own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"]
                    or own["_backward_pre_hooks"] or _global_calls or "_compiled_call_impl" in own):
                return self.forward(*args, **kwargs)
            if own.get("_compiled_call_impl") is not None:
                return own["_compiled_call_impl"](*args, **kwargs)
            return self._call_impl(*args, **kwargs)
        except Exception as error:
            if error.__class__ is KeyError and "_forward_hooks" not in own:
                raise AttributeError(f"'{type(self).__name__}' object has no attribute {error} (was Module.__init__() "
                                     "called?)") from None
            _explain(error)
            raise

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        """forward with all hooks, never the compiled form."""
        own = self.__dict__
        if not (own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"]
                or own["_backward_pre_hooks"] or _global_calls):
            return self.forward(*args, **kwargs)
        return _hooks.call(self, self.forward, args, kwargs)

    _wrapped_call_impl = __call__

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Makes calls of this module run its compiled form; arguments as of flambeau.compile."""
        import flambeau
        if not hasattr(flambeau, "compile"):
            raise NotImplementedError("Module.compile: flambeau.compile is not there yet")
        self.__dict__["_compiled_call_impl"] = flambeau.compile(self._call_impl, *args, **kwargs)

    # ------------------------------------------------------------------------------------------------- registration
    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a tensor that belongs to the module's state but is no parameter; persistent ones go into state_dict."""
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        self._check_name("buffer", name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor) and not hasattr(tensor, "__torch_function__"):
            raise TypeError(f"cannot assign '{_type_name(tensor)}' object to buffer '{name}' (torch Tensor or None required)")
        self._buffers[name] = _hooks.register("buffer", self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Adds a parameter (None: one that is left out)."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        self._check_name("parameter", name, self._parameters)
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(f"cannot assign '{_type_name(param)}' object to parameter '{name}' (torch.nn.Parameter "
                                "or None required)")
            if param.grad_fn is not None:
                raise ValueError(f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                                 f"created explicitly. To express '{name}' as a function of another Tensor, compute "
                                 "the value in the forward() method.")
            param = _hooks.register("parameter", self, name, param)
        self._parameters[name] = param

    def add_module(self, name: str, module: Module | None) -> None:
        """Adds a submodule."""
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{_type_name(module)} is not a Module subclass")
        if not isinstance(name, str):
            raise TypeError(f"module name should be a string. Got {_type_name(name)}")
        if hasattr(self, name) and name not in self._modules:
            raise KeyError(f"attribute '{name}' already exists")
        if "." in name:
            raise KeyError(f'module name can\'t contain ".", got: {name}')
        if name == "":
            raise KeyError('module name can\'t be empty string ""')
        self._modules[name] = _hooks.register("module", self, name, module)

    def register_module(self, name: str, module: Module | None) -> None:
        """Same as add_module."""
        self.add_module(name, module)

    def _check_name(self, kind: str, name: Any, table: dict[str, Any]) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {_type_name(name)}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain "."')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if name not in table and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")

    # --------------------------------------------------------------------------------------------------- attributes
    def __getattr__(self, name: str) -> Any:
        """A parameter, buffer or submodule of that name."""
        own = self.__dict__
        if "_modules" in own:  # set last by __init__; unrolled, because every `self.weight` comes here
            if name in own["_parameters"]:
                return own["_parameters"][name]
            if name in own["_buffers"]:
                return own["_buffers"][name]
            if name in own["_modules"]:
                return own["_modules"][name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        _changes[0] += 1
        own = self.__dict__
        parameters, modules, buffers = own.get("_parameters"), own.get("_modules"), own.get("_buffers")
        if isinstance(value, Parameter):
            if parameters is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, own, buffers, modules)
            self.register_parameter(name, value)
        elif parameters is not None and name in parameters:
            if value is not None:
                raise TypeError(f"cannot assign '{_type_name(value)}' as parameter '{name}' (torch.nn.Parameter or "
                                "None expected)")
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            if modules is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, own, parameters, buffers)
            modules[name] = _hooks.register("module", self, name, value)
        elif modules is not None and name in modules:
            if value is not None:
                raise TypeError(f"cannot assign '{_type_name(value)}' as child module '{name}' (torch.nn.Module or "
                                "None expected)")
            modules[name] = _hooks.register("module", self, name, value)
        elif isinstance(value, Buffer) or (buffers is not None and name in buffers):
            self._set_buffer(name, value, own)
        else:
            object.__setattr__(self, name, value)

    def _set_buffer(self, name: str, value: Any, own: dict[str, Any]) -> None:
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(f"cannot assign '{_type_name(value)}' as buffer '{name}' (torch.nn.Buffer, torch.Tensor or "
                            "None expected)")
        buffers = own.get("_buffers")
        if buffers is None:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        if isinstance(value, Buffer):
            self._register_buffer_object(name, value)
        else:
            buffers[name] = _hooks.register("buffer", self, name, value)

    def _register_buffer_object(self, name: str, value: Any) -> None:
        """Registers a Buffer, also where a subclass has a register_buffer of its own that knows no `persistent`."""
        persistent = getattr(value, "persistent", True)
        if type(self).register_buffer is not Module.register_buffer:
            from inspect import signature
            if "persistent" not in signature(self.register_buffer).parameters:
                if not persistent:
                    raise RuntimeError("Registering a non-persistent buffer on a Module subclass that implements "
                                       "register_buffer() without the persistent argument is not allowed.")
                self.register_buffer(name, value)
                return
        self.register_buffer(name, value, persistent)

    def _forget(self, name: str, *tables: Any) -> None:
        """Takes a name out of the other tables: it is about to mean something else."""
        for table in tables:
            if table is not None and name in table:
                del table[name]
        self._non_persistent_buffers_set.discard(name)

    def __delattr__(self, name: str) -> None:
        _changes[0] += 1
        own = self.__dict__
        for table in ("_parameters", "_buffers", "_modules"):
            if name in own.get(table, ()):
                del own[table][name]
                if table == "_buffers":
                    self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = {*dir(type(self)), *self.__dict__, *self._parameters, *self._modules, *self._buffers}
        return sorted(n for n in names if not n[:1].isdigit())  # "0" is no attribute that one could write

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("_compiled_call_impl", None)  # native code does not travel; compile() again
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        own = self.__dict__  # files of earlier versions lack some tables
        own.setdefault("_non_persistent_buffers_set", set())
        own.setdefault("_is_full_backward_hook", None)
        for name in _HOOK_TABLES:
            own.setdefault(name, OrderedDict())

    # ---------------------------------------------------------------------------------------------- looking up paths
    def get_submodule(self, target: str) -> Module:
        """The descendant of this dotted name ("" is the module itself)."""
        found: Any = self
        for name in target.split(".") if target else ():
            if not hasattr(found, name):
                raise AttributeError(f"{found._get_name()} has no attribute `{name}`")
            found = getattr(found, name)
            if not isinstance(found, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return found

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Puts a module in the place of the descendant of this name; strict: there must be one already."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        path, _, name = target.rpartition(".")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter of this dotted name."""
        _, found, name = self._find(target)
        if not isinstance(found, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer of this dotted name."""
        owner, found, name = self._find(target)
        if name not in owner._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return found

    def _find(self, target: str) -> tuple[Module, Any, str]:
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if not hasattr(owner, name):
            raise AttributeError(f"{owner._get_name()} has no attribute `{name}`")
        return owner, getattr(owner, name), name

    # ------------------------------------------------------------------------------------------------------ walking
    def _named_members(self, get_members_fn: Callable, prefix: str = "", recurse: bool = True,
                       remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
        """Pairs of full name and value, from what get_members_fn finds in each module."""
        seen: set[Any] = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in get_members_fn(module):
                if value is None or value in seen:
                    continue
                if remove_duplicate:
                    seen.add(value)
                yield (path + "." if path else "") + name, value

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters, each once; recurse: with those of all descendants."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_parameters(self, prefix: str = "", recurse: bool = True,
                         remove_duplicate: bool = True) -> Iterator[tuple[str, Parameter]]:
        """(full name, parameter) of every parameter."""
        yield from self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers, each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def named_buffers(self, prefix: str = "", recurse: bool = True,
                      remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """(full name, buffer) of every buffer."""
        yield from self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def children(self) -> Iterator[Module]:
        """The immediate submodules, each once."""
        for _, module in self.named_children():
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) of the immediate submodules."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all descendants."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_modules(self, memo: set[Module] | None = None, prefix: str = "",
                      remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """(full name, module) of this module and all descendants, parents first."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, prefix + ("." if prefix else "") + name, remove_duplicate)

    def apply(self: T, fn: Callable[[Module], None]) -> T:
        """Calls fn on every descendant and on this module itself, children first."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    # -------------------------------------------------------------------------------------------------------- modes
    def train(self: T, mode: bool = True) -> T:
        """Puts this module and its descendants into training mode (mode=False: evaluation)."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: T) -> T:
        """Same as train(False)."""
        return self.train(False)

    def requires_grad_(self: T, requires_grad: bool = True) -> T:
        """Says of every parameter whether it requires grad."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops (set_to_none) or zeroes the gradients of all parameters."""
        if getattr(self, "_is_replica", False):
            import warnings
            warnings.warn("Calling .zero_grad() from a module created with nn.DataParallel() has no effect. The "
                          "parameters are copied (in a differentiable manner) from the original module.", stacklevel=2)
        for p in self.parameters():
            if set_to_none:
                p.grad = None
            elif p.grad is not None:
                if p.grad.grad_fn is not None:
                    p.grad.detach_()
                else:
                    p.grad.requires_grad_(False)
                p.grad.zero_()

    # -------------------------------------------------------------------------------------------------------- hooks
    def register_forward_pre_hook(self, hook: Callable, *, prepend: bool = False,
                                  with_kwargs: bool = False) -> RemovableHandle:
        """Calls hook(module, args) before forward; what it returns replaces args. with_kwargs: hook(module, args,
        kwargs), which returns both."""
        flags = [self._forward_pre_hooks_with_kwargs] if with_kwargs else None
        return add_hook(self._forward_pre_hooks, hook, flags, prepend)

    def register_forward_hook(self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False,
                              always_call: bool = False) -> RemovableHandle:
        """Calls hook(module, args, output) after forward; what it returns replaces the output. always_call: also after
        an error."""
        flags = [self._forward_hooks_with_kwargs] if with_kwargs else []
        if always_call:
            flags.append(self._forward_hooks_always_called)
        return add_hook(self._forward_hooks, hook, flags, prepend)

    def register_full_backward_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls hook(module, grad_output) when gradients reach the module's outputs; it may return others."""
        return add_hook(self._backward_pre_hooks, hook, None, prepend)

    def register_full_backward_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls hook(module, grad_input, grad_output) when the inputs' gradients are known; it may return others."""
        self._choose_backward_hooks(full=True)
        return add_hook(self._backward_hooks, hook, None, prepend)

    def register_backward_hook(self, hook: Callable) -> RemovableHandle:
        """The old form of register_full_backward_hook: sees the gradients of the module's last operation only."""
        self._choose_backward_hooks(full=False)
        return add_hook(self._backward_hooks, hook)

    def _choose_backward_hooks(self, full: bool) -> None:
        if self._is_full_backward_hook is (not full):
            raise RuntimeError("Cannot use both regular backward hooks and full backward hooks on a single Module. "
                               "Please use only one of them.")
        self._is_full_backward_hook = full

    def _get_backward_hooks(self) -> tuple[list[Callable], list[Callable]]:
        return _hooks.backward_hooks_of(self)

    def _get_backward_pre_hooks(self) -> list[Callable]:
        return [*_hooks._global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]

    # ----------------------------------------------------------------------------------------------------- printing
    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What repr shows of the module itself; subclasses say."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        extra_lines = extra.split("\n") if extra else []
        child_lines = [f"({name}): {_addindent(repr(module), 2)}" for name, module in self._modules.items()]
        name = self._get_name()
        if len(extra_lines) == 1 and not child_lines:
            return f"{name}({extra_lines[0]})"
        lines = extra_lines + child_lines
        return f"{name}(\n  " + "\n  ".join(lines) + "\n)" if lines else f"{name}()"

    def _replicate_for_data_parallel(self) -> Module:
        replica = self.__new__(type(self))
        replica.__dict__ = {**self.__dict__, "_parameters": {}, "_buffers": self._buffers.copy(),
                            "_modules": self._modules.copy(), "_is_replica": True}
        return replica


# In the order of PyTorch's instance dictionary (two before, the rest after `_is_full_backward_hook`).
_HOOK_TABLES = ("_backward_pre_hooks", "_backward_hooks", "_forward_hooks", "_forward_hooks_with_kwargs",
                "_forward_hooks_always_called", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs",
                "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks",
                "_load_state_dict_post_hooks")


def _type_name(value: Any) -> str:
    from .. import typename
    return typename(value)

