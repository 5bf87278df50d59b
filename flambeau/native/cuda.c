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

// Returns 0 where an error is set.
static int run(const struct plan *p, void *const *arguments, long given) {
    long addresses = 0;
    union { double d; float f; long l; int i; } numbers[16];
    void *parameters[17];
    int numeric = 0;
    for (long k = 0; k < given; k++) {
        struct object *a = arguments[k];
        parameters[k + 1] = &numbers[k];
        switch (p->kinds[k]) {
        case 'p': parameters[k + 1] = &a->data, addresses |= (long)a->data; break;
        case 'd': numbers[k].d = floating(a), numeric = 1; break;
        case 'f': numbers[k].f = (float)floating(a), numeric = 1; break;
        case 'l': numbers[k].l = whole(a), numeric = 1; break;
        default: numbers[k].i = (int)whole(a), numeric = 1;
        }
    }
    if (numeric && py.error())
        return 0;
    if (p->otherwise && addresses % 16)
        p = p->otherwise;
    parameters[0] = (void *)p->fixed;
    int code = 0;
    if (active != p->context && !(code = driver_activate(p->context)))
        active = p->context;
    if (!code && p->blocks)
        code = driver_launch(p->function, p->blocks, 1, 1, p->threads, 1, 1, p->shared, stream, parameters, 0);
    if (code)
        py.call(failed, py.from_long(code), (void *)0);
    return !code;
}

static void *nothing(void) {
    py.keep(py.none);
    return py.none;
}

void *fl_cuda_run(void *self, void *const *arguments, long given) {
    const struct plan *p = py.as_address(self);
    if (given != p->count) {
        py.call(failed, py.none, (void *)0);
        return 0;
    }
    return run(p, arguments, given) ? nothing() : 0;
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
        py.call(failed, py.from_long(10000 + code), (void *)0);
        return 0;
    }
    return nothing();
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
    void *array_type, *block_type, *pages_type, *float_type, *long_type, *bool_type, *str_type;  // types
    void *byte, *used, *home;                  // a dtype, names of attributes
    void *storage, *freed, *slow, *slow_into;  // functions of Python's
    void *yes;
};
static struct arrays np;
enum { WRITABLE = 0x501, LINE = 512, SMALL = 1 << 20, SLAB = 2 << 20, HOMES = 64 };

static struct home { void *lists; long *counts; } homes[HOMES];  // counts: bytes in use, the most that ever were
static int known;
static long generation;
static __thread struct home *home;  // where this thread takes pieces from; none: Python decides
static __thread long home_generation;

void fl_cuda_stream(void *chosen) { stream = chosen, home = 0; }

void fl_cuda_arrays(const struct arrays *given, void *host) { np = *given, host_type = host; }
void fl_cuda_homeless(void) { generation++; }  // whatever threads have chosen, Python decides about the next block

static struct home *found_home(void *lists) {
    for (int i = 0; i < known; i++)
        if (homes[i].lists == lists) return &homes[i];
    return 0;
}

void fl_cuda_home(void *lists, long *counts) {
    struct home *found = found_home(lists);
    if (!found && known < HOMES) {
        py.keep(lists);
        found = &homes[known++], *found = (struct home){lists, counts};
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

static void *block(long bytes) {
    if (home && home_generation == generation && bytes) {
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

// ------------------------------------------------------------------------------------------------------------------ kernels
// Launches by name and arguments, where a call with such arguments has been seen: what was settled then is found by their
// geometry. `fl_cuda_learn` is told; a call that nobody knows goes to Python (backends/cuda/quick.py).
enum { SLOTS = 1 << 12, MOST = 15, WORDS = 2 + MOST * (3 + 2 * DIMS) };
struct entry {
    struct entry *next;
    long length;              // of the key
    const struct plan *plan;
    void *dtype;
    int dims, count;          // count: of the plan's arguments after the result
    const long *shape, *strides;
    long bytes;
    unsigned char order[16];  // which arguments those are
    long words[];             // the key; then shape and strides
};
static struct entry *entries[SLOTS];

// The words that tell an argument from others, behind `at`; 0 where it is of no kind that is known here.
// values: whether numbers are told apart, too.
static long *described(long *at, const void *argument, int values) {
    const struct array *a = argument;
    *at++ = (long)a->type;
    if (a->type == np.array_type) {
        if (a->dims > DIMS) return 0;
        *at++ = (long)a->dtype, *at++ = a->dims;
        for (int d = 0; d < a->dims; d++) *at++ = a->shape[d], *at++ = a->strides[d];
    } else if (a->type == host_type) {
        if (a->dims || !is_number(a)) return 0;
        *at++ = (long)a->dtype;
        if (values) *(double *)at++ = floating(a), *at++ = whole(a);
    } else if (a->type == np.float_type || a->type == np.long_type) {
        if (values) *(double *)at++ = floating(a), *at++ = a->type == np.long_type ? whole(a) : 0;
    } else if (argument == py.none || a->type == np.bool_type || a->type == np.str_type) {
        *at++ = (long)argument;
    } else {
        return 0;
    }
    return at;
}

// The key of a call: arguments are a name and what a kernel takes, or before them the array that it writes to.
static long keyed(long *words, void *const *arguments, long given, int in_place, int values) {
    long *at = words;
    *at++ = in_place | values << 1, *at++ = (long)arguments[in_place];
    for (long k = 0; at && k < given; k++)
        if (k != in_place) at = described(at, arguments[k], values);
    if (at && !py.error()) return at - words;
    py.forget_error();  // a number that is no double
    return 0;
}

static struct entry **slot(const long *words, long length) {
    uint64_t hash = length;
    for (long i = 0; i < length; i++) hash = (hash ^ (uint64_t)words[i]) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29;
    return &entries[hash % SLOTS];
}

static struct entry *looked_up(void *const *arguments, long given, int in_place) {
    long words[WORDS];
    if (given > MOST) return 0;
    for (int values = 0; values < 2; values++) {
        long length = keyed(words, arguments, given, in_place, values);
        if (!length) return 0;
        for (struct entry *e = *slot(words, length); e; e = e->next)
            if (e->length == length && !__builtin_memcmp(e->words, words, length * sizeof(long))) return e;
    }
    return 0;
}

// (whether in place, whether numbers are told apart, a plan's address, which arguments are the plan's after the result, an array
// like the result, the bytes that it reaches over, the call's own arguments...) Whoever calls keeps plans, names and dtypes.
void *fl_cuda_learn(void *self, void *const *given, long count) {
    const int in_place = py.as_long(given[0]), values = py.as_long(given[1]);
    const struct tuple *order = given[3];
    const struct array *like = given[4];
    long words[WORDS], length = count - 6 > MOST ? 0 : keyed(words, given + 6, count - 6, in_place, values);
    if (!length || like->type != np.array_type || like->dims > DIMS) return nothing();
    struct entry *e = __builtin_calloc(1, sizeof *e + (length + 2 * like->dims) * sizeof(long)), **place = slot(words, length);
    if (!e) return nothing();
    *e = (struct entry){*place, length, py.as_address(given[2]), like->dtype, like->dims, order->length};
    long *shape = e->words + length, *strides = shape + like->dims;
    __builtin_memcpy(e->words, words, length * sizeof(long));
    __builtin_memcpy(shape, like->shape, like->dims * sizeof(long));
    __builtin_memcpy(strides, like->strides, like->dims * sizeof(long));
    e->shape = shape, e->strides = like->flags & 1 ? 0 : strides, e->bytes = py.as_long(given[5]);
    for (long k = 0; k < order->length; k++) e->order[k] = py.as_long(order->items[k]);
    *place = e;
    return nothing();
}

static int launched(const struct entry *e, void *result, void *const *arguments) {
    void *chosen[16] = {result};
    for (int k = 0; k < e->count; k++) chosen[k + 1] = arguments[e->order[k]];
    return run(e->plan, chosen, e->count + 1);
}

// (name, arguments...) -> what the kernel makes of them.
void *fl_cuda_call(void *self, void *const *arguments, long given) {
    const struct entry *e = looked_up(arguments, given, 0);
    if (!e) return np.call_many(np.slow, arguments, given, 0);
    void *made = fresh(e->dtype, e->dims, e->shape, e->strides, e->bytes);
    if (made && !launched(e, made, arguments + 1)) return py.drop(made), (void *)0;
    return made;
}

static void range(const struct array *a, const char **low, const char **high) {
    *low = *high = a->data;
    for (int d = 0; d < a->dims; d++) {
        const long reach = (a->shape[d] - 1) * a->strides[d];
        if (reach > 0) *high += reach; else *low += reach;
    }
    *high += 16;  // more than an element has
}

// Whether two arrays of one geometry, or without a common byte: then a kernel may write to one while it reads the other.
static int apart(const struct array *a, const struct array *b) {
    const char *low, *high, *other_low, *other_high;
    int alike = a->data == b->data && a->dims == b->dims;
    for (int d = 0; alike && d < a->dims; d++) alike = a->shape[d] == b->shape[d] && a->strides[d] == b->strides[d];
    if (alike) return 1;
    range(a, &low, &high), range(b, &other_low, &other_high);
    return high <= other_low || other_high <= low;
}

// (an array, name, arguments...): what the kernel makes of them, in the array. Returns whether that could be done.
void *fl_cuda_into(void *self, void *const *arguments, long given) {
    const struct entry *e = looked_up(arguments, given, 1);
    for (long k = 2; e && k < given; k++)
        if (((struct object *)arguments[k])->type == np.array_type && !apart(arguments[0], arguments[k])) e = 0;
    if (!e) return np.call_many(np.slow_into, arguments, given, 0);
    if (!launched(e, arguments[0], arguments + 2)) return 0;
    py.keep(np.yes);
    return np.yes;
}
