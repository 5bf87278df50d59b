"""Hooks of modules: the global ones, and the way a module is called when there are any."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ..autograd.hooks import RemovableHandle, changes
from ..tensors.tensor import Tensor

_global_backward_pre_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_backward_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_is_full_backward_hook: bool | None = None
_global_forward_pre_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_forward_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_forward_hooks_always_called: OrderedDict[int, bool] = OrderedDict()
_global_forward_hooks_with_kwargs: OrderedDict[int, bool] = OrderedDict()
_global_buffer_registration_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_module_registration_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_parameter_registration_hooks: OrderedDict[int, Callable] = OrderedDict()
# Every hook above that matters to a call has its id in here too: one look tells `Module.__call__` that there is none.
calls: OrderedDict[int, bool] = OrderedDict()


def _has_any_global_hook() -> bool:
    return bool(calls)


def add_hook(table: Any, hook: Callable, flags: list[Any] | None = None, prepend: bool = False) -> RemovableHandle:
    """Registers a hook; its id also goes into the tables `flags`, and leaves all of them with the handle's remove()."""
    changes[0] += 1
    handle = RemovableHandle(table, extra_dict=flags or None)
    table[handle.id] = hook
    for flag in flags or ():
        flag[handle.id] = True
    if prepend:
        table.move_to_end(handle.id, last=False)
    return handle


# ------------------------------------------------------------------------------------------------------- global ones
def register_module_buffer_registration_hook(hook: Callable) -> RemovableHandle:
    """Calls hook(module, name, buffer) at every `register_buffer`; what it returns is registered instead."""
    return add_hook(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Callable) -> RemovableHandle:
    """Calls hook(module, name, submodule) whenever a submodule is added; what it returns is added instead."""
    return add_hook(_global_module_registration_hooks, hook)


def register_module_parameter_registration_hook(hook: Callable) -> RemovableHandle:
    """Calls hook(module, name, parameter) at every `register_parameter`; what it returns is registered instead."""
    return add_hook(_global_parameter_registration_hooks, hook)


def register_module_forward_pre_hook(hook: Callable) -> RemovableHandle:
    """Calls hook(module, args) before every module's forward."""
    return add_hook(_global_forward_pre_hooks, hook, [calls])


def register_module_forward_hook(hook: Callable, *, with_kwargs: bool = False,
                                 always_call: bool = False) -> RemovableHandle:
    """Calls hook(module, args, output) after every module's forward."""
    flags = [calls]
    if with_kwargs:
        flags.append(_global_forward_hooks_with_kwargs)
    if always_call:
        flags.append(_global_forward_hooks_always_called)
    return add_hook(_global_forward_hooks, hook, flags)


def register_module_backward_hook(hook: Callable) -> RemovableHandle:
    """The old form of register_module_full_backward_hook: sees the gradients of the module's last operation only."""
    return _register_global_backward(hook, False)


def register_module_full_backward_hook(hook: Callable) -> RemovableHandle:
    """Calls hook(module, grad_input, grad_output) whenever gradients of a module's inputs are computed."""
    return _register_global_backward(hook, True)


def _register_global_backward(hook: Callable, full: bool) -> RemovableHandle:
    global _global_is_full_backward_hook
    if _global_is_full_backward_hook is (not full):
        raise RuntimeError("Cannot use both regular backward hooks and full backward hooks as a global Module hook. "
                           "Please use only one of them.")
    _global_is_full_backward_hook = full
    return add_hook(_global_backward_hooks, hook, [calls])


def register_module_full_backward_pre_hook(hook: Callable) -> RemovableHandle:
    """Calls hook(module, grad_output) before the gradients of a module are computed."""
    return add_hook(_global_backward_pre_hooks, hook, [calls])


# ------------------------------------------------------------------------------------------- registration, in Module
def register(kind: str, owner: Any, name: str, value: Any) -> Any:
    """Runs the global registration hooks over a buffer, module or parameter that is about to be registered."""
    changes[0] += 1
    tables = {"buffer": _global_buffer_registration_hooks, "module": _global_module_registration_hooks,
              "parameter": _global_parameter_registration_hooks}
    for hook in tables[kind].values():
        answer = hook(owner, name, value)
        if answer is not None:
            value = answer
    return value


# ------------------------------------------------------------------------------------------------ calling with hooks
def backward_hooks_of(module: Any) -> tuple[list[Callable], list[Callable]]:
    """(full, old-style) backward hooks that apply to a module, the global ones first."""
    full: list[Callable] = []
    old: list[Callable] = []
    if _global_backward_hooks:
        (full if _global_is_full_backward_hook else old).extend(_global_backward_hooks.values())
    if module._backward_hooks:
        (full if module._is_full_backward_hook else old).extend(module._backward_hooks.values())
    return full, old


def call(module: Any, forward: Callable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """forward(*args, **kwargs) between all hooks that apply."""
    done: set[int] = set()
    try:
        return _call(module, forward, args, kwargs, done)
    except Exception:
        _call_remaining(module, args, kwargs, done)
        raise


def _call(module: Any, forward: Callable, args: tuple[Any, ...], kwargs: dict[str, Any], done: set[int]) -> Any:
    full, old = backward_hooks_of(module)
    pre = [*_global_backward_pre_hooks.values(), *module._backward_pre_hooks.values()]
    args, kwargs = _run_forward_pre(module, args, kwargs)
    watcher = None
    if full or pre:
        from ..utils.hooks import BackwardHook
        watcher = BackwardHook(module, full, pre)
        args = watcher.setup_input_hook(args)
    result = forward(*args, **kwargs)
    for number, hook, with_kwargs, always in _forward_hooks(module):
        if always:
            done.add(number)
        answer = hook(module, args, kwargs, result) if with_kwargs else hook(module, args, result)
        if answer is not None:
            result = answer
    if watcher is not None:
        if not isinstance(result, (Tensor, tuple)):
            warnings.warn("For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but "
                          f"received {type(result)}", stacklevel=3)
        result = watcher.setup_output_hook(result)
    if old:
        _attach_old_style(module, args, result, old)
    return result


def _run_forward_pre(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    with_kwargs = module._forward_pre_hooks_with_kwargs
    hooks = [(False, h) for h in _global_forward_pre_hooks.values()]
    hooks += [(number in with_kwargs, h) for number, h in module._forward_pre_hooks.items()]
    for takes_kwargs, hook in hooks:
        if takes_kwargs:
            answer = hook(module, args, kwargs)
            if answer is not None:
                if not (isinstance(answer, tuple) and len(answer) == 2):
                    raise RuntimeError("forward pre-hook must return None or a tuple of (new_args, new_kwargs), but "
                                       f"got {answer}.")
                args, kwargs = answer
        else:
            answer = hook(module, args)
            if answer is not None:
                args = answer if isinstance(answer, tuple) else (answer,)
    return args, kwargs


def _forward_hooks(module: Any) -> list[tuple[int, Callable, bool, bool]]:
    """(id, hook, takes kwargs, runs after errors too), the global ones first."""
    found = [(n, h, n in _global_forward_hooks_with_kwargs, n in _global_forward_hooks_always_called)
             for n, h in _global_forward_hooks.items()]
    own_kwargs, own_always = module._forward_hooks_with_kwargs, module._forward_hooks_always_called
    found += [(n, h, n in own_kwargs, n in own_always) for n, h in module._forward_hooks.items()]
    return found


def _call_remaining(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], done: set[int]) -> None:
    """After an error: the hooks that asked to be called always, with no result; their own errors only warn."""
    for number, hook, with_kwargs, always in _forward_hooks(module):
        if not always or number in done:
            continue
        try:
            hook(module, args, kwargs, None) if with_kwargs else hook(module, args, None)
        except Exception as error:
            scope = "global module forward hook" if number in _global_forward_hooks else "module forward hook"
            warnings.warn(f"{scope} with ``always_call=True`` raised an exception that was silenced as another error "
                          f"was raised in forward: {error}", stacklevel=3)


class _OldStyleHook:
    """A non-full backward hook, tied to the node that made the module's output."""

    def __init__(self, hook: Callable, module: Any):
        self.hook, self.module = hook, module

    def __call__(self, grad_input: Any, grad_output: Any) -> Any:
        return self.hook(self.module, grad_input, grad_output)


def _attach_old_style(module: Any, args: tuple[Any, ...], result: Any, hooks: list[Callable]) -> None:
    first = result
    while not isinstance(first, Tensor):
        if isinstance(first, dict):
            first = next((v for v in first.values() if isinstance(v, Tensor)), None)
        else:
            first = first[0]
        if first is None:
            return
    node = first.grad_fn
    if node is None:
        return
    for hook in hooks:
        node.register_hook(_OldStyleHook(hook, module))
    _warn_old_style(module, args, result, node)


def _warn_old_style(module: Any, args: tuple[Any, ...], result: Any, node: Any) -> None:
    """An old-style hook sees one node only: says so where the module is more than one."""
    _warn = lambda text: warnings.warn(text, FutureWarning, stacklevel=6)
    results = result if isinstance(result, tuple) else (result,)
    if not all(isinstance(r, Tensor) for r in results):
        return _warn("Using non-full backward hooks on a Module that does not return a single Tensor or a tuple of "
                     "Tensors is deprecated and will be removed in future versions. This hook will be missing some of "
                     "the grad_output. Please use register_full_backward_hook to get the documented behavior.")
    if not all(isinstance(a, Tensor) for a in args):
        return _warn("Using non-full backward hooks on a Module that does not take as input a single Tensor or a tuple "
                     "of Tensors is deprecated and will be removed in future versions. This hook will be missing some "
                     "of the grad_input. Please use register_full_backward_hook to get the documented behavior.")
    if len({id(r.grad_fn) for r in results if r.grad_fn is not None}) > 1:
        return _warn("Using a non-full backward hook when outputs are generated by different autograd Nodes is "
                     "deprecated and will be removed in future versions. This hook will be missing some grad_output. "
                     "Please use register_full_backward_hook to get the documented behavior.")
    if {id(a.grad_fn) for a in args if a.grad_fn is not None} != {id(n) for n, _ in node.next_functions}:
        _warn("Using a non-full backward hook when the forward contains multiple autograd Nodes is deprecated and will "
              "be removed in future versions. This hook will be missing some grad_input. Please use "
              "register_full_backward_hook to get the documented behavior.")
