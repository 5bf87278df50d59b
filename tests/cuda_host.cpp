// A machine that plays a GPU on the host: memory that nobody but kernels and copies can touch, and launches that run on this thread.
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

static char *arena;
static size_t reserved = (size_t)8 << 30, used;

extern "C" char *host_open() {
    if (!arena)
        arena = (char *)mmap(0, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return arena;
}

static void open_up() { if (used) mprotect(arena, used, PROT_READ | PROT_WRITE); }
static void shut() { if (used) mprotect(arena, used, PROT_NONE); }

extern "C" char *host_allocate(size_t size) {
    size = (size + 4095) / 4096 * 4096;
    if (used + size > reserved) return 0;
    char *made = arena + used;
    used += size;
    return made;
}

extern "C" void host_move(char *to, const char *from, size_t size) { open_up(); memmove(to, from, size); shut(); }
extern "C" void host_clear(char *to, size_t size) { open_up(); memset(to, 0, size); shut(); }

// Launches on a stream that is being captured are kept for later; steps of other kinds are numbered by Python.
typedef void **kernel_t(void **, unsigned, unsigned);
struct step { kernel_t *kernel; unsigned blocks, threads; void **parameters; long number; };
static void *captured;
static struct step *steps[1 << 16];
static long count;

extern "C" void host_capture(void *stream) { captured = stream, count = 0; }
extern "C" long host_captured() { return count; }
extern "C" struct step *host_step(long i) { return steps[i]; }
extern "C" long host_number(struct step *s) { return s->number; }
extern "C" void host_note(long number) { steps[count++] = new step{0, 0, 0, 0, number}; }
extern "C" void host_run(struct step *s) { open_up(); s->kernel(s->parameters, s->blocks, s->threads); shut(); }

extern "C" int host_launch(kernel_t *kernel, unsigned blocks, unsigned, unsigned, unsigned threads,
                           unsigned, unsigned, unsigned, void *stream, void **parameters, void **) {
    if (captured && stream == captured) {
        steps[count++] = new step{kernel, blocks, threads, kernel(parameters, 0, 0), -1};
        return 0;
    }
    open_up();
    kernel(parameters, blocks, threads);
    shut();
    return 0;
}
// New parameters for the nodes of graphs: the graph's and the node's number, and what the node does from now on.
struct node { kernel_t *kernel; unsigned blocks[3], threads[3], shared; void **parameters; };
static struct { void *graph, *node; struct step *step; } changes[1 << 12];
static long changed;
extern "C" int host_set(void *graph, void *node, const struct node *n) {
    changes[changed++] = {graph, node, new step{n->kernel, n->blocks[0], n->threads[0], n->kernel(n->parameters, 0, 0), -1}};
    return 0;
}
extern "C" struct step *host_change(long *graph, long *node) {
    if (!changed) return 0;
    *graph = (long)changes[--changed].graph, *node = (long)changes[changed].node;
    return changes[changed].step;
}
extern "C" int host_activate(void *) { return 0; }

extern "C" void host_open_up() { open_up(); }
extern "C" void host_shut() { shut(); }
