"""Kernels of views, joining and windows."""
