// Layer norm and RMS norm (mean == NULL) over rows of n elements, and their derivatives.
#ifndef T
#include "rows.h"

//: fl_layer_norm_f32(pppppplld)
//: fl_layer_norm_f64(pppppplld)
//: fl_layer_norm_backward_f32(ppppppppll)
//: fl_layer_norm_backward_f64(ppppppppll)

#define BATCH 64  // rows whose weight gradients are added up in their own precision
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define X(name) JOIN(name, SUFFIX)

#define T float
#define SUFFIX f32
#include "layernorm.c"
#undef T
#undef SUFFIX
#define T double
#define SUFFIX f64
#include "layernorm.c"

#else

static inline double X(squares)(const T *x, long n, T mean) {
    double total = 0;
    for (long from = 0; from < n; from += FL_PIECE) {
        long to = from + FL_PIECE < n ? from + FL_PIECE : n;
        T s = 0;
#pragma omp simd reduction(+ : s)
        for (long i = from; i < to; i++) s += (x[i] - mean) * (x[i] - mean);
        total += s;
    }
    return total;
}

static inline void X(put_row)(const T *r, const T *weight, const T *bias, T *o, T m, T s, long n) {
    if (weight && bias)
#pragma omp simd
        for (long i = 0; i < n; i++) o[i] = (r[i] - m) * s * weight[i] + bias[i];
    else if (weight)
#pragma omp simd
        for (long i = 0; i < n; i++) o[i] = (r[i] - m) * s * weight[i];
    else if (bias)
#pragma omp simd
        for (long i = 0; i < n; i++) o[i] = (r[i] - m) * s + bias[i];
    else
#pragma omp simd
        for (long i = 0; i < n; i++) o[i] = (r[i] - m) * s;
}

// weight and bias may be NULL; mean NULL: RMS norm, whose rows are not centred.
void X(fl_layer_norm)(const T *x, const T *weight, const T *bias, T *out, T *mean, T *rstd, long rows, long n, double eps) {
    long step = fl_rows_at_once(n);
#pragma omp parallel for num_threads(fl_team(rows * n * 2))
    for (long block = 0; block < (rows + step - 1) / step; block++) {
        long from = block * step, to = from + step < rows ? from + step : rows;
        T m[FL_SHORT] = {0};
        double s[FL_SHORT];
        if (mean)
            for (long k = from; k < to; k++) mean[k] = m[k - from] = (T)(X(fl_row_sum)(x + k * n, n) / n);
        for (long k = from; k < to; k++) s[k - from] = X(squares)(x + k * n, n, m[k - from]);
        for (long k = from; k < to; k++) rstd[k] = (T)(1 / sqrt(s[k - from] / n + eps));
        for (long k = from; k < to; k++) X(put_row)(x + k * n, weight, bias, out + k * n, m[k - from], rstd[k], n);
    }
}

// One row's share: *along = sum of w g h, *plain = sum of w g, with h = (x - m) * s; dw += g h and db += g where wanted.
static inline void X(row_sums)(const T *g, const T *x, const T *w, T m, T s, T *dw, T *db, long n, double *along,
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
    if (w)
#pragma omp simd
        for (long i = 0; i < n; i++) o[i] = s * (g[i] * w[i] - plain - (x[i] - m) * s * along);
    else
#pragma omp simd
        for (long i = 0; i < n; i++) o[i] = s * (g[i] - plain - (x[i] - m) * s * along);
}

static inline void X(flush)(double *total, T *part, long n) {
    for (long i = 0; i < n; i++) total[i] += part[i], part[i] = 0;
}

// Any of dx, dw, db may be NULL; mean NULL: RMS norm. Each thread adds up its own rows' gradients of weight and bias: a batch
// of rows in T, the batches in double.
void X(fl_layer_norm_backward)(const T *g, const T *x, const T *mean, const T *rstd, const T *weight, T *dx, T *dw, T *db,
                               long rows, long n) {
    int team = fl_team(rows * n * 2), used = 1;
    size_t each = 2 * n * (sizeof(double) + sizeof(T));
    char *memory = dw || db ? calloc(team, each) : NULL;
    long step = fl_rows_at_once(n);
#pragma omp parallel num_threads(team)
    {
        int t = omp_get_thread_num(), count = omp_get_num_threads();
        long first, last;
        fl_share(rows, BATCH, t, count, &first, &last);
        if (t == 0) used = count;
        double *total = memory ? (double *)(memory + t * each) : NULL;
        T *pw = dw ? (T *)(total + 2 * n) : NULL, *pb = db ? (T *)(total + 2 * n) + n : NULL;
        for (long from = first; from < last; from += step) {
            long to = from + step < last ? from + step : last;
            double along[FL_SHORT] = {0}, plain[FL_SHORT] = {0};
            for (long k = from; k < to; k++)
                X(row_sums)(g + k * n, x + k * n, weight, mean ? mean[k] : 0, rstd[k], pw, pb, n, along + k - from,
                            plain + k - from);
            if (dx)
                for (long k = from; k < to; k++)
                    X(put_gradient)(g + k * n, x + k * n, weight, dx + k * n, mean ? mean[k] : 0, rstd[k],
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
