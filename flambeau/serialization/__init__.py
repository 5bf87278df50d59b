"""Tensors on disk and in pickles."""
