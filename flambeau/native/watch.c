// The profile function of a capture (compiler/capture/watch.py). Python tells it of every call, return and call of a builtin; all
// but the first calls of the user's own functions are of no interest, and are sorted out here.
#include <stdint.h>
#include <stdlib.h>

// Functions of Python's stable interface, looked up by ctypes: this file needs none of Python's headers.
static void *(*code_of)(void *frame);
static void (*forget)(void *);
static void *(*call)(void *function, ...);
static int (*is_true)(void *);
static void *warn;  // the one builtin that is of interest: operations use it, and a warning is something to be seen

void fl_watch_attach(void **functions, void *builtin) {
    code_of = functions[0], forget = functions[1], call = functions[2], is_true = functions[3];
    warn = builtin;
}

// Code that need not be shown again, by address; its references are kept until the end, so that no address is used twice.
static void **dull;
static uintptr_t room, filled;
static int paused;  // while functions are rewritten: nothing of the user's runs

void fl_watch_pause(int on) { paused = on; }

static uintptr_t place_of(void *code) {
    uintptr_t at = ((uintptr_t)code >> 4) * 0x9E3779B97F4A7C15u & (room - 1);
    while (dull[at] && dull[at] != code)
        at = (at + 1) & (room - 1);
    return at;
}

static void grow(void) {
    void **old = dull;
    uintptr_t before = room;
    room = room ? 2 * room : 1024;
    dull = calloc(room, sizeof *dull);
    for (uintptr_t i = 0; i < before; i++)
        if (old[i])
            dull[place_of(old[i])] = old[i];
    free(old);
}

void fl_watch_end(void) {
    for (uintptr_t i = 0; i < room; i++)
        if (dull[i])
            forget(dull[i]);
    free(dull);
    dull = 0, room = filled = 0;
    paused = 0;
}

int fl_watch(void *watch, void *frame, int what, void *argument) {
    if (paused)
        return 0;
    if (what == 4 && argument == warn) {  // PyTrace_C_CALL
        void *made = call(watch, frame, warn, (void *)0);
        if (made)
            forget(made);
        return made ? 0 : -1;
    }
    if (what != 0)  // PyTrace_CALL
        return 0;
    if (2 * filled >= room)
        grow();
    void *code = code_of(frame);
    uintptr_t at = place_of(code);
    if (dull[at]) {
        forget(code);
        return 0;
    }
    void *known = call(watch, frame, (void *)0);
    if (!known || !is_true(known)) {
        forget(code);
        if (!known)
            return -1;
        forget(known);
        return 0;
    }
    forget(known);
    at = place_of(code);  // the table may have grown
    if (dull[at]) {
        forget(code);
    } else {
        dull[at] = code;
        filled++;
    }
    return 0;
}
