// softmax and log_softmax along one dimension of (outer, n, inner), and their derivatives.
#ifndef T
#include "rows.h"
#include "half.h"

//: fl_softmax_{f32,f64}(pplll)
//: fl_log_softmax_{f32,f64}(pplll)
//: fl_softmax_backward_{f32,f64}(ppplll)
//: fl_log_softmax_backward_{f32,f64}(ppplll)
//: fl_softmax_{bf16,f16}(pplll)
//: fl_log_softmax_{bf16,f16}(pplll)
//: fl_softmax_backward_{bf16,f16}(ppplll)
//: fl_log_softmax_backward_{bf16,f16}(ppplll)

#define STRIP 64  // columns at a time where the dimension is not the last
#define BODY "softmax.c"
#include "both_types.h"

// Half precision, along the last dimension only (inner is 1).
#define HALF(S)                                                                                                             \
    void fl_softmax_##S(const uint16_t *x, uint16_t *out, long outer, long n, long inner) {                                 \
        FL_HALF_ROWS(S, 4, 1, x, x, out, outer, n,                                                                          \
                     n <= FL_SHORT_ROW ? short_rows_f32(a, a, rows, n) : some_rows_f32(a, a, rows, n))                      \
    }                                                                                                                       \
    void fl_log_softmax_##S(const uint16_t *x, uint16_t *out, long outer, long n, long inner) {                             \
        FL_HALF_ROWS(S, 4, 1, x, x, out, outer, n, some_log_rows_f32(a, a, rows, n))                                        \
    }                                                                                                                       \
    void fl_softmax_backward_##S(const uint16_t *g, const uint16_t *y, uint16_t *out, long outer, long n, long inner) {     \
        FL_HALF_ROWS(S, 2, 2, g, y, out, outer, n, some_rows_back_f32(a, b, a, rows, n, 0))                                 \
    }                                                                                                                       \
    void fl_log_softmax_backward_##S(const uint16_t *g, const uint16_t *y, uint16_t *out, long outer, long n, long inner) { \
        FL_HALF_ROWS(S, 3, 2, g, y, out, outer, n, some_rows_back_f32(a, b, a, rows, n, 1))                                 \
    }
HALF(bf16)
HALF(f16)

#else

static inline void X(short_rows)(const T *x, T *out, long rows, long n) {
    T m[FL_SHORT], kept[FL_SHORT * FL_SHORT_ROW] __attribute__((aligned(64)));
    double total[FL_SHORT];
    long each = (n + FL_LANES - 1) & -(long)FL_LANES;
    for (long k = 0; k < rows; k++) m[k] = X(fl_row_max)(x + k * n, n);
    for (long k = 0; k < rows; k++) total[k] = X(fl_row_powers_apart)(x + k * n, kept + k * each, n, m[k]);
#pragma omp simd
    for (long k = 0; k < rows; k++) m[k] = (T)(1 / total[k]);
    for (long k = 0; k < rows; k++) {
        T *o = out + k * n, *p = kept + k * each, factor = m[k];
        FL_ALONG(n, if (in) o[i] = p[i] * factor);
    }
}

static inline void X(some_rows)(const T *x, T *out, long rows, long n) {
    T m[FL_SHORT];
    double total[FL_SHORT];
    for (long k = 0; k < rows; k++) m[k] = X(fl_row_max)(x + k * n, n);
    for (long k = 0; k < rows; k++) total[k] = X(fl_row_powers)(x + k * n, out + k * n, n, m[k]);
#pragma omp simd
    for (long k = 0; k < rows; k++) m[k] = (T)(1 / total[k]);
    for (long k = 0; k < rows; k++) {
        T *o = out + k * n, factor = m[k];
        FL_ALONG(n, if (in) o[i] *= factor);
    }
}

// log(sum(exp(x))) as a number and its rest: x - high - low is then rounded once.
static inline void X(log_total)(T m, double total, T *high, T *low) {
    double c = (double)m + log_f64(total);
    *high = (T)c;
    *low = c - *high == c - *high ? (T)(c - *high) : 0;
}

static inline void X(some_log_rows)(const T *x, T *out, long rows, long n) {
    T m[FL_SHORT], low[FL_SHORT];
    double total[FL_SHORT];
    for (long k = 0; k < rows; k++) m[k] = X(fl_row_max)(x + k * n, n);
    for (long k = 0; k < rows; k++) total[k] = X(fl_row_total)(x + k * n, n, m[k]);
#pragma omp simd
    for (long k = 0; k < rows; k++) X(log_total)(m[k], total[k], &m[k], &low[k]);
    for (long k = 0; k < rows; k++) {
        const T *r = x + k * n;
        T *o = out + k * n, high = m[k], rest = low[k];
        FL_ALONG(n, if (in) o[i] = (r[i] - high) - rest);
    }
}

// `width` neighbouring columns of (n, inner): the same, with one maximum and one sum per column.
static void X(strip)(const T *x, T *out, long n, long inner, long width, int logs) {
    T m[STRIP], s[STRIP], low[STRIP];
    for (long j = 0; j < width; j++) m[j] = -INFINITY, s[j] = 0;
    for (long i = 0; i < n; i++)
#pragma omp simd
        for (long j = 0; j < width; j++) m[j] = x[i * inner + j] > m[j] ? x[i * inner + j] : m[j];
    for (long i = 0; i < n; i++)
#pragma omp simd
        for (long j = 0; j < width; j++) {
            T e = X(fl_row_exp)(x[i * inner + j] - m[j]);
            s[j] += e;
            out[i * inner + j] = e;
        }
    if (!logs) {
        for (long j = 0; j < width; j++) s[j] = 1 / s[j];
        for (long i = 0; i < n; i++)
#pragma omp simd
            for (long j = 0; j < width; j++) out[i * inner + j] *= s[j];
        return;
    }
#pragma omp simd
    for (long j = 0; j < width; j++) X(log_total)(m[j], s[j], &s[j], &low[j]);
    for (long i = 0; i < n; i++)
#pragma omp simd
        for (long j = 0; j < width; j++) out[i * inner + j] = (x[i * inner + j] - s[j]) - low[j];
}

static void X(forward)(const T *x, T *out, long outer, long n, long inner, int logs) {
    int team = fl_team(outer * n * inner * 4);
    if (inner == 1) {
        long step = fl_rows_at_once(n);
#pragma omp parallel for num_threads(team)
        for (long k = 0; k < (outer + step - 1) / step; k++) {
            long o = k * step, rows = outer - o < step ? outer - o : step;
            if (logs) X(some_log_rows)(x + o * n, out + o * n, rows, n);
            else if (n <= FL_SHORT_ROW) X(short_rows)(x + o * n, out + o * n, rows, n);
            else X(some_rows)(x + o * n, out + o * n, rows, n);
        }
        return;
    }
    long strips = (inner + STRIP - 1) / STRIP;
#pragma omp parallel for num_threads(team)
    for (long k = 0; k < outer * strips; k++) {
        long from = k % strips * STRIP, at = k / strips * n * inner + from;
        X(strip)(x + at, out + at, n, inner, inner - from < STRIP ? inner - from : STRIP, logs);
    }
}

void X(fl_softmax)(const T *x, T *out, long outer, long n, long inner) { X(forward)(x, out, outer, n, inner, 0); }

void X(fl_log_softmax)(const T *x, T *out, long outer, long n, long inner) { X(forward)(x, out, outer, n, inner, 1); }

static void X(strip_back)(const T *g, const T *y, T *out, long n, long inner, long width, int logs) {
    T s[STRIP];
    for (long j = 0; j < width; j++) s[j] = 0;
    for (long i = 0; i < n; i++)
#pragma omp simd
        for (long j = 0; j < width; j++) s[j] += logs ? g[i * inner + j] : g[i * inner + j] * y[i * inner + j];
    for (long i = 0; i < n; i++) {
        const T *gi = g + i * inner, *yi = y + i * inner;
        T *oi = out + i * inner;
        if (logs)
#pragma omp simd
            for (long j = 0; j < width; j++) oi[j] = gi[j] - X(fl_row_exp)(yi[j]) * s[j];
        else
#pragma omp simd
            for (long j = 0; j < width; j++) oi[j] = (gi[j] - s[j]) * yi[j];
    }
}

static inline void X(some_rows_back)(const T *g, const T *y, T *out, long rows, long n, int logs) {
    T sum[FL_SHORT];
    for (long k = 0; k < rows; k++) sum[k] = (T)(logs ? X(fl_row_sum)(g + k * n, n) : X(fl_row_dot)(g + k * n, y + k * n, n));
    for (long k = 0; k < rows; k++) {
        const T *gk = g + k * n, *yk = y + k * n;
        T *o = out + k * n, s = sum[k];
        if (logs) FL_ALONG(n, if (in) o[i] = gk[i] - X(fl_row_exp)(yk[i]) * s);
        else FL_ALONG(n, if (in) o[i] = (gk[i] - s) * yk[i]);
    }
}

static void X(back)(const T *g, const T *y, T *out, long outer, long n, long inner, int logs) {
    int team = fl_team(outer * n * inner * (logs ? 3 : 2));
    if (inner == 1) {
        long step = fl_rows_at_once(n);
#pragma omp parallel for num_threads(team)
        for (long k = 0; k < (outer + step - 1) / step; k++) {
            long o = k * step, rows = outer - o < step ? outer - o : step;
            X(some_rows_back)(g + o * n, y + o * n, out + o * n, rows, n, logs);
        }
        return;
    }
    long strips = (inner + STRIP - 1) / STRIP;
#pragma omp parallel for num_threads(team)
    for (long k = 0; k < outer * strips; k++) {
        long from = k % strips * STRIP, at = k / strips * n * inner + from;
        X(strip_back)(g + at, y + at, out + at, n, inner, inner - from < STRIP ? inner - from : STRIP, logs);
    }
}

void X(fl_softmax_backward)(const T *g, const T *y, T *out, long outer, long n, long inner) {
    X(back)(g, y, out, outer, n, inner, 0);
}

void X(fl_log_softmax_backward)(const T *g, const T *y, T *out, long outer, long n, long inner) {
    X(back)(g, y, out, outer, n, inner, 1);
}

#endif
