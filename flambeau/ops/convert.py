"""dtype, device and memory-format conversion; clone, detach, copy_. (Being written.)"""
from ..tensor import Tensor, wrap
from ..autograd.node import VersionCounter
def detach(self):
    t = wrap(self._array)
    if self._counter is None: self._counter = VersionCounter()
    t._counter = self._counter
    return t
Tensor.detach = detach
