"""Checkpoints that many processes write together, and that any number of processes reads."""

from ...missing import refused, refused_modules
from .background import AsyncCheckpointerType, async_save
from .files import CheckpointException, FileSystemReader, FileSystemWriter, load, load_state_dict, save, save_state_dict
from .flat import Stateful

__all__ = ["AsyncCheckpointerType", "CheckpointException", "FileSystemReader", "FileSystemWriter", "Stateful", "async_save",
           "load", "load_state_dict", "save", "save_state_dict"]
_REASON = "it is not implemented"
globals().update(refused("distributed.checkpoint", _REASON, "StorageReader StorageWriter HuggingFaceStorageReader "
                                                            "HuggingFaceStorageWriter load_sharded_optimizer_state_dict"))
_modules = refused_modules(__name__, _REASON, {
    "default_planner": "DefaultLoadPlanner DefaultSavePlanner _EmptyStateDictLoadPlanner",
    "state_dict_loader": "_load_state_dict",
    "state_dict_saver": "",
    "stateful": "",
    "optimizer": "load_sharded_optimizer_state_dict",
    "hf_storage": "HuggingFaceStorageReader HuggingFaceStorageWriter",
    "_consolidate_hf_safetensors": "consolidate_safetensors_files",
})
_modules["state_dict_loader"].__dict__.update(load=load, load_state_dict=load_state_dict)
_modules["state_dict_saver"].__dict__.update(save=save, async_save=async_save, save_state_dict=save_state_dict,
                                             AsyncCheckpointerType=AsyncCheckpointerType)
_modules["stateful"].Stateful = Stateful
