"""Checkpoints that many processes write together, and that any number of processes reads."""

from ...missing import refused, refused_modules
from .files import CheckpointException, FileSystemReader, FileSystemWriter, load, load_state_dict, save, save_state_dict
from .flat import Stateful

__all__ = ["CheckpointException", "FileSystemReader", "FileSystemWriter", "Stateful", "load", "load_state_dict", "save",
           "save_state_dict"]
_REASON = "it is not implemented"
globals().update(refused("distributed.checkpoint", _REASON, "async_save StorageReader StorageWriter HuggingFaceStorageReader "
                                                            "HuggingFaceStorageWriter load_sharded_optimizer_state_dict"))
refused_modules(__name__, _REASON, {
    "default_planner": "DefaultLoadPlanner DefaultSavePlanner _EmptyStateDictLoadPlanner",
    "state_dict_loader": "_load_state_dict",
    "optimizer": "load_sharded_optimizer_state_dict",
    "hf_storage": "HuggingFaceStorageReader HuggingFaceStorageWriter",
    "_consolidate_hf_safetensors": "consolidate_safetensors_files",
})["state_dict_loader"].__dict__.update(load=load, load_state_dict=load_state_dict)
