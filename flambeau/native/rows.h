// What the kernels over rows share (softmax, losses, norms, attention): powers and sums that the compiler can vectorise.
#pragma once
#include "runtime.h"
#include "vmath.h"

// exp(x) for x <= 0 and nan, as a softmax needs it, of a number or of a block of them; results below the smallest normal number
// are 0. The steps leave p = exp of the rest r, and t, whose last bits hold the power of two.
#define FL_EXP_STEPS_F32(V, x)                                             \
    V t = (x) * 1.442695041f + 12582912.0f, n = t - 12582912.0f;           \
    V r = ((x) - n * 0.693359375f) + n * 2.12194440e-4f;                   \
    V p = r * 1.392632562e-3f + 8.363292753e-3f;                           \
    p = p * r + 4.166655376e-2f;                                           \
    p = p * r + 1.666657631e-1f;                                           \
    p = p * r + 0.5f;                                                      \
    p = p * r + 1.0f;                                                      \
    p = p * r + 1.0f

#define FL_EXP_STEPS_F64(V, x)                                                                \
    V t = (x) * 1.4426950408889634 + 6755399441055744.0, n = t - 6755399441055744.0;          \
    V r = ((x) - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;            \
    V p = r * 2.09148313513804106e-9 + 2.51054191920163364e-8;                                \
    p = p * r + 2.75572732955397243e-7;                                                       \
    p = p * r + 2.7557254913486702e-6;                                                        \
    p = p * r + 2.48015873258222821e-5;                                                       \
    p = p * r + 1.98412698752050768e-4;                                                       \
    p = p * r + 1.38888888888836696e-3;                                                       \
    p = p * r + 8.33333333332602495e-3;                                                       \
    p = p * r + 4.16666666666666698e-2;                                                       \
    p = p * r + 1.66666666666666711e-1;                                                       \
    p = p * r + 0.5;                                                                          \
    p = p * r + 1.0;                                                                          \
    p = p * r + 1.0

// At the lower end the exponent's bits of the power of two are all 0.
static inline float fl_row_exp_f32(float x) {
    float c = x < -88.0f ? -88.0f : x;
    FL_EXP_STEPS_F32(float, c);
    return p * fl_as_float((int32_t)((uint32_t)fl_float_bits(t) << 23) + 0x3f800000);
}

static inline double fl_row_exp_f64(double x) {
    double c = x < -709.1 ? -709.1 : x;
    FL_EXP_STEPS_F64(double, c);
    return p * fl_as_double((int64_t)((uint64_t)fl_double_bits(t) << 52) + 0x3ff0000000000000);
}

typedef float fl_block_f32 __attribute__((vector_size(64)));
typedef double fl_block_f64 __attribute__((vector_size(64)));
typedef uint32_t fl_bits_f32 __attribute__((vector_size(64)));
typedef uint64_t fl_bits_f64 __attribute__((vector_size(64)));

// Here what is too low is blotted out at the end, whatever came of it.
static inline fl_block_f32 fl_block_exp_f32(fl_block_f32 x) {
    FL_EXP_STEPS_F32(fl_block_f32, x);
    p *= (fl_block_f32)(((fl_bits_f32)t << 23) + 0x3f800000u);
    return (fl_block_f32)((fl_bits_f32)p & ~(fl_bits_f32)(x < -87.336f));
}

static inline fl_block_f64 fl_block_exp_f64(fl_block_f64 x) {
    FL_EXP_STEPS_F64(fl_block_f64, x);
    p *= (fl_block_f64)(((fl_bits_f64)t << 52) + 0x3ff0000000000000u);
    return (fl_block_f64)((fl_bits_f64)p & ~(fl_bits_f64)(x < -708.39));
}

#define FL_SHORT 32   // short rows that a kernel works on at once, step by step: while one waits for its sum, others go on
#define FL_PIECE 1024  // elements added up in their own precision before the sum goes into a double

// Runs a statement for the elements 0 <= i < n of a row, in blocks: j is an element's place in its block. Of the last block
// only a part may be there (`in`), but all of it is worked on: a plain loop would take what is left over one by one, and add
// up its partial sums one by one too. That would be most of the time for rows of ten or a hundred elements.
#define FL_LANES (64 / (int)sizeof(T))
#define FL_ALONG(n, ...)                                                            \
    do {                                                                            \
        long whole_ = (n) & -(long)FL_LANES;                                        \
        for (long at_ = 0; at_ < whole_; at_ += FL_LANES)                           \
            _Pragma("omp simd") for (int j = 0; j < FL_LANES; j++) {                \
                const int in = 1;                                                   \
                long i = at_ + j;                                                   \
                __VA_ARGS__;                                                        \
            }                                                                       \
        int rest_ = (n) - whole_;                                                   \
        if (rest_)                                                                  \
            _Pragma("omp simd") for (int j = 0; j < FL_LANES; j++) {                \
                int in = j < rest_;                                                 \
                long i = whole_ + j;                                                \
                __VA_ARGS__;                                                        \
            }                                                                       \
    } while (0)

#define FL_SHORT_ROW 128  // the longest row of which FL_SHORT are taken at once
// How many rows of n elements to take at once.
static inline long fl_rows_at_once(long n) { return n <= FL_SHORT_ROW ? FL_SHORT : n <= 512 ? FL_SHORT / 4 : 1; }

#define FL_JOIN_(a, b) a##_##b
#define FL_JOIN(a, b) FL_JOIN_(a, b)
#define FL_NAME(name) FL_JOIN(name, FL_SUFFIX)
#define T float
#define FL_SUFFIX f32
#include "rows_body.h"
#undef T
#undef FL_SUFFIX

#define T double
#define FL_SUFFIX f64
#include "rows_body.h"
#undef T
#undef FL_SUFFIX
