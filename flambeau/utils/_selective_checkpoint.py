"""Selective checkpointing: which operations of a checkpointed part keep their results is said by a policy."""

from __future__ import annotations

import os
import traceback
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from ..ops import aten
from ..tensors.tensor import Tensor
from ._python_dispatch import TorchDispatchMode
from ._pytree import tree_map
from .checkpoint import SAC_IGNORED_OPS, CheckpointPolicy, SelectiveCheckpointContext

SAC_IGNORED_OPS.add(aten.detach.default)
_SAVED = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class _Kept:
    """A result of the first run. A change in place since then would be found in the second one."""

    def __init__(self, value: Any):
        self.value, self.version = value, value._version if isinstance(value, Tensor) and not value.is_inference() else None

    def get(self, changes_allowed: bool) -> Any:
        if self.version is not None and not changes_allowed and self.value._version != self.version:
            raise RuntimeError("Tensor cached during selective activation checkpoint has been mutated")
        return self.value


class _Selecting(TorchDispatchMode):
    def __init__(self, policy: Callable[..., Any], storage: dict[Any, list[Any]], again: bool):
        super().__init__()
        self.policy, self.storage, self.again = policy, storage, again

    def saves(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """What the policy says of an operation."""
        said = self.policy(SelectiveCheckpointContext(is_recompute=self.again), func, *args, **kwargs)
        if isinstance(said, bool):
            return said
        if said is CheckpointPolicy.MUST_CPU_OFFLOAD:
            raise NotImplementedError("selective checkpointing: MUST_CPU_OFFLOAD is not implemented in flambeau")
        return said in _SAVED


class _CachingTorchDispatchMode(_Selecting):
    """The first run: what is to be saved is kept, by operation and in order."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func not in SAC_IGNORED_OPS and self.saves(func, args, kwargs):
            shows = any([r.alias_info is not None for r in func._schema.returns])
            self.storage[func].append(tree_map(lambda x: _Kept(_detached(x) if shows else x), out))
        return out


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


class _CachedTorchDispatchMode(_Selecting):
    """The second run: what was kept comes from there."""

    def __init__(self, policy: Callable[..., Any], storage: dict[Any, list[Any]], changes_allowed: bool):
        super().__init__(policy, storage, True)
        self.changes_allowed = changes_allowed

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in SAC_IGNORED_OPS or not self.saves(func, args, kwargs):
            return func(*args, **kwargs)
        kept = self.storage.get(func)
        if kept is None:
            raise RuntimeError(f"{func} encountered during backward, but not found in storage")
        if not kept:
            raise RuntimeError("Trying to backward an extra time. You are only allowed to backward once on any region computed "
                               "under selective activation checkpoint.")
        return tree_map(lambda x: x.get(self.changes_allowed) if isinstance(x, _Kept) else x, kept.pop(0))


def contexts(policy: Any, changes_allowed: bool) -> tuple[TorchDispatchMode, TorchDispatchMode]:
    """The contexts of the first and of the second run."""
    if isinstance(policy, list):
        for op in policy:
            if not isinstance(op, aten.OpOverload):
                hint = "You may need to specify the overload of the operation (`.default`, say)." if isinstance(
                    op, aten.OpOverloadPacket) else ""
                raise ValueError(f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}. {hint}")
        chosen = set(policy)

        def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            return CheckpointPolicy.MUST_SAVE if op in chosen else CheckpointPolicy.PREFER_RECOMPUTE
    elif not callable(policy):
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    storage: dict[Any, list[Any]] = defaultdict(list)
    return _CachingTorchDispatchMode(policy, storage, False), _CachedTorchDispatchMode(policy, storage, changes_allowed)


class Log(TorchDispatchMode):
    """The operations of one run of a checkpointed part, and the lines that called them: what `debug=True` shows."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.stacks: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = ", ".join([_described(a) for a in (*args, *(kwargs or {}).values())])
        self.lines.append(f"${len(self.lines)}: {_described(out)} = torch._ops.{func}({given})")
        frames = [f for f in traceback.extract_stack() if not f.filename.startswith(_PACKAGE)]
        self.stacks.append(f"{self.lines[-1]}\n" + "".join(traceback.format_list(frames[-3:])))
        return out


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        letter = "f" if value.dtype.is_floating_point else "c" if value.dtype.is_complex else "i"
        kind = "b8" if str(value.dtype).endswith("bool") else f"{letter}{value.dtype.itemsize * 8}"
        return f'"{kind}{list(value.shape)}"'
    if isinstance(value, (list, tuple)):
        return f"({', '.join([_described(v) for v in value])})"
    return repr(value)


def report(first: Log, second: Log) -> str:
    """Both logs, for the message of an error."""
    rule = "-" * 80
    parts = [("1. Where the operations of the original forward were called", "\n".join(first.stacks)),
             ("2. Where the operations of the recomputation were called", "\n".join(second.stacks)),
             ("3. Operations of both runs. (Differences in \"detach\" come from checkpointing itself.)",
              "Operations executed during the original forward:\n\n" + "\n".join(first.lines)
              + "\n\nOperations executed during recomputation:\n\n" + "\n".join(second.lines))]
    shown = "\n".join([f"{rule}\n{title}\n{rule}\n{text}\n" for title, text in parts])
    return (f"{shown}{rule}\n ERROR: Detected non-determinism while running activation checkpointing\n\n You are seeing this "
            "error because you passed `debug=True` to checkpoint and\n what was saved in the original forward differs from "
            "what was saved when it ran again.\n The first operation in which the two lists above differ is where to look.\n\n")
