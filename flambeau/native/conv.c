// Convolutions without a matrix of windows: tiles of the result in registers read the (padded) image where it is.
//
// With stride 1 all windows of one tap are the image itself, shifted. So the k-th step of the product reads a vector at
// `place of the output + table[k]`, where the table holds the shift of each channel and tap. Padding means a padded copy, made
// an image at a time; a stride means a copy that holds the columns and rows of each remainder apart ("phases"), in which every
// tap is a shift again. Positions are counted along the copied rows: a vector may run over the end of a row, and what it
// computes there is not stored.
//
// The gradient of the input is the same sweep over the padded gradient, once per phase of the input. The gradient of the weight
// is inner products of rows of the gradient (with zeros where the image's rows have their margin) and shifted images.
#include "runtime.h"

typedef struct {
    long n, c, h, w, o, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw, groups;
} geometry;

typedef struct {  // how images lie in memory: a plane of `rows` rows per channel and phase
    long rows, pitch, plane, channel, image;
    long sh, sw, ph, pw;       // row y, column x of phase (r, s) is row y * sh + r - ph, column x * sw + s - pw of the image
    long phases, phase[16][2];
    int as_is;                 // the image itself lies so
} layout;

typedef struct {  // a row of taps: reads row (y + at) * stride + r - padding of the source for position row y; columns alike
    long at, r;
} tap_line;

typedef struct {  // what a vector needs: tap rows [low, high); of each, steps before `first` only see padding in its first
    long low, high, first, last;  // position, and steps from `last` on in its last one
} need;

typedef struct {  // a run of lanes that are wanted, and where they go
    long lane, count, out;
} segment;

typedef struct {  // the vectors that cover all positions of an image
    long count;
    long *start;               // position of each
    long *first;               // its first segment
    segment *segments;
    long row, column, plane;   // strides of the result; its elements per channel
    int whole;                 // the result's positions follow each other in memory
    int full;                  // every vector is one segment
} cover;

#define GRAIN 8                // multiplications that count as one step of a simple loop

static long least(long a, long b) { return a < b ? a : b; }
static long most(long a, long b) { return a > b ? a : b; }
static long up(long a, long unit) { return (a + unit - 1) / unit * unit; }

static __thread void *scratch_;
static __thread long scratch_size_;

static void *scratch(long bytes) {
    if (scratch_size_ < bytes) {
        free(scratch_);
        scratch_ = aligned_alloc(4096, up(bytes, 4096));
        scratch_size_ = scratch_ ? bytes : 0;
    }
    return scratch_;
}

// The phase of a remainder in the layout, entered if it is new.
static long phase_of(layout *l, long r, long s) {
    for (long i = 0; i < l->phases; i++)
        if (l->phase[i][0] == r && l->phase[i][1] == s) return i;
    l->phase[l->phases][0] = r, l->phase[l->phases][1] = s;
    return l->phases++;
}

// Images as the windows of a convolution read them. `slack`: zeros after each plane.
static layout windows_layout(const geometry *g, long slack) {
    layout l = {.sh = g->sh, .sw = g->sw, .ph = g->ph, .pw = g->pw};
    for (long i = 0; i < g->kh; i++)
        for (long j = 0; j < g->kw; j++) phase_of(&l, i * g->dh % g->sh, j * g->dw % g->sw);
    l.rows = g->oh + (g->kh - 1) * g->dh / g->sh;
    l.pitch = g->ow + (g->kw - 1) * g->dw / g->sw;
    l.as_is = g->sh == 1 && g->sw == 1 && !g->ph && !g->pw && l.rows == g->h && l.pitch == g->w && !slack;
    l.plane = l.rows * l.pitch + slack;
    l.channel = l.phases * l.plane;
    l.image = g->c * l.channel;
    return l;
}

// Where each tap of each channel of a group lies, from a position on; in the order (row of the kernel, channel, column), or,
// `by_column`, (row, column, channel).
static void windows_table(const geometry *g, layout *l, int by_column, int *table) {
    long each = g->c / g->groups;
    for (long i = 0; i < g->kh; i++)
        for (long c = 0; c < each; c++)
            for (long j = 0; j < g->kw; j++)
                table[i * each * g->kw + (by_column ? j * each + c : c * g->kw + j)] =
                    c * l->channel + phase_of(l, i * g->dh % g->sh, j * g->dw % g->sw) * l->plane +
                    i * g->dh / g->sh * l->pitch + j * g->dw / g->sw;
}

// Which of the rows of taps [*from, *to) read anything but padding for position rows y to z.
static void useful_rows(const layout *l, long h, const tap_line *taps, long count, long y, long z, long *from, long *to) {
    *from = *to = 0;
    for (long i = 0; i < count; i++) {
        long first = (y + taps[i].at) * l->sh + taps[i].r - l->ph, last = (z + taps[i].at) * l->sh + taps[i].r - l->ph;
        if (last < 0 || first >= h) continue;
        if (*from == *to) *from = i;
        *to = i + 1;
    }
}

// How many of the first columns of taps read padding for position column x, and from which on for position column z.
static void useful_columns(const layout *l, long w, const tap_line *taps, long count, long x, long z, long *first, long *last) {
    for (*first = 0; *first < count && (x + taps[*first].at) * l->sw + taps[*first].r < l->pw;) ++*first;
    for (*last = count; *last > *first && (z + taps[*last - 1].at) * l->sw + taps[*last - 1].r - l->pw >= w;) --*last;
}

// How many vectors cover rows x columns positions that lie `pitch` apart, leaving out as many between rows as possible.
static long cover_count(long rows, long columns, long pitch, long lanes) {
    long count = 0;
    for (long q = 0, last = (rows - 1) * pitch + columns; q < last; count++) {
        q += lanes;
        if (q % pitch >= columns) q = (q / pitch + 1) * pitch;
    }
    return count;
}

// How many of `lanes` lanes the last vector of a row has that may be shorter: a power of two.
static long last_lanes(long columns, long lanes) {
    long size = 2;
    while (size < lanes && size < columns % lanes) size *= 2;
    return columns % lanes ? size : lanes;
}

// Those vectors; or, `full`, vectors that end where a row does, may overlap, and be shorter there (`shorter`).
static cover cover_of(long rows, long columns, long pitch, long lanes, int full, int shorter, long row, long column, long plane) {
    long room = rows * ((columns + lanes - 1) / lanes), last = (rows - 1) * pitch + columns, used = 0;
    cover v = {.row = row, .column = column, .plane = plane, .full = full, .whole = column == 1 && row == columns};
    v.start = malloc((2 * room + 2) * sizeof(long) + (room + rows + 1) * sizeof(segment));
    v.first = v.start + room + 1;
    v.segments = (segment *)(v.first + room + 1);
    for (long q = 0; q < last;) {
        long x = q % pitch, size = lanes;
        if (full && x + lanes > columns) {
            size = shorter ? last_lanes(columns, lanes) : lanes;
            q -= x + size - columns;
        }
        v.start[v.count] = q;
        v.first[v.count++] = used;
        for (long lane = 0; lane < size && q + lane < last;) {
            long y = (q + lane) / pitch, x = (q + lane) % pitch;
            if (x < columns) {
                segment s = {lane, least(columns - x, size - lane), y * row + x * column};
                v.segments[used++] = s;
            }
            lane += pitch - x;
        }
        q += size;
        if (q % pitch >= columns) q = (q / pitch + 1) * pitch;
    }
    v.first[v.count] = used;
    return v;
}

typedef struct {  // the positions x of the input, along one dimension, with (x + padding) % stride == r
    long r, count, first;  // `first`: the first of them
    long q;                // (first + padding) / stride
} span;

// The spans of all remainders, and which positions of the output they read, at and beyond its ends.
static void spans(long size, long kernel, long stride, long padding, long dilation, span *s, long *low, long *high) {
    *low = size + padding, *high = 0;
    for (long r = 0; r < stride; r++) {
        long reach = 0;
        for (long i = 0; i < kernel; i++)
            if (i * dilation % stride == r) reach = i * dilation / stride;
        s[r].r = r;
        s[r].q = (padding - r + stride - 1) / stride;
        s[r].first = s[r].q * stride + r - padding;
        s[r].count = s[r].first < size ? (size - 1 - s[r].first) / stride + 1 : 0;
        if (!s[r].count) continue;
        *low = least(*low, s[r].q - reach);
        *high = most(*high, s[r].q + s[r].count - 1);
    }
    *high = most(*low, *high);
}

#define T float
#define S(name) name##_f32
//: fl_conv_forward_f32(ppppp)
//: fl_conv_input_f32(ppppp)
//: fl_conv_weight_f32(ppppp)
#define FOLD(x) __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) + __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15)
#include "conv_body.h"
#undef FOLD
#undef T
#undef S

#define T double
#define S(name) name##_f64
//: fl_conv_forward_f64(ppppp)
//: fl_conv_input_f64(ppppp)
//: fl_conv_weight_f64(ppppp)
#define FOLD(x) (S(V8))(x)
#include "conv_body.h"
