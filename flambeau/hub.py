"""`torch.hub`: where downloaded files are kept. flambeau itself downloads nothing."""

from __future__ import annotations

import os

from .missing import refusal

_directory: list[str | None] = [None]
_OFFLINE = "downloading from the network is not implemented; download the file and load it with torch.load"


def get_dir() -> str:
    """The folder for downloaded files: $TORCH_HOME/hub, by default ~/.cache/torch/hub."""
    if _directory[0] is not None:
        return _directory[0]
    home = os.environ.get("TORCH_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "torch")
    return os.path.join(os.path.expanduser(home), "hub")


def set_dir(d: str | os.PathLike) -> None:
    """Sets the folder for downloaded files."""
    _directory[0] = os.path.expanduser(d)


for _name in ("load", "list", "help", "download_url_to_file"):
    globals()[_name] = refusal(f"hub.{_name}", _OFFLINE)


def load_state_dict_from_url(url: str, model_dir: str | None = None, map_location=None, progress: bool = True,
                             check_hash: bool = False, file_name: str | None = None, weights_only: bool = False):
    """Loads a checkpoint that lies in the folder of downloaded files already; nothing is downloaded."""
    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    path = os.path.join(folder, file_name or os.path.basename(url.split("?")[0]))
    if not os.path.exists(path):
        raise NotImplementedError(f"load_state_dict_from_url: flambeau does not download; put {url} at {path}")
    from .serialization import load
    return load(path, map_location=map_location, weights_only=weights_only)
