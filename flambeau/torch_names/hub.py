"""`torch.hub`: models described by a `hubconf.py`, and checkpoints by their address.

Folders on this machine are used as they are (`source="local"`). Nothing is downloaded but single checkpoints, and those
only when the network is there; what lies in the folder of downloads already is used.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlparse

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]

_directory: builtins.list[str | None] = [None]
HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # name-<start of the checksum>.pth


def _get_torch_home() -> str:
    """The folder of all that is downloaded: $TORCH_HOME, by default ~/.cache/torch."""
    home = os.environ.get("TORCH_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "torch")
    return os.path.expanduser(home)


def get_dir() -> str:
    """The folder for downloaded files: $TORCH_HOME/hub, by default ~/.cache/torch/hub."""
    if _directory[0] is not None:
        return _directory[0]
    return os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike) -> None:
    """Sets the folder for downloaded files."""
    _directory[0] = os.path.expanduser(d)


# ------------------------------------------------------------------------------------------------------------ models
def _entries(repo_or_dir: str, source: str) -> Any:
    """The module hubconf.py of a folder."""
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    folder = repo_or_dir
    if source == "github":
        name = re.sub(r"[/:]", "_", repo_or_dir)
        found = [d for d in (os.path.join(get_dir(), name), os.path.join(get_dir(), f"{name}_main"),
                             os.path.join(get_dir(), f"{name}_master")) if os.path.isdir(d)]
        if not found:
            raise NotImplementedError(f"hub: downloading repositories is not implemented in flambeau; fetch {repo_or_dir} and "
                                      "give its folder with source='local'")
        folder = found[0]
    folder = os.path.expanduser(folder)
    path = os.path.join(folder, "hubconf.py")
    if not os.path.isfile(path):
        raise FileNotFoundError(f"hub: {folder} has no hubconf.py")
    sys.path.insert(0, folder)  # for what it imports of its own
    try:
        spec = importlib.util.spec_from_file_location("hubconf", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    lacking = [d for d in getattr(module, "dependencies", []) if importlib.util.find_spec(d) is None]
    if lacking:
        raise RuntimeError(f"Missing dependencies: {', '.join(lacking)}")
    return module


def _entry(module: Any, name: str) -> Any:
    if not isinstance(name, str):
        raise ValueError("Invalid input: model should be a string of function name")
    function = getattr(module, name, None)
    if not callable(function):
        raise RuntimeError(f"Cannot find callable {name} in hubconf")
    return function


def list(github: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = None,
         verbose: bool = True, *, source: str = "github") -> builtins.list[str]:
    """The names of the models that a hubconf.py offers."""
    module = _entries(github, "local" if os.path.isdir(os.path.expanduser(github)) else source)
    return [name for name in dir(module) if callable(getattr(module, name)) and not name.startswith("_")]


def help(github: str, model: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = None,
         *, source: str = "github") -> str | None:
    """What a hubconf.py says of a model."""
    return _entry(_entries(github, "local" if os.path.isdir(os.path.expanduser(github)) else source), model).__doc__


def load(repo_or_dir: str, model: str, *args: Any, source: str = "github", trust_repo: Any = None, force_reload: bool = False,
         verbose: bool = True, skip_validation: bool = False, **kwargs: Any) -> Any:
    """What a hubconf.py's function returns."""
    return _entry(_entries(str(repo_or_dir), source.lower()), model)(*args, **kwargs)


# ------------------------------------------------------------------------------------------------------- checkpoints
def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Fetches a file; it appears whole or not at all. hash_prefix: how its SHA-256 must begin; progress: with a bar."""
    from .utils import progress as bars
    folder = os.path.dirname(os.path.expanduser(dst)) or "."
    handle, partial = tempfile.mkstemp(dir=folder)
    digest = hashlib.sha256()
    try:
        with os.fdopen(handle, "wb") as file, urllib.request.urlopen(url, timeout=30) as answer:
            size = answer.headers.get("Content-Length") if answer.headers else None
            with bars.progress(None, os.path.basename(dst), int(size) if size else None, "B", quiet=not progress) as bar:
                while block := answer.read(1 << 17):
                    file.write(block)
                    digest.update(block)
                    bar.update(len(block))
        if hash_prefix is not None and not digest.hexdigest().startswith(hash_prefix):
            raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}")')
        shutil.move(partial, os.path.expanduser(dst))
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def load_state_dict_from_url(url: str, model_dir: str | None = None, map_location: Any = None, progress: bool = True,
                             check_hash: bool = False, file_name: str | None = None, weights_only: bool = False) -> Any:
    """Loads a checkpoint from the folder of downloads, and fetches it first if it is not there."""
    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        found = HASH_REGEX.search(name) if check_hash else None
        try:
            download_url_to_file(url, path, found[1] if found else None, progress)
        except urllib.error.URLError as error:
            raise urllib.error.URLError(f"{error.reason}; {url} could not be fetched: put the file at {path}") from error
    from .serialization import load
    return load(path, map_location=map_location, weights_only=weights_only)


def __getattr__(name: str) -> Any:
    if name != "tqdm":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .utils.progress import kind
    return kind()  # tqdm's where it is installed
