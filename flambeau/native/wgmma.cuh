// Products of matrices in shared memory by a warpgroup, four warps (wgmma of sm_90a): 64 rows by 64 or 128 columns over 16,
// sums in float. A matrix lies in panels: rows of 128 bytes (64 elements), 8 of them an atom of 1024 bytes, whose 16-byte parts
// change places in each row (part p of row r lies at p ^ r % 8), so that neither rows nor columns meet in one bank. Warp w of
// the group has rows 16 w to 16 w + 15 of the sums, its lanes what they have in matrix.cuh. Sums are there after
// `products_done` and `settled`. For the host the same is said in C: there they are there at once.
#pragma once
#include "matrix.cuh"

enum { PANEL = 64, LINE = 128, ATOM = 1024 }; // columns of a panel; bytes of its row, of eight rows

// A matrix as an operand: where the sum runs along its rows, and where it runs down its columns (turned), 16 at a time. apart:
// bytes between panels.
template <int TURNED> struct Operand {
    unsigned long bits;
    __device__ Operand operator+(int bytes) const { return {bits + (bytes >> 4)}; }  // further on in shared memory
};
FL_DEVICE unsigned shared_place(const void *at);
FL_DEVICE unsigned long described(const void *at, int apart) {
    return (shared_place(at) & 0x3ffff) >> 4 | (unsigned long)(apart >> 4) << 16 | (unsigned long)(ATOM >> 4) << 32 | 1ul << 62;
}
FL_DEVICE Operand<0> along_rows(const void *at) { return {described(at, 16)}; }
FL_DEVICE Operand<1> down_columns(const void *at, int apart) { return {described(at, apart)}; }

// Where 16 bytes of a panel lie: part (of 8) of a row.
FL_DEVICE char *part_of(char *panel, int row, int part) { return panel + row * LINE + ((part ^ row % 8) << 4); }

#ifdef __CUDACC__
#define SHARED_ROOM(name, size) extern __shared__ __align__(1024) char name[];
FL_DEVICE unsigned shared_place(const void *at) { return (unsigned)__cvta_generic_to_shared(at); }

#define FOUR(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define SIXTEEN(i) FOUR(i), FOUR(i + 4), FOUR(i + 8), FOUR(i + 12)
#define SUMS_32 SIXTEEN(0), SIXTEEN(16)
#define SUMS_64 SUMS_32, SIXTEEN(32), SIXTEEN(48)
#define NAMES_32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15" \
    ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES_64 NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55," \
    "%56,%57,%58,%59,%60,%61,%62,%63"
// The first operand in shared memory, or in the registers of the group. more: to what is there; else in its place. a to g are
// the numbers of asm's operands behind the sums.
#define PRODUCTS(A, kind, columns, n, a, b, c_, d, e, f, g)                                                                   \
    template <int U, int V> FL_DEVICE void products(float (&c)[n], Operand<U> x, Operand<V> y, int more, A) {                 \
        asm volatile("{.reg .pred p; setp.ne.b32 p, " c_ ", 0; wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." kind "." \
                     kind " {" NAMES_##n "}, " a ", " b ", p, 1, 1, " d ", " e ";}"                                           \
                     : SUMS_##n : "l"(x.bits), "l"(y.bits), "r"(more), "n"(U), "n"(V));                                       \
    }                                                                                                                         \
    template <int V> FL_DEVICE void products(float (&c)[n], const unsigned (&x)[4], Operand<V> y, int more, A) {              \
        asm volatile("{.reg .pred p; setp.ne.b32 p, " f ", 0; wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." kind "."  \
                     kind " {" NAMES_##n "}, {" a ", " b ", " c_ ", " d "}, " e ", p, 1, 1, " g ";}"                          \
                     : SUMS_##n : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(y.bits), "r"(more), "n"(V));                \
    }
PRODUCTS(bf16, "bf16", "64", 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
PRODUCTS(f16, "f16", "64", 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
PRODUCTS(bf16, "bf16", "128", 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
PRODUCTS(f16, "f16", "128", 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")

// A number that is the same in all threads of a warp, said so that the compiler knows.
FL_DEVICE int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }
FL_DEVICE void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
FL_DEVICE void products_sent() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LATER> FL_DEVICE void products_done() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(LATER) : "memory");
}
// No reading of sums before, no writing after: a compiler sees only that they are made.
template <int N> FL_DEVICE void settled(float (&c)[N]) {
    #pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(c[i]) :: "memory");
}
// What this thread has written to shared memory is seen by products after the next barrier.
FL_DEVICE void shown_to_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// The inverse of load_four.
FL_DEVICE void store_four(void *row, const unsigned *r) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};"
                 :: "r"(shared_place(row)), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
// Of four numbers in memory that other blocks write to, too, in turns: added to, and read.
FL_DEVICE void add_four(float *to, const float *x) {
    asm volatile("red.global.add.v4.f32 [%0], {%1,%2,%3,%4};"
                 :: "l"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
}
FL_DEVICE void read_four(float *x, const float *from) {
    asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3]) : "l"(from) : "memory");
}
// A warp waits until as many turns were taken before it; and says, when its own is over, that all it wrote can be seen.
FL_DEVICE void wait_turn(const int *turn, int before) {
    if (threadIdx.x % 32 == 0) {
        int now;
        do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory"); while (now < before);
    }
    __syncwarp();
}
FL_DEVICE void end_turn(int *turn, int before) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) asm volatile("st.release.gpu.global.s32 [%0], %1;" :: "l"(turn), "r"(before + 1) : "memory");
}
#else
#define SHARED_ROOM(name, size) alignas(1024) static char name[size]; host_room = name;
static char *host_room;
FL_DEVICE unsigned shared_place(const void *at) { return (unsigned)((const char *)at - host_room); }
static unsigned short host_element(unsigned long bits, int turned, int row, int k) {
    const unsigned start = (bits & 0x3fff) << 4, apart = (bits >> 16 & 0x3fff) << 4, atom = (bits >> 32 & 0x3fff) << 4;
    const unsigned at = start + (turned ? row / 64 * apart + row % 64 * 2 + k / 8 * atom + k % 8 * 128
                                        : row / 8 * atom + row % 8 * 128 + k * 2);
    return *(const unsigned short *)(host_room + (at ^ (at >> 7 & 7) << 4));
}
template <int N, class A, class X> static void host_products(float (&c)[N], X first, unsigned long y, int turned, int more, A) {
    const int lane = threadIdx.x % 32, base = threadIdx.x % 128 / 32 * 16;
    for (int e = 0; e < 2; e++) {
        A left[16], right;
        for (int k = 0; k < 16; k++) left[k].bits = first(base + lane / 4 + 8 * e, k);
        for (int i = 2 * e; i < N; i += i % 2 ? 3 : 1) {
            float sum = more ? c[i] : 0;
            for (int k = 0; k < 16; k++) {
                right.bits = host_element(y, turned, i / 4 * 8 + lane % 4 * 2 + i % 2, k);
                sum += value_of(left[k]) * value_of(right);
            }
            c[i] = sum;
        }
    }
}
template <int N, int U, int V, class A> void products(float (&c)[N], Operand<U> x, Operand<V> y, int more, A a) {
    host_products(c, [&](int row, int k) { return host_element(x.bits, U, row, k); }, y.bits, V, more, a);
}
template <int N, int V, class A> void products(float (&c)[N], const unsigned (&x)[4], Operand<V> y, int more, A a) {
    const int warp = threadIdx.x & ~31;
    for (int i = 0; i < 4; i++) host_first[threadIdx.x][i] = x[i];
    __syncthreads();
    host_products(c, [&](int row, int k) {
        return (unsigned short)(host_first[warp + row % 8 * 4 + k % 8 / 2][row % 16 / 8 + k / 8 * 2] >> 16 * (k & 1));
    }, y.bits, V, more, a);
    __syncthreads();
}
FL_DEVICE int uniform(int x) { return x; }
FL_DEVICE void products_begin() {}
FL_DEVICE void products_sent() {}
template <int LATER> void products_done() {}
template <int N> void settled(float (&)[N]) {}
FL_DEVICE void shown_to_products() {}
FL_DEVICE void store_four(void *row, const unsigned *r) {
    const int own = threadIdx.x, warp = own & ~31, lane = own & 31;
    for (int i = 0; i < 4; i++) host_first[own][i] = r[i];
    __syncthreads();
    for (int i = 0; i < 4; i++) ((unsigned *)row)[i] = host_first[warp + lane % 8 * 4 + i][lane / 8];
    __syncthreads();
}
FL_DEVICE void add_four(float *to, const float *x) { for (int i = 0; i < 4; i++) to[i] += x[i]; }
FL_DEVICE void read_four(float *x, const float *from) { memcpy(x, from, 16); }
FL_DEVICE void wait_turn(const int *turn, int before) { if (*turn < before) abort(); } // blocks come one after the other
FL_DEVICE void end_turn(int *turn, int before) { __syncthreads(); *turn = before + 1; }
#endif
