// Launches of CUDA kernels from Python: backends/cuda/launch.py makes a builtin function of Python's for each plan, `fl_cuda_run`
// is what they all run. Nothing of CUDA's is needed to build this file: the driver's function is handed over by address.
#include <stdint.h>

// Functions of Python's stable interface, looked up by ctypes: this file needs none of Python's headers.
struct python {
    long (*as_long)(void *);
    double (*as_double)(void *);
    void *(*as_address)(void *);
    void *(*error)(void);
    void (*keep)(void *);
    void *(*call)(void *function, ...);
    void *(*from_long)(long);
    void *none;
};
static struct python py;

typedef int launch(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared, void *stream,
                   void **parameters, void **extra);
static launch *driver_launch;
static int (*driver_activate)(void *context);
static void *failed;  // a function of Python's that raises for the driver's answer

static __thread void *stream, *active;

void fl_cuda_attach(const struct python *functions, launch *launching, int (*activating)(void *), void *failing) {
    py = *functions;
    driver_launch = launching, driver_activate = activating, failed = failing;
}

void fl_cuda_stream(void *chosen) { stream = chosen; }
void fl_cuda_active(void *context) { active = context; }  // what somebody else made current in this thread

struct plan {
    void *function, *context;
    long blocks, threads, shared, count, size;
    struct plan *otherwise;  // what runs where an address is not a multiple of 16; none: nothing depends on that
    char kinds[16];     // of the arguments: p an array, d and f floating-point numbers, l and i whole ones
    char fixed[];       // the kernel's first parameter, the same at every launch
};
struct object { intptr_t references; void *type; char *data; };  // the start of any object; an array's data come next

void *fl_cuda_run(void *self, void *const *arguments, long given) {
    struct plan *p = py.as_address(self);
    long addresses = 0;
    union { double d; float f; long l; int i; } numbers[16];
    void *parameters[17];
    int numeric = 0;
    if (given != p->count) {
        py.call(failed, py.none, (void *)0);
        return 0;
    }
    for (long k = 0; k < given; k++) {
        struct object *a = arguments[k];
        parameters[k + 1] = &numbers[k];
        switch (p->kinds[k]) {
        case 'p': parameters[k + 1] = &a->data, addresses |= (long)a->data; break;
        case 'd': numbers[k].d = py.as_double(a), numeric = 1; break;
        case 'f': numbers[k].f = (float)py.as_double(a), numeric = 1; break;
        case 'l': numbers[k].l = py.as_long(a), numeric = 1; break;
        default: numbers[k].i = (int)py.as_long(a), numeric = 1;
        }
    }
    if (numeric && py.error())
        return 0;
    if (p->otherwise && addresses % 16)
        p = p->otherwise;
    parameters[0] = p->fixed;
    int code = 0;
    if (active != p->context && !(code = driver_activate(p->context)))
        active = p->context;
    if (!code && p->blocks)
        code = driver_launch(p->function, p->blocks, 1, 1, p->threads, 1, 1, p->shared, stream, parameters, 0);
    if (code) {
        void *number = py.from_long(code);
        py.call(failed, number, (void *)0);
        return 0;
    }
    py.keep(py.none);
    return py.none;
}

// A matrix product of cuBLASLt's, settled but for the arrays.
struct product {
    int (*multiply)(void *, void *, const void *, const void *, void *, const void *, void *, const void *, const void *, void *,
                    void *, void *, const void *, void *, uintptr_t, void *);
    int (*set)(void *, int, const void *, uintptr_t);
    void *context, *handle, *description, *first, *second, *result, *workspace;
    uintptr_t size;
    double alpha[2], beta[2];  // in the type of the sums
    long bias;                 // whether there is one, behind the other arguments
    char algorithm[64];
};
enum { BIAS_POINTER = 8 };

void *fl_cuda_product(void *self, void *const *arguments, long given) {
    struct product *p = py.as_address(self);
    struct object *const *a = (struct object *const *)arguments;  // first, second, result, bias
    int code = 0;
    if (active != p->context && !(code = driver_activate(p->context)))
        active = p->context;
    if (!code && p->bias)
        code = p->set(p->description, BIAS_POINTER, &a[3]->data, sizeof(void *));
    if (!code)
        code = p->multiply(p->handle, p->description, p->alpha, a[0]->data, p->first, a[1]->data, p->second, p->beta,
                           a[2]->data, p->result, a[2]->data, p->result, p->algorithm, p->workspace, p->size, stream);
    if (code) {
        void *number = py.from_long(10000 + code);
        py.call(failed, number, (void *)0);
        return 0;
    }
    py.keep(py.none);
    return py.none;
}

// Lists of arrays as Python and NumPy have them in memory.
struct list { intptr_t references; void *type; long length; struct array **items; };
struct array { intptr_t references; void *type; char *data; int dims; long *shape, *strides; void *base, *dtype; int flags; };

// Rows of a table, `columns` wide: the size of the first list's arrays, then the addresses of all lists' (empty: 0). Returns 0 where
// they are not contiguous arrays of one type, dtype and size per row. The caller holds Python's lock.
long fl_cuda_collect(struct list *const *lists, long count, long columns, void *type, void *dtype, long *rows) {
    const long length = lists[0]->length;
    for (long i = 0; i < length; i++) {
        long *row = rows + i * columns;
        for (long k = 0; k < count; k++) {
            row[k + 1] = 0;
            if (!lists[k]->length) continue;
            if (lists[k]->length != length) return 0;
            const struct array *a = lists[k]->items[i];
            long size = 1;
            if (a->type != type || a->dtype != dtype || !(a->flags & 1)) return 0;
            for (int d = 0; d < a->dims; d++) size *= a->shape[d];
            if (!k) row[0] = size;
            else if (row[0] != size) return 0;
            row[k + 1] = (long)a->data;
        }
        for (long k = count + 1; k < columns; k++) row[k] = 0;
    }
    return 1;
}
