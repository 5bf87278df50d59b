// Compares a kernel call with one that was recorded, and changes the types of arrays whose elements are to come or have come.
// compiler/matching.py writes the tables below and makes builtin functions of `fl_fits`, `fl_change` and `fl_keep`. The caller
// holds the interpreter lock.
#include <stdint.h>
#include <string.h>

// Functions of Python's stable interface, looked up by ctypes: this file needs none of Python's headers.
struct python {
    long (*as_long)(void *);
    void *(*as_address)(void *);
    void *(*error)(void);
    void (*clear_error)(void);
    void *(*from_long)(long);
    long (*list_size)(void *);
    void *(*list_get)(void *, long);
    long (*tuple_size)(void *);
    void *(*tuple_get)(void *, long);
    void *array_type, *promise_type, *float_type, *int_type, *bool_type, *tuple_type, *size_type;
    void *owner_types[4];   // of memory that nobody but flambeau knows
    unsigned char *marks;   // by address of an owner: whether somebody else may see its memory after all
    long header;            // bytes before an object's own fields
};
static struct python py;

long fl_follow_attach(const void *functions, long nbytes) {
    if (nbytes != sizeof py)
        return 0;
    memcpy(&py, functions, sizeof py);
    return sizeof(long);
}

enum { ARRAY, EMPTY, LITERAL, NUMBER, PLAIN };
enum { MISMATCH = -1, ASK = -2 };  // ASK: Python has to look at it

struct leaf {
    long kind, number, offset, dimensions;
    const long *extent;     // shape, then strides in bytes
    void *object;           // the dtype; of what is no array: the object that it must be
};

struct step { long leaves; const struct leaf *leaf; };

struct array {              // the part of NumPy's array object that its interface fixes
    char *data;
    int dimensions;
    long *shape, *strides;
    void *base, *dtype;
};

#define TYPE(object) (*(void **)((char *)(object) + py.header - sizeof(void *)))
#define FIELDS(object) ((struct array *)((char *)(object) + py.header))

static int is_array(const void *object) { return TYPE(object) == py.array_type || TYPE(object) == py.promise_type; }

static int same(void *a, void *b) {  // whether two plain values are, bit by bit
    if (a == b) return 1;
    void *type = TYPE(a);
    if (type != TYPE(b) || type == py.bool_type) return 0;
    if (type == py.float_type)
        return !memcmp((char *)a + py.header, (char *)b + py.header, sizeof(double));
    if (type == py.int_type) {
        long x = py.as_long(a), y = py.as_long(b);
        if (py.error()) { py.clear_error(); return ASK; }
        return x == y;
    }
    if (type == py.tuple_type || type == py.size_type) {
        long n = py.tuple_size(a);
        if (n != py.tuple_size(b)) return 0;
        for (long i = 0; i < n; i++) {
            int found = same(py.tuple_get(a, i), py.tuple_get(b, i));
            if (found != 1) return found;
        }
        return 1;
    }
    return ASK;
}

static int alike(const struct leaf *leaf, const struct array *a) {
    size_t n = leaf->dimensions * sizeof(long);
    return a->dimensions == leaf->dimensions && !memcmp(a->shape, leaf->extent, n) &&
           !memcmp(a->strides, leaf->extent + leaf->dimensions, n);
}

static int ours(void *object) {  // whether nobody else can change an array's memory
    void *base = FIELDS(object)->base;
    while (base && is_array(base)) {
        object = base;
        base = FIELDS(object)->base;
    }
    if (base) {
        int known = 0;
        for (int i = 0; i < 4; i++) known |= TYPE(base) == py.owner_types[i];
        if (!known) return 0;
        object = base;
    }
    return !py.marks[(uintptr_t)object >> 5 & 0xffff];
}

// (step, leaves as a list, base, count, start and end of the reserved memory, pieces of memory that were handed out, how many):
// how many storages of the step are new, whose places are then in base; or MISMATCH, or ASK.
static long fits(void *const *args) {
    const struct step *step = py.as_address(args[0]);
    void *flat = args[1];
    long *base = py.as_address(args[2]), count = py.as_long(args[3]), new = 0;
    uintptr_t low = (uintptr_t)py.as_address(args[4]), high = (uintptr_t)py.as_address(args[5]);
    const uintptr_t *given = py.as_address(args[6]);
    long n_given = py.as_long(args[7]);
    if (py.list_size(flat) != step->leaves) return MISMATCH;
    for (long i = 0; i < step->leaves; i++) {
        const struct leaf *leaf = step->leaf + i;
        void *a = py.list_get(flat, i);
        if (leaf->kind == ARRAY || leaf->kind == EMPTY) {
            if (!is_array(a)) return MISMATCH;
            const struct array *array = FIELDS(a);
            if (!alike(leaf, array)) return MISMATCH;
            if (array->dtype != leaf->object) return ASK;
            if (leaf->kind == EMPTY) { base[count + new++] = 0; continue; }
            uintptr_t at = (uintptr_t)array->data;
            if (leaf->number < count + new) {
                if ((uintptr_t)(base[leaf->number] + leaf->offset) != at) return MISMATCH;
                continue;
            }
            if (TYPE(a) != py.array_type || (low <= at && at < high)) return MISMATCH;
            for (long k = 0; k < n_given; k++)
                if (given[2 * k] <= at && at < given[2 * k + 1]) return MISMATCH;
            if (!ours(a)) return ASK;
            base[count + new++] = (long)at - leaf->offset;
        } else if (leaf->kind == LITERAL) {
            if (a != leaf->object) return ASK;
            base[count + new++] = (long)FIELDS(a)->data;
        } else if (leaf->kind == NUMBER) {
            if (TYPE(a) != py.float_type && TYPE(a) != py.int_type) return MISMATCH;
        } else {
            int found = same(a, leaf->object);
            if (found != 1) return found ? found : MISMATCH;
        }
    }
    return new;
}

void *fl_fits(void *self, void *const *args, long given) { return py.from_long(given == 8 ? fits(args) : ASK); }

// (list of arrays, numbers of those that will be written, how many, where to note their memory): they become promises.
void *fl_change(void *self, void *const *args, long given) {
    const long *which = py.as_address(args[1]);
    long n = py.as_long(args[2]), *to = py.as_address(args[3]);
    for (long i = 0; i < n; i++) {
        void *a = py.list_get(args[0], which[i]);
        const struct array *array = FIELDS(a);
        long end = (long)array->data, size = 1;
        for (int d = 0; d < array->dimensions; d++) {
            end += (array->shape[d] - 1) * array->strides[d];
            size *= array->shape[d];
        }
        to[2 * i] = (long)array->data;
        to[2 * i + 1] = size ? end + 1 : (long)array->data;  // some byte of the last element will do
        if (TYPE(a) == py.array_type)
            TYPE(a) = py.promise_type;
    }
    return py.from_long(n);
}

void *fl_keep(void *self, void *const *args, long given) {  // (list of arrays): they become plain
    long n = py.list_size(args[0]);
    for (long i = 0; i < n; i++) {
        void *a = py.list_get(args[0], i);
        if (TYPE(a) == py.promise_type)
            TYPE(a) = py.array_type;
    }
    return py.from_long(n);
}
