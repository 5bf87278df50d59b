"""The backend of `vmap`: arrays that show one example and hold the whole batch, and a batching rule per kernel.

`arrays.py` has the array, `table.py` the rules by kernel name, `backend.py` what the rest of flambeau asks of a backend; the
other files are rules by family. A rule is given the level and the kernel's arguments; it runs kernels on the whole arrays.
"""
