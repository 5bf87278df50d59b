"""Joining, repeating and rearranging: results with memory of their own."""
