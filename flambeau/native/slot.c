// `Tensor._array` while a call is captured (compiler/capture/slot.py): the capturing thread asks Python, all others find the slot
// itself, so that they keep their speed.
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

// Functions of Python's stable interface, looked up by ctypes: this file needs none of Python's headers.
static void *(*call)(void *function, ...);
static void (*keep)(void *), (*forget)(void *);
static intptr_t offset;          // of the slot in a tensor
static void *traced, *hidden;    // the types of arrays that only the capturing thread may see
static void *reader, *writer;    // Python's functions, for the capturing thread
static pthread_t owner;
static void **abroad;            // tensors that other threads made meanwhile
static intptr_t room, filled;

void fl_slot_attach(void **functions, intptr_t at, void *type) {
    call = functions[0], keep = functions[1], forget = functions[2];
    offset = at, traced = type;
}

static int elsewhere(void) { return !pthread_equal(pthread_self(), owner); }
static int is_plain(void *array) {
    void *type = ((void **)array)[1];  // behind the count of references
    return type != traced && type != hidden;
}
void fl_slot_hide(void *type) { hidden = type; }

static void *get(void *tensor, void *closure) {
    void *array = *(void **)((char *)tensor + offset);
    if (!array || !elsewhere() || !is_plain(array)) return call(reader, tensor, (void *)0);
    keep(array);
    return array;
}

static int set(void *tensor, void *array, void *closure) {
    void **slot = (void **)((char *)tensor + offset), *before = *slot;
    if (!array || !elsewhere() || !is_plain(array) || (before && !is_plain(before))) {
        void *made = call(writer, tensor, array, (void *)0);
        if (made) forget(made);
        return made ? 0 : -1;
    }
    if (!before) {
        if (filled == room) {
            room = room ? 2 * room : 1024;
            abroad = realloc(abroad, room * sizeof *abroad);
        }
        abroad[filled++] = tensor;
    }
    keep(array);
    *slot = array;
    if (before) forget(before);
    return 0;
}

static struct { const char *name; void *(*get)(void *, void *); int (*set)(void *, void *, void *); const char *doc; void *closure; }
    definition = {"_array", get, set, 0, 0};

// What stands in front of the slot from now on, for this thread's sake.
void *fl_slot_begin(void *reads, void *writes) {
    reader = reads, writer = writes;
    owner = pthread_self();
    return &definition;
}

int fl_slot_abroad(void *tensor) {
    for (intptr_t i = 0; i < filled; i++)
        if (abroad[i] == tensor) return 1;
    return 0;
}

void fl_slot_end(void) { filled = 0; }
