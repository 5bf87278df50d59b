// What a processor really does, found by doing it: a flag may promise what a hypervisor, an emulator or a kernel does not grant.
#pragma once
#if defined(__AVX512F__) && defined(__linux__) && (defined(__clang__) || __GNUC__ >= 10)
#define FL_PAIRS  // the assembler knows products of pairs of bfloat16, and of bytes
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
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

// Runs a function that uses an instruction, and says whether the processor let it, and it gave the right result.
static int fl_try(int (*right)(void)) {
    struct sigaction ours;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = fl_on_refusal;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER;
    if (sigaction(SIGILL, &ours, &fl_before)) return 0;
    volatile int done = 0;
    fl_trying = 1;
    if (!sigsetjmp(fl_refused, 1)) done = right();
    fl_trying = 0;
    sigaction(SIGILL, &fl_before, NULL);
    return done;
}

typedef float fl_sixteen __attribute__((vector_size(64)));
typedef int fl_sixteen_ints __attribute__((vector_size(64)));

static int fl_right_pairs(void) {  // 1 + 2 * 3 + 4 * 5
    uint32_t left[16], across[16];
    fl_sixteen sum, x, y;
    for (int i = 0; i < 16; i++) left[i] = 0x40804000, across[i] = 0x40a04040;
    memcpy(&x, left, sizeof x), memcpy(&y, across, sizeof y);
    sum = x - x + 1;
    __asm__ volatile("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
    for (int i = 0; i < 16; i++)
        if (sum[i] != 27) return 0;
    return 1;
}

static int fl_right_bytes(void) {  // 1 + 4 * 200 * -3
    fl_sixteen_ints sum = {0}, x, y;
    memset(&x, 200, sizeof x), memset(&y, -3, sizeof y);
    sum += 1;
    __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
    for (int i = 0; i < 16; i++)
        if (sum[i] != -2399) return 0;
    return 1;
}

// Products of pairs of bfloat16, and of four bytes with four: 0: not tried, 1: no, 2: yes.
static int fl_pairs_known, fl_bytes_known;
static inline int fl_multiplies_pairs(void) {
    if (!fl_pairs_known) fl_pairs_known = 1 + fl_try(fl_right_pairs);
    return fl_pairs_known == 2;
}
static inline int fl_multiplies_bytes(void) {
    if (!fl_bytes_known) fl_bytes_known = 1 + fl_try(fl_right_bytes);
    return fl_bytes_known == 2;
}
static inline void fl_without_pairs(int without) { fl_pairs_known = without ? 1 : 0; }
static inline void fl_without_bytes(int without) { fl_bytes_known = without ? 1 : 0; }
#else
static inline int fl_multiplies_pairs(void) { return 0; }
static inline int fl_multiplies_bytes(void) { return 0; }
static inline void fl_without_pairs(int without) {}
static inline void fl_without_bytes(int without) {}
#endif
