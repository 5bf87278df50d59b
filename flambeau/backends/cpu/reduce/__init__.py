"""Kernels along dimensions."""
