"""Attention in half precision, tile by tile: products by the warps' matrix units, the softmax on the way. Memory is linear in
the length: of the scores no more exists than a block's tile, in registers."""

from __future__ import annotations

import functools
import struct
from typing import Any

import numpy as np

from ..dtypes import native
from .arrays import CudaArray, device_index, windows
from .launch import Plan, kernel
from .pointwise import STORED

TAKEN = (native("bfloat16"), np.dtype(np.float16))
DEEPEST = 256     # columns of query, key and value
# (columns of a tile, warps of a block with 16 rows each) by what is computed and by the columns of its operands: up to so many.
TILES = {"flash": {64: (64, 4), 128: (64, 4), 256: (32, 4)}, "flash_queries": {64: (64, 4), 128: (32, 4), 256: (32, 4)},
         "flash_keys": {64: (64, 4), 128: (32, 4), 256: (32, 4)}}
_WARPS = 4        # of a block that sums rows
_COMMON = """#include "matrix.cuh"
typedef {stored} A;
typedef {mask} M;
enum {{ DEPTH = {depth}, WIDTH = {width}, KEYS = {keys}, ROWS = {warps} * 16, THREADS = {warps} * 32 }};
// rows of queries, columns (keys); depth and width: columns of query and value. Steps in elements: batch, head, row (column).
struct Sizes {{
    int heads, rows, columns, depth, width, causal, masked, aligned;
    long q[3], k[3], v[3], o[3], mask[4], made[3][3];
    double scale;
}};
template <int N> struct alignas(16) Line {{ A at[N + 8]; }};  // 8 more: rows then start in different banks

// A tile of rows, zeros behind the end.
template <int N, int COUNT> static __device__ inline void fetch(Line<N> *tile, const A *from, long step, int count, int wide,
                                                                int aligned) {{
    for (int i = threadIdx.x; i < COUNT * (N / 8); i += THREADS) {{
        const int row = i / (N / 8), at = i % (N / 8) * 8;
        Run<A, 8> part = {{}};
        if (row < count) {{
            const A *source = from + row * step + at;
            if (aligned && at + 8 <= wide) part = *(const Run<A, 8> *)source;
            else
                #pragma unroll
                for (int j = 0; j < 8; j++) if (at + j < wide) part.at[j] = source[j];
        }}
        *(Run<A, 8> *)(tile[row].at + at) = part;
    }}
}}
// A warp's 16 rows of a matrix in memory as the first operand of products.
template <int N> static __device__ inline void operand(unsigned (*made)[4], const A *from, long step, int first, int rows,
                                                       int wide) {{
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int k = 0; k < N / 16; k++)
        #pragma unroll
        for (int i = 0; i < 4; i++) {{
            const int row = first + lane / 4 + i % 2 * 8, at = k * 16 + i / 2 * 8 + lane % 4 * 2;
            A x = {{}}, y = {{}};
            if (row < rows && at < wide) x = from[row * step + at];
            if (row < rows && at + 1 < wide) y = from[row * step + at + 1];
            made[k][i] = two(x, y);
        }}
}}
// What a score becomes: scaled, masked, -inf where the row may not see the column. free: nothing of the tile is masked.
static __device__ inline float seen(float score, const Sizes &s, const M *mask, int row, int column, bool free) {{
    if (free) return score * (float)s.scale;
    if (row >= s.rows || column >= s.columns || (s.causal && column > row)) return -INFINITY;
    score *= (float)s.scale;
    if (s.masked == 1) return value_of(mask[row * s.mask[2] + column * s.mask[3]]) != 0 ? score : -INFINITY;
    return s.masked ? score + (float)value_of(mask[row * s.mask[2] + column * s.mask[3]]) : score;
}}
static __device__ inline float e_to(float x) {{ return exp2f(x * 1.4426950408889634f); }}
"""
_FORWARD = _COMMON + """
extern "C" __global__ void __launch_bounds__(THREADS) flash(const Sizes s, A *o, float *statistic, const A *q, const A *k,
                                                            const A *v, const M *mask) {{
    __shared__ Line<DEPTH> keys[KEYS];
    __shared__ Line<WIDTH> values[KEYS];
    const int tiles = (s.rows + ROWS - 1) / ROWS, tile = tiles - 1 - blockIdx.x % tiles;  // the longest rows first
    const int group = blockIdx.x / tiles, batch = group / s.heads, head = group % s.heads;
    const int lane = threadIdx.x % 32, first = tile * ROWS + threadIdx.x / 32 * 16, g = lane / 4, t = lane % 4;
    q += batch * s.q[0] + head * s.q[1], k += batch * s.k[0] + head * s.k[1], v += batch * s.v[0] + head * s.v[1];
    o += batch * s.o[0] + head * s.o[1];
    if (s.masked) mask += batch * s.mask[0] + head * s.mask[1];
    unsigned query[DEPTH / 16][4];
    operand<DEPTH>(query, q, s.q[2], first, s.rows, s.depth);
    float made[WIDTH / 8][4] = {{}}, top[2] = {{-INFINITY, -INFINITY}}, total[2] = {{0, 0}};
    const int end = s.causal && (tile + 1) * ROWS < s.columns ? (tile + 1) * ROWS : s.columns;
    for (int from = 0; from < end; from += KEYS) {{
        __syncthreads();
        fetch<DEPTH, KEYS>(keys, k + from * s.k[2], s.k[2], s.columns - from, s.depth, s.aligned);
        fetch<WIDTH, KEYS>(values, v + from * s.v[2], s.v[2], s.columns - from, s.width, s.aligned);
        __syncthreads();
        float score[KEYS / 8][4] = {{}};
        #pragma unroll
        for (int d = 0; d < DEPTH / 16; d++)
            #pragma unroll
            for (int n = 0; n < KEYS / 16; n++) {{
                unsigned r[4];
                load_four(r, keys[n * 16 + lane / 16 * 8 + lane % 8].at + d * 16 + lane / 8 % 2 * 8);
                multiply(score[2 * n], query[d], r[0], r[1], A{{}});
                multiply(score[2 * n + 1], query[d], r[2], r[3], A{{}});
            }}
        const bool free = !s.masked && from + KEYS <= s.columns && (!s.causal || from + KEYS <= first + 1);
        float high[2] = {{top[0], top[1]}};
        #pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
            #pragma unroll
            for (int e = 0; e < 4; e++) {{
                score[n][e] = seen(score[n][e], s, mask, first + g + e / 2 * 8, from + n * 8 + t * 2 + e % 2, free);
                high[e / 2] = fmaxf(high[e / 2], score[n][e]);
            }}
        float less[2], keep[2];
        #pragma unroll
        for (int e = 0; e < 2; e++) {{
            high[e] = fmaxf(high[e], from_lane(high[e], 1));
            high[e] = fmaxf(high[e], from_lane(high[e], 2));
            less[e] = high[e] == -INFINITY ? 0 : high[e];
            keep[e] = e_to(top[e] - less[e]);
            top[e] = high[e], total[e] *= keep[e];
        }}
        #pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
            #pragma unroll
            for (int e = 0; e < 4; e++) {{
                score[n][e] = e_to(score[n][e] - less[e / 2]);
                total[e / 2] += score[n][e];
            }}
        #pragma unroll
        for (int n = 0; n < WIDTH / 8; n++)
            #pragma unroll
            for (int e = 0; e < 4; e++) made[n][e] *= keep[e / 2];
        #pragma unroll
        for (int j = 0; j < KEYS / 16; j++) {{
            unsigned weights[4];
            #pragma unroll
            for (int e = 0; e < 4; e++)
                weights[e] = two(to<A>(score[2 * j + e / 2][e % 2 * 2]), to<A>(score[2 * j + e / 2][e % 2 * 2 + 1]));
            #pragma unroll
            for (int n = 0; n < WIDTH / 16; n++) {{
                unsigned r[4];
                load_four_turned(r, values[j * 16 + lane / 8 % 2 * 8 + lane % 8].at + n * 16 + lane / 16 * 8);
                multiply(made[2 * n], weights, r[0], r[1], A{{}});
                multiply(made[2 * n + 1], weights, r[2], r[3], A{{}});
            }}
        }}
    }}
    #pragma unroll
    for (int e = 0; e < 2; e++) {{
        total[e] += from_lane(total[e], 1);
        total[e] += from_lane(total[e], 2);
        const int row = first + g + e * 8;
        if (row >= s.rows) continue;
        const float inverse = total[e] == 0 ? 0 : 1 / total[e];
        if (!t) statistic[(long)group * s.rows + row] = total[e] == 0 ? INFINITY : top[e] + logf(total[e]);
        #pragma unroll
        for (int n = 0; n < WIDTH / 8; n++)
            #pragma unroll
            for (int j = 0; j < 2; j++)
                if (n * 8 + t * 2 + j < s.width) o[row * s.o[2] + n * 8 + t * 2 + j] = to<A>(made[n][e * 2 + j] * inverse);
    }}
}}
"""

_SUMS = _COMMON + """
// The sums of the gradient (steps q) times the result, of each row: a row per warp.
extern "C" __global__ void between(const Sizes s, float *made, const A *g, const A *o) {{
    const int lane = threadIdx.x % 32;
    const long number = (long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32, group = number / s.rows, row = number % s.rows;
    const long batch = group / s.heads, head = group % s.heads;
    float total = 0;
    if (batch * s.heads + head < s.made[0][0])
        for (int c = lane; c < s.width; c += 32)
            total += value_of(g[batch * s.q[0] + head * s.q[1] + row * s.q[2] + c])
                * value_of(o[batch * s.o[0] + head * s.o[1] + row * s.o[2] + c]);
    for (int apart = 16; apart; apart /= 2) total += from_lane(total, apart);
    if (!lane && batch * s.heads + head < s.made[0][0]) made[number] = total;
}}
"""
_BOTH = _COMMON + """
// Scores of a warp's 16 rows with a tile of others: tile rows are the columns of what is made.
template <int N, int COUNT>
static __device__ inline void against(float (*made)[4], const unsigned (*own)[4], const Line<N> *tile) {{
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int d = 0; d < N / 16; d++)
        #pragma unroll
        for (int n = 0; n < COUNT / 16; n++) {{
            unsigned r[4];
            load_four(r, tile[n * 16 + lane / 16 * 8 + lane % 8].at + d * 16 + lane / 8 % 2 * 8);
            multiply(made[2 * n], own[d], r[0], r[1], A{{}});
            multiply(made[2 * n + 1], own[d], r[2], r[3], A{{}});
        }}
}}
// Sums of a tile's rows by weights (16 x COUNT), added to what is there.
template <int N, int COUNT>
static __device__ inline void gather(float (*made)[4], const float (*weights)[4], const Line<N> *tile) {{
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int j = 0; j < COUNT / 16; j++) {{
        unsigned w[4];
        #pragma unroll
        for (int e = 0; e < 4; e++)
            w[e] = two(to<A>(weights[2 * j + e / 2][e % 2 * 2]), to<A>(weights[2 * j + e / 2][e % 2 * 2 + 1]));
        #pragma unroll
        for (int n = 0; n < N / 16; n++) {{
            unsigned r[4];
            load_four_turned(r, tile[j * 16 + lane / 8 % 2 * 8 + lane % 8].at + n * 16 + lane / 16 * 8);
            multiply(made[2 * n], w, r[0], r[1], A{{}});
            multiply(made[2 * n + 1], w, r[2], r[3], A{{}});
        }}
    }}
}}
template <int N> static __device__ inline void store(A *to_, long step, const float (*made)[4], int first, int rows, int wide,
                                                     float scale) {{
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int n = 0; n < N / 8; n++)
        #pragma unroll
        for (int e = 0; e < 4; e++) {{
            const int row = first + lane / 4 + e / 2 * 8, at = n * 8 + lane % 4 * 2 + e % 2;
            if (row < rows && at < wide) to_[row * step + at] = to<A>(made[n][e] * scale);
        }}
}}
"""
_QUERIES = _BOTH + """
// A block per tile of queries: their gradient.
extern "C" __global__ void __launch_bounds__(THREADS) flash_queries(const Sizes s, A *dq, const A *g, const A *q, const A *k,
        const A *v, const float *statistic, const float *sums, const M *mask) {{
    __shared__ Line<DEPTH> keys[KEYS];
    __shared__ Line<WIDTH> values[KEYS];
    const int tiles = (s.rows + ROWS - 1) / ROWS, tile = tiles - 1 - blockIdx.x % tiles;
    const int group = blockIdx.x / tiles, batch = group / s.heads, head = group % s.heads;
    const int lane = threadIdx.x % 32, first = tile * ROWS + threadIdx.x / 32 * 16;
    q += batch * s.q[0] + head * s.q[1], k += batch * s.k[0] + head * s.k[1], v += batch * s.v[0] + head * s.v[1];
    g += batch * s.o[0] + head * s.o[1], dq += batch * s.made[0][0] + head * s.made[0][1];
    if (s.masked) mask += batch * s.mask[0] + head * s.mask[1];
    unsigned query[DEPTH / 16][4], grad[WIDTH / 16][4];
    operand<DEPTH>(query, q, s.q[2], first, s.rows, s.depth);
    operand<WIDTH>(grad, g, s.o[2], first, s.rows, s.width);
    float made[DEPTH / 8][4] = {{}}, norm[2], less[2];
    for (int e = 0; e < 2; e++) {{
        const int row = first + lane / 4 + e * 8;
        norm[e] = row < s.rows ? statistic[(long)group * s.rows + row] : INFINITY;
        less[e] = row < s.rows ? sums[(long)group * s.rows + row] : 0;
    }}
    const int end = s.causal && (tile + 1) * ROWS < s.columns ? (tile + 1) * ROWS : s.columns;
    for (int from = 0; from < end; from += KEYS) {{
        __syncthreads();
        fetch<DEPTH, KEYS>(keys, k + from * s.k[2], s.k[2], s.columns - from, s.depth, s.aligned);
        fetch<WIDTH, KEYS>(values, v + from * s.v[2], s.v[2], s.columns - from, s.width, s.aligned);
        __syncthreads();
        float score[KEYS / 8][4] = {{}}, change[KEYS / 8][4] = {{}};
        against<DEPTH, KEYS>(score, query, keys);
        against<WIDTH, KEYS>(change, grad, values);
        const bool free = !s.masked && from + KEYS <= s.columns && (!s.causal || from + KEYS <= first + 1);
        #pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
            #pragma unroll
            for (int e = 0; e < 4; e++) {{
                const int row = first + lane / 4 + e / 2 * 8, column = from + n * 8 + lane % 4 * 2 + e % 2;
                const float x = seen(score[n][e], s, mask, row, column, free);
                change[n][e] = e_to(x - norm[e / 2]) * (change[n][e] - less[e / 2]);
            }}
        gather<DEPTH, KEYS>(made, change, keys);
    }}
    store<DEPTH>(dq, s.made[0][2], made, first, s.rows, s.depth, (float)s.scale);
}}
"""
_KEYS = _BOTH + """
// A block per tile of keys: the gradients of keys and values. Rows of what is computed are keys, columns are queries.
extern "C" __global__ void __launch_bounds__(THREADS) flash_keys(const Sizes s, A *dk, A *dv, const A *g, const A *q,
        const A *k, const A *v, const float *statistic, const float *sums, const M *mask) {{
    __shared__ Line<DEPTH> queries[KEYS];
    __shared__ Line<WIDTH> grads[KEYS];
    __shared__ float norm[KEYS], less[KEYS];
    const int tiles = (s.columns + ROWS - 1) / ROWS, tile = blockIdx.x % tiles;
    const int group = blockIdx.x / tiles, batch = group / s.heads, head = group % s.heads;
    const int lane = threadIdx.x % 32, first = tile * ROWS + threadIdx.x / 32 * 16;
    q += batch * s.q[0] + head * s.q[1], k += batch * s.k[0] + head * s.k[1], v += batch * s.v[0] + head * s.v[1];
    g += batch * s.o[0] + head * s.o[1];
    dk += batch * s.made[1][0] + head * s.made[1][1], dv += batch * s.made[2][0] + head * s.made[2][1];
    if (s.masked) mask += batch * s.mask[0] + head * s.mask[1];
    unsigned key[DEPTH / 16][4], value[WIDTH / 16][4];
    operand<DEPTH>(key, k, s.k[2], first, s.columns, s.depth);
    operand<WIDTH>(value, v, s.v[2], first, s.columns, s.width);
    float for_keys[DEPTH / 8][4] = {{}}, for_values[WIDTH / 8][4] = {{}};
    for (int from = s.causal ? tile * ROWS : 0; from < s.rows; from += KEYS) {{
        __syncthreads();
        fetch<DEPTH, KEYS>(queries, q + from * s.q[2], s.q[2], s.rows - from, s.depth, s.aligned);
        fetch<WIDTH, KEYS>(grads, g + from * s.o[2], s.o[2], s.rows - from, s.width, s.aligned);
        for (int i = threadIdx.x; i < KEYS; i += THREADS) {{
            norm[i] = from + i < s.rows ? statistic[(long)group * s.rows + from + i] : INFINITY;
            less[i] = from + i < s.rows ? sums[(long)group * s.rows + from + i] : 0;
        }}
        __syncthreads();
        float score[KEYS / 8][4] = {{}}, change[KEYS / 8][4] = {{}};
        against<DEPTH, KEYS>(score, key, queries);
        against<WIDTH, KEYS>(change, value, grads);
        const bool free = !s.masked && (!s.causal || from >= first + 15);  // what lies behind the ends counts for nothing here
        #pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
            #pragma unroll
            for (int e = 0; e < 4; e++) {{
                const int at = n * 8 + lane % 4 * 2 + e % 2;
                score[n][e] = e_to(seen(score[n][e], s, mask, from + at, first + lane / 4 + e / 2 * 8, free) - norm[at]);
                change[n][e] = score[n][e] * (change[n][e] - less[at]);
            }}
        gather<WIDTH, KEYS>(for_values, score, grads);
        gather<DEPTH, KEYS>(for_keys, change, queries);
    }}
    store<DEPTH>(dk, s.made[1][2], for_keys, first, s.columns, s.depth, (float)s.scale);
    store<WIDTH>(dv, s.made[2][2], for_values, first, s.columns, s.width, 1);
}}
"""


_FORMS = {"flash": _FORWARD, "between": _SUMS, "flash_queries": _QUERIES, "flash_keys": _KEYS}


@functools.cache
def _text(name: str, dtype: np.dtype, mask: str, depth: int, width: int, tile: tuple[int, int]) -> str:
    padded = [-(-n // 16) * 16 for n in (depth, width)]
    return _FORMS[name].format(stored=STORED[dtype], mask=mask, depth=padded[0], width=padded[1], keys=tile[0], warps=tile[1])


def _launch(name: str, q: CudaArray, v: CudaArray, mask: CudaArray | None, rows: int, fixed: bytes, arrays: Any) -> None:
    """A kernel over tiles of so many rows of each head of q."""
    tile = next(t for most, t in TILES[name].items() if max(q.shape[3], v.shape[3]) <= most)
    text = _text(name, q.dtype, "bool" if mask is None else STORED[mask.dtype], q.shape[3], v.shape[3], tile)
    blocks = q.shape[0] * q.shape[1] * -(-rows // (16 * tile[1]))
    _plan(text, name, device_index(q), blocks, 32 * tile[1], "p" * len(arrays), fixed).run(*arrays)


def steps_of(x: CudaArray) -> list[int]:
    """Of (batch, heads, rows, columns): all steps but the last, in elements."""
    return [s // x.itemsize for s in x.strides[:3]]


def _aligned(*arrays: CudaArray) -> bool:
    """Whether rows can be loaded 16 bytes at a time."""
    return all([not x.ctypes.data % 16 and not any([s % 16 for s, n in zip(x.strides[:3], x.shape) if n > 1]) for x in arrays])


@functools.lru_cache(1024)
def _plan(text: str, name: str, device: int, blocks: int, threads: int, kinds: str, fixed: bytes) -> Plan:
    return Plan(kernel(text, name, device), device, blocks, threads, kinds, fixed)


def _sizes(q: CudaArray, k: CudaArray, v: CudaArray, o: CudaArray, mask: CudaArray | None, causal: bool, scale: float,
           made: Any = (0,) * 9) -> bytes:
    masked = 0 if mask is None else 1 if mask.dtype.kind == "b" else 2
    return struct.pack("8i25qd", *q.shape[1:3], k.shape[2], q.shape[3], v.shape[3], causal, masked, _aligned(k, v, q, o),
                       *steps_of(q), *steps_of(k), *steps_of(v), *steps_of(o),
                       *([0] * 4 if mask is None else [s // mask.itemsize for s in mask.strides]), *made, scale)


def forward(q: CudaArray, k: CudaArray, v: CudaArray, mask: CudaArray | None, causal: bool, scale: float, out: CudaArray,
            statistic: CudaArray) -> None:
    """Fills out, and statistic with the log-sum-exp of each row. All are (batch, heads, rows, columns), the columns dense."""
    _launch("flash", q, v, mask, q.shape[2], _sizes(q, k, v, out, mask, causal, scale),
            (out, statistic, q, k, v, q if mask is None else mask))


def backward(grad: CudaArray, q: CudaArray, k: CudaArray, v: CudaArray, mask: CudaArray | None, causal: bool, scale: float,
             out: CudaArray, statistic: CudaArray, made: tuple[CudaArray, CudaArray, CudaArray]) -> None:
    """Fills made, the gradients of q, k and v. Each is summed by one block in one order: the same every time."""
    heads = q.shape[0] * q.shape[1]
    sums = windows.empty((heads, q.shape[2]), np.dtype(np.float32))
    fixed = _sizes(grad, k, v, out, None, False, scale, (heads, *(0,) * 8))
    text = _text("between", q.dtype, "bool", 16, 16, (16, _WARPS))
    _plan(text, "between", device_index(q), -(-sums.size // _WARPS), 32 * _WARPS, "ppp", fixed).run(sums, grad, out)
    fixed = _sizes(q, k, v, grad, mask, causal, scale, [n for x in made for n in steps_of(x)])
    arrays = (grad, q, k, v, statistic, sums, q if mask is None else mask)
    _launch("flash_queries", q, v, mask, q.shape[2], fixed, (made[0], *arrays))
    _launch("flash_keys", q, v, mask, k.shape[2], fixed, (*made[1:], *arrays))


def serves(*arrays: Any) -> bool:
    return all([a.dtype in TAKEN and a.shape[-1] <= DEEPEST for a in arrays])
