// What every native kernel shares: the number of threads, and how a loop is split among them.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#else
static inline int omp_get_thread_num(void) { return 0; }
static inline int omp_get_num_threads(void) { return 1; }
#endif

extern int fl_threads;  // how many threads a large loop may use (runtime.c)

// How many threads a loop over `work` simple steps deserves: waking a thread costs as much as some ten thousand of them.
#define FL_GRAIN 32768
static inline int fl_team(long work) { return work >= 2 * FL_GRAIN ? fl_threads : 1; }

// Thread t of n takes [*from, *to) of `count` items, in multiples of `unit`.
static inline void fl_share(long count, long unit, int t, int n, long *from, long *to) {
    long units = (count + unit - 1) / unit;
    *from = units * t / n * unit;
    *to = units * (t + 1) / n * unit;
    if (*from > count) *from = count;
    if (*to > count) *to = count;
}
