// Builds the text of CUDA kernels for the host: blocks one after the other, the threads of a block in turns, each up to its next
// barrier. A thread is a context of its own, so a barrier may stand inside of loops. (No headers of C++'s: they take a second.)
#pragma once
#include <stdlib.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)
struct Place { unsigned x, y, z; };
static Place threadIdx, blockIdx, blockDim, gridDim;

enum { MOST_THREADS = 1024, STACK = 1 << 16 };
static ucontext_t host_turns, host_threads[MOST_THREADS];
static char *host_stacks, host_finished[MOST_THREADS];
static void (*host_work)(void **);
static void **host_parameters;

static void host_start() { host_work(host_parameters); host_finished[threadIdx.x] = 1; }
static inline void __syncthreads() { swapcontext(&host_threads[threadIdx.x], &host_turns); }

// What another thread of the warp has. All threads of a block must come here, as to a barrier.
template <class T> T __shfl_xor_sync(unsigned, T x, int distance) {
    static T exchange[MOST_THREADS];
    exchange[threadIdx.x] = x;
    __syncthreads();
    x = exchange[threadIdx.x ^ distance];
    __syncthreads();
    return x;
}

template <class T, class V> T atomicAdd(T *place, V more) { T before = *place; *place += more; return before; }

static void launch(unsigned blocks, unsigned count, void (*kernel)(void **), void **parameters) {
    if (!host_stacks) host_stacks = (char *)malloc((size_t)MOST_THREADS * STACK);
    host_work = kernel, host_parameters = parameters, gridDim = {blocks, 1, 1}, blockDim = {count, 1, 1};
    for (unsigned b = 0; b < blocks; b++) {
        blockIdx = {b, 0, 0};
        for (unsigned t = 0; t < count; t++) {
            host_finished[t] = 0;
            getcontext(&host_threads[t]);
            host_threads[t].uc_stack.ss_sp = host_stacks + (size_t)t * STACK;
            host_threads[t].uc_stack.ss_size = STACK;
            host_threads[t].uc_link = &host_turns;
            makecontext(&host_threads[t], host_start, 0);
        }
        for (bool again = true; again;) {
            again = false;
            for (unsigned t = 0; t < count; t++) {
                if (host_finished[t]) continue;
                threadIdx = {t, 0, 0};
                swapcontext(&host_turns, &host_threads[t]);
                again |= !host_finished[t];
            }
        }
    }
}

// A kernel's parameters from the array of their addresses, as the driver's launch has them.
template <int... I> struct Numbers {};
template <int N, int... I> struct Count : Count<N - 1, N - 1, I...> {};
template <int... I> struct Count<0, I...> { typedef Numbers<I...> all; };
template <class T> struct Bare { typedef T type; };
template <class T> struct Bare<const T> { typedef T type; };
template <class... A, int... I> void unpack(void (*f)(A...), void **p, Numbers<I...>) {
    f(*(typename Bare<A>::type *)p[I]...);
}
template <class... A> void unpack(void (*f)(A...), void **p) { unpack(f, p, typename Count<sizeof...(A)>::all()); }
// The same parameters in memory of their own, for a launch that comes later.
template <class... A, int... I> void **pack(void (*)(A...), void **p, Numbers<I...>) {
    return new void *[sizeof...(A) + 1]{new typename Bare<A>::type(*(typename Bare<A>::type *)p[I])...};
}
template <class... A> void **pack(void (*f)(A...), void **p) { return pack(f, p, typename Count<sizeof...(A)>::all()); }
#define HOST_KERNEL(name)                                                                   \
    extern "C" void **run_##name(void **parameters, unsigned blocks, unsigned count) {      \
        if (!count) return pack(name, parameters);                                          \
        launch(blocks, count, [](void **p) { unpack(name, p); }, parameters);               \
        return 0;                                                                           \
    }
