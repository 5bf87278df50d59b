"""What a user can see of a program, as plain data; and where two runs of it differ."""

from __future__ import annotations

import collections
import contextlib
import enum
import gc
import io
import math
import random
import re
import sys
import threading
import types
import warnings

import numpy as np

import flambeau as torch
from flambeau import nn, optim

ROUGH = {"torch.float16": 1e-2, "torch.bfloat16": 2e-2}
PLAIN = bool, int, float, str, type(None)
OPAQUE = type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.GeneratorType


def plain(value, around=()):
    """A copy that later calls cannot change, made of lists, numbers and text; containers say their type."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, enum.Enum):
        return str(value)
    name = type(value).__name__
    if id(value) in around:
        return f"{name} around this"
    inside = (*around, id(value))
    if isinstance(value, torch.Tensor):
        return [name, *tensor(value)]
    if isinstance(value, np.ndarray):
        return [name, str(value.dtype), list(value.shape), [plain(v, inside) for v in value.ravel().tolist()]]
    if isinstance(value, nn.Module):
        grads = {n: p.grad for n, p in value.named_parameters()}
        return [name, plain(value.state_dict(), inside), unsigned_zeros(plain(grads, inside)),
                [m.training for m in value.modules()]]
    if isinstance(value, optim.Optimizer):
        return [name, unsigned_zeros(plain(value.state_dict(), inside))]
    if isinstance(value, (dict, collections.UserDict)):
        return [name, [[plain(k, inside), plain(v, inside)] for k, v in value.items()]]
    if isinstance(value, (set, frozenset)):
        return [name, *sorted(map(repr, value))]
    if isinstance(value, (complex, bytes, bytearray)):
        return [name, repr(value)]
    if isinstance(value, PLAIN):  # of a class of its own
        return [name, repr(value)]
    if hasattr(value, "__iter__") and hasattr(value, "__len__"):
        return [name, *[plain(v, inside) for v in value]]
    return name if isinstance(value, OPAQUE) or not hasattr(value, "__dict__") else [name, plain(vars(value), inside)]


def unsigned_zeros(described):
    """A gradient is a sum of products. Where all of them are zero, as for what dropout left out, its sign is rounding's."""
    if isinstance(described, list):
        return [unsigned_zeros(v) for v in described]
    return 0.0 if isinstance(described, float) and described == 0 else described


def tensor(value):
    v = value.detach().to_dense() if value.is_sparse else value.detach()
    v = torch.view_as_real(v.resolve_conj()) if v.is_complex() else v
    return str(value.dtype), list(value.shape), value.requires_grad, v.flatten().tolist()


def settings():
    """What a capture must leave as it was."""
    return dict(collecting=gc.isenabled(), frozen=gc.get_freeze_count(), thresholds=gc.get_threshold(),
                profiler=sys.getprofile(), tracer=sys.gettrace(), thread_profiler=threading.getprofile(),
                recursion=sys.getrecursionlimit(), interval=sys.getswitchinterval(), grad=torch.is_grad_enabled(),
                inference=torch.is_inference_mode_enabled(), dtype=str(torch.get_default_dtype()),
                threads=torch.get_num_threads(), excepthook=sys.excepthook, displayhook=sys.displayhook)


@contextlib.contextmanager
def watched():
    """From the same seeds: gives a list that collects [piece, text printed meanwhile], and what is left in the end."""
    torch.compiler.reset()
    torch.manual_seed(0), random.seed(0), np.random.seed(0)
    printed = io.StringIO()

    class Shown(list):
        def add(self, piece):
            self.append([plain(piece), printed.getvalue()])
            printed.seek(0), printed.truncate()
    shown = Shown()
    with (warnings.catch_warnings(record=True) as warned, contextlib.redirect_stdout(printed),
          contextlib.redirect_stderr(printed)):
        warnings.simplefilter("always")
        yield shown
    shown.add("the end")
    shown.append(["warned", [str(w.message) for w in warned if "flambeau.compile" not in str(w.message)]])
    shown.append(["next random numbers", torch.rand(2).tolist(), random.random(), float(np.random.rand())])


def difference(want, got, rtol=1e-4):
    """Where and how two plain values differ, or None. Floats agree to rtol, everything else exactly."""
    if type(want) is not type(got):
        return f"{short(got)} instead of {short(want)}"
    if isinstance(want, list):
        if len(want) != len(got):
            return f"{len(got)} items instead of {len(want)}: {short(got)} instead of {short(want)}"
        rtol = ROUGH.get(want[1], rtol) if len(want) == 5 and isinstance(want[1], str) else rtol
        return next((f"[{i}] {d}" for i, (w, g) in enumerate(zip(want, got)) if (d := difference(w, g, rtol))), None)
    if isinstance(want, float):
        close = math.isclose(want, got, rel_tol=rtol, abs_tol=1e-5) or (want != want and got != got)
        same = close and (want != 0 or got != 0 or math.copysign(1, want) == math.copysign(1, got))
    elif isinstance(want, str) and want != got:  # printed numbers are floats too
        same = alike(want, got, rtol)
    else:
        same = want == got
    return None if same else f"{short(got)} instead of {short(want)}"


def alike(want, got, rtol, number=re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")):
    """Do texts agree but for the last digits of their decimal fractions?"""
    if number.sub("#", want) != number.sub("#", got):
        return False
    pairs = zip(map(float, number.findall(want)), map(float, number.findall(got)))
    return all(math.isclose(w, g, rel_tol=rtol, abs_tol=1e-4) for w, g in pairs)


def short(value):
    text = repr(value)
    return text if len(text) < 100 else text[:97] + "..."
