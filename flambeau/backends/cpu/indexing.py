"""CPU kernels: indexing."""
