// The inner tiles of all matrix products, as a template: define T (float or double) and S(name) before including it.
// A tile is up to ROWS rows of the result by up to three vectors, kept in registers while k runs.
#ifndef FL_VECTOR
#if defined(__AVX512F__)
#define FL_VECTOR 64
#elif defined(__AVX__)
#define FL_VECTOR 32
#else
#define FL_VECTOR 16
#endif
#if defined(__AVX512F__) || defined(__aarch64__)
#define ROWS 8
#else
#define ROWS 4
#endif
#define INLINE static inline __attribute__((always_inline))
#define LANES ((long)(FL_VECTOR / sizeof(T)))
#define PANEL (3 * LANES)

#define FL_EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define FL_ACC(i) S(V) c##i##0 = {0}, c##i##1 = {0}, c##i##2 = {0};
#define FL_STEP(i)                                                                                                          \
    if (rows > i) {                                                                                                         \
        T w = a[i];                                                                                                         \
        c##i##0 += w * x0;                                                                                                  \
        if (vectors > 1) c##i##1 += w * x1;                                                                                 \
        if (vectors > 2) c##i##2 += w * x2;                                                                                 \
    }
#define FL_PUT(to, from)                                                                                                    \
    {                                                                                                                       \
        if (add) from += add[i];                                                                                            \
        if (more) from += *(S(V) *)(to);                                                                                    \
        *(S(V) *)(to) = from;                                                                                               \
    }
#define FL_OUT(n)                                                                                                           \
    if (rows > n) {                                                                                                         \
        const long i = n;                                                                                                   \
        FL_PUT(c0 + i * ldc, c##n##0)                                                                                       \
        if (vectors > 1) FL_PUT(c1 + i * ldc, c##n##1)                                                                      \
        if (vectors > 2) FL_PUT(c2 + i * ldc, c##n##2)                                                                      \
    }
// Of two vectors of eight: every second element, pair or four of each.
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define FL_TURN
#define FL_PAIR(p, q, f, g) S(V8) p = __builtin_shufflevector f, q = __builtin_shufflevector g;
#define FL_SWAP1(x, y, p, q) FL_PAIR(p, q, (x, y, 0, 8, 2, 10, 4, 12, 6, 14), (x, y, 1, 9, 3, 11, 5, 13, 7, 15))
#define FL_SWAP2(x, y, p, q) FL_PAIR(p, q, (x, y, 0, 1, 8, 9, 4, 5, 12, 13), (x, y, 2, 3, 10, 11, 6, 7, 14, 15))
#define FL_SWAP4(x, y, p, q) FL_PAIR(p, q, (x, y, 0, 1, 2, 3, 8, 9, 10, 11), (x, y, 4, 5, 6, 7, 12, 13, 14, 15))
#endif
#endif
// F(rows, vectors) with run-time numbers as a call with constants; rows is a power of two.
#define FL_SWITCH(F)                                                                                                        \
    switch (rows * 4 + vectors) {                                                                                           \
    case 35: F(8, 3); break;                                                                                                \
    case 34: F(8, 2); break;                                                                                                \
    case 33: F(8, 1); break;                                                                                                \
    case 19: F(4, 3); break;                                                                                                \
    case 18: F(4, 2); break;                                                                                                \
    case 17: F(4, 1); break;                                                                                                \
    case 11: F(2, 3); break;                                                                                                \
    case 10: F(2, 2); break;                                                                                                \
    case 9: F(2, 1); break;                                                                                                 \
    case 7: F(1, 3); break;                                                                                                 \
    case 6: F(1, 2); break;                                                                                                 \
    default: F(1, 1);                                                                                                       \
    }
// The largest power of two that is not above n, at most 8.
static inline int fl_power(long n) { return n >= 8 ? 8 : n >= 4 ? 4 : n >= 2 ? 2 : 1; }
#endif

typedef T S(V) __attribute__((vector_size(FL_VECTOR), aligned(sizeof(T)), may_alias));

// A tile (rows by vectors; c0, c1, c2: its columns, with row stride ldc) = or += a b over k steps, and `add` to each row. The
// left factor comes packed, ROWS values a step; the right one as vectors from b0, b1 and b2 on, `step` apart or at places from
// a table (convolutions read images so).
INLINE void S(tile)(const int rows, const int vectors, long k, const T *restrict a, const T *b0, const T *b1, const T *b2,
                    const int *table, long step, T *c0, T *c1, T *c2, long ldc, const T *add, int more) {
    FL_EACH(FL_ACC)
    for (long p = 0; p < k; p++, a += ROWS) {
        long at = table ? (long)table[p] : p * step;
        S(V) x0 = *(const S(V) *)(b0 + at), x1, x2;
        if (vectors > 1) x1 = *(const S(V) *)(b1 + at);
        if (vectors > 2) x2 = *(const S(V) *)(b2 + at);
        FL_EACH(FL_STEP)
    }
    FL_EACH(FL_OUT)
}

typedef T S(V8) __attribute__((vector_size(8 * sizeof(T)), aligned(sizeof(T)), may_alias));

#ifdef FL_TURN
// Eight rows of eight become columns: neighbours are exchanged, then pairs, then fours.
INLINE void S(turn)(const T *from, long ld, T *to, long step) {
#define ROW(i) S(V8) r##i = *(const S(V8) *)(from + i * ld);
    FL_EACH(ROW)
#undef ROW
    FL_SWAP1(r0, r1, a0, a1) FL_SWAP1(r2, r3, a2, a3) FL_SWAP1(r4, r5, a4, a5) FL_SWAP1(r6, r7, a6, a7)
    FL_SWAP2(a0, a2, b0, b2) FL_SWAP2(a1, a3, b1, b3) FL_SWAP2(a4, a6, b4, b6) FL_SWAP2(a5, a7, b5, b7)
    FL_SWAP4(b0, b4, s0, s4) FL_SWAP4(b1, b5, s1, s5) FL_SWAP4(b2, b6, s2, s6) FL_SWAP4(b3, b7, s3, s7)
#define ROW(i) *(S(V8) *)(to + i * step) = s##i;
    FL_EACH(ROW)
#undef ROW
}
#endif

// to[p * step + i] = from[i * ld + p], i < rows, p < k.
static void S(pack_turned)(long rows, long k, const T *from, long ld, T *to, long step) {
    long i = 0;
#ifdef FL_TURN
    for (; i + 8 <= rows; i += 8) {
        long p = 0;
        for (; p + 8 <= k; p += 8) S(turn)(from + i * ld + p, ld, to + p * step + i, step);
        for (; p < k; p++)
            for (long j = i; j < i + 8; j++) to[p * step + j] = from[j * ld + p];
    }
#endif
    for (; i < rows; i++)
        for (long p = 0; p < k; p++) to[p * step + i] = from[i * ld + p];
}

