"""`torch.overrides` is ops/core/overrides.py."""

import sys

from .ops.core import overrides

sys.modules[__name__] = overrides
