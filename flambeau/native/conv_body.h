// Convolutions of one element type; included by conv.c.
#include "gemm.h"

#define FEW 64                          // products per output up to which writing it counts: its lines are fetched ahead
#define MARGIN (LANES > 8 ? LANES : 8)  // how far tiles may read beyond the end of copies

// ----------------------------------------------------------------------------------------------------- copies of images
// to[i] = from[i * step], i < count, and nothing else is written; the last vector of a row overlaps the one before it.
INLINE void S(put_row)(T *to, long count, const T *from, long step, const T *end) {
    if (step == 1 && count >= LANES) {
        for (long i = 0; i < count - LANES; i += LANES) *(S(V) *)(to + i) = *(const S(V) *)(from + i);
        *(S(V) *)(to + count - LANES) = *(const S(V) *)(from + count - LANES);
    } else if (step == 1 && count >= 8) {
        if (count > 8) *(S(V8) *)to = *(const S(V8) *)from;
        *(S(V8) *)(to + count - 8) = *(const S(V8) *)(from + count - 8);
#ifdef FL_TURN
    } else if (step == 2 && count >= 8 && from + 2 * count <= end) {
        for (long i = 0;; i = least(i + 8, count - 8)) {
            S(V8) x = *(const S(V8) *)(from + 2 * i), y = *(const S(V8) *)(from + 2 * i + 8);
            *(S(V8) *)(to + i) = __builtin_shufflevector(x, y, 0, 2, 4, 6, 8, 10, 12, 14);
            if (i == count - 8) break;
        }
#endif
    } else
        for (long i = 0; i < count; i++) to[i] = from[i * step];
}

// What is not padding of phase (r, s) of all channels of an image of size h x w; `end`: the end of the memory that may be read.
static void S(put_phase)(const layout *l, long r, long s, long channels, long h, long w, const T *x, const T *end, T *to) {
    long left = least(l->pitch, most(0, (l->pw - s + l->sw - 1) / l->sw)), top = most(0, (l->ph - r + l->sh - 1) / l->sh);
    long right = least(l->pitch, (w - 1 + l->pw - s + l->sw) / l->sw);
    long bottom = least(l->rows, (h - 1 + l->ph - r + l->sh) / l->sh);
    x += (top * l->sh + r - l->ph) * w + left * l->sw + s - l->pw;
    to += top * l->pitch + left;
    for (long c = 0; c < channels; c++, x += h * w, to += l->channel)
        for (long y = 0; y < bottom - top; y++)
            S(put_row)(to + y * l->pitch, right - left, x + y * l->sh * w, l->sw, end);
}

// An image where the margins are zero already: memory is cleared once, and used for one image after the other.
static void S(put_image)(const layout *l, long channels, long h, long w, const T *x, const T *end, T *to) {
    for (long p = 0; p < l->phases; p++)
        S(put_phase)(l, l->phase[p][0], l->phase[p][1], channels, h, w, x, end, to + p * l->plane);
}

// ---------------------------------------------------------------------------------------------- forward and input: sweeps
// A tile is ROWS channels by vectors of positions ("along"), or ROWS positions by vectors of channels ("across"): then it reads
// single elements of the image and no lane is lost at the ends of rows, but the result has to be turned around.
typedef struct {
    long k;
    int *table;         // of each step, rows of taps first
    tap_line taps[32], columns[32];
    long tap_rows, per; // k is their product
    long tap_columns;   // 0 if there are too many of them
    need *needs;        // of each vector
    int across;
    T *left;            // packed weights: along, k * ROWS for each ROWS channels; across, k * width for `width` channels
    cover over;
    long shift, first;  // what positions start from, in the source and in a plane of the result
} S(sweep);

typedef struct {
    layout l;
    long images, channels, h, w, groups, m;  // of the source; channels of the result per group
    const T *source, *bias;
    T *out;
    long count;
    S(sweep) sweeps[16];
} S(job);

typedef T S(VR) __attribute__((vector_size(ROWS * sizeof(T)), aligned(sizeof(T)), may_alias));

static void __attribute__((noinline)) S(any_tile)(long left, int vectors, long k, const T *a, const T **b, const int *table,
                                                  T **c, long ldc, const T *bias) {
#define GO(r, v) S(tile)(r, v, k, a, b[0], b[1], b[2], table, 0, c[0] + at, c[1] + at, c[2] + at, ldc, bias, 0)
    if (k == 9 && left == ROWS && vectors == 3) {  // one channel, 3 by 3: a known number of steps is unrolled
        S(tile)(ROWS, 3, 9, a, b[0], b[1], b[2], table, 0, c[0], c[1], c[2], ldc, bias, 0);
        return;
    }
    for (long rows, at = 0; left > 0; left -= rows, a += rows, at += rows * ldc, bias += bias ? rows : 0) {
        rows = fl_power(left);
        FL_SWITCH(GO)
    }
#undef GO
}

INLINE void S(tile_across)(const int rows, const int vectors, long k, const T *image, const int *table, const T *w, T *c) {
    const int more = 0;
    const long ldc = PANEL;
    const T *add = 0;
    T *c0 = c, *c1 = c + LANES, *c2 = c + 2 * LANES;
    FL_EACH(FL_ACC)
    for (long p = 0; p < k; p++, w += vectors * LANES) {
        const T *a = image + table[p];
        S(V) x0 = *(const S(V) *)w, x1, x2;
        if (vectors > 1) x1 = *(const S(V) *)(w + LANES);
        if (vectors > 2) x2 = *(const S(V) *)(w + 2 * LANES);
        FL_EACH(FL_STEP)
    }
    FL_EACH(FL_OUT)
}

// The same for ROWS positions of which some steps leave out the first or the last: it sees only padding there.
#define READ                                                                                                                \
    const T *a = image + *table++;                                                                                          \
    S(V) x0 = *(const S(V) *)w, x1, x2;                                                                                     \
    if (vectors > 1) x1 = *(const S(V) *)(w + LANES);                                                                       \
    if (vectors > 2) x2 = *(const S(V) *)(w + 2 * LANES);                                                                   \
    w += vectors * LANES;
#define LATER(i) if (i > 0) FL_STEP(i)
#define EARLIER(i) if (i < ROWS - 1) FL_STEP(i)
INLINE void S(tile_ragged)(const int vectors, const need *n, long per, const T *image, const int *table, const T *w, T *c) {
    const int more = 0, rows = ROWS;
    const long ldc = PANEL;
    const T *add = 0;
    T *c0 = c, *c1 = c + LANES, *c2 = c + 2 * LANES;
    FL_EACH(FL_ACC)
    for (long y = n->low; y < n->high; y++) {
        for (long p = 0; p < n->first; p++) { READ FL_EACH(LATER) }
        for (long p = n->first; p < n->last; p++) { READ FL_EACH(FL_STEP) }
        for (long p = n->last; p < per; p++) { READ FL_EACH(EARLIER) }
    }
    FL_EACH(FL_OUT)
}
#undef READ
#undef LATER
#undef EARLIER

static void __attribute__((noinline)) S(any_ragged)(int vectors, const need *n, long per, const T *image, const int *table,
                                                    const T *w, T *c) {
    if (vectors == 3) S(tile_ragged)(3, n, per, image, table, w, c);
    else if (vectors == 2) S(tile_ragged)(2, n, per, image, table, w, c);
    else S(tile_ragged)(1, n, per, image, table, w, c);
}

static void __attribute__((noinline)) S(any_across)(int rows, int vectors, long k, const T *image, const int *table, const T *w,
                                                    T *c) {
#define GO(r, v) S(tile_across)(r, v, k, image, table, w, c)
    FL_SWITCH(GO)
#undef GO
}

// A vector's wanted lanes go to their places. Up to `limit` whole vectors are stored: what belongs there comes later.
INLINE void S(store)(const cover *v, long vector, const T *part, T *out, T bias, long limit, const int across) {
    for (long i = v->first[vector]; i < v->first[vector + 1]; i++) {
        segment g = v->segments[i];
        if (across && g.out + ROWS <= limit) *(S(VR) *)(out + g.out) = *(const S(VR) *)(part + g.lane) + bias;
        else if (!across && g.out + LANES <= limit)
            *(S(V) *)(out + g.out) = *(const S(V) *)(part + g.lane) + bias;
        else
            for (long l = 0; l < g.count; l++) out[g.out + l * v->column] = part[g.lane + l] + bias;
    }
}

// How far into a plane of the result a thread may write that stops before vector `to` of all that cover some images.
static inline long S(limit)(const cover *v, long to) {
    return !v->whole ? 0 : to < v->count ? v->segments[v->first[to]].out : v->plane;
}

// One channel, eight vectors at a time: a depthwise convolution.
static void S(sweep_single)(const S(job) *job, const S(sweep) *s, const T *source, const T *left, T bias, T *out, long from,
                            long to) {
    for (long q = from; q < to; q += 8) {
        const T *b[8];
        T *c[8];
        for (long v = 0; v < 8; v++) {  // the last few are computed twice
            long vector = least(q + v, to - 1), image = vector / s->over.count, at = vector % s->over.count;
            b[v] = source + image * job->l.image + s->over.start[at];
            c[v] = out + image * job->groups * s->over.plane + s->over.segments[at].out;
        }
#define START(i) const T *b##i = b[i]; S(V) sum##i = {0}; sum##i += bias;
#define STEP(i) sum##i += w * *(const S(V) *)(b##i + at);
#define PUT(i) *(S(V) *)c[i] = sum##i;
        FL_EACH(START)
        for (long p = 0; p < s->k; p++) {
            T w = left[p * ROWS];
            long at = s->table[p];
            FL_EACH(STEP)
        }
        FL_EACH(PUT)
#undef START
#undef STEP
#undef PUT
    }
}

// Vectors [from, to) of all those that cover the images at `source`.
static void S(sweep_along)(const S(job) *job, const S(sweep) *s, const T *source, const T *left, const T *bias, T *out,
                           long from, long to) {
    T part[ROWS * PANEL + LANES] __attribute__((aligned(64)));
    const cover *over = &s->over;
    long limit = S(limit)(over, to);
    if (job->m == 1 && over->full) {
        S(sweep_single)(job, s, source, left, bias ? *bias : 0, out, from, to);
        return;
    }
    for (long q = from; q < to; q += 3) {
        long vectors = least(3, to - q), at[3], low = s->tap_rows, high = 0;
        const T *b[3];
        T *target[3], *c[3] = {part, part + LANES, part + 2 * LANES};
        for (long v = 0; v < 3; v++) {
            long image = least(q + v, to - 1) / over->count;
            at[v] = least(q + v, to - 1) % over->count;
            b[v] = source + image * job->l.image + over->start[at[v]];
            target[v] = out + image * job->groups * job->m * over->plane;
            if (over->full) c[v] = target[v] + over->segments[at[v]].out;
            low = least(low, s->needs[at[v]].low), high = most(high, s->needs[at[v]].high);
        }
        long skipped = least(low, high) * s->per, k = most(0, high - low) * s->per;
        const int *table = s->table + skipped;
        for (long i = 0; i < job->m; i += ROWS) {
            long rows = least(ROWS, job->m - i);
            const T *weights = left + i * s->k + skipped * ROWS;
            if (over->full) {
                for (long r = 0; s->k <= FEW && r < rows; r++)
                    for (long v = 0; v < 3; v++) __builtin_prefetch(c[v] + r * over->plane + PANEL, 1);
                S(any_tile)(rows, vectors, k, weights, b, table, c, over->plane, bias ? bias + i : 0);
                for (long v = 0; v < 3; v++) c[v] += ROWS * over->plane;
                continue;
            }
            S(any_tile)(rows, vectors, k, weights, b, table, c, PANEL, 0);
            for (long r = 0; r < rows; r++)
                for (long v = 0; v < vectors; v++)
                    S(store)(over, at[v], part + r * PANEL + v * LANES, target[v] + (i + r) * over->plane,
                             bias ? bias[i + r] : 0, limit, 0);
        }
    }
}

// Channels from `at` on that one tile across takes: all of them in tiles of about the same width.
static long S(width)(long m, long at) {
    long vectors = (m - at + LANES - 1) / LANES;
    return (vectors > 3 ? (vectors == 4 ? 2 : 3) : vectors) * LANES;
}

static void S(sweep_across)(const S(job) *job, const S(sweep) *s, const T *source, const T *left, const T *bias, T *out,
                            long from, long to) {
    T part[ROWS * PANEL + LANES] __attribute__((aligned(64))), turned[PANEL * ROWS + ROWS] __attribute__((aligned(64)));
    const cover *over = &s->over;
    long limit = S(limit)(over, to);
    for (long q = from; q < to; q++) {
        long image = q / over->count, at = q % over->count, rows = over->full ? over->segments[at].count : ROWS;
        const need *n = &s->needs[at];
        long skipped = n->low * s->per, k = n->high * s->per - skipped;
        const T *place = source + image * job->l.image + over->start[at];
        T *target = out + image * job->groups * job->m * over->plane;
        for (long i = 0, width; i < job->m; i += width, target += width * over->plane) {
            width = S(width)(job->m, i);
            long channels = least(width, job->m - i);
            const T *weights = left + i * s->k + skipped * width;
            if (n->first || n->last < s->per) S(any_ragged)(width / LANES, n, s->per, place, s->table + skipped, weights, part);
            else S(any_across)(rows, width / LANES, k, place, s->table + skipped, weights, part);
            if (bias)
                for (long r = 0; r < rows; r++)
                    for (long j = 0; j < channels; j++) part[r * PANEL + j] += bias[i + j];
            if (over->full) {
                S(pack_turned)(rows, channels, part, PANEL, target + over->segments[at].out, over->plane);
                continue;
            }
            S(pack_turned)(ROWS, channels, part, PANEL, turned, ROWS);
            for (long r = 0; r < channels; r++)
                S(store)(over, at, turned + r * ROWS, target + r * over->plane, 0, limit, 1);
        }
    }
}

// All sweeps over some images; of each the given share of the vectors (t of n).
static void S(sweep_images)(const S(job) *job, const T *source, T *out, long images, int t, int n) {
    for (long i = 0; i < job->count; i++) {
        const S(sweep) *s = &job->sweeps[i];
        long from = 0, to = s->over.count * images, unit = s->across ? LANES : ROWS;
        if (n > 1) fl_share(s->over.count, 3, t, n, &from, &to);
        for (long g = 0; g < job->groups; g++)
            (s->across ? S(sweep_across) : S(sweep_along))(
                job, s, source + g * (job->channels / job->groups) * job->l.channel + s->shift,
                s->left + g * up(job->m, unit) * s->k, job->bias ? job->bias + g * job->m : 0,
                out + g * job->m * s->over.plane + s->first, from, to);
    }
}

static void S(run)(S(job) *job) {
    const layout *l = &job->l;
    long work = 0, plane = job->sweeps[0].over.plane, size = job->channels * job->h * job->w;
    for (long i = 0; i < job->count; i++)
        work += job->sweeps[i].k * job->sweeps[i].over.count * (job->sweeps[i].across ? ROWS : LANES);
    int team = fl_team(work * job->m * job->groups / GRAIN * job->images);
    int by_image = job->images >= 4 * team || job->images % team == 0;
    const T *end = job->source + job->images * size;
#pragma omp parallel num_threads(team)
    {
        int t = omp_get_thread_num(), n = omp_get_num_threads();
        long from = 0, to = job->images, out_image = job->groups * job->m * plane;
        if (by_image) fl_share(job->images, 1, t, n, &from, &to), t = 0, n = 1;
        if (l->as_is) {  // tiles read up to a vector too far: not from the last image
            long direct = least(to, job->images - 1);
            for (long i = from; i < direct; i += n > 1 ? 1 : direct - from)
                S(sweep_images)(job, job->source + i * size, job->out + i * out_image, n > 1 ? 1 : direct - from, t, n);
            from = most(from, direct);
        }
        long block = n > 1 ? 1 : most(1, least(to - from, 65536 / most(1, l->image)));
        T *copy = from < to ? scratch((block * l->image + 2 * MARGIN) * sizeof(T)) : 0;
        if (copy) memset(copy, 0, (block * l->image + MARGIN) * sizeof(T));
        for (long i = from; i < to; i += block) {
            long images = least(block, to - i);
            for (long j = 0; j < images; j++)
                S(put_image)(l, job->channels, job->h, job->w, job->source + (i + j) * size, end, copy + j * l->image);
            S(sweep_images)(job, copy, job->out + i * out_image, images, t, n);
        }
    }
    for (long i = 0; i < job->count; i++) {
        free(job->sweeps[i].table);
        free(job->sweeps[i].left);
        free(job->sweeps[i].needs);
        free(job->sweeps[i].over.start);
    }
}

// Chooses tiles and vectors by what they cost: a step of k takes a cycle a vector, storing it a few more.
static void S(plan)(const S(job) *job, S(sweep) *s, long rows, long columns, long row, long column, long plane) {
    long m = job->m, pitch = job->l.pitch;
    int whole = column == 1 && row == columns, best = 0;
    long cost[4] = {  // along, along with full vectors, across, across with full vectors
        cover_count(rows, columns, pitch, LANES) * m * (s->k * 9 / 8 + (whole ? 6 : 6 + LANES)),
        rows * (up(columns, LANES) / LANES) * m * (s->k + 2),
        cover_count(rows, columns, pitch, ROWS) * up(m, LANES) / LANES * ROWS * (s->k + (whole ? 14 : 10 + LANES)),
        rows * ((columns - 1) / ROWS * ROWS + last_lanes(columns, ROWS)) * up(m, LANES) / LANES * (s->k + 8)};
    for (int i = 1; i < 4; i++)
        if (cost[i] < cost[best] && (i == 2 || (whole && columns >= (i == 1 ? LANES : ROWS)))) best = i;
    s->across = best > 1;
    s->over = cover_of(rows, columns, pitch, s->across ? ROWS : LANES, best & 1, s->across, row, column, plane);
    s->needs = malloc(s->over.count * sizeof(need));
    for (long v = 0, lanes = s->across ? ROWS : LANES; v < s->over.count; v++) {
        need *n = &s->needs[v];
        long start = s->over.start[v], last = least(start + lanes - 1, (rows - 1) * pitch + columns - 1);
        useful_rows(&job->l, job->h, s->taps, s->tap_rows, start / pitch, last / pitch, &n->low, &n->high);
        n->first = 0, n->last = s->per;
        if (!s->across || !s->over.full || s->over.segments[v].count < ROWS || !s->tap_columns) continue;
        useful_columns(&job->l, job->w, s->columns, s->tap_columns, start % pitch, last % pitch, &n->first, &n->last);
        n->first *= s->per / s->tap_columns, n->last *= s->per / s->tap_columns;
    }
}

// Memory for packed weights; where tiles run across, channels that do not exist have to be zero.
static T *S(panels)(long groups, long m, long k, int across) {
    long bytes = up(groups * up(m, across ? LANES : ROWS) * most(k, 1) * sizeof(T), 64);
    T *made = aligned_alloc(64, bytes);
    if (across && m % LANES) memset(made, 0, bytes);
    return made;
}

// out = x convolved with w, plus a bias per channel where there is one.
void S(fl_conv_forward)(const geometry *g, const T *x, const T *w, const T *bias, T *out) {
    S(job) job = {windows_layout(g, 0), g->n, g->c, g->h, g->w, g->groups, g->o / g->groups, x, bias, out, 1};
    S(sweep) *s = &job.sweeps[0];
    long each = g->c / g->groups;
    s->tap_rows = g->kh, s->per = each * g->kw, s->k = s->tap_rows * s->per;
    for (long i = 0; i < g->kh; i++) s->taps[i] = (tap_line){i * g->dh / g->sh, i * g->dh % g->sh};
    if (g->kw <= 32) s->tap_columns = g->kw;
    for (long j = 0; j < s->tap_columns; j++) s->columns[j] = (tap_line){j * g->dw / g->sw, j * g->dw % g->sw};
    S(plan)(&job, s, g->oh, g->ow, g->ow, 1, g->oh * g->ow);
    s->table = malloc(s->k * sizeof(int));
    windows_table(g, &job.l, s->across, s->table);
    s->left = S(panels)(g->groups, job.m, s->k, s->across);
    T *turned = malloc(s->k * most(ROWS, PANEL) * sizeof(T));  // a panel may be narrower than ROWS: two doubles a vector
    for (long q = 0; q < g->groups; q++)
        for (long m = 0, width; m < job.m; m += width) {
            width = s->across ? S(width)(job.m, m) : ROWS;
            S(pack_turned)(least(width, job.m - m), s->k, w + (q * job.m + m) * s->k, s->k, turned, width);
            T *to = s->left + (q * up(job.m, s->across ? LANES : ROWS) + m) * s->k;
            for (long i = 0; i < g->kh; i++)
                for (long c = 0; c < each; c++)
                    for (long j = 0; j < g->kw; j++)
                        memcpy(to + (i * s->per + (s->across ? j * each + c : c * g->kw + j)) * width,
                               turned + ((c * g->kh + i) * g->kw + j) * width, width * sizeof(T));
        }
    free(turned);
    S(run)(&job);
}

// The taps of one phase (y->r, x->r) of the input, and the weights that belong to them.
static void S(phase_sweep)(const geometry *g, S(job) *job, const T *w, const span *y, const span *x, long ymin, long xmin) {
    S(sweep) *s = &job->sweeps[job->count++];
    long each = g->o / g->groups, columns = 0, row[g->kh], column[g->kw], size = g->kh * g->kw;
    for (long i = 0; i < g->kh; i++)
        if (i * g->dh % g->sh == y->r) {
            row[s->tap_rows] = i;
            s->taps[s->tap_rows++] = (tap_line){y->q - ymin - i * g->dh / g->sh, 0};
        }
    for (long j = g->kw - 1; j >= 0; j--)  // from left to right, as the gradient is read
        if (j * g->dw % g->sw == x->r) column[columns++] = j;
    if (columns <= 32) s->tap_columns = columns;
    for (long j = 0; j < s->tap_columns; j++) s->columns[j] = (tap_line){x->q - xmin - column[j] * g->dw / g->sw, 0};
    s->per = each * columns, s->k = s->tap_rows * s->per;
    S(plan)(job, s, y->count, x->count, g->sh * g->w, g->sw, g->h * g->w);
    s->table = malloc(most(1, s->k) * sizeof(int));
    for (long i = 0; i < s->tap_rows; i++)
        for (long o = 0; o < each; o++)
            for (long j = 0; j < columns; j++)
                s->table[i * s->per + (s->across ? j * each + o : o * columns + j)] =
                    o * job->l.channel - row[i] * g->dh / g->sh * job->l.pitch - column[j] * g->dw / g->sw;
    s->left = S(panels)(g->groups, job->m, s->k, s->across);
    for (long q = 0; q < g->groups; q++)
        for (long m = 0, width; m < job->m; m += width) {
            width = s->across ? S(width)(job->m, m) : ROWS;
            T *to = s->left + (q * up(job->m, s->across ? LANES : ROWS) + m) * s->k;
            for (long i = 0; i < s->tap_rows; i++)
                for (long o = 0; o < each; o++)
                    for (long j = 0; j < columns; j++) {
                        const T *from = w + ((q * each + o) * job->m + m) * size + row[i] * g->kw + column[j];
                        T *step = to + (i * s->per + (s->across ? j * each + o : o * columns + j)) * width;
                        for (long c = 0; c < least(width, job->m - m); c++) step[c] = from[c * size];
                    }
        }
    s->shift = (y->q - ymin) * job->l.pitch + x->q - xmin;
    s->first = y->first * g->w + x->first;
}

// out = the gradient of the input from the output's, g; or the transposed convolution of g, with a bias per channel.
void S(fl_conv_input)(const geometry *g, const T *grad, const T *w, const T *bias, T *out) {
    S(job) job = {{.sh = 1, .sw = 1, .phases = 1}, g->n, g->o, g->oh, g->ow, g->groups, g->c / g->groups, grad, bias, out};
    span ys[16], xs[16];
    long ymin, ymax, xmin, xmax;
    spans(g->h, g->kh, g->sh, g->ph, g->dh, ys, &ymin, &ymax);
    spans(g->w, g->kw, g->sw, g->pw, g->dw, xs, &xmin, &xmax);
    layout *l = &job.l;
    l->ph = -ymin, l->pw = -xmin;
    l->rows = ymax - ymin + 1, l->pitch = xmax - xmin + 1;
    l->plane = l->channel = l->rows * l->pitch;
    l->image = g->o * l->channel;
    l->as_is = !ymin && !xmin && l->rows == g->oh && l->pitch == g->ow;
    for (long i = 0; i < g->sh; i++)
        for (long j = 0; j < g->sw; j++)
            if (ys[i].count > 0 && xs[j].count > 0) S(phase_sweep)(g, &job, w, &ys[i], &xs[j], ymin, xmin);
    S(run)(&job);
}

// ----------------------------------------------------------------------------------------------- the gradient of the weight
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

#undef MARGIN
#undef FEW
#undef DOT
#undef SUMS
#undef SUM
#undef PLACE
#undef NEXT
#undef TAP
