// Clang turns `#pragma omp` into calls of these functions (runtime.h says why they are ours, too).
#pragma once
#include <stdarg.h>

#define FL_LOCAL __attribute__((visibility("hidden") FL_ONE_OF_MANY))
#define FL_MOST_SHARED 48  // variables that one region may share
typedef void (*fl_outlined)(int *, int *, ...);
struct fl_region { fl_outlined work; void *v[FL_MOST_SHARED]; };
static __thread unsigned fl_wanted;  // num_threads(...) of the next region

static void fl_run_share(void *data) {
    struct fl_region *r = data;
    int number = fl_share_number();
    // More arguments than a function has do no harm in the calling conventions of x86-64 and AArch64.
#define EIGHT(n) , r->v[n], r->v[n + 1], r->v[n + 2], r->v[n + 3], r->v[n + 4], r->v[n + 5], r->v[n + 6], r->v[n + 7]
    ((void (*)(int *, int *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
               void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
               void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
               void *, void *, void *, void *, void *, void *, void *, void *))r->work)(
        &number, &number EIGHT(0) EIGHT(8) EIGHT(16) EIGHT(24) EIGHT(32) EIGHT(40));
#undef EIGHT
}

FL_LOCAL void __kmpc_push_num_threads(void *place, int thread, int n) { fl_wanted = n < 1 ? 1 : n; }
FL_LOCAL int __kmpc_global_thread_num(void *place) { return fl_share_number(); }

FL_LOCAL void __kmpc_fork_call(void *place, int n, fl_outlined work, ...) {
    struct fl_region r = {work};
    va_list rest;
    if (n > FL_MOST_SHARED) abort();
    va_start(rest, work);
    for (int i = 0; i < n; i++) r.v[i] = va_arg(rest, void *);
    va_end(rest);
    unsigned shares = fl_wanted ? fl_wanted : fl_threads;
    fl_wanted = 0;
    fl_parallel(fl_run_share, &r, shares);
}

// A region whose if(...) says no: Clang calls the work itself.
FL_LOCAL void __kmpc_serialized_parallel(void *place, int thread) { fl_alone(1); }
FL_LOCAL void __kmpc_end_serialized_parallel(void *place, int thread) { fl_alone(0); }

#define FL_STATIC(name, type) \
    FL_LOCAL void name(void *place, int thread, int schedule, int *last, type *low, type *high, type *stride, type step, \
                       type chunk) { \
        type n = fl_share_count(), i = fl_share_number(), items = step > 0 ? (*high - *low) / step + 1 : (*low - *high) / -step + 1; \
        if (step > 0 ? *high < *low : *high > *low) items = 0; \
        type from = items * i / n, to = items * (i + 1) / n, start = *low; \
        *low = start + from * step; \
        *high = start + (to - 1) * step; \
        *stride = items * step; \
        *last = i == n - 1; \
    }
FL_STATIC(__kmpc_for_static_init_8, int64_t)
FL_STATIC(__kmpc_for_static_init_4, int32_t)
FL_STATIC(__kmpc_for_static_init_8u, int64_t)  // no loop here counts beyond 2^63
FL_LOCAL void __kmpc_for_static_fini(void *place, int thread) {}
FL_LOCAL void __kmpc_barrier(void *place, int thread) { fl_barrier(); }
FL_LOCAL int __kmpc_single(void *place, int thread) { return fl_share_number() == 0; }
FL_LOCAL void __kmpc_end_single(void *place, int thread) {}
FL_LOCAL int __kmpc_reduce_nowait(void *place, int thread, int n, size_t size, void *data, void *combine, void *lock) {
    fl_lock();
    return 1;  // this thread may combine now
}
FL_LOCAL void __kmpc_end_reduce_nowait(void *place, int thread, void *lock) { fl_unlock(); }
FL_LOCAL int __kmpc_reduce(void *place, int thread, int n, size_t size, void *data, void *combine, void *lock) {
    fl_lock();
    return 1;
}
FL_LOCAL void __kmpc_end_reduce(void *place, int thread, void *lock) {
    fl_unlock();
    fl_barrier();
}
FL_LOCAL int omp_get_thread_num(void) { return fl_share_number(); }
FL_LOCAL int omp_get_num_threads(void) { return fl_share_count(); }
