// Copies of images, their rows and columns laid out by phase; part of conv_body.h.
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
