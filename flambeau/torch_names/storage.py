"""`torch.storage` is tensors/storage.py, and what pickled storages of PyTorch's call."""

import io
import sys
from typing import Any

from .serialization import load
from .tensors import storage


def _load_from_bytes(b: bytes) -> Any:
    """What a pickled storage of PyTorch's calls."""
    return load(io.BytesIO(b), weights_only=False)


storage._load_from_bytes = _load_from_bytes
sys.modules[__name__] = storage
