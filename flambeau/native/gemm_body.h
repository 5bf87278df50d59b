// The packing and the loops around the tiles of gemm.h, for one element type; included by gemm.c.
#include "gemm.h"

static void __attribute__((noinline)) S(any_tile)(long left, int vectors, long k, const T *a, const T *b, long step, T *c,
                                                  long ldc, int more) {
#define GO(r, v) S(tile)(r, v, k, a, b, b + LANES, b + 2 * LANES, (const int *)0, step, c, c + LANES, c + 2 * LANES, ldc, 0, more)
    for (int rows; left > 0; left -= rows, a += rows, c += rows * ldc) {
        rows = fl_power(left);
        FL_SWITCH(GO)
    }
#undef GO
}

// The same for ROWS rows of an unpacked left factor: saves the packing where it would not be used often.
#define PLACE(i) const T *from##i = a + (ROWS > i ? i : 0) * lda;
#define READ(i)                                                                                                             \
    if (ROWS > i) {                                                                                                         \
        T w = from##i[p];                                                                                                   \
        c##i##0 += w * x0;                                                                                                  \
        if (vectors > 1) c##i##1 += w * x1;                                                                                 \
        if (vectors > 2) c##i##2 += w * x2;                                                                                 \
    }
INLINE void S(tile_unpacked)(const int vectors, long k, const T *a, long lda, const T *b, long step, T *c0, long ldc, int more) {
    const int rows = ROWS;
    const T *add = 0;
    T *c1 = c0 + LANES, *c2 = c0 + 2 * LANES;
    FL_EACH(FL_ACC)
    FL_EACH(PLACE)
    for (long p = 0; p < k; p++, b += step) {
        S(V) x0 = *(const S(V) *)b, x1, x2;
        if (vectors > 1) x1 = *(const S(V) *)(b + LANES);
        if (vectors > 2) x2 = *(const S(V) *)(b + 2 * LANES);
        FL_EACH(READ)
    }
    FL_EACH(FL_OUT)
}
#undef PLACE
#undef READ

static void __attribute__((noinline)) S(any_unpacked)(int vectors, long k, const T *a, long lda, const T *b, long step, T *c,
                                                      long ldc, int more) {
    if (vectors == 3) S(tile_unpacked)(3, k, a, lda, b, step, c, ldc, more);
    else if (vectors == 2) S(tile_unpacked)(2, k, a, lda, b, step, c, ldc, more);
    else S(tile_unpacked)(1, k, a, lda, b, step, c, ldc, more);
}

// ------------------------------------------------------------------------------------------------------------ packing
// to[p * step + j] = from[p * ld + j], j < columns, p < k.
static void S(pack_straight)(long columns, long k, const T *from, long ld, T *to, long step) {
    if (columns == PANEL)
        for (long p = 0; p < k; p++, from += ld, to += step) {
            const S(V) *x = (const S(V) *)from;
            S(V) *y = (S(V) *)to, x0 = x[0], x1 = x[1], x2 = x[2];
            y[0] = x0, y[1] = x1, y[2] = x2;
        }
    else if (columns == 2 * LANES && step == columns)
        for (long p = 0; p < k; p++, from += ld, to += step) {
            S(V) x0 = *(const S(V) *)from, x1 = *(const S(V) *)(from + LANES);
            *(S(V) *)to = x0, *(S(V) *)(to + LANES) = x1;
        }
    else if (columns == ROWS)
        for (long p = 0; p < k; p++, from += ld, to += step)
            for (long j = 0; j < ROWS; j++) to[j] = from[j];
    else
        for (long p = 0; p < k; p++, from += ld, to += step) {
            for (long j = 0; j < columns; j++) to[j] = from[j];
            for (long j = columns; j < step; j++) to[j] = 0;
        }
}

static void S(pack)(int turned, long count, long k, const T *from, long ld, T *to, long step) {
    if (turned) {
        if (count < step) memset(to, 0, k * step * sizeof(T));
        S(pack_turned)(count, k, from, ld, to, step);
    } else S(pack_straight)(count, k, from, ld, to, step);
}

// -------------------------------------------------------------------------------------------------------------- loops
static void S(scale)(long m, long n, T beta, T *c, long ldc) {
    for (long i = 0; i < m; i++)
        if (beta == 0) memset(c + i * ldc, 0, n * sizeof(T));
        else
            for (long j = 0; j < n; j++) c[i * ldc + j] *= beta;
}

// One panel of columns: the tile goes to c, or through `part` where fewer than whole vectors are left. lda: 0 if a is packed.
static inline void S(panel)(long rows, long columns, long k, const T *a, long lda, const T *b, long step, T *c, long ldc,
                            int more) {
    long vectors = (columns + LANES - 1) / LANES;
    T part[ROWS * PANEL] __attribute__((aligned(64)));
    int whole = columns == vectors * LANES;
    T *to = whole ? c : part;
    if (lda) S(any_unpacked)(vectors, k, a, lda, b, step, to, whole ? ldc : PANEL, whole && more);
    else S(any_tile)(rows, vectors, k, a, b, step, to, whole ? ldc : PANEL, whole && more);
    if (whole) return;
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < columns; j++) c[i * ldc + j] = part[i * PANEL + j] + (more ? c[i * ldc + j] : 0);
}

// Columns of the next panel when so many are left: three vectors, but four of them are two and two.
static inline long S(next_panel)(long left) {
    long vectors = (left + LANES - 1) / LANES;
    return (vectors == 4 ? 2 : vectors > 3 ? 3 : vectors) * LANES;
}

static void S(add_row)(long m, long n, T *c, long ldc, const T *bias) {
    for (long i = 0; bias && i < m; i++, c += ldc)
        for (long j = 0; j < n; j++) c[j] += bias[j];
}

// A block of the result by one thread; a bias per column is added, and what comes after is run, while a strip of it is in the
// cache.
static void S(block)(int ta, int tb, long m, long n, long k, T alpha, const T *a, long lda, const T *b, long ldb, T beta,
                     T *c, long ldc, const T *bias, const after *then) {
    if (m <= 0 || n <= 0) return;
    if (beta != 0 && beta != 1) S(scale)(m, n, beta, c, ldc);
    if (k <= 0 || alpha == 0) {
        if (beta == 0) S(scale)(m, n, 0, c, ldc);
        S(add_row)(m, n, c, ldc, bias);
        return;
    }
    long blocks = (k + DEPTH - 1) / DEPTH, depth = (k + blocks - 1) / blocks;
    int direct = !tb && m <= FEW;
    int unpacked = !ta && alpha == 1 && n <= NARROW && lda % 512;  // rows a page apart would compete for places in the cache
    T *left = scratch((depth * ROWS + depth * PANEL * WIDTH) * sizeof(T)), *right = left + depth * ROWS;
    for (long jc = 0; jc < n; jc += PANEL * WIDTH) {
        long nc = n - jc < PANEL * WIDTH ? n - jc : PANEL * WIDTH;
        for (long pc = 0; pc < k; pc += depth) {
            long kc = k - pc < depth ? k - pc : depth;
            const T *from = b + (tb ? jc * ldb + pc : pc * ldb + jc);
            for (long j = 0, width; j < nc; j += width) {
                width = S(next_panel)(nc - j);
                if (direct && j + width <= nc) continue;
                S(pack)(tb, nc - j < width ? nc - j : width, kc, from + (tb ? j * ldb : j), ldb, right + j * kc, width);
            }
            for (long i = 0; i < m; i += ROWS) {
                long rows = m - i < ROWS ? m - i : ROWS;
                const T *rows_at = a + (ta ? pc * lda + i : i * lda + pc);
                int straight = unpacked && rows == ROWS;
                if (!straight) S(pack)(!ta, rows, kc, rows_at, lda, left, ROWS);
                if (alpha != 1)
                    for (long p = 0; p < kc * ROWS; p++) left[p] *= alpha;
                for (long j = 0, width; j < nc; j += width) {
                    width = S(next_panel)(nc - j);
                    int whole = direct && j + width <= nc;
                    S(panel)(rows, nc - j < width ? nc - j : width, kc, straight ? rows_at : left, straight ? lda : 0,
                             whole ? from + j : right + j * kc, whole ? ldb : width, c + i * ldc + jc + j, ldc, pc > 0 || beta != 0);
                }
                if (pc + kc < k) continue;
                if (bias) S(add_row)(rows, nc, c + i * ldc + jc, ldc, bias + jc);
                if (then) then->run(then->context, then->row + i, then->column + jc, rows, nc);
            }
        }
    }
}

// ------------------------------------------------------------------------------------------------- a matrix and a vector
// Each number of the matrix is read once, so nothing is packed: the matrix goes past where it lies, the vector stays in the
// first cache. The order of a sum depends on k alone. Rows go past one after the other: memory that is read from one end to the
// other comes at twice the speed of eight short rows at once, whose prefetching starts anew with each. Only of long rows is it
// better to read some together, if the next ones are asked for in time.
#define LONG_ROW (8192 / (long)sizeof(T))
static inline T S(total)(S(V) v) {
    T part[LANES] __attribute__((aligned(FL_VECTOR)));
    *(S(V) *)part = v;
#pragma GCC unroll 8
    for (long half = LANES / 2; half; half /= 2)
#pragma GCC unroll 8
        for (long i = 0; i < half; i++) part[i] += part[i + half];
    return part[0];
}

// The sums along `rows` rows of b, times x.
INLINE void S(sums)(const int rows, long k, const T *restrict x, const T *restrict b, long ldb, T *sum) {
    S(V) even[8] = {{0}}, odd[8] = {{0}};
    long p = 0;
    for (; p + 2 * LANES <= k; p += 2 * LANES) {
        S(V) x0 = *(const S(V) *)(x + p), x1 = *(const S(V) *)(x + p + LANES);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            if (rows > 1)  // into the second cache, line by line
                for (long q = 0; q < 2 * LANES; q += 64 / (long)sizeof(T)) __builtin_prefetch(b + (rows + i) * ldb + p + q, 0, 2);
            even[i] += x0 * *(const S(V) *)(b + i * ldb + p);
            odd[i] += x1 * *(const S(V) *)(b + i * ldb + p + LANES);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        sum[i] = S(total)(even[i] + odd[i]);
        for (long q = p; q < k; q++) sum[i] += x[q] * b[i * ldb + q];
    }
}

// The sum of b's rows, times x: `columns` numbers. far: b is too large for the second cache, so the next rows are asked for in
// time.
#define BLOCK 1024
#define FAR (1 << 20)
#define LINE (64 / (long)sizeof(T))
INLINE void S(added_rows)(const int far, long columns, long k, const T *restrict x, const T *restrict b, long ldb,
                          T *restrict sum) {
    memset(sum, 0, columns * sizeof(T));
    long p = 0;
    for (; p + 8 <= k; p += 8) {
#define FROM(i) const T *b##i = b + (p + i) * ldb; T w##i = x[p + i];
#define NEXT(i) __builtin_prefetch(b##i + 8 * ldb + j, 0, 2);
#define ADD(j) \
    sum[j] += ((w0 * b0[j] + w1 * b1[j]) + (w2 * b2[j] + w3 * b3[j])) + ((w4 * b4[j] + w5 * b5[j]) + (w6 * b6[j] + w7 * b7[j]));
        FL_EACH(FROM)
        long j = 0;
        for (; far && j + LINE <= columns; j += LINE) {
            FL_EACH(NEXT)
            for (long q = j; q < j + LINE; q++) ADD(q)
        }
        for (; j < columns; j++) ADD(j)
#undef FROM
#undef NEXT
#undef ADD
    }
    for (; p < k; p++)
        for (long j = 0; j < columns; j++) sum[j] += x[p] * b[p * ldb + j];
}
#undef LINE

// c[j * ldc] = alpha (x b)[j] + beta c[j * ldc] + bias[j * next], j < n; turned: b is stored with n rows.
static void S(line)(int turned, long n, long k, T alpha, const T *x, long step, const T *b, long ldb, T beta, T *c, long ldc,
                    const T *bias, long next) {
    if (step != 1) {
        T *close = scratch(k * sizeof(T));
        for (long p = 0; p < k; p++) close[p] = x[p * step];
        x = close;
    }
    T sum[BLOCK] __attribute__((aligned(64)));
    for (long from = 0; from < n; from += BLOCK) {
        long count = n - from < BLOCK ? n - from : BLOCK, j = 0;
        if (turned) {
            for (; k >= LONG_ROW && j + ROWS <= count; j += ROWS) S(sums)(ROWS, k, x, b + (from + j) * ldb, ldb, sum + j);
            for (; j < count; j++) S(sums)(1, k, x, b + (from + j) * ldb, ldb, sum + j);
        } else if (k * ldb * (long)sizeof(T) < FAR) S(added_rows)(0, count, k, x, b + from, ldb, sum);
        else S(added_rows)(1, count, k, x, b + from, ldb, sum);
        for (j = 0; j < count; j++) {
            T *to = c + (from + j) * ldc, made = alpha * sum[j];
            if (beta != 0) made += beta * *to;
            *to = bias ? made + bias[(from + j) * next] : made;
        }
    }
}
#undef BLOCK
#undef FAR
#undef LONG_ROW

// As `block`, of one row or of one column.
static void S(row)(int ta, int tb, long m, long n, long k, T alpha, const T *a, long lda, const T *b, long ldb, T beta, T *c,
                   long ldc, const T *bias, const after *then) {
    S(line)(tb, n, k, alpha, a, ta ? lda : 1, b, ldb, beta, c, 1, bias, 1);
    if (then && n > 0) then->run(then->context, then->row, then->column, 1, n);
}

static void S(column)(int ta, int tb, long m, long n, long k, T alpha, const T *a, long lda, const T *b, long ldb, T beta, T *c,
                      long ldc, const T *bias, const after *then) {
    S(line)(!ta, m, k, alpha, b, tb ? 1 : ldb, a, lda, beta, c, ldc, bias, 0);
    if (then && m > 0) then->run(then->context, then->row, then->column, m, 1);
}

typedef void S(worker)(int, int, long, long, long, T, const T *, long, const T *, long, T, T *, long, const T *, const after *);

// Who does a product of this size. (It is asked for the whole: the sums of a part must not depend on how it was split.)
static S(worker) *S(worker_for)(long m, long n, long k, T alpha) {
    return k <= 0 || alpha == 0 ? S(block) : n == 1 ? S(column) : m == 1 ? S(row) : S(block);
}

static void S(threaded)(int ta, int tb, long m, long n, long k, T alpha, const T *a, long lda, const T *b, long ldb, T beta,
                        T *c, long ldc, const T *bias, const after *then) {
    int team = fl_team(m * n / GRAIN * k);
    S(worker) *work = S(worker_for)(m, n, k, alpha);
    if (team == 1) {
        work(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, bias, then);
        return;
    }
    int by_columns = n >= m;  // whoever splits columns packs all of a, and the other way round
#pragma omp parallel num_threads(team)
    {
        long from, to;
        int t = omp_get_thread_num(), count = omp_get_num_threads();
        fl_share(by_columns ? n : m, by_columns ? LANES : ROWS, t, count, &from, &to);
        after mine = then ? (after){then->run, then->context, by_columns ? 0 : from, by_columns ? from : 0} : (after){0};
        if (by_columns)
            work(ta, tb, m, to - from, k, alpha, a, lda, b + (tb ? from * ldb : from), ldb, beta, c + from, ldc,
                 bias ? bias + from : 0, then ? &mine : 0);
        else
            work(ta, tb, to - from, n, k, alpha, a + (ta ? from : from * lda), lda, b, ldb, beta, c + from * ldc, ldc, bias,
                 then ? &mine : 0);
    }
}

// ---------------------------------------------------------------------------------------------------------- interface
void S(fl_gemm1)(int ta, int tb, long m, long n, long k, T alpha, const T *a, long lda, const T *b, long ldb, T beta, T *c,
                 long ldc) {
    S(worker_for)(m, n, k, alpha)(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, 0, 0);
}

void S(fl_gemm)(int ta, int tb, long m, long n, long k, T alpha, const T *a, long lda, const T *b, long ldb, T beta, T *c,
                long ldc) {
    S(threaded)(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, 0, 0);
}

// c = a b, plus a bias per column.
void S(fl_linear)(int ta, int tb, long m, long n, long k, const T *a, long lda, const T *b, long ldb, const T *bias, T *c,
                  long ldc) {
    S(threaded)(ta, tb, m, n, k, 1, a, lda, b, ldb, 0, c, ldc, bias, 0);
}

// The same, and run(context, ...) on each piece of the result as soon as it is final.
void S(fl_product)(int ta, int tb, long m, long n, long k, const T *a, long lda, const T *b, long ldb, const T *bias, T *c,
                   long ldc, void *run, void *context) {
    after then = {run, context, 0, 0};
    S(threaded)(ta, tb, m, n, k, 1, a, lda, b, ldb, 0, c, ldc, bias, &then);
}

// `count` products, sa, sb and sc elements apart.
void S(fl_bgemm)(long count, int ta, int tb, long m, long n, long k, T alpha, const T *a, long lda, long sa, const T *b,
                 long ldb, long sb, T beta, T *c, long ldc, long sc) {
    int team = fl_team(m * n * k / GRAIN * count);
    if (count < team) {
        for (long i = 0; i < count; i++)
            S(threaded)(ta, tb, m, n, k, alpha, a + i * sa, lda, b + i * sb, ldb, beta, c + i * sc, ldc, 0, 0);
        return;
    }
    S(worker) *work = S(worker_for)(m, n, k, alpha);
#pragma omp parallel for num_threads(team) schedule(static)
    for (long i = 0; i < count; i++)
        work(ta, tb, m, n, k, alpha, a + i * sa, lda, b + i * sb, ldb, beta, c + i * sc, ldc, 0, 0);
}
