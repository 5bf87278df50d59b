"""NumPy's floating-point warnings: PyTorch gives inf and nan in silence, and so do we.

`np.errstate` around each kernel would cost more than most kernels, so a thread is silenced once, when it first uses the
framework.
"""

import numpy as np


def silence() -> None:
    np.seterr(all="ignore")
