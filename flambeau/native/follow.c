// Takes kernel calls that are the ones that were recorded, and changes the types of arrays whose elements are to come or have
// come. compiler/matching.py writes the tables below and makes builtin functions of those that begin with `fl_`. The caller holds
// the interpreter lock.
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
    void *(*list_new)(long);
    long (*tuple_size)(void *);
    void *(*tuple_get)(void *, long);
    int (*list_append)(void *, void *);
    void *(*tuple_new)(long);
    int (*tuple_set)(void *, long, void *);
    void (*keep)(void *);
    void (*forget)(void *);
    void *(*call)(void *, void *const *, unsigned long, void *);
    void *(*weak)(void *, void *);
    void *finalized;        // Python's function for promises that are made where nothing is followed
    void *none, *nothing;   // None and ()
    void *array_type, *promise_type, *float_type, *int_type, *bool_type, *tuple_type, *size_type;
    void *owner_types[4];   // of memory that nobody but flambeau knows
    unsigned char *marks;   // by address of an owner: whether somebody else may see its memory after all
    long header;            // bytes before an object's own fields
};
static struct python py;

enum { ARRAY, EMPTY, LITERAL, NUMBER, PLAIN };
enum { MISMATCH = -1, ASK = -2 };  // ASK: Python has to look at it

struct leaf {
    long kind, number, offset, dimensions;
    const long *extent;     // shape, then strides in bytes
    void *object;           // the dtype; of what is no array: the object that it must be
};

struct step {
    long leaves;
    const struct leaf *leaf;
    struct step *first, *sibling;  // of those that were seen to come after it; of those that were seen to come in its place
    void *kernel, *self;    // the kernel's name; the Step
    long simple;            // whether a call of it can be compared here; else Python has to look
    long count;             // storages, up to and with those of this step
    long inputs;            // those that it is the first to use,
    const long *input;      // by number of the leaf
    long writes;            // arrays from before that it changes,
    const long *write;      // by number of the leaf
    const struct results *fixed;
};

struct result {
    void *object, *pair;    // what is returned, and (Made, array); both 0 where it has memory of its own, for
    void *made;             // this storage
    long number, address;   // of the storage
};

struct results {            // what a step returns, as long as the same results are kept
    long stamp;             // of the reserved memory
    long count, several;    // how many; whether it returns a tuple
    const struct result *result;
    void *roots, *done;     // where no result is kept: the list of pairs; the entry of `done` if there are no inputs either
};
#define MOST 8              // results that are dealt with here

struct follower {           // what C knows of a call that is followed
    void *done, *views;     // lists: kernel calls so far (Step, inputs, numbers, roots); weak references to promises
    void *changed;          // list of arrays from before that will be written, promises until then
    long known;             // how many entries `done` had when `at` was the last; else Python has to look
    struct step *at;
    long *base, room;       // where each storage is
    uintptr_t low, high;    // the reserved memory
    const uintptr_t *given; // start and end of each piece of memory that was handed out
    long n_given;
    long *written;          // start and end of each piece of memory from before that will be changed
    long n_written, room_written;
    long stamp;
    long version;           // goes up with each kernel call
    long inside;            // calls that are being looked at: more than one if a finalizer has come between
    void *self;             // the Follower, and methods of its type:
    void *make, *fallback;      // for a call that fits a step; for any other;
    void *memory;           // memory for a storage
};
static __thread struct follower *current;

struct array {              // the part of NumPy's array object that its interface fixes
    char *data;
    int dimensions;
    long *shape, *strides;
    void *base, *dtype;
};

#define TYPE(object) (*(void **)((char *)(object) + py.header - sizeof(void *)))
#define FIELDS(object) ((struct array *)((char *)(object) + py.header))

// Takes over Python's functions, if the tables have the sizes that matching.py gives them.
long fl_follow_attach(const void *functions, const long *sizes) {
    const long mine[] = {sizeof py, sizeof(struct leaf), sizeof(struct step), sizeof(struct result), sizeof(struct results),
                         sizeof(struct follower), MOST};
    if (memcmp(mine, sizes, sizeof mine)) return 0;
    memcpy(&py, functions, sizeof py);
    return sizeof(long);
}

static int is_array(const void *object) { return TYPE(object) == py.array_type || TYPE(object) == py.promise_type; }

static int same(void *a, void *b) {  // whether two plain values are, bit by bit
    if (a == b) return 1;
    void *type = TYPE(a);
    if (type != TYPE(b) || type == py.bool_type) return 0;
    if (type == py.float_type)  // another one may be read at each run
        return memcmp((char *)a + py.header, (char *)b + py.header, sizeof(double)) ? ASK : 1;
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

// How many storages of the step are new, whose places are then in base; or MISMATCH, or ASK.
static long fits(const struct follower *f, const struct step *step, void *flat, void *(*get)(void *, long), long count) {
    long *base = f->base, new = 0;
    for (long i = 0; i < step->leaves; i++) {
        const struct leaf *leaf = step->leaf + i;
        void *a = get(flat, i);
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
            if (f->low <= at && at < f->high) return MISMATCH;
            for (long k = 0; k < f->n_given; k++)
                if (f->given[2 * k] <= at && at < f->given[2 * k + 1]) return MISMATCH;
            if (TYPE(a) != py.array_type || !ours(a)) return ASK;
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

// (follower, step, leaves as a list, storages before it)
void *fl_fits(void *self, void *const *args, long given) {
    const struct step *step = py.as_address(args[1]);
    return py.from_long(py.list_size(args[2]) != step->leaves ? MISMATCH :
                        fits(py.as_address(args[0]), step, args[2], py.list_get, py.as_long(args[3])));
}

static void put(void *tuple, long i, void *a) {
    py.keep(a);
    py.tuple_set(tuple, i, a);
}

// From here on a call counts. 0: not, since something else has come between.
static int counts(struct follower *f, struct step *s, void *entry, long version) {
    if (f->version != version || py.list_append(f->done, entry)) return 0;
    f->version++;
    f->at = s;
    f->known = py.list_size(f->done);
    return 1;
}

// Arrays that a step will write become promises.
static void change(struct follower *f, const struct step *s, void *flat, void *(*get)(void *, long)) {
    for (long i = 0; i < s->writes; i++) {
        void *a = get(flat, s->write[i]);
        const struct array *array = FIELDS(a);
        long end = (long)array->data, size = 1, *to = f->written + 2 * f->n_written++;
        for (int d = 0; d < array->dimensions; d++) {
            end += (array->shape[d] - 1) * array->strides[d];
            size *= array->shape[d];
        }
        to[0] = (long)array->data;
        to[1] = size ? end + 1 : (long)array->data;  // some byte of the last element will do
        py.list_append(f->changed, a);
        for (; a && TYPE(a) == py.array_type; a = FIELDS(a)->base)  // and those that it is a view of
            TYPE(a) = py.promise_type;
    }
}

// (follower, step, list of leaves)
void *fl_change(void *self, void *const *args, long given) {
    change(py.as_address(args[0]), py.as_address(args[1]), args[2], TYPE(args[2]) == py.tuple_type ? py.tuple_get : py.list_get);
    return py.from_long(0);
}

struct parts { void *array[MOST], *pair[MOST], *inputs, *roots, *entry, *answer; };  // what is made for a call

static int all_made(struct follower *f, const struct step *s, struct parts *p) {
    const struct results *r = s->fixed;
    int fine = 1, kept = !r->roots;
    if (s->inputs) fine &= !!(p->inputs = py.tuple_new(s->inputs));
    if (kept) fine &= !!(p->roots = py.list_new(0));
    if (kept || s->inputs) fine &= !!(p->entry = py.tuple_new(4));
    if (r->several) fine &= !!(p->answer = py.tuple_new(r->count));
    for (long i = 0; i < r->count && r == s->fixed; i++)
        if (r->result[i].made) {
            void *given[] = {f->self, r->result[i].made};
            p->pair[i] = py.tuple_new(2);
            p->array[i] = py.call(f->memory, given, 2, 0);
            fine &= p->array[i] && p->pair[i];
        }
    return fine && r == s->fixed;
}

static void fill(const struct step *s, struct parts *p, void *args) {
    const struct results *r = s->fixed;
    for (long i = 0; i < r->count; i++) {
        const struct result *one = r->result + i;
        if (one->made) put(p->pair[i], 0, one->made), put(p->pair[i], 1, p->array[i]);
        if (p->roots && (one->made || one->pair)) py.list_append(p->roots, one->made ? p->pair[i] : one->pair);
        void *object = one->made ? p->array[i] : one->object;
        if (r->several) put(p->answer, i, object);
        else py.keep(p->answer = object);
    }
    for (long i = 0; i < s->inputs; i++) put(p->inputs, i, py.tuple_get(args, s->input[i]));
    if (!p->entry) { py.keep(p->entry = r->done); return; }
    put(p->entry, 0, s->self);
    put(p->entry, 1, p->inputs ? p->inputs : py.nothing);
    put(p->entry, 2, py.nothing);
    put(p->entry, 3, p->roots ? p->roots : r->roots);
}

// A call that fits a step: what it returns; 0 where Python has to look after all.
static void *followed(struct follower *f, struct step *s, void *args) {
    long version = f->version;
    struct parts p = {{0}};
    // A finalizer, which may run whenever memory is asked for, may have changed everything.
    int fine = f->n_written + s->writes <= f->room_written && all_made(f, s, &p) && f->version == version &&
               s->fixed->stamp == f->stamp;
    if (fine) {
        fill(s, &p, args);
        fine = counts(f, s, p.entry, version);
    }
    for (long i = 0; fine && i < s->fixed->count; i++) {
        const struct result *one = s->fixed->result + i;
        if (one->made || one->pair) f->base[one->number] = one->made ? (long)FIELDS(p.array[i])->data : one->address;
    }
    if (fine) change(f, s, args, py.tuple_get);
    for (int i = 0; i < MOST; i++) py.forget(p.array[i]), py.forget(p.pair[i]);
    py.forget(p.inputs), py.forget(p.roots), py.forget(p.entry);
    if (fine) return p.answer;
    py.forget(p.answer);
    py.clear_error();
    return 0;
}

// (follower, step, entry of `done`, version, numbers of storages that the step makes, their memory): whether the call counts.
void *fl_count(void *self, void *const *args, long given) {
    struct follower *f = py.as_address(args[0]);
    int fine = counts(f, py.as_address(args[1]), args[2], py.as_long(args[3]));
    for (long i = 0, n = fine ? py.list_size(args[4]) : 0; i < n; i++) {
        void *memory = py.list_get(args[5], i);
        f->base[py.as_long(py.list_get(args[4], i))] = is_array(memory) ? (long)FIELDS(memory)->data : py.as_long(memory);
    }
    return py.from_long(fine);
}

static void *python(struct follower *f, struct step *fitting, void *const *args, long given) {
    void *all[7] = {f->self}, **next = all + 1, *version = py.from_long(f->version);
    if (fitting) *next++ = version, *next++ = fitting->self;
    memcpy(next, args, given * sizeof *args);
    void *made = py.call(fitting ? f->make : f->fallback, all, next - all + given, 0);
    py.forget(version);
    return made;
}

static void *called(struct follower *f, void *const *args, long given) {
    if (given < 2 || f->known != py.list_size(f->done) || TYPE(args[1]) != py.tuple_type) return python(f, 0, args, given);
    long count = f->at->count, leaves = py.tuple_size(args[1]);
    for (struct step *s = f->at->first; s; s = s->sibling) {
        if (s->kernel != args[0]) continue;
        if (!s->simple || s->count > f->room) break;
        long found = s->leaves == leaves ? fits(f, s, args[1], py.tuple_get, count) : MISMATCH;
        if (found == MISMATCH) continue;
        if (found == ASK) break;
        if (!s->fixed || s->fixed->stamp != f->stamp) return python(f, s, args, given);
        void *answer = followed(f, s, args[1]);
        if (answer) return answer;
        break;
    }
    return python(f, 0, args, given);
}

// A kernel call (name, arguments as a tuple, ...), where `self` is the address of the follower.
void *fl_call(void *self, void *const *args, long given) {
    struct follower *f = py.as_address(self);
    given = given < 4 ? given : 4;
    void *made = f->inside++ ? python(f, 0, args, given) : called(f, args, given);
    f->inside--;
    return made;
}

// The thread's follower, or 0.
void *fl_enter(void *self, void *const *args, long given) {
    current = py.as_address(args[0]);
    return py.from_long(0);
}

static void *noted(struct follower *f, void *promise) {  // it becomes a plain array with all others
    void *reference = py.weak(promise, 0);
    if (!reference || py.list_append(f->views, reference)) return 0;
    py.forget(reference);
    py.keep(py.none);
    return py.none;
}

// (promise, what it is a view of): called by NumPy for each new one.
void *fl_finalize(void *self, void *const *args, long given) {
    return current ? noted(current, args[0]) : py.call(py.finalized, args, given, 0);
}

// (follower, array): a new window onto promised memory becomes a promise.
void *fl_window(void *self, void *const *args, long given) {
    TYPE(args[1]) = py.promise_type;
    return noted(py.as_address(args[0]), args[1]);
}

// (follower, array, its bytes): memory for a result that is to be kept becomes a promise.
void *fl_promise(void *self, void *const *args, long given) {
    struct follower *f = py.as_address(args[0]);
    uintptr_t *piece = (uintptr_t *)f->given + 2 * f->n_given++;
    piece[0] = (uintptr_t)FIELDS(args[1])->data;
    piece[1] = piece[0] + py.as_long(args[2]);
    TYPE(args[1]) = py.promise_type;
    return noted(f, args[1]);
}

// (list of arrays, whether what they are views of became promises along with them): they become plain.
void *fl_keep(void *self, void *const *args, long given) {
    long n = py.list_size(args[0]), all = py.as_long(args[1]);
    for (long i = 0; i < n; i++) {
        void *a = py.list_get(args[0], i);
        do {
            if (TYPE(a) != py.promise_type)
                break;
            TYPE(a) = py.array_type;
            a = FIELDS(a)->base;
        } while (a && all);
    }
    return py.from_long(n);
}

// (list of kernel calls, references): the storages of those results to which more than so many refer.
void *fl_alive(void *self, void *const *args, long given) {
    long limit = py.as_long(args[1]);
    void *made = py.list_new(0);
    for (long i = 0; made && i < py.list_size(args[0]); i++) {
        void *roots = py.tuple_get(py.list_get(args[0], i), 3);
        for (long k = 0, n = TYPE(roots) == py.tuple_type ? 0 : py.list_size(roots); k < n; k++) {
            void *pair = py.list_get(roots, k);
            if (*(unsigned *)py.tuple_get(pair, 1) > limit) py.list_append(made, py.tuple_get(pair, 0));
        }
    }
    return made;
}

// (start and end of pieces of memory, how many, start, end): whether one of them has bytes in common with the last.
void *fl_overlaps(void *self, void *const *args, long given) {
    const long *piece = py.as_address(args[0]);
    long n = py.as_long(args[1]), start = py.as_long(args[2]), end = py.as_long(args[3]), found = 0;
    for (long i = 0; i < n; i++) found |= piece[2 * i] < end && piece[2 * i + 1] > start;
    return py.from_long(found);
}

// (to, columns, how many, base): to[column 0] = base[column 1] - column 2, row by row; whether something is another address now.
void *fl_place(void *self, void *const *args, long given) {
    long *to = py.as_address(args[0]), n = py.as_long(args[2]), changed = 0;
    const long *at = py.as_address(args[1]), *base = py.as_address(args[3]);
    for (long i = 0; i < n; i++) {
        long place = base[at[n + i]] - at[2 * n + i];
        changed |= to[at[i]] != place;
        to[at[i]] = place;
    }
    return py.from_long(changed);
}

// (contiguous array of 64-bit integers, low, high): whether all of them are at least low, and less than high.
void *fl_within(void *self, void *const *args, long given) {
    const struct array *array = FIELDS(args[0]);
    const long *value = (const long *)array->data;
    long n = 1, low = py.as_long(args[1]), high = py.as_long(args[2]), outside = 0;
    for (int d = 0; d < array->dimensions; d++) n *= array->shape[d];
    for (long i = 0; i < n; i++) outside |= (value[i] < low) | (value[i] >= high);
    return py.from_long(!outside);
}
