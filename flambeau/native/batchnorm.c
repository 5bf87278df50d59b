// Batch and group normalization and their gradients, over contiguous (batch, channels, positions).
//
// Variances are sums of squares around the mean, never differences of large sums. Sums run in the lanes of a vector over at
// most BLOCK elements and from there in double precision. A null pointer stands for what is not given or not wanted.
#ifndef T
#include "runtime.h"
#define BLOCK 1024

//: fl_batch_norm_{f32,f64}(pppppppplllldd)
//: fl_batch_norm_grad_{f32,f64}(ppppppppllll)
//:
//: fl_group_norm_{f32,f64}(pppppplllld)
//: fl_group_norm_grad_{f32,f64}(pppppppppllll)

#define BODY "batchnorm.c"
#include "both_types.h"
#else

// ------------------------------------------------------------------------------------------------- runs of positions
static inline double X(sum)(const T *x, long n) {
    double all = 0;
    for (long i = 0; i < n; i += BLOCK) {
        long m = n - i < BLOCK ? n - i : BLOCK;
        T s = 0;
#pragma omp simd reduction(+ : s)
        for (long j = 0; j < m; j++) s += x[i + j];
        all += s;
    }
    return all;
}

static inline double X(squares)(const T *x, long n, T mean) {
    double all = 0;
    for (long i = 0; i < n; i += BLOCK) {
        long m = n - i < BLOCK ? n - i : BLOCK;
        T s = 0;
#pragma omp simd reduction(+ : s)
        for (long j = 0; j < m; j++) s += (x[i + j] - mean) * (x[i + j] - mean);
        all += s;
    }
    return all;
}

// Adds the sums of g and of g * (x - mean).
static inline void X(products)(const T *g, const T *x, long n, T mean, double *sum, double *product) {
    for (long i = 0; i < n; i += BLOCK) {
        long m = n - i < BLOCK ? n - i : BLOCK;
        T s = 0, q = 0;
#pragma omp simd reduction(+ : s, q)
        for (long j = 0; j < m; j++) {
            s += g[i + j];
            q += g[i + j] * (x[i + j] - mean);
        }
        *sum += s;
        *product += q;
    }
}

static inline void X(scaled)(const T *x, T *out, long n, T scale, T shift) {
    for (long j = 0; j < n; j++) out[j] = x[j] * scale + shift;
}

static inline void X(two_terms)(const T *g, const T *x, T *dx, long n, T a, T b, T c) {
    for (long j = 0; j < n; j++) dx[j] = g[j] * a + (x[j] * b + c);
}

static inline void X(follow)(T *running, long c, double value, double momentum) {
    if (running) running[c] = (T)((T)(1 - momentum) * running[c] + (T)momentum * (T)value);
}

// --------------------------------------------------------------------------------------------------------- batch norm
// What a channel's elements are multiplied by and moved by; in training from its own statistics, which are noted.
static inline void X(settle)(long c, double mean, double var, const T *weight, const T *bias, T *saved_mean, T *inverse,
                                double eps, T *scale, T *shift) {
    T m = (T)mean, r = (T)1 / (T)sqrt((T)var + (T)eps);
    if (saved_mean) {
        saved_mean[c] = m;
        inverse[c] = r;
    }
    *scale = weight ? r * weight[c] : r;
    *shift = (bias ? bias[c] : 0) - m * *scale;
}

static void X(channel)(const T *x, T *out, const T *weight, const T *bias, T *running_mean, T *running_var, T *mean,
                          T *inverse, long n, long channels, long length, long c, double momentum, double eps) {
    double count = (double)n * length, m = 0, v = 0;
    T scale, shift;
    if (mean) {
        for (long i = 0; i < n; i++) m += X(sum)(x + (i * channels + c) * length, length);
        m = (T)(m / count);
        for (long i = 0; i < n; i++) v += X(squares)(x + (i * channels + c) * length, length, (T)m);
        v /= count;
        X(follow)(running_mean, c, m, momentum);
        X(follow)(running_var, c, (T)v * (T)(count / (count > 1 ? count - 1 : 1)), momentum);
    } else {
        m = running_mean[c];
        v = running_var[c];
    }
    X(settle)(c, m, v, weight, bias, mean, inverse, eps, &scale, &shift);
    for (long i = 0; i < n; i++)
        X(scaled)(x + (i * channels + c) * length, out + (i * channels + c) * length, length, scale, shift);
}

#define LANES 64  // channels at a time where each has one position per sample

static void X(columns)(const T *x, T *out, const T *weight, const T *bias, T *running_mean, T *running_var, T *mean,
                          T *inverse, long n, long channels, long c0, double momentum, double eps) {
    long many = channels - c0 < LANES ? channels - c0 : LANES;
    double m[LANES] = {0}, v[LANES] = {0};
    T centre[LANES], scale[LANES], shift[LANES];
    if (mean) {
        for (long i = 0; i < n; i++)
            for (long j = 0; j < many; j++) m[j] += x[i * channels + c0 + j];
        for (long j = 0; j < many; j++) centre[j] = (T)(m[j] / n);
        for (long i = 0; i < n; i++)
            for (long j = 0; j < many; j++) {
                T d = x[i * channels + c0 + j] - centre[j];
                v[j] += (double)d * d;
            }
        for (long j = 0; j < many; j++) {
            m[j] = centre[j];
            v[j] /= n;
            X(follow)(running_mean, c0 + j, m[j], momentum);
            X(follow)(running_var, c0 + j, (T)v[j] * (T)((double)n / (n > 1 ? n - 1 : 1)), momentum);
        }
    } else
        for (long j = 0; j < many; j++) {
            m[j] = running_mean[c0 + j];
            v[j] = running_var[c0 + j];
        }
    for (long j = 0; j < many; j++)
        X(settle)(c0 + j, m[j], v[j], weight, bias, mean, inverse, eps, scale + j, shift + j);
    for (long i = 0; i < n; i++)
        for (long j = 0; j < many; j++) out[i * channels + c0 + j] = x[i * channels + c0 + j] * scale[j] + shift[j];
}

// mean (and inverse) null: not in training, the running statistics serve.
void X(fl_batch_norm)(const T *x, T *out, const T *weight, const T *bias, T *running_mean, T *running_var, T *mean,
                         T *inverse, long n, long channels, long length, long training, double momentum, double eps) {
    int team = fl_team(n * channels * length);
    if (!training) mean = inverse = NULL;
    if (length == 1) {
#pragma omp parallel for num_threads(team)
        for (long c = 0; c < channels; c += LANES)
            X(columns)(x, out, weight, bias, running_mean, running_var, mean, inverse, n, channels, c, momentum, eps);
        return;
    }
#pragma omp parallel for num_threads(team)
    for (long c = 0; c < channels; c++)
        X(channel)(x, out, weight, bias, running_mean, running_var, mean, inverse, n, channels, length, c, momentum, eps);
}

// The factors of dx = g * a + x * b + c for one channel.
static inline void X(slopes)(double sum, double product, T mean, T inverse, T weight, double count, long training, T *abc) {
    double scale = (double)inverse * weight, slope = training ? -scale * inverse * inverse * product / count : 0;
    abc[0] = (T)scale;
    abc[1] = (T)slope;
    abc[2] = training ? (T)(-scale * sum / count - mean * slope) : 0;
}

static void X(columns_grad)(const T *g, const T *x, const T *weight, const T *mean, const T *inverse, T *dx, T *dw, T *db,
                               long n, long channels, long c0, long training) {
    long many = channels - c0 < LANES ? channels - c0 : LANES;
    double sum[LANES] = {0}, product[LANES] = {0};
    T a[LANES], b[LANES], c[LANES];
    for (long i = 0; i < n; i++)
        for (long j = 0; j < many; j++) {
            long at = i * channels + c0 + j;
            sum[j] += g[at];
            product[j] += (double)g[at] * (x[at] - mean[c0 + j]);
        }
    for (long j = 0; j < many; j++) {
        T abc[3];
        X(slopes)(sum[j], product[j], mean[c0 + j], inverse[c0 + j], weight ? weight[c0 + j] : 1, n, training, abc);
        a[j] = abc[0];
        b[j] = abc[1];
        c[j] = abc[2];
        if (dw) dw[c0 + j] = (T)(product[j] * inverse[c0 + j]);
        if (db) db[c0 + j] = (T)sum[j];
    }
    if (!dx) return;
    for (long i = 0; i < n; i++)
        for (long j = 0; j < many; j++) {
            long at = i * channels + c0 + j;
            dx[at] = training ? g[at] * a[j] + (x[at] * b[j] + c[j]) : g[at] * a[j];
        }
}

// Gradients of input, weight and bias; null where one is not wanted.
void X(fl_batch_norm_grad)(const T *g, const T *x, const T *weight, const T *mean, const T *inverse, T *dx, T *dw, T *db,
                              long n, long channels, long length, long training) {
    int team = fl_team(n * channels * length);
    if (length == 1) {
#pragma omp parallel for num_threads(team)
        for (long c = 0; c < channels; c += LANES)
            X(columns_grad)(g, x, weight, mean, inverse, dx, dw, db, n, channels, c, training);
        return;
    }
#pragma omp parallel for num_threads(team)
    for (long c = 0; c < channels; c++) {
        double sum = 0, product = 0;
        T abc[3];
        for (long i = 0; i < n; i++) {
            long at = (i * channels + c) * length;
            X(products)(g + at, x + at, length, mean[c], &sum, &product);
        }
        if (dw) dw[c] = (T)(product * inverse[c]);
        if (db) db[c] = (T)sum;
        if (!dx) continue;
        X(slopes)(sum, product, mean[c], inverse[c], weight ? weight[c] : 1, (double)n * length, training, abc);
        for (long i = 0; i < n; i++) {
            long at = (i * channels + c) * length;
            if (training) X(two_terms)(g + at, x + at, dx + at, length, abc[0], abc[1], abc[2]);
            else X(scaled)(g + at, dx + at, length, abc[0], 0);
        }
    }
}

// --------------------------------------------------------------------------------------------------------- group norm
// mean and inverse are (n, groups).
void X(fl_group_norm)(const T *x, T *out, const T *weight, const T *bias, T *mean, T *inverse, long n, long channels,
                         long length, long groups, double eps) {
    long each = channels / groups, size = each * length;
#pragma omp parallel for num_threads(fl_team(n * channels * length))
    for (long r = 0; r < n * groups; r++) {
        const T *rows = x + r * size;
        T m = (T)(X(sum)(rows, size) / size), inv = (T)1 / (T)sqrt((T)(X(squares)(rows, size, m) / size) + (T)eps);
        mean[r] = m;
        inverse[r] = inv;
        for (long k = 0; k < each; k++) {
            long c = r % groups * each + k;
            T scale = weight ? inv * weight[c] : inv;
            X(scaled)(rows + k * length, out + r * size + k * length, length, scale, (bias ? bias[c] : 0) - m * scale);
        }
    }
}

// sums holds 2 * n * channels numbers: the sums of g and of g * (x - mean) per sample and channel.
void X(fl_group_norm_grad)(const T *g, const T *x, const T *weight, const T *mean, const T *inverse, T *dx, T *dw, T *db,
                              double *sums, long n, long channels, long length, long groups) {
    long each = channels / groups, size = each * length;
    double *products = sums + n * channels;
#pragma omp parallel for num_threads(fl_team(n * channels * length))
    for (long r = 0; r < n * groups; r++) {
        double sum = 0, product = 0, inv = inverse[r];
        for (long k = 0; k < each; k++) {
            long row = r * each + k, c = r % groups * each + k;
            sums[row] = products[row] = 0;
            X(products)(g + row * length, x + row * length, length, mean[r], sums + row, products + row);
            double factor = weight ? weight[c] : 1;
            sum += factor * sums[row];
            product += factor * products[row];
        }
        if (!dx) continue;
        double slope = -product / size * inv * inv * inv, shift = -sum / size * inv - mean[r] * slope;
        for (long k = 0; k < each; k++) {
            long row = r * each + k, c = r % groups * each + k;
            X(two_terms)(g + row * length, x + row * length, dx + row * length, length,
                            (T)(inv * (weight ? weight[c] : 1)), (T)slope, (T)shift);
        }
    }
    if (!dw && !db) return;
    for (long c = 0; c < channels; c++) {
        double of_weight = 0, of_bias = 0;
        for (long i = 0; i < n; i++) {
            of_weight += products[i * channels + c] * inverse[i * groups + c / each];
            of_bias += sums[i * channels + c];
        }
        if (dw) dw[c] = (T)of_weight;
        if (db) db[c] = (T)of_bias;
    }
}

#undef LANES
#endif
