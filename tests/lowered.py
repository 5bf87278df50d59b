"""Runs what the compiler's lowerings write: many kernel calls in one C file."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np

from flambeau import native
from flambeau.backends.cpu.table import KERNELS
from flambeau.compiler.ir.parts import INPUT, Op, Storage, Value
from flambeau.compiler.render.dialects.c import written_out
from flambeau.compiler.render.dialects.c_program import prototype, signatures
from flambeau.compiler.render.dialects.c_statements import code
from flambeau.compiler.render.lower import lowered
from flambeau.native import toolchain


def value_of(x: np.ndarray, held: list[np.ndarray]) -> Value:
    held.append(x)
    storage = Storage(len(held) - 1, INPUT, x.ctypes.data, x.nbytes, x)
    return Value(storage, 0, x.shape, tuple(s // x.itemsize for s in x.strides), x.dtype)


def _values(args: Any, held: list[np.ndarray]) -> list[Any]:
    return [value_of(a, held) if isinstance(a, np.ndarray) else _values(a, held) if isinstance(a, list) else a for a in args]


def run_lowered(cases: list[tuple[str, tuple[Any, ...]]]) -> list[list[np.ndarray]]:
    """The results of each (kernel, arguments), by its lowering. A lowering that refuses is an error."""
    made = run_all([(*case, None) for case in cases])
    assert not any(status for status, _ in made)
    return [outs for _, outs in made]


def run_all(cases: list[tuple[str, tuple[Any, ...], Any]]) -> list[tuple[int, list[np.ndarray]]]:
    """(status, results) of each (kernel, arguments, arrays like the results or None: the kernel makes them)."""
    parts, all_held, results = [], [], []
    for i, (name, args, made) in enumerate(cases):
        if made is None:
            with native.off():
                made = KERNELS[name](*[a.copy() if isinstance(a, np.ndarray) else a for a in args])
        made = made if isinstance(made, tuple) else (made,)
        held: list[np.ndarray] = []
        values = _values(args, held)
        outs = [np.full(m.shape, 77, m.dtype) for m in made if m is not None]
        op = Op(name, values, [value_of(out, held) for out in outs], [], None)
        made = lowered(op)
        assert made is not None, f"no lowering for {name} of {[getattr(a, 'shape', a) for a in args]}"
        text = written_out("\n".join(code(made, lambda v: (v.storage.id, v.offset))))
        slots = "".join(f"    char *s{j} = p[{j}];\n" for j in range(len(held)))
        parts.append(f"long go{i}(char **p, char *scratch) {{\n    long status = 0;\n{slots}{text}\nfailed:\n"
                     "    return status;\n}\n")
        all_held.append((held, sum(op.scratches)))
        results.append(outs)
    body = "\n".join(parts)
    functions = {f for f in re.findall(r"\bfl_\w+", body) if f in signatures()}
    for f in functions:
        native.library(signatures()[f][0])
    source = '#include "runtime.h"\n' + "\n".join(prototype(f) for f in sorted(functions)) + "\n" + body
    handle = toolchain.load(toolchain.build(source, "lowered"))
    answers = []
    for i, (held, scratch) in enumerate(all_held):
        addresses = (ctypes.c_void_p * len(held))(*[x.ctypes.data for x in held])
        status = getattr(handle, f"go{i}")(addresses, ctypes.create_string_buffer(scratch + 64))
        answers.append((status, results[i]))
    return answers
