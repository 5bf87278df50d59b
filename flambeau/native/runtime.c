// Threads for all native code: a pool whose members take shares of a parallel region, first come, first served.
//
// A region has as many shares as threads were asked for, numbered; what a share does depends on its number alone, so results do
// not depend on who ran it. The caller takes shares too, and goes on as soon as all are done: a helper that was not woken in
// time finds nothing left, and nobody waits for it. Helpers look for work for a while before they sleep.
//! now
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

#define MOST 64              // threads
#define HOT 6400             // looks for work before a helper sleeps (some 100 us)
#define PATIENT 1000         // looks for the last share's end before the caller lets others run

int fl_threads = 1;

//: fl_set_threads(i)
void fl_set_threads(int n) { fl_threads = n < 1 ? 1 : n > MOST ? MOST : n; }

//: i fl_get_threads()
int fl_get_threads(void) { return fl_threads; }

typedef void (*work_t)(void *);
static struct {
    work_t work;
    void *data;
    unsigned shares;
    uint64_t ticket;           // number of the region << 16 | next share; no share is left when it is >= `shares`
    unsigned done;             // shares that are finished
    unsigned arrived, phase;   // at a barrier
} region;
static int calls;              // what sleeping helpers wait on: goes up with each region
static int asleep;
static int helpers;            // threads of the pool
static pthread_t team[MOST];
static int core = -1;          // where the caller was when helpers were last told to keep off
static pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER, shared = PTHREAD_MUTEX_INITIALIZER;
static __thread int number = 0, count = 1;
static __thread char inside = 0;

int fl_share_number(void) { return number; }
int fl_share_count(void) { return count; }

// A region that this thread runs all by itself, begun and ended by the compiler's code instead of by fl_parallel.
void fl_alone(int begins) {
    static __thread int of_number, of_count;
    if (begins) { of_number = number; of_count = count; }
    number = begins ? 0 : of_number;
    count = begins ? 1 : of_count;
}

void fl_lock(void) { pthread_mutex_lock(&shared); }
void fl_unlock(void) { pthread_mutex_unlock(&shared); }

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

#ifdef __linux__
static void wait_on(int *word, int value) { syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, 0, 0, 0); }
static void wake_all(int *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, MOST, 0, 0, 0); }

// Helpers are kept off the caller's core: the system likes to wake a thread where it was called from, and there it would have
// to wait for the caller.
static void keep_off(void) {
    int here = sched_getcpu();
    if (here == core) return;
    core = here;
    cpu_set_t allowed;
    if (here < 0 || sched_getaffinity(0, sizeof allowed, &allowed) || CPU_COUNT(&allowed) < 2) return;
    CPU_CLR(here, &allowed);
    for (int i = 0; i < helpers; i++) pthread_setaffinity_np(team[i], sizeof allowed, &allowed);
}
#else
static void keep_off(void) {}
static void wait_on(int *word, int value) { usleep(50); }
static void wake_all(int *word) {}
#endif

// Runs shares of the present region until none is left.
static void take(void) {
    for (;;) {
        uint64_t ticket = __atomic_load_n(&region.ticket, __ATOMIC_ACQUIRE);
        unsigned share = ticket & 0xffff, shares = region.shares;
        if (share >= shares) return;
        work_t work = region.work;
        void *data = region.data;
        if (!__atomic_compare_exchange_n(&region.ticket, &ticket, ticket + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) continue;
        number = share;
        count = shares;
        inside = 1;
        work(data);
        inside = 0;
        number = 0;
        count = 1;
        __atomic_add_fetch(&region.done, 1, __ATOMIC_ACQ_REL);
    }
}

static void *helper(void *nothing) {
    int seen = 0;
    for (;;) {
        int looks = 0;
        while (__atomic_load_n(&calls, __ATOMIC_ACQUIRE) == seen) {
            if (++looks < HOT) {
                if (looks % 64) relax();
                else sched_yield();  // on a busy machine the caller may be waiting for this very core
                continue;
            }
            __atomic_add_fetch(&asleep, 1, __ATOMIC_SEQ_CST);
            while (__atomic_load_n(&calls, __ATOMIC_SEQ_CST) == seen) wait_on(&calls, seen);
            __atomic_sub_fetch(&asleep, 1, __ATOMIC_SEQ_CST);
        }
        seen = __atomic_load_n(&calls, __ATOMIC_ACQUIRE);
        take();
    }
    return 0;
}

// In a forked child the helpers are gone: it makes its own.
static void forked(void) {
    helpers = 0;
    asleep = 0;
    core = -1;
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    owner = shared = fresh;
    region.shares = 0;
}

static void grow(int wanted) {
    static char watched = 0;
    if (!watched) {
        watched = 1;
        pthread_atfork(0, 0, forked);
    }
    core = -1;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 8 << 20);
    while (helpers < wanted) {
        if (pthread_create(&team[helpers], &attributes, helper, 0)) break;
        helpers++;
    }
    pthread_attr_destroy(&attributes);
}

// work(data) once per share. Inside another region, or while another thread has the pool, as one share.
void fl_parallel(work_t work, void *data, unsigned shares) {
    if (shares > 1 && !inside && pthread_mutex_trylock(&owner) == 0) {
        if (helpers < (int)shares - 1) grow(shares - 1);
        if (helpers >= (int)shares - 1) {
            uint64_t next = ((__atomic_load_n(&region.ticket, __ATOMIC_RELAXED) >> 16) + 1) << 16;
            region.work = work;
            region.data = data;
            __atomic_store_n(&region.done, 0, __ATOMIC_RELAXED);
            __atomic_store_n(&region.arrived, 0, __ATOMIC_RELAXED);
            __atomic_store_n(&region.ticket, next | 0xffff, __ATOMIC_RELEASE);  // nothing to take while shares changes
            __atomic_store_n(&region.shares, shares, __ATOMIC_RELEASE);
            __atomic_store_n(&region.ticket, next, __ATOMIC_SEQ_CST);
            __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
            keep_off();
            if (__atomic_load_n(&asleep, __ATOMIC_SEQ_CST)) wake_all(&calls);
            take();
            for (long looks = 0; __atomic_load_n(&region.done, __ATOMIC_ACQUIRE) < shares; looks++) {
                if (looks < PATIENT) relax();
                else sched_yield();
            }
            pthread_mutex_unlock(&owner);
            return;
        }
        pthread_mutex_unlock(&owner);
    }
    int before = number, of = count;
    char was = inside;
    number = 0;
    count = 1;
    inside = 1;
    work(data);
    inside = was;
    number = before;
    count = of;
}

// All shares of a region meet. (One that nobody has taken yet is waited for: the helpers are on their way.)
void fl_barrier(void) {
    if (count == 1) return;
    unsigned phase = __atomic_load_n(&region.phase, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&region.arrived, 1, __ATOMIC_ACQ_REL) == (unsigned)count) {
        __atomic_store_n(&region.arrived, 0, __ATOMIC_RELAXED);
        __atomic_add_fetch(&region.phase, 1, __ATOMIC_RELEASE);
        return;
    }
    for (long looks = 0; __atomic_load_n(&region.phase, __ATOMIC_ACQUIRE) == phase; looks++) {
        if (looks < PATIENT) relax();
        else sched_yield();
    }
}
