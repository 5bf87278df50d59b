// Sums and extremes of rows of T, for rows.h. Partial results are kept per place in a block and joined in halves; a sum runs in
// T over pieces of FL_PIECE elements and over the pieces in double.
#define HALVE(to, from, count, JOIN) \
    T to[count];                     \
    _Pragma("omp simd") for (int j = 0; j < count; j++) to[j] = JOIN(from[j], from[j + count])
#define PLUS(a, b) ((a) + (b))
#define LARGER(a, b) ((a) > (b) ? (a) : (b))

static inline T FL_NAME(fl_fold_sum)(const T *lanes) {
    HALVE(a, lanes, FL_LANES / 2, PLUS);
    HALVE(b, a, FL_LANES / 4, PLUS);
    HALVE(c, b, FL_LANES / 8, PLUS);
    return FL_LANES == 16 ? c[0] + c[FL_LANES / 8 - 1] : c[0];
}

static inline T FL_NAME(fl_row_max)(const T *x, long n) {
    T m[FL_LANES];
    for (int j = 0; j < FL_LANES; j++) m[j] = -INFINITY;
    FL_ALONG(n, T v = in ? x[i] : -INFINITY; m[j] = LARGER(v, m[j]));
    HALVE(a, m, FL_LANES / 2, LARGER);
    HALVE(b, a, FL_LANES / 4, LARGER);
    HALVE(c, b, FL_LANES / 8, LARGER);
    return LARGER(c[0], c[FL_LANES / 8 - 1]);
}

typedef T FL_NAME(fl_loose) __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));  // a block anywhere
#define V FL_NAME(fl_block)
#define LOAD(p) FL_NAME(fl_load)(p)
#define STORE(p, v) FL_NAME(fl_put)(p, v)

static inline V FL_NAME(fl_load)(const T *p) { return *(const FL_NAME(fl_loose) *)p; }
static inline void FL_NAME(fl_put)(T *p, V v) { *(FL_NAME(fl_loose) *)p = v; }

static inline V FL_NAME(fl_part)(const T *x, int count, T fill) {  // a block of which only a part is there
    T v[FL_LANES] __attribute__((aligned(64)));
#pragma omp simd
    for (int j = 0; j < FL_LANES; j++) v[j] = j < count ? x[j] : fill;
    return LOAD(v);
}

static inline void FL_NAME(fl_put_part)(T *out, V v, int count) {
    T from[FL_LANES] __attribute__((aligned(64)));
    STORE(from, v);
#pragma omp simd
    for (int j = 0; j < FL_LANES; j++)
        if (j < count) out[j] = from[j];
}

// Sums a value over the row. WHOLE gives it for the block at i, PART for the `rest` elements at i.
#define SUM(WHOLE, PART)                                                      \
    double total = 0;                                                         \
    for (long from = 0; from < n; from += FL_PIECE) {                         \
        long i = from, to = from + FL_PIECE < n ? from + FL_PIECE : n;        \
        V a = {0}, b = {0}, v;                                                \
        for (; i + 2 * FL_LANES <= to; i += FL_LANES) {                       \
            v = WHOLE;                                                        \
            a += v;                                                           \
            i += FL_LANES;                                                    \
            v = WHOLE;                                                        \
            b += v;                                                           \
        }                                                                     \
        if (i + FL_LANES <= to) {                                             \
            v = WHOLE;                                                        \
            a += v;                                                           \
            i += FL_LANES;                                                    \
        }                                                                     \
        int rest = to - i;                                                    \
        if (rest) {                                                           \
            v = PART;                                                         \
            b += v;                                                           \
        }                                                                     \
        a += b;                                                               \
        total += FL_NAME(fl_fold_sum)((const T *)&a);                         \
    }                                                                         \
    return total
#define POWERS(x) FL_NAME(fl_block_exp)((x) - shift)
#define LAST(x, fill) FL_NAME(fl_part)((x) + i, rest, fill)

static inline double FL_NAME(fl_row_powers)(const T *x, T *out, long n, T shift) {  // exp(x - shift), kept in out
    SUM(POWERS(LOAD(x + i)); STORE(out + i, v), POWERS(LAST(x, -INFINITY)); FL_NAME(fl_put_part)(out + i, v, rest));
}

// The same into whole blocks of aligned memory: what is read again soon had better not lie across two lines.
static inline double FL_NAME(fl_row_powers_apart)(const T *x, T *blocks, long n, T shift) {
    SUM(POWERS(LOAD(x + i)); STORE(blocks + i, v), POWERS(LAST(x, -INFINITY)); STORE(blocks + i, v));
}

static inline double FL_NAME(fl_row_total)(const T *x, long n, T shift) {  // the sum of the powers alone
    SUM(POWERS(LOAD(x + i)), POWERS(LAST(x, -INFINITY)));
}

static inline double FL_NAME(fl_row_sum)(const T *x, long n) { SUM(LOAD(x + i), LAST(x, 0)); }

static inline double FL_NAME(fl_row_dot)(const T *x, const T *y, long n) {
    SUM(LOAD(x + i) * LOAD(y + i), LAST(x, 0) * LAST(y, 0));
}

static inline double FL_NAME(fl_row_squares)(const T *x, long n, T mean) {  // around a mean
    SUM(LOAD(x + i) - mean; v *= v, LAST(x, mean) - mean; v *= v);
}

#undef HALVE
#undef PLUS
#undef LARGER
#undef SUM
#undef V
#undef LOAD
#undef STORE
#undef POWERS
#undef LAST
