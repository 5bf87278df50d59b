"""The linear and bilinear maps, and products of groups of rows."""

from ...ops.grouped import grouped_mm
from ...ops.linear import bilinear, linear

__all__ = ["bilinear", "grouped_mm", "linear"]
