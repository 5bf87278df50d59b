"""`torch.xpu`: there is no such device in this build, and the questions programs ask first say so."""

from .absent_device import *  # noqa: F403
from .absent_device import refuse as _refuse

__getattr__ = _refuse("xpu")
