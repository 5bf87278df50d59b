"""Connectionist temporal classification: the forward and backward recursions, over the whole batch at a time."""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from ..halves import wide
from ..table import kernel

_LOW = -np.inf


def _padded(targets: ndarray, lengths: ndarray, blank: int) -> ndarray:
    """(batch, 2 * longest + 1): each target with blanks around every label; what lies behind the end is blank."""
    batch, longest = len(lengths), int(lengths.max()) if len(lengths) else 0
    out = np.full((batch, 2 * longest + 1), blank, np.int64)
    for b, n in enumerate(lengths.tolist()):
        start = int(lengths[:b].sum()) if targets.ndim == 1 else 0
        out[b, 1:2 * n:2] = targets[start:start + n] if targets.ndim == 1 else targets[b, :n]
    return out


def _skips(labels: ndarray) -> ndarray:
    """Where a label may be reached over the blank before it: it differs from the label two before."""
    may = np.zeros(labels.shape, bool)
    may[:, 3::2] = labels[:, 3::2] != labels[:, 1:-2:2]
    return may


def _add_logs(*terms: ndarray) -> ndarray:
    high = np.maximum.reduce(terms)
    safe = np.where(np.isneginf(high), 0, high)
    return safe + np.log(sum(np.exp(t - safe) for t in terms))


@kernel
def ctc_loss(log_probs: ndarray, targets: ndarray, input_lengths: ndarray, target_lengths: ndarray, blank: int,
             zero_infinity: bool) -> tuple[ndarray, ndarray]:
    """(negative log-likelihoods (batch,), alpha (batch, time, 2 * longest + 1)) of log_probs (time, batch, classes)."""
    x = wide(log_probs)
    steps, batch, _ = x.shape
    labels = _padded(targets, target_lengths, blank)
    states = labels.shape[1]
    rows = np.arange(batch)
    skip = np.where(_skips(labels), 0, _LOW).astype(x.dtype)
    alpha = np.full((steps, batch, states), _LOW, x.dtype)
    if steps:
        alpha[0, :, 0] = x[0, :, blank]
        if states > 1:
            alpha[0, :, 1] = np.where(target_lengths > 0, x[0, rows, labels[:, 1]], _LOW)
    for t in range(1, steps):
        before = alpha[t - 1]
        one, two = np.full_like(before, _LOW), np.full_like(before, _LOW)
        one[:, 1:], two[:, 2:] = before[:, :-1], before[:, :-2]
        alpha[t] = _add_logs(before, one, two + skip) + x[t, rows[:, None], labels]
    last = alpha[np.maximum(input_lengths - 1, 0), rows]
    ends = 2 * target_lengths
    final = last[rows, ends]
    final = np.where(target_lengths > 0, _add_logs(final, last[rows, np.maximum(ends - 1, 0)]), final)
    # Without any step only the empty target is possible.
    final = np.where(input_lengths > 0, final, np.where(target_lengths == 0, 0, _LOW).astype(x.dtype))
    return (-final).astype(log_probs.dtype), np.ascontiguousarray(alpha.transpose(1, 0, 2)).astype(log_probs.dtype)


@kernel
def ctc_loss_backward(grad: ndarray, log_probs: ndarray, targets: ndarray, input_lengths: ndarray,
                      target_lengths: ndarray, loss: ndarray, alpha: ndarray, blank: int,
                      zero_infinity: bool) -> ndarray:
    x, g, nll = wide(log_probs), wide(grad), wide(loss)
    steps, batch, classes = x.shape
    labels = _padded(targets, target_lengths, blank)
    states = labels.shape[1]
    rows = np.arange(batch)
    skip = np.full(labels.shape, _LOW, x.dtype)
    skip[:, :-2] = np.where(_skips(labels)[:, 2:], 0, _LOW)
    forward = wide(alpha).transpose(1, 0, 2)
    place, inside = np.arange(states)[None], np.arange(states)[None] <= 2 * target_lengths[:, None]
    ends = (place == 2 * target_lengths[:, None]) | (place == 2 * target_lengths[:, None] - 1)
    beta = np.full((batch, states), _LOW, x.dtype)
    out = np.zeros(x.shape, x.dtype)
    for t in range(steps - 1, -1, -1):
        emitted = x[t, rows[:, None], labels]
        one, two = np.full_like(beta, _LOW), np.full_like(beta, _LOW)
        one[:, :-1], two[:, :-2] = beta[:, 1:], beta[:, 2:]
        moved = _add_logs(beta, one, two + skip) + emitted
        starting = np.where(ends, emitted, _LOW)
        now = t == input_lengths[:, None] - 1
        beta = np.where(now, starting, np.where(t < input_lengths[:, None] - 1, moved, _LOW))
        beta = np.where(inside, beta, _LOW)
        both = forward[t] + beta                       # each holds the emission once: it is counted twice
        high = both.max(axis=1, keepdims=True)
        high = np.where(np.isneginf(high), 0, high)
        sums = np.zeros((batch, classes), x.dtype)
        np.add.at(sums, (rows[:, None], labels), np.where(inside, np.exp(both - high), 0))
        occupied = np.exp(np.log(sums) + high + nll[:, None] - x[t])
        out[t] = np.where(t < input_lengths[:, None], (np.exp(x[t]) - occupied) * g[:, None], 0)
    if zero_infinity:
        out[:, np.isposinf(nll)] = 0
    return out.astype(log_probs.dtype, copy=False)
