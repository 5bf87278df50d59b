// What a processor really does, found by doing it: a flag may promise what a hypervisor, an emulator or a kernel does not grant.
#pragma once
#if defined(__AVX512F__) && defined(__linux__) && (defined(__clang__) || __GNUC__ >= 10)
#define FL_PAIRS  // the assembler knows products of pairs of bfloat16
#include <setjmp.h>
#include <signal.h>
#include <string.h>

static __thread sigjmp_buf fl_refused;
static __thread int fl_trying;
static struct sigaction fl_before;

static void fl_on_refusal(int number, siginfo_t *info, void *context) {
    if (fl_trying) siglongjmp(fl_refused, 1);
    if (fl_before.sa_flags & SA_SIGINFO) fl_before.sa_sigaction(number, info, context);  // another thread's, meanwhile
    else if (fl_before.sa_handler != SIG_DFL && fl_before.sa_handler != SIG_IGN) fl_before.sa_handler(number);
    else signal(number, SIG_DFL);
}

// Whether vdpbf16ps runs and gives 1 + 2 * 3 + 4 * 5.
static int fl_try_pairs(void) {
    typedef float V __attribute__((vector_size(64)));
    struct sigaction ours;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = fl_on_refusal;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER;
    if (sigaction(SIGILL, &ours, &fl_before)) return 0;
    volatile int right = 0;
    fl_trying = 1;
    if (!sigsetjmp(fl_refused, 1)) {
        uint32_t left[16], across[16];
        V sum, x, y;
        for (int i = 0; i < 16; i++) left[i] = 0x40804000, across[i] = 0x40a04040;  // (2, 4) and (3, 5)
        memcpy(&x, left, sizeof x), memcpy(&y, across, sizeof y);
        sum = x - x + 1;
        __asm__ volatile("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
        right = 1;
        for (int i = 0; i < 16; i++)
            if (sum[i] != 27) right = 0;
    }
    fl_trying = 0;
    sigaction(SIGILL, &fl_before, NULL);
    return right;
}

static int fl_pairs_known;  // 0: not tried, 1: no, 2: yes
static inline int fl_multiplies_pairs(void) {
    if (!fl_pairs_known) fl_pairs_known = 1 + fl_try_pairs();
    return fl_pairs_known == 2;
}
static inline void fl_without_pairs(int without) { fl_pairs_known = without ? 1 : 0; }
#else
static inline void fl_without_pairs(int without) {}
static inline int fl_multiplies_pairs(void) { return 0; }
#endif
