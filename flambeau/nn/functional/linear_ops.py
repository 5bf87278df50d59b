"""The linear and bilinear maps."""

from ...ops.linear import bilinear, linear

__all__ = ["bilinear", "linear"]
