"""CPU kernels: reductions."""
