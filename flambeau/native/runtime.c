// Threads for all native code: a pool whose members take shares of a parallel region.
//
// A region has as many shares as threads were asked for, numbered; what a share does depends on its number alone, so results do
// not depend on who ran it. Each thread begins with the share of its own number, whose memory its core has seen before, and then
// takes what is left of the others': a helper that was not woken in time finds nothing to do, and nobody waits for it. Helpers
// look for work for a while before they sleep.
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
    uint64_t round;            // number of the region, even; odd while the fields above change
} region;
static struct { unsigned done; char rest[60]; } finished;               // shares that are finished; lines of their own:
static struct { uint64_t round; char rest[56]; } claimed[MOST];         // the last region in which a share was taken
static unsigned arrived, met;                                           // at a barrier: how many, how often all
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

// Runs the share of this number in the present region, then whatever nobody has taken. A region does not end before all of its
// shares are taken, so a share whose claim is older belongs to a region that is still there.
static void take(unsigned first) {
    uint64_t round = __atomic_load_n(&region.round, __ATOMIC_ACQUIRE);
    unsigned shares = __atomic_load_n(&region.shares, __ATOMIC_RELAXED);
    work_t work = __atomic_load_n(&region.work, __ATOMIC_RELAXED);
    void *data = __atomic_load_n(&region.data, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (round & 1 || __atomic_load_n(&region.round, __ATOMIC_RELAXED) != round || first >= shares) return;
    for (unsigned k = 0; k < shares; k++) {
        unsigned share = first + k < shares ? first + k : first + k - shares;
        uint64_t last = __atomic_load_n(&claimed[share].round, __ATOMIC_ACQUIRE);
        if (last >= round) continue;
        if (!__atomic_compare_exchange_n(&claimed[share].round, &last, round, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) continue;
        number = share;
        count = shares;
        inside = 1;
        work(data);
        inside = 0;
        number = 0;
        count = 1;
        __atomic_add_fetch(&finished.done, 1, __ATOMIC_ACQ_REL);
    }
}

static void *helper(void *own) {
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
        take((unsigned)(uintptr_t)own);
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
    region.round += region.round & 1;
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
        if (pthread_create(&team[helpers], &attributes, helper, (void *)(uintptr_t)(helpers + 1))) break;
        helpers++;
    }
    pthread_attr_destroy(&attributes);
}

// work(data) once per share. Inside another region, or while another thread has the pool, as one share.
void fl_parallel(work_t work, void *data, unsigned shares) {
    if (shares > 1 && !inside && pthread_mutex_trylock(&owner) == 0) {
        if (helpers < (int)shares - 1) grow(shares - 1);
        if (helpers >= (int)shares - 1) {
            uint64_t next = region.round + 2;
            __atomic_store_n(&region.round, next - 1, __ATOMIC_RELAXED);
            __atomic_thread_fence(__ATOMIC_RELEASE);
            __atomic_store_n(&region.work, work, __ATOMIC_RELAXED);
            __atomic_store_n(&region.data, data, __ATOMIC_RELAXED);
            __atomic_store_n(&region.shares, shares, __ATOMIC_RELAXED);
            __atomic_store_n(&finished.done, 0, __ATOMIC_RELAXED);
            __atomic_store_n(&arrived, 0, __ATOMIC_RELAXED);
            __atomic_store_n(&region.round, next, __ATOMIC_SEQ_CST);
            __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
            keep_off();
            if (__atomic_load_n(&asleep, __ATOMIC_SEQ_CST)) wake_all(&calls);
            take(0);
            for (long looks = 0; __atomic_load_n(&finished.done, __ATOMIC_ACQUIRE) < shares; looks++) {
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
    unsigned before = __atomic_load_n(&met, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&arrived, 1, __ATOMIC_ACQ_REL) == (unsigned)count) {
        __atomic_store_n(&arrived, 0, __ATOMIC_RELAXED);
        __atomic_add_fetch(&met, 1, __ATOMIC_RELEASE);
        return;
    }
    for (long looks = 0; __atomic_load_n(&met, __ATOMIC_ACQUIRE) == before; looks++) {
        if (looks < PATIENT) relax();
        else sched_yield();
    }
}
