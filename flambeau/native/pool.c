// Maximum, average and adaptive pooling over one to three dimensions, and their gradients.
//
// Arrays are (planes, depth, height, width), contiguous; fewer dimensions have leading sizes of 1. `g` holds three numbers
// each: size, kernel, stride, padding, dilation, output. Maximum pooling notes per window which tap won, as a byte or (where
// there are more than 256 taps) an int32. The first of equals wins, and the last nan, as in PyTorch.
#ifndef T
#include "runtime.h"

enum { D, H, W, KD, KH, KW, SD, SH, SW, PD, PH, PW, DD, DH, DW, OD, OH, OW };
#define COLUMNS 512  // of a row of windows at a time

//: fl_max_pool_{f32,f64}(ppplpl)
//: fl_max_pool_scatter_{f32,f64}(pplppl)
//:
//: fl_avg_pool_{f32,f64}(ppplll)
//: fl_avg_pool_grad_{f32,f64}(ppplll)
//:
//: fl_adaptive_avg_{f32,f64}(pppl)
//: fl_adaptive_avg_grad_{f32,f64}(pppl)
//: fl_adaptive_max_{f32,f64}(ppppl)

static inline long floor_div(long a, long b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
static inline long up(long a, long b) { return a <= 0 ? 0 : (a + b - 1) / b; }
static inline long least(long a, long b) { return a < b ? a : b; }
static inline long most(long a, long b) { return a > b ? a : b; }
static inline long tap_of(const void *which, long wide, long i) {
    return wide ? ((const int32_t *)which)[i] : ((const uint8_t *)which)[i];
}

// Windows [*from, *to) of [low, high) whose tap at `offset` from the window's start lies inside `size`.
static inline void inside(long offset, long stride, long size, long low, long high, long *from, long *to) {
    *from = most(low, up(-offset, stride));
    *to = least(high, floor_div(size - 1 - offset, stride) + 1);
}

// How far each tap is from its window's start.
static void tap_offsets(const long *g, long *off) {
    for (long a = 0; a < g[KD]; a++)
        for (long b = 0; b < g[KH]; b++)
            for (long c = 0; c < g[KW]; c++)
                *off++ = (a * g[DD] * g[H] + b * g[DH]) * g[W] + c * g[DW];
}

//: fl_max_pool_indices(plppl)
// The winners' flat positions in their planes.
void fl_max_pool_indices(const void *which, long wide, int64_t *at, const long *g, long planes) {
    long taps = g[KD] * g[KH] * g[KW], each = g[OD] * g[OH] * g[OW], off[taps];
    tap_offsets(g, off);
#pragma omp parallel for num_threads(fl_team(planes * each))
    for (long p = 0; p < planes; p++) {
        long i = p * each;
        for (long d = 0; d < g[OD]; d++)
            for (long h = 0; h < g[OH]; h++) {
                long start = ((d * g[SD] - g[PD]) * g[H] + h * g[SH] - g[PH]) * g[W] - g[PW];
                for (long w = 0; w < g[OW]; w++, i++) at[i] = start + w * g[SW] + off[tap_of(which, wide, i)];
            }
    }
}

// Where windows of adaptive pooling start and end.
static inline long first_of(long i, long n, long out) { return i * n / out; }
static inline long end_of(long i, long n, long out) { return ((i + 1) * n + out - 1) / out; }

#define LANE __typeof__(__builtin_choose_expr(sizeof(T) == 4, (int32_t)0, (int64_t)0))
#define BODY "pool.c"
#include "both_types.h"
#else

#define TAKE(v, tap) { T v_ = (v); int take = (v_ > m) | (v_ != v_); m = take ? v_ : m; w = take ? tap : w; }

// ------------------------------------------------------------------------------------------------------------- maximum
static inline __attribute__((always_inline)) void X(better)(const T *x, T *best, LANE *won, long n, long step, LANE tap) {
    for (long j = 0; j < n; j++) {
        T m = best[j];
        LANE w = won[j];
        TAKE(x[j * step], tap)
        best[j] = m;
        won[j] = w;
    }
}

static void X(narrow)(const LANE *won, void *which, long wide, long at, long n) {
    if (!which) return;
    if (wide)
        for (long j = 0; j < n; j++) ((int32_t *)which)[at + j] = (int32_t)won[j];
    else
        for (long j = 0; j < n; j++) ((uint8_t *)which)[at + j] = (uint8_t)won[j];
}

// One row of windows, [low, high) of its columns.
static void X(max_row)(const T *x, T *out, LANE *won, const long *g, long d, long h, long low, long high) {
    long d0 = d * g[SD] - g[PD], h0 = h * g[SH] - g[PH], sw = g[SW];
    long first = up(-d0, g[DD]) * g[KH] + up(-h0, g[DH]);  // the first tap that is not padding wins until beaten
    for (long j = low; j < high; j++) {
        out[j - low] = -INFINITY;
        won[j - low] = (LANE)(first * g[KW] + up(g[PW] - j * sw, g[DW]));
    }
    for (long a = 0; a < g[KD]; a++) {
        long z = d0 + a * g[DD];
        if (z < 0 || z >= g[D]) continue;
        for (long b = 0; b < g[KH]; b++) {
            long y = h0 + b * g[DH];
            if (y < 0 || y >= g[H]) continue;
            for (long c = 0; c < g[KW]; c++) {
                long offset = c * g[DW] - g[PW], from, to;
                inside(offset, sw, g[W], low, high, &from, &to);
                if (from >= to) continue;
                const T *seen = x + (z * g[H] + y) * g[W] + from * sw + offset;
                LANE tap = (LANE)((a * g[KH] + b) * g[KW] + c);
                T *best = out + from - low;
                LANE *noted = won + from - low;
                if (sw == 1) X(better)(seen, best, noted, to - from, 1, tap);
                else if (sw == 2) X(better)(seen, best, noted, to - from, 2, tap);
                else X(better)(seen, best, noted, to - from, sw, tap);
            }
        }
    }
}

static inline int X(is_halving)(const long *g) {  // 2 x 2 windows side by side, nothing hanging over
    return g[D] == 1 && g[KD] == 1 && g[KH] == 2 && g[KW] == 2 && g[SH] == 2 && g[SW] == 2 && !g[PH] && !g[PW] && g[DH] == 1 &&
           g[DW] == 1 && 2 * g[OH] <= g[H] && 2 * g[OW] <= g[W] && g[OW] <= 2 * COLUMNS;
}

static void X(max_halving)(const T *x, T *out, void *which, const long *g, long p) {
    long height = g[OH], width = g[OW], many = most(1, 2 * COLUMNS / width);
    LANE won[2 * COLUMNS];
    for (long h = 0; h < height; h += many) {
        long rows = least(many, height - h), at = (p * height + h) * width;
        for (long r = 0; r < rows; r++) {
            const T *a = x + (p * g[H] + 2 * (h + r)) * g[W], *b = a + g[W];
            T *best = out + at + r * width;
            LANE *noted = won + r * width;
            for (long j = 0; j < width; j++) {
                T m = a[2 * j];
                LANE w = 0;
                TAKE(a[2 * j + 1], 1)
                TAKE(b[2 * j], 2)
                TAKE(b[2 * j + 1], 3)
                best[j] = m;
                noted[j] = w;
            }
        }
        X(narrow)(won, which, 0, at, rows * width);
    }
}

// which may be null: then only the values are wanted.
void X(fl_max_pool)(const T *x, T *out, void *which, long wide, const long *g, long planes) {
    long each = g[OD] * g[OH] * g[OW], size = g[D] * g[H] * g[W], halving = X(is_halving)(g);
#pragma omp parallel for num_threads(fl_team(planes * (size + each * g[KD] * g[KH] * g[KW]) / 4))
    for (long p = 0; p < planes; p++) {
        if (halving) {
            X(max_halving)(x, out, which, g, p);
            continue;
        }
        LANE won[COLUMNS];
        for (long d = 0; d < g[OD]; d++)
            for (long h = 0; h < g[OH]; h++)
                for (long low = 0; low < g[OW]; low += COLUMNS) {
                    long high = least(low + COLUMNS, g[OW]), at = p * each + (d * g[OH] + h) * g[OW] + low;
                    X(max_row)(x + p * size, out + at, won, g, d, h, low, high);
                    X(narrow)(won, which, wide, at, high - low);
                }
    }
}

static void X(scatter_halving)(const T *grad, const uint8_t *which, T *dx, const long *g, long p) {
    long height = g[OH], width = g[OW], many = most(1, 2 * COLUMNS / width);
    LANE won[2 * COLUMNS];
    for (long h = 0; h < height; h += many) {
        long rows = least(many, height - h), at = (p * height + h) * width;
        for (long j = 0; j < rows * width; j++) won[j] = which[at + j];
        for (long r = 0; r < rows; r++) {
            T *a = dx + (p * g[H] + 2 * (h + r)) * g[W], *b = a + g[W];
            const T *from = grad + at + r * width;
            const LANE *noted = won + r * width;
            for (long j = 0; j < width; j++) {
                T v = from[j];
                a[2 * j] = noted[j] == 0 ? v : 0;
                a[2 * j + 1] = noted[j] == 1 ? v : 0;
                b[2 * j] = noted[j] == 2 ? v : 0;
                b[2 * j + 1] = noted[j] == 3 ? v : 0;
            }
        }
    }
}

// The gradient of the input: each window's goes to the tap that won.
void X(fl_max_pool_scatter)(const T *grad, const void *which, long wide, T *dx, const long *g, long planes) {
    long each = g[OD] * g[OH] * g[OW], size = g[D] * g[H] * g[W], off[g[KD] * g[KH] * g[KW]];
    long halving = X(is_halving)(g) && !wide, all = 2 * g[OH] == g[H] && 2 * g[OW] == g[W];
    tap_offsets(g, off);
#pragma omp parallel for num_threads(fl_team(planes * (size / 4 + each)))
    for (long p = 0; p < planes; p++) {
        if (!halving || !all) memset(dx + p * size, 0, size * sizeof(T));
        if (halving) {
            X(scatter_halving)(grad, which, dx, g, p);
            continue;
        }
        long i = p * each;
        for (long d = 0; d < g[OD]; d++)
            for (long h = 0; h < g[OH]; h++) {
                long start = p * size + ((d * g[SD] - g[PD]) * g[H] + h * g[SH] - g[PH]) * g[W] - g[PW];
                for (long w = 0; w < g[OW]; w++, i++) dx[start + w * g[SW] + off[tap_of(which, wide, i)]] += grad[i];
            }
    }
}

// ------------------------------------------------------------------------------------------------------------- average
// By how many elements a window's sum is divided: along one dimension.
static inline long X(count)(long i, long n, long k, long s, long p, long with_padding) {
    long start = i * s - p, end = least(start + k, n + p);
    return with_padding ? end - start : least(end, n) - most(start, 0);
}

static inline __attribute__((always_inline)) void X(add)(const T *x, T *to, long n, long from_step, long to_step) {
    for (long j = 0; j < n; j++) to[j * to_step] += x[j * from_step];
}

// Adds all taps of a row of windows into sums (x to sums), or a row of shares to all taps (sums to x).
static void X(avg_taps)(T *x, T *sums, const long *g, long d, long h, long low, long high, int back) {
    long d0 = d * g[SD] - g[PD], h0 = h * g[SH] - g[PH], sw = g[SW];
    for (long z = most(d0, 0); z < least(d0 + g[KD], g[D]); z++)
        for (long y = most(h0, 0); y < least(h0 + g[KH], g[H]); y++)
            for (long c = 0; c < g[KW]; c++) {
                long from, to;
                inside(c - g[PW], sw, g[W], low, high, &from, &to);
                if (from >= to) continue;
                T *place = x + (z * g[H] + y) * g[W] + from * sw + c - g[PW], *sum = sums + from - low;
                long n = to - from;
                if (back && sw == 1) X(add)(sum, place, n, 1, 1);
                else if (back) X(add)(sum, place, n, 1, sw);
                else if (sw == 1) X(add)(place, sum, n, 1, 1);
                else if (sw == 2) X(add)(place, sum, n, 2, 1);
                else X(add)(place, sum, n, sw, 1);
            }
}

static inline void X(divide)(const T *from, T *to, const long *g, long d, long h, long low, long high, long with_padding,
                                long override) {
    long above = X(count)(d, g[D], g[KD], g[SD], g[PD], with_padding) *
                 X(count)(h, g[H], g[KH], g[SH], g[PH], with_padding);
    if (!override && !g[PW] && (g[OW] - 1) * g[SW] + g[KW] <= g[W]) override = above * g[KW];
    if (override)
        for (long j = 0; j < high - low; j++) to[j] = from[j] / (T)override;
    else
        for (long j = low; j < high; j++)
            to[j - low] = from[j - low] / (T)(above * X(count)(j, g[W], g[KW], g[SW], g[PW], with_padding));
}

void X(fl_avg_pool)(T *x, T *out, const long *g, long planes, long with_padding, long override) {
    long each = g[OD] * g[OH] * g[OW], size = g[D] * g[H] * g[W];
#pragma omp parallel for num_threads(fl_team(planes * (size + each * g[KD] * g[KH] * g[KW]) / 4))
    for (long p = 0; p < planes; p++)
        for (long d = 0; d < g[OD]; d++)
            for (long h = 0; h < g[OH]; h++) {
                T *sums = out + p * each + (d * g[OH] + h) * g[OW];
                memset(sums, 0, g[OW] * sizeof(T));
                X(avg_taps)(x + p * size, sums, g, d, h, 0, g[OW], 0);
                X(divide)(sums, sums, g, d, h, 0, g[OW], with_padding, override);
            }
}

void X(fl_avg_pool_grad)(const T *grad, T *dx, const long *g, long planes, long with_padding, long override) {
    long each = g[OD] * g[OH] * g[OW], size = g[D] * g[H] * g[W];
#pragma omp parallel for num_threads(fl_team(planes * (size + each * g[KD] * g[KH] * g[KW]) / 4))
    for (long p = 0; p < planes; p++) {
        T shares[COLUMNS];
        memset(dx + p * size, 0, size * sizeof(T));
        for (long d = 0; d < g[OD]; d++)
            for (long h = 0; h < g[OH]; h++)
                for (long low = 0; low < g[OW]; low += COLUMNS) {
                    long high = least(low + COLUMNS, g[OW]);
                    X(divide)(grad + p * each + (d * g[OH] + h) * g[OW] + low, shares, g, d, h, low, high, with_padding,
                                 override);
                    X(avg_taps)(dx + p * size, shares, g, d, h, low, high, 1);
                }
    }
}

// ------------------------------------------------------------------------------------------------------------ adaptive
static inline T X(total)(const T *x, long n) {
    double all = 0;
    for (long i = 0; i < n; i += 1024) {
        long m = least(1024, n - i);
        T s = 0;
#pragma omp simd reduction(+ : s)
        for (long j = 0; j < m; j++) s += x[i + j];
        all += s;
    }
    return (T)all;
}

// Calls `visit` for every window of a plane: BODY sees the bounds z0 z1 y0 y1 x0 x1 and the window's number i.
#define WINDOWS(BODY)                                                                                     \
    for (long d = 0; d < g[OD]; d++)                                                                      \
        for (long h = 0; h < g[OH]; h++)                                                                  \
            for (long w = 0; w < g[OW]; w++) {                                                            \
                long i = p * each + (d * g[OH] + h) * g[OW] + w;                                          \
                long z0 = first_of(d, g[D], g[OD]), z1 = end_of(d, g[D], g[OD]);                          \
                long y0 = first_of(h, g[H], g[OH]), y1 = end_of(h, g[H], g[OH]);                          \
                long x0 = first_of(w, g[W], g[OW]), x1 = end_of(w, g[W], g[OW]);                          \
                BODY                                                                                      \
            }

void X(fl_adaptive_avg)(const T *x, T *out, const long *g, long planes) {
    long each = g[OD] * g[OH] * g[OW], size = g[D] * g[H] * g[W];
#pragma omp parallel for num_threads(fl_team(planes * size))
    for (long p = 0; p < planes; p++) {
        const T *plane = x + p * size;
        if (each == 1) {
            out[p] = X(total)(plane, size) / (T)size;
            continue;
        }
        WINDOWS({
            T sum = 0;
            for (long z = z0; z < z1; z++)
                for (long y = y0; y < y1; y++)
                    for (long c = x0; c < x1; c++) sum += plane[(z * g[H] + y) * g[W] + c];
            out[i] = sum / (T)((z1 - z0) * (y1 - y0) * (x1 - x0));
        })
    }
}

void X(fl_adaptive_avg_grad)(const T *grad, T *dx, const long *g, long planes) {
    long each = g[OD] * g[OH] * g[OW], size = g[D] * g[H] * g[W];
#pragma omp parallel for num_threads(fl_team(planes * size))
    for (long p = 0; p < planes; p++) {
        T *plane = dx + p * size;
        if (each == 1) {
            T share = grad[p] / (T)size;
            for (long j = 0; j < size; j++) plane[j] = share;
            continue;
        }
        memset(plane, 0, size * sizeof(T));
        WINDOWS({
            T share = grad[i] / (T)((z1 - z0) * (y1 - y0) * (x1 - x0));
            for (long z = z0; z < z1; z++)
                for (long y = y0; y < y1; y++)
                    for (long c = x0; c < x1; c++) plane[(z * g[H] + y) * g[W] + c] += share;
        })
    }
}

void X(fl_adaptive_max)(const T *x, T *out, int64_t *at, const long *g, long planes) {
    long each = g[OD] * g[OH] * g[OW], size = g[D] * g[H] * g[W];
#pragma omp parallel for num_threads(fl_team(planes * size))
    for (long p = 0; p < planes; p++) {
        const T *plane = x + p * size;
        WINDOWS({
            T m = -INFINITY;
            int64_t w = (z0 * g[H] + y0) * g[W] + x0;
            for (long z = z0; z < z1; z++)
                for (long y = y0; y < y1; y++)
                    for (long c = x0; c < x1; c++) {
                        long place = (z * g[H] + y) * g[W] + c;
                        TAKE(plane[place], place)
                    }
            out[i] = m;
            at[i] = w;
        })
    }
}

#undef TAKE
#undef WINDOWS
#endif
