"""Attention in half precision, tile by tile: products by the warps' matrix units, the softmax on the way. Memory is linear in
the length: of the scores no more exists than a block's tile, in registers. The common cases on Hopper are flash_hopper.py's."""

from __future__ import annotations

import functools
import struct
from typing import Any

import numpy as np

from ..dtypes import native
from . import flash_hopper as hopper
from .arrays import CudaArray, device_index, windows
from .launch import plan_of
from .pointwise import STORED

TAKEN = (native("bfloat16"), np.dtype(np.float16))
DEEPEST = 256     # columns of query, key and value
# (columns of a tile, warps of a block, rows of a warp) by what is computed and by the columns of its operands: up to so many.
TILES = {"flash": {64: (64, 4, 16), 128: (32, 4, 32), 256: (16, 4, 16)},
         "flash_queries": {64: (64, 4, 16), 128: (32, 4, 16), 256: (16, 4, 16)},
         "flash_keys": {64: (64, 4, 16), 128: (32, 4, 16), 256: (16, 4, 16)}}
_WARPS = 8        # of a block that sums rows
_CACHED = 32 << 20  # bytes that heads at work together may have in the cache
_COMMON = """#include "matrix.cuh"
typedef {stored} A;
typedef {mask} M;
enum {{ DEPTH = {depth}, WIDTH = {width}, KEYS = {keys}, PARTS = {parts}, ROWS = {warps} * PARTS * 16, THREADS = {warps} * 32,
       MASKED = {masked},   // 1: by truth, 2: added
       ALIGNED = {aligned}, // rows are loaded in 16 bytes
       EXACT = {exact} }};  // nothing is padded
{sizes}template <int N> struct alignas(16) Line {{ A at[N + 8]; }};  // 8 more: rows then start in different banks
#define DEEP (EXACT ? DEPTH : s.depth)
#define WIDE (EXACT ? WIDTH : s.width)
#define FOR(i, n) _Pragma("unroll") for (int i = 0; i < n; i++)

// A tile of rows, zeros behind the end. It is there after `arrived` and a barrier.
template <int N, int COUNT> static __device__ inline void fetch(Line<N> *tile, const A *from, long step, int count, int wide) {{
    #pragma unroll 4
    for (int i = threadIdx.x; i < COUNT * (N / 8); i += THREADS) {{
        const int row = i / (N / 8), at = i % (N / 8) * 8;
        const A *source = from + row * step + at;
        if (ALIGNED && at + 8 <= wide) {{
            send_for(tile[row].at + at, row < count ? source : from, row < count);
            continue;
        }}
        Run<A, 8> part = {{}};
        if (row < count) {{
            FOR(j, 8) if (at + j < wide) part.at[j] = source[j];
        }}
        *(Run<A, 8> *)(tile[row].at + at) = part;
    }}
}}
// 16 rows of a matrix in memory as the first operand of a warp's products.
template <int N> static __device__ inline void operand(unsigned (*made)[4], const A *from, long step, int first, int rows,
                                                       int wide) {{
    const int lane = threadIdx.x % 32;
    FOR(k, N / 16) FOR(i, 4) {{
        const int row = first + lane / 4 + i % 2 * 8, at = k * 16 + i / 2 * 8 + lane % 4 * 2;
        const A *source = from + row * step + at;
        A x = {{}}, y = {{}};
        if (ALIGNED && row < rows && at + 1 < wide) made[k][i] = *(const unsigned *)source;
        else {{
            if (row < rows && at < wide) x = source[0];
            if (row < rows && at + 1 < wide) y = source[1];
            made[k][i] = two(x, y);
        }}
    }}
}}
// Scores of a warp's rows with a tile of others: tile rows are the columns of what is made.
template <int N, int COUNT> static __device__ inline void against(float (*made)[COUNT / 8][4], const unsigned (*own)[N / 16][4],
                                                                  const Line<N> *tile) {{
    const int lane = threadIdx.x % 32;
    FOR(d, N / 16) FOR(n, COUNT / 16) {{
        unsigned r[4];
        load_four(r, tile[n * 16 + lane / 16 * 8 + lane % 8].at + d * 16 + lane / 8 % 2 * 8);
        FOR(p, PARTS) {{
            multiply(made[p][2 * n], own[p][d], r[0], r[1], A{{}});
            multiply(made[p][2 * n + 1], own[p][d], r[2], r[3], A{{}});
        }}
    }}
}}
// Sums of a tile's rows by weights, added to what is there.
template <int N, int COUNT> static __device__ inline void gather(float (*made)[N / 8][4], const float (*weights)[COUNT / 8][4],
                                                                 const Line<N> *tile) {{
    const int lane = threadIdx.x % 32;
    FOR(j, COUNT / 16) {{
        unsigned w[PARTS][4];
        FOR(p, PARTS) FOR(e, 4)
            w[p][e] = rounded(weights[p][2 * j + e / 2][e % 2 * 2], weights[p][2 * j + e / 2][e % 2 * 2 + 1], A{{}});
        FOR(n, N / 16) {{
            unsigned r[4];
            load_four_turned(r, tile[j * 16 + lane / 8 % 2 * 8 + lane % 8].at + n * 16 + lane / 16 * 8);
            FOR(p, PARTS) {{
                multiply(made[p][2 * n], w[p], r[0], r[1], A{{}});
                multiply(made[p][2 * n + 1], w[p], r[2], r[3], A{{}});
            }}
        }}
    }}
}}
// 16 rows of what was made, each times a number.
template <int N> static __device__ inline void store(A *to_, long step, const float (*made)[4], int first, int rows, int wide,
                                                     float scale, float scale_below) {{
    const int lane = threadIdx.x % 32;
    FOR(n, N / 8) FOR(e, 2) {{
        const int row = first + lane / 4 + e * 8, at = n * 8 + lane % 4 * 2;
        const float by = e ? scale_below : scale, x = made[n][2 * e] * by, y = made[n][2 * e + 1] * by;
        A *target = to_ + row * step + at;
        if (row >= rows) continue;
        if (ALIGNED && at + 1 < wide) *(unsigned *)target = rounded(x, y, A{{}});
        else {{
            if (at < wide) target[0] = to<A>(x);
            if (at + 1 < wide) target[1] = to<A>(y);
        }}
    }}
}}
// What a score becomes, as a power of two: scaled, masked, -inf where the row may not see the column.
const float LOG2_E = 1.4426950408889634f;
static __device__ inline float seen(float score, const Sizes &s, const M *mask, int row, int column) {{
    if (row >= s.rows || column >= s.columns || (s.causal && column > row)) return -INFINITY;
    score *= (float)s.scale;
    if (MASKED == 1) score = value_of(mask[row * s.mask[2] + column * s.mask[3]]) != 0 ? score : -INFINITY;
    else if (MASKED) score += (float)value_of(mask[row * s.mask[2] + column * s.mask[3]]);
    return score * LOG2_E;
}}
"""
_FORWARD = _COMMON + """
extern "C" __global__ void __launch_bounds__(THREADS) flash(const Sizes s, A *o, float *statistic, const A *q, const A *k,
                                                            const A *v, const M *mask) {{
    __shared__ Line<DEPTH> keys[2][KEYS];
    __shared__ Line<WIDTH> values[2][KEYS];
    const int tiles = (s.rows + ROWS - 1) / ROWS, tile = tiles - 1 - blockIdx.x % tiles;  // the longest rows first
    const int group = blockIdx.x / tiles, batch = group / s.heads, head = group % s.heads;
    const int lane = threadIdx.x % 32, first = tile * ROWS + threadIdx.x / 32 * PARTS * 16, g = lane / 4, t = lane % 4;
    q += batch * s.q[0] + head * s.q[1], k += batch * s.k[0] + head * s.k[1], v += batch * s.v[0] + head * s.v[1];
    o += batch * s.o[0] + head * s.o[1];
    if (MASKED) mask += batch * s.mask[0] + head * s.mask[1];
    const int end = s.causal && (tile + 1) * ROWS < s.columns ? (tile + 1) * ROWS : s.columns;
    const float scale = (float)s.scale * LOG2_E;
    fetch<DEPTH, KEYS>(keys[0], k, s.k[2], s.columns, DEEP);
    fetch<WIDTH, KEYS>(values[0], v, s.v[2], s.columns, WIDE);
    unsigned query[PARTS][DEPTH / 16][4];
    float made[PARTS][WIDTH / 8][4] = {{}}, top[PARTS][2], total[PARTS][2] = {{}};
    FOR(p, PARTS) {{
        operand<DEPTH>(query[p], q, s.q[2], first + p * 16, s.rows, DEEP);
        top[p][0] = top[p][1] = -INFINITY;
    }}
    for (int from = 0, stage = 0; from < end; from += KEYS, stage ^= 1) {{
        arrived();
        __syncthreads();
        if (from + KEYS < end) {{  // the next tile comes while this one is at work
            const long next = from + KEYS;
            fetch<DEPTH, KEYS>(keys[stage ^ 1], k + next * s.k[2], s.k[2], s.columns - next, DEEP);
            fetch<WIDTH, KEYS>(values[stage ^ 1], v + next * s.v[2], s.v[2], s.columns - next, WIDE);
        }}
        float score[PARTS][KEYS / 8][4] = {{}};
        against<DEPTH, KEYS>(score, query, keys[stage]);
        const bool free = !MASKED && s.scale > 0 && from + KEYS <= s.columns && (!s.causal || from + KEYS <= first + 1);
        const float by = free ? scale : 1;
        FOR(p, PARTS) {{
            float high[2] = {{-INFINITY, -INFINITY}}, less[2], keep[2];
            FOR(n, KEYS / 8) FOR(e, 4) {{
                if (!free)
                    score[p][n][e] = seen(score[p][n][e], s, mask, first + p * 16 + g + e / 2 * 8,
                                          from + n * 8 + t * 2 + e % 2);
                high[e / 2] = fmaxf(high[e / 2], score[p][n][e]);
            }}
            FOR(e, 2) {{
                high[e] = fmaxf(high[e], from_lane(high[e], 1));
                high[e] = fmaxf(top[p][e], fmaxf(high[e], from_lane(high[e], 2)) * by);
                less[e] = high[e] == -INFINITY ? 0 : high[e];
                keep[e] = power_of_two(top[p][e] - less[e]);
                top[p][e] = high[e], total[p][e] *= keep[e];
            }}
            FOR(n, KEYS / 8) FOR(e, 4) {{
                score[p][n][e] = power_of_two(fmaf(score[p][n][e], by, -less[e / 2]));
                total[p][e / 2] += score[p][n][e];
            }}
            FOR(n, WIDTH / 8) FOR(e, 4) made[p][n][e] *= keep[e / 2];
        }}
        gather<WIDTH, KEYS>(made, score, values[stage]);
    }}
    FOR(p, PARTS) {{
        float inverse[2];
        FOR(e, 2) {{
            float sum = total[p][e] + from_lane(total[p][e], 1);
            sum += from_lane(sum, 2);
            inverse[e] = sum == 0 ? 0 : 1 / sum;
            const int row = first + p * 16 + g + e * 8;
            if (row < s.rows && !t)
                statistic[(long)group * s.rows + row] = sum == 0 ? INFINITY : top[p][e] / LOG2_E + logf(sum);
        }}
        store<WIDTH>(o, s.o[2], made[p], first + p * 16, s.rows, WIDE, inverse[0], inverse[1]);
    }}
}}
"""

_NOTES = _COMMON + """
// What the gradients' kernels want to know of each row: its statistic as a power of two, and (`all` rows on) the sum of the
// gradient (steps q) times the result; LANES lanes per row. Whose turn it is (flash_hopper.py) begins at zero.
extern "C" __global__ void between(const Sizes s, float *notes, int *turns, const A *g, const A *o, const float *statistic) {{
    enum {{ LANES = {lanes} }};
    const long thread = (long)blockIdx.x * THREADS + threadIdx.x, number = thread / LANES;
    const long group = number / s.rows, row = number % s.rows, batch = group / s.heads, head = group % s.heads;
    const int lane = threadIdx.x % LANES;
    float total = 0;
    if (number < s.all) {{
        g += batch * s.q[0] + head * s.q[1] + row * s.q[2], o += batch * s.o[0] + head * s.o[1] + row * s.o[2];
        _Pragma("unroll") for (int c = lane * 8; c < WIDE; c += LANES * 8) {{
            if (ALIGNED && c + 8 <= WIDE) {{
                const Run<A, 8> x = *(const Run<A, 8> *)(g + c), y = *(const Run<A, 8> *)(o + c);
                FOR(i, 8) total += value_of(x.at[i]) * value_of(y.at[i]);
            }} else for (int i = c; i < c + 8 && i < WIDE; i++) total += value_of(g[i]) * value_of(o[i]);
        }}
    }}
    for (int apart = LANES / 2; apart; apart /= 2) total += from_lane(total, apart);
    if (!lane && number < s.all) notes[number] = statistic[number] * LOG2_E, notes[number + s.all] = total;
    if (thread < s.turns) turns[thread] = 0;
}}
"""
_QUERIES = _COMMON + """
// A block per tile of queries: their gradient.
extern "C" __global__ void __launch_bounds__(THREADS) flash_queries(const Sizes s, A *dq, const A *g, const A *q, const A *k,
        const A *v, const float *notes, const M *mask) {{
    __shared__ Line<DEPTH> keys[2][KEYS];
    __shared__ Line<WIDTH> values[2][KEYS];
    const int tiles = (s.rows + ROWS - 1) / ROWS, tile = tiles - 1 - blockIdx.x % tiles;
    const int group = blockIdx.x / tiles, batch = group / s.heads, head = group % s.heads;
    const int lane = threadIdx.x % 32, first = tile * ROWS + threadIdx.x / 32 * PARTS * 16;
    q += batch * s.q[0] + head * s.q[1], k += batch * s.k[0] + head * s.k[1], v += batch * s.v[0] + head * s.v[1];
    g += batch * s.o[0] + head * s.o[1], dq += batch * s.made[0][0] + head * s.made[0][1];
    if (MASKED) mask += batch * s.mask[0] + head * s.mask[1];
    notes += (long)group * s.rows;
    const int end = s.causal && (tile + 1) * ROWS < s.columns ? (tile + 1) * ROWS : s.columns;
    fetch<DEPTH, KEYS>(keys[0], k, s.k[2], s.columns, DEEP);
    fetch<WIDTH, KEYS>(values[0], v, s.v[2], s.columns, WIDE);
    unsigned query[PARTS][DEPTH / 16][4], grad[PARTS][WIDTH / 16][4];
    float made[PARTS][DEPTH / 8][4] = {{}}, norm[PARTS][2], less[PARTS][2];
    FOR(p, PARTS) {{
        operand<DEPTH>(query[p], q, s.q[2], first + p * 16, s.rows, DEEP);
        operand<WIDTH>(grad[p], g, s.o[2], first + p * 16, s.rows, WIDE);
        FOR(e, 2) {{
            const int row = first + p * 16 + lane / 4 + e * 8;
            norm[p][e] = row < s.rows ? notes[row] : INFINITY;
            less[p][e] = row < s.rows ? notes[s.all + row] : 0;
        }}
    }}
    for (int from = 0, stage = 0; from < end; from += KEYS, stage ^= 1) {{
        arrived();
        __syncthreads();
        if (from + KEYS < end) {{
            const long next = from + KEYS;
            fetch<DEPTH, KEYS>(keys[stage ^ 1], k + next * s.k[2], s.k[2], s.columns - next, DEEP);
            fetch<WIDTH, KEYS>(values[stage ^ 1], v + next * s.v[2], s.v[2], s.columns - next, WIDE);
        }}
        float score[PARTS][KEYS / 8][4] = {{}}, change[PARTS][KEYS / 8][4] = {{}};
        against<DEPTH, KEYS>(score, query, keys[stage]);
        against<WIDTH, KEYS>(change, grad, values[stage]);
        const bool free = !MASKED && from + KEYS <= s.columns && (!s.causal || from + KEYS <= first + 1);
        const float by = free ? (float)s.scale * LOG2_E : 1;
        FOR(p, PARTS) FOR(n, KEYS / 8) FOR(e, 4) {{
            const int row = first + p * 16 + lane / 4 + e / 2 * 8, column = from + n * 8 + lane % 4 * 2 + e % 2;
            const float x = free ? score[p][n][e] : seen(score[p][n][e], s, mask, row, column);
            change[p][n][e] = power_of_two(fmaf(x, by, -norm[p][e / 2])) * (change[p][n][e] - less[p][e / 2]);
        }}
        gather<DEPTH, KEYS>(made, change, keys[stage]);
    }}
    FOR(p, PARTS)
        store<DEPTH>(dq, s.made[0][2], made[p], first + p * 16, s.rows, DEEP, (float)s.scale, (float)s.scale);
}}
"""
_KEYS = _COMMON + """
// A block per tile of keys: the gradients of keys and values. Rows of what is computed are keys, columns are queries.
extern "C" __global__ void __launch_bounds__(THREADS) flash_keys(const Sizes s, A *dk, A *dv, const A *g, const A *q,
        const A *k, const A *v, const float *notes, const M *mask) {{
    __shared__ Line<DEPTH> queries[2][KEYS];
    __shared__ Line<WIDTH> grads[2][KEYS];
    __shared__ float norm[2][KEYS], less[2][KEYS];
    const int tiles = (s.columns + ROWS - 1) / ROWS, tile = blockIdx.x % tiles;
    const int group = blockIdx.x / tiles, batch = group / s.heads, head = group % s.heads;
    const int lane = threadIdx.x % 32, first = tile * ROWS + threadIdx.x / 32 * PARTS * 16;
    q += batch * s.q[0] + head * s.q[1], k += batch * s.k[0] + head * s.k[1], v += batch * s.v[0] + head * s.v[1];
    g += batch * s.o[0] + head * s.o[1];
    dk += batch * s.made[1][0] + head * s.made[1][1], dv += batch * s.made[2][0] + head * s.made[2][1];
    if (MASKED) mask += batch * s.mask[0] + head * s.mask[1];
    notes += (long)group * s.rows;
    auto fetched = [&](long from, int stage) {{
        fetch<DEPTH, KEYS>(queries[stage], q + from * s.q[2], s.q[2], s.rows - from, DEEP);
        fetch<WIDTH, KEYS>(grads[stage], g + from * s.o[2], s.o[2], s.rows - from, WIDE);
        for (int i = threadIdx.x; i < KEYS; i += THREADS) {{
            norm[stage][i] = from + i < s.rows ? notes[from + i] : INFINITY;
            less[stage][i] = from + i < s.rows ? notes[s.all + from + i] : 0;
        }}
    }};
    const int start = s.causal ? tile * ROWS / KEYS * KEYS : 0;
    if (start < s.rows) fetched(start, 0);
    unsigned key[PARTS][DEPTH / 16][4], value[PARTS][WIDTH / 16][4];
    FOR(p, PARTS) {{
        operand<DEPTH>(key[p], k, s.k[2], first + p * 16, s.columns, DEEP);
        operand<WIDTH>(value[p], v, s.v[2], first + p * 16, s.columns, WIDE);
    }}
    float for_keys[PARTS][DEPTH / 8][4] = {{}}, for_values[PARTS][WIDTH / 8][4] = {{}};
    for (int from = start, stage = 0; from < s.rows; from += KEYS, stage ^= 1) {{
        arrived();
        __syncthreads();
        if (from + KEYS < s.rows) fetched(from + KEYS, stage ^ 1);
        float score[PARTS][KEYS / 8][4] = {{}}, change[PARTS][KEYS / 8][4] = {{}};
        against<DEPTH, KEYS>(score, key, queries[stage]);
        against<WIDTH, KEYS>(change, value, grads[stage]);
        // What lies behind the ends counts for nothing here.
        const bool free = !MASKED && (!s.causal || from >= first + PARTS * 16 - 1);
        const float by = free ? (float)s.scale * LOG2_E : 1;
        FOR(p, PARTS) FOR(n, KEYS / 8) FOR(e, 4) {{
            const int at = n * 8 + lane % 4 * 2 + e % 2;
            const int column = first + p * 16 + lane / 4 + e / 2 * 8;
            const float x = free ? score[p][n][e] : seen(score[p][n][e], s, mask, from + at, column);
            score[p][n][e] = power_of_two(fmaf(x, by, -norm[stage][at]));
            change[p][n][e] = score[p][n][e] * (change[p][n][e] - less[stage][at]);
        }}
        gather<WIDTH, KEYS>(for_values, score, grads[stage]);
        gather<DEPTH, KEYS>(for_keys, change, queries[stage]);
    }}
    FOR(p, PARTS) {{
        store<DEPTH>(dk, s.made[1][2], for_keys[p], first + p * 16, s.columns, DEEP, (float)s.scale, (float)s.scale);
        store<WIDTH>(dv, s.made[2][2], for_values[p], first + p * 16, s.columns, WIDE, 1, 1);
    }}
}}
"""


_FORMS = {"flash": _FORWARD, "between": _NOTES, "flash_queries": _QUERIES, "flash_keys": _KEYS}


@functools.cache
def _text(name: str, dtype: np.dtype, mask: str, depth: int, width: int, tile: tuple[int, int, int], aligned: bool,
          lanes: int = 32) -> str:
    padded = [-(-n // 16) * 16 for n in (depth, width)]
    masked = {"": 0, "bool": 1}.get(mask, 2)
    return _FORMS[name].format(stored=STORED[dtype], mask=mask or "bool", masked=masked, aligned=int(aligned),
                               sizes=hopper.SIZES, exact=int(padded == [depth, width]), depth=padded[0], width=padded[1],
                               keys=tile[0], warps=tile[1], parts=tile[2] // 16, lanes=lanes)


def _launch(name: str, q: CudaArray, v: CudaArray, mask: CudaArray | None, rows: int, fixed: bytes, arrays: Any,
            aligned: bool) -> None:
    """A kernel over tiles of so many rows of each head of q."""
    tile = next(t for most, t in TILES[name].items() if max(q.shape[3], v.shape[3]) <= most)
    text = _text(name, q.dtype, "" if mask is None else STORED[mask.dtype], q.shape[3], v.shape[3], tile, aligned)
    blocks = q.shape[0] * q.shape[1] * -(-rows // (tile[1] * tile[2]))
    plan_of(text, name, device_index(q), blocks, 32 * tile[1], "p" * len(arrays), fixed).run(*arrays)


def steps_of(x: CudaArray) -> list[int]:
    """Of (batch, heads, rows, columns): all steps but the last, in elements."""
    return [s // x.itemsize for s in x.strides[:3]]


def _aligned(*arrays: CudaArray) -> bool:
    """Whether rows can be loaded 16 bytes at a time."""
    return all([not x.ctypes.data % 16 and not any([s % 16 for s, n in zip(x.strides[:3], x.shape) if n > 1]) for x in arrays])


def _sizes(q: CudaArray, k: CudaArray, v: CudaArray, o: CudaArray, mask: CudaArray | None, causal: bool, scale: float,
           made: Any = (), turns: int = 0) -> bytes:
    """The kernels' first parameter; turns: how many numbers are to become zero."""
    batch, heads, rows, depth = q.shape
    together = max(_CACHED // (rows * depth * q.itemsize * (4 if made else 2)), 1)
    return struct.pack("6i28qd", heads, rows, k.shape[2], depth, v.shape[3], causal, *steps_of(q), *steps_of(k), *steps_of(v),
                       *steps_of(o), *([0] * 4 if mask is None else [s // mask.itemsize for s in mask.strides]),
                       *([n for x in made for n in steps_of(x)] or [0] * 9), batch * heads * rows, turns, together, scale)


def forward(q: CudaArray, k: CudaArray, v: CudaArray, mask: CudaArray | None, causal: bool, scale: float, out: CudaArray,
            statistic: CudaArray) -> None:
    """Fills out, and statistic with the log-sum-exp of each row. All are (batch, heads, rows, columns), the columns dense."""
    fixed, aligned = _sizes(q, k, v, out, mask, causal, scale), _aligned(q, k, v, out)
    if aligned and mask is None and hopper.serves(q, v, scale):
        hopper.forward(q, k, v, fixed, out, statistic)
    else:
        _launch("flash", q, v, mask, q.shape[2], fixed, (out, statistic, q, k, v, q if mask is None else mask), aligned)


def backward(grad: CudaArray, q: CudaArray, k: CudaArray, v: CudaArray, mask: CudaArray | None, causal: bool, scale: float,
             out: CudaArray, statistic: CudaArray, made: tuple[CudaArray, CudaArray, CudaArray]) -> None:
    """Fills made, the gradients of q, k and v. Each is summed in one order: the same every time."""
    aligned = _aligned(grad, q, k, v, *made)
    by_groups = aligned and mask is None and hopper.serves(q, v, scale)
    notes = windows.empty((2, q.shape[0] * q.shape[1] * q.shape[2]), np.dtype(np.float32))
    sums, turns = hopper.room_for_sums(q) if by_groups else (notes, notes)
    fixed = _sizes(grad, k, v, out, None, False, scale, turns=turns.size if by_groups else 0)
    lanes = 4 if v.shape[3] <= 64 else 8 if v.shape[3] <= 128 else 16
    text = _text("between", q.dtype, "", 16, v.shape[3], (16, _WARPS, 16), _aligned(grad, out), lanes)
    blocks = -(-notes.shape[1] * lanes // (32 * _WARPS))
    plan_of(text, "between", device_index(q), blocks, 32 * _WARPS, "p" * 5, fixed).run(notes, turns, grad, out, statistic)
    fixed = _sizes(q, k, v, grad, mask, causal, scale, made)
    if by_groups:
        hopper.backward(grad, q, k, v, fixed, notes, sums, turns, made)
        return
    arrays = (grad, q, k, v, notes, q if mask is None else mask)
    _launch("flash_queries", q, v, mask, q.shape[2], fixed, (made[0], *arrays), aligned)
    _launch("flash_keys", q, v, mask, k.shape[2], fixed, (*made[1:], *arrays), aligned)


def serves(*arrays: Any) -> bool:
    return all([a.dtype in TAKEN and a.shape[-1] <= DEEPEST for a in arrays])
