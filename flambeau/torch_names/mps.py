"""`torch.mps`: there is no such device in this build, and the questions programs ask first say so."""

from .absent_device import *  # noqa: F403
from .absent_device import refuse as _refuse


def synchronize() -> None:
    raise RuntimeError("Cannot execute deviceSynchronize() without MPS backend.")


__getattr__ = _refuse("mps")
