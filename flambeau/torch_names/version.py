"""Versions, as PyTorch programs read them."""

__version__ = "0.1.0"
debug = False
cuda = None
hip = None
xpu = None
git_version = "unknown"
