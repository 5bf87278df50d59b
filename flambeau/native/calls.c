// Calls from Python into native functions without ctypes, which takes as long over a call as a small kernel does.
// native/calls.py makes a builtin function of Python's for each native one; `fl_calls_run` is what they all run.
#include <stdint.h>

// Functions of Python's stable interface, looked up by ctypes: this file needs none of Python's headers.
struct python {
    long (*as_long)(void *);  // of larger numbers the lowest bits
    double (*as_double)(void *);
    void *(*as_address)(void *);
    void *(*error)(void);
    void *(*from_long)(long);
    void (*raise)(void *type, const char *text);
    void *(*release_lock)(void);
    void (*take_lock)(void *);
    void (*keep)(void *);  // one reference more
    void (*drop)(void *);  // one reference less
    void *(*call)(void *function, void *argument, void *end);
    void *none, *array_type, *type_error;
};
static struct python py;
static void *promise_type, *settle;  // arrays whose elements are to come (compiler/promises.py), and what brings them

void fl_calls_attach(const struct python *functions) { py = *functions; }

void fl_calls_promise(void *type, void *function) {
    promise_type = type;
    settle = function;
}

struct function {
    void *address;
    long count;
    char result, arguments[];  // letters: p pointer, l long, i int, d double, f float; of the result also 0 for none
};

struct object { intptr_t references; void *type; char *data; };  // the start of any object; an array's data come next

enum { LONGS = 20, DOUBLES = 8 };

// Integers and floating-point numbers travel in separate registers, each kind in its own order, and more integers than there
// are registers for lie on the stack: what the callee does not ask for does no harm.
#define INTEGERS n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10], n[11], n[12], n[13], n[14], n[15], n[16], \
                 n[17], n[18], n[19]
#define NUMBERS x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]
typedef long l;
typedef double d;
typedef long any(l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, d, d, d, d, d, d, d, d);

void *fl_calls_run(void *self, void *const *arguments, long given) {
    const struct function *f = py.as_address(self);
    long n[LONGS];
    double x[DOUBLES];
    int integers = 0, numbers = 0;
    if (given != f->count) {
        py.raise(py.type_error, "a native function got the wrong number of arguments");
        return 0;
    }
    for (long i = 0; i < given; i++) {
        struct object *a = arguments[i];
        char kind = f->arguments[i];
        if (kind == 'p') {
            if (promise_type && a->type == promise_type) {
                void *done = py.call(settle, a, 0);
                if (!done)
                    return 0;
                py.drop(done);
                n[integers++] = (long)a->data;
            } else {
                n[integers++] = a == py.none ? 0 : a->type == py.array_type ? (long)a->data : (long)py.as_address(a);
            }
        } else if (kind == 'l' || kind == 'i') {
            n[integers++] = py.as_long(a);
        } else {
            union { double wide; float narrow; } value = {.wide = py.as_double(a)};
            if (kind == 'f')
                value.narrow = (float)value.wide;
            x[numbers++] = value.wide;
        }
    }
    if (given && py.error())
        return 0;
    for (int i = integers; i < LONGS; i++)
        n[i] = 0;
    for (int i = numbers; i < DOUBLES; i++)
        x[i] = 0;
    void *thread = py.release_lock();
    long made = ((any *)f->address)(INTEGERS, NUMBERS);
    py.take_lock(thread);
    if (f->result)
        return py.from_long(f->result == 'i' ? (int)made : made);
    py.keep(py.none);
    return py.none;
}
