// Matrix products in half precision: as in gemm.c, but panels are packed from 16 bits, sums are float, and each element of the
// result is rounded once. Panels hold floats, or, where the processor multiplies pairs of bfloat16, those pairs; both are 32 bits
// a step, so that all but the innermost tile is one code. c = alpha a b + beta c + bias, c is not read when beta is 0.
#include "runtime.h"
#include "half.h"
#include "try.h"

//: fl_use_pairs_bf16(i)
//: fl_gemm_{bf16,f16}(iilllfplplfplp)
//: fl_bgemm_{bf16,f16}(liilllfpllpllfpll)

#define DEPTH 320     // steps of k whose packed panels stay in the second cache
#define WIDTH 8       // panels of columns at a time
#define HIGH 1024     // rows whose sums are kept while k runs
#define FEW 4         // rows up to which the right factor is read once, where it is
#define CHUNK 128     // elements of a row at a time
#define LONG 512      // the same where they are added up: joining the lanes of a sum takes as long as some vectors
#define GRAIN 8       // multiplications that count as one step of a simple loop

#define T float
#define S(name) name##_f32
#include "gemm.h"

static __thread void *scratch_;
static __thread long scratch_size_;

static void *scratch(long bytes) {
    if (scratch_size_ < bytes) {
        free(scratch_);
        scratch_ = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        scratch_size_ = scratch_ ? bytes : 0;
    }
    return scratch_;
}

static void __attribute__((noinline)) tile(long left, int vectors, long k, const T *a, const T *b, long step, T *c, long ldc,
                                           int more) {
#define GO(r, v) S(tile)(r, v, k, a, b, b + LANES, b + 2 * LANES, (const int *)0, step, c, c + LANES, c + 2 * LANES, ldc, 0, more)
    for (int rows; left > 0; left -= rows, a += rows, c += rows * ldc) {
        rows = fl_power(left);
        FL_SWITCH(GO)
    }
#undef GO
}

#ifdef FL_PAIRS
#define FL_ALL(w) {w, w, w, w, w, w, w, w, w, w, w, w, w, w, w, w}
#define FL_DOT(c, x) __asm__("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(x), "v"(w))
#define PAIR(i)                                                                                                             \
    if (rows > i) {                                                                                                         \
        S(V) w = FL_ALL(a[i]);                                                                                              \
        FL_DOT(c##i##0, x0);                                                                                                \
        if (vectors > 1) FL_DOT(c##i##1, x1);                                                                               \
        if (vectors > 2) FL_DOT(c##i##2, x2);                                                                               \
    }
INLINE void pair_tile(const int rows, const int vectors, long k, const T *a, const T *b, long step, T *c0, long ldc, int more) {
    const T *add = 0;
    T *c1 = c0 + LANES, *c2 = c0 + 2 * LANES;
    FL_EACH(FL_ACC)
    for (long p = 0; p < k; p++, a += ROWS, b += step) {
        S(V) x0 = *(const S(V) *)b, x1, x2;
        if (vectors > 1) x1 = *(const S(V) *)(b + LANES);
        if (vectors > 2) x2 = *(const S(V) *)(b + 2 * LANES);
        FL_EACH(PAIR)
    }
    FL_EACH(FL_OUT)
}

static void __attribute__((noinline)) pairs_tile(long left, int vectors, long k, const T *a, const T *b, long step, T *c,
                                                 long ldc, int more) {
#define GO(r, v) pair_tile(r, v, k, a, b, step, c, ldc, more)
    for (int rows; left > 0; left -= rows, a += rows, c += rows * ldc) {
        rows = fl_power(left);
        FL_SWITCH(GO)
    }
#undef GO
}

// The products of x with four rows, of k elements each.
static void pairs_dots(const uint16_t *x, const uint16_t *const rows[4], long k, T sums[4]) {
    S(V) s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    long p = 0;
    for (; p + 2 * LANES <= k; p += 2 * LANES) {
        S(V) w = *(const S(V) *)(x + p);
        FL_DOT(s0, *(const S(V) *)(rows[0] + p));
        FL_DOT(s1, *(const S(V) *)(rows[1] + p));
        FL_DOT(s2, *(const S(V) *)(rows[2] + p));
        FL_DOT(s3, *(const S(V) *)(rows[3] + p));
    }
    if (p < k) {
        uint16_t rest[5][2 * LANES] __attribute__((aligned(64)));
        memset(rest, 0, sizeof rest);
        memcpy(rest[4], x + p, (k - p) * 2);
        for (int r = 0; r < 4; r++) memcpy(rest[r], rows[r] + p, (k - p) * 2);
        S(V) w = *(const S(V) *)rest[4];
        FL_DOT(s0, *(const S(V) *)rest[0]);
        FL_DOT(s1, *(const S(V) *)rest[1]);
        FL_DOT(s2, *(const S(V) *)rest[2]);
        FL_DOT(s3, *(const S(V) *)rest[3]);
    }
    for (int r = 0; r < 4; r++) {
        S(V) s = r == 0 ? s0 : r == 1 ? s1 : r == 2 ? s2 : s3;
        T sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int j = 0; j < 16; j++) sum += s[j];
        sums[r] = sum;
    }
}
#else
#define pairs_tile tile
static void pairs_dots(const uint16_t *x, const uint16_t *const rows[4], long k, T sums[4]) {}
#endif

// Two rows as one of pairs; the second may be missing.
static inline void interleave(const uint16_t *first, const uint16_t *second, uint32_t *to, long n) {
    if (second)
#pragma omp simd
        for (long j = 0; j < n; j++) to[j] = first[j] | (uint32_t)second[j] << 16;
    else
        for (long j = 0; j < n; j++) to[j] = first[j];
}

// Whether pairs of bfloat16 may be multiplied, for tests: 1 (the processor decides) or 0.
void fl_use_pairs_bf16(int may) { fl_without_pairs(!may); }

#define H(name) name##_bf16
#define MAY_PAIR fl_multiplies_pairs()
#include "gemm_half.h"
#undef H
#undef MAY_PAIR

#define H(name) name##_f16
#define MAY_PAIR 0
#include "gemm_half.h"
