"""Importing this module makes `torch` mean flambeau from then on (compat.py): for processes that are told what to import."""

from .compat import install

install()
