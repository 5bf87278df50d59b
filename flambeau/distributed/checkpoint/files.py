"""`save` and `load`: a folder with one file per process, and one that says where everything is.

The folder's `.metadata` names the files that belong to the checkpoint. New files have names of their own, and `.metadata` is
replaced last, in one step: whatever goes wrong before, the checkpoint that was there stays as it was.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path
from typing import Any

from ... import distributed as dist
from ...autograd.modes import no_grad
from ...serialization import load as _read
from ...serialization import save as _write
from ...tensors.tensor import Tensor
from .flat import Chunk, Stateful, chunk_of, flattened, inside, lists_in, name_of, overlap, put

__all__ = ["CheckpointException", "FileSystemReader", "FileSystemWriter", "load", "load_state_dict", "save", "save_state_dict"]

_VERSION = 1


class CheckpointException(Exception):
    """Something went wrong on some ranks: `failures` says what, by rank."""

    def __init__(self, msg: str, failures: dict[int, Any]):
        super().__init__(f"CheckpointException ranks:{sorted(failures)}: {msg}\n" + "\n".join(
            f"rank {rank}: {error}" for rank, error in sorted(failures.items())))
        self.failures = failures


class FileSystemWriter:
    """A checkpoint in a folder."""

    def __init__(self, path: str | os.PathLike, single_file_per_rank: bool = True, sync_files: bool = True, **options: Any):
        if not single_file_per_rank or options:
            raise NotImplementedError("FileSystemWriter: one file per rank, without other options, is implemented in flambeau")
        self.path, self.sync_files = Path(path), sync_files


class FileSystemReader:
    """A checkpoint in a folder."""

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)

    def read_metadata(self) -> dict[str, Any]:
        """What the checkpoint holds."""
        return _metadata(self.path)


class _Processes:
    """Those that save or load together."""

    def __init__(self, group: Any, alone: bool):
        self.alone = alone or not dist.is_initialized() or dist.get_world_size(group) == 1
        self.group = group
        self.rank, self.size = (0, 1) if self.alone else (dist.get_rank(group), dist.get_world_size(group))

    def all(self, value: Any) -> list[Any]:
        if self.alone:
            return [value]
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value, group=self.group)
        return found

    def agree(self, what: str, error: Exception | None) -> None:
        """Raises on all processes if something went wrong on one."""
        said = self.all(None if error is None else f"{type(error).__name__}: {error}")
        failures = {rank: text for rank, text in enumerate(said) if text is not None}
        if failures:
            raise CheckpointException(what, failures) from error


def _folder(checkpoint_id: Any, storage: Any) -> Path:
    if storage is not None:
        return storage.path
    if checkpoint_id is None:
        raise ValueError("a checkpoint needs a checkpoint_id (the path of a folder), or a storage_writer or storage_reader")
    return Path(checkpoint_id)


def _states(state_dict: dict[str, Any]) -> dict[str, Any]:
    return {k: v.state_dict() if isinstance(v, Stateful) and not isinstance(v, (dict, Tensor)) else v
            for k, v in state_dict.items()}


def _metadata(folder: Path) -> dict[str, Any]:
    path = folder / ".metadata"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: no checkpoint was completed in this folder")
    found = _read(path, weights_only=True)
    if found.get("version") != _VERSION:
        raise ValueError(f"{path} is of version {found.get('version')}, this flambeau reads {_VERSION}")
    return found


# ---------------------------------------------------------------------------------------------------------------- saving
def save(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike | None = None, storage_writer: Any = None,
         planner: Any = None, process_group: Any = None, no_dist: bool = False, use_collectives: bool = True) -> dict[str, Any]:
    """Saves a state that all processes have a part of. To be called by all of them.

    Each process writes its own pieces of DTensors; a plain tensor or other value is written by the first process that has it.
    What was saved in the folder before stays until all that is new is on the disk.
    """
    if planner is not None:
        raise NotImplementedError("checkpoint.save(planner=...) is not implemented in flambeau")
    folder, processes = _folder(checkpoint_id, storage_writer), _Processes(process_group, no_dist)
    token = processes.all(uuid.uuid4().hex[:12])[0]
    file = f"__{processes.rank}_{token}.distcp"
    error, entries, own, lists = None, [], [], []
    try:
        states = _states(state_dict)
        entries, lists = list(flattened(states)), list(lists_in(states))
        own = [_described(path, value) for path, value in entries]
    except Exception as problem:
        error = problem
    processes.agree("this state cannot be saved", error)
    plans = processes.all((own, lists))
    metadata = _planned([plan for plan, _ in plans], token)
    metadata["lists"] = [list(path) for path in dict.fromkeys(path for _, lists in plans for path in lists)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_own(folder / file, entries, metadata, processes.rank)
    except Exception as problem:
        error = problem
    try:
        processes.agree("saving failed, the checkpoint that was there is unchanged", error)
        if processes.rank == 0:
            try:
                _write(metadata, folder / ".metadata")  # replaces the old file in one step
            except Exception as problem:
                error = problem
        processes.agree("saving failed, the checkpoint that was there is unchanged", error)
    except CheckpointException:
        with contextlib.suppress(OSError):  # there may be no folder
            (folder / file).unlink()
        raise
    if processes.rank == 0:
        for old in folder.glob("__*.distcp"):
            if not old.name.endswith(f"_{token}.distcp"):
                old.unlink(missing_ok=True)
    return metadata


def _described(path: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    """What a process has: (path, shape of the whole, dtype, its block, whether it is the one to save it)."""
    if not isinstance(value, Tensor):
        return path, None, None, None, True
    chunk, _, mine = chunk_of(value)
    return path, tuple(value.shape), str(value.dtype).removeprefix("torch."), tuple(chunk), mine


def _planned(plans: list[list[tuple[Any, ...]]], token: str) -> dict[str, Any]:
    """Who writes what, from what all processes have: the same answer on each."""
    tensors: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for rank, plan in enumerate(plans):
        for path, shape, dtype, chunk, mine in plan:
            name = name_of(path)
            if shape is None:
                values.setdefault(name, {"path": list(path), "rank": rank})
                continue
            known = tensors.setdefault(name, {"path": list(path), "shape": list(shape), "dtype": dtype, "chunks": []})
            if known["shape"] != list(shape):
                raise ValueError(f"'{name}' has shape {known['shape']} on one rank and {list(shape)} on rank {rank}")
            place = [list(chunk[0]), list(chunk[1])]
            if mine and 0 not in chunk[1] and all(c["place"] != place for c in known["chunks"]):
                known["chunks"].append({"place": place, "rank": rank})
    return {"version": _VERSION, "token": token, "tensors": tensors, "values": values}


def _write_own(file: Path, entries: list[tuple[Any, Any]], metadata: dict[str, Any], rank: int) -> None:
    found: dict[str, Any] = {"tensors": {}, "values": {}}
    for path, value in entries:
        name = name_of(path)
        if isinstance(value, Tensor):
            chunk, elements, _ = chunk_of(value)
            place = [list(chunk.offsets), list(chunk.sizes)]
            if any(c["rank"] == rank and c["place"] == place for c in metadata["tensors"][name]["chunks"]):
                found["tensors"][_key(name, chunk.offsets)] = elements.cpu().contiguous()
        elif metadata["values"][name]["rank"] == rank:
            found["values"][name] = value
    _write(found, file)


def _key(name: str, offsets: Any) -> str:
    return f"{name}@{','.join(map(str, offsets))}"


# --------------------------------------------------------------------------------------------------------------- loading
def load(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike | None = None, storage_reader: Any = None,
         planner: Any = None, process_group: Any = None, no_dist: bool = False) -> None:
    """Fills a state, in place, from a checkpoint: tensors take their elements, whatever pieces were saved by how many
    processes; other values are replaced. Objects with load_state_dict are given their state."""
    if planner is not None:
        raise NotImplementedError("checkpoint.load(planner=...) is not implemented in flambeau")
    folder, processes = _folder(checkpoint_id, storage_reader), _Processes(process_group, no_dist)
    error = None
    try:
        reader = Reader(folder)
        states = _states(state_dict)
        for path, value in list(flattened(states)):
            if isinstance(value, Tensor):
                reader.fill(name_of(path), value)
            else:
                put(states, path, reader.value(name_of(path)))
        for key, owner in state_dict.items():
            if states[key] is not owner and isinstance(owner, Stateful):
                owner.load_state_dict(states[key])
            else:
                state_dict[key] = states[key]
    except Exception as problem:
        error = problem
    processes.agree("loading failed", error)


class Reader:
    """Reads one checkpoint; files are opened when they are needed."""

    def __init__(self, folder: Path):
        self.folder, self.metadata, self._files = folder, _metadata(folder), {}

    def _file(self, rank: int) -> dict[str, Any]:
        if rank not in self._files:
            self._files[rank] = _read(self.folder / f"__{rank}_{self.metadata['token']}.distcp", weights_only=True, mmap=True)
        return self._files[rank]

    def value(self, name: str) -> Any:
        found = self.metadata["values"].get(name)
        if found is None:
            raise RuntimeError(f"Missing key in checkpoint state_dict: {name}.")
        return self._file(found["rank"])["values"][name]

    def fill(self, name: str, target: Tensor) -> None:
        """Copies a tensor's elements, as far as this process has them."""
        found = self.metadata["tensors"].get(name)
        if found is None:
            raise RuntimeError(f"Missing key in checkpoint state_dict: {name}.")
        if found["shape"] != list(target.shape):
            raise ValueError(f"Size mismatch between saved {found['shape']} and current: {list(target.shape)} for {name}")
        wanted, elements, _ = chunk_of(target)
        with no_grad():
            for saved in found["chunks"]:
                chunk = Chunk(*[tuple(p) for p in saved["place"]])
                block = overlap(chunk, wanted)
                if block is not None:
                    source = self._file(saved["rank"])["tensors"][_key(name, chunk.offsets)]
                    inside(wanted, block, elements).copy_(inside(chunk, block, source))


def save_state_dict(state_dict: dict[str, Any], storage_writer: Any, process_group: Any = None, coordinator_rank: int = 0,
                    no_dist: bool = False, planner: Any = None) -> dict[str, Any]:
    """Old name of `save`."""
    return save(state_dict, storage_writer=storage_writer, planner=planner, process_group=process_group, no_dist=no_dist)


def load_state_dict(state_dict: dict[str, Any], storage_reader: Any, process_group: Any = None, coordinator_rank: int = 0,
                    no_dist: bool = False, planner: Any = None) -> None:
    """Old name of `load`."""
    load(state_dict, storage_reader=storage_reader, planner=planner, process_group=process_group, no_dist=no_dist)
