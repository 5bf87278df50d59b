// Layer norm and RMS norm (mean == NULL) over rows of n elements, and their derivatives.
#ifndef T
#include "rows.h"
#include "half.h"

//: fl_layer_norm_{f32,f64}(pppppplld)
//: fl_layer_norm_only_{f32,f64}(pppplld)
//: fl_layer_norm_backward_{f32,f64}(ppppppppll)
//: fl_layer_norm_{bf16,f16}(pppppplldi)

#define TOGETHER 4  // rows whose shares of the weight's gradient are added up in registers
#define LONG 512   // elements of a row that is worked on alone
#define BATCH 64   // rows whose weight gradients are added up in their own precision
#define BODY "layernorm.c"
#include "both_types.h"

// Half precision; weight, bias and the statistics are floats, and both places for these may be NULL.
#define HALF(S)                                                                                                             \
    void fl_layer_norm_##S(const uint16_t *x, const float *weight, const float *bias, uint16_t *out, float *mean,           \
                           float *rstd, long outer, long n, double eps, int centred) {                                      \
        FL_HALF_ROWS(S, 2, 1, x, x, out, outer, n,                                                                          \
                     norm_rows_f32(a, weight, bias, a, mean ? mean + first : 0, rstd ? rstd + first : 0, rows, n, eps, centred)) \
    }
HALF(bf16)
HALF(f16)

#else

static inline void X(put_row)(const T *r, const T *weight, const T *bias, T *o, T m, T s, long n) {
    if (weight && bias) FL_ALONG(n, if (in) o[i] = (r[i] - m) * s * weight[i] + bias[i]);
    else if (weight) FL_ALONG(n, if (in) o[i] = (r[i] - m) * s * weight[i]);
    else if (bias) FL_ALONG(n, if (in) o[i] = (r[i] - m) * s + bias[i]);
    else FL_ALONG(n, if (in) o[i] = (r[i] - m) * s);
}

// Some rows (rows.h says how many). weight and bias may be NULL, and so may mean and rstd, the places for the statistics; not
// centred: RMS norm.
static inline void X(norm_rows)(const T *x, const T *weight, const T *bias, T *out, T *mean, T *rstd, long count, long n,
                                double eps, int centred) {
    T m[FL_SHORT] = {0}, r[FL_SHORT];
    double s[FL_SHORT];
    if (centred)
        for (long k = 0; k < count; k++) m[k] = (T)(X(fl_row_sum)(x + k * n, n) / n);
    for (long k = 0; k < count; k++) s[k] = X(fl_row_squares)(x + k * n, n, m[k]);
#pragma omp simd
    for (long k = 0; k < count; k++) r[k] = (T)(1 / sqrt(s[k] / n + eps));
    for (long k = 0; k < count; k++) X(put_row)(x + k * n, weight, bias, out + k * n, m[k], r[k], n);
    if (mean) memcpy(mean, m, count * sizeof(T));
    if (rstd) memcpy(rstd, r, count * sizeof(T));
}

static inline void X(norm)(const T *x, const T *weight, const T *bias, T *out, T *mean, T *rstd, long rows, long n, double eps,
                           int centred) {
    long step = fl_rows_at_once(n);
#pragma omp parallel for num_threads(fl_team(rows * n * 2))
    for (long block = 0; block < (rows + step - 1) / step; block++) {
        long from = block * step, count = rows - from < step ? rows - from : step;
        X(norm_rows)(x + from * n, weight, bias, out + from * n, mean ? mean + from : 0, rstd ? rstd + from : 0, count, n, eps,
                     centred);
    }
}

void X(fl_layer_norm)(const T *x, const T *weight, const T *bias, T *out, T *mean, T *rstd, long rows, long n, double eps) {
    X(norm)(x, weight, bias, out, mean, rstd, rows, n, eps, mean != NULL);
}

// Where nobody asks for the statistics.
void X(fl_layer_norm_only)(const T *x, const T *weight, const T *bias, T *out, long rows, long n, double eps) {
    X(norm)(x, weight, bias, out, NULL, NULL, rows, n, eps, 1);
}

// The shares of `count` rows in their block at i, of which `rest` elements are there (0: all), with h = (x - m) * s:
// a[k] += w g h and b[k] += w g; dw += g h and db += g where wanted (both have room for whole blocks).
static inline __attribute__((always_inline)) void X(block_sums)(const T *g, const T *x, const T *w, const T *m, const T *s,
                                                                T *dw, T *db, X(fl_block) *a, X(fl_block) *b, int count,
                                                                long n, long i, int rest) {
    X(fl_block) to_w = {0}, to_b = {0}, factor;
    if (dw) to_w = X(fl_load)(dw + i);
    if (db) to_b = X(fl_load)(db + i);
    if (w) factor = rest ? X(fl_part)(w + i, rest, 0) : X(fl_load)(w + i);
    for (int k = 0; k < count; k++) {
        X(fl_block) h = rest ? X(fl_part)(x + k * n + i, rest, m[k]) : X(fl_load)(x + k * n + i);
        X(fl_block) v = rest ? X(fl_part)(g + k * n + i, rest, 0) : X(fl_load)(g + k * n + i);
        h = (h - m[k]) * s[k];
        to_w += v * h;
        to_b += v;
        if (w) v *= factor;
        a[k] += v * h;
        b[k] += v;
    }
    if (dw) X(fl_put)(dw + i, to_w);
    if (db) X(fl_put)(db + i, to_b);
}

// Whole rows: along[k] += sum of w g h, plain[k] += sum of w g.
static inline __attribute__((always_inline)) void X(row_sums)(const T *g, const T *x, const T *w, const T *m, const T *s,
                                                              T *dw, T *db, int count, long n, double *along, double *plain) {
    for (long from = 0; from < n; from += FL_PIECE) {
        long i = from, to = from + FL_PIECE < n ? from + FL_PIECE : n;
        X(fl_block) a[TOGETHER] = {{0}}, b[TOGETHER] = {{0}};
        for (; i + FL_LANES <= to; i += FL_LANES) X(block_sums)(g, x, w, m, s, dw, db, a, b, count, n, i, 0);
        if (i < to) X(block_sums)(g, x, w, m, s, dw, db, a, b, count, n, i, to - i);
        for (int k = 0; k < count; k++) {
            along[k] += X(fl_fold_sum)((const T *)&a[k]);
            plain[k] += X(fl_fold_sum)((const T *)&b[k]);
        }
    }
}

// The same for one long row: simple loops, which do better where the memory is the limit.
static inline void X(long_row_sums)(const T *g, const T *x, const T *w, T m, T s, T *dw, T *db, long n, double *along,
                                    double *plain) {
    for (long from = 0; from < n; from += FL_PIECE) {
        long to = from + FL_PIECE < n ? from + FL_PIECE : n;
        T a = 0, b = 0;
        if (w && dw && db)
#pragma omp simd reduction(+ : a, b)
            for (long i = from; i < to; i++) {
                T h = (x[i] - m) * s, v = g[i] * w[i];
                a += v * h, b += v;
                dw[i] += g[i] * h, db[i] += g[i];
            }
        else {
#pragma omp simd reduction(+ : a, b)
            for (long i = from; i < to; i++) {
                T h = (x[i] - m) * s, v = w ? g[i] * w[i] : g[i];
                a += v * h, b += v;
            }
            if (dw)
#pragma omp simd
                for (long i = from; i < to; i++) dw[i] += g[i] * ((x[i] - m) * s);
            if (db)
#pragma omp simd
                for (long i = from; i < to; i++) db[i] += g[i];
        }
        *along += a, *plain += b;
    }
}

static inline void X(put_gradient)(const T *g, const T *x, const T *w, T *o, T m, T s, T along, T plain, long n) {
    if (w) FL_ALONG(n, if (in) o[i] = s * (g[i] * w[i] - plain - (x[i] - m) * s * along));
    else FL_ALONG(n, if (in) o[i] = s * (g[i] - plain - (x[i] - m) * s * along));
}

static inline void X(flush)(double *total, T *part, long n) {
    for (long i = 0; i < n; i++) total[i] += part[i], part[i] = 0;
}

// Any of dx, dw, db may be NULL; mean NULL: RMS norm. Each thread adds up its own rows' gradients of weight and bias: a batch
// of rows in T, the batches in double.
void X(fl_layer_norm_backward)(const T *g, const T *x, const T *mean, const T *rstd, const T *weight, T *dx, T *dw, T *db,
                               long rows, long n) {
    int team = fl_team(rows * n * 2), used = 1;
    long room = (n + FL_LANES - 1) & -(long)FL_LANES;
    size_t each = 2 * room * (sizeof(double) + sizeof(T));
    char *memory = dw || db ? calloc(team, each) : NULL;
    long step = fl_rows_at_once(n);
#pragma omp parallel num_threads(team)
    {
        int t = omp_get_thread_num(), count = omp_get_num_threads();
        long first, last;
        fl_share(rows, BATCH, t, count, &first, &last);
        if (t == 0) used = count;
        double *total = memory ? (double *)(memory + t * each) : NULL;
        T *pw = dw ? (T *)(total + 2 * room) : NULL, *pb = db ? (T *)(total + 2 * room) + room : NULL;
        for (long from = first; from < last; from += step) {
            long to = from + step < last ? from + step : last;
            double along[FL_SHORT] = {0}, plain[FL_SHORT] = {0};
            T m[FL_SHORT] = {0};
            if (mean) memcpy(m, mean + from, (to - from) * sizeof(T));
            long k = from, at = 0;
            for (; k + TOGETHER <= to; k += TOGETHER, at += TOGETHER)
                X(row_sums)(g + k * n, x + k * n, weight, m + at, rstd + k, pw, pb, TOGETHER, n, along + at, plain + at);
            for (; k < to; k++, at++)
                if (n > LONG) X(long_row_sums)(g + k * n, x + k * n, weight, m[at], rstd[k], pw, pb, n, along + at, plain + at);
                else X(row_sums)(g + k * n, x + k * n, weight, m + at, rstd + k, pw, pb, 1, n, along + at, plain + at);
            if (dx)
                for (long k = from; k < to; k++)
                    X(put_gradient)(g + k * n, x + k * n, weight, dx + k * n, m[k - from], rstd[k],
                                    (T)(along[k - from] / n), mean ? (T)(plain[k - from] / n) : 0, n);
            if ((to - first) % BATCH == 0 || to == last) {
                if (dw) X(flush)(total, pw, n);
                if (db) X(flush)(total + n, pb, n);
            }
        }
    }
    for (int which = 0; which < 2; which++) {
        T *target = which ? db : dw;
        if (!target) continue;
        for (long i = 0; i < n; i++) {
            double s = 0;
            for (int t = 0; t < used; t++) s += ((double *)(memory + t * each))[which * n + i];
            target[i] = (T)s;
        }
    }
    free(memory);
}

#endif
