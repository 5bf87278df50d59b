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
    void (*drop)(void *);
    void *(*in_dict)(void *dict, void *key);  // nothing is kept; an error where the key has no hash
    int (*append)(void *list, void *);
    int (*set)(void *object, void *name, void *value);
    void *(*get)(void *object, void *name);
    void (*forget_error)(void);
    void *(*new_tuple)(long);
    int (*set_item)(void *tuple, long, void *);  // takes the reference
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

void fl_cuda_active(void *context) { active = context; }  // what somebody else made current in this thread

struct plan {
    void *function, *context;
    long blocks, threads, shared, count, size;
    struct plan *otherwise;  // what runs where an address is not a multiple of 16; none: nothing depends on that
    char kinds[16];     // of the arguments: p an array, d and f floating-point numbers, l and i whole ones
    char fixed[];       // the kernel's first parameter, the same at every launch
};
struct object { intptr_t references; void *type; char *data; };  // the start of any object; an array's data come next

// Lists and arrays as Python and NumPy have them in memory.
struct list { intptr_t references; void *type; long length; struct array **items; };
struct array { intptr_t references; void *type; char *data; int dims; long *shape, *strides; void *base, *dtype; int flags; };
static void *host_type;  // of arrays of the host

// Numbers are Python's, or arrays of the host without dimensions: X(dtype's letter, type) of those that are understood.
#define NUMBERS(X) X('f', float) X('d', double) X('l', long) X('q', long) X('i', int) X('h', short) X('b', signed char) \
    X('B', unsigned char) X('?', unsigned char)
static char letter(const struct array *a) { return ((const char *)a->dtype)[sizeof(struct object) + 1]; }

static int is_number(const struct array *a) {
    switch (letter(a)) {
#define CASE(name, type) case name:
    NUMBERS(CASE)
#undef CASE
        return 1;
    }
    return 0;
}

#define READ(name, type) case name: return *(const type *)a->data;
static double floating(const void *number) {
    const struct array *a = number;
    if (a->type == host_type) switch (letter(a)) { NUMBERS(READ) }
    return py.as_double((void *)a);
}

static long whole(const void *number) {
    const struct array *a = number;
    if (a->type == host_type) switch (letter(a)) { NUMBERS(READ) }
    return py.as_long((void *)a);
}

union value { double d; float f; long l; int i; char *p; };

// What a call did, as it is noted while `tape` is set: launches, and the blocks that were asked for meanwhile.
enum { ARGUMENTS = 16, STEPS = 6, BLOCKS = 12 };
enum kind { PLAN, PRODUCT, CONVOLUTION };
struct step { void *plan; enum kind kind; union value values[ARGUMENTS]; };
struct tape {
    void *name;
    int steps, blocks, spoilt, counted;
    unsigned char numbers[ARGUMENTS];  // counted: which of the call's arguments are the launch's numbers
    struct step step[STEPS];
    struct array *block[BLOCKS];
    long bytes[BLOCKS];
};
static __thread struct tape *tape;

static void noted(void *plan, enum kind kind, const union value *values, long count) {
    if (tape->steps == STEPS) tape->spoilt = 1;
    if (tape->spoilt) return;
    struct step *s = &tape->step[tape->steps++];
    s->plan = plan, s->kind = kind;
    __builtin_memcpy(s->values, values, count * sizeof *values);
}

static int done(int code, int more) {  // 0 where an error is set
    if (code) py.call(failed, py.from_long(more + code), (void *)0);
    return !code;
}

static int activated(void *context) {
    int code = 0;
    if (active != context && !(code = driver_activate(context))) active = context;
    return code;
}

static int launched(struct plan *p, union value *values) {
    long addresses = 0;
    void *parameters[ARGUMENTS + 1];
    if (tape) noted(p, PLAN, values, p->count);
    for (long k = 0; k < p->count; k++) {
        parameters[k + 1] = &values[k];
        if (p->kinds[k] == 'p') addresses |= values[k].l;
    }
    if (p->otherwise && addresses % 16) p = p->otherwise;
    parameters[0] = p->fixed;
    int code = activated(p->context);
    if (!code && p->blocks)
        code = driver_launch(p->function, p->blocks, 1, 1, p->threads, 1, 1, p->shared, stream, parameters, 0);
    return done(code, 0);
}

static union value valued(char kind, void *argument) {
    union value v = {0};
    switch (kind) {
    case 'p': v.p = ((struct object *)argument)->data; break;
    case 'd': v.d = floating(argument); break;
    case 'f': v.f = (float)floating(argument); break;
    case 'l': v.l = whole(argument); break;
    default: v.i = (int)whole(argument);
    }
    return v;
}

static void *nothing(void) {
    py.keep(py.none);
    return py.none;
}

void *fl_cuda_run(void *self, void *const *arguments, long given) {
    struct plan *p = py.as_address(self);
    if (given != p->count) {
        py.call(failed, py.none, (void *)0);
        return 0;
    }
    union value values[ARGUMENTS];
    int numeric = 0;
    for (long k = 0; k < given; k++) values[k] = valued(p->kinds[k], arguments[k]), numeric |= p->kinds[k] != 'p';
    if (numeric && py.error()) return 0;
    return launched(p, values) ? nothing() : 0;
}

// A matrix product of cuBLASLt's, settled but for the arrays.
struct product {
    int (*multiply)(void *, void *, const void *, const void *, void *, const void *, void *, const void *, const void *, void *,
                    void *, void *, const void *, void *, uintptr_t, void *);
    int (*set)(void *, int, const void *, uintptr_t);
    void *context, *handle, *description, *first, *second, *result;
    uintptr_t size;            // of the workspace, behind the other arguments if there is any
    double alpha[2], beta[2];  // in the type of the sums
    long bias;                 // whether there is one, behind the arrays
    char algorithm[64];
};
enum { BIAS_POINTER = 8 };

static long factors(const struct product *p) { return 3 + p->bias + !!p->size; }

static int multiplied(struct product *p, const union value *a) {  // first, second, result, bias, workspace
    if (tape) noted(p, PRODUCT, a, factors(p));
    int code = activated(p->context);
    if (code) return done(code, 0);
    if (p->bias) code = p->set(p->description, BIAS_POINTER, &a[3].p, sizeof(void *));
    if (!code)
        code = p->multiply(p->handle, p->description, p->alpha, a[0].p, p->first, a[1].p, p->second, p->beta, a[2].p, p->result,
                           a[2].p, p->result, p->algorithm, p->size ? a[3 + p->bias].p : 0, p->size, stream);
    return done(code, 10000);
}

void *fl_cuda_product(void *self, void *const *arguments, long given) {
    struct product *p = py.as_address(self);
    union value values[5];
    for (long k = 0; k < given; k++) values[k] = valued('p', arguments[k]);
    return multiplied(p, values) ? nothing() : 0;
}

// A convolution of cuDNN's, or one of its gradients, settled but for the arrays.
struct convolution {
    int (*convolve)(void *, const void *, void *, const void *, void *, const void *, void *, int, void *, uintptr_t, const void *,
                    void *, void *);
    void *context, *handle, *first, *second, *description, *result, *one, *zero;
    long algorithm;
    uintptr_t size;  // of the workspace, behind the other arguments if there is any
};

static int convolved(struct convolution *c, const union value *a) {  // first, second, result, workspace
    if (tape) noted(c, CONVOLUTION, a, 3 + !!c->size);
    int code = activated(c->context);
    if (code) return done(code, 0);
    return done(c->convolve(c->handle, c->one, c->first, a[0].p, c->second, a[1].p, c->description, (int)c->algorithm,
                            c->size ? a[3].p : 0, c->size, c->zero, c->result, a[2].p), 20000);
}

void *fl_cuda_convolve(void *self, void *const *arguments, long given) {
    struct convolution *c = py.as_address(self);
    union value values[4];
    for (long k = 0; k < given; k++) values[k] = valued('p', arguments[k]);
    return convolved(c, values) ? nothing() : 0;
}

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

// ---------------------------------------------------------------------------------------------------------------- new arrays
// Arrays over pieces of memory that lie free, as backends/cuda/memory.py would make them: CudaArray -> Block -> Pages. The lists
// of free pieces are Python's own, so whoever else takes from them or puts into them sees the same.
struct arrays {
    void *(*make)(void *type, void *dtype, int dims, const long *shape, const long *strides, void *data, int flags, void *like);
    int (*set_base)(void *array, void *base);
    void *(*call_many)(void *function, void *const *arguments, uintptr_t count, void *names);
    void *array_type, *block_type, *pages_type, *float_type, *long_type, *bool_type, *str_type, *tuple_type, *list_type;
    void *dtype_meta;                                   // the type of dtypes' types
    void *byte, *used, *home;                           // a dtype, names of attributes
    void *storage, *freed, *first_time, *first_time_into, *compute, *into; // functions of Python's
    void *yes;
};
static struct arrays np;
enum { WRITABLE = 0x501, LINE = 512, SMALL = 1 << 20, SLAB = 2 << 20, NOTED = 8 << 20, HOMES = 64 };

static struct home { void *lists; long *counts, device; } homes[HOMES];  // counts: bytes in use, the most that ever were
static int known, devices;
static long generation;
static __thread struct home *home;  // where this thread takes pieces from; none: Python decides
static __thread long home_generation;

void fl_cuda_stream(void *chosen) { stream = chosen, home = 0; }

void fl_cuda_arrays(const struct arrays *given, void *host) { np = *given, host_type = host; }
void fl_cuda_devices(int count) { devices = count; }
void fl_cuda_homeless(void) { generation++; }  // whatever threads have chosen, Python decides about the next block

static struct home *found_home(void *lists) {
    for (int i = 0; i < known; i++)
        if (homes[i].lists == lists) return &homes[i];
    return 0;
}

void fl_cuda_home(void *lists, long *counts, long device) {
    struct home *found = found_home(lists);
    if (!found && known < HOMES) {
        py.keep(lists);
        found = &homes[known++], *found = (struct home){lists, counts, device};
    }
    home = found, home_generation = generation;
}

static long rounded(long bytes) {  // memory.py's size classes
    int bits = 64 - __builtin_clzl(bytes);
    long step = bytes < SMALL ? LINE : SLAB, eighth = bits > 4 ? 1L << (bits - 4) : 1;
    if (eighth > step) step = eighth;
    long size = (bytes + step - 1) / step * step;
    return size < LINE ? LINE : size;
}

static struct list *list_of(void *lists, long size) {
    void *key = py.from_long(size);
    struct list *found = key ? py.in_dict(lists, key) : 0;
    if (key) py.drop(key);
    return found;
}

static void *piece(long bytes) {
    if (home && home_generation == generation && bytes && bytes < NOTED) {  // of larger ones Python notes the line
        long size = rounded(bytes);
        struct home *from = home;
        struct list *free = list_of(from->lists, size);
        if (free && free->length) {
            struct array *pages = free->items[--free->length];
            py.keep(np.byte);
            void *made = np.make(np.block_type, np.byte, 1, &size, 0, pages->data, WRITABLE, 0), *used = py.from_long(bytes);
            if (!made || !used || np.set_base(made, pages) || py.set(made, np.used, used) || py.set(made, np.home, from->lists))
                return 0;
            py.drop(used);
            if ((from->counts[0] += size) > from->counts[1]) from->counts[1] = from->counts[0];
            return made;
        }
    }
    void *number = py.from_long(bytes), *made = number ? py.call(np.storage, number, (void *)0) : 0;
    if (number) py.drop(number);
    return made;
}

static void *block(long bytes) {
    void *made = piece(bytes);
    if (made && tape) {
        if (tape->blocks == BLOCKS || !bytes) return tape->spoilt = 1, made;
        py.keep(made);
        tape->block[tape->blocks] = made, tape->bytes[tape->blocks++] = bytes;
    }
    return made;
}

void *fl_cuda_storage(void *self, void *const *arguments, long given) { return block(py.as_long(arguments[0])); }

// What becomes of a block when the last array over it is gone: its `__del__`.
void *fl_cuda_freed(struct array *self, void *ignored) {
    struct array *pages = self->base;
    if (!pages || pages->type != np.pages_type) return nothing();
    void *lists = py.get(self, np.home);
    if (!lists) return py.forget_error(), nothing();  // another library's memory
    struct home *to = found_home(lists);
    py.drop(lists);
    struct list *free = to ? list_of(lists, self->shape[0]) : 0;
    if (!free) return py.call(np.freed, self, (void *)0);
    if (py.append(free, pages)) return 0;
    to->counts[0] -= self->shape[0];
    return nothing();
}

// strides in bytes, none: contiguous. bytes: of the memory that it reaches over.
static void *fresh(void *dtype, int dims, const long *shape, const long *strides, long bytes) {
    struct array *under = block(bytes);
    if (!under) return 0;
    py.keep(dtype);
    void *made = np.make(np.array_type, dtype, dims, shape, strides, under->data, WRITABLE, 0);
    if (!made) return py.drop(under), (void *)0;
    return np.set_base(made, under) ? 0 : made;
}

struct tuple { intptr_t references; void *type; long length; void *items[]; };
enum { DIMS = 12 };

// (shape, bytes of an element, dtype) -> a new contiguous array; None: Python is to do it.
void *fl_cuda_empty(void *self, void *const *arguments, long given) {
    const struct tuple *shape = arguments[0];
    long sizes[DIMS], bytes = py.as_long(arguments[1]);
    if (given != 3 || shape->length > DIMS || bytes <= 0) return nothing();
    for (long i = 0; i < shape->length; i++) {
        struct object *n = shape->items[i];
        if (n->type != np.long_type) return nothing();
        sizes[i] = py.as_long(n);
        if (sizes[i] < 0 || __builtin_mul_overflow(bytes, sizes[i], &bytes)) return nothing();
    }
    return fresh(arguments[2], shape->length, sizes, 0, bytes);
}

#include "cuda_recipes.h"
