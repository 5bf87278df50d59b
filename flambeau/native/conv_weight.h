// The gradient of the weight; part of conv_body.h.
#define CHUNK 512  // positions whose rows of the gradient stay in the first cache

#define DOT(i)                                                                                                              \
    if (rows > i) {                                                                                                         \
        S(V) w = *(const S(V) *)(a + i * lda + p);                                                                          \
        c##i##0 += w * x0;                                                                                                  \
        if (vectors > 1) c##i##1 += w * x1;                                                                                 \
        if (vectors > 2) c##i##2 += w * x2;                                                                                 \
    }

#if FL_VECTOR == 64 && defined(FL_TURN)
INLINE T S(total)(S(V) x) {
    S(V8) half = FOLD(x);
    S(V8) other = __builtin_shufflevector(half, half, 4, 5, 6, 7, 0, 1, 2, 3);
    half += other;
    return (half[0] + half[2]) + (half[1] + half[3]);
}

// The sums of eight vectors, as a vector.
INLINE S(V8) S(totals)(S(V) x0, S(V) x1, S(V) x2, S(V) x3, S(V) x4, S(V) x5, S(V) x6, S(V) x7) {
#define HALVE(i) S(V8) r##i = FOLD(x##i);
    FL_EACH(HALVE)
#undef HALVE
    FL_SWAP1(r0, r1, a0, a1) FL_SWAP1(r2, r3, a2, a3) FL_SWAP1(r4, r5, a4, a5) FL_SWAP1(r6, r7, a6, a7)
    a0 += a1, a2 += a3, a4 += a5, a6 += a7;
    FL_SWAP2(a0, a2, b0, b2) FL_SWAP2(a4, a6, b4, b6)
    b0 += b2, b4 += b6;
    FL_SWAP4(b0, b4, s0, s4)
    return s0 + s4;
}
#define SUMS(j) *(S(V8) *)(c + j * ldc) += S(totals)(c0##j, c1##j, c2##j, c3##j, c4##j, c5##j, c6##j, c7##j);
#else
INLINE T S(total)(S(V) x) {
    T sum = 0;
    for (long i = 0; i < LANES; i++) sum += x[i];
    return sum;
}
#define SUM(i, j) if (ROWS > i) c[j * ldc + i] += S(total)(c##i##j);
#define SUMS(j) SUM(0, j) SUM(1, j) SUM(2, j) SUM(3, j) SUM(4, j) SUM(5, j) SUM(6, j) SUM(7, j)
#endif

// c[j * ldc + i] += the inner products of row i of a (lda apart) and of b's vectors j, over k positions of several images.
INLINE void S(dots)(const int rows, const int vectors, long images, long k, const T *a, long lda, long next_a, const T *b0,
                    const T *b1, const T *b2, long next_b, T *c, long ldc) {
    FL_EACH(FL_ACC)
    for (long n = 0; n < images; n++, a += next_a, b0 += next_b, b1 += next_b, b2 += next_b)
        for (long p = 0; p < k; p += LANES) {
            S(V) x0 = *(const S(V) *)(b0 + p), x1, x2;
            if (vectors > 1) x1 = *(const S(V) *)(b1 + p);
            if (vectors > 2) x2 = *(const S(V) *)(b2 + p);
            FL_EACH(DOT)
        }
    if (rows == 1) {
        c[0] += S(total)(c00);
        if (vectors > 1) c[ldc] += S(total)(c01);
        if (vectors > 2) c[2 * ldc] += S(total)(c02);
        return;
    }
    SUMS(0)
    if (vectors > 1) SUMS(1)
    if (vectors > 2) SUMS(2)
}

static void __attribute__((noinline)) S(any_dots)(int rows, int vectors, long images, long k, const T *a, long lda, long next_a,
                                                  const T *b0, const T *b1, const T *b2, long next_b, T *c, long ldc) {
#define GO(r, v) S(dots)(r, v, images, k, a, lda, next_a, b0, b1, b2, next_b, c, ldc)
    if (rows == 1) {
        if (vectors == 3) GO(1, 3);
        else if (vectors == 2) GO(1, 2);
        else GO(1, 1);
    } else if (vectors == 3) GO(ROWS, 3);
    else if (vectors == 2) GO(ROWS, 2);
    else GO(ROWS, 1);
#undef GO
}

// Channels of the gradient as vectors, single elements of the image: c (rows taps by vectors) += over all positions of images.
#define PLACE(i) const T *from##i = x + at[rows > i ? i : 0];
#define NEXT(i) from##i += next_x;
#define TAP(i)                                                                                                              \
    if (rows > i) {                                                                                                         \
        T w = from##i[p];                                                                                                   \
        c##i##0 += w * x0;                                                                                                  \
        if (vectors > 1) c##i##1 += w * x1;                                                                                 \
        if (vectors > 2) c##i##2 += w * x2;                                                                                 \
    }
INLINE void S(taps)(const int rows, const int vectors, long images, const geometry *g, long top, long bottom, long pitch,
                    const T *x, const int *at, long next_x, const T *b, long ldb, T *c0, long ldc) {
    const int more = 1;
    const T *add = 0;
    T *c1 = c0 + LANES, *c2 = c0 + 2 * LANES;
    FL_EACH(FL_ACC)
    FL_EACH(PLACE)
    b += top * g->ow * ldb;
    for (long n = 0; n < images; n++, b += (g->oh - bottom + top) * g->ow * ldb) {
        for (long y = top; y < bottom; y++)
            for (long p = y * pitch; p < y * pitch + g->ow; p++, b += ldb) {
                S(V) x0 = *(const S(V) *)b, x1, x2;
                if (vectors > 1) x1 = *(const S(V) *)(b + LANES);
                if (vectors > 2) x2 = *(const S(V) *)(b + 2 * LANES);
                FL_EACH(TAP)
            }
        FL_EACH(NEXT)
    }
    FL_EACH(FL_OUT)
}

// `left` taps of the table; position rows that see only padding through all taps of a tile are left out.
static void __attribute__((noinline)) S(any_taps)(long left, int vectors, long images, const geometry *g, long per, long pitch,
                                                  const T *x, const int *at, long next_x, const T *b, long ldb, T *c, long ldc) {
#define GO(r, v) S(taps)(r, v, images, g, top, bottom, pitch, x, at, next_x, b, ldb, c, ldc)
    for (long rows, p = 0; p < left; p += rows, at += rows, c += rows * ldc) {
        rows = fl_power(left - p);
        long above = g->ph - (p + rows - 1) / per * g->dh, below = g->h - 1 + g->ph - p / per * g->dh;
        long top = above > 0 ? least(g->oh, (above + g->sh - 1) / g->sh) : 0;
        long bottom = below < 0 ? top : most(top, least(g->oh, below / g->sh + 1));
        FL_SWITCH(GO)
    }
#undef GO
}

typedef struct {
    const geometry *g;
    layout lg, lx;         // of gradient and image, with equal pitch
    const int *table;
    int across;            // the gradient is turned around: (group, panel of channels, image, position, channel)
    long m, k, inner;      // channels per group, positions, taps per channel of the result
    long each;             // m in whole panels
} S(products);

// Adds the products of some images to sums (groups, inner, each).
static void S(add_products)(const S(products) *s, long images, const T *grad, const T *x, T *sums) {
    long group_x = s->g->c / s->g->groups * s->lx.channel, chunk = s->m == 1 ? s->k : CHUNK;
    for (long q = 0; q < s->k; q += chunk)
        for (long g = 0; g < s->g->groups; g++)
            for (long i = 0; i < s->m; i += ROWS)
                for (long p = 0; p < s->inner; p += 3) {
                    long vectors = least(3, s->inner - p);
                    const T *from = x + g * group_x + q;
                    const int *at = s->table + p;
                    S(any_dots)(s->m == 1 ? 1 : ROWS, vectors, images, least(chunk, s->k - q),
                                grad + (g * s->m + i) * s->lg.channel + q, s->lg.channel, s->lg.image, from + at[0],
                                from + at[vectors > 1], from + at[vectors > 2 ? 2 : 0], s->lx.image,
                                sums + (g * s->inner + p) * s->each + i, s->each);
                }
}

static void S(add_across)(const S(products) *s, long images, const T *grad, const T *x, T *sums) {
    long group_x = s->g->c / s->g->groups * s->lx.channel, size = s->g->oh * s->g->ow;
    for (long g = 0; g < s->g->groups; g++)
        for (long i = 0, width; i < s->m; i += width) {
            width = S(width)(s->m, i);
            S(any_taps)(s->inner, width / LANES, images, s->g, s->inner / s->g->kh, s->lx.pitch, x + g * group_x, s->table, s->lx.image,
                        grad + (g * s->each + i) * images * size, width, sums + g * s->inner * s->each + i, s->each);
        }
}

// The sums of each channel of `images` images, for the bias.
static void S(add_bias)(const geometry *g, long images, const T *grad, T *sums) {
    long size = g->oh * g->ow;
    for (long o = 0; o < images * g->o; o++, grad += size) {
        S(V) sum = {0};
        T rest = 0;
        long q = 0;
        for (; q + LANES <= size; q += LANES) sum += *(const S(V) *)(grad + q);
        for (; q < size; q++) rest += grad[q];
        sums[o % g->o] += S(total)(sum) + rest;
    }
}

// Images [from, to) of the batch, added to sums; `block` at a time.
static void S(weight_share)(const S(products) *s, const T *grad, const T *x, long from, long to, long block, T *sums, T *bias) {
    const geometry *g = s->g;
    long size = g->oh * g->ow, size_g = g->o * size, size_x = g->c * g->h * g->w, turned = g->groups * size * s->each;
    T *image = scratch((block * (s->lx.image + (s->across ? turned : s->lg.image)) + ROWS * s->lg.channel + 4 * MARGIN) * sizeof(T));
    T *rows = image + up(block * s->lx.image + MARGIN, MARGIN);
    if (!s->lx.as_is) memset(image, 0, (block * s->lx.image + MARGIN) * sizeof(T));
    if (!s->across) memset(rows, 0, (block * s->lg.image + MARGIN) * sizeof(T));
    else if (s->m != s->each) memset(rows, 0, block * turned * sizeof(T));
    for (long i = from; i < to; i += block) {
        long images = least(block, to - i);
        for (long j = i; j < i + images; j++) {
            if (!s->lx.as_is)
                S(put_image)(&s->lx, g->c, g->h, g->w, x + j * size_x, x + g->n * size_x, image + (j - i) * s->lx.image);
            if (!s->across)
                S(put_image)(&s->lg, g->o, g->oh, g->ow, grad + j * size_g, grad + g->n * size_g, rows + (j - i) * s->lg.image);
            for (long k = 0; s->across && k < g->groups; k++)
                for (long c = 0, width; c < s->m; c += width) {
                    width = S(width)(s->m, c);
                    S(pack_turned)(least(width, s->m - c), size, grad + j * size_g + (k * s->m + c) * size, size,
                                   rows + ((k * s->each + c) * images + (j - i) * width) * size, width);
                }
        }
        if (bias) S(add_bias)(g, images, grad + i * size_g, bias);
        (s->across ? S(add_across) : S(add_products))(s, images, rows, s->lx.as_is ? x + i * size_x : image, sums);
    }
}

// Channels [from, to) of dw: the sums of all threads, from (row, channel, column, output) to (output, channel, row, column).
static void S(collect)(const S(products) *s, const T *sums, int threads, long total, long from, long to, T *dw) {
    const geometry *g = s->g;
    long each = g->c / g->groups;
    for (long start = from, stop; start < to; start = stop) {  // what belongs to one group
        stop = least(to, (start / s->m + 1) * s->m);
        const T *column = sums + start / s->m * s->inner * s->each + start % s->m;
        for (long i = 0; i < g->kh; i++)
            for (long c = 0; c < each; c++)
                for (long j = 0; j < g->kw; j++, column += s->each) {
                    T *out = dw + start * s->inner + (c * g->kh + i) * g->kw + j;
                    for (long o = 0; o < stop - start; o++) {
                        T sum = column[o];
                        for (int t = 1; t < threads; t++) sum += column[t * total + o];
                        out[o * s->inner] = sum;
                    }
                }
    }
}

// dw (o, c / groups, kh, kw) = the gradient of the weight from the output's and the image; db (o) the bias's, unless null.
void S(fl_conv_weight)(const geometry *g, const T *grad, const T *x, T *dw, T *db) {
    long m = g->o / g->groups;
    int across = m > LANES / 2;
    S(products) s = {g, {.sh = 1, .sw = 1, .phases = 1, .rows = g->oh}, windows_layout(g, across ? 0 : LANES)};
    s.m = m, s.across = across, s.inner = g->c / g->groups * g->kh * g->kw;
    s.each = m == 1 ? 1 : up(m, across ? LANES : ROWS);
    s.lg.pitch = s.lx.pitch;
    s.lg.plane = s.lg.channel = up(g->oh * s.lg.pitch, LANES);
    s.lg.image = g->o * s.lg.channel;
    s.k = up((g->oh - 1) * s.lg.pitch + g->ow, LANES);
    int *table = malloc(s.inner * sizeof(int));
    windows_table(g, &s.lx, 0, table);
    s.table = table;
    int team = least(fl_team(g->n * g->o * s.k / GRAIN * s.inner), g->n);
    long size = g->groups * s.inner * s.each, total = size + up(g->o, LANES);
    long block = (across ? 4096 / S(width)(m, 0) / (g->oh * g->ow) : CHUNK / s.k);
    T *sums = calloc(team * total, sizeof(T));
#pragma omp parallel num_threads(team)
    {
        long from, to;
        int t = omp_get_thread_num(), count = omp_get_num_threads();
        fl_share(g->n, 1, t, count, &from, &to);
        S(weight_share)(&s, grad, x, from, to, most(1, block), sums + t * total, db ? sums + t * total + size : 0);
#pragma omp barrier
        fl_share(g->o, 1, t, count, &from, &to);
        S(collect)(&s, sums, count, total, from, to, dw);
        for (long o = from; db && o < to; o++) {
            db[o] = sums[size + o];
            for (int i = 1; i < count; i++) db[o] += sums[i * total + size + o];
        }
    }
    free(sums);
    free(table);
}
