// Half precision, as 16 bits in memory and float in registers: bf16 and f16, one number or a row of them at a time.
// Rounding is to the nearest, ties to even, as everywhere; what is not a number stays that.
#pragma once
#include <stdint.h>
#include <string.h>

static inline float fl_float_of(uint32_t bits) { float x; memcpy(&x, &bits, sizeof x); return x; }
static inline uint32_t fl_bits_of(float x) { uint32_t bits; memcpy(&bits, &x, sizeof x); return bits; }

static inline float fl_wide_bf16(uint16_t x) { return fl_float_of((uint32_t)x << 16); }

static inline uint16_t fl_narrow_bf16(float x) {
    uint32_t bits = fl_bits_of(x);
    return x == x ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fc0;
}

// Without branches and without instructions of the processor's own, so that loops over these become vector code anywhere.
static inline float fl_wide_f16(uint16_t x) {
    uint32_t bits = fl_bits_of(fl_float_of((uint32_t)(x & 0x7fff) << 13) * 0x1p112f);
    bits |= (x & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;
    return fl_float_of(bits | (uint32_t)(x & 0x8000) << 16);
}

static inline uint16_t fl_narrow_f16(float x) {
    uint32_t bits = fl_bits_of(x), sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    uint32_t small = fl_bits_of(fl_float_of(bits) + 0.5f) - 0x3f000000u;  // the addition rounds to multiples of 2^-24
    uint32_t normal = (bits + 0xc8000fffu + (bits >> 13 & 1)) >> 13;
    uint32_t large = bits > 0x7f800000u ? 0x7e00 : 0x7c00;
    return sign | (bits >= 0x47800000u ? large : bits < 0x38800000u ? small : normal);
}

// Rows: `step` elements from one to the next in the memory of the 16 bits, n floats side by side.
static inline void fl_widen_bf16(const uint16_t *x, long step, float *out, long n) {
    if (step == 1)
#pragma omp simd
        for (long i = 0; i < n; i++) out[i] = fl_wide_bf16(x[i]);
    else
        for (long i = 0; i < n; i++) out[i] = fl_wide_bf16(x[i * step]);
}

static inline void fl_round_bf16(const float *x, uint16_t *out, long step, long n) {
    if (step == 1)
#pragma omp simd
        for (long i = 0; i < n; i++) out[i] = fl_narrow_bf16(x[i]);
    else
        for (long i = 0; i < n; i++) out[i * step] = fl_narrow_bf16(x[i]);
}

#if defined(__F16C__)  // processors that have it convert a vector at once; compilers do not find that by themselves
#if defined(__AVX512F__)
#define FL_HALF_LANES 16
#define FL_HALF_IN "v"
#else
#define FL_HALF_LANES 8
#define FL_HALF_IN "x"
#endif
typedef uint16_t fl_halves __attribute__((vector_size(2 * FL_HALF_LANES), aligned(2), may_alias));
typedef float fl_wides __attribute__((vector_size(4 * FL_HALF_LANES), aligned(4), may_alias));
static inline long fl_widen_vectors(const uint16_t *x, float *out, long n) {
    long i = 0;
    for (; i + FL_HALF_LANES <= n; i += FL_HALF_LANES) {
        fl_wides made;
        __asm__("vcvtph2ps %1, %0" : "=" FL_HALF_IN(made) : FL_HALF_IN(*(const fl_halves *)(x + i)));
        *(fl_wides *)(out + i) = made;
    }
    return i;
}
static inline long fl_round_vectors(const float *x, uint16_t *out, long n) {
    long i = 0;
    for (; i + FL_HALF_LANES <= n; i += FL_HALF_LANES) {
        fl_halves made;
        __asm__("vcvtps2ph $0, %1, %0" : "=" FL_HALF_IN(made) : FL_HALF_IN(*(const fl_wides *)(x + i)));
        *(fl_halves *)(out + i) = made;
    }
    return i;
}
#else
static inline long fl_widen_vectors(const uint16_t *x, float *out, long n) {
#pragma omp simd
    for (long i = 0; i < n; i++) out[i] = fl_wide_f16(x[i]);
    return n;
}
static inline long fl_round_vectors(const float *x, uint16_t *out, long n) {
#pragma omp simd
    for (long i = 0; i < n; i++) out[i] = fl_narrow_f16(x[i]);
    return n;
}
#endif

static inline void fl_widen_f16(const uint16_t *x, long step, float *out, long n) {
    for (long i = step == 1 ? fl_widen_vectors(x, out, n) : 0; i < n; i++) out[i] = fl_wide_f16(x[i * step]);
}

static inline void fl_round_f16(const float *x, uint16_t *out, long step, long n) {
    for (long i = step == 1 ? fl_round_vectors(x, out, n) : 0; i < n; i++) out[i * step] = fl_narrow_f16(x[i]);
}

// Rows of half precision by a kernel for rows of floats: those that are worked on at once (rows.h) are widened into memory that
// stays in the cache. `count` arrays of (outer, n) go in, x and then y; WORK finds the widened rows in a and b, their first and
// their number in `first` and `rows`, and leaves the result in a.
#define FL_HALF_ROWS(S, cost, count, x, y, out, outer, n, WORK)                                                             \
    long step = fl_rows_at_once(n), blocks = ((outer) + step - 1) / step, team = fl_team((outer) * (n) * (cost));           \
    _Pragma("omp parallel num_threads(team)") {                                                                             \
        long from, to;                                                                                                      \
        fl_share(blocks, 1, omp_get_thread_num(), omp_get_num_threads(), &from, &to);                                       \
        float *a = from < to ? malloc((count) * step * (n) * sizeof(float)) : 0, *b = a + ((count) - 1) * step * (n);       \
        for (long k = from; k < to; k++) {                                                                                  \
            long first = k * step, rows = (outer) - first < step ? (outer) - first : step;                                  \
            fl_widen_##S((x) + first * (n), 1, a, rows * (n));                                                              \
            if ((count) > 1) fl_widen_##S((y) + first * (n), 1, b, rows * (n));                                             \
            WORK;                                                                                                           \
            fl_round_##S(a, (out) + first * (n), 1, rows * (n));                                                            \
        }                                                                                                                   \
        free(a);                                                                                                            \
    }
