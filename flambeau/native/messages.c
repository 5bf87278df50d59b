// Requests of MPI that are under way (distributed/mpi/requests.py). MPI moves data only inside of its own calls, so somebody has to call
// it while Python computes: a thread of this file, which never needs Python's lock. It rests while nothing is under way, and while
// another thread waits for a request, which moves everything as well.
// This file needs none of MPI's headers: MPI_Test is handed over, a request is whatever lies at the address that Python gives.
//! flags -pthread
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <time.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

typedef int (*test_function)(void *request, int *done, void *status);

// Lies in Python's memory; Python keeps it, and the buffers of its requests, until it is finished.
struct work {
    int64_t left;         // requests that are not done yet; they are the first ones
    int64_t error;        // MPI's code of the first one that failed
    int64_t watched;      // whether it is in the thread's list
    struct work *next;
    struct { void *request, *status; } requests[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static struct work *list;
static volatile int waiting, started;
static test_function test;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void pause_for(long nanoseconds) {
    struct timespec t = {0, nanoseconds};
    nanosleep(&t, 0);
}

// With the lock held: asks MPI about the requests that are left. A request that is done leaves its place to the last one.
static void advance(struct work *w) {
    for (int64_t i = 0; i < w->left;) {
        int done = 0, error = test(w->requests[i].request, &done, w->requests[i].status);
        if (error && !w->error)
            w->error = error;
        if (error || done)
            w->requests[i] = w->requests[--w->left];
        else
            i++;
    }
    if (w->left || !w->watched)
        return;
    for (struct work **at = &list; *at; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            break;
        }
    w->watched = 0;
}

// A look that took longer than looking around takes has moved data, and there will be more: nobody should sleep then, since MPI hands
// over a piece at a time. What counts is when something moved last.
static const double BRIEF = 3e-6;

// Looks at the works, from the thread that has nothing else to do. Between looks it sleeps, so that waiting for a slow peer costs the
// computation nothing: for as short as the system can while data are moving, longer and longer while they are not.
static void *watch(void *unused) {
#ifdef __linux__
    prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds that a sleep may take longer: fifty thousand otherwise
#endif
    double moved = 0;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!list || waiting)
            pthread_cond_wait(&wake, &lock), moved = now();
        double before = now(), after;
        int count = 0;
        for (struct work *w = list, *next; w; w = next, count++)
            next = w->next, advance(w);
        after = now();
        pthread_mutex_unlock(&lock);
        if (after - before > BRIEF * (count + 1))
            moved = after, sched_yield();
        else
            pause_for(after - moved < 1e-3 ? 5000 : after - moved < 1e-2 ? 20000 : 100000);
        pthread_mutex_lock(&lock);
    }
    return unused;
}

//: fl_messages_attach(p)
void fl_messages_attach(void *mpi_test) {
    test = (test_function)mpi_test;
}

// Has the thread move a work's data from now on.
//: fl_messages_watch(p)
void fl_messages_watch(struct work *w) {
    pthread_mutex_lock(&lock);
    if (!started) {
        pthread_t thread;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        started = !pthread_create(&thread, &attributes, watch, 0);
    }
    w->watched = 1;
    struct work **at = &list;
    while (*at)
        at = &(*at)->next;
    w->next = 0, *at = w;
    pthread_cond_signal(&wake);
    pthread_mutex_unlock(&lock);
}

// Whether a work is finished after one look.
//: l fl_messages_look(p)
int64_t fl_messages_look(struct work *w) {
    pthread_mutex_lock(&lock);
    advance(w);
    int64_t finished = !w->left;
    pthread_mutex_unlock(&lock);
    return finished;
}

// Waits for a work, at most so many seconds; says whether it is finished. First in a tight loop, for answers that take microseconds; then
// leaving the core to whoever wants it, for several processes may share it; when nothing has moved for long, asleep most of the time.
//: l fl_messages_wait(pd)
int64_t fl_messages_wait(struct work *w, double seconds) {
    double start = now(), moved = start;
    int64_t finished = 0;
    __atomic_add_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
    for (long round = 0;; round++) {
        double before = now();
        pthread_mutex_lock(&lock);
        if (w->left)
            advance(w);
        finished = !w->left;
        pthread_mutex_unlock(&lock);
        if (finished)
            break;
        double after = now();
        if (after - start > seconds)
            break;
        if (after - before > BRIEF)
            moved = after;
        else if (round > 20 && after - moved < 3e-3)
            sched_yield();
        else if (round > 20)
            pause_for(after - moved < 0.1 ? 20000 : 100000);
    }
    pthread_mutex_lock(&lock);
    if (!__atomic_sub_fetch(&waiting, 1, __ATOMIC_SEQ_CST) && list)
        pthread_cond_signal(&wake);
    pthread_mutex_unlock(&lock);
    return finished;
}

// Forgets a work that will never be finished: its peer is gone, or never came.
//: fl_messages_drop(p)
void fl_messages_drop(struct work *w) {
    pthread_mutex_lock(&lock);
    w->left = 0;
    w->watched = 1;
    advance(w);
    pthread_mutex_unlock(&lock);
}
