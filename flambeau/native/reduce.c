// Reductions of contiguous arrays seen as (outer, n, inner), over n. Short sums in the array's own precision are added up in
// double, long ones with compensation: as accurate as pairwise addition. Results depend on sizes and thread count alone.
// This file includes itself for each element type T, whose functions have the suffix S.
//: fl_sum_{f32,f64}(pplllidi)
//:
//: fl_var_mean_{f32,f64}(pppllldi)
//:
//: fl_extreme_{f32,f64}(pppllli)
//:
//: fl_logsumexp_{f32,f64}(pplll)
#ifndef T
#include "runtime.h"
#include "vmath.h"
#define BLOCK 1024   // elements added in one go along memory
#define PARTS 8      // vectors of running sums along memory
#define LONG 16      // vectors added to each in one go
#define DEEP 32      // rows added in one go across memory
#define WIDTH 1024   // columns worked on together across memory
#define SIDE 256     // columns that rows laid side by side may make
enum { PLAIN, SQUARES, SIZES };
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(a) JOIN(a, S)

static inline void add_exactly(double *sum, double *lost, double x) {
    double t = *sum + x;
    double e = fabs(*sum) >= fabs(x) ? (*sum - t) + x : (x - t) + *sum;
    *lost += e == e ? e : 0;  // an infinite sum has lost nothing
    *sum = t;
}

#define T float
#define S f32
#define INDEX int32_t
#define SIGN INT32_MIN
#define ABOVE 8, 9, 10, 11, 12, 13, 14, 15
#include "reduce.c"
#undef T
#undef S
#undef INDEX
#undef SIGN
#undef ABOVE
#define T double
#define S f64
#define INDEX int64_t
#define SIGN INT64_MIN
#define ABOVE
#include "reduce.c"
#else

// ------------------------------------------------------------------------------------------------------------- sums
static inline __attribute__((always_inline)) T NAME(mapped)(T v, int mode) {
    return mode == SQUARES ? v * v : mode == SIZES ? NAME(fabs)(v) : v;
}

typedef T NAME(lanes) __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
typedef INDEX NAME(index) __attribute__((vector_size(64)));
typedef double NAME(wide) __attribute__((vector_size(64 / sizeof(T) * sizeof(double))));

static inline __attribute__((always_inline)) NAME(lanes) NAME(mapped_lanes)(NAME(lanes) v, int mode) {
    if (mode == SQUARES) return v * v;
    if (mode != SIZES) return v;
    return (NAME(lanes))((NAME(index))v & ~SIGN);
}

// PARTS vectors of running sums, which are added up and go on in double after LONG elements each.
static inline __attribute__((always_inline)) double NAME(block)(const T *x, long n, T shift, int mode) {
    enum { LANES = 64 / sizeof(T), ROW = LANES * PARTS };
    #define AT(k) NAME(mapped_lanes)(*(const NAME(lanes) *)(x + i + (k) * LANES) - shift, mode)
    NAME(wide) total = {0};
    long i = 0;
    while (n - i >= LANES) {
        long end = n - i < LONG * ROW ? n - ROW + 1 : i + LONG * ROW;
        NAME(lanes) part[PARTS] = {0}, last = {0};
        for (; i < end; i += ROW) {
            #pragma GCC unroll 8
            for (int k = 0; k < PARTS; k++) part[k] += AT(k);
        }
        if (n - i < ROW)
            for (; n - i >= LANES; i += LANES) last += AT(0);
        last += ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
        total += __builtin_convertvector(last, NAME(wide));
    }
    T rest = 0;
    if (i && i < n) {  // the last vector again, without what has been added already
        static const NAME(index) place = {0, 1, 2, 3, 4, 5, 6, 7, ABOVE};
        NAME(index) mask = place >= (INDEX)(LANES - (n - i));
        i = n - LANES;
        total += __builtin_convertvector((NAME(lanes))((NAME(index))AT(0) & mask), NAME(wide));
    } else {
        for (; i < n; i++) rest += NAME(mapped)(x[i] - shift, mode);
    }
    #undef AT
    double sums[LANES];
    memcpy(sums, &total, sizeof sums);
    for (int w = LANES / 2; w; w /= 2)
        for (int j = 0; j < w; j++) sums[j] += sums[j + w];
    return sums[0] + rest;
}

static double NAME(along)(const T *x, long n, T shift, int mode) {
    double sum = 0, lost = 0;
    for (long i = 0; i < n; i += 64 * BLOCK) {
        long m = n - i < 64 * BLOCK ? n - i : 64 * BLOCK;
        double part = mode == PLAIN ? NAME(block)(x + i, m, shift, PLAIN) : mode == SQUARES ?
                      NAME(block)(x + i, m, shift, SQUARES) : NAME(block)(x + i, m, shift, SIZES);
        add_exactly(&sum, &lost, part);
    }
    return sum + lost;
}

// The sum of one long row, by all threads.
static double NAME(along_all)(const T *x, long n, T shift, int mode) {
    int team = fl_team(n);
    if (team == 1) return NAME(along)(x, n, shift, mode);
    double parts[team];
    #pragma omp parallel num_threads(team)
    {
        long from, to;
        fl_share(n, BLOCK, omp_get_thread_num(), omp_get_num_threads(), &from, &to);
        parts[omp_get_thread_num()] = NAME(along)(x + from, to - from, shift, mode);
        #pragma omp single
        for (int t = omp_get_num_threads(); t < team; t++) parts[t] = 0;
    }
    double sum = 0;
    for (int t = 0; t < team; t++) sum += parts[t];
    return sum;
}

// total[w] = sums over rows of (rows, width) at x, whose rows are `step` apart; shift may be NULL.
static inline __attribute__((always_inline)) void NAME(down)(const T *x, long rows, long width, long step, const T *shift,
                                                             int mode, double *total) {
    T part[WIDTH];
    for (long j = 0; j < width; j++) total[j] = 0;
    for (long r = 0; r < rows; r += DEEP) {
        long end = r + DEEP < rows ? r + DEEP : rows, i = r;
        for (long j = 0; j < width; j++) part[j] = 0;
        for (; i + 8 <= end; i += 8) {
            const T *row = x + i * step;
            #pragma omp simd
            for (long j = 0; j < width; j++) {
                T s = shift ? shift[j] : 0;
                #define AT(k) NAME(mapped)(shift ? row[k * step + j] - s : row[k * step + j], mode)
                part[j] += ((AT(0) + AT(1)) + (AT(2) + AT(3))) + ((AT(4) + AT(5)) + (AT(6) + AT(7)));
                #undef AT
            }
        }
        for (; i < end; i++) {
            const T *row = x + i * step;
            #pragma omp simd
            for (long j = 0; j < width; j++) part[j] += NAME(mapped)(shift ? row[j] - shift[j] : row[j], mode);
        }
        #pragma omp simd
        for (long j = 0; j < width; j++) total[j] += part[j];
    }
}

static void NAME(down_by)(const T *x, long rows, long width, long step, const T *shift, int mode, double *total) {
    if (mode == SQUARES && shift) NAME(down)(x, rows, width, step, shift, SQUARES, total);
    else if (mode == SQUARES) NAME(down)(x, rows, width, step, NULL, SQUARES, total);
    else if (mode == SIZES) NAME(down)(x, rows, width, step, NULL, SIZES, total);
    else if (shift) NAME(down)(x, rows, width, step, shift, PLAIN, total);
    else NAME(down)(x, rows, width, step, NULL, PLAIN, total);
}

// A few columns: several rows side by side make longer rows, whose sums are folded after.
static void NAME(columns)(const T *x, long rows, long width, long step, const T *shift, int mode, double *total) {
    long side = width == step && width < 64 ? SIDE / width : 1, whole = rows / side * side;
    if (side < 2 || rows < 4 * side) {
        NAME(down_by)(x, rows, width, step, shift, mode, total);
        return;
    }
    T shifts[SIDE];
    double sums[SIDE];
    if (shift) for (long j = 0; j < side * width; j++) shifts[j] = shift[j % width];
    NAME(down_by)(x, whole / side, side * width, side * width, shift ? shifts : NULL, mode, sums);
    NAME(down_by)(x + whole * width, rows - whole, width, width, shift, mode, total);
    for (long k = 0; k < side; k++)
        for (long j = 0; j < width; j++) total[j] += sums[k * width + j];
}

// out = sums over n; shift (NULL or of the result's shape) is taken off first. Totals are double.
static void NAME(totals)(const T *x, double *out, long outer, long n, long inner, const T *shift, int mode) {
    if (inner == 1 && outer == 1) {
        out[0] = NAME(along_all)(x, n, shift ? shift[0] : 0, mode);
        return;
    }
    int team = fl_team(outer * n * inner);
    if (inner == 1) {
        #pragma omp parallel for num_threads(team) schedule(static) if(team > 1)
        for (long o = 0; o < outer; o++) out[o] = NAME(along)(x + o * n, n, shift ? shift[o] : 0, mode);
        return;
    }
    long strips = (inner + WIDTH - 1) / WIDTH;
    if (team > 1 && outer * strips < 2 * team && n >= 2 * team) {  // too few strips: the rows are shared out too
        double *parts = malloc(sizeof(double) * team * WIDTH);
        for (long s = 0; s < outer * strips; s++) {
            long o = s / strips, j = s % strips * WIDTH, width = inner - j < WIDTH ? inner - j : WIDTH;
            #pragma omp parallel for num_threads(team) schedule(static)
            for (int t = 0; t < team; t++) {
                long from, to;
                fl_share(n, 1, t, team, &from, &to);
                NAME(columns)(x + (o * n + from) * inner + j, to - from, width, inner, shift ? shift + o * inner + j : NULL,
                              mode, parts + t * WIDTH);
            }
            for (long c = 0; c < width; c++) {
                double sum = 0;
                for (int t = 0; t < team; t++) sum += parts[t * WIDTH + c];
                out[o * inner + j + c] = sum;
            }
        }
        free(parts);
        return;
    }
    #pragma omp parallel for num_threads(team) schedule(static) if(team > 1)
    for (long s = 0; s < outer * strips; s++) {
        long o = s / strips, j = s % strips * WIDTH, width = inner - j < WIDTH ? inner - j : WIDTH;
        NAME(columns)(x + o * n * inner + j, n, width, inner, shift ? shift + o * inner + j : NULL, mode, out + o * inner + j);
    }
}

static void NAME(finish)(const double *sums, T *out, long count, double divisor, int root) {
    for (long i = 0; i < count; i++) out[i] = (T)(root ? sqrt(sums[i]) : sums[i] / divisor);
}

// mode: 0 adds the elements, 1 their squares, 2 their sizes. The result is divided, or its root taken.
void NAME(fl_sum)(const T *x, T *out, long outer, long n, long inner, int mode, double divisor, int root) {
    double few[WIDTH], *sums = outer * inner <= WIDTH ? few : malloc(sizeof(double) * outer * inner);
    NAME(totals)(x, sums, outer, n, inner, NULL, mode);
    NAME(finish)(sums, out, outer * inner, divisor, root);
    if (sums != few) free(sums);
}

// Variance (its root where asked) and mean; the variance from the distances to the rounded mean, corrected for its rounding.
void NAME(fl_var_mean)(const T *x, T *var, T *mean, long outer, long n, long inner, double free_count, int root) {
    long count = outer * inner;
    double *sums = malloc(sizeof(double) * 2 * count), *squares = sums + count;
    NAME(totals)(x, sums, outer, n, inner, NULL, PLAIN);
    NAME(finish)(sums, mean, count, (double)n, 0);
    NAME(totals)(x, squares, outer, n, inner, mean, SQUARES);
    for (long i = 0; i < count; i++) {
        double rest = sums[i] / (double)n - (double)mean[i], v = (squares[i] - (double)n * rest * rest) / free_count;
        var[i] = (T)(root ? sqrt(v) : v);
    }
    free(sums);
}

// --------------------------------------------------------------------------------------------------------- extremes
static inline __attribute__((always_inline)) T NAME(extreme)(const T *x, long n, int least) {
    T m = x[0];
    int bad = 0;
    if (least) {
        #pragma omp simd reduction(min : m) reduction(| : bad)
        for (long i = 0; i < n; i++) { m = x[i] < m ? x[i] : m; bad |= x[i] != x[i]; }
    } else {
        #pragma omp simd reduction(max : m) reduction(| : bad)
        for (long i = 0; i < n; i++) { m = x[i] > m ? x[i] : m; bad |= x[i] != x[i]; }
    }
    const T end = sizeof(T) == sizeof(float) ? __FLT_MAX__ : (T)__DBL_MAX__;
    if (m == (least ? end : -end)) {  // Clang begins there instead of at infinity: maybe no element was so small
        m = x[0];
        for (long i = 0; i < n; i++) m = (least ? x[i] < m : x[i] > m) ? x[i] : m;
    }
    return bad ? (T)NAN : m;
}

static T NAME(top)(const T *x, long n) { return NAME(extreme)(x, n, 0); }
static T NAME(bottom)(const T *x, long n) { return NAME(extreme)(x, n, 1); }

// The first place of m in x (of nan where m is one).
static long NAME(place)(const T *x, long n, T m) {
    long i = 0;
    for (; i + 64 <= n; i += 64) {
        int hit = 0;
        #pragma omp simd reduction(| : hit)
        for (long j = 0; j < 64; j++) hit |= (x[i + j] == m) | ((x[i + j] != x[i + j]) & (m != m));
        if (hit) break;
    }
    for (; i < n; i++)
        if (x[i] == m || (x[i] != x[i] && m != m)) return i;
    return 0;
}

static inline __attribute__((always_inline)) void NAME(extreme_down)(const T *x, long rows, long width, long step, int least,
                                                                     T *m, int32_t *at) {
    for (long j = 0; j < width; j++) m[j] = x[j];
    if (at) for (long j = 0; j < width; j++) at[j] = 0;
    for (long i = 1; i < rows; i++) {
        const T *row = x + i * step;
        #pragma omp simd
        for (long j = 0; j < width; j++) {
            T v = row[j], o = m[j];
            int better = ((least ? v < o : v > o) | (v != v)) & (o == o);
            m[j] = better ? v : o;
            if (at) at[j] = better ? (int32_t)i : at[j];
        }
    }
}

static void NAME(extreme_strip)(const T *x, long rows, long width, long step, int least, T *m, int32_t *at) {
    if (least && at) NAME(extreme_down)(x, rows, width, step, 1, m, at);
    else if (least) NAME(extreme_down)(x, rows, width, step, 1, m, NULL);
    else if (at) NAME(extreme_down)(x, rows, width, step, 0, m, at);
    else NAME(extreme_down)(x, rows, width, step, 0, m, NULL);
}

// The largest (least: smallest) elements and where they come first; values or places may be NULL. nan counts as extreme.
void NAME(fl_extreme)(const T *x, T *values, int64_t *places, long outer, long n, long inner, int least) {
    int team = fl_team(outer * n * inner);
    if (inner == 1 && outer == 1 && team > 1) {
        T tops[team];
        #pragma omp parallel for num_threads(team) schedule(static)
        for (int t = 0; t < team; t++) {
            long from, to;
            fl_share(n, 64, t, team, &from, &to);
            if (from == to) from = to - 1;
            tops[t] = least ? NAME(bottom)(x + from, to - from) : NAME(top)(x + from, to - from);
        }
        T m = least ? NAME(bottom)(tops, team) : NAME(top)(tops, team);
        if (values) values[0] = m;
        if (places) places[0] = NAME(place)(x, n, m);
        return;
    }
    if (inner == 1) {
        #pragma omp parallel for num_threads(team) schedule(static) if(team > 1)
        for (long o = 0; o < outer; o++) {
            T m = least ? NAME(bottom)(x + o * n, n) : NAME(top)(x + o * n, n);
            if (values) values[o] = m;
            if (places) places[o] = NAME(place)(x + o * n, n, m);
        }
        return;
    }
    long strips = (inner + WIDTH - 1) / WIDTH;
    #pragma omp parallel for num_threads(team) schedule(static) if(team > 1)
    for (long s = 0; s < outer * strips; s++) {
        long o = s / strips, j = s % strips * WIDTH, width = inner - j < WIDTH ? inner - j : WIDTH;
        T m[WIDTH];
        int32_t at[WIDTH];
        NAME(extreme_strip)(x + o * n * inner + j, n, width, inner, least, m, places ? at : NULL);
        for (long c = 0; values && c < width; c++) values[o * inner + j + c] = m[c];
        for (long c = 0; places && c < width; c++) places[o * inner + j + c] = at[c];
    }
}

// -------------------------------------------------------------------------------------------------------- logsumexp
static double NAME(powers)(const T *x, long n, T shift) {
    double sum = 0;
    for (long i = 0; i < n; i += BLOCK) {
        long end = n - i < BLOCK ? n : i + BLOCK;
        T s = 0;
        #pragma omp simd reduction(+ : s)
        for (long k = i; k < end; k++) s += NAME(exp)(x[k] - shift);
        sum += s;
    }
    return sum;
}

void NAME(fl_logsumexp)(const T *x, T *out, long outer, long n, long inner) {
    long strips = inner == 1 ? 1 : (inner + WIDTH - 1) / WIDTH;
    int team = fl_team(outer * n * inner * 4);
    #pragma omp parallel for num_threads(team) schedule(static) if(team > 1)
    for (long s = 0; s < outer * strips; s++) {
        long o = s / strips, j = s % strips * WIDTH, width = inner - j < WIDTH ? inner - j : WIDTH;
        const T *at = x + o * n * inner + j;
        T *target = out + o * inner + j;
        if (inner == 1) {
            T m = NAME(top)(at, n), shift = NAME(isinf)(m) ? 0 : m;
            target[0] = (T)(log(NAME(powers)(at, n, shift)) + shift);
            continue;
        }
        T m[WIDTH], part[WIDTH];
        double sum[WIDTH];
        NAME(extreme_strip)(at, n, width, inner, 0, m, NULL);
        for (long c = 0; c < width; c++) { m[c] = NAME(isinf)(m[c]) ? 0 : m[c]; sum[c] = 0; }
        for (long r = 0; r < n; r += DEEP) {
            long end = r + DEEP < n ? r + DEEP : n;
            for (long c = 0; c < width; c++) part[c] = 0;
            for (long i = r; i < end; i++) {
                #pragma omp simd
                for (long c = 0; c < width; c++) part[c] += NAME(exp)(at[i * inner + c] - m[c]);
            }
            for (long c = 0; c < width; c++) sum[c] += part[c];
        }
        for (long c = 0; c < width; c++) target[c] = (T)(log(sum[c]) + m[c]);
    }
}
#endif
