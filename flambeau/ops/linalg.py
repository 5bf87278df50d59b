"""Decompositions and solvers."""
