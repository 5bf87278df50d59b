// Part of cuda.c: calls of kernels by name and arguments, where such a call has been seen. A recipe says which launches it made on
// which of its arguments and of the blocks that it asked for. What is not known goes to Python (backends/cuda/repeated.py).
enum { SLOTS = 1 << 13, OPERANDS = 24, LEAVES = 48, WORDS = 512, RESULTS = 4, NUMBER = -1, DEPTH = 3,
       MOST_RECIPES = 1 << 15 };
struct place { int from; union value value; };  // an operand, or after those a block, with an offset; NUMBER: as it is
struct result { int block, dims; long offset; void *dtype; const long *shape, *strides; };  // block -1: None
struct launch_of { void *plan; enum kind kind; int count; struct place at[ARGUMENTS]; };
struct recipe {
    struct recipe *next;
    const long *words;
    long length, bytes[BLOCKS];  // of the blocks that are used; of others none
    int blocks, steps, results, several;
    struct result result[RESULTS];
    struct launch_of step[];
};
static struct recipe *recipes[SLOTS];
static long recipes_known, settings;
void fl_cuda_settings(long number) { settings = number; }  // of what calls depend on besides their arguments

void fl_cuda_unlearn(void) {  // what they have taken is lost: for those who change how kernels are launched
    for (int i = 0; i < SLOTS; i++) recipes[i] = 0;
    recipes_known = 0;
}

struct key {
    long words[WORDS], *at;
    void *operand[OPERANDS], *leaf[LEAVES];  // leaves: what the words know by address
    unsigned char argument[OPERANDS];        // of the call, which an operand is, or is part of
    int operands, leaves, numbers;           // numbers: how many of the arguments are
};

static void leaf(struct key *k, void *object) { *k->at++ = (long)object, k->leaf[k->leaves++] = object; }

// Whether an array lies on the current device. Only asked where there are several.
static int is_here(const struct array *a) {
    while (a && a->type != np.block_type) a = a->type == np.array_type ? a->base : 0;
    void *lists = a ? py.get((void *)a, np.home) : 0;
    if (!lists) return py.forget_error(), 0;
    struct home *its = found_home(lists);
    py.drop(lists);
    return its && home && home_generation == generation && its->device == home->device;
}

// Adds what tells an argument from others to a key; returns whether it is of a kind that is known here. values: whether numbers
// are told apart. Arrays at one address are told from others, and so is an address that is no multiple of 16.
static int described(struct key *k, void *argument, int number, int values, int depth) {
    const struct array *a = argument;
    if (k->at > k->words + WORDS - 6 - 2 * DIMS || k->operands == OPERANDS || k->leaves == LEAVES) return 0;
    *k->at++ = (long)a->type;
    if (a->type == np.array_type) {
        if (a->dims > DIMS || (devices > 1 && !is_here(a))) return 0;
        int same = 0;
        while (same < k->operands && (((struct array *)k->operand[same])->data != a->data || (
                                          ((struct array *)k->operand[same])->type != np.array_type))) same++;
        leaf(k, a->dtype);
        *k->at++ = a->dims | same << 8 | !((long)a->data % 16) << 16;
        for (int d = 0; d < a->dims; d++) *k->at++ = a->shape[d], *k->at++ = a->strides[d];
    } else if (a->type == host_type) {
        if (a->dims || !is_number(a)) return 0;
        k->numbers++;
        leaf(k, a->dtype);
        if (values) *(double *)k->at++ = floating(a), *k->at++ = whole(a);
    } else if (a->type == np.float_type || a->type == np.long_type) {
        k->numbers++;
        if (values) *(double *)k->at++ = floating(a), *k->at++ = a->type == np.long_type ? whole(a) : 0;
    } else if (a->type == np.tuple_type || a->type == np.list_type) {
        const long length = ((struct list *)a)->length;
        void **items = a->type == np.list_type ? (void **)((struct list *)a)->items : ((struct tuple *)a)->items;
        *k->at++ = length;
        for (long i = 0; i < length; i++)
            if (!depth || !described(k, items[i], number, 1, depth - 1)) return 0;
        return 1;
    } else if (argument == py.none || a->type == np.bool_type || a->type == np.str_type || (
                   ((struct object *)a->type)->type == np.dtype_meta)) {
        leaf(k, argument);
        return 1;
    } else {
        return 0;
    }
    k->argument[k->operands] = number, k->operand[k->operands++] = argument;
    return 1;
}

// The key of a call; arguments: a name and what a kernel takes, or before them the array that it writes to. Returns its length.
static long keyed(struct key *k, void *const *arguments, long given, int in_place, int values) {
    k->at = k->words, k->operands = k->leaves = k->numbers = 0;
    *k->at++ = in_place, *k->at++ = devices > 1 ? (long)home : (long)stream, *k->at++ = settings;
    leaf(k, arguments[in_place]);
    for (long i = 0; i < given; i++)
        if (i != in_place && !described(k, arguments[i], i, values, DEPTH)) return 0;
    if (k->numbers && values) k->words[0] |= 2;
    if (!k->numbers || !py.error()) return k->at - k->words;
    py.forget_error();  // a number that is no double
    return 0;
}

static struct recipe **slot(const struct key *k, long length) {
    uint64_t hash = length;
    for (long i = 0; i < length; i++) hash = (hash ^ (uint64_t)k->words[i]) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29;
    return &recipes[hash % SLOTS];
}

static struct recipe *looked_up(struct key *k, void *const *arguments, long given, int in_place) {
    for (int values = 0; values < 2; values++) {
        const long length = keyed(k, arguments, given, in_place, values);
        if (!length) return 0;
        for (struct recipe *r = *slot(k, length); r; r = r->next)
            if (r->length == length && !__builtin_memcmp(r->words, k->words, length * sizeof(long))) return r;
        if (!k->numbers) return 0;
    }
    return 0;
}

// ------------------------------------------------------------------------------------------------------ writing recipes down
// Where an address lies: an operand that is an array, or a block; NUMBER where in neither.
static struct place located(const struct key *k, const struct tape *t, char *address) {
    for (int i = 0; i < t->blocks; i++)
        if (address >= t->block[i]->data && address < t->block[i]->data + t->bytes[i])
            return (struct place){OPERANDS + i, {.l = address - t->block[i]->data}};
    for (int i = 0; i < k->operands; i++) {
        struct array *a = k->operand[i];
        if (a->type == np.array_type && a->data == address) return (struct place){i, {.l = 0}};
    }
    return (struct place){NUMBER, {.l = 0}};
}

static const long *copied(const long *from, long count) {
    long *made = __builtin_malloc((count + 1) * sizeof(long));
    if (made) __builtin_memcpy(made, from, count * sizeof(long));
    return made;
}

static int resulting(struct recipe *r, const struct key *k, const struct tape *t, struct array *made) {
    if (r->results == RESULTS) return 0;
    struct result *one = &r->result[r->results++];
    if ((void *)made == py.none) return one->block = -1, 1;
    if (made->type != np.array_type || made->dims > DIMS) return 0;
    const struct place at = located(k, t, made->data);
    if (at.from < OPERANDS) return 0;
    py.keep(made->dtype);
    *one = (struct result){at.from - OPERANDS, made->dims, at.value.l, made->dtype, copied(made->shape, made->dims),
                           made->flags & 1 ? 0 : copied(made->strides, made->dims)};
    return one->shape != 0;
}

// The number of the n-th of the launch's numbers among the operands; NUMBER where it is none.
static int counted(const struct key *k, const struct tape *t, int n) {
    for (int i = 0; n < t->counted && i < k->operands; i++)
        if (k->argument[i] == t->numbers[n]) return i;
    return NUMBER;
}

static int stepped(struct launch_of *l, const struct step *s, const struct key *k, const struct tape *t) {
    const struct plan *p = l->plan = s->plan;
    l->kind = s->kind;
    l->count = s->kind == PRODUCT ? (int)factors(s->plan) :
               s->kind == CONVOLUTION ? 3 + !!((struct convolution *)s->plan)->size : (int)p->count;
    for (int a = 0, n = 0; a < l->count; a++) {
        const int is_address = l->kind != PLAN || p->kinds[a] == 'p';
        if (is_address) l->at[a] = located(k, t, s->values[a].p);
        else l->at[a] = (struct place){t->counted ? counted(k, t, n++) : NUMBER, s->values[a]};
        if (l->at[a].from == NUMBER && (is_address || t->counted)) return 0;
    }
    return 1;
}

static void needed(struct recipe *r, const struct tape *t, int block) { r->bytes[block] = t->bytes[block]; }

// Writes down what a call did, if all of it is known: launches on its operands and on blocks of its own.
static void learnt(const struct key *k, const struct tape *t, void *made) {
    const long length = k->at - k->words;
    struct recipe *r = __builtin_calloc(1, sizeof *r + t->steps * sizeof *r->step), **place = slot(k, length);
    const struct tuple *many = made;
    if (!r) return;
    r->words = copied(k->words, length), r->length = length, r->blocks = t->blocks, r->steps = t->steps;
    int known = r->words != 0;
    r->several = made && many->type == np.tuple_type;
    for (long i = 0; known && made && i < (r->several ? many->length : 1); i++)
        known = resulting(r, k, t, r->several ? many->items[i] : made);
    for (int s = 0; known && s < t->steps; s++) known = stepped(&r->step[s], &t->step[s], k, t);
    if (!known) return;  // seldom, and little is lost
    for (int s = 0; s < r->steps; s++)
        for (int a = 0; a < r->step[s].count; a++)
            if (r->step[s].at[a].from >= OPERANDS) needed(r, t, r->step[s].at[a].from - OPERANDS);
    for (int i = 0; i < r->results; i++)
        if (r->result[i].block >= 0) needed(r, t, r->result[i].block);
    for (int i = 0; i < k->leaves; i++) py.keep(k->leaf[i]);
    r->next = *place, *place = r, recipes_known++;
}

// (whether in place, a call's arguments...): runs it by Python, and remembers what it did.
void *fl_cuda_record(void *self, void *const *given, long count) {
    const int in_place = py.as_long(given[0]);
    void *const *arguments = given + 1, *made;
    if (tape || recipes_known >= MOST_RECIPES) return np.call_many(in_place ? np.into : np.compute, arguments, count - 1, 0);
    struct tape t = {arguments[in_place]};
    tape = &t;
    made = np.call_many(in_place ? np.into : np.compute, arguments, count - 1, 0);
    tape = 0;
    struct key k;
    if (made && !t.spoilt && (!in_place || (made == np.yes && !t.blocks)) && keyed(&k, arguments, count - 1, in_place, !t.counted))
        learnt(&k, &t, in_place ? 0 : made);
    for (int i = 0; i < t.blocks; i++) py.drop(t.block[i]);
    return made;
}

// Something was done that is not noted here, or would be different the next time.
void *fl_cuda_spoil(void *self, void *const *arguments, long given) {
    if (tape) tape->spoilt = 1;
    return nothing();
}

// (name, numbers...): if this is the call that is being recorded, those of its arguments are the numbers of its launch.
void *fl_cuda_counted(void *self, void *const *arguments, long given) {
    if (tape && tape->name == arguments[0] && !tape->steps && given <= ARGUMENTS)
        for (long i = 1; i < given; i++) tape->numbers[tape->counted++] = py.as_long(arguments[i]);
    return nothing();
}

// ---------------------------------------------------------------------------------------------------------- following recipes
static int followed(const struct recipe *r, const struct key *k, struct array *const *blocks) {
    for (int s = 0; s < r->steps; s++) {
        const struct launch_of *l = &r->step[s];
        union value values[ARGUMENTS];
        for (int a = 0; a < l->count; a++) {
            const struct place *at = &l->at[a];
            const char kind = l->kind != PLAN ? 'p' : ((struct plan *)l->plan)->kinds[a];
            if (at->from == NUMBER) values[a] = at->value;
            else if (at->from >= OPERANDS) values[a].p = blocks[at->from - OPERANDS]->data + at->value.l;
            else values[a] = valued(kind, k->operand[at->from]);
        }
        if (!(l->kind == PLAN ? launched(l->plan, values) :
              l->kind == PRODUCT ? multiplied(l->plan, values) : convolved(l->plan, values))) return 0;
    }
    return 1;
}

static void *shown(const struct result *r, struct array *const *blocks) {
    if (r->block < 0) return nothing();
    struct array *under = blocks[r->block];
    py.keep(r->dtype);
    void *made = np.make(np.array_type, r->dtype, r->dims, r->shape, r->strides, under->data + r->offset, WRITABLE, 0);
    if (!made) return 0;
    py.keep(under);
    return np.set_base(made, under) ? 0 : made;
}

static void *presented(const struct recipe *r, struct array *const *blocks) {
    if (!r->several) return shown(&r->result[0], blocks);
    void *made = py.new_tuple(r->results);
    for (int i = 0; made && i < r->results; i++) {
        void *one = shown(&r->result[i], blocks);
        if (!one) return py.drop(made), (void *)0;
        py.set_item(made, i, one);
    }
    return made;
}

// (name, arguments...) -> what the kernel makes of them.
void *fl_cuda_call(void *self, void *const *arguments, long given) {
    struct key k;
    struct array *blocks[BLOCKS] = {0};
    const struct recipe *r = looked_up(&k, arguments, given, 0);
    if (!r) return np.call_many(np.first_time, arguments, given, 0);
    int have = 0;
    while (have < r->blocks && (!r->bytes[have] || (blocks[have] = block(r->bytes[have])))) have++;
    void *made = have == r->blocks && followed(r, &k, blocks) ? presented(r, blocks) : 0;
    while (have--)
        if (blocks[have]) py.drop(blocks[have]);
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

// Whether two arrays are of one geometry, or without a common byte: then a kernel may write to one while it reads the other.
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
    struct key k;
    const struct recipe *r = looked_up(&k, arguments, given, 1);
    for (int i = 1; r && i < k.operands; i++)
        if (((struct object *)k.operand[i])->type == np.array_type && !apart(arguments[0], k.operand[i])) r = 0;
    if (!r) return np.call_many(np.first_time_into, arguments, given, 0);
    if (r->blocks || !followed(r, &k, 0)) return 0;
    py.keep(np.yes);
    return np.yes;
}
