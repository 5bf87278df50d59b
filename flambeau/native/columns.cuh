// Columns of arrays (outer, columns, inner), and how threads share them. The text of a kernel says first, as constants:
//   SIDE    threads that have columns side by side, RUN of them each (inner is 1); 0: a block has one column
//   RUN     elements that a thread takes at once: of so many columns, or of one
//   THREADS of a block
// Columns are cut into chunks. What is joined across threads, and then across chunks, is joined in an order that depends on the
// sizes alone: results do not change from run to run.
#pragma once
#include "elements.cuh"

struct Columns { long outer, columns, inner, chunks; };
enum { ABREAST = SIDE ? SIDE : 1, LANES = THREADS / ABREAST, OWN = SIDE ? RUN : 1 }; // OWN: columns of a thread

template <class A, class V> static __device__ inline void fetch_run(const A *from, V *to) { // in loads of at most 16 bytes
    enum { STEP = RUN * sizeof(A) > 16 ? 16 / sizeof(A) : RUN };
    #pragma unroll
    for (int at = 0; at < RUN; at += STEP) {
        const Run<A, STEP> r = *(const Run<A, STEP> *)(from + at);
        #pragma unroll
        for (int j = 0; j < STEP; j++) to[at + j] = (V)value_of(r.at[j]);
    }
}
template <class R, class V> static __device__ inline void store_run(R *to_, const V *from) {
    enum { STEP = RUN * sizeof(R) > 16 ? 16 / sizeof(R) : RUN };
    #pragma unroll
    for (int at = 0; at < RUN; at += STEP) {
        Run<R, STEP> r;
        #pragma unroll
        for (int j = 0; j < STEP; j++) r.at[j] = to<R>(from[at + j]);
        store(to_ + at, r);
    }
}
#define FOR_RUN _Pragma("unroll") for (int j = 0; j < RUN; j++)
#define FOR_OWN _Pragma("unroll") for (int j = 0; j < OWN; j++)

// A chunk of columns, and a thread's share of it: for (Task t(s); t.more(); t.next()). All threads of a block go the same way.
namespace { // so that shared memory of the same name in another text's library, on a GPU that the host plays, is another
struct Task {
    const Columns &s;
    const long tiles;
    long number, c, chunk; // c: the first of the thread's columns
    int lane;
    bool real;             // whether there are such columns at all
    __device__ Task(const Columns &s) : s(s), tiles(SIDE ? (s.columns + SIDE * RUN - 1) / (ABREAST * RUN) : s.columns) {
        number = blockIdx.x, lane = threadIdx.x / ABREAST;
        settle();
    }
    __device__ void settle() {
        chunk = number / tiles;
        c = (number - chunk * tiles) * ABREAST * OWN + threadIdx.x % ABREAST * OWN;
        real = c < s.columns;
    }
    __device__ bool more() const { return number < tiles * s.chunks; }
    __device__ void next() { number += gridDim.x, settle(); }
    template <class F> __device__ void each(F f) const { // f(place of a run, its row)
        if (!real) return;
        const long runs = SIDE ? 1 : s.inner / RUN, count = s.outer * runs, share = (count + s.chunks - 1) / s.chunks;
        const long from = chunk * share, till = from + share < count ? from + share : count;
        if (SIDE) {
            #pragma unroll 4
            for (long r = from + lane; r < till; r += LANES) f(r * s.columns + c, r);
        } else {
            #pragma unroll 4
            for (long e = from + lane; e < till; e += LANES) {
                const long r = count <= 0x7fffffff ? (long)((unsigned)e / (unsigned)runs) : e / runs;
                f((r * s.columns + c) * s.inner + (e - r * runs) * RUN, r);
            }
        }
    }
    // Joins what the threads of a column have made of it; the first of them has the result.
    template <class T, class Join> __device__ void meet(T *own, Join join) const {
        __shared__ T met[OWN][THREADS];
        FOR_OWN met[j][threadIdx.x] = own[j];
        __syncthreads();
        for (int half = LANES / 2; half; half /= 2) {
            if (lane < half) {
                FOR_OWN met[j][threadIdx.x] = join(met[j][threadIdx.x], met[j][threadIdx.x + half * ABREAST]);
            }
            __syncthreads();
        }
        FOR_OWN own[j] = met[j][threadIdx.x];
        __syncthreads(); // the next task writes there
    }
    __device__ bool first() const { return !lane && real; }
};
}

// What `count` parts of a column, `step` apart, make together: blocks of LAST threads have EIGHT columns, so that many of them
// share the work. All threads come here; those with number below EIGHT have the result.
enum { LAST = 512, EIGHT = 8 };
template <class T, class Join> static __device__ inline T together(const T *parts, bool real, long count, long step, T start,
                                                                   Join join) {
    __shared__ T met[LAST];
    const int lane = threadIdx.x / EIGHT, lanes = LAST / EIGHT;
    T made = start;
    if (real) {
        #pragma unroll 8
        for (long k = lane; k < count; k += lanes) made = join(made, parts[k * step]);
    }
    met[threadIdx.x] = made;
    __syncthreads();
    for (int half = lanes / 2; half; half /= 2) {
        if (lane < half) met[threadIdx.x] = join(met[threadIdx.x], met[threadIdx.x + half * EIGHT]);
        __syncthreads();
    }
    made = met[threadIdx.x];
    __syncthreads();
    return made;
}
// for each block's columns: c is the thread's
#define FOR_LAST(c, columns) \
    for (long c = (long)blockIdx.x * EIGHT + threadIdx.x % EIGHT; c - threadIdx.x % EIGHT < (columns); \
         c += (long)gridDim.x * EIGHT)
