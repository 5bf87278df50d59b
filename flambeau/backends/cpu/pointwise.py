"""Pointwise kernels: NumPy's own functions under PyTorch's names, and the few it lacks."""

from __future__ import annotations

import numpy as np

from .table import add, kernel

add(add=np.add, sub=np.subtract, mul=np.multiply, neg=np.negative, exp=np.exp, tanh=np.tanh, sin=np.sin, cos=np.cos)
add(eq=np.equal, ne=np.not_equal, lt=np.less, le=np.less_equal, gt=np.greater, ge=np.greater_equal)
