// Products of small matrices by a warp (mma.sync, 16 x 8 x 16, sums in float), loads of their parts, and what lanes tell each other.
// Lane l has, with g = l / 4 and t = l % 4: of the first matrix rows g and g + 8, columns 2t, 2t + 1 and 8 further; of the second
// rows 2t, 2t + 1 and 8 further in column g; of the sums columns 2t, 2t + 1 in rows g and g + 8. For the host, where threads take
// turns, the same is said in C: every thread of the block has to come by.
#pragma once
#include "elements.cuh"

FL_DEVICE unsigned two(bf16 a, bf16 b) { return a.bits | (unsigned)b.bits << 16; }
FL_DEVICE unsigned two(f16 a, f16 b) { return a.bits | (unsigned)b.bits << 16; }

#ifdef __CUDACC__
FL_DEVICE void multiply(float *c, const unsigned *a, unsigned b0, unsigned b1, bf16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
FL_DEVICE void multiply(float *c, const unsigned *a, unsigned b0, unsigned b1, f16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Four matrices of 8 x 8 from shared memory: lane l points at row l % 8 of matrix l / 8. Each lane gets two elements next to each
// other in row g of each (turned: two elements below each other in column g).
FL_DEVICE void load_four(unsigned *r, const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}
FL_DEVICE void load_four_turned(unsigned *r, const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}
FL_DEVICE float from_lane(float x, int apart) { return __shfl_xor_sync(0xffffffffu, x, apart); }
FL_DEVICE float power_of_two(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
FL_DEVICE unsigned rounded(float x, float y, bf16) {
    unsigned r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x)); return r;
}
FL_DEVICE unsigned rounded(float x, float y, f16) {
    unsigned r; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x)); return r;
}
// 16 bytes to shared memory, on their way while the thread goes on; there: whether they exist, else zeros. What a thread has sent
// for is there after `arrived`, for the others after a barrier.
FL_DEVICE void send_for(void *to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}
FL_DEVICE void send_for_one(float *to, const float *from, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 4 : 0) : "memory");
}
FL_DEVICE void arrived() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#else
FL_DEVICE float power_of_two(float x) { return exp2f(x); }
template <class A> FL_DEVICE unsigned rounded(float x, float y, A) { return two(to<A>(x), to<A>(y)); }
FL_DEVICE void send_for(void *to, const void *from, bool there) { there ? memcpy(to, from, 16) : memset(to, 0, 16); }
FL_DEVICE void send_for_one(float *to, const float *from, bool there) { *to = there ? *from : 0; }
FL_DEVICE void arrived() {}
static unsigned host_first[1024][4], host_second[1024][2];
static const unsigned short *host_rows[1024];
static float host_told[1024];
template <class A> FL_DEVICE void multiply(float *c, const unsigned *a, unsigned b0, unsigned b1, A) {
    const int own = threadIdx.x, warp = own & ~31, lane = own & 31;
    for (int i = 0; i < 4; i++) host_first[own][i] = a[i];
    host_second[own][0] = b0, host_second[own][1] = b1;
    __syncthreads();
    for (int i = 0; i < 4; i++) {
        const int row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 16; k++) {
            const unsigned x = host_first[warp + row % 8 * 4 + k % 8 / 2][(row >= 8) + 2 * (k >= 8)] >> 16 * (k & 1);
            const unsigned y = host_second[warp + column * 4 + k % 8 / 2][k >= 8] >> 16 * (k & 1);
            A left, right;
            left.bits = x & 0xffff, right.bits = y & 0xffff;
            c[i] += value_of(left) * value_of(right);
        }
    }
    __syncthreads();
}
static void host_load(unsigned *r, const void *row, bool turned) {
    const int own = threadIdx.x, warp = own & ~31, g = (own & 31) / 4, t = own % 4;
    host_rows[own] = (const unsigned short *)row;
    __syncthreads();
    for (int i = 0; i < 4; i++) {
        const unsigned short *const *rows = host_rows + warp + 8 * i;
        r[i] = turned ? rows[2 * t][g] | (unsigned)rows[2 * t + 1][g] << 16 : rows[g][2 * t] | (unsigned)rows[g][2 * t + 1] << 16;
    }
    __syncthreads();
}
FL_DEVICE void load_four(unsigned *r, const void *row) { host_load(r, row, false); }
FL_DEVICE void load_four_turned(unsigned *r, const void *row) { host_load(r, row, true); }
FL_DEVICE float from_lane(float x, int apart) {
    host_told[threadIdx.x] = x;
    __syncthreads();
    const float found = host_told[threadIdx.x ^ apart];
    __syncthreads();
    return found;
}
#endif
