"""Two-way dictionary between PyTorch's names in pickles and flambeau's objects.

Files name PyTorch's classes and functions (`torch._utils._rebuild_tensor_v2`, `torch.nn.modules.linear.Linear`), so
that either library can read what the other wrote. Nothing here imports torch.
"""

from __future__ import annotations

import importlib
from typing import Any

from ..tensors import dtypes as _dtypes
from ..tensors import formats
from ..tensors.device import device
from ..tensors.parameter import Parameter
from ..tensors.storage import TypedStorage, UntypedStorage
from ..tensors.tensor import Size, Tensor
from . import rebuild

# ------------------------------------------------------------------------------------------------------ storage types
STORAGE_NAMES = {d: f"{d.word}Storage" for d in _dtypes.ALL if d.word not in (d.name, "ComplexHalf")}
_STORAGE_DTYPES = {name: dtype for dtype, name in STORAGE_NAMES.items()}
_STORAGE_DTYPES.update(UntypedStorage=_dtypes.uint8, TypedStorage=_dtypes.uint8)
# uint16, float8...: these have no storage class; their tensors are saved over plain bytes


class StorageType:
    """What a storage class in a file stands for: its dtype."""

    def __init__(self, name: str):
        self._dtype = _STORAGE_DTYPES[name]

    @property
    def dtype(self) -> Any:
        return self._dtype

    def __str__(self) -> str:
        return f"StorageType(dtype={self.dtype})"


def get_layout(name: str) -> Any:
    """A layout from its printed form, `torch.sparse_coo`."""
    found = getattr(formats, name.removeprefix("torch."), None) if isinstance(name, str) else None
    if not isinstance(found, formats.layout):
        raise KeyError(f"no layout is named {name!r}")
    return found


# ------------------------------------------------------------------------------------------------- names in both ways
_REBUILDERS = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_parameter",
               "_rebuild_parameter_with_state", "_rebuild_meta_tensor_no_storage", "_rebuild_sparse_tensor",
               "_rebuild_qtensor", "_rebuild_nested_tensor", "_rebuild_wrapper_subclass",
               "_rebuild_device_tensor_from_numpy", "_rebuild_device_tensor_from_cpu_tensor")
# PyTorch's full name -> flambeau's object: everything a file may use under weights_only, apart from Python's own types
SAFE: dict[str, Any] = {f"torch._utils.{name}": getattr(rebuild, name) for name in _REBUILDERS}
SAFE.update({
    "torch._tensor._rebuild_from_type_v2": rebuild._rebuild_from_type_v2,
    "torch.serialization._get_layout": get_layout,
    "torch.Size": Size,
    "torch.Tensor": Tensor,
    "torch.device": device,
    "torch.nn.parameter.Parameter": Parameter,
})
SAFE.update({f"torch.{d.name}": d for d in _dtypes.ALL})
for _name in _STORAGE_DTYPES:
    SAFE[f"torch.{_name}"] = SAFE[f"torch.storage.{_name}"] = StorageType(_name)
for _dtype, _name in STORAGE_NAMES.items():  # very old files: an empty FloatTensor that is then told its storage
    SAFE[f"torch.{_name.replace('Storage', 'Tensor')}"] = rebuild.LegacyTensor(_dtype)

_MOVED = {"torch.tensor._rebuild_from_type_v2": "torch._tensor._rebuild_from_type_v2"}


def _torch_name_of_safe() -> dict[int, tuple[str, str]]:
    return {id(value): tuple(full.rsplit(".", 1)) for full, value in SAFE.items() if not isinstance(value, StorageType)}


_BY_OBJECT: dict[int, tuple[str, str]] = _torch_name_of_safe()
_BY_OBJECT[id(UntypedStorage)] = ("torch.storage", "UntypedStorage")
_BY_OBJECT[id(TypedStorage)] = ("torch.storage", "TypedStorage")

# flambeau.nn's files -> PyTorch's, where the name is another; a class that starts with one of the words goes there
_NN_FILES = {"containers": "container", "embedding": "sparse", "attention_layer": "activation", "norm": "normalization"}
_NN_WORDS = {"norm": (("BatchNorm", "batchnorm"), ("SyncBatchNorm", "batchnorm"), ("LazyBatchNorm", "batchnorm"),
                      ("InstanceNorm", "instancenorm"), ("LazyInstanceNorm", "instancenorm")),
             "shuffle": (("Pixel", "pixelshuffle"), ("Channel", "channelshuffle")),
             "containers": (("Identity", "linear"),)}
_OPTIM_FILES = {"SparseAdam": ".sparse_adam", "Adafactor": "", "Muon": ""}


def torch_name(obj: Any) -> tuple[str, str] | None:
    """The module and name by which PyTorch knows one of flambeau's classes or functions; None for everything else."""
    found = _BY_OBJECT.get(id(obj))
    if found is not None:
        return found
    module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
    if not isinstance(module, str) or name is None:
        return None
    if module == "torch.return_types":
        return module, name
    root, _, rest = module.partition(".")
    if root != "flambeau" or rest.startswith("serialization"):
        return None
    if rest == "storage" and name in _STORAGE_DTYPES:
        return "torch", name
    return _torch_home(obj, rest, name)


def _torch_home(obj: Any, rest: str, name: str) -> tuple[str, str]:
    """PyTorch's place for something that flambeau defines in the file flambeau.<rest>."""
    folder, _, file = rest.partition(".")
    is_class = isinstance(obj, type)
    if rest in ("parameter", "nn.parameter"):
        return "torch.nn.parameter", name
    if rest == "autograd.hooks":
        return "torch.utils.hooks", name
    if folder == "nn" and is_class and "." not in file and file != "parallel":
        for word, home in _NN_WORDS.get(file, ()):
            if name.startswith(word):
                return f"torch.nn.modules.{home}", name
        return f"torch.nn.modules.{_NN_FILES.get(file, file)}", name
    if folder == "nn" and file.partition(".")[0] == "functional":
        return "torch.nn.functional", name
    if folder == "optim" and is_class and file not in ("lr_scheduler", "swa_utils"):
        return f"torch.optim{_OPTIM_FILES.get(name, '.' + name.lower())}", name
    if folder in ("ops", "creation", "random", "interop", "settings", "dtypes", "device", "tensor", "formats"):
        return "torch", name
    return (f"torch.{rest}" if rest else "torch"), name


# -------------------------------------------------------------------------------------------------------- torch -> here
def resolve(module: str, name: str) -> Any:
    """flambeau's object for one of PyTorch's; AttributeError where there is none."""
    full = f"{module}.{name}"
    known = SAFE.get(_MOVED.get(full, full))
    if known is not None:
        return known
    if full == "torch._C._VariableFunctionsClass" or full == "torch._C._VariableFunctions":
        return importlib.import_module("flambeau")
    for home in _homes(module):
        try:
            found: Any = importlib.import_module(home)
            for part in name.split("."):
                found = getattr(found, part)
        except (AttributeError, ModuleNotFoundError):
            continue
        return found
    raise AttributeError(f"the file names '{full}', which flambeau does not have")


def _homes(module: str) -> list[str]:
    """Modules of flambeau to look into for a name of this PyTorch module."""
    rest = module.removeprefix("torch").lstrip(".")
    homes = [f"flambeau.{rest}" if rest else "flambeau"]
    if rest.startswith("nn.modules"):
        homes.append("flambeau.nn")
    elif rest.startswith("optim"):
        homes.append("flambeau.optim")
    elif rest == "_C._nn":
        homes += ["flambeau.nn.functional", "flambeau"]
    elif rest.startswith(("_C", "_tensor", "_utils", "storage")):
        homes.append("flambeau")
    return homes
