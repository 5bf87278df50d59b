// Reports of positions out of range: one word that the host sees (backends/cuda/faults.py).
#pragma once
#include "elements.cuh"

struct Fault { long address, site; }; // site 0: the position was reported before

static __device__ inline void report(const Fault &f, long position) {
    if (f.site) *(volatile long *)f.address = f.site << 40 | (position & ((1L << 40) - 1));
}
// A position as it is, or counted from the end where that is allowed; of one out of range the report, and -1.
static __device__ inline long checked(const Fault &f, long position, long size, bool wrap) {
    const long at = wrap && position < 0 ? position + size : position;
    if ((unsigned long)at < (unsigned long)size) return at;
    report(f, position);
    return -1;
}
