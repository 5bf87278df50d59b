"""CPU kernels: shape."""
