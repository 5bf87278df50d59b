"""Attention in half precision by warpgroups (native/wgmma.cuh) on devices that have them: heads of 64 or 128 columns, no mask.
flash.py has the text for all else, and calls this one where it serves."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .arrays import CudaArray, device_index, windows
from .driver import machine
from .launch import plan_of
from .pointwise import STORED

DEPTHS = (64, 128)
# By depth: forward (keys of a tile, warpgroups of a block, of 64 queries each, blocks of a multiprocessor), backward queries of
# a tile. There a block has two warpgroups with 64 keys each, and of the gradient of the queries each has a piece of 64 x 64.
TILES = {64: (64, 1, 4), 128: (64, 2, 2)}
KEYS, QUERIES = 128, {64: 128, 128: 64}
SIZES = """// rows of queries, columns (keys); depth and width: columns of query and value. Steps in elements: batch, head, row
// (of masks: and column).
struct Sizes {
    int heads, rows, columns, depth, width, causal;
    long q[3], k[3], v[3], o[3], mask[4], made[3][3];
    long all, turns, together;  // rows of all heads; numbers that say whose turn it is; heads that are at work together
    double scale;
};
"""
_COMMON = """#include "wgmma.cuh"
typedef {stored} A;
enum {{ DEPTH = {depth}, KEYS = {keys}, QUERIES = {queries}, GROUPS = {groups}, BLOCKS = {blocks}, THREADS = GROUPS * 128 }};
""", SIZES + """enum { PANELS = DEPTH / PANEL, PARTS = DEPTH / 8 };  // of a row: panels, and parts of 16 bytes
const float LOG2_E = 1.4426950408889634f;
#define FOR(i, n) _Pragma("unroll") for (int i = 0; i < n; i++)

// Which head and which of its tiles a block has. Some heads go through their tiles together: what they read stays in the cache.
struct Share {
    int group, tile;
    __device__ Share(int number, int tiles, int together) {
        const int groups = gridDim.x / tiles, first = number / (together * tiles) * together;
        const int count = groups - first < together ? groups - first : together;
        group = first + (number - first * tiles) % count, tile = (number - first * tiles) / count;
    }
};
// What a thread loads of a matrix in memory, a tile of ROWS rows after (WAY -1: before) the other: each becomes a matrix of
// panels, zeros behind the end. It is there after `arrived` and a barrier.
template <int ROWS, int WAY = 1> struct Loader {
    enum { STEP = THREADS / PARTS };
    const A *source;
    long step;
    int row, place;
    __device__ Loader(const A *from, long step) : source(from), step(step), row(threadIdx.x / PARTS) {
        const int at = threadIdx.x % PARTS;
        source += row * step + at * 8;
        place = at / 8 * ROWS * LINE + row * LINE + ((at ^ row) % 8 << 4);  // the same for all rows: STEP is a multiple of 8
    }
    __device__ void next(char *tile, int count) {
        FOR(n, ROWS / STEP) send_for(tile + place + n * STEP * LINE, source + n * STEP * step, row + n * STEP < count);
        source += WAY * ROWS * step;
    }
};
// The sums of a warpgroup, of 64 rows from `first` on, as rows of such a matrix; each half of a warp's rows times a number.
template <int ROWS> static __device__ inline void put(char *tile, const float (&sums)[DEPTH / 2], int first, float above,
                                                      float below) {
    const int lane = threadIdx.x % 32, row = first + threadIdx.x % 128 / 32 * 16 + lane % 16;
    FOR(n, DEPTH / 16) {
        unsigned four[4];
        FOR(e, 4) {
            const float by = e % 2 ? below : above, *x = sums + (2 * n + e / 2) * 4 + e % 2 * 2;
            four[e] = rounded(x[0] * by, x[1] * by, A{});
        }
        store_four(part_of(tile + n / 4 * ROWS * LINE, row, n % 4 * 2 + lane / 16), four);
    }
}
// The matrix to memory.
template <int ROWS> static __device__ inline void deliver(A *to, long step, char *tile, int count) {
    const int at = threadIdx.x % PARTS;
    tile += at / 8 * ROWS * LINE;
    _Pragma("unroll") for (int row = threadIdx.x / PARTS; row < ROWS; row += THREADS / PARTS)
        if (row < count) *(Run<A, 8> *)(to + row * step + at * 8) = *(Run<A, 8> *)part_of(tile, row, at % 8);
}
// 64 rows of one matrix (of FIRST) with all rows of another: their products over the columns.
template <int FIRST, int SECOND> static __device__ inline void scores(float (&made)[SECOND / 2], Operand<0> one,
                                                                      Operand<0> other) {
    FOR(d, DEPTH / 16)
        products(made, one + (d / 4 * FIRST * LINE + d % 4 * 32), other + (d / 4 * SECOND * LINE + d % 4 * 32), d > 0, A{});
}
// Sums of a matrix's rows by weights, added to what is there.
template <int ROWS> static __device__ inline void gather(float (&made)[DEPTH / 2], const unsigned (&weights)[ROWS / 16][4],
                                                         Operand<1> tile) {
    FOR(j, ROWS / 16) products(made, weights[j], tile + j * 2 * ATOM, 1, A{});
}
// Numbers of a warpgroup's rows as the first operand of its products.
template <int N> static __device__ inline void as_weights(unsigned (&made)[N / 8][4], const float (&x)[N]) {
    FOR(j, N / 8) FOR(e, 4) {
        const int at = (2 * j + e / 2) * 4 + e % 2 * 2;
        made[j][e] = rounded(x[at], x[at + 1], A{});
    }
}
"""
_FORWARD = """
// What a warpgroup knows of its rows: the largest score so far (as a power of two), the sum of what the scores became.
struct Rows { float top[2], total[2], keep[2]; };
// Scores become weights, as powers of two; keep: what is left of earlier sums.
static __device__ inline void weigh(float (&score)[KEYS / 2], Rows &rows, float scale, int first, int from, const Sizes &s) {
    const int lane = threadIdx.x % 32, row = first + threadIdx.x % 128 / 32 * 16 + lane / 4;
    if (from + KEYS > s.columns || (s.causal && from + KEYS > first + 1)) {
        const int behind = s.columns - from - lane % 4 * 2;  // columns from here on are not seen
        FOR(n, KEYS / 8) FOR(e, 4) {
            const int seen = row + e / 2 * 8 + 1 - from - lane % 4 * 2;
            if (n * 8 + e % 2 >= (s.causal && seen < behind ? seen : behind)) score[n * 4 + e] = -INFINITY;
        }
    }
    float high[2] = {-INFINITY, -INFINITY}, less[2];
    FOR(n, KEYS / 8) FOR(e, 4) high[e / 2] = fmaxf(high[e / 2], score[n * 4 + e]);
    FOR(e, 2) {
        high[e] = fmaxf(high[e], from_lane(high[e], 1));
        high[e] = fmaxf(rows.top[e], fmaxf(high[e], from_lane(high[e], 2)) * scale);
        less[e] = high[e] == -INFINITY ? 0 : high[e];
        rows.keep[e] = power_of_two(rows.top[e] - less[e]);
        rows.top[e] = high[e], rows.total[e] *= rows.keep[e];
    }
    FOR(n, KEYS / 8) FOR(e, 4) {
        score[n * 4 + e] = power_of_two(fmaf(score[n * 4 + e], scale, -less[e / 2]));
        rows.total[e / 2] += score[n * 4 + e];
    }
}
// A block per tile of queries. While one weighs, others of the same multiprocessor multiply.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) flash(const Sizes s, A *o, float *statistic, const A *q,
                                                                    const A *k, const A *v) {
    enum { ROWS = GROUPS * 64, TILE = KEYS * DEPTH * 2 };
    SHARED_ROOM(room, ROWS * DEPTH * 2 + 4 * TILE)
    char *queries = room, *keys = room + ROWS * DEPTH * 2, *values = keys + 2 * TILE;
    const int tiles = (s.rows + ROWS - 1) / ROWS;
    const Share share(blockIdx.x, tiles, s.together);
    const int group = share.group, batch = group / s.heads, head = group % s.heads, lane = threadIdx.x % 32;
    const int tile = s.causal ? tiles - 1 - share.tile : share.tile;  // the longest rows first
    const int own = uniform(threadIdx.x / 128) * 64, first = tile * ROWS + own;  // this warpgroup's rows in tile and head
    const int end = s.causal && (tile + 1) * ROWS < s.columns ? (tile + 1) * ROWS : s.columns, count = (end + KEYS - 1) / KEYS;
    const float scale = (float)s.scale * LOG2_E;
    Loader<ROWS> query(q + batch * s.q[0] + head * s.q[1] + (long)tile * ROWS * s.q[2], s.q[2]);
    Loader<KEYS> key(k + batch * s.k[0] + head * s.k[1], s.k[2]), value(v + batch * s.v[0] + head * s.v[1], s.v[2]);
    query.next(queries, s.rows - tile * ROWS);
    key.next(keys, end);
    value.next(values, end);
    const Operand<0> asking = along_rows(queries + own * LINE), asked = along_rows(keys);
    const Operand<1> given = down_columns(values, KEYS * LINE);
    float made[DEPTH / 2];
    Rows rows = {{-INFINITY, -INFINITY}, {}, {}};
    FOR(i, DEPTH / 2) made[i] = 0;
    for (int i = 0; i < count; i++) {
        const int here = i % 2 * TILE;
        float score[KEYS / 2];
        unsigned weights[KEYS / 16][4];
        arrived();
        shown_to_products();
        __syncthreads();
        products_begin();
        scores<ROWS, KEYS>(score, asking, asked + here);
        products_sent();
        key.next(keys + TILE - here, end - (i + 1) * KEYS);  // the next tiles come while these are at work
        value.next(values + TILE - here, end - (i + 1) * KEYS);
        products_done<0>();
        settled(score);
        weigh(score, rows, scale, first, i * KEYS, s);
        FOR(n, DEPTH / 2) made[n] *= rows.keep[n / 2 % 2];
        as_weights(weights, score);
        settled(made);
        products_begin();
        gather<KEYS>(made, weights, given + here);
        products_sent();
        products_done<0>();
        settled(made);
    }
    arrived();
    __syncthreads();
    float inverse[2];
    FOR(e, 2) {
        float sum = rows.total[e] + from_lane(rows.total[e], 1);
        sum += from_lane(sum, 2);
        inverse[e] = sum == 0 ? 0 : 1 / sum;
        const int row = first + threadIdx.x % 128 / 32 * 16 + lane / 4 + e * 8;
        if (row < s.rows && lane % 4 == 0)
            statistic[(long)group * s.rows + row] = sum == 0 ? INFINITY : rows.top[e] / LOG2_E + logf(sum);
    }
    put<ROWS>(queries, made, own, inverse[0], inverse[1]);
    __syncthreads();
    deliver<ROWS>(o + batch * s.o[0] + head * s.o[1] + (long)tile * ROWS * s.o[2], s.o[2], queries, s.rows - tile * ROWS);
}
"""
_BACKWARD = """
// Scores of 64 keys with queries, these the columns: -inf where a query may not see a key.
static __device__ inline void hide(float (&score)[QUERIES / 2], int query, int key, const Sizes &s) {
    const int lane = threadIdx.x % 32;
    if (key + KEYS <= s.columns && (!s.causal || query >= key + KEYS - 1)) return;
    query += lane % 4 * 2, key += threadIdx.x / 32 * 16 + lane / 4;
    FOR(n, QUERIES / 8) FOR(e, 4) {
        const int column = key + e / 2 * 8;
        if (column >= s.columns || (s.causal && column > query + n * 8 + e % 2)) score[n * 4 + e] = -INFINITY;
    }
}
// The part of a tile of keys in the gradients of queries (half the rows or half the columns per warpgroup), when its turn has
// come: added to those of the tiles before; the last one writes the result.
enum { BY_ROWS = QUERIES == 128 };
static __device__ inline void hand_over(const float (&part)[32], A *dq, float *sums, const int *turns, int i, int tile,
                                        bool last, const Sizes &s) {
    float *sum = sums + (long)i * QUERIES * DEPTH;
    if (tile) wait_turn(turns + i * (THREADS / 32), tile);
    FOR(n, 8) {
        if (!last) {
            if (tile) add_four(sum + n * THREADS * 4, part + n * 4);
            else *(Run<float, 4> *)(sum + n * THREADS * 4) = *(const Run<float, 4> *)(part + n * 4);
            continue;
        }
        float all[4] = {};
        if (tile) read_four(all, sum + n * THREADS * 4);
        FOR(e, 4) all[e] = (all[e] + part[n * 4 + e]) * (float)s.scale;
        const int lane = threadIdx.x % 32, row = i * QUERIES + threadIdx.x % (BY_ROWS ? 256 : 128) / 32 * 16 + lane / 4;
        const int at = (BY_ROWS ? 0 : threadIdx.x / 128 * PANEL) + n * 8 + lane % 4 * 2;
        FOR(e, 2) if (row + e * 8 < s.rows)
            *(unsigned *)(dq + (row + e * 8) * s.made[0][2] + at) = rounded(all[2 * e], all[2 * e + 1], A{});
    }
}
// A block per tile of keys: the gradients of keys and values, and its part in those of the queries, one tile of them later.
// Rows of what is computed are keys, columns are queries. The parts in a query's gradient are added up in memory, in float, by
// the tiles of keys in their order, so that the sums are the same every time. Blocks take numbers when they start: whom one
// waits for has started before it.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) flash_back(const Sizes s, A *dq, A *dk, A *dv, const A *g,
        const A *q, const A *k, const A *v, const float *notes, float *sums, int *turns) {
    enum { TILE = KEYS * DEPTH * 2, SEEN = QUERIES * DEPTH * 2, PASSED = QUERIES * KEYS * 2, WARPS = THREADS / 32, STAGES = 3 };
    SHARED_ROOM(room, 2 * TILE + STAGES * (2 * SEEN + 8 * QUERIES) + 2 * PASSED + 16)
    char *keys = room, *values = keys + TILE, *queries = values + TILE, *grads = queries + STAGES * SEEN;
    char *passed = grads + STAGES * SEEN;  // the gradients of scores, for the products with the keys
    float *norm = (float *)(passed + 2 * PASSED), *less = norm + STAGES * QUERIES;
    int *number = (int *)(less + STAGES * QUERIES);
    if (!threadIdx.x) *number = atomicAdd(turns, 1);
    __syncthreads();
    const int tiles = (s.columns + KEYS - 1) / KEYS, count = (s.rows + QUERIES - 1) / QUERIES;
    const Share share(*number, tiles, s.together);
    const int group = share.group, tile = share.tile, batch = group / s.heads, head = group % s.heads;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = uniform(warp / 4) * 64;  // own: rows of this warpgroup
    q += batch * s.q[0] + head * s.q[1], k += batch * s.k[0] + head * s.k[1], v += batch * s.v[0] + head * s.v[1];
    g += batch * s.o[0] + head * s.o[1], dq += batch * s.made[0][0] + head * s.made[0][1], notes += (long)group * s.rows;
    sums += (long)group * count * QUERIES * DEPTH + threadIdx.x * 4, turns += 1 + group * count * WARPS + warp;
    const float scale = (float)s.scale * LOG2_E;
    const int start = s.causal ? tile * KEYS / QUERIES : 0, from = (count - 1) * QUERIES;  // from the last queries to the first
    Loader<KEYS> key(k + (long)tile * KEYS * s.k[2], s.k[2]), value(v + (long)tile * KEYS * s.v[2], s.v[2]);
    Loader<QUERIES, -1> query(q + from * s.q[2], s.q[2]), grad(g + from * s.o[2], s.o[2]);
    auto fetched = [&](int i, int stage) {  // behind the end zeros: there the gradient is zero, too
        const int left = i < start ? 0 : s.rows - i * QUERIES, at = threadIdx.x % QUERIES;
        query.next(queries + stage * SEEN, left);
        grad.next(grads + stage * SEEN, left);
        if (threadIdx.x < 2 * QUERIES)
            send_for_one((threadIdx.x < QUERIES ? norm : less) + stage * QUERIES + at,
                         notes + (threadIdx.x < QUERIES ? 0 : s.all) + i * QUERIES + at, at < left);
    };
    key.next(keys, s.columns - tile * KEYS);
    value.next(values, s.columns - tile * KEYS);
    fetched(count - 1, 0);
    const Operand<0> asked = along_rows(keys + own * LINE), given = along_rows(values + own * LINE);
    const Operand<1> mixed = down_columns(keys + (BY_ROWS ? 0 : own * 2 * LINE), 0);
    float for_keys[DEPTH / 2], for_values[DEPTH / 2], part[32];
    FOR(i, DEPTH / 2) for_keys[i] = for_values[i] = 0;
    auto for_queries = [&](int i) {
        const Operand<1> weights = down_columns(passed + i % 2 * PASSED + (BY_ROWS ? own * 2 * LINE : 0), 0);
        FOR(j, KEYS / 16) products(part, weights + j * 2 * ATOM, mixed + j * 2 * ATOM, j > 0, A{});
        products_sent();
    };
    auto last = [&](int i) {  // whether these queries see no further tile of keys
        return tile == tiles - 1 || (s.causal && tile == ((i + 1) * QUERIES - 1) / KEYS);
    };
    auto handed = [&](int i) { hand_over(part, dq, sums, turns, i, tile, last(i), s); };
    auto ended = [&](int i) { if (!last(i)) end_turn(turns + i * WARPS, tile); };
    for (int i = count - 1, stage = 0; i >= start; i--, stage = stage == STAGES - 1 ? 0 : stage + 1) {
        char *const asking = queries + stage * SEEN, *const grad_here = grads + stage * SEEN;
        float score[QUERIES / 2], change[QUERIES / 2];
        unsigned weights[QUERIES / 16][4], changes[QUERIES / 16][4];
        arrived();
        shown_to_products();
        __syncthreads();
        products_begin();
        scores<KEYS, QUERIES>(score, asked, along_rows(asking));
        products_sent();
        for_queries(i + 1);  // at first of nothing, which nobody reads
        fetched(i - 1, stage == STAGES - 1 ? 0 : stage + 1);
        products_done<1>();
        settled(score);
        hide(score, i * QUERIES, tile * KEYS, s);
        FOR(n, QUERIES / 8) {
            const Run<float, 2> two = *(Run<float, 2> *)(norm + stage * QUERIES + n * 8 + lane % 4 * 2);
            FOR(e, 4) score[n * 4 + e] = power_of_two(fmaf(score[n * 4 + e], scale, -two.at[e % 2]));
        }
        as_weights(weights, score);
        products_done<0>();
        settled(part);
        if (i < count - 1) handed(i + 1);
        products_begin();
        scores<KEYS, QUERIES>(change, given, along_rows(grad_here));
        products_sent();
        gather<QUERIES>(for_values, weights, down_columns(grad_here, QUERIES * LINE));
        products_sent();
        products_done<1>();
        settled(change);
        FOR(n, QUERIES / 8) {
            const Run<float, 2> two = *(Run<float, 2> *)(less + stage * QUERIES + n * 8 + lane % 4 * 2);
            FOR(e, 4) change[n * 4 + e] = score[n * 4 + e] * (change[n * 4 + e] - two.at[e % 2]);
        }
        as_weights(changes, change);
        FOR(j, QUERIES / 16)
            store_four(part_of(passed + i % 2 * PASSED + j / 4 * KEYS * LINE, warp * 16 + lane % 16, j % 4 * 2 + lane / 16),
                       changes[j]);
        products_begin();
        gather<QUERIES>(for_keys, changes, down_columns(asking, QUERIES * LINE));
        products_sent();
        if (i < count - 1) ended(i + 1);
    }
    products_done<0>();
    settled(for_keys), settled(for_values);
    arrived();
    shown_to_products();
    __syncthreads();
    if (start < count) {
        products_begin();
        for_queries(start);
        products_done<0>();
        settled(part);
        handed(start);
        ended(start);
    }
    __syncthreads();
    put<KEYS>(keys, for_keys, own, (float)s.scale, (float)s.scale);
    put<KEYS>(values, for_values, own, 1, 1);
    __syncthreads();
    deliver<KEYS>(dk + batch * s.made[1][0] + head * s.made[1][1] + (long)tile * KEYS * s.made[1][2], s.made[1][2], keys,
                  s.columns - tile * KEYS);
    deliver<KEYS>(dv + batch * s.made[2][0] + head * s.made[2][1] + (long)tile * KEYS * s.made[2][2], s.made[2][2], values,
                  s.columns - tile * KEYS);
}
"""
_FORMS = {"flash": _FORWARD, "flash_back": _BACKWARD}


@functools.cache
def _text(name: str, dtype: np.dtype, depth: int, keys: int, queries: int, groups: int, blocks: int) -> str:
    head = _COMMON[0].format(stored=STORED[dtype], depth=depth, keys=keys, queries=queries, groups=groups, blocks=blocks)
    return head + _COMMON[1] + _FORMS[name]


def serves(q: CudaArray, v: CudaArray, scale: float) -> bool:
    """Of heads without a mask, whose rows are loaded in 16 bytes."""
    return (q.shape[3] == v.shape[3] and q.shape[3] in DEPTHS and scale > 0
            and machine().attribute("capability_major", device_index(q)) == 9)


def forward(q: CudaArray, k: CudaArray, v: CudaArray, fixed: bytes, out: CudaArray, statistic: CudaArray) -> None:
    depth = q.shape[3]
    keys, groups, each = TILES[depth]
    text = _text("flash", q.dtype, depth, keys, 64, groups, each)
    blocks = q.shape[0] * q.shape[1] * -(-q.shape[2] // (64 * groups))
    shared = (64 * groups + 4 * keys) * depth * 2
    plan_of(text, "flash", device_index(q), blocks, 128 * groups, "ppppp", fixed, shared).run(out, statistic, q, k, v)


def room_for_sums(q: CudaArray) -> tuple[CudaArray, CudaArray]:
    """Room for the gradients of queries in float, in tiles, and for whose turn it is: one number of blocks, one per warp and
    tile."""
    queries = QUERIES[q.shape[3]]
    tiles = q.shape[0] * q.shape[1] * -(-q.shape[2] // queries)
    return (windows.empty((tiles, queries * q.shape[3]), np.dtype(np.float32)),
            windows.empty((1 + 8 * tiles,), np.dtype(np.int32)))


def backward(grad: CudaArray, q: CudaArray, k: CudaArray, v: CudaArray, fixed: bytes, notes: CudaArray, sums: CudaArray,
             turns: CudaArray, made: Any) -> None:
    depth, queries = q.shape[3], QUERIES[q.shape[3]]
    text = _text("flash_back", q.dtype, depth, KEYS, queries, 2, 1)
    blocks = q.shape[0] * q.shape[1] * -(-k.shape[2] // KEYS)
    shared = 4 * KEYS * depth + 3 * (4 * queries * depth + 8 * queries) + 4 * queries * KEYS + 16
    plan = plan_of(text, "flash_back", device_index(q), blocks, 256, "p" * 10, fixed, shared)
    plan.run(*made, grad, q, k, v, notes, sums, turns)
