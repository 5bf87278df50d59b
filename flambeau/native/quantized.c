// Products with weights of 8 and of 4 bits (n rows of k, one per column of the result).
#include "runtime.h"
#include "try.h"

//: fl_range(plp)
//: fl_quantize(plfiip)
//: fl_use_bytes(i)
//: fl_linear_int8(pplllippppp)
//: fl_weight8(pplllpp)
//: fl_weight4(pplllplp)
//: fl_unpack4(plllpp)

#define CHUNK 512  // elements of a row at a time; a group of 4-bit weights has at most as many
#define GRAIN 8    // multiplications that count as one step of a simple loop

// The least and the greatest of n numbers; what is not a number is passed over.
void fl_range(const float *x, long n, float *out) {
    float least = INFINITY, greatest = -INFINITY;
#pragma omp simd reduction(min : least) reduction(max : greatest)
    for (long i = 0; i < n; i++) {
        least = x[i] < least ? x[i] : least;
        greatest = x[i] > greatest ? x[i] : greatest;
    }
    out[0] = least, out[1] = greatest;
}

// x / scale to the nearest whole number, plus the zero point, between 0 and `largest`.
void fl_quantize(const float *x, long n, float inverse, int zero, int largest, uint8_t *out) {
#pragma omp simd
    for (long i = 0; i < n; i++) {
        float v = __builtin_rintf(x[i] * inverse) + zero;
        v = v > 0 ? v : 0;
        out[i] = (uint8_t)(int)(v < largest ? v : largest);
    }
}

// ------------------------------------------------------------------------------------------------------- bytes by bytes
static void plain_bytes(const uint8_t *x, const int8_t *const rows[4], long k, int sums[4]) {
    for (int r = 0; r < 4; r++) {
        const int8_t *w = rows[r];
        int s = 0;
#pragma omp simd reduction(+ : s)
        for (long p = 0; p < k; p++) s += (int)x[p] * (int)w[p];
        sums[r] = s;
    }
}

#ifdef FL_PAIRS
typedef int V __attribute__((vector_size(64), aligned(1), may_alias));
typedef int Q __attribute__((vector_size(16)));
#if defined(__clang__) || __GNUC__ >= 12
#define PICK(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#else
#define PICK(x, y, ...) __builtin_shuffle(x, y, (Q){__VA_ARGS__})
#endif
static inline Q quarters(V s) {
    Q part[4];
    memcpy(part, &s, sizeof s);
    return (part[0] + part[1]) + (part[2] + part[3]);
}
#define DOT(s, w) __asm__("vpdpbusd %2, %1, %0" : "+v"(s) : "v"(a), "v"(w))
static void vector_bytes(const uint8_t *x, const int8_t *const rows[4], long k, int sums[4]) {
    V s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    long p = 0;
    for (; p + 64 <= k; p += 64) {
        V a = *(const V *)(x + p);
        DOT(s0, *(const V *)(rows[0] + p));
        DOT(s1, *(const V *)(rows[1] + p));
        DOT(s2, *(const V *)(rows[2] + p));
        DOT(s3, *(const V *)(rows[3] + p));
    }
    if (p < k) {
        int8_t rest[5][64] __attribute__((aligned(64)));
        memset(rest, 0, sizeof rest);
        memcpy(rest[4], x + p, k - p);
        for (int r = 0; r < 4; r++) memcpy(rest[r], rows[r] + p, k - p);
        V a = *(const V *)rest[4];
        DOT(s0, *(const V *)rest[0]);
        DOT(s1, *(const V *)rest[1]);
        DOT(s2, *(const V *)rest[2]);
        DOT(s3, *(const V *)rest[3]);
    }
    Q a = quarters(s0), b = quarters(s1), c = quarters(s2), d = quarters(s3);
    Q ab = PICK(a, b, 0, 4, 1, 5) + PICK(a, b, 2, 6, 3, 7), cd = PICK(c, d, 0, 4, 1, 5) + PICK(c, d, 2, 6, 3, 7);
    Q all = PICK(ab, cd, 0, 1, 4, 5) + PICK(ab, cd, 2, 3, 6, 7);
    memcpy(sums, &all, sizeof all);
}
#else
#define vector_bytes plain_bytes
#endif

// Whether the processor's product of bytes may be used, for tests: 1 (it is tried) or 0.
void fl_use_bytes(int may) { fl_without_bytes(!may); }

// out[i, j] = factor[j] * sum of (x - zero)(w - zeros[j]) + bias[j], for m rows of x in 0..255. sizes: the sum of each row of w.
// zeros and bias may be NULL.
void fl_linear_int8(const uint8_t *x, const int8_t *w, long m, long n, long k, int zero, const int *sizes, const int *zeros,
                    const float *factor, const float *bias, float *out) {
    void (*dots)(const uint8_t *, const int8_t *const *, long, int *) = fl_multiplies_bytes() ? vector_bytes : plain_bytes;
    int team = fl_team(m * n / GRAIN * k);
#pragma omp parallel num_threads(team)
    {
        long from, to;
        fl_share(n, 4, omp_get_thread_num(), omp_get_num_threads(), &from, &to);
        for (long j = from; j < to; j += 4) {
            long some = to - j < 4 ? to - j : 4;
            const int8_t *rows[4];
            for (long r = 0; r < 4; r++) rows[r] = w + (j + (r < some ? r : 0)) * k;
            for (long i = 0; i < m; i++) {
                int sums[4];
                long along = 0;
                dots(x + i * k, rows, k, sums);
                if (zeros)
                    for (long p = 0; p < k; p++) along += x[i * k + p];
                for (long r = 0; r < some; r++) {
                    long whole = sums[r] - (long)zero * sizes[j + r];
                    if (zeros) whole -= zeros[j + r] * (along - k * zero);
                    out[i * n + j + r] = (float)whole * factor[j + r] + (bias ? bias[j + r] : 0);
                }
            }
        }
    }
}

// ---------------------------------------------------------------------------------------- floats by weights of few bits
static inline void widen_bytes(const int8_t *w, float *out, long n) {
#pragma omp simd
    for (long i = 0; i < n; i++) out[i] = w[i];
}

// At most BLOCK numbers of 4 bits, the first half of them in the lower halves of the bytes, as (q - 8) * scale + zero.
#define BLOCK 32
static inline void widen_block(const uint8_t *w, float scale, float zero, float *out, long n) {
    const float least = zero - 8 * scale;
    if (n == BLOCK) {
#pragma omp simd
        for (int i = 0; i < BLOCK / 2; i++) out[i] = (float)(int)(w[i] & 15) * scale + least;
#pragma omp simd
        for (int i = 0; i < BLOCK / 2; i++) out[BLOCK / 2 + i] = (float)(int)(w[i] >> 4) * scale + least;
    } else
        for (long i = 0; i < n / 2; i++) {
            out[i] = (float)(w[i] & 15) * scale + least;
            out[n / 2 + i] = (float)(w[i] >> 4) * scale + least;
        }
}

// The elements p to p + n of a row; pairs: its first scale and zero, those of the next group `next` floats on.
static inline void widen_row(const uint8_t *w, const float *pairs, long next, long p, long n, long group, float *out) {
    for (long done = 0; done < n; done += BLOCK) {
        const float *pair = pairs + (p + done) / group * next;
        widen_block(w + done / 2, pair[0], pair[1], out + done, n - done < BLOCK ? n - done : BLOCK);
    }
}

// One row by four rows of bytes, read where they are.
static inline void byte_dots(const float *x, const int8_t *w, long k, const long at[4], float sums[4]) {
    const int8_t *w0 = w + at[0] * k, *w1 = w + at[1] * k, *w2 = w + at[2] * k, *w3 = w + at[3] * k;
    float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (long q = 0; q < k; q++) {
        s0 += x[q] * (float)w0[q], s1 += x[q] * (float)w1[q];
        s2 += x[q] * (float)w2[q], s3 += x[q] * (float)w3[q];
    }
    sums[0] = s0, sums[1] = s1, sums[2] = s2, sums[3] = s3;
}

// sums[i] += x's rows (k apart) times four rows of n floats.
static inline void add_dots(const float *x, long m, long k, float row[4][CHUNK], long n, float (*sums)[4]) {
    for (long i = 0; i < m; i++, x += k) {
        float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
        for (long q = 0; q < n; q++) {
            s0 += x[q] * row[0][q], s1 += x[q] * row[1][q];
            s2 += x[q] * row[2][q], s3 += x[q] * row[3][q];
        }
        sums[i][0] += s0, sums[i][1] += s1, sums[i][2] += s2, sums[i][3] += s3;
    }
}

// bits 8: scales (n); bits 4: scales holds (k / group, n, 2) scales and zeros.
static inline void few_bits(int bits, const float *x, const void *w, long m, long n, long k, const float *scales, long group,
                            float *out) {
    int team = fl_team(m * n / GRAIN * k);
#pragma omp parallel num_threads(team)
    {
        long from, to;
        float row[4][CHUNK], (*sums)[4] = malloc(m * sizeof *sums);
        fl_share(n, 4, omp_get_thread_num(), omp_get_num_threads(), &from, &to);
        for (long j = from; j < to; j += 4) {
            long some = to - j < 4 ? to - j : 4;
            memset(sums, 0, m * sizeof *sums);
            if (bits == 8 && m == 1) byte_dots(x, w, k, (long[]){j, j + (some > 1), j + 2 * (some > 2), j + 3 * (some > 3)}, *sums);
            else for (long p = 0, step; p < k; p += step) {
                step = k - p < CHUNK ? k - p : CHUNK;
                for (long r = 0; r < 4; r++) {
                    long at = j + (r < some ? r : 0);
                    if (bits == 8) widen_bytes((const int8_t *)w + at * k + p, row[r], step);
                    else widen_row((const uint8_t *)w + (at * k + p) / 2, scales + 2 * at, 2 * n, p, step, group, row[r]);
                }
                add_dots(x + p, m, k, row, step, sums);
            }
            for (long i = 0; i < m; i++)
                for (long r = 0; r < some; r++) out[i * n + j + r] = sums[i][r] * (bits == 8 ? scales[j + r] : 1);
        }
        free(sums);
    }
}

void fl_weight8(const float *x, const int8_t *w, long m, long n, long k, const float *scales, float *out) {
    few_bits(8, x, w, m, n, k, scales, 0, out);
}

void fl_weight4(const float *x, const uint8_t *w, long m, long n, long k, const float *pairs, long group, float *out) {
    few_bits(4, x, w, m, n, k, pairs, group, out);
}

// The floats that the whole weight stands for.
void fl_unpack4(const uint8_t *w, long n, long k, long group, const float *pairs, float *out) {
    int team = fl_team(n * k);
#pragma omp parallel for num_threads(team)
    for (long j = 0; j < n; j++) widen_row(w + j * k / 2, pairs + 2 * j, 2 * n, 0, k, group, out + j * k);
}
