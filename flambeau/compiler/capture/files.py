"""Whose code a file holds: what the captured call's witness makes of a function depends on that."""

from __future__ import annotations

import functools
import os
import sys
from types import CodeType

import ml_dtypes
import numpy as np

_OURS = os.path.dirname(os.path.abspath(sys.modules[__name__.partition(".")[0]].__file__)) + os.sep
_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_NUMPY = tuple(os.path.dirname(os.path.abspath(m.__file__)) + os.sep for m in (np, ml_dtypes))
# Parts of flambeau that read nothing but their arguments and the settings in a call's signature.
_OPERATIONS = tuple([part.replace("/", os.sep) for part in (
    *"ops/ autograd/ backends/ native/ amp/ compiler/ creation/ nn/functional/ nn/_reduction.py settings.py".split(),
    *[f"tensors/{name}.py" for name in
      "tensor parameter dtypes device shapes formats methods return_types".split()],
    *[f"torch_names/{name}.py" for name in "linalg fft special functional complete _VF checks".split()],
    "torch_names/sparse/")])
# Files of flambeau's that run as they are: their state is noted by `_optimizer`, optimizers.py and `_module`.
TOLD = tuple(_OURS + f for f in (f"optim{os.sep}", f"nn{os.sep}module.py", f"nn{os.sep}hooks.py", f"nn{os.sep}functional",
                                  f"tensors{os.sep}storage.py",
                                  f"tensors{os.sep}interop.py", f"tensors{os.sep}printing.py", "__init__.py",
                                  f"torch_names{os.sep}missing.py", f"torch_names{os.sep}compat.py",
                                  f"torch_names{os.sep}internals.py"))


TRUSTED: set[CodeType] = set()  # code without a source of which it is known what it does


@functools.cache
def where(file: str) -> str:
    """Whose code it is: "operation", "flambeau" (rewritten like the user's), "foreign" (Python's own, NumPy) or "user"."""
    if file.startswith(_OURS):
        return "operation" if file[len(_OURS):].startswith(_OPERATIONS) else "flambeau"
    if file.startswith(("<frozen", *_NUMPY)) or (file.startswith(_STDLIB) and "site-packages" not in file):
        return "foreign"
    return "user"
