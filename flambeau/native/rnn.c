// One direction of a recurrent layer over all steps: LSTM, GRU and plain RNN, forward and back through time.
//
// Rows of all steps lie one after the other; `order` holds (first row, count) of each step in the order of the recurrence, the
// counts never growing or never shrinking. What does not depend on the recurrence is one matrix product for all steps. In the
// recurrence each thread owns some of the hidden units and keeps their weights, packed, in its own cache through all steps:
// it multiplies, applies the gates while the products are at hand, and waits for the others once a step. The workspace at the
// end of a table has the size that backends/cpu/rnn.py says.
//! uses gemm
//! now
#ifndef T
#include "runtime.h"
#include "vmath.h"
#if defined(__AVX512F__)
#define WIDE 64
#elif defined(__AVX__)
#define WIDE 32
#else
#define WIDE 16
#endif
#define INLINE static inline __attribute__((always_inline))
#define TILE 6  // rows of a tile of products, which is two to four vectors wide

enum { LSTM, GRU, TANH, RELU };
enum { X, H0, C0, W_IH, W_HH, B_IH, B_HH, OUT, H, C, GATES, CELLS, TANHS, WORK };  // entries of a forward table
enum { GRAD_OUT, GRAD_H, GRAD_C, BX, BH0, BC0, BW_IH, BW_HH, BOUT, BGATES, BCELLS, BTANHS, DX, DH, DC, DW_IH, DW_HH, DB_IH,
       DB_HH, BWORK };                                                                // and of a backward one
typedef struct { long steps, batch, rows, input, hidden; const long *order; } shape_t;

static long gates_of(int kind) { return kind == LSTM ? 4 : kind == GRU ? 3 : 1; }
static long least(long a, long b) { return a < b ? a : b; }

// The threads meet once in each step, which must be worth that.
static int team(shape_t s, int kind) { return fl_team(s.batch * s.hidden * s.hidden / 16 * gates_of(kind)); }

// Rows of a step whose state comes from the step before it; the others begin with the first state.
static long carried(shape_t s, long step) {
    return step ? least(s.order[2 * step + 1], s.order[2 * step - 1]) : 0;
}

#define ROWS_OF(X) X(0) X(1) X(2) X(3) X(4) X(5)
#define START(i) V a##i##0 = {0}, a##i##1 = {0}, a##i##2 = {0}, a##i##3 = {0};
#define STEP(i) \
    if (nb > i) { \
        T f = a[i * lda + k]; \
        a##i##0 += f * x0; \
        a##i##1 += f * x1; \
        if (nv > 2) a##i##2 += f * x2; \
        if (nv > 3) a##i##3 += f * x3; \
    }
#define FINISH(i) \
    if (nb > i) { \
        to[i * nv] = a##i##0; \
        to[i * nv + 1] = a##i##1; \
        if (nv > 2) to[i * nv + 2] = a##i##2; \
        if (nv > 3) to[i * nv + 3] = a##i##3; \
    }
#define FIXED_ROWS(nv) \
    switch (nb) { \
    case 6: LOCAL(fixed)(6, nv, depth, packed, a, lda, to); break; \
    case 5: LOCAL(fixed)(5, nv, depth, packed, a, lda, to); break; \
    case 4: LOCAL(fixed)(4, nv, depth, packed, a, lda, to); break; \
    case 3: LOCAL(fixed)(3, nv, depth, packed, a, lda, to); break; \
    case 2: LOCAL(fixed)(2, nv, depth, packed, a, lda, to); break; \
    default: LOCAL(fixed)(1, nv, depth, packed, a, lda, to); \
    }
// Fetches a vector that will be changed; it may lie across two lines of the cache.
#define SOON(address) { T *to = address; __builtin_prefetch(to, 1); __builtin_prefetch(to + LANES - 1, 1); }
// Runs the code for tiles of rows [from, from + nb) of a step.
#define TILES(first, last, ...) \
    for (long from = first, end = last; from < end;) { \
        long left = end - from, nb = (left + (left + TILE - 1) / TILE - 1) / ((left + TILE - 1) / TILE); \
        __VA_ARGS__ \
        from += nb; \
    }

#define T float
#define NAME(name) fl_##name##_f32
#define LOCAL(name) name##_f32
//: fl_lstm_f32(plllllp)
//: fl_gru_f32(plllllp)
//: fl_rnn_f32(plllllpl)
//: fl_lstm_backward_f32(plllllp)
//: fl_gru_backward_f32(plllllp)
//: fl_rnn_backward_f32(plllllpl)
#include "rnn.c"
#undef T
#undef NAME
#undef LOCAL
#undef V
#undef LANES
#define T double
#define NAME(name) fl_##name##_f64
#define LOCAL(name) name##_f64
//: fl_lstm_f64(plllllp)
//: fl_gru_f64(plllllp)
//: fl_rnn_f64(plllllpl)
//: fl_lstm_backward_f64(plllllp)
//: fl_gru_backward_f64(plllllp)
//: fl_rnn_backward_f64(plllllpl)
#include "rnn.c"

#else
extern void NAME(gemm)(int, int, long, long, long, T, const T *, long, const T *, long, T, T *, long);
typedef T LOCAL(V) __attribute__((vector_size(WIDE), aligned(sizeof(T)), may_alias));
#define V LOCAL(V)
#define LANES (WIDE / (long)sizeof(T))

// ------------------------------------------------------------------------------- products
INLINE void LOCAL(fixed)(const int nb, const int nv, long depth, const V *packed, const T *a, long lda, V *to) {
    ROWS_OF(START)
    for (long k = 0; k < depth; k++, packed += nv) {
        V x0 = packed[0], x1 = packed[1], x2, x3;
        if (nv > 2) x2 = packed[2];
        if (nv > 3) x3 = packed[3];
        ROWS_OF(STEP)
    }
    ROWS_OF(FINISH)
}

// to[row][vector] = the products of nb rows of a with nv packed vectors, `depth` long.
static void LOCAL(product)(int nb, int nv, long depth, const T *weight, const T *a, long lda, T *result) {
    const V *packed = (const V *)weight;
    V *to = (V *)result;
    switch (nv) {
    case 4: FIXED_ROWS(4) break;
    case 3: FIXED_ROWS(3) break;
    default: FIXED_ROWS(2)
    }
}

// Vectors (2 to 4) of hidden units that a thread takes at a time, where it takes one gate only.
static long LOCAL(width)(shape_t s, int threads) {
    long vectors = (s.hidden + LANES - 1) / LANES, each = (vectors + threads - 1) / threads;
    return each < 2 ? 2 : each < 4 ? each : 4;
}

// Packs `count` rows of w_hh from `row` on as one of nv vectors: [k][vector][lane], zero beyond them.
static void LOCAL(pack_rows)(const T *w, long hidden, long row, long count, long vector, long nv, T *to) {
    for (long k0 = 0; k0 < hidden; k0 += LANES)
        for (long l = 0; l < LANES; l++)
            for (long k = k0; k < least(hidden, k0 + LANES); k++)
                to[(k * nv + vector) * LANES + l] = l < count ? w[(row + l) * hidden + k] : 0;
}

// Packs columns [unit, unit + nv * LANES) of a matrix with `depth` rows: [k][lane].
static void LOCAL(pack_columns)(const T *w, long depth, long hidden, long unit, long nv, T *to) {
    for (long k = 0; k < depth; k++)
        for (long l = 0; l < nv * LANES; l++) to[k * nv * LANES + l] = unit + l < hidden ? w[k * hidden + unit + l] : 0;
}

static T *LOCAL(aligned)(T *p) { return (T *)(((uintptr_t)p + 63) / 64 * 64); }

// ---------------------------------------------------------------------------- gates forward
// `s` has the products with the state, [gate][lane]; `g` the row's products with the input, which become the gates.
INLINE void LOCAL(lstm_units)(const T *restrict s, const T *restrict bias, long hidden, long padded, const T *restrict before,
                              T *restrict g, T *restrict c, T *restrict tc, T *restrict h, const long n) {
#pragma omp simd
    for (long l = 0; l < n; l++) {
        T i = LOCAL(sigmoid)(s[l] + g[l] + bias[l]);
        T f = LOCAL(sigmoid)(s[LANES + l] + g[hidden + l] + bias[padded + l]);
        T n_ = LOCAL(tanh)(s[2 * LANES + l] + g[2 * hidden + l] + bias[2 * padded + l]);
        T o = LOCAL(sigmoid)(s[3 * LANES + l] + g[3 * hidden + l] + bias[3 * padded + l]);
        T cell = before[l] * f + i * n_, t = LOCAL(tanh)(cell);
        g[l] = i; g[hidden + l] = f; g[2 * hidden + l] = n_; g[3 * hidden + l] = o;
        c[l] = cell; tc[l] = t; h[l] = o * t;
    }
}

// `own` is the bias of the recurrent part of n, which r multiplies with it.
INLINE void LOCAL(gru_units)(const T *restrict s, const T *restrict bias, const T *restrict own, long hidden, long padded,
                             const T *restrict before, T *restrict g, T *restrict kept, T *restrict h, const long n) {
#pragma omp simd
    for (long l = 0; l < n; l++) {
        T r = LOCAL(sigmoid)(s[l] + g[l] + bias[l]);
        T z = LOCAL(sigmoid)(s[LANES + l] + g[hidden + l] + bias[padded + l]);
        T inner = s[2 * LANES + l] + own[l];
        T n_ = LOCAL(tanh)(r * inner + g[2 * hidden + l] + bias[2 * padded + l]);
        g[l] = r; g[hidden + l] = z; g[2 * hidden + l] = n_;
        kept[l] = inner;
        h[l] = (before[l] - n_) * z + n_;
    }
}

INLINE void LOCAL(rnn_units)(const T *restrict s, const T *restrict bias, T *restrict h, const int relu, const long n) {
#pragma omp simd
    for (long l = 0; l < n; l++) {
        T x = h[l] + s[l] + bias[l];
        h[l] = !relu ? LOCAL(tanh)(x) : x > 0 || x != x ? x : 0;
    }
}

// The rows [first, last) of one step for a block of hidden units from `unit` on, with the states before them.
static void LOCAL(forward_block)(int kind, shape_t s, T **t, long start, long first, long last, long unit, long nv,
                                 const T *packed, const T *bias, long padded, const T *h, const T *c) {
    long hidden = s.hidden, gates = gates_of(kind);
    T sums[TILE * 4 * LANES] __attribute__((aligned(64)));
    TILES(first, last, {
        for (long b = 0; b < nb; b++) {  // what the gates will touch comes into the cache meanwhile
            long row = start + from + b;
            for (long g = 0; g < gates && kind < TANH; g++) SOON(t[GATES] + (row * gates + g) * hidden + unit)
            SOON(t[OUT] + row * hidden + unit)
            if (kind < TANH) SOON(t[CELLS] + row * hidden + unit)
            if (kind == LSTM) SOON(t[TANHS] + row * hidden + unit)
        }
        LOCAL(product)(nb, nv, hidden, packed, h + from * hidden, hidden, sums);
        for (long b = 0; b < nb; b++) {
            long row = start + from + b;
            for (long v = 0; v < (kind < TANH ? 1 : nv); v++) {
                long u = unit + v * LANES;
                if (u >= hidden) break;
                long n = least(LANES, hidden - u), at = row * hidden + u, state = (from + b) * hidden + u;
                const T *sum = sums + (b * nv + v) * LANES;
                T *g = t[GATES] + row * gates * hidden + u;
                if (kind == LSTM) {
                    if (n == LANES) LOCAL(lstm_units)(sum, bias + u, hidden, padded, c + state, g, t[CELLS] + at, t[TANHS] + at,
                                                      t[OUT] + at, LANES);
                    else LOCAL(lstm_units)(sum, bias + u, hidden, padded, c + state, g, t[CELLS] + at, t[TANHS] + at,
                                           t[OUT] + at, n);
                } else if (kind == GRU) {
                    LOCAL(gru_units)(sum, bias + u, bias + 3 * padded + u, hidden, padded, h + state, g, t[CELLS] + at,
                                     t[OUT] + at, n);
                } else LOCAL(rnn_units)(sum, bias + u, t[OUT] + at, kind == RELU, n);
            }
        }
    })
}

// The biases of all gates, padded; those of both sides in one sum except for GRU's n.
static void LOCAL(biases)(int kind, shape_t s, T **t, long padded, T *to) {
    long gates = gates_of(kind);
    memset(to, 0, sizeof(T) * 4 * padded);
    if (!t[B_IH]) return;
    for (long g = 0; g < gates; g++)
        for (long j = 0; j < s.hidden; j++) {
            T a = t[B_IH][g * s.hidden + j], b = t[B_HH][g * s.hidden + j];
            to[g * padded + j] = kind == GRU && g == 2 ? a : a + b;
            if (kind == GRU && g == 2) to[3 * padded + j] = b;
        }
}

// The state after the last step in which each row takes part.
static void LOCAL(last_state)(shape_t s, const T *states, const T *first, T *to) {
    long hidden = s.hidden;
    memcpy(to, first, sizeof(T) * s.batch * hidden);
    for (long step = 0; step < s.steps; step++) {
        long n = s.order[2 * step + 1], next = step + 1 < s.steps ? least(n, s.order[2 * step + 3]) : 0;
        memcpy(to + next * hidden, states + (s.order[2 * step] + next) * hidden, sizeof(T) * (n - next) * hidden);
    }
}

static void LOCAL(forward)(int kind, shape_t s, T **t) {
    long hidden = s.hidden, gates = gates_of(kind), padded = (hidden + 4 * LANES - 1) / (4 * LANES) * 4 * LANES;
    T *bias = LOCAL(aligned)(t[WORK]), *weights = bias + 4 * padded, *projected = kind < TANH ? t[GATES] : t[OUT];
    NAME(gemm)(0, 1, s.rows, gates * hidden, s.input, 1, t[X], s.input, t[W_IH], s.input, 0, projected, gates * hidden);
    LOCAL(biases)(kind, s, t, padded, bias);
    int threads = team(s, kind);
    long nv = kind < TANH ? gates : LOCAL(width)(s, threads), units = kind < TANH ? LANES : nv * LANES;
    long blocks = (hidden + units - 1) / units, size = hidden * nv * LANES;
    // One region per step: its end is where all units meet, and a helper that comes too late holds nobody up.
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long j = 0; j < blocks; j++) {
        for (long v = 0; v < nv; v++) {
            long unit = j * units + (kind < TANH ? 0 : v * LANES), gate = kind < TANH ? v : 0;
            LOCAL(pack_rows)(t[W_HH], hidden, gate * hidden + unit, hidden - unit, v, nv, weights + j * size);
        }
    }
    for (long step = 0; step < s.steps; step++) {
        long start = s.order[2 * step], n = s.order[2 * step + 1], old = carried(s, step);
        long previous = step ? s.order[2 * step - 2] * hidden : 0;
#pragma omp parallel for num_threads(threads) schedule(static)
        for (long j = 0; j < blocks; j++) {
            if (old) LOCAL(forward_block)(kind, s, t, start, 0, old, j * units, nv, weights + j * size, bias, padded,
                                          t[OUT] + previous, kind == LSTM ? t[CELLS] + previous : 0);
            if (old < n) LOCAL(forward_block)(kind, s, t, start, old, n, j * units, nv, weights + j * size, bias, padded,
                                              t[H0], t[C0]);
        }
    }
    LOCAL(last_state)(s, t[OUT], t[H0], t[H]);
    if (kind == LSTM) LOCAL(last_state)(s, t[CELLS], t[C0], t[C]);
}

// --------------------------------------------------------------------------- gates backward
// `d` takes the gradients of the gates before their sigmoid or tanh; dh and dc hold those of the states after and before.
INLINE void LOCAL(lstm_units_back)(const T *restrict g, const T *restrict tc, const T *restrict before, const T *restrict grad,
                                   T *restrict dh, T *restrict dc, T *restrict d, long hidden, long n) {
#pragma omp simd
    for (long l = 0; l < n; l++) {
        T i = g[l], f = g[hidden + l], m = g[2 * hidden + l], o = g[3 * hidden + l], t = tc[l];
        T up = dh[l] + (grad ? grad[l] : 0), cell = dc[l] + up * o * (1 - t * t);
        d[l] = cell * m * (i - i * i);
        d[hidden + l] = cell * before[l] * (f - f * f);
        d[2 * hidden + l] = cell * i * (1 - m * m);
        d[3 * hidden + l] = up * t * (o - o * o);
        dc[l] = cell * f;
    }
}

// The gradients as the input sees them go to `d`, as the state does to `e`: they differ in n, where the state comes in times r.
INLINE void LOCAL(gru_units_back)(const T *restrict g, const T *restrict kept, const T *restrict before, const T *restrict grad,
                                  T *restrict dh, T *restrict d, T *restrict e, long hidden, long n) {
#pragma omp simd
    for (long l = 0; l < n; l++) {
        T r = g[l], z = g[hidden + l], m = g[2 * hidden + l], up = dh[l] + (grad ? grad[l] : 0);
        T inner = (1 - m * m) * (1 - z) * up, reset = (r - r * r) * kept[l] * inner;
        T update = (z - z * z) * (before[l] - m) * up;
        d[l] = e[l] = reset;
        d[hidden + l] = e[hidden + l] = update;
        d[2 * hidden + l] = inner;
        e[2 * hidden + l] = inner * r;
        dh[l] = up * z;
    }
}

INLINE void LOCAL(rnn_units_back)(const T *restrict h, const T *restrict grad, const T *restrict dh, T *restrict d,
                                  const int relu, long n) {
#pragma omp simd
    for (long l = 0; l < n; l++) {
        T up = dh[l] + (grad ? grad[l] : 0);
        d[l] = (relu ? (h[l] > 0 ? 1 : 0) : 1 - h[l] * h[l]) * up;
    }
}

// The gradients of one row's gates for n units from `unit` on; b is its number within the step.
static void LOCAL(row_back)(int kind, shape_t s, T **t, long row, long b, long unit, long n, const T *before, T *d, T *e) {
    long hidden = s.hidden, gates = gates_of(kind), at = row * hidden + unit, state = b * hidden + unit;
    const T *grad = t[GRAD_OUT] ? t[GRAD_OUT] + at : 0, *g = t[BGATES] + row * gates * hidden + unit;
    T *dh = t[DH] + state, *to = d + row * gates * hidden + unit;
    if (kind == LSTM) {
        if (grad) LOCAL(lstm_units_back)(g, t[BTANHS] + at, before, grad, dh, t[DC] + state, to, hidden, n);
        else LOCAL(lstm_units_back)(g, t[BTANHS] + at, before, 0, dh, t[DC] + state, to, hidden, n);
    } else if (kind == GRU) {
        T *other = e + row * gates * hidden + unit;
        if (grad) LOCAL(gru_units_back)(g, t[BCELLS] + at, before, grad, dh, to, other, hidden, n);
        else LOCAL(gru_units_back)(g, t[BCELLS] + at, before, 0, dh, to, other, hidden, n);
    } else if (grad) LOCAL(rnn_units_back)(t[BOUT] + at, grad, dh, to, kind == RELU, n);
    else LOCAL(rnn_units_back)(t[BOUT] + at, 0, dh, to, kind == RELU, n);
}

// dh of a block of units = the products of a step's gradients (n rows of e) with their columns of w_hh.
static void LOCAL(state_back)(int kind, shape_t s, long n, long unit, long nv, const T *packed, const T *e, T *dh) {
    long hidden = s.hidden, depth = gates_of(kind) * hidden, width = least(nv * LANES, hidden - unit);
    T sums[TILE * 4 * LANES] __attribute__((aligned(64)));
    TILES(0, n, {
        LOCAL(product)(nb, nv, depth, packed, e + from * depth, depth, sums);
        for (long b = 0; b < nb; b++) {
            T *to = dh + (from + b) * hidden + unit;
            const T *sum = sums + b * nv * LANES;
            for (long l = 0; l < width; l++) to[l] = kind == GRU ? to[l] + sum[l] : sum[l];
        }
    })
}

// The state in front of each row, from the first state and those after each row.
static void LOCAL(states_before)(shape_t s, const T *first, const T *states, T *to) {
    long hidden = s.hidden;
    for (long step = 0; step < s.steps; step++) {
        long start = s.order[2 * step], n = s.order[2 * step + 1], old = carried(s, step);
        if (old) memcpy(to + start * hidden, states + s.order[2 * step - 2] * hidden, sizeof(T) * old * hidden);
        memcpy(to + (start + old) * hidden, first + old * hidden, sizeof(T) * (n - old) * hidden);
    }
}

static void LOCAL(column_sums)(const T *a, long rows, long columns, T *to) {
    long blocks = (columns + 63) / 64;
#pragma omp parallel for num_threads(fl_team(rows * columns / 4))
    for (long block = 0; block < blocks; block++) {
        long from = block * 64, n = least(64, columns - from);
        T sums[64] = {0};
        for (long i = 0; i < rows; i++)
#pragma omp simd
            for (long l = 0; l < n; l++) sums[l] += a[i * columns + from + l];
        memcpy(to + from, sums, sizeof(T) * n);
    }
}

// All gradients that do not depend on the recurrence, from those of the gates: d as the input sees them, e as the state does.
static void LOCAL(weights_back)(shape_t s, T **t, long gates, const T *d, const T *e, T *before) {
    long wide = gates * s.hidden;
    if (t[DX]) NAME(gemm)(0, 0, s.rows, s.input, wide, 1, d, wide, t[BW_IH], s.input, 0, t[DX], s.input);
    if (!t[DW_IH]) return;
    NAME(gemm)(1, 0, wide, s.input, s.rows, 1, d, wide, t[BX], s.input, 0, t[DW_IH], s.input);
    LOCAL(states_before)(s, t[BH0], t[BOUT], before);
    NAME(gemm)(1, 0, wide, s.hidden, s.rows, 1, e, wide, before, s.hidden, 0, t[DW_HH], s.hidden);
    LOCAL(column_sums)(d, s.rows, wide, t[DB_IH]);
    if (d == e) memcpy(t[DB_HH], t[DB_IH], sizeof(T) * wide);
    else LOCAL(column_sums)(e, s.rows, wide, t[DB_HH]);
}

static void LOCAL(backward)(int kind, shape_t s, T **t) {
    long hidden = s.hidden, gates = gates_of(kind), depth = gates * hidden, all_states = s.batch * hidden;
    T *d = t[BWORK], *e = kind == GRU ? d + s.rows * depth : d, *before = e + s.rows * depth;
    T *weights = LOCAL(aligned)(before + s.rows * hidden);
    if (t[GRAD_H]) memcpy(t[DH], t[GRAD_H], sizeof(T) * all_states); else memset(t[DH], 0, sizeof(T) * all_states);
    if (kind == LSTM) {
        if (t[GRAD_C]) memcpy(t[DC], t[GRAD_C], sizeof(T) * all_states); else memset(t[DC], 0, sizeof(T) * all_states);
    }
    int threads = team(s, kind);
    long nv = LOCAL(width)(s, threads), units = nv * LANES, blocks = (hidden + units - 1) / units;
    const T *states = kind == LSTM ? t[BCELLS] : t[BOUT], *first = kind == LSTM ? t[BC0] : t[BH0];
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long j = 0; j < blocks; j++) LOCAL(pack_columns)(t[BW_HH], depth, hidden, j * units, nv, weights + j * units * depth);
    // One region per step: the state's gradient from the step after it, then the gates of this one, each for its own units.
    for (long step = s.steps - 1; step >= -1; step--) {
#pragma omp parallel num_threads(threads)
        {
            int me = omp_get_thread_num(), all = omp_get_num_threads();
            long begin = blocks * me / all, end = blocks * (me + 1) / all;
            if (step + 1 < s.steps)
                for (long j = begin; j < end; j++)
                    LOCAL(state_back)(kind, s, s.order[2 * step + 3], j * units, nv, weights + j * units * depth,
                                      e + s.order[2 * step + 2] * depth, t[DH]);
            if (step >= 0) {
                long start = s.order[2 * step], n = s.order[2 * step + 1], old = carried(s, step);
                long unit = begin * units, count = least(end * units, hidden) - unit;
                for (long b = 0; b < n; b++) {
                    const T *state = b < old ? states + (s.order[2 * step - 2] + b) * hidden : first + b * hidden;
                    LOCAL(row_back)(kind, s, t, start + b, b, unit, count, state + unit, d, e);
                }
            }
        }
    }
    LOCAL(weights_back)(s, t, gates, d, e, before);
}

// ----------------------------------------------------------------------------------- exported
#define SHAPE {steps, batch, rows, input, hidden, order}
#define SHAPES long steps, long batch, long rows, long input, long hidden, const long *order
void NAME(lstm)(T **table, SHAPES) { LOCAL(forward)(LSTM, (shape_t)SHAPE, table); }
void NAME(gru)(T **table, SHAPES) { LOCAL(forward)(GRU, (shape_t)SHAPE, table); }
void NAME(rnn)(T **table, SHAPES, long relu) {
    LOCAL(forward)(relu ? RELU : TANH, (shape_t)SHAPE, table);
}
void NAME(lstm_backward)(T **table, SHAPES) { LOCAL(backward)(LSTM, (shape_t)SHAPE, table); }
void NAME(gru_backward)(T **table, SHAPES) { LOCAL(backward)(GRU, (shape_t)SHAPE, table); }
void NAME(rnn_backward)(T **table, SHAPES, long relu) {
    LOCAL(backward)(relu ? RELU : TANH, (shape_t)SHAPE, table);
}
#endif
