"""The CPU backend: NumPy arrays and the kernels over them."""
