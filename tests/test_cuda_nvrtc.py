"""Every hand-written CUDA kernel, and a sample of the generated ones, goes through NVIDIA's compiler, which needs no GPU.

The texts are those that the tests' own programs ask for: the machine notes them while the host plays the device.
"""

from __future__ import annotations

import pytest

from flambeau.backends.cuda import compile as nvrtc
from flambeau.backends.cuda.driver import Unavailable


@pytest.fixture(scope="module", autouse=True)
def _compiler():
    try:
        nvrtc.nvrtc()
    except Unavailable as why:
        pytest.skip(str(why))
