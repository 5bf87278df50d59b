// The packing and the loops around the tiles of gemm_half.c, for one half type; included by it.

// -------------------------------------------------------------------------------------------------------------- packing
// Rows of k elements side by side as columns: to[p * step + i] = from[i * ld + p], in floats or pairs.
static void H(turned)(int pairs, long rows, long k, const uint16_t *from, long ld, T *to, long step) {
    T stage[PANEL * (CHUNK + 8)] __attribute__((aligned(64)));
    long steps = pairs ? (k + 1) / 2 : k, per = pairs ? 2 : 1;
    if (rows < step) memset(to, 0, steps * step * sizeof(T));
    for (long p = 0; p < steps; p += CHUNK) {
        long some = steps - p < CHUNK ? steps - p : CHUNK, elements = k - p * per < some * per ? k - p * per : some * per;
        for (long i = 0; i < rows; i++) {
            T *row = stage + i * (CHUNK + 8);
            const uint16_t *x = from + i * ld + p * per;
            if (pairs) {
                if (elements < some * per) row[some - 1] = 0;
                memcpy(row, x, elements * 2);
            } else H(fl_widen)(x, 1, row, elements);
        }
        S(pack_turned)(rows, some, stage, CHUNK + 8, to + p * step, step);
    }
}

// The same where the columns lie side by side: to[p * step + j] = from[p * ld + j].
static void H(straight)(int pairs, long columns, long k, const uint16_t *from, long ld, T *to, long step) {
    long steps = pairs ? (k + 1) / 2 : k;
    for (long p = 0; p < steps; p++, to += step) {
        if (pairs) interleave(from + 2 * p * ld, 2 * p + 1 < k ? from + (2 * p + 1) * ld : 0, (uint32_t *)to, columns);
        else H(fl_widen)(from + p * ld, 1, to, columns);
        for (long j = columns; j < step; j++) to[j] = 0;
    }
}

static void H(pack)(int pairs, int turned, long count, long k, const uint16_t *from, long ld, T *to, long step) {
    if (turned) H(turned)(pairs, count, k, from, ld, to, step);
    else H(straight)(pairs, count, k, from, ld, to, step);
}

// ---------------------------------------------------------------------------------------------------------------- loops
static inline long H(next_panel)(long left) {
    long vectors = (left + LANES - 1) / LANES;
    return (vectors == 4 ? 2 : vectors > 3 ? 3 : vectors) * LANES;
}

// A row of n sums, scaled, with the bias (floats) and beta times what was there, rounded.
static void H(finish)(T *sum, long n, T alpha, T beta, const T *bias, uint16_t *c) {
    if (alpha != 1)
        for (long j = 0; j < n; j++) sum[j] *= alpha;
    if (bias)
        for (long j = 0; j < n; j++) sum[j] += bias[j];
    for (long from = 0; beta != 0 && from < n; from += CHUNK) {
        T before[CHUNK];
        long some = n - from < CHUNK ? n - from : CHUNK;
        H(fl_widen)(c + from, 1, before, some);
        for (long j = 0; j < some; j++) sum[from + j] += beta * before[j];
    }
    H(fl_round)(sum, c, 1, n);
}

// A block of at most HIGH rows of the result by one thread.
static void H(block)(int pairs, int ta, int tb, long m, long n, long k, T alpha, const uint16_t *a, long lda, const uint16_t *b,
                     long ldb, T beta, uint16_t *c, long ldc, const uint16_t *bias) {
    if (m <= 0 || n <= 0) return;
    long per = pairs ? 2 : 1, all = (k + per - 1) / per, blocks = (all + DEPTH - 1) / DEPTH;
    long depth = blocks ? (all + blocks - 1) / blocks : 0, width = PANEL * WIDTH;
    long kept = blocks > 1 ? (m + ROWS - 1) / ROWS * ROWS : ROWS;
    T *left = scratch((depth * (ROWS + width) + (kept + 1) * width) * sizeof(T));
    T *right = left + depth * ROWS, *sums = right + depth * width, *added = sums + kept * width;
    for (long jc = 0; jc < n; jc += width) {
        long nc = n - jc < width ? n - jc : width;
        if (bias) H(fl_widen)(bias + jc, 1, added, nc);
        if (!blocks) memset(sums, 0, ROWS * width * sizeof(T));
        for (long pc = 0; pc < all || !pc; pc += depth) {
            long kc = all - pc < depth ? all - pc : depth, first = pc * per, terms = k - first < kc * per ? k - first : kc * per;
            const uint16_t *from = b + (tb ? jc * ldb + first : first * ldb + jc);
            for (long j = 0, wide; j < nc && kc; j += wide) {
                wide = H(next_panel)(nc - j);
                H(pack)(pairs, tb, nc - j < wide ? nc - j : wide, terms, from + (tb ? j * ldb : j), ldb, right + j * kc, wide);
            }
            for (long i = 0; i < m; i += ROWS) {
                long rows = m - i < ROWS ? m - i : ROWS;
                T *sum = sums + (blocks > 1 ? i * width : 0);
                if (kc) H(pack)(pairs, !ta, rows, terms, a + (ta ? first * lda + i : i * lda + first), lda, left, ROWS);
                for (long j = 0, wide; j < nc && kc; j += wide) {
                    wide = H(next_panel)(nc - j);
                    (pairs ? pairs_tile : tile)(rows, wide / LANES, kc, left, right + j * kc, wide, sum + j, width, pc > 0);
                }
                if (pc + kc < all) continue;
                for (long r = 0; r < rows; r++)
                    H(finish)(sum + r * width, nc, alpha, beta, bias ? added : 0, c + (i + r) * ldc + jc);
            }
            if (!kc) break;
        }
    }
}

// The products of m rows x, as floats, with four rows of k elements, LONG of them at a time.
static void H(wide_dots)(long m, const T *x, const uint16_t *const rows[4], long k, T sums[][4]) {
    T row[4][LONG];
    for (long i = 0; i < m; i++)
        for (int r = 0; r < 4; r++) sums[i][r] = 0;
    for (long p = 0; p < k; p += LONG) {
        long some = k - p < LONG ? k - p : LONG;
        for (long r = 0; r < 4; r++) H(fl_widen)(rows[r] + p, 1, row[r], some);
        for (long i = 0; i < m; i++) {
            const T *from = x + i * k + p;
            T s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
            for (long q = 0; q < some; q++) {
                s0 += from[q] * row[0][q], s1 += from[q] * row[1][q];
                s2 += from[q] * row[2][q], s3 += from[q] * row[3][q];
            }
            sums[i][0] += s0, sums[i][1] += s1, sums[i][2] += s2, sums[i][3] += s3;
        }
    }
}

// A few rows times the rows of b (tb), each of which is read once: what generating text one word at a time does.
static void H(dots)(int pairs, int ta, long m, long n, long k, T alpha, const uint16_t *a, long lda, const uint16_t *b, long ldb,
                    T beta, uint16_t *c, long ldc, const uint16_t *bias) {
    T *left = scratch(m * k * sizeof(T) + 64);
    uint16_t *copied = (uint16_t *)left;
    for (long i = 0; i < m; i++)
        if (pairs)
            for (long p = 0; p < k; p++) copied[i * k + p] = ta ? a[p * lda + i] : a[i * lda + p];
        else H(fl_widen)(ta ? a + i : a + i * lda, ta ? lda : 1, left + i * k, k);
    for (long j = 0; j < n; j += 4) {
        long some = n - j < 4 ? n - j : 4;
        const uint16_t *rows[4];
        T sums[FEW][4], added[4];
        for (long r = 0; r < 4; r++) rows[r] = b + (j + (r < some ? r : 0)) * ldb;
        if (!pairs) H(wide_dots)(m, left, rows, k, sums);
        else
            for (long i = 0; i < m; i++) pairs_dots(copied + i * k, rows, k, sums[i]);
        if (bias) H(fl_widen)(bias + j, 1, added, some);
        for (long i = 0; i < m; i++) H(finish)(sums[i], some, alpha, beta, bias ? added : 0, c + i * ldc + j);
    }
}

// The same where the columns of b lie side by side: its rows are added up, a strip of columns at a time.
static void H(sums)(int ta, long m, long n, long k, T alpha, const uint16_t *a, long lda, const uint16_t *b, long ldb, T beta,
                    uint16_t *c, long ldc, const uint16_t *bias) {
    for (long j = 0; j < n; j += 4 * CHUNK) {
        long some = n - j < 4 * CHUNK ? n - j : 4 * CHUNK;
        T total[FEW][4 * CHUNK], row[4 * CHUNK];
        memset(total, 0, sizeof total);
        for (long p = 0; p < k; p++) {
            H(fl_widen)(b + p * ldb + j, 1, row, some);
            for (long i = 0; i < m; i++) {
                T w = H(fl_wide)(ta ? a[p * lda + i] : a[i * lda + p]);
#pragma omp simd
                for (long q = 0; q < some; q++) total[i][q] += w * row[q];
            }
        }
        if (bias) H(fl_widen)(bias + j, 1, row, some);
        for (long i = 0; i < m; i++) H(finish)(total[i], some, alpha, beta, bias ? row : 0, c + i * ldc + j);
    }
}

static void H(piece)(int pairs, int ta, int tb, long m, long n, long k, T alpha, const uint16_t *a, long lda, const uint16_t *b,
                     long ldb, T beta, uint16_t *c, long ldc, const uint16_t *bias) {
    if (m <= FEW && k) {
        if (tb) H(dots)(pairs, ta, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, bias);
        else H(sums)(ta, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, bias);
        return;
    }
    for (long i = 0; i < m; i += HIGH)
        H(block)(pairs, ta, tb, m - i < HIGH ? m - i : HIGH, n, k, alpha, a + (ta ? i : i * lda), lda, b, ldb, beta, c + i * ldc,
                 ldc, bias);
}

void H(fl_gemm)(int ta, int tb, long m, long n, long k, T alpha, const uint16_t *a, long lda, const uint16_t *b, long ldb,
                T beta, uint16_t *c, long ldc, const uint16_t *bias) {
    int pairs = MAY_PAIR, team = fl_team(m * n / GRAIN * k), by_columns = n >= m;
    if (team == 1) {
        H(piece)(pairs, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, bias);
        return;
    }
#pragma omp parallel num_threads(team)
    {
        long from, to;
        fl_share(by_columns ? n : m, by_columns ? LANES : ROWS, omp_get_thread_num(), omp_get_num_threads(), &from, &to);
        if (by_columns)
            H(piece)(pairs, ta, tb, m, to - from, k, alpha, a, lda, b + (tb ? from * ldb : from), ldb, beta, c + from, ldc,
                     bias ? bias + from : 0);
        else
            H(piece)(pairs, ta, tb, to - from, n, k, alpha, a + (ta ? from : from * lda), lda, b, ldb, beta, c + from * ldc, ldc,
                     bias);
    }
}

// `count` products, sa, sb and sc elements apart.
void H(fl_bgemm)(long count, int ta, int tb, long m, long n, long k, T alpha, const uint16_t *a, long lda, long sa,
                 const uint16_t *b, long ldb, long sb, T beta, uint16_t *c, long ldc, long sc) {
    int pairs = MAY_PAIR, team = fl_team(m * n * k / GRAIN * count);
    if (count < team) {
        for (long i = 0; i < count; i++)
            H(fl_gemm)(ta, tb, m, n, k, alpha, a + i * sa, lda, b + i * sb, ldb, beta, c + i * sc, ldc, 0);
        return;
    }
#pragma omp parallel for num_threads(team) schedule(static)
    for (long i = 0; i < count; i++)
        H(piece)(pairs, ta, tb, m, n, k, alpha, a + i * sa, lda, b + i * sb, ldb, beta, c + i * sc, ldc, 0);
}
