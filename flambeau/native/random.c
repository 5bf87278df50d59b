// Random numbers: MT19937 and the draws made from it, number for number those of PyTorch's CPU generator.
//
// A generator is one block of 632 words that Python holds as a uint32 array (backends/cpu/random_engine.py names its fields).
// Words come out of the twister in order, on one thread; what is done with them is spread over the cores where it costs more
// than the words do. Sums and products are rounded one by one, except where FMA says otherwise: the fused steps are those of
// PyTorch's kernels.
//! now
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off")
#else
#pragma STDC FP_CONTRACT OFF
#endif
#include "runtime.h"

#define WORDS 624
#define PIECE 4096  // words drawn at a time where they are used up at once: they stay in the first cache
#define TWO_PI 6.283185307179586476925286766559

#if defined(__FMA__) || defined(__aarch64__)
#define FMAF(a, b, c) __builtin_fmaf(a, b, c)
#else
// The product is exact in double; the sum is rounded to odd there, so that the rounding to float is the only one that counts.
static inline float FMAF(float a, float b, float c) {
    double product = (double)a * b, sum = product + c, part = sum - product;
    double rest = (product - (sum - part)) + (c - part);
    int64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    bits += (rest != 0 && !(bits & 1)) ? ((rest > 0) == (sum > 0) ? 1 : -1) : 0;
    memcpy(&sum, &bits, sizeof bits);
    return (float)sum;
}
#endif

typedef struct {
    uint32_t key[WORDS];
    uint32_t at;          // how many words of the block are used up
    uint32_t fresh;       // 1: seeded, and nothing drawn yet; 2: and key[0] is all there is of the key
    uint32_t has_normal;  // the second half of the last pair of normals waits in `normal`
    uint32_t has_single;
    double normal;
    float single;
    uint32_t unused;
} Twister;

// ---------------------------------------------------------------------------------------------------------------- words
#define TWIST(i, next, far) key[i] = key[far] ^ (((key[i] & 0x80000000u) | (key[next] & 0x7fffffffu)) >> 1) \
    ^ (-(key[next] & 1u) & 0x9908b0dfu)

static void spread_seed(Twister *g) {
    uint32_t y = g->key[0];
    for (uint32_t i = 1; i < WORDS; i++) g->key[i] = y = 1812433253u * (y ^ y >> 30) + i;
    g->fresh = 1;
}

static void twist(Twister *g) {
    uint32_t *restrict key = g->key;
    if (g->fresh == 2) spread_seed(g);
    for (int i = 0; i < 227; i++) TWIST(i, i + 1, i + 397);
    for (int i = 227; i < 454; i++) TWIST(i, i + 1, i - 227);
    for (int i = 454; i < 623; i++) TWIST(i, i + 1, i - 227);
    TWIST(623, 0, 396);
    g->at = 0;
    g->fresh = 0;
}

static inline uint32_t tempered(uint32_t y) {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

static void words(Twister *g, uint32_t *restrict out, long n) {
    while (n > 0) {
        if (g->at >= WORDS) twist(g);
        long k = WORDS - (long)g->at;
        if (k > n) k = n;
        const uint32_t *restrict from = g->key + g->at;
        for (long i = 0; i < k; i++) out[i] = tempered(from[i]);
        g->at += (uint32_t)k;
        out += k;
        n -= k;
    }
}

static inline uint32_t word(Twister *g) {
    if (g->at >= WORDS) twist(g);
    return tempered(g->key[g->at++]);
}

static void skip(Twister *g, long n) {
    for (long i = 0; i < n; i++) word(g);
}

// Two words make 53 bits, the first of them above; here from how they lie in memory, as one little-endian number.
static inline uint64_t bits53(uint64_t pair) { return (pair >> 32 | pair << 32) & ((1ull << 53) - 1); }

static inline double unit53(Twister *g) {
    uint64_t high = word(g);
    return (double)(int64_t)((high & 0x1fffff) << 32 | word(g)) * 0x1p-53;
}

// Works out the key of a new seed, if that has not been done.
//: fl_mt_settle(p)
void fl_mt_settle(Twister *g) {
    if (g->fresh == 2) spread_seed(g);
}

//: fl_mt_words(ppl)
void fl_mt_words(Twister *g, uint32_t *out, long n) { words(g, out, n); }

// ------------------------------------------------------------------------------------------------------------- uniforms
//: fl_mt_uniform_f32(pplff)
void fl_mt_uniform_f32(Twister *g, float *restrict out, long n, float low, float high) {
    uint32_t raw[PIECE];
    float span = high - low;
    for (long from = 0; from < n; from += PIECE) {
        long k = n - from < PIECE ? n - from : PIECE;
        words(g, raw, k);
        for (long i = 0; i < k; i++) {
            float u = FMAF((float)(int32_t)(raw[i] & 0xffffff) * 0x1p-24f, span, low);
            out[from + i] = u == high ? low : u;
        }
    }
}

//: fl_mt_rand_f32(ppl)
void fl_mt_rand_f32(Twister *g, float *out, long n) { fl_mt_uniform_f32(g, out, n, 0.0f, 1.0f); }

static void units53(Twister *g, double *restrict out, long n) {
    uint64_t raw[PIECE / 2];
    for (long from = 0; from < n; from += PIECE / 2) {
        long k = n - from < PIECE / 2 ? n - from : PIECE / 2;
        words(g, (uint32_t *)raw, 2 * k);
        for (long i = 0; i < k; i++) out[from + i] = (double)(int64_t)bits53(raw[i]) * 0x1p-53;
    }
}

//: fl_mt_uniform_f64(ppldd)
void fl_mt_uniform_f64(Twister *g, double *restrict out, long n, double low, double high) {
    double span = high - low;
    for (long from = 0; from < n; from += PIECE) {
        long k = n - from < PIECE ? n - from : PIECE;
        units53(g, out + from, k);
        if (low == 0.0 && high == 1.0) continue;
        for (long i = from; i < from + k; i++) {
            double u = __builtin_fma(out[i], span, low);
            out[i] = u == high ? low : u;
        }
    }
}

// -------------------------------------------------------------------------------------------------------------- normals
static inline float as_float(int32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static inline int32_t as_bits(float x) {
    int32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

// Cephes' logf of positive normal numbers, its polynomial in fused steps.
static inline float log_f32(float x) {
    int32_t bits = as_bits(x) - 0x3f3504f3;
    float e = (float)(bits >> 23);
    float m = as_float((bits & 0x7fffff) + 0x3f3504f3) - 1.0f;
    float z = m * m;
    float y = FMAF(m, 7.0376836292e-2f, -1.1514610310e-1f);
    y = FMAF(y, m, 1.1676998740e-1f);
    y = FMAF(y, m, -1.2420140846e-1f);
    y = FMAF(y, m, 1.4249322787e-1f);
    y = FMAF(y, m, -1.6668057665e-1f);
    y = FMAF(y, m, 2.0000714765e-1f);
    y = FMAF(y, m, -2.4999993993e-1f);
    y = FMAF(y, m, 3.3333331174e-1f);
    y = y * m;
    y = FMAF(y, z, e * -2.12194440e-4f);
    y = y - z * 0.5f;
    y = y + m;
    return y + e * 0.693359375f;
}

// Cephes' sinf and cosf of [0, 2 pi] at once, in fused steps.
static inline void sincos_f32(float x, float *sine, float *cosine) {
    int32_t j = ((int32_t)(x * 1.27323954473516f) + 1) & -2;
    float turns = (float)j;
    x = x - turns * 0.78515625f;
    x = x - turns * 2.4187564849853515625e-4f;
    x = FMAF(turns, -3.77489497744594108e-8f, x);
    float z = x * x;
    float c = FMAF(z, 2.443315711809948e-5f, -1.388731625493765e-3f);
    c = FMAF(c, z, 4.166664568298827e-2f);
    c = c * z;
    c = FMAF(c, z, -0.5f * z) + 1.0f;
    float s = FMAF(z, -1.9515295891e-4f, 8.3321608736e-3f);
    s = FMAF(s, z, -1.6666654611e-1f);
    s = s * z;
    s = FMAF(s, x, x);
    int32_t a = as_bits(s), b = as_bits(c);
    int32_t swap = -((j >> 1) & 1) & (a ^ b);  // in the odd quadrants sine and cosine change places
    *sine = as_float((a ^ swap) ^ (int32_t)((uint32_t)(j & 4) << 29));
    *cosine = as_float((b ^ swap) ^ (int32_t)((uint32_t)((j + 2) & 4) << 29));
}

// Words of a block of 16 (in the memory of its floats) become normals: 8 radii, then 8 angles.
static inline void block_f32(float *block, float mean, float std) {
    int32_t raw[16];
    memcpy(raw, block, 64);
#pragma omp simd
    for (int i = 0; i < 8; i++) {
        float u = (float)(0x1000000 - (raw[i] & 0xffffff)) * 0x1p-24f;
        float radius = __builtin_sqrtf(log_f32(u) * -2.0f);
        float sine, cosine;
        sincos_f32((float)(raw[i + 8] & 0xffffff) * (float)(TWO_PI * 0x1p-24), &sine, &cosine);
        block[i] = FMAF(radius * cosine, std, mean);
        block[i + 8] = FMAF(radius * sine, std, mean);
    }
}

// Uniforms of a block of 16 become normals.
static void block_f64(double *block, double mean, double std) {
    for (int i = 0; i < 8; i++) {
        double radius = sqrt(-2.0 * log(1.0 - block[i]));
        double theta = block[i + 8] * TWO_PI;
        block[i] = __builtin_fma(radius * cos(theta), std, mean);
        block[i + 8] = __builtin_fma(radius * sin(theta), std, mean);
    }
}

static inline double next_normal(Twister *g) {
    if (g->has_normal) {
        g->has_normal = 0;
        return g->normal;
    }
    double theta = unit53(g) * TWO_PI;
    double radius = sqrt(-2.0 * log1p(-unit53(g)));
    g->normal = radius * sin(theta);
    g->has_normal = 1;
    return radius * cos(theta);
}

#define STRETCH (1L << 20)  // numbers made at a time where several threads work on them

// Blocks of 16 for 16 and more numbers; the last block is drawn anew when it is not whole, and `again` says that words go
// by for the part of it that was there already. One by one below 16, or if asked (`single`). Threads help only where a number
// costs some calls of the math library (COST, in simple steps).
#define NORMAL(NAME, T, DRAW, BLOCK, COST, PER)                                                                \
    void NAME(Twister *g, T *out, long n, double mean, double std, long single, long again) {                 \
        if (n < 16 || single) {                                                                                \
            for (long i = 0; i < n; i++) out[i] = (T)__builtin_fma(next_normal(g), std, mean);                 \
            return;                                                                                            \
        }                                                                                                      \
        long whole = n & ~15L;                                                                                 \
        T shift = (T)mean, scale = (T)std;                                                                     \
        int team = fl_team(whole * COST);                                                                      \
        long step = team > 1 ? STRETCH : PIECE;                                                                \
        for (long from = 0; from < whole; from += step) {                                                      \
            long k = whole - from < step ? whole - from : step;                                                \
            DRAW(g, (void *)(out + from), k);                                                                  \
            if (team == 1) {                                                                                   \
                for (long i = from; i < from + k; i += 16) BLOCK(out + i, shift, scale);                       \
            } else {                                                                                           \
                _Pragma("omp parallel for schedule(static) num_threads(team)")                                 \
                for (long i = from; i < from + k; i += 16) BLOCK(out + i, shift, scale);                       \
            }                                                                                                  \
        }                                                                                                      \
        if (whole < n) {                                                                                       \
            if (again) skip(g, PER * (n - whole));                                                             \
            DRAW(g, (void *)(out + n - 16), 16);                                                               \
            BLOCK(out + n - 16, shift, scale);                                                                 \
        }                                                                                                      \
    }

//: fl_mt_normal_f32(pplddll)
NORMAL(fl_mt_normal_f32, float, words, block_f32, 0, 1)
//: fl_mt_randn_f32(ppl)
void fl_mt_randn_f32(Twister *g, float *out, long n) { fl_mt_normal_f32(g, out, n, 0.0, 1.0, 0, 1); }
//: fl_mt_normal_f64(pplddll)
NORMAL(fl_mt_normal_f64, double, units53, block_f64, 4, 2)

// ------------------------------------------------------------------------------------------------ one uniform each, bent
enum { EXPONENTIAL, GEOMETRIC, CAUCHY, LOG_NORMAL };

static inline double bent(double u, long kind, double a, double b) {
    switch (kind) {
        case EXPONENTIAL: return log1p(-u) * a;
        case GEOMETRIC: return ceil(log(u) / a);
        case CAUCHY: return __builtin_fma(tan((u - 0.5) * 3.14159265358979323846), b, a);
        default: return exp(__builtin_fma(u, b, a));
    }
}

#define BENT(NAME, T)                                                                                          \
    void NAME(Twister *g, T *out, long n, long kind, double a, double b) {                                     \
        double small[512], *made = small;                                                                      \
        long step = 512;                                                                                       \
        if (n > 512 && (made = malloc(sizeof(double) * (STRETCH / 4)))) step = STRETCH / 4;                    \
        if (!made) made = small;                                                                               \
        for (long from = 0; from < n; from += step) {                                                          \
            long k = n - from < step ? n - from : step;                                                        \
            if (kind == LOG_NORMAL) for (long i = 0; i < k; i++) made[i] = next_normal(g);                     \
            else units53(g, made, k);                                                                          \
            int team = fl_team(k * 4);                                                                         \
            if (team == 1) {                                                                                   \
                for (long i = 0; i < k; i++) out[from + i] = (T)bent(made[i], kind, a, b);                     \
            } else {                                                                                           \
                _Pragma("omp parallel for schedule(static) num_threads(team)")                                 \
                for (long i = 0; i < k; i++) out[from + i] = (T)bent(made[i], kind, a, b);                     \
            }                                                                                                  \
        }                                                                                                      \
        if (made != small) free(made);                                                                         \
    }

//: fl_mt_bent_f32(pplldd)
BENT(fl_mt_bent_f32, float)
//: fl_mt_bent_f64(pplldd)
BENT(fl_mt_bent_f64, double)

// ---------------------------------------------------------------------------------------------------------------- masks
// Elements are kept where 53 bits are below `bound`, which is the probability times 2**53, rounded up.
#define KEPT(body)                                                                                             \
    uint64_t raw[PIECE / 2];                                                                                   \
    uint8_t kept[PIECE / 2];                                                                                   \
    for (long from = 0; from < n; from += PIECE / 2) {                                                         \
        long k = n - from < PIECE / 2 ? n - from : PIECE / 2;                                                  \
        words(g, (uint32_t *)raw, 2 * k);                                                                      \
        for (long i = 0; i < k; i++) kept[i] = (int64_t)bits53(raw[i]) < bound;                                \
        for (long i = 0; i < k; i++) { body; }                                                                 \
    }

//: fl_mt_mask(ppll)
void fl_mt_mask(Twister *g, uint8_t *restrict out, long n, long bound) { KEPT(out[from + i] = kept[i]) }

#define MASKS(S, T)                                                                                            \
    void fl_mt_noise_##S(Twister *g, T *restrict out, long n, long bound, double scale) {                      \
        T one = (T)scale;                                                                                      \
        KEPT(out[from + i] = kept[i] ? one : (T)0)                                                             \
    }                                                                                                          \
    void fl_mt_dropout_##S(Twister *g, const T *restrict x, T *restrict noise, T *restrict out, long n,        \
                           long bound, double scale) {                                                         \
        T one = (T)scale;                                                                                      \
        KEPT(T f = kept[i] ? one : (T)0; noise[from + i] = f; out[from + i] = x[from + i] * f)                 \
    }

//: fl_mt_noise_f32(pplld)
//: fl_mt_dropout_f32(pppplld)
MASKS(f32, float)
//: fl_mt_noise_f64(pplld)
//: fl_mt_dropout_f64(pppplld)
MASKS(f64, double)

// ------------------------------------------------------------------------------------------------------------- integers
// The rest of a division of words: a quotient of such numbers, rounded to double precision, never reaches the next integer.
static inline uint32_t rest(uint32_t a, uint32_t by) {
    int64_t q = (int64_t)((double)a / (double)by);
    return (uint32_t)(a - q * by);
}

// low + a number below `span`: of one word for spans below 2**28, of two above. A span of 0 stands for 2**64.
//: fl_mt_below(pplll)
void fl_mt_below(Twister *g, int64_t *restrict out, long n, long span, long low) {
    uint32_t raw[PIECE];
    int two = span <= 0 || span >= 1L << 28;
    long step = two ? PIECE / 2 : PIECE;
    for (long from = 0; from < n; from += step) {
        long k = n - from < step ? n - from : step;
        words(g, raw, two ? 2 * k : k);
        if (!two) {
            for (long i = 0; i < k; i++) out[from + i] = (int64_t)((uint64_t)low + rest(raw[i], (uint32_t)span));
            continue;
        }
        for (long i = 0; i < k; i++) {
            uint64_t v = (uint64_t)raw[2 * i] << 32 | raw[2 * i + 1];
            out[from + i] = (int64_t)((uint64_t)low + (span ? v % (uint64_t)span : v));
        }
    }
}

// 0 to n - 1 in random order: place i changes with a place from i on. n is below 2**32 / 20.
//: fl_mt_permute(ppl)
void fl_mt_permute(Twister *g, int64_t *restrict out, long n) {
    enum { AHEAD = 1024 };
    uint32_t raw[AHEAD];
    for (long i = 0; i < n; i++) out[i] = i;
    for (long from = 0; from < n - 1; from += AHEAD) {
        long k = n - 1 - from < AHEAD ? n - 1 - from : AHEAD;
        words(g, raw, k);
        for (long i = 0; i < k; i++) raw[i] = rest(raw[i], (uint32_t)(n - from - i)) + (uint32_t)(from + i);
        for (long i = 0; i < k && i < 16; i++) __builtin_prefetch(out + raw[i], 1);
        for (long i = 0; i < k; i++) {
            if (i + 16 < k) __builtin_prefetch(out + raw[i + 16], 1);
            int64_t kept = out[from + i];
            out[from + i] = out[raw[i]];
            out[raw[i]] = kept;
        }
    }
}
