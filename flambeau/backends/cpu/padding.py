"""Kernels (being written)."""
