"""`torch.random` is creation/random.py."""

import sys

from .creation import random

sys.modules[__name__] = random
