"""Kernels of linear algebra, matrix products and Fourier transforms."""
