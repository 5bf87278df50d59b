// What every native kernel shares: the number of threads, and how a loop is split among them.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

extern int fl_threads;  // how many threads a large loop may use (runtime.c)

#ifdef _OPENMP
// The compiler turns `#pragma omp` into calls of a few functions. They are ours (runtime.c): a region's shares are taken by
// whichever thread comes first, so a helper that the system does not let run holds nobody up, and no other library's idea of
// OpenMP gets in the way.
void fl_parallel(void (*work)(void *), void *data, unsigned shares);
void fl_barrier(void);
void fl_lock(void);
void fl_unlock(void);
void fl_alone(int begins);
int fl_share_number(void);
int fl_share_count(void);
#ifdef FL_TOGETHER  // several sources become one library: all bring these functions, and one of each is kept
#define FL_ONE_OF_MANY , weak
#else
#define FL_ONE_OF_MANY
#endif
#ifdef __clang__
#include "clang_omp.h"
#else
// Hidden from other libraries, but there when the compiler writes the calls, though nothing calls them before.
#define FL_LOCAL __attribute__((visibility("hidden"), externally_visible FL_ONE_OF_MANY))
FL_LOCAL void GOMP_parallel(void (*work)(void *), void *data, unsigned shares, unsigned flags) { fl_parallel(work, data, shares); }
FL_LOCAL void GOMP_barrier(void) { fl_barrier(); }
FL_LOCAL void GOMP_atomic_start(void) { fl_lock(); }
FL_LOCAL void GOMP_atomic_end(void) { fl_unlock(); }
FL_LOCAL _Bool GOMP_single_start(void) { return fl_share_number() == 0; }
FL_LOCAL int omp_get_thread_num(void) { return fl_share_number(); }
FL_LOCAL int omp_get_num_threads(void) { return fl_share_count(); }
#endif
#else
static inline int omp_get_thread_num(void) { return 0; }
static inline int omp_get_num_threads(void) { return 1; }
#endif

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
