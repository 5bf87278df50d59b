"""Connectionist temporal classification: a block per sequence, its threads share the states of each step."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from . import faults
from .arrays import CudaArray, device_index, download, upload, windows
from .backend import contiguous, copied
from .launch import launch
from .places import positions
from .pointwise import STORED
from .rows import is_real, wide
from .table import kernel as enter

_TEXT = """
#include "faults.cuh"
typedef {a} A;
typedef {w} W;
// States of a sequence: its labels with blanks around each. starts: where its labels are; inputs: its steps
struct Paths {{ long steps, batch, classes, states, blank, zero; }};
#define LOW (-INFINITY)

static __device__ inline W add_logs(W a, W b, W c) {{
    const W high = a > b ? (a > c ? a : c) : (b > c ? b : c);
    return high == LOW ? LOW : high + log_{s}(exp_{s}(a - high) + exp_{s}(b - high) + exp_{s}(c - high));
}}
static __device__ inline long label(const Paths &f, const long *labels, long state) {{
    return state % 2 ? labels[state / 2] : f.blank;
}}

extern "C" __global__ void forwards(const Paths f, W *alpha, W *loss, const A *x, const long *targets, const long *starts,
                                    const long *inputs, const long *lengths, long address, long site) {{
    for (long b = blockIdx.x; b < f.batch; b += gridDim.x) {{
        const long *labels = targets + starts[b];
        const long own = 2 * lengths[b] + 1;
        W *row = alpha + b * f.steps * f.states;
        for (long t = 0; t < f.steps; t++, row += f.states) {{
            const W *before = row - f.states;
            for (long s = threadIdx.x; s < f.states; s += blockDim.x) {{
                const long c = s < own ? checked({{address, site}}, label(f, labels, s), f.classes, false) : -1;
                if (c < 0 || t >= inputs[b] || (!t && s > 1)) {{
                    row[s] = LOW;
                    continue;
                }}
                const W come = (W)value_of(x[(t * f.batch + b) * f.classes + c]);
                const bool skip = s > 2 && s % 2 && labels[s / 2] != labels[s / 2 - 1];
                row[s] = !t ? come : come + add_logs(before[s], s ? before[s - 1] : LOW, skip ? before[s - 2] : LOW);
            }}
            __syncthreads();
        }}
        if (!threadIdx.x) {{
            const W *last = alpha + (b * f.steps + inputs[b] - 1) * f.states + own - 1;
            loss[b] = !inputs[b] ? (own == 1 ? (W)0 : (W)INFINITY) : -add_logs(last[0], own > 1 ? last[-1] : LOW, LOW);
        }}
    }}
}}

// beta: two rows of states for each sequence.
extern "C" __global__ void backwards(const Paths f, A *o, W *beta, const A *grad, const A *x, const long *targets,
                                     const long *starts, const long *inputs, const long *lengths, const A *loss,
                                     const A *alpha) {{
    for (long b = blockIdx.x; b < f.batch; b += gridDim.x) {{
        const long *labels = targets + starts[b];
        const long own = 2 * lengths[b] + 1;
        const W nll = (W)value_of(loss[b]), g = (W)value_of(grad[b]);
        const bool blank = f.zero && nll == (W)INFINITY;
        for (long t = f.steps - 1; t >= 0; t--) {{
            W *now = beta + (2 * b + t % 2) * f.states;
            const W *after = beta + (2 * b + (t + 1) % 2) * f.states;
            const A *come = x + (t * f.batch + b) * f.classes, *forward = alpha + (b * f.steps + t) * f.states;
            A *made = o + (t * f.batch + b) * f.classes;
            const bool inside = t < inputs[b];
            for (long s = threadIdx.x; s < own; s += blockDim.x) {{
                const W here = (W)value_of(come[label(f, labels, s)]);
                const bool skip = s % 2 && s + 2 < own && labels[s / 2] != labels[s / 2 + 1];
                now[s] = t == inputs[b] - 1 ? (s >= own - 2 ? here : LOW) : !inside ? LOW :
                         here + add_logs(after[s], s + 1 < own ? after[s + 1] : LOW, skip ? after[s + 2] : LOW);
            }}
            // No path: what is not a number, as the loss is infinite.
            for (long c = threadIdx.x; c < f.classes; c += blockDim.x)
                made[c] = to<A>(!inside || blank ? (W)0 : nll == (W)INFINITY ? (W)NAN : exp_{s}((W)value_of(come[c])) * g);
            __syncthreads();
            // The first state of each label takes off what all of its states are visited by.
            for (long s = threadIdx.x; s < own && inside && nll != (W)INFINITY; s += blockDim.x) {{
                const long c = label(f, labels, s);
                bool first = s == 0 || s % 2;
                for (long k = 0; k < s && first; k++) first = label(f, labels, k) != c;
                if (!first) continue;
                W high = LOW, total = 0;
                for (long k = s; k < own; k++) {{
                    const W both = (W)value_of(forward[k]) + now[k];
                    if (label(f, labels, k) == c && both > high) high = both;
                }}
                if (high == LOW) continue;
                for (long k = s; k < own; k++)
                    if (label(f, labels, k) == c) total += exp_{s}((W)value_of(forward[k]) + now[k] - high);
                const W p = (W)value_of(come[c]);
                made[c] = to<A>((exp_{s}(p) - exp_{s}(log_{s}(total) + high + nll - p)) * g);
            }}
            __syncthreads();
        }}
    }}
}}
"""


class _Paths:
    """The sizes of a batch, and the texts and places of its labels. How long they are is waited for."""

    def __init__(self, x: CudaArray, targets: CudaArray, inputs: CudaArray, lengths: CudaArray, blank: int, zero: bool):
        steps, batch, classes = x.shape
        host = download(lengths)
        self.states = 2 * int(host.max(initial=0)) + 1
        flat = np.cumsum(host) - host if targets.ndim == 1 else np.arange(batch, dtype=np.int64) * targets.shape[1]
        self.arrays = positions(targets), upload(np.ascontiguousarray(flat, np.int64)), positions(inputs), positions(lengths)
        self.fixed = struct.pack("6q", steps, batch, classes, self.states, blank, zero)
        self.text = _TEXT.format(a=STORED[x.dtype], w=wide(x.dtype), s="f64" if wide(x.dtype) == "double" else "f32")
        self.wide = np.dtype(np.float64 if wide(x.dtype) == "double" else np.float32)
        self.blocks, self.device = batch * 256, device_index(x)

    def plan(self, name: str, kinds: str) -> Any:
        return launch(self.text, name, kinds, self.blocks, self.fixed, self.device)


@enter("ctc_loss")
def ctc_loss(log_probs: CudaArray, targets: CudaArray, input_lengths: CudaArray, target_lengths: CudaArray, blank: int,
             zero_infinity: bool) -> Any:
    """(negative log-likelihoods (batch,), alpha (batch, time, states)) of log_probs (time, batch, classes)."""
    if not is_real(log_probs):
        return NotImplemented
    x = contiguous(log_probs)
    paths = _Paths(x, targets, input_lengths, target_lengths, blank, zero_infinity)
    steps, batch, _ = x.shape
    loss, alpha = windows.empty((batch,), paths.wide), windows.empty((batch, steps, paths.states), paths.wide)
    if batch:
        site = faults.site(RuntimeError, "ctc_loss: the label {} of a target is none of the classes")
        paths.plan("forwards", "pppppppll").run(alpha, loss, x, *paths.arrays, faults.address(), site)
    return loss.astype(x.dtype), alpha.astype(x.dtype)


@enter("ctc_loss_backward")
def ctc_loss_backward(grad: CudaArray, log_probs: CudaArray, targets: CudaArray, input_lengths: CudaArray,
                      target_lengths: CudaArray, loss: CudaArray, alpha: CudaArray, blank: int, zero_infinity: bool) -> Any:
    if not is_real(log_probs):
        return NotImplemented
    x = contiguous(log_probs)
    paths = _Paths(x, targets, input_lengths, target_lengths, blank, zero_infinity)
    out, beta = windows.empty(x.shape, x.dtype), windows.empty((x.shape[1], 2, paths.states), paths.wide)
    grad = copied(grad, windows.empty((x.shape[1],), x.dtype))
    if out.size:
        paths.plan("backwards", "pppppppppp").run(out, beta, grad, x, *paths.arrays, contiguous(loss), contiguous(alpha))
    return out
