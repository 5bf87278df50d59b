// What NumPy's arrays are like, and new windows and small arrays: what Python would ask in five questions is one call here.
// native/arrays.py makes builtin functions of Python's of them. Each returns None where a call is not of the simple kind that it
// knows; whoever asked then goes the general way, which decides, and which raises what has to be raised. Windows are made of
// NumPy's arrays and of types that derive from it; all other functions take anything.
#include <stdint.h>
#include <string.h>

typedef intptr_t size;
struct object { size references; struct object *type; };
struct array {  // as NumPy's headers have it
    struct object head;
    char *data;
    int dimensions;
    size *shape, *strides;
    void *base, *dtype;
    int flags;
};
enum { CONTIGUOUS = 1, ALIGNED = 0x100, WRITEABLE = 0x400, MOST = 64 };

// Functions of Python's stable interface and of NumPy's, looked up by ctypes: this file needs none of their headers.
static struct {
    void (*keep)(void *);
    long (*as_long)(void *, int *overflow);
    size (*tuple_size)(void *);
    void *(*tuple_item)(void *, size);
    size (*list_size)(void *);
    void *(*list_item)(void *, size);
    void *(*new_list)(size);
    int (*set_item)(void *list, size, void *);
    void (*drop)(void *);
    void *(*new_array)(void *type, void *dtype, int dimensions, const size *shape, const size *strides, void *data, int flags,
                       void *like);
    int (*set_base)(void *, void *);
} py;
static struct { void *none, *yes, *array, *tensor, *parameter, *integer, *tuple, *list, *shape, *float32, *float64, *boolean,
              *bf16, *f16; } known;
static struct { size array, node, counter; } slot;  // in a tensor
static size few = 512;                              // as below, where NumPy has no fast loop: half precision
static size large;                                  // from so many elements on threads share the work
static struct { void *dtype; size bytes; } dtypes[MOST];
static int dtype_count;

void fl_arrays_attach(const void *functions, const void *objects, const size *slots, size from) {
    memcpy(&py, functions, sizeof py);
    memcpy(&known, objects, sizeof known);
    memcpy(&slot, slots, sizeof slot);
    large = from;
}

void fl_arrays_dtype(void *dtype, size bytes) {
    if (dtype_count < MOST) {
        dtypes[dtype_count].dtype = dtype;
        dtypes[dtype_count++].bytes = bytes;
    }
}

static void *kept(void *object) {
    py.keep(object);
    return object;
}

static size bytes_of(const void *dtype) {
    for (int i = 0; i < dtype_count; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].bytes;
    return 0;
}

static size elements(const struct array *x) {
    size n = 1;
    for (int d = 0; d < x->dimensions; d++)
        n *= x->shape[d];
    return n;
}

static int is_contiguous_cpu(const struct array *x) { return x->head.type == known.array && x->flags & CONTIGUOUS; }

// An int of Python's own, no subclass; 0 where it is something else, or too large.
static int integer(struct object *x, size *value) {
    int overflow = 0;
    if (x->type != known.integer)
        return 0;
    *value = py.as_long(x, &overflow);
    return !overflow;
}

static int dimension(struct object *x, int dimensions, size *dim) {
    if (!integer(x, dim) || *dim < -dimensions || *dim >= dimensions)
        return 0;
    *dim += *dim < 0 ? dimensions : 0;
    return 1;
}

// Sizes as view(2, 3) and view((2, 3)) have them; how many, or -1.
static int sizes_in(struct object *given, size *sizes) {
    size n = py.tuple_size(given);
    struct object *first = n == 1 ? py.tuple_item(given, 0) : 0;
    int listed = first && first->type == known.list;
    if (first && (listed || first->type == known.tuple || first->type == known.shape)) {
        given = first;
        n = listed ? py.list_size(given) : py.tuple_size(given);
    }
    if (n < 1 || n > MOST)
        return -1;
    for (size i = 0; i < n; i++)
        if (!integer(listed ? py.list_item(given, i) : py.tuple_item(given, i), &sizes[i]))
            return -1;
    return (int)n;
}

static void *window(struct array *x, int dimensions, const size *shape, const size *strides, char *data) {
    struct array *made = py.new_array(x->head.type, kept(x->dtype), dimensions, shape, strides, data,
                                      ALIGNED | (x->flags & WRITEABLE), x);
    if (made && py.set_base(made, kept(x)) < 0)
        return 0;
    return made;
}

// Puts a number in the place of -1; whether so many elements have these sizes.
static int completed(size *sizes, int n, size count) {
    int open = -1;
    size product = 1;
    for (int i = 0; i < n; i++) {
        if (sizes[i] == -1 && open < 0)
            open = i;
        else if (sizes[i] < 1 || __builtin_mul_overflow(product, sizes[i], &product))
            return 0;
    }
    if (open >= 0) {
        sizes[open] = count / product;
        product *= sizes[open];
    }
    return product == count;
}

// Strides of the same elements in other sizes: dimensions that lie behind each other in memory are one, and are divided anew.
static int divided(const struct array *x, const size *sizes, int n, size *strides) {
    size step = x->strides[x->dimensions - 1], run = 1, filled = 1;
    int to = n - 1;
    for (int d = x->dimensions - 1; d >= 0; d--) {
        run *= x->shape[d];
        if (d && (x->shape[d - 1] == 1 || x->strides[d - 1] == run * step))
            continue;
        for (; to >= 0 && (filled < run || sizes[to] == 1); to--) {
            strides[to] = filled * step;
            filled *= sizes[to];
        }
        if (filled != run)
            return 0;
        if (d) {
            step = x->strides[d - 1];
            run = filled = 1;
        }
    }
    return to < 0;
}

// (x, sizes, whether x has to be contiguous)
void *fl_reshaped(void *self, void *const *given, long count) {
    struct array *x = given[0];
    size sizes[MOST], strides[MOST], all = elements(x);
    int n = sizes_in(given[1], sizes);
    if (n < 1 || !all || !x->dimensions || (given[2] == known.yes && !(x->flags & CONTIGUOUS)) || !completed(sizes, n, all) ||
        !divided(x, sizes, n, strides))
        return kept(known.none);
    return window(x, n, sizes, strides, x->data);
}

// (x, dims), each of them once
void *fl_permuted(void *self, void *const *given, long count) {
    struct array *x = given[0];
    size dims[MOST], shape[MOST], strides[MOST];
    uint64_t seen = 0;
    int n = sizes_in(given[1], dims);
    if (n != x->dimensions || !elements(x))
        return kept(known.none);
    for (int i = 0; i < n; i++) {
        size d = dims[i] + (dims[i] < 0 ? n : 0);
        if (d < 0 || d >= n || seen & (uint64_t)1 << d)
            return kept(known.none);
        seen |= (uint64_t)1 << d;
        shape[i] = x->shape[d];
        strides[i] = x->strides[d];
    }
    return window(x, n, shape, strides, x->data);
}

// (x, sizes)
void *fl_expanded(void *self, void *const *given, long count) {
    struct array *x = given[0];
    size sizes[MOST], strides[MOST], itemsize = bytes_of(x->dtype);
    int n = sizes_in(given[1], sizes), extra = n - x->dimensions;
    if (n < 1 || extra < 0 || !itemsize)
        return kept(known.none);
    for (int i = n - 1; i >= 0; i--) {
        size had = i < extra ? 1 : x->shape[i - extra];
        strides[i] = i >= extra ? x->strides[i - extra] : i == n - 1 ? itemsize : sizes[i + 1] * strides[i + 1];
        if (sizes[i] == -1 && i >= extra)
            sizes[i] = had;
        if (sizes[i] < 1 || (had != 1 && had != sizes[i]))
            return kept(known.none);
        if (had != sizes[i] || !x->dimensions)
            strides[i] = 0;
    }
    return window(x, n, sizes, strides, x->data);
}

// (x, dim)
void *fl_unsqueezed(void *self, void *const *given, long count) {
    struct array *x = given[0];
    int n = x->dimensions + 1;
    size sizes[MOST], strides[MOST], dim, itemsize = bytes_of(x->dtype);
    if (n > MOST || !itemsize || !elements(x) || !dimension(given[1], n, &dim))
        return kept(known.none);
    for (int i = 0; i < n; i++) {
        int from = i - (i > dim);
        sizes[i] = i == dim ? 1 : x->shape[from];
        strides[i] = i != dim ? x->strides[from] : i < n - 1 ? x->shape[i] * x->strides[i] : itemsize;
    }
    return window(x, n, sizes, strides, x->data);
}

// (x, size or number of parts, dim, whether it is their number)
void *fl_parted(void *self, void *const *given, long count) {
    struct array *x = given[0];
    size part, dim;
    if (!dimension(given[2], x->dimensions, &dim) || !integer(given[1], &part) || part < 1 || !elements(x) ||
        x->dimensions > MOST)
        return kept(known.none);
    size all = x->shape[dim], shape[MOST];
    if (given[3] == known.yes)
        part = (all + part - 1) / part;
    size parts = (all + part - 1) / part;
    void *made = py.new_list(parts);
    memcpy(shape, x->shape, x->dimensions * sizeof *shape);
    for (size i = 0; made && i < parts; i++) {
        shape[dim] = all - i * part < part ? all - i * part : part;
        void *one = window(x, x->dimensions, shape, x->strides, x->data + i * part * x->strides[dim]);
        if (!one || py.set_item(made, i, one) < 0) {
            py.drop(made);
            return 0;
        }
    }
    return made;
}

// (x, y): whether a kernel of two arrays may be called as it is: more than one element, few, of one dtype, in order.
void *fl_suited(void *self, void *const *given, long count) {
    const struct array *x = given[0], *y = given[1];
    if (!is_contiguous_cpu(x) || y->head.type != known.array || x->dtype != y->dtype)
        return kept(known.none);
    size n = elements(x), most = x->dtype == known.bf16 || x->dtype == known.f16 ? few : large;
    return kept(n > 1 && n < most && elements(y) < most ? known.yes : known.none);
}

// (x): room for a result like a contiguous array of few elements.
void *fl_room_like(void *self, void *const *given, long count) {
    const struct array *x = given[0];
    size n = is_contiguous_cpu(x) ? elements(x) : 0;
    if (n < 1 || n >= large)
        return kept(known.none);
    return py.new_array(known.array, kept(x->dtype), x->dimensions, x->shape, 0, 0, 0, 0);
}

#define EXTREME(name, type)                                                                      \
    static void name(const type *x, type *out, size outer, size n, size inner, int least) {      \
        for (size o = 0; o < outer; o++, x += n * inner)                                         \
            for (size i = 0; i < inner; i++) {                                                   \
                type found = x[i];                                                               \
                for (size k = i + inner; k < n * inner && found == found; k += inner)            \
                    if ((least ? x[k] < found : x[k] > found) || x[k] != x[k])                   \
                        found = x[k];                                                            \
                *out++ = found;                                                                  \
            }                                                                                    \
    }
EXTREME(extreme_f32, float)
EXTREME(extreme_f64, double)

// (x, dim or None for all, whether the least is wanted): the largest of a few elements, or a NaN among them.
void *fl_extreme(void *self, void *const *given, long count) {
    const struct array *x = given[0];
    size all = is_contiguous_cpu(x) ? elements(x) : 0, shape[MOST], dim = 0, outer = 1, n = all, dimensions = 0;
    if (all < 1 || all > 512 || x->dimensions > MOST || (x->dtype != known.float32 && x->dtype != known.float64))
        return kept(known.none);
    if (given[1] != known.none) {
        if (!dimension(given[1], x->dimensions, &dim))
            return kept(known.none);
        n = x->shape[dim];
        for (int d = 0; d < x->dimensions; d++) {
            outer *= d < dim ? x->shape[d] : 1;
            if (d != dim)
                shape[dimensions++] = x->shape[d];
        }
    }
    struct array *made = py.new_array(known.array, kept(x->dtype), (int)dimensions, shape, 0, 0, 0, 0);
    if (!made)
        return 0;
    if (x->dtype == known.float32)
        extreme_f32((float *)x->data, (float *)made->data, outer, n, all / (outer * n), given[2] == known.yes);
    else
        extreme_f64((double *)x->data, (double *)made->data, outer, n, all / (outer * n), given[2] == known.yes);
    return made;
}

// (condition, x, y): where, of few elements in one shape.
void *fl_selected(void *self, void *const *given, long count) {
    const struct array *c = given[0], *x = given[1], *y = given[2];
    if (!is_contiguous_cpu(c) || !is_contiguous_cpu(x) || !is_contiguous_cpu(y) || x->dtype != y->dtype ||
        (x->dtype != known.float32 && x->dtype != known.float64) || c->dtype != known.boolean ||
        x->dimensions != c->dimensions || y->dimensions != c->dimensions)
        return kept(known.none);
    for (int d = 0; d < c->dimensions; d++)
        if (x->shape[d] != c->shape[d] || y->shape[d] != c->shape[d])
            return kept(known.none);
    size n = elements(x);
    if (n >= large)
        return kept(known.none);
    struct array *made = py.new_array(known.array, kept(x->dtype), x->dimensions, x->shape, 0, 0, 0, 0);
    if (!made)
        return 0;
    const char *from = c->data;
    if (x->dtype == known.float32) {
        const float *a = (float *)x->data, *b = (float *)y->data;
        float *restrict out = (float *)made->data;
        for (size i = 0; i < n; i++)
            out[i] = from[i] ? a[i] : b[i];
    } else {
        const double *a = (double *)x->data, *b = (double *)y->data;
        double *restrict out = (double *)made->data;
        for (size i = 0; i < n; i++)
            out[i] = from[i] ? a[i] : b[i];
    }
    return made;
}

static void *in_slot(const void *tensor, size at) { return *(void **)((char *)tensor + at); }

// The arrays of a list or tuple of tensors, if all of them are the CPU's, contiguous and of one dtype and number of dimensions.
static size arrays_of(struct object *tensors, const struct array **found, size most) {
    int listed = tensors->type == known.list;
    if (!listed && tensors->type != known.tuple)
        return 0;
    size n = listed ? py.list_size(tensors) : py.tuple_size(tensors);
    for (size i = 0; i < n && n <= most; i++) {
        struct object *t = listed ? py.list_item(tensors, i) : py.tuple_item(tensors, i);
        if (t->type != known.tensor && t->type != known.parameter)
            return 0;
        const struct array *x = found[i] = in_slot(t, slot.array);
        if (!x || !is_contiguous_cpu(x) || x->dtype != found[0]->dtype || x->dimensions != found[0]->dimensions)
            return 0;
    }
    return n <= most ? n : 0;
}

// (tensors, dim, whether along a new dimension)
void *fl_joined(void *self, void *const *given, long count) {
    const struct array *xs[MOST];
    size n = arrays_of(given[0], xs, MOST), shape[MOST], dim;
    int fresh = given[2] == known.yes, dimensions = n ? xs[0]->dimensions + fresh : 0;
    size bytes = n ? bytes_of(xs[0]->dtype) : 0;
    if (!dimensions || dimensions > MOST || !bytes || !elements(xs[0]) || !dimension(given[1], dimensions, &dim))
        return kept(known.none);
    size outer = 1, inner = bytes, along = 0;
    for (int d = 0; d < dimensions; d++) {
        shape[d] = fresh && d == dim ? 1 : xs[0]->shape[d - (fresh && d > dim)];
        outer *= d < dim ? shape[d] : 1;
        inner *= d > dim ? shape[d] : 1;
    }
    for (size i = 0; i < n; i++) {
        for (int d = 0; d < xs[0]->dimensions; d++)
            if (xs[i]->shape[d] != xs[0]->shape[d] && (fresh || d != dim))
                return kept(known.none);
        along += fresh ? 1 : xs[i]->shape[dim];
    }
    shape[dim] = along;
    if (outer * along * (inner / bytes) >= large)
        return kept(known.none);
    struct array *made = py.new_array(known.array, kept(xs[0]->dtype), dimensions, shape, 0, 0, 0, 0);
    if (!made)
        return 0;
    char *to = made->data;
    for (size o = 0; o < outer; o++)
        for (size i = 0; i < n; i++) {
            size run = (fresh ? 1 : xs[i]->shape[dim]) * inner;
            memcpy(to, xs[i]->data + o * run, run);
            to += run;
        }
    return made;
}

// (tensors): whether any of a list or tuple that `fl_joined` took has a history, or can have one.
void *fl_any_history(void *self, void *const *given, long count) {
    struct object *tensors = given[0];
    int listed = tensors->type == known.list;
    size n = listed ? py.list_size(tensors) : py.tuple_size(tensors);
    for (size i = 0; i < n; i++) {
        void *t = listed ? py.list_item(tensors, i) : py.tuple_item(tensors, i);
        if (in_slot(t, slot.node) != known.none || in_slot(t, slot.counter) != known.none)
            return kept(known.yes);
    }
    return kept(known.none);
}
