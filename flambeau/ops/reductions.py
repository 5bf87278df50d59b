"""Sums, extrema, norms and statistics over dimensions."""
