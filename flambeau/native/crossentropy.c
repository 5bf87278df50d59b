// Cross entropy from logits, and the negative log-likelihood.
#ifndef T
#include "rows.h"

//: l fl_cross_entropy_{f32,f64}(ppppppppllll)
//: fl_cross_entropy_backward_{f32,f64}(pppppppllll)
//: l fl_nll_loss_{f32,f64}(pppppplllll)
//: fl_nll_loss_backward_{f32,f64}(ppppplllll)

#define BODY "crossentropy.c"
#include "both_types.h"

#else

// A few rows (see the next function). Lowers *bad to a row with a target out of range.
static void X(some_losses)(const T *x, const int64_t *target, const T *weight, T *powers, T *inverse, T *values, long from,
                           long to, long classes, long ignore, long *bad) {
    long rows = to - from, fits = 1;
    T m[FL_SHORT];
    double total[FL_SHORT];
    for (long k = from; k < to; k++)
        if (target[k] != ignore && (target[k] < 0 || target[k] >= classes)) *bad = k < *bad ? k : *bad, fits = 0;
    if (!fits) return;
    for (long k = 0; k < rows; k++) m[k] = X(fl_row_max)(x + (from + k) * classes, classes);
    for (long k = 0; k < rows; k++) {
        const T *r = x + (from + k) * classes;
        total[k] = powers ? X(fl_row_powers)(r, powers + (from + k) * classes, classes, m[k])
                          : X(fl_row_total)(r, classes, m[k]);
    }
    for (long k = 0; k < rows; k++) {
        int counts = target[from + k] != ignore;
        T there = counts ? x[(from + k) * classes + target[from + k]] : 0;
        inverse[from + k] = counts ? (T)(1 / total[k]) : 0;
        T value = counts ? (T)(log_f64(total[k]) + ((double)m[k] - (double)there)) : 0;
        values[from + k] = weight && counts ? value * weight[target[from + k]] : value;
    }
}

// Of logits (n, classes): `values` the losses, 0 for targets that do not count; `result` their mean (reduction 1) or sum, and
// `divisor` what the sum was divided by. `weight` (one per class) may be NULL. `powers` (may be NULL) keeps exp(x - maximum),
// `inverse` one over their sums, 0 for rows that do not count. Returns the row of a target out of range, or -1.
long X(fl_cross_entropy)(const T *x, const int64_t *target, const T *weight, T *powers, T *inverse, T *values, T *result,
                         T *divisor, long n, long classes, long ignore, long reduction) {
    long bad = n, step = fl_rows_at_once(classes);
#pragma omp parallel for num_threads(fl_team(n * classes * 4)) reduction(min : bad)
    for (long k = 0; k < (n + step - 1) / step; k++) {
        long from = k * step, to = from + step < n ? from + step : n;
        X(some_losses)(x, target, weight, powers, inverse, values, from, to, classes, ignore, &bad);
    }
    if (bad < n) return bad;
    double over = 1;
    if (reduction == 1) {
        over = 0;
        for (long k = 0; k < n; k++) over += target[k] == ignore ? 0 : weight ? weight[target[k]] : 1;
    }
    *divisor = (T)over;
    if (reduction) *result = (T)(X(fl_row_sum)(values, n) / over);
    return -1;
}

// (softmax - one hot) * grad / total; grad has one element per row when `each`, else one.
void X(fl_cross_entropy_backward)(const T *grad, const T *powers, const T *inverse, const int64_t *target, const T *weight,
                                  const T *total, T *out, long n, long classes, long ignore, long each) {
#pragma omp parallel for num_threads(fl_team(n * classes))
    for (long k = 0; k < n; k++) {
        T *o = out + k * classes;
        const T *p = powers + k * classes;
        if (target[k] == ignore || target[k] < 0 || target[k] >= classes) {
            memset(o, 0, classes * sizeof(T));
            continue;
        }
        T factor = grad[each ? k : 0] / total[0];
        if (weight) factor *= weight[target[k]];
        T scale = factor * inverse[k];
#pragma omp simd
        for (long i = 0; i < classes; i++) o[i] = p[i] * scale;
        o[target[k]] -= factor;
    }
}

// Of log-probabilities (n, classes, places) and targets (n, places); weight (one per class) may be NULL. As above.
long X(fl_nll_loss)(const T *x, const int64_t *target, const T *weight, T *values, T *result, T *total, long n, long classes,
                    long places, long ignore, long reduction) {
    double sum = 0, weights = 0;
    for (long k = 0; k < n; k++)
        for (long j = 0; j < places; j++) {
            int64_t t = target[k * places + j];
            T value = 0;
            if (t != ignore) {
                if (t < 0 || t >= classes) return k * places + j;
                T w = weight ? weight[t] : 1;
                value = -x[(k * classes + t) * places + j];
                if (weight) value *= w;
                sum += value;
                weights += w;
            }
            if (!reduction) values[k * places + j] = value;
        }
    total[0] = reduction ? (T)weights : 0;
    if (reduction) result[0] = (T)(reduction == 1 ? sum / weights : sum);
    return -1;
}

void X(fl_nll_loss_backward)(const T *grad, const int64_t *target, const T *weight, const T *total, T *out, long n,
                             long classes, long places, long ignore, long reduction) {
#pragma omp parallel for num_threads(fl_team(n * classes * places / 4))
    for (long k = 0; k < n; k++) {
        T *o = out + k * classes * places;
        memset(o, 0, classes * places * sizeof(T));
        for (long j = 0; j < places; j++) {
            int64_t t = target[k * places + j];
            if (t == ignore || t < 0 || t >= classes) continue;
            T factor = reduction ? grad[0] : grad[k * places + j];
            if (reduction == 1) factor /= total[0];
            o[t * places + j] = weight ? -factor * weight[t] : -factor;
        }
    }
}

#endif
