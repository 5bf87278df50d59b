"""What exists because PyTorch has the name.

The files here are `flambeau.<name>`: this folder is on the package's path.
"""
