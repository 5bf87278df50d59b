"""CPU kernels: sorting."""
