"""`torch.storage` is tensors/storage.py."""

import sys

from .tensors import storage

sys.modules[__name__] = storage
