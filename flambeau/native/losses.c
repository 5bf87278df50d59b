// Losses of two arrays, element by element, together with their mean or sum; and their derivatives.
#ifndef T
#include "rows.h"

//: l fl_pair_loss_{f32,f64}(lppplld)
//: fl_pair_loss_backward_{f32,f64}(lpppplld)

#define TEAM 256  // threads at most that add up a loss
enum { MSE, HUBER, SMOOTH_L1, SOFT_MARGIN, BCE, BCE_LOGITS };
#define FL_KINDS(F, ...)                                                                                                    \
    switch (kind) {                                                                                                         \
    case MSE: F(MSE, __VA_ARGS__); break;                                                                                   \
    case HUBER: F(HUBER, __VA_ARGS__); break;                                                                               \
    case SMOOTH_L1: F(SMOOTH_L1, __VA_ARGS__); break;                                                                       \
    case SOFT_MARGIN: F(SOFT_MARGIN, __VA_ARGS__); break;                                                                   \
    case BCE: F(BCE, __VA_ARGS__); break;                                                                                   \
    case BCE_LOGITS: F(BCE_LOGITS, __VA_ARGS__); break;                                                                     \
    }
#define INLINED static inline __attribute__((always_inline))
#define BODY "losses.c"
#include "both_types.h"

#else

// The loss of one pair; c is delta or beta.
INLINED T X(pair_value)(const long kind, T x, T y, T c) {
    T d = x - y, a = d < 0 ? -d : d, m = a < c ? a : c, z = -x * y;
    switch (kind) {
    case MSE: return d * d;
    case HUBER: return m * (a - m / 2);
    case SMOOTH_L1: return m * (a - m / 2) / c;
    case SOFT_MARGIN: return (z > 0 ? z : 0) + X(log1p)(X(exp)(z > 0 ? -z : z));
    case BCE: {
        T left = X(log1p)(-x), right = X(log)(x);
        return (y - 1) * (left < -100 ? -100 : left) - y * (right < -100 ? -100 : right);
    }
    default: return (x > 0 ? 0 : -x) + X(log1p)(X(exp)(x > 0 ? -x : x)) + (1 - y) * x;
    }
}

INLINED T X(pair_slope)(const long kind, T x, T y, T c) {
    T d = x - y, clipped = d < -c ? -c : d > c ? c : d;
    switch (kind) {
    case MSE: return d + d;
    case HUBER: return clipped;
    case SMOOTH_L1: return clipped / c;
    case SOFT_MARGIN: return -y * X(sigmoid)(-x * y);
    case BCE: {
        T spread = (1 - x) * x;
        return d / (spread < (T)1e-12 ? (T)1e-12 : spread);
    }
    default: return X(sigmoid)(x) - y;
    }
}

INLINED void X(pair_sum)(const long kind, const T *x, const T *y, long n, T c, double *total) {
    for (long from = 0; from < n; from += FL_PIECE) {
        long to = from + FL_PIECE < n ? from + FL_PIECE : n;
        T s = 0;
#pragma omp simd reduction(+ : s)
        for (long i = from; i < to; i++) s += X(pair_value)(kind, x[i], y[i], c);
        *total += s;
    }
}

INLINED void X(pair_each)(const long kind, const T *x, const T *y, T *out, long n, T c) {
#pragma omp simd
    for (long i = 0; i < n; i++) out[i] = X(pair_value)(kind, x[i], y[i], c);
}

INLINED void X(pair_back)(const long kind, const T *grad, long step, const T *x, const T *y, T *out, long n, T c, T over) {
    if (step)
#pragma omp simd
        for (long i = 0; i < n; i++) out[i] = X(pair_slope)(kind, x[i], y[i], c) * grad[i];
    else {
        T factor = grad[0] / over;
#pragma omp simd
        for (long i = 0; i < n; i++) out[i] = X(pair_slope)(kind, x[i], y[i], c) * factor;
    }
}

// The losses of n pairs into `out`: each of them (reduction 0), their mean (1) or sum (2). Returns 1 if an input of the binary
// cross entropy is not between 0 and 1, else 0.
long X(fl_pair_loss)(long kind, const T *x, const T *y, T *out, long n, long reduction, double number) {
    int team = fl_team(n * (kind >= SOFT_MARGIN ? 8 : 1)), used = 1, bad = 0;
    if (team > TEAM) team = TEAM;
    double parts[TEAM] = {0};
    T c = (T)number;
#pragma omp parallel num_threads(team) reduction(| : bad)
    {
        long from, to;
        int t = omp_get_thread_num();
        fl_share(n, FL_PIECE, t, omp_get_num_threads(), &from, &to);
        if (t == 0) used = omp_get_num_threads();
        if (kind == BCE)
            for (long i = from; i < to; i++) bad |= !(x[i] >= 0 && x[i] <= 1);
        if (reduction) FL_KINDS(X(pair_sum), x + from, y + from, to - from, c, parts + t)
        else FL_KINDS(X(pair_each), x + from, y + from, out + from, to - from, c)
    }
    if (reduction) {
        double total = 0;
        for (int t = 0; t < used; t++) total += parts[t];
        out[0] = (T)(reduction == 1 ? total / n : total);
    }
    return bad;
}

void X(fl_pair_loss_backward)(long kind, const T *grad, const T *x, const T *y, T *out, long n, long reduction, double number) {
    T c = (T)number, over = reduction == 1 ? (T)n : 1;
#pragma omp parallel num_threads(fl_team(n * (kind >= SOFT_MARGIN ? 4 : 1)))
    {
        long from, to, step = reduction ? 0 : 1;
        fl_share(n, FL_PIECE, omp_get_thread_num(), omp_get_num_threads(), &from, &to);
        FL_KINDS(X(pair_back), grad + from * step, step, x + from, y + from, out + from, to - from, c, over)
    }
}

#endif
