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
#define EACH _Pragma("omp simd") for (long k = 0; k < n; k++)
#define SQRT(x) ((T)(sizeof(T) == 4 ? sqrtf(x) : sqrt(x)))
#define ABS(x) ((T)(sizeof(T) == 4 ? fabsf(x) : fabs(x)))

// What optim_rules.h calls RULE, as a function. What a choice is about is there or not for a whole tensor: each case has a
// loop of its own, in which GIVEN is a constant.
#define UNPACK(...) __VA_ARGS__
#define NUMBERS(...) __VA_ARGS__
#define GIVEN(what) has_##what
#define EITHER(what, ...) if (what) { enum { has_##what = 1 }; __VA_ARGS__ } else { enum { has_##what = 0 }; __VA_ARGS__ }
#define ALWAYS(...) __VA_ARGS__
#define MAYBE_W(...) EITHER(w, __VA_ARGS__)
#define MAYBE_V_W(...) EITHER(v, EITHER(w, __VA_ARGS__))
#define MAYBE_M_AHEAD(...) EITHER(m, EITHER(ahead, __VA_ARGS__))
#define SQUARE_TIMES(x, factor) (x * x * factor)
static const double eps = 0;  // of rules that have none
#define RULE(name, numbers, choice, per_tensor, per_element) \
    void X(fl_##name)(row_t *table, long rows, long wide, double lr, numbers, long maximize) { \
        PIECES({ \
            T *restrict p = OF(PARAM), *restrict m = MAYBE(FIRST), *restrict v = MAYBE(SECOND), *restrict w = MAYBE(THIRD); \
            const T *restrict g = OF(GRAD); \
            const double step = row[STEP] ? count_of(row[STEP], wide) + 1 : 0; \
            const double product = row[COUNT] ? count_of(row[COUNT], wide) : 0; \
            T sign = maximize ? -1 : 1, little = eps, shrink = 1, decay = weight_decay; \
            { \
                UNPACK per_tensor \
                choice(EACH { \
                    T gk = g[k] * sign, pk = p[k] * shrink; \
                    if (decay != 0) gk = gk + pk * decay; \
                    UNPACK per_element \
                }) \
            } \
        }) \
        advance(table, rows, wide); \
    }

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
#include "optim_rules.h"

void X(fl_sgd)(row_t *table, long rows, double lr, double momentum, double dampening, double decay, long nesterov,
               long first, long maximize) {
    X(fl_sgd_step)(table, rows, 0, lr, momentum, dampening, decay, nesterov, first, maximize);
}

void X(fl_nadam)(row_t *table, long rows, long wide, double lr, double beta1, double beta2, double eps, double weight_decay,
                 double momentum_decay, long decoupled, long maximize) {
    for (long i = 0; i < rows; i++) {  // the product of all mu so far
        double mu = beta1 * (1 - 0.5 * pow(0.96, (count_of(table[i][STEP], wide) + 1) * momentum_decay));
        double product = count_of(table[i][COUNT], wide);
        store_count(table[i][COUNT], wide, wide ? product * mu : (float)product * (float)mu);
    }
    X(fl_nadam_step)(table, rows, wide, lr, beta1, beta2, eps, weight_decay, momentum_decay, decoupled, maximize);
}

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
