// What the kernels over rows share (softmax, losses, norms, attention): powers and sums that the compiler can vectorise.
#pragma once
#include "runtime.h"
#include "vmath.h"

// exp(x) for x <= 0 and nan, as a softmax needs it. Results below the smallest normal number are 0: at the lower end the
// exponent's bits of the power of two are all 0.
static inline float fl_row_exp_f32(float x) {
    float c = x < -88.0f ? -88.0f : x;
    float t = c * 1.442695041f + 12582912.0f;  // the nearest integer ends up in the last bits
    float n = t - 12582912.0f;
    float r = (c - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.392632562e-3f;
    p = p * r + 8.363292753e-3f;
    p = p * r + 4.166655376e-2f;
    p = p * r + 1.666657631e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * fl_as_float((int32_t)((uint32_t)fl_float_bits(t) << 23) + 0x3f800000);
}

static inline double fl_row_exp_f64(double x) {
    double c = x < -709.1 ? -709.1 : x;
    double t = c * 1.4426950408889634 + 6755399441055744.0;
    double n = t - 6755399441055744.0;
    double r = (c - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    double p = 2.09148313513804106e-9;
    p = p * r + 2.51054191920163364e-8;
    p = p * r + 2.75572732955397243e-7;
    p = p * r + 2.7557254913486702e-6;
    p = p * r + 2.48015873258222821e-5;
    p = p * r + 1.98412698752050768e-4;
    p = p * r + 1.38888888888836696e-3;
    p = p * r + 8.33333333332602495e-3;
    p = p * r + 4.16666666666666698e-2;
    p = p * r + 1.66666666666666711e-1;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    return p * fl_as_double((int64_t)((uint64_t)fl_double_bits(t) << 52) + 0x3ff0000000000000);
}

#define FL_SHORT 8    // short rows that a kernel works on at once, step by step: while one waits for its sum, others go on
#define FL_PIECE 1024  // elements added up in their own precision before the sum goes into a double

// For each T: the largest element; exp(x - shift) summed, with or without keeping the powers; sums and dot products.
#define FL_ROWS(T, X)                                                                                                  \
    static inline T fl_row_max_##X(const T *x, long n) {                                                               \
        T m = -INFINITY;                                                                                               \
        _Pragma("omp simd reduction(max : m)") for (long i = 0; i < n; i++) m = x[i] > m ? x[i] : m;                   \
        return m;                                                                                                      \
    }                                                                                                                  \
    static inline double fl_row_powers_##X(const T *x, T *out, long n, T shift) {                                      \
        double total = 0;                                                                                              \
        for (long from = 0; from < n; from += FL_PIECE) {                                                              \
            long to = from + FL_PIECE < n ? from + FL_PIECE : n;                                                       \
            T s = 0;                                                                                                   \
            _Pragma("omp simd reduction(+ : s)") for (long i = from; i < to; i++) {                                    \
                T e = fl_row_exp_##X(x[i] - shift);                                                                    \
                out[i] = e;                                                                                            \
                s += e;                                                                                                \
            }                                                                                                          \
            total += s;                                                                                                \
        }                                                                                                              \
        return total;                                                                                                  \
    }                                                                                                                  \
    static inline double fl_row_total_##X(const T *x, long n, T shift) {                                               \
        double total = 0;                                                                                              \
        for (long from = 0; from < n; from += FL_PIECE) {                                                              \
            long to = from + FL_PIECE < n ? from + FL_PIECE : n;                                                       \
            T s = 0;                                                                                                   \
            _Pragma("omp simd reduction(+ : s)") for (long i = from; i < to; i++) s += fl_row_exp_##X(x[i] - shift);   \
            total += s;                                                                                                \
        }                                                                                                              \
        return total;                                                                                                  \
    }                                                                                                                  \
    static inline double fl_row_sum_##X(const T *x, long n) {                                                          \
        double total = 0;                                                                                              \
        for (long from = 0; from < n; from += FL_PIECE) {                                                              \
            long to = from + FL_PIECE < n ? from + FL_PIECE : n;                                                       \
            T s = 0;                                                                                                   \
            _Pragma("omp simd reduction(+ : s)") for (long i = from; i < to; i++) s += x[i];                           \
            total += s;                                                                                                \
        }                                                                                                              \
        return total;                                                                                                  \
    }                                                                                                                  \
    static inline double fl_row_dot_##X(const T *x, const T *y, long n) {                                              \
        double total = 0;                                                                                              \
        for (long from = 0; from < n; from += FL_PIECE) {                                                              \
            long to = from + FL_PIECE < n ? from + FL_PIECE : n;                                                       \
            T s = 0;                                                                                                   \
            _Pragma("omp simd reduction(+ : s)") for (long i = from; i < to; i++) s += x[i] * y[i];                    \
            total += s;                                                                                                \
        }                                                                                                              \
        return total;                                                                                                  \
    }
// How many rows of n elements to take at once.
static inline long fl_rows_at_once(long n) { return n <= 512 ? FL_SHORT : 1; }

FL_ROWS(float, f32)
FL_ROWS(double, f64)
