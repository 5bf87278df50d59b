// Repeats a call of a compiled function: if everything the program depends on is as it was at the last call, fills in the
// addresses, runs the program, and leaves behind what the call leaves behind. compiler/replay.py writes the tables below;
// they hold addresses of Python objects that it keeps alive. The caller holds the interpreter lock.
#include <stdint.h>
#include <string.h>

// Functions of Python's stable interface, looked up by ctypes: this file needs none of Python's headers.
struct python {
    void *(*dict_get)(void *, void *);
    long (*dict_size)(void *);
    int (*dict_next)(void *, long *, void **, void **);
    long (*list_size)(void *);
    void *(*list_get)(void *, long);
    long (*tuple_size)(void *);
    void *(*tuple_get)(void *, long);
    void *(*get_attribute)(void *, void *);
    int (*set_attribute)(void *, void *, void *);
    void (*forget)(void *);  // one reference less
    double (*as_double)(void *);
    long (*as_long)(void *);
    void *(*from_long)(long);
    void *(*error)(void);
    void (*clear_error)(void);
    void *(*release_lock)(void);
    void (*take_lock)(void *);
};
static struct python py;

void fl_replay_attach(const void *functions) { memcpy(&py, functions, sizeof py); }

// What must be as it was: one word in memory, an entry of a dict, all entries of a dict or list, an attribute, the version of a
// class. VERSION: that of a dict; if it is another one, the next `count` rules say what matters of that dict.
enum { WORD, ITEM, ENTRIES, LIST, ATTRIBUTE, TAG, VERSION };
struct rule {
    long kind;
    void *object, *name, *value;  // WORD: at the address `object`. A null value: there is no such entry
    void **names, **values;
    long count;
};

struct array {  // the part of NumPy's array object that its interface fixes
    char *data;
    int dimensions;
    long *shape, *strides;
    void *base, *type;
};

struct window {            // a tensor that each call brings: an argument, or the gradient of a leaf
    void *object;          // the leaf; of an argument: the very object that it must be, or null for any
    void *type;            // of the tensor (null: the argument is none, and the same object as before)
    void *node;            // the type of its node, or null for none
    void *dtype;
    long dimensions;
    long *extent;          // shape, then strides
    long first;            // the number of the first argument that is this one too
    long place;            // in the table of addresses, or -1
    long delta;            // from the first element to the start of the storage
    long nbytes;           // of the storage, if it must not overlap what the program writes; else 0
    long view;             // whether it is a view, of a tensor without history
    long last;             // of a gradient: the address at which it was found to overlap no other one
};

struct number {            // container[name], or container[name][index]; where Python has looked at it, of this type
    void *container, *name;
    long index;
    void *type;
};

struct undo {              // memory that is saved, in case that the program fails
    long place;
    void *saved;
    long nbytes;
};

struct gradient {          // that the program makes, in memory that is used again unless somebody else sees it
    void *leaf, *tensor, *array, *memory, *attributes;
    long present;          // whether the leaf has one when the call begins
    long version;          // how often the program changes it in place
};

struct replay {
    long (*program)(void **, double *);
    void **table;
    double *numbers;
    long header, array_slot, node_slot, counter_slot, value_slot, weak_slot, dict_slot;  // offsets in objects
    void *none, *no, *array_type, *name_grad, *name_base, *name_inference, *name_counter, *name_dict, *name_hooks, *leaf_type;
    void *numeric[3];                               // types of numbers
    void **private; long n_private;                 // names of flambeau's own among a tensor's attributes
    struct rule *rules; long n_rules;
    struct window *arguments; long n_arguments;
    struct window *found; long n_found;             // gradients that are added to
    struct number *reads; long n_reads;
    struct gradient *gradients; long n_gradients;
    long *fresh; long n_fresh;                      // places of the results' memory
    void **dropped; long n_dropped;                 // leaves that have no gradient afterwards
    void **counters; long n_counters;               // version counters that go up
    void **held; long n_held;                       // tensors that no other argument may become
    long *spans; long n_spans;                      // start and end of what the program writes elsewhere, by address
    struct undo *undo; long n_undo;
    long *steps; long n_steps;                      // by how much each of the counters goes up
};

// For the other side to compare with its own.
void fl_replay_sizes(long *sizes) {
    sizes[0] = sizeof(struct rule), sizes[1] = sizeof(struct window), sizes[2] = sizeof(struct number);
    sizes[3] = sizeof(struct gradient), sizes[4] = sizeof(struct undo), sizes[5] = sizeof(struct replay), sizes[6] = sizeof(void *);
}

#define AT(object, offset) (*(void **)((char *)(object) + (offset)))
#define TYPE(object) AT(object, r->header - 8)
#define ARRAY(object) ((struct array *)((char *)(object) + r->header))
#define REFERENCES(object) (*(uint32_t *)(object))

static int is(void *object, void *name, void *value) {
    void *found = py.get_attribute(object, name);
    if (!found) { py.clear_error(); return 0; }
    py.forget(found);
    return found == value;
}

static int holds(const struct rule *rule) {
    long at = 0, n = 0;
    void *key, *value;
    switch (rule->kind) {
    case WORD: return AT(rule->object, 0) == rule->value;
    case TAG: return *(uint32_t *)rule->object == (uint32_t)(uintptr_t)rule->value;
    case ITEM: return py.dict_get(rule->object, rule->name) == rule->value;
    case ATTRIBUTE: return is(rule->object, rule->name, rule->value);
    case LIST:
        if (py.list_size(rule->object) != rule->count) return 0;
        for (; n < rule->count; n++) if (py.list_get(rule->object, n) != rule->values[n]) return 0;
        return 1;
    default:
        if (py.dict_size(rule->object) != rule->count) return 0;
        for (; n < rule->count && py.dict_next(rule->object, &at, &key, &value); n++) {
            if (key != rule->names[n] || value != rule->values[n]) return 0;
        }
        return 1;
    }
}

// Whether a tensor is a view as it was, or none. All views have a counter.
static int viewed(const struct replay *r, const struct window *w, void *tensor) {
    if (AT(tensor, r->counter_slot) == r->none) return !w->view;
    void *base = py.get_attribute(tensor, r->name_base);
    if (!base) { py.clear_error(); return 0; }
    py.forget(base);  // the view keeps it
    return base == r->none ? !w->view : w->view && AT(base, r->node_slot) == r->none;
}

// Whether a tensor has no attributes of the user's: one may hide a method. A table that Python has not made yet (a tagged word
// from 3.12 on) is asked for.
static int unadorned(const struct replay *r, void *tensor) {
    long at = 0, known;
    void *table = r->dict_slot ? AT(tensor, r->dict_slot) : 0, *key, *value;
    if (!table || (uintptr_t)table & 1) {
        table = py.get_attribute(tensor, r->name_dict);
        if (!table) { py.clear_error(); return 0; }
        py.forget(table);  // the tensor keeps it
    }
    if (!py.dict_size(table)) return 1;
    while (py.dict_next(table, &at, &key, &value)) {
        for (known = 0; known < r->n_private && r->private[known] != key; known++) {}
        if (known == r->n_private) return 0;
    }
    return 1;
}

static int like(const struct replay *r, const struct window *w, void *tensor) {
    if (TYPE(tensor) != w->type) return 0;
    void *object = AT(tensor, r->array_slot), *node = AT(tensor, r->node_slot);
    if (!object || !node || TYPE(object) != r->array_type || (w->node ? TYPE(node) != w->node : node != r->none)) return 0;
    if (w->node && w->node == r->leaf_type && !is(node, r->name_hooks, r->none)) return 0;
    const struct array *array = ARRAY(object);
    long size = w->dimensions * sizeof(long);
    return array->type == w->dtype && array->dimensions == w->dimensions && !memcmp(array->shape, w->extent, size)
        && !memcmp(array->strides, w->extent + w->dimensions, size) && is(tensor, r->name_inference, r->no)
        && viewed(r, w, tensor) && unadorned(r, tensor);
}

static int argument_fits(const struct replay *r, void *arguments, long n) {
    const struct window *w = r->arguments + n;
    void *given = py.tuple_get(arguments, n);
    if (w->object && given != w->object) return 0;
    if (!w->type) return 1;
    if (!like(r, w, given)) return 0;
    for (long i = 0; i < w->first; i++) if (py.tuple_get(arguments, i) == given) return 0;
    if (py.tuple_get(arguments, w->first) != given) return 0;
    if (w->object || !r->n_held) return 1;
    for (long i = 0; i < r->n_held; i++) if (r->held[i] == given) return 0;
    return is(given, r->name_base, r->none);
}

// A leaf's gradient, borrowed; null if it has no such attribute.
static void *gradient_of(const struct replay *r, void *leaf) {
    void *found = py.get_attribute(leaf, r->name_grad);
    if (found) py.forget(found);  // the leaf keeps it
    else py.clear_error();
    return found;
}

// Whether a gradient is as good as new: without attributes of the user's, and without weak references that wait for its end.
static int bare(const struct replay *r, const struct gradient *g) {
    if (AT(g->tensor, r->weak_slot)) return 0;
    if (r->dict_slot ? AT(g->tensor, r->dict_slot) != g->attributes : !is(g->tensor, r->name_dict, g->attributes)) return 0;
    return !py.dict_size(g->attributes);
}

// Whether nobody but the plan and the leaf can see a gradient's memory.
static int unseen(const struct replay *r, const struct gradient *g) {
    if (gradient_of(r, g->leaf) != (g->present ? g->tensor : r->none)) return 0;
    if (REFERENCES(g->tensor) > 1 + g->present || AT(g->tensor, r->array_slot) != g->array || REFERENCES(g->array) > 1
        || REFERENCES(g->memory) > 2 || AT(g->tensor, r->node_slot) != r->none || !bare(r, g)) return 0;
    void *counter = AT(g->tensor, r->counter_slot);  // there is one once a view was made
    return counter == r->none ? !g->version : REFERENCES(counter) == 1;
}

static int read_numbers(const struct replay *r) {
    for (long n = 0; n < r->n_reads; n++) {
        const struct number *read = r->reads + n;
        void *found = py.dict_get(read->container, read->name);
        if (found && read->index >= 0) found = py.tuple_get(found, read->index);
        if (!found) { py.clear_error(); return 0; }
        void *type = TYPE(found);
        if (read->type ? type != read->type : type != r->numeric[0] && type != r->numeric[1] && type != r->numeric[2]) return 0;
        double value = py.as_double(found);
        if (value == -1 && py.error()) { py.clear_error(); return 0; }
        r->numbers[n] = value;
    }
    return 1;
}

static int rules_hold(const struct replay *r) {
    for (long n = 0; n < r->n_rules; n++) {
        struct rule *rule = r->rules + n;
        if (rule->kind != VERSION) {
            if (!holds(rule)) return 0;
            continue;
        }
        void *version = AT(rule->object, 24);
        if (version != rule->value) {
            for (long i = 1; i <= rule->count; i++) if (!holds(rule + i)) return 0;
            rule->value = version;
        }
        n += rule->count;
    }
    return 1;
}

static long start_of(const struct replay *r, const struct window *w, void *tensor) {
    return (long)ARRAY(AT(tensor, r->array_slot))->data + w->delta;
}

// Whether memory that a call brings overlaps memory that the program writes.
static int overlaps(const struct replay *r, const struct window *w, void *tensor) {
    if (w->place < 0 || !w->nbytes) return 0;
    long start = start_of(r, w, tensor), end = start + w->nbytes;
    for (long n = 0; n < r->n_spans; n += 2) if (start < r->spans[n + 1] && r->spans[n] < end) return 1;
    return 0;
}

// Whether a gradient that is added to overlaps an argument.
static int overlaps_argument(const struct replay *r, const struct window *w, void *gradient, void *arguments) {
    if (w->place < 0) return 0;
    long start = start_of(r, w, gradient), end = start + w->nbytes;
    for (long n = 0; n < r->n_arguments; n++) {
        const struct window *other = r->arguments + n;
        if (!other->type || other->place < 0) continue;
        long from = start_of(r, other, py.tuple_get(arguments, n));
        if (start < from + other->nbytes && from < end) return 1;
    }
    return 0;
}

// Whether gradients that are added to overlap each other; those that lie where they did were compared before.
static int gradients_overlap(const struct replay *r) {
    for (long n = 0; n < r->n_found; n++) {
        struct window *w = r->found + n;
        if (w->place < 0) continue;
        long start = start_of(r, w, gradient_of(r, w->object)), end = start + w->nbytes;
        if (start == w->last) continue;
        for (long i = 0; i < r->n_found; i++) {
            const struct window *other = r->found + i;
            if (i == n || other->place < 0) continue;
            long from = start_of(r, other, gradient_of(r, other->object));
            if (start < from + other->nbytes && from < end) return 1;
        }
        w->last = start;
    }
    return 0;
}

static int all_fits(const struct replay *r, void *arguments) {
    if (py.tuple_size(arguments) != r->n_arguments) return 0;
    for (long n = 0; n < r->n_arguments; n++) if (!argument_fits(r, arguments, n)) return 0;
    if (!rules_hold(r)) return 0;
    for (long n = 0; n < r->n_arguments; n++) {
        if (r->arguments[n].type && overlaps(r, r->arguments + n, py.tuple_get(arguments, n))) return 0;
    }
    for (long n = 0; n < r->n_gradients; n++) if (!unseen(r, r->gradients + n)) return 0;
    for (long n = 0; n < r->n_found; n++) {
        void *gradient = gradient_of(r, r->found[n].object);
        if (!gradient || !like(r, r->found + n, gradient)) return 0;
        if (r->found[n].place >= 0 && AT(gradient, r->counter_slot) == r->none) return 0;
        if (overlaps(r, r->found + n, gradient) || overlaps_argument(r, r->found + n, gradient, arguments)) return 0;
    }
    return !gradients_overlap(r) && read_numbers(r);
}

static void place(const struct replay *r, const struct window *w, void *tensor) {
    if (w->place >= 0) r->table[w->place] = ARRAY(AT(tensor, r->array_slot))->data + w->delta;
}

static void set_count(const struct replay *r, void *counter, long count) {
    void *before = AT(counter, r->value_slot);
    AT(counter, r->value_slot) = py.from_long(count);
    py.forget(before);
}

static void count_up(const struct replay *r, void *counter, long steps) {
    set_count(r, counter, py.as_long(AT(counter, r->value_slot)) + steps);
}

static int finish(const struct replay *r) {
    for (long n = 0; n < r->n_found; n++) {
        void *gradient = gradient_of(r, r->found[n].object);  // another thread may have taken it away meanwhile
        if (r->found[n].place >= 0 && gradient && TYPE(gradient) == r->found[n].type) {
            count_up(r, AT(gradient, r->counter_slot), 1);
        }
    }
    for (long n = 0; n < r->n_dropped; n++) {
        void *leaf = r->dropped[n];
        if (gradient_of(r, leaf) != r->none && py.set_attribute(leaf, r->name_grad, r->none)) return 0;
    }
    for (long n = 0; n < r->n_gradients; n++) {
        const struct gradient *g = r->gradients + n;
        void *counter = AT(g->tensor, r->counter_slot);
        if (g->version) set_count(r, counter, g->version);
        else if (counter != r->none && py.set_attribute(g->tensor, r->name_counter, r->none)) return 0;
        if (!g->present && py.set_attribute(g->leaf, r->name_grad, g->tensor)) return 0;
    }
    for (long n = 0; n < r->n_counters; n++) count_up(r, r->counters[n], r->steps[n]);
    return 1;
}

// Returns the status of the program, after which everything is as it was; -1: something is not as it was, and nothing was done.
long fl_replay(const struct replay *r, void *arguments, void *fresh) {
    if (!all_fits(r, arguments)) return -1;
    for (long n = 0; n < r->n_arguments; n++) place(r, r->arguments + n, py.tuple_get(arguments, n));
    for (long n = 0; n < r->n_found; n++) place(r, r->found + n, gradient_of(r, r->found[n].object));
    for (long n = 0; n < r->n_fresh; n++) r->table[r->fresh[n]] = ARRAY(py.list_get(fresh, n))->data;
    void *thread = py.release_lock();
    for (long n = 0; n < r->n_undo; n++) memcpy(r->undo[n].saved, r->table[r->undo[n].place], r->undo[n].nbytes);
    long status = r->program(r->table, r->numbers);
    if (status) {
        for (long n = 0; n < r->n_undo; n++) memcpy(r->table[r->undo[n].place], r->undo[n].saved, r->undo[n].nbytes);
    }
    py.take_lock(thread);
    if (status == 0 && !finish(r)) return -2;  // with Python's error set
    return status;
}

// fl_replay as a builtin function of Python's: (address of the replay, arguments, list of arrays for the results).
void *fl_replay_call(void *self, void *const *args, long given) {
    long status = fl_replay((const struct replay *)py.as_long(args[0]), args[1], args[2]);
    return py.error() ? 0 : py.from_long(status);
}
