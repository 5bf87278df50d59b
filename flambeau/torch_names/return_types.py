"""`torch.return_types` is tensors/return_types.py."""

import sys

from .tensors import return_types

sys.modules[__name__] = return_types
