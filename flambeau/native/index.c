// Rows and elements by position: picking, putting, adding up.
//
// Positions are int64. Functions that return a long give 0 when all went well and 1 when a position is out of range; then
// an array that held something before is as it was. Moving elements about knows no dtype, only sizes in bytes. All sums run in
// the order of the positions, whatever the number of threads.
#ifndef T
#include "runtime.h"

static inline int bad_positions(const int64_t *at, long n, long low, long size) {
    int64_t smallest = 0, largest = -1;
    for (long i = 0; i < n; i++) {
        smallest = at[i] < smallest ? at[i] : smallest;
        largest = at[i] > largest ? at[i] : largest;
    }
    return smallest < low || largest >= size;
}
static inline long place(int64_t at, long size) { return at < 0 ? at + size : at; }

// ------------------------------------------------------------------------------------------- slices of one dimension
typedef char run_t __attribute__((vector_size(32), aligned(1)));

static inline void copy_run(char *restrict to, const char *restrict from, long bytes) {
    if (bytes < 32) {
        memcpy(to, from, bytes);
        return;
    }
    for (long j = 0; j + 32 <= bytes; j += 32) *(run_t *)(to + j) = *(const run_t *)(from + j);
    *(run_t *)(to + bytes - 32) = *(const run_t *)(from + bytes - 32);
}

#define MOVE(TYPE) \
    for (long k = from; k < to; k++) ((TYPE *)out)[k] = ((const TYPE *)x)[place(at[k], size)];

static void take_some(const char *x, const int64_t *at, char *out, long size, long bytes, long from, long to) {
    if (bytes == 4) { MOVE(uint32_t) }
    else if (bytes == 8) { MOVE(uint64_t) }
    else
        for (long k = from; k < to; k++) {
            if (k + 3 < to) {
                const char *next = x + place(at[k + 3], size) * bytes;
                for (long j = 0; j < bytes && j < 512; j += 64) __builtin_prefetch(next + j);
            }
            copy_run(out + k * bytes, x + place(at[k], size) * bytes, bytes);
        }
}

//: l fl_take(ppplllll)
// out[o, k] = x[o, at[k]] for slices of `bytes` bytes; wrap: negative positions count from the end.
long fl_take(const char *x, const int64_t *at, char *out, long outer, long size, long count, long bytes, long wrap) {
    if (bad_positions(at, count, wrap ? -size : 0, size)) return 1;
    int team = fl_team(outer * count * (bytes < 32 ? 2 : bytes / 8));
    if (team == 1) {
        for (long o = 0; o < outer; o++)
            take_some(x + o * size * bytes, at, out + o * count * bytes, size, bytes, 0, count);
        return 0;
    }
#pragma omp parallel num_threads(team)
    {
        long from, to;
        fl_share(count, 16, omp_get_thread_num(), omp_get_num_threads(), &from, &to);
        for (long o = 0; o < outer; o++)
            take_some(x + o * size * bytes, at, out + o * count * bytes, size, bytes, from, to);
    }
    return 0;
}

//: l fl_put(pppllllll)
// x[o, at[k]] = source[o, k], or of one slice for all; the last of several at one position stays.
long fl_put(char *x, const int64_t *at, const char *source, long outer, long size, long count, long bytes, long wrap,
            long one) {
    if (bad_positions(at, count, wrap ? -size : 0, size)) return 1;
    for (long o = 0; o < outer; o++)
        for (long k = 0; k < count; k++)
            memcpy(x + (o * size + place(at[k], size)) * bytes, source + (one ? 0 : (o * count + k) * bytes), bytes);
    return 0;
}

// --------------------------------------------------------------------------------------- a position for every element
// at is (outer, count, inner); x is (at least outer, size, inner). EACH runs BODY for this thread's elements: `here` in at,
// `there` in x. It looks at the positions of some elements before it touches those, unless all are known to be good.
// Threads share `outer` or, where that is too short, `inner`: no two of them write to one place.
#define SOME 2048
static inline int threads_of(long outer, long count, long inner) {
    return outer > 1 || inner >= 32 ? fl_team(2 * outer * count * inner) : 1;
}
#define EACH(BODY)                                                                                                             \
    {                                                                                                                          \
        long from, to, left = 0, right = inner;                                                                                \
        int t = omp_get_thread_num(), all = omp_get_num_threads();                                                             \
        fl_share(outer, 1, outer < all ? 0 : t, outer < all ? 1 : all, &from, &to);                                            \
        if (outer < all) fl_share(inner, 16, t, all, &left, &right);                                                           \
        if (inner > 1)                                                                                                         \
            for (long k = from * count; k < to * count && !bad && left < right; k++) {                                         \
                long base = k / count * size;                                                                                  \
                if (!good && bad_positions(at + k * inner + left, right - left, 0, size)) bad = 1;                             \
                else                                                                                                           \
                    for (long i = left, here = k * inner + left; i < right; i++, here++) {                                     \
                        long there = (base + at[here]) * inner + i;                                                            \
                        BODY                                                                                                   \
                    }                                                                                                          \
            }                                                                                                                  \
        else if (left < right)                                                                                                 \
            for (long o = from, group = count < SOME ? SOME / (count ? count : 1) : 1; o < to && !bad; o += group)             \
                for (long a = o * count, last = (o + group < to ? o + group : to) * count; a < last && !bad;) {                \
                    long b = group > 1 || last - a < SOME ? last : a + SOME;                                                   \
                    if (!good && bad_positions(at + a, b - a, 0, size)) bad = 1;                                               \
                    else                                                                                                       \
                        for (long k = o, here = a; here < b; k++)                                                              \
                            _Pragma("GCC unroll 4")                                                                            \
                            for (long base = k * size, end = (k + 1) * count < b ? (k + 1) * count : b; here < end; here++) {  \
                                long there = base + at[here];                                                                  \
                                BODY                                                                                           \
                            }                                                                                                  \
                    a = b;                                                                                                     \
                }                                                                                                              \
    }

// What an operation that changes some elements starts from: x itself (total 0), `total` elements of base, or zeros (base null).
static void start_from(char *x, const char *base, long total, long bytes) {
    long from, to;
    fl_share(total * bytes, 64, omp_get_thread_num(), omp_get_num_threads(), &from, &to);
    if (base) memcpy(x + from, base + from, to - from);
    else memset(x + from, 0, to - from);
}

#define ELEMENTS(BITS)                                                                                                         \
    long fl_gather_##BITS(const uint##BITS##_t *x, const int64_t *at, uint##BITS##_t *out, long outer, long size, long count,  \
                          long inner) {                                                                                        \
        long bad = 0, good = 0;                                                                                                \
        _Pragma("omp parallel num_threads(threads_of(outer, count, inner)) reduction(| : bad)")                             \
        EACH(out[here] = x[there];)                                                                                            \
        return bad;                                                                                                            \
    }                                                                                                                          \
    long fl_scatter_##BITS(uint##BITS##_t *x, const int64_t *at, const uint##BITS##_t *source, const void *base, long outer,   \
                           long size, long count, long inner, long total, long one) {                                          \
        long bad = 0, good = !total;                                                                                           \
        if (good && bad_positions(at, outer * count * inner, 0, size)) return 1;                                               \
        _Pragma("omp parallel num_threads(threads_of(outer, count, inner)) reduction(| : bad)") {                           \
            if (total) {                                                                                                       \
                start_from((char *)x, base, total, sizeof *x);                                                                 \
                _Pragma("omp barrier")                                                                                         \
            }                                                                                                                  \
            if (one) { uint##BITS##_t value = *source; EACH(x[there] = value;) }                                               \
            else EACH(x[there] = source[here];)                                                                                \
        }                                                                                                                      \
        return bad;                                                                                                            \
    }                                                                                                                          \
    void fl_masked_fill_##BITS(const uint##BITS##_t *x, const uint8_t *mask, uint##BITS##_t *out, long times, long n,          \
                               const uint##BITS##_t *value) {                                                                  \
        uint##BITS##_t v = *value;                                                                                             \
        _Pragma("omp parallel num_threads(fl_team(times * n / 4))") {                                                          \
            long from, to;                                                                                                     \
            fl_share(times * n, 64, omp_get_thread_num(), omp_get_num_threads(), &from, &to);                                  \
            while (from < to) {                                                                                                \
                long start = from % n, m = n - start < to - from ? n - start : to - from;                                      \
                const uint8_t *held = mask + start;                                                                            \
                const uint##BITS##_t *a = x + from;                                                                            \
                uint##BITS##_t *b = out + from;                                                                                \
                for (long j = 0; j < m; j++) b[j] = held[j] ? v : a[j];                                                        \
                from += m;                                                                                                     \
            }                                                                                                                  \
        }                                                                                                                      \
    }
//:
//: l fl_gather_{8,16,32,64}(pppllll)
//:
//: l fl_scatter_{8,16,32,64}(ppppllllll)
//:
//: fl_masked_fill_{8,16,32,64}(pppllp)
ELEMENTS(8)
ELEMENTS(16)
ELEMENTS(32)
ELEMENTS(64)

//:
//: l fl_one_hot(ppll)
long fl_one_hot(const int64_t *at, int64_t *out, long n, long classes) {
    if (bad_positions(at, n, 0, classes)) return 1;
    memset(out, 0, n * classes * sizeof(int64_t));
    for (long i = 0; i < n; i++) out[i * classes + at[i]] = 1;
    return 0;
}

// ---------------------------------------------------------------------------------------------------- sorted positions
//: l fl_sort_positions(pllppp)
// Orders n positions below `limit` (stably, by counting): order[starts[u]] ... order[starts[u + 1] - 1] are those at places[u].
// Returns how many places there are, -1 when a position is out of range.
#define DIGIT 11  // bits at most that are looked at in one go
long fl_sort_positions(const int64_t *at, long n, long limit, int32_t *order, int32_t *starts, int64_t *places) {
    long unique = 0;
    if (bad_positions(at, n, 0, limit)) return -1;
    int32_t *spare = malloc((n ? n : 1) * sizeof(int32_t)), *from = order, *to = spare, counts[1 << DIGIT];
    int bits = 0;
    while (bits < 63 && (limit - 1) >> bits) bits++;
    int passes = (bits + DIGIT - 1) / DIGIT, digit = passes ? (bits + passes - 1) / passes : 0;  // as many bits each time
    for (long i = 0; i < n; i++) from[i] = (int32_t)i;
    for (int shift = 0; shift < bits; shift += digit) {
        memset(counts, 0, sizeof(int32_t) << digit);
        for (long i = 0; i < n; i++) counts[at[i] >> shift & ((1 << digit) - 1)]++;
        int32_t before = 0;
        for (long d = 0; d < 1 << digit; d++) {
            int32_t here = counts[d];
            counts[d] = before;
            before += here;
        }
        for (long i = 0; i < n; i++) to[counts[at[from[i]] >> shift & ((1 << digit) - 1)]++] = from[i];
        int32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != order) memcpy(order, from, n * sizeof(int32_t));
    free(spare);
    for (long i = 0; i < n; i++)
        if (!i || at[order[i]] != at[order[i - 1]]) {
            places[unique] = at[order[i]];
            starts[unique++] = (int32_t)i;
        }
    starts[unique] = (int32_t)n;
    return unique;
}

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(n) JOIN(n, SUFFIX)
//:
//: l fl_add_rows_{f32,f64}(ppplllll)
//:
//: l fl_scatter_add_{f32,f64}(pppplllll)
//:
//: fl_sum_rows_{f32,f64}(ppppll)
//:
//: fl_sparse_adam_{f32,f64}(pppppppllddddl)
#define T float
#define ROOT sqrtf
#define SUFFIX _f32
#include "index.c"
#undef T
#undef ROOT
#undef SUFFIX
#define T double
#define ROOT sqrt
#define SUFFIX _f64
#include "index.c"
#else

static inline void NAME(add_run)(T *restrict to, const T *restrict from, long n) {
    for (long j = 0; j < n; j++) to[j] += from[j];
}

// target[at[i]] += source[i] for rows of `width`. zero: target is filled with zeros first; skip: a position that is left out
// (-1: none). Threads share the rows of target, or their columns where adding is most of the work.
long NAME(fl_add_rows)(T *target, const int64_t *at, const T *source, long n, long rows, long width, long zero, long skip) {
    if (bad_positions(at, n, 0, rows)) return 1;
    long by_columns = width >= 64 && (!zero || rows < n);
#pragma omp parallel num_threads(width ? fl_team((zero ? rows * width / 4 : 0) + n * width) : 1)
    {
        long from, to;
        int t = omp_get_thread_num(), all = omp_get_num_threads();
        if (all == 1 || by_columns) {
            fl_share(width, 16, t, all, &from, &to);
            if (zero && all == 1) memset(target, 0, rows * width * sizeof(T));
            else if (zero)
                for (long r = 0; r < rows; r++) memset(target + r * width + from, 0, (to - from) * sizeof(T));
            for (long i = 0; i < n; i++)
                if (at[i] != skip) NAME(add_run)(target + at[i] * width + from, source + i * width + from, to - from);
        } else {
            fl_share(rows, 1, t, all, &from, &to);
            if (zero) memset(target + from * width, 0, (to - from) * width * sizeof(T));
            for (long i = 0; i < n; i++)
                if (at[i] >= from && at[i] < to && at[i] != skip)
                    NAME(add_run)(target + at[i] * width, source + i * width, width);
        }
    }
    return 0;
}

long NAME(fl_scatter_add)(T *restrict x, const int64_t *restrict at, const T *restrict source, const void *base, long outer,
                          long size, long count, long inner, long total) {
    long bad = 0, good = !total;
    if (good && bad_positions(at, outer * count * inner, 0, size)) return 1;
#pragma omp parallel num_threads(threads_of(outer, count, inner)) reduction(| : bad)
    {
        if (total) {
            start_from((char *)x, base, total, sizeof(T));
#pragma omp barrier
        }
        EACH(x[there] += source[here];)
    }
    return bad;
}

// out[u] = the sum of the values whose position is the u-th place (see fl_sort_positions).
void NAME(fl_sum_rows)(const T *values, const int32_t *order, const int32_t *starts, T *out, long unique, long width) {
#pragma omp parallel for num_threads(fl_team(starts[unique] * width))
    for (long u = 0; u < unique; u++) {
        memcpy(out + u * width, values + order[starts[u]] * width, width * sizeof(T));
        for (long i = starts[u] + 1; i < starts[u + 1]; i++) NAME(add_run)(out + u * width, values + order[i] * width, width);
    }
}

// Adam for the rows `places` of a table, whose gradients are the sums of their values (see fl_sort_positions).
#define CHUNK 256
#define AHEAD 3
void NAME(fl_sparse_adam)(T *table, T *average, T *squares, const T *values, const int32_t *order, const int32_t *starts,
                          const int64_t *places, long unique, long width, double rate, double rest1, double rest2, double eps,
                          long maximize) {
    T r1 = (T)rest1, r2 = (T)rest2, e = (T)eps, step = (T)(-rate);
#pragma omp parallel for num_threads(fl_team(4 * unique * width))
    for (long u = 0; u < unique; u++) {
        if (u + AHEAD < unique) {  // rows are far apart: those that come soon are sent for
            long next = places[u + AHEAD] * width, given = order[starts[u + AHEAD]] * width;
            for (long j = 0; j < width && j < CHUNK; j += 64 / sizeof(T)) {
                __builtin_prefetch(table + next + j, 1), __builtin_prefetch(average + next + j, 1);
                __builtin_prefetch(squares + next + j, 1), __builtin_prefetch(values + given + j);
            }
        }
        for (long c = 0; c < width; c += CHUNK) {
            long n = width - c < CHUNK ? width - c : CHUNK;
            T g[CHUNK], *p = table + places[u] * width + c, *m = average + places[u] * width + c,
              *v = squares + places[u] * width + c;
            memcpy(g, values + order[starts[u]] * width + c, n * sizeof(T));
            for (long i = starts[u] + 1; i < starts[u + 1]; i++) NAME(add_run)(g, values + order[i] * width + c, n);
            if (maximize)
                for (long j = 0; j < n; j++) g[j] = -g[j];
#pragma omp simd
            for (long j = 0; j < n; j++) {
                T mean = (g[j] - m[j]) * r1 + m[j], square = (g[j] * g[j] - v[j]) * r2 + v[j];
                m[j] = mean;
                v[j] = square;
                p[j] += step * (mean / (ROOT(square) + e));
            }
        }
    }
}
#undef CHUNK
#undef AHEAD
#endif
