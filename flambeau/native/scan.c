// Running sums and products of contiguous arrays seen as (outer, n, inner), along n: in double precision, rounded at the end.
//: fl_cumulate_{f32,f64}(ppllli)
#ifndef T
#include "runtime.h"
#define WIDTH 256
enum { SUMS, PRODUCTS, FROM_END };
#define BODY "scan.c"
#include "both_types.h"
#else

static inline __attribute__((always_inline)) void X(rows)(const T *x, T *out, long count, long n, int mode) {
    const int times = mode == PRODUCTS;
    long o = 0;
    for (; o + 4 <= count; o += 4) {  // four rows at once: each step waits for the one before
        const T *p = x + o * n;
        T *q = out + o * n;
        double a = times, b = times, c = times, d = times;
        for (long k = 0; k < n; k++) {
            long i = mode == FROM_END ? n - 1 - k : k;
            q[i] = a = times ? a * p[i] : a + p[i];
            q[n + i] = b = times ? b * p[n + i] : b + p[n + i];
            q[2 * n + i] = c = times ? c * p[2 * n + i] : c + p[2 * n + i];
            q[3 * n + i] = d = times ? d * p[3 * n + i] : d + p[3 * n + i];
        }
    }
    for (; o < count; o++) {
        double a = times;
        for (long k = 0; k < n; k++) {
            long i = o * n + (mode == FROM_END ? n - 1 - k : k);
            out[i] = a = times ? a * x[i] : a + x[i];
        }
    }
}

static inline __attribute__((always_inline)) void X(strip)(const T *x, T *out, long n, long width, long step, int mode) {
    const int times = mode == PRODUCTS;
    double running[WIDTH];
    for (long j = 0; j < width; j++) running[j] = times;
    for (long i = 0; i < n; i++) {
        long at = (mode == FROM_END ? n - 1 - i : i) * step;
        const T *p = x + at;
        T *q = out + at;
        #pragma omp simd
        for (long j = 0; j < width; j++) {
            double r = times ? running[j] * p[j] : running[j] + p[j];
            running[j] = r;
            q[j] = (T)r;
        }
    }
}

// mode: sums, products, or sums from the last element to the first.
void X(fl_cumulate)(const T *x, T *out, long outer, long n, long inner, int mode) {
    int team = fl_team(outer * n * inner);
    if (inner == 1) {
        #pragma omp parallel num_threads(team) if(team > 1)
        {
            long from, to;
            fl_share(outer, 4, omp_get_thread_num(), omp_get_num_threads(), &from, &to);
            if (mode == PRODUCTS) X(rows)(x + from * n, out + from * n, to - from, n, PRODUCTS);
            else if (mode == FROM_END) X(rows)(x + from * n, out + from * n, to - from, n, FROM_END);
            else X(rows)(x + from * n, out + from * n, to - from, n, SUMS);
        }
        return;
    }
    long strips = (inner + WIDTH - 1) / WIDTH;
    #pragma omp parallel for num_threads(team) schedule(static) if(team > 1)
    for (long s = 0; s < outer * strips; s++) {
        long o = s / strips, j = s % strips * WIDTH, width = inner - j < WIDTH ? inner - j : WIDTH, at = o * n * inner + j;
        if (mode == PRODUCTS) X(strip)(x + at, out + at, n, width, inner, PRODUCTS);
        else if (mode == FROM_END) X(strip)(x + at, out + at, n, width, inner, FROM_END);
        else X(strip)(x + at, out + at, n, width, inner, SUMS);
    }
}
#endif
