"""Kernels by position."""
