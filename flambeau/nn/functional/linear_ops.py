"""The linear and bilinear maps, and products of groups of rows."""

from ...ops.layers.linear import bilinear, linear
from ...ops.linalg.grouped import grouped_mm

__all__ = ["bilinear", "grouped_mm", "linear"]
