// Tiles of a result in registers, over an image that lies as a table of shifts says; part of conv_body.h.
//
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
