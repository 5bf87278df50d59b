"""The places where programs look for PyTorch's internals of data loading: other names of the modules above."""

from __future__ import annotations

import sys

from .. import collate, fetch, worker
from . import pin_memory

MP_STATUS_CHECK_INTERVAL = 5.0
python_exit_status = False
HAS_NUMPY = True

for _name, _module in {"collate": collate, "fetch": fetch, "worker": worker}.items():
    sys.modules[f"{__name__}.{_name}"] = _module  # the very same module, so that what is patched there takes effect

__all__ = ["collate", "fetch", "pin_memory", "worker"]
