"""Calls whose Python runs while their kernels wait."""
