"""What tests of compiled functions on a CUDA device share: numbers to begin with, and a look at what became of a function."""

from __future__ import annotations

import numpy as np

import flambeau as torch


def program(fn):
    (plan,) = [p for plans in fn._compiled.plans.values() for p in plans]
    assert plan.program.graph is not None, plan.program.refused
    return plan.program


def kernels(fn):
    return [op.kernel for op in program(fn).ops]


def draw(*shape, dtype=torch.float32, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape) * 2).to(dtype).cuda()
