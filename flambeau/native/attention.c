// Scaled dot-product attention, softmax(q k^T scale + mask) v, and its derivatives: heads and blocks of queries are shared
// among the threads. The scores of a block live in scratch memory; the backward pass makes them again from the log-sum-exp.
#ifndef T
#include "rows.h"

//! flags -O2
//: fl_attention_{f32,f64}(ppppppppd)
//: fl_attention_backward_{f32,f64}(ppppppppppppd)

#if defined(__AVX512F__)
#define WIDTH 64
#define HIGH 8
#elif defined(__AVX__)
#define WIDTH 32
#define HIGH 4
#else
#define WIDTH 16
#define HIGH 4
#endif
#define BLOCK 64        // queries at a time
#define FAR (1L << 60)  // "diagonal" of attention that is not causal
#define LANES ((long)(WIDTH / sizeof(T)))
#define PANEL (2 * LANES)

// sizes: batch, heads, rows (queries), columns (keys), depth (of q and k), width (of v), causal
enum { BATCH, HEADS, ROWS, COLUMNS, DEPTH, BREADTH, CAUSAL };

static inline long fl_least(long a, long b) { return a < b ? a : b; }
static inline long fl_up(long n, long unit) { return (n + unit - 1) / unit * unit; }

#define BODY "attention.c"
#include "both_types.h"

#else

typedef T X(V) __attribute__((vector_size(WIDTH), aligned(sizeof(T)), may_alias));

// c (high rows by `wide` vectors) = or += the sum over p of a[i * ri + p * rp] * b[p * ldb + j].
static inline __attribute__((always_inline)) void X(tile)(const int high, const int wide, long from, long k, const T *a,
                                                          long ri, long rp, const T *b, long ldb, T *c, long ldc, int more) {
    X(V) sum[HIGH][2] = {{{0}}};
    for (long p = from; p < k; p++) {
        const X(V) *bp = (const X(V) *)(b + p * ldb);
        X(V) b0 = bp[0], b1 = wide > 1 ? bp[1] : bp[0];
#pragma GCC unroll 8
        for (int i = 0; i < high; i++) {
            T w = a[i * ri + p * rp];
            sum[i][0] += w * b0;
            if (wide > 1) sum[i][1] += w * b1;
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < high; i++) {
        X(V) *to = (X(V) *)(c + i * ldc);
        if (more) sum[i][0] += to[0];
        to[0] = sum[i][0];
        if (wide > 1 && more) sum[i][1] += to[1];
        if (wide > 1) to[1] = sum[i][1];
    }
}

// A strip of at most HIGH rows.
static void X(strip)(long high, int wide, long from, long k, const T *a, long ri, long rp, const T *b, long ldb, T *c, long ldc,
                     int more) {
    if (high == HIGH && wide > 1) {
        X(tile)(HIGH, 2, from, k, a, ri, rp, b, ldb, c, ldc, more);
        return;
    }
    if (high == HIGH) {
        X(tile)(HIGH, 1, from, k, a, ri, rp, b, ldb, c, ldc, more);
        return;
    }
    for (long i = 0; i < high; i++)
        if (wide > 1) X(tile)(1, 2, from, k, a + i * ri, ri, rp, b, ldb, c + i * ldc, ldc, more);
        else X(tile)(1, 1, from, k, a + i * ri, ri, rp, b, ldb, c + i * ldc, ldc, more);
}

// c (m, n) = or += a b. Columns of b come in panels (`next` elements from one to the next), n is a multiple of LANES.
// `edge` is the column that row 0 sees last, for causal attention. What lies beyond it is left out:
//   side 0: columns of c;  side 1: the terms of the sum;  side 2: a is transposed, so it is the first terms.
static void X(product)(int side, long m, long n, long k, long edge, const T *a, long ri, long rp, const T *b, long ldb,
                       long next, T *c, long ldc, int more) {
    for (long j = 0; j < n; j += PANEL) {
        const T *panel = b + j / PANEL * next;
        for (long i = 0; i < m; i += HIGH) {
            long high = fl_least(HIGH, m - i), from = 0, to = k;
            if (side == 0 && j >= edge + i + high) continue;
            int wide = n - j > LANES && (side || j + LANES < edge + i + high) ? 2 : 1;
            if (side == 1) to = fl_least(k, edge + i + high);
            if (side == 2 && i > edge) from = fl_least(k, i - edge);
            X(strip)(high, wide, from, to, a + i * ri, ri, rp, panel, ldb, c + i * ldc + j, ldc, more);
        }
    }
}

// Four rows of x, four columns of them, times `scale`, as four rows of out.
static inline void X(turn_four)(const T *x, long step, T scale, T *out) {
#if defined(__clang__) || __GNUC__ >= 12
    typedef T F __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));
    F a = *(const F *)x, b = *(const F *)(x + step), c = *(const F *)(x + 2 * step), d = *(const F *)(x + 3 * step);
    F ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    F ba = __builtin_shufflevector(a, b, 2, 6, 3, 7), dc = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(F *)out = scale * __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    *(F *)(out + PANEL) = scale * __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    *(F *)(out + 2 * PANEL) = scale * __builtin_shufflevector(ba, dc, 0, 1, 4, 5);
    *(F *)(out + 3 * PANEL) = scale * __builtin_shufflevector(ba, dc, 2, 3, 6, 7);
#else
    for (int j = 0; j < 4; j++)
        for (int p = 0; p < 4; p++) out[p * PANEL + j] = scale * x[j * step + p];
#endif
}

// Rows of x times `scale` as the columns of panels, with zeros behind the last.
static void X(turn)(const T *x, long step, long rows, long depth, T scale, T *out) {
    for (long r = 0; r < rows; r += PANEL) {
        T *panel = out + r * depth;
        long some = fl_least(PANEL, rows - r), fours = some / 4 * 4, deep = depth / 4 * 4;
        if (some < PANEL) memset(panel, 0, PANEL * depth * sizeof(T));
        for (long j = 0; j < fours; j += 4) {
            for (long p = 0; p < deep; p += 4) X(turn_four)(x + (r + j) * step + p, step, scale, panel + p * PANEL + j);
            for (long p = deep; p < depth; p++)
                for (long i = j; i < j + 4; i++) panel[p * PANEL + i] = x[(r + i) * step + p] * scale;
        }
        for (long j = fours; j < some; j++)
            for (long p = 0; p < depth; p++) panel[p * PANEL + j] = x[(r + j) * step + p] * scale;
    }
}

// Rows of x where vectors can be loaded from them: x itself, or a copy padded with zeros to a multiple of LANES.
static const T *X(padded)(const T *x, long *step, long rows, long depth, T *room) {
    if (depth % LANES == 0) return x;
    long wide = fl_up(depth, LANES);
    for (long r = 0; r < rows; r++) {
        memcpy(room + r * wide, x + r * *step, depth * sizeof(T));
        memset(room + r * wide + depth, 0, (wide - depth) * sizeof(T));
    }
    *step = wide;
    return room;
}

static inline void X(add_mask)(T *s, const T *mask, long step, long n) {
    if (step == 1)
#pragma omp simd
        for (long j = 0; j < n; j++) s[j] += mask[j];
    else
        for (long j = 0; j < n; j++) s[j] += mask[j * step];
}

// Puts `value` into what follows the first `mine` elements of a row, up to whole vectors; returns where they end.
static inline long X(fill)(T *row, long mine, T value) {
    long base = mine / LANES * LANES;
    if (base == mine) return mine;
    for (long j = base; j < base + LANES; j++) row[j] = j < mine ? row[j] : value;
    return base + LANES;
}

static inline T *X(room)(T **at, long count) {
    T *here = *at;
    *at += fl_up(count, LANES);
    return here;
}

// Scores of `count` queries from `first` on, masked: s (count, ld). Returns how many columns the last of them sees.
static long X(scores)(const T *q, long step, const T *keys, const T *mask, const long *ms, long first, long count,
                      const long *sizes, T *s, long ld) {
    long edge = sizes[CAUSAL] ? first : FAR, seen = fl_least(sizes[COLUMNS], edge + count);
    X(product)(0, count, fl_up(seen, LANES), sizes[DEPTH], edge, q + first * step, step, 1, keys, PANEL,
               PANEL * sizes[DEPTH], s, ld, 0);
    if (mask)
        for (long i = 0; i < count; i++)
            X(add_mask)(s + i * ld, mask + (first + i) * ms[2], ms[3], fl_least(seen, edge + i + 1));
    return seen;
}

// strides: (batch, head, row) of q, k, v, out, in elements, then (batch, head, row, column) of the mask, which may be NULL.
// lse: (batch, heads, rows); inf where a row sees nothing.
void X(fl_attention)(const T *q, const T *k, const T *v, const T *mask, T *out, T *lse, const long *sizes, const long *strides,
                     double scale) {
    long heads = sizes[HEADS], rows = sizes[ROWS], columns = sizes[COLUMNS], depth = sizes[DEPTH], breadth = sizes[BREADTH];
    long blocks = (rows + BLOCK - 1) / BLOCK, ld = fl_up(columns, PANEL), wide = fl_up(breadth, LANES);
    const long *qs = strides, *ks = strides + 3, *vs = strides + 6, *os = strides + 9, *ms = strides + 12;
    long items = sizes[BATCH] * heads * blocks, elements = ld * depth + BLOCK * ld + columns * wide + BLOCK * wide + 4 * LANES;
#pragma omp parallel num_threads(fl_team(items * fl_least(rows, BLOCK) * columns * (depth + breadth) / 16))
    {
        T *memory = aligned_alloc(64, fl_up(elements * sizeof(T), 64)), *at = memory;
        T *keys = X(room)(&at, ld * depth), *s = X(room)(&at, BLOCK * ld), *vroom = X(room)(&at, columns * wide), *o = at;
#pragma omp for schedule(static)
        for (long item = 0; item < items; item++) {
            long b = item / blocks / heads, h = item / blocks % heads, first = item % blocks * BLOCK;
            long count = fl_least(BLOCK, rows - first), edge = sizes[CAUSAL] ? first : FAR, vstep = vs[2];
            long most = fl_least(columns, edge + count);
            X(turn)(k + b * ks[0] + h * ks[1], ks[2], most, depth, (T)scale, keys);
            const T *values = X(padded)(v + b * vs[0] + h * vs[1], &vstep, most, breadth, vroom);
            long seen = X(scores)(q + b * qs[0] + h * qs[1], qs[2], keys, mask ? mask + b * ms[0] + h * ms[1] : NULL, ms, first,
                                  count, sizes, s, ld);
            T *target = out + b * os[0] + h * os[1] + first * os[2], *stat = lse + (b * heads + h) * rows + first;
            T inverse[BLOCK];
            double total[BLOCK];
            for (long i = 0; i < count; i++) {
                inverse[i] = X(fl_row_max)(s + i * ld, X(fill)(s + i * ld, fl_least(seen, edge + i + 1), -INFINITY));
                if (inverse[i] == -INFINITY) inverse[i] = 0;
            }
            for (long i = 0; i < count; i++) {
                long mine = fl_up(fl_least(seen, edge + i + 1), LANES);
                total[i] = X(fl_row_powers)(s + i * ld, s + i * ld, mine, inverse[i]);
                for (long j = mine; j < seen; j++) s[i * ld + j] = 0;
            }
            for (long i = 0; i < count; i++) {
                stat[i] = total[i] == 0 ? INFINITY : (T)(log_f64(total[i]) + inverse[i]);
                inverse[i] = total[i] == 0 ? 0 : (T)(1 / total[i]);
            }
            X(product)(1, count, wide, seen, edge, s, ld, 1, values, vstep, PANEL, o, wide, 0);
            for (long i = 0; i < count; i++)
#pragma omp simd
                for (long p = 0; p < breadth; p++) target[i * os[2] + p] = o[i * wide + p] * inverse[i];
        }
        free(memory);
    }
}

// exp(s - lse), and (ds - sum of g o) times that in place of ds; zeros beyond what a row sees.
static void X(weights)(T *s, T *ds, long ld, const T *g, long gstep, const T *o, long ostep, const T *lse, long count,
                       long seen, long edge, long breadth) {
    for (long i = 0; i < count; i++) {
        long mine = X(fill)(s + i * ld, fl_least(seen, edge + i + 1), -INFINITY);
        X(fill)(ds + i * ld, fl_least(seen, edge + i + 1), 0);
        T *p = s + i * ld, *d = ds + i * ld, shift = lse[i], dot = (T)X(fl_row_dot)(g + i * gstep, o + i * ostep, breadth);
#pragma omp simd
        for (long j = 0; j < mine; j++) {
            T e = X(fl_row_exp)(p[j] - shift);
            p[j] = e;
            d[j] = (d[j] - dot) * e;
        }
        for (long j = mine; j < seen; j++) p[j] = d[j] = 0;
    }
}

static void X(put)(const T *from, long ld, T *to, long step, long rows, long n, T scale) {
    for (long i = 0; i < rows; i++)
#pragma omp simd
        for (long p = 0; p < n; p++) to[i * step + p] = from[i * ld + p] * scale;
}

// strides: (batch, head, row) of grad, q, k, v, out, dq, dk, dv, then those of the mask.
void X(fl_attention_backward)(const T *grad, const T *q, const T *k, const T *v, const T *mask, const T *out, const T *lse,
                              T *dq, T *dk, T *dv, const long *sizes, const long *strides, double scale) {
    long heads = sizes[HEADS], rows = sizes[ROWS], columns = sizes[COLUMNS], depth = sizes[DEPTH], breadth = sizes[BREADTH];
    long ld = fl_up(columns, PANEL), deep = fl_up(depth, LANES), wide = fl_up(breadth, LANES), items = sizes[BATCH] * heads;
    const long *gs = strides, *qs = strides + 3, *ks = strides + 6, *vs = strides + 9, *os = strides + 12, *ms = strides + 24;
    const long *dqs = strides + 15, *dks = strides + 18, *dvs = strides + 21;
    long elements = ld * (depth + breadth + 2 * BLOCK) + columns * (2 * deep + wide) + rows * (deep + wide) + BLOCK * deep;
#pragma omp parallel num_threads(fl_team(items * rows * columns * (depth + breadth) / 8))
    {
        T *memory = aligned_alloc(64, fl_up((elements + 12 * LANES) * sizeof(T), 64)), *at = memory;
        T *keys = X(room)(&at, ld * depth), *values = X(room)(&at, ld * breadth), *s = X(room)(&at, BLOCK * ld);
        T *ds = X(room)(&at, BLOCK * ld), *sum_k = X(room)(&at, columns * deep), *sum_v = X(room)(&at, columns * wide);
        T *kroom = X(room)(&at, columns * deep), *qroom = X(room)(&at, rows * deep), *groom = X(room)(&at, rows * wide);
        T *o = at;
#pragma omp for schedule(static)
        for (long item = 0; item < items; item++) {
            long b = item / heads, h = item % heads, qstep = qs[2], kstep = ks[2], gstep = gs[2];
            const T *ko = k + b * ks[0] + h * ks[1], *oo = out + b * os[0] + h * os[1];
            const T *add = mask ? mask + b * ms[0] + h * ms[1] : NULL;
            X(turn)(ko, kstep, columns, depth, (T)scale, keys);
            X(turn)(v + b * vs[0] + h * vs[1], vs[2], columns, breadth, 1, values);
            const T *key = X(padded)(ko, &kstep, columns, depth, kroom);
            const T *query = X(padded)(q + b * qs[0] + h * qs[1], &qstep, rows, depth, qroom);
            const T *g = X(padded)(grad + b * gs[0] + h * gs[1], &gstep, rows, breadth, groom);
            memset(sum_k, 0, columns * deep * sizeof(T));
            memset(sum_v, 0, columns * wide * sizeof(T));
            for (long first = 0; first < rows; first += BLOCK) {
                long count = fl_least(BLOCK, rows - first), edge = sizes[CAUSAL] ? first : FAR;
                long seen = X(scores)(query, qstep, keys, add, ms, first, count, sizes, s, ld);
                const T *gf = g + first * gstep, *qf = query + first * qstep;
                X(product)(0, count, fl_up(seen, LANES), breadth, edge, gf, gstep, 1, values, PANEL, PANEL * breadth, ds, ld,
                           0);
                X(weights)(s, ds, ld, gf, gstep, oo + first * os[2], os[2], lse + item * rows + first, count, seen, edge,
                           breadth);
                X(product)(2, seen, wide, count, edge, s, 1, ld, gf, gstep, PANEL, sum_v, wide, 1);
                X(product)(2, seen, deep, count, edge, ds, 1, ld, qf, qstep, PANEL, sum_k, deep, 1);
                X(product)(1, count, deep, seen, edge, ds, ld, 1, key, kstep, PANEL, o, deep, 0);
                X(put)(o, deep, dq + b * dqs[0] + h * dqs[1] + first * dqs[2], dqs[2], count, depth, (T)scale);
            }
            X(put)(sum_k, deep, dk + b * dks[0] + h * dks[1], dks[2], columns, depth, (T)scale);
            X(put)(sum_v, wide, dv + b * dvs[0] + h * dvs[1], dvs[2], columns, breadth, 1);
        }
        free(memory);
    }
}

#endif
