"""Batching rules."""
