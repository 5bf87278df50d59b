"""From a checkpoint of many processes to one file, and back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ...creation.factories import empty
from ...missing import refused
from ...serialization import load as _read
from ...serialization import save as _write
from ...tensors import dtypes
from .files import Reader, save

globals().update(refused("distributed.checkpoint.format_utils", "it is not implemented",
                         "BroadcastingTorchSaveReader DynamicMetaLoadPlanner _EmptyStateDictLoadPlanner"))
__all__ = ["dcp_to_torch_save", "torch_save_to_dcp"]


def _entered(state: dict[Any, Any], path: list[Any], value: Any) -> None:
    for key in path[:-1]:
        state = state.setdefault(key, {})
    state[path[-1]] = value


def dcp_to_torch_save(dcp_checkpoint_dir: str | os.PathLike, torch_save_path: str | os.PathLike) -> None:
    """Writes a checkpoint's folder as one file of `torch.save`. (Tuples of tensors become lists.)"""
    reader, state = Reader(Path(dcp_checkpoint_dir)), {}
    for name, found in reader.metadata["tensors"].items():
        made = empty(found["shape"], dtype=getattr(dtypes, found["dtype"]))
        reader.fill(name, made)
        _entered(state, found["path"], made)
    for name, found in reader.metadata["values"].items():
        _entered(state, found["path"], reader.value(name))
    for path in sorted(reader.metadata.get("lists", ()), key=len, reverse=True):  # the inner ones first
        numbered = state
        for key in path:
            numbered = numbered[key]
        _entered(state, path, [numbered[i] for i in range(len(numbered))])
    _write(state, torch_save_path)


def torch_save_to_dcp(torch_save_path: str | os.PathLike, dcp_checkpoint_dir: str | os.PathLike) -> None:
    """Writes a file of `torch.save` as a checkpoint's folder."""
    save(_read(torch_save_path, weights_only=False), checkpoint_id=dcp_checkpoint_dir, no_dist=True)
