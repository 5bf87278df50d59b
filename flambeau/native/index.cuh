// Elements by position. U: elements as they are moved, of 1 to 16 bytes.
#pragma once
#include "faults.cuh"

static __device__ inline long divided(long a, long b, bool small) {
    return small ? (long)((unsigned)a / (unsigned)b) : a / b;
}
#define FOR_ALL(e, count) \
    for (long e = (long)blockIdx.x * blockDim.x + threadIdx.x; e < (count); e += (long)gridDim.x * blockDim.x)
// Sets the offsets of N arrays at number `e` of a walk.
template <int N> static __device__ inline void walked(const Walk<N> &w, long e, long *offsets) {
    #pragma unroll
    for (int k = 0; k < N; k++) offsets[k] = 0;
    const bool small = w.count <= 0x7fffffff;
    #pragma unroll
    for (int d = 0; d < DIMS; d++) {
        if (d == w.dims) break;
        const long next = divided(e, w.size[d], small), place = e - next * w.size[d];
        #pragma unroll
        for (int k = 0; k < N; k++) offsets[k] += place * w.step[k][d];
        e = next;
    }
}
