// Forward and gradient of the input: sweeps of tiles over images; part of conv_body.h.
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
