// Optimizer updates and gradient clipping: one call for all tensors of a group.
//
// The tensors come as a table with eight entries for each: parameter, gradient, three arrays of state (null where a rule has
// fewer), step count, a second count, and the number of elements. Threads share the elements of all tensors laid end to end.
// Products and sums are rounded one by one, as the NumPy kernels do it.
//! now
#ifndef T
#pragma GCC optimize("fp-contract=off", "no-unswitch-loops")  // a choice inside a loop is a blend: memory takes longer anyway
#pragma STDC FP_CONTRACT OFF
#include "runtime.h"

enum { PARAM, GRAD, FIRST, SECOND, THIRD, STEP, COUNT, SIZE, COLUMNS };
typedef void *row_t[COLUMNS];

// What an object looks like in memory: sizes that Python tells once, and the layout of an array as NumPy's C interface has it.
static long head, in_tuple, in_list;
static void *array_type, *single, *twice;
typedef struct { char *data; int ndim; long *shape; long *strides; void *base; void *dtype; int flags; } array_t;

//: fl_layout(lllppp)
void fl_layout(long header, long tuple_items, long list_items, void *type, void *float32, void *float64) {
    head = header; in_tuple = tuple_items; in_list = list_items;
    array_type = type; single = float32; twice = float64;
}

// Fills the table from a tuple of lists of arrays (empty: null). The first SIZE - counts lists hold arrays of the parameter's
// size, all float32 or all float64 and contiguous; the last `counts` zero-dim ones of either type. Returns 0 when they are not
// like that, else 1, plus 1 for float64, plus 2 for float64 counts.
//: l fl_collect(plp)
long fl_collect(char *lists, long counts, row_t *table) {
    void *dtype = 0, *wide = 0;
    long rows = 0;
    for (int column = 0; column < SIZE; column++) {
        char *list = *(char **)(lists + in_tuple + 8 * column);
        long n = *(long *)(list + head);
        char **items = *(char ***)(list + in_list);
        if (!column) rows = n;
        if (n && n != rows) return 0;
        for (long i = 0; i < rows; i++) {
            if (!n) { table[i][column] = 0; continue; }
            array_t *a = (array_t *)(items[i] + head);
            if (*(void **)(items[i] + head - 8) != array_type || !(a->flags & 1)) return 0;
            long size = 1;
            for (int d = 0; d < a->ndim; d++) size *= a->shape[d];
            void **kind = column < SIZE - counts ? &dtype : &wide;
            if (kind == &wide) { if (a->ndim) return 0; }
            else if (!column) table[i][SIZE] = (void *)size;
            else if ((long)table[i][SIZE] != size) return 0;
            if (!*kind) *kind = a->dtype;
            if (a->dtype != *kind || (*kind != single && *kind != twice)) return 0;
            table[i][column] = a->data;
        }
    }
    return 1 + (dtype == twice) + 2 * (wide == twice);
}

#define BLOCK 2048
static double count_of(const void *at, long wide) { return wide ? *(double *)at : *(float *)at; }

static void store_count(void *at, long wide, double value) {
    if (wide) *(double *)at = value; else *(float *)at = (float)value;
}

static void advance(row_t *table, long rows, long wide) {
    for (long i = 0; i < rows; i++)
        if (table[i][STEP]) store_count(table[i][STEP], wide, count_of(table[i][STEP], wide) + 1);
}

static long elements(row_t *table, long rows) {
    long total = 0;
    for (long i = 0; i < rows; i++) total += (long)table[i][SIZE];
    return total;
}

// Runs the code for each piece [from, from + n) of a tensor that falls to a thread.
#define PIECES(...) \
    long total = elements(table, rows); \
    _Pragma("omp parallel num_threads(fl_team(2 * total))") { \
        long begin, end, at = 0; \
        fl_share(total, 64, omp_get_thread_num(), omp_get_num_threads(), &begin, &end); \
        for (long i = 0; i < rows && at < end; at += (long)table[i++][SIZE]) { \
            void **row = table[i]; \
            long from = begin > at ? begin - at : 0, stop = end - at < (long)row[SIZE] ? end - at : (long)row[SIZE]; \
            long n = stop - from; \
            if (n <= 0) continue; \
            __VA_ARGS__ \
        } \
    }
#define OF(column) ((T *)row[column] + from)
#define MAYBE(column) (row[column] ? OF(column) : 0)
#define NEXT_STEP (count_of(row[STEP], wide) + 1)
#define EACH _Pragma("omp simd") for (long k = 0; k < n; k++)
#define INLINE static inline __attribute__((always_inline))
#define SQRT(x) ((T)(sizeof(T) == 4 ? sqrtf(x) : sqrt(x)))
#define ABS(x) ((T)(sizeof(T) == 4 ? fabsf(x) : fabs(x)))
#define ADAM(a) if (ams == a) X(adam_piece)(OF(PARAM), OF(GRAD), OF(FIRST), OF(SECOND), MAYBE(THIRD), n, \
    maximize ? -1 : 1, decoupled ? 0 : decay, shrink, 1 - beta1, beta2, 1 - beta2, root, eps, rate, a);
#define SGD(m, o) if (buffered == m && (!m || !nesterov == !o)) X(sgd_piece)(OF(PARAM), OF(GRAD), MAYBE(FIRST), n, \
    maximize ? -1 : 1, lr, decay, keep, take, momentum, m, o);
#define RMS(m, c) if (buffered == m && centred == c) X(rmsprop_piece)(OF(PARAM), OF(GRAD), OF(FIRST), MAYBE(SECOND), \
    MAYBE(THIRD), n, maximize ? -1 : 1, lr, alpha, 1 - alpha, eps, decay, momentum, m, c);

// A rule without options that choose its code: NUMBERS behind lr, what is computed once per tensor, and what for element k of p
// (parameter), g (gradient), m and v (state). gk is the gradient with weight decay in it, pk the parameter, shrunk by decay that
// is decoupled.
#define NUMBERS(...) __VA_ARGS__
#define RULE(name, numbers, per_tensor, per_element) \
    void X(fl_##name)(row_t *table, long rows, long wide, double lr, numbers, long maximize) { \
        PIECES({ \
            T *restrict p = OF(PARAM), *restrict m = OF(FIRST), *restrict v = MAYBE(SECOND); \
            const T *restrict g = OF(GRAD); \
            const double step = NEXT_STEP; \
            T sign = maximize ? -1 : 1, little = eps, shrink = 1, decay = weight_decay; \
            UNPACK per_tensor \
            EACH { \
                T gk = g[k] * sign, pk = p[k] * shrink; \
                if (decay != 0) gk = gk + pk * decay; \
                UNPACK per_element \
            } \
        }) \
        advance(table, rows, wide); \
    }
#define UNPACK(...) __VA_ARGS__

//:
//: fl_adam_{f32,f64}(plldddddll)
//:
//: fl_sgd_{f32,f64}(plddddlll)
//:
//: fl_rmsprop_{f32,f64}(plldddddl)
//:
//: fl_adagrad_{f32,f64}(pllddddl)
//:
//: fl_adadelta_{f32,f64}(pllddddl)
//:
//: fl_adamax_{f32,f64}(plldddddl)
//:
//: fl_nadam_{f32,f64}(pllddddddll)
//:
//: fl_radam_{f32,f64}(plldddddll)
//:
//: fl_total_norm_{f32,f64}(pldp)
//: fl_clip_{f32,f64}(plpd)
#define BODY "optim.c"
#include "both_types.h"

#else
// ------------------------------------------------------------------------------------ Adam
INLINE void X(adam_piece)(T *restrict p, const T *restrict g, T *restrict m, T *restrict v, T *restrict most, long n,
                              T sign, T decay, T shrink, T rest1, T keep2, T rest2, T root, T eps, T rate,
                              const int amsgrad) {
    EACH {
        T gk = g[k] * sign, pk = p[k] * shrink;
        if (decay != 0) gk = gk + pk * decay;
        T mk = m[k] + (gk - m[k]) * rest1, vk = v[k] * keep2 + gk * gk * rest2;
        m[k] = mk;
        v[k] = vk;
        if (amsgrad) most[k] = vk = vk > most[k] || vk != vk ? vk : most[k];
        p[k] = pk - mk / (SQRT(vk) / root + eps) * rate;
    }
}

void X(fl_adam)(row_t *table, long rows, long wide, double lr, double beta1, double beta2, double eps, double decay,
                long decoupled, long maximize) {
    T shrink = decoupled ? 1 - lr * decay : 1;
    PIECES({
        double step = NEXT_STEP;
        T root = sqrt(1 - pow(beta2, step)), rate = lr / (1 - pow(beta1, step));
        int ams = row[THIRD] != 0;
        ADAM(0) ADAM(1)
    })
    advance(table, rows, wide);
}

// ------------------------------------------------------------------------------------ SGD
INLINE void X(sgd_piece)(T *restrict p, const T *restrict g, T *restrict b, long n, T sign, T rate, T decay, T keep, T take,
                             T ahead, const int momentum, const int nesterov) {
    EACH {
        T gk = g[k] * sign;
        if (decay != 0) gk = gk + p[k] * decay;
        if (momentum) {
            T bk = b[k] * keep + gk * take;
            b[k] = bk;
            gk = nesterov ? gk + bk * ahead : bk;
        }
        p[k] = p[k] - gk * rate;
    }
}

// `first`: the buffers are new (all zero) and become this step's gradient, which dampening does not touch.
void X(fl_sgd)(row_t *table, long rows, double lr, double momentum, double dampening, double decay, long nesterov,
               long maximize, long first) {
    T keep = first ? 0 : momentum, take = first ? 1 : 1 - dampening;
    PIECES({
        int buffered = row[FIRST] != 0;
        SGD(0, 0) SGD(1, 0) SGD(1, 1)
    })
}

// -------------------------------------------------------------------------------- RMSprop
INLINE void X(rmsprop_piece)(T *restrict p, const T *restrict g, T *restrict v, T *restrict b, T *restrict mean, long n,
                                 T sign, T rate, T keep, T rest, T eps, T decay, T momentum,
                                 const int buffered, const int centred) {
    EACH {
        T gk = g[k] * sign;
        if (decay != 0) gk = gk + p[k] * decay;
        T vk = v[k] * keep + rest * gk * gk;
        v[k] = vk;
        if (centred) {
            T mk = mean[k] + (gk - mean[k]) * rest;
            mean[k] = mk;
            vk = vk - mk * mk;
        }
        T root = SQRT(vk) + eps;
        if (buffered) {
            b[k] = b[k] * momentum + gk / root;
            p[k] = p[k] - b[k] * rate;
        } else p[k] = p[k] - rate * gk / root;
    }
}

void X(fl_rmsprop)(row_t *table, long rows, long wide, double lr, double alpha, double eps, double decay, double momentum,
                   long maximize) {
    PIECES({
        int buffered = row[SECOND] != 0, centred = row[THIRD] != 0;
        RMS(0, 0) RMS(0, 1) RMS(1, 0) RMS(1, 1)
    })
    advance(table, rows, wide);
}

// ------------------------------------------------------------- Adagrad, Adadelta and Adamax
RULE(adagrad, NUMBERS(double lr_decay, double eps, double weight_decay), (
    T rate = lr / (1 + (step - 1) * lr_decay);
), (
    T sk = m[k] + gk * gk;
    m[k] = sk;
    p[k] = pk - rate * gk / (SQRT(sk) + little);
))

RULE(adadelta, NUMBERS(double rho, double eps, double weight_decay), (
    T keep = rho, rest = 1 - rho, rate = lr;
), (
    T mk = m[k] * keep + rest * gk * gk;
    m[k] = mk;
    T dk = SQRT(v[k] + little) / SQRT(mk + little) * gk;
    v[k] = v[k] * keep + rest * dk * dk;
    p[k] = pk - dk * rate;
))

RULE(adamax, NUMBERS(double beta1, double beta2, double eps, double weight_decay), (
    T rest = 1 - beta1, keep = beta2, rate = lr / (1 - pow(beta1, step));
), (
    T mk = m[k] + (gk - m[k]) * rest, old = v[k] * keep, size = ABS(gk) + little;
    m[k] = mk;
    v[k] = size = size > old || size != size ? size : old;
    p[k] = pk - rate * mk / size;
))

// -------------------------------------------------------------------------- NAdam and RAdam
#define DECOUPLED if (decoupled) { shrink = 1 - lr * weight_decay; decay = 0; }
#define MOMENTS \
    T mk = m[k] + (gk - m[k]) * rest1, vk = v[k] * keep2 + rest2 * gk * gk; \
    m[k] = mk; \
    v[k] = vk;
RULE(nadam_moved, NUMBERS(double beta1, double beta2, double eps, double weight_decay, double momentum_decay, long decoupled), (
    double product = count_of(row[COUNT], wide);
    double mu = beta1 * (1 - 0.5 * pow(0.96, step * momentum_decay));
    double next = beta1 * (1 - 0.5 * pow(0.96, (step + 1) * momentum_decay));
    T along = lr * (1 - mu) / (1 - product), ahead = lr * next / (1 - product * next), correction = 1 - pow(beta2, step);
    T rest1 = 1 - beta1, keep2 = beta2, rest2 = 1 - beta2;
    DECOUPLED
), (
    MOMENTS
    T root = SQRT(vk / correction) + little;
    p[k] = pk - along * gk / root - ahead * mk / root;
))

void X(fl_nadam)(row_t *table, long rows, long wide, double lr, double beta1, double beta2, double eps, double weight_decay,
                 double momentum_decay, long decoupled, long maximize) {
    for (long i = 0; i < rows; i++) {  // the product of all mu so far
        double mu = beta1 * (1 - 0.5 * pow(0.96, (count_of(table[i][STEP], wide) + 1) * momentum_decay));
        double product = count_of(table[i][COUNT], wide);
        store_count(table[i][COUNT], wide, wide ? product * mu : (float)product * (float)mu);
    }
    X(fl_nadam_moved)(table, rows, wide, lr, beta1, beta2, eps, weight_decay, momentum_decay, decoupled, maximize);
}

RULE(radam, NUMBERS(double beta1, double beta2, double eps, double weight_decay, long decoupled), (
    double correction2 = 1 - pow(beta2, step), longest = 2 / (1 - beta2) - 1;
    double length = longest - 2 * step * pow(beta2, step) / correction2;
    T ratio = length > 5 ? sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)) : 0;
    T above = sqrt(correction2), correction1 = 1 - pow(beta1, step), rate = lr;
    T rest1 = 1 - beta1, keep2 = beta2, rest2 = 1 - beta2;
    DECOUPLED
), (
    MOMENTS
    T change = mk / correction1 * rate;
    if (ratio != 0) change = change * (above / (SQRT(vk) + little)) * ratio;
    p[k] = pk - change;
))

// ------------------------------------------------------------------------------- clipping
// One block's part of the norm of order 1, 2 or infinity: sums within a block have the arrays' precision, their sum a double's.
static double X(norm_block)(const T *x, long n, double order) {
    T s = 0;
    if (order == 2) {
        _Pragma("omp simd reduction(+:s)") for (long k = 0; k < n; k++) s += x[k] * x[k];
    } else if (order == 1) {
        _Pragma("omp simd reduction(+:s)") for (long k = 0; k < n; k++) s += ABS(x[k]);
    } else {
        T odd = 0;  // NaN if there is one: a comparison would lose it
        _Pragma("omp simd reduction(max:s) reduction(+:odd)")
        for (long k = 0; k < n; k++) {
            T a = ABS(x[k]);
            s = a > s ? a : s;
            odd += a != a ? a : 0;
        }
        if (odd != odd) s = odd;
    }
    return s;
}

void X(fl_total_norm)(row_t *table, long rows, double order, T *out) {
    double sum = 0;
    int largest = order > 2;
    double parts[256] = {0};
    int threads = 1;
    PIECES({
        int me = omp_get_thread_num();
        if (!me) threads = omp_get_num_threads();
        for (long k = 0; k < n; k += BLOCK) {
            double part = X(norm_block)(OF(PARAM) + k, n - k < BLOCK ? n - k : BLOCK, order);
            if (!largest) parts[me & 255] += part;
            else if (part > parts[me & 255] || part != part) parts[me & 255] = part;
        }
    })
    for (int t = 0; t < (threads < 256 ? threads : 256); t++) {
        if (!largest) sum += parts[t];
        else if (parts[t] > sum || parts[t] != parts[t]) sum = parts[t];
    }
    *out = order == 2 ? sqrt(sum) : sum;
}

// Scales all so that their norm, which is `norm`, is at most max_norm.
void X(fl_clip)(row_t *table, long rows, const T *norm, double max_norm) {
    T factor = (T)max_norm / (*norm + (T)1e-6);
    if (factor > 1) factor = 1;
    if (factor == 1) return;
    PIECES({
        T *restrict p = OF(PARAM);
        EACH p[k] = p[k] * factor;
    })
}
#endif
