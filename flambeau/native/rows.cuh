// Rows of arrays (outer, n, inner), seen along n, and how threads share them. The text of a kernel says first, as constants:
//   MODE   WARP: 32 threads have a row; BLOCK: a block has one (both with inner 1); TILE: a block has 32 rows side by side
//   THREADS of a block
//   RUN    elements that a thread takes at once (1 in tiles)
//   ITEMS  runs of a thread, which stay in registers; 0: rows are longer, and read again in every pass
// and W, the type of sums.
#pragma once
#include "elements.cuh"

struct Rows { long rows, n, inner; };
enum { WARP, BLOCK, TILE };

struct Add { template <class T> __device__ T operator()(T x, T y) const { return x + y; } };
struct Most { template <class T> __device__ T operator()(T x, T y) const { return x != x ? x : x > y ? x : y; } };

// The join of what all threads of a row have, the same in each of them.
template <class T, class Join> static __device__ inline T across(T x, Join join) {
    __shared__ T met[MODE == TILE ? 1024 : 32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    if (MODE != TILE)
        for (int d = 16; d; d /= 2) x = join(x, __shfl_xor_sync(0xffffffffu, x, d));
    if (MODE == WARP || warps == 1) return x;
    __syncthreads(); // the last join may still be read
    if (MODE == TILE) met[threadIdx.x] = x;
    else if (!lane) met[warp] = x;
    __syncthreads();
    x = MODE == TILE ? met[lane] : met[0];
    for (int k = 1; k < warps; k++) x = join(x, met[MODE == TILE ? k * 32 + lane : k]);
    return x;
}

// One thread's view of its row, and the way to its next: for (Line l(rows); l.more(); l.next()). All threads go the same way.
struct Line {
    const Rows s;
    long first, row, base;
    int lane, lanes, chunks;
    bool real; // whether there is such a row at all
    __device__ Line(const Rows &rows) : s(rows) {
        lane = MODE == WARP ? threadIdx.x % 32 : MODE == BLOCK ? threadIdx.x : threadIdx.x / 32;
        lanes = MODE == WARP ? 32 : MODE == BLOCK ? blockDim.x : blockDim.x / 32;
        chunks = ITEMS ? ITEMS : (int)((s.n + (long)lanes * RUN - 1) / ((long)lanes * RUN));
        first = (long)blockIdx.x * together();
        settle();
    }
    static __device__ int together() { return MODE == WARP ? blockDim.x / 32 : MODE == TILE ? 32 : 1; }
    __device__ void settle() {
        row = first + (MODE == WARP ? threadIdx.x / 32 : MODE == TILE ? threadIdx.x % 32 : 0);
        real = row < s.rows;
        base = MODE == TILE ? row / s.inner * s.n * s.inner + row % s.inner : row * s.n;
    }
    __device__ bool more() const { return first < s.rows; }
    __device__ void next() { first += (long)gridDim.x * together(), settle(); }
    __device__ long at(int k) const { return ((long)k * lanes + lane) * RUN; }
    __device__ bool has(int k) const { return real && at(k) < s.n; }
    template <class F> __device__ void each(F f) const { // f(number of a run), for those that there are
        if (ITEMS) {
            #pragma unroll
            for (int k = 0; k < ITEMS; k++)
                if (has(k)) f(k);
        } else {
            #pragma unroll 4
            for (int k = 0; k < chunks; k++)
                if (has(k)) f(k);
        }
    }
};

// RUN elements from or to dense memory, in loads of at most 16 bytes.
template <class A> static __device__ inline void fetched(const A *from, W *to) {
    enum { STEP = RUN * sizeof(A) > 16 ? 16 / sizeof(A) : RUN };
    #pragma unroll
    for (int at = 0; at < RUN; at += STEP) {
        const Run<A, STEP> r = *(const Run<A, STEP> *)(from + at);
        #pragma unroll
        for (int j = 0; j < STEP; j++) to[at + j] = (W)value_of(r.at[j]);
    }
}
template <class R> static __device__ inline void put_run(R *o, const W *v) {
    enum { STEP = RUN * sizeof(R) > 16 ? 16 / sizeof(R) : RUN };
    #pragma unroll
    for (int at = 0; at < RUN; at += STEP) {
        Run<R, STEP> r;
        #pragma unroll
        for (int j = 0; j < STEP; j++) r.at[j] = to<R>(v[at + j]);
        store(o + at, r);
    }
}
template <class R> static __device__ inline void stored(R *o, const Line &l, int k, const W *v) {
    if (MODE == TILE) o[l.base + l.at(k) * l.s.inner] = to<R>(v[0]);
    else put_run(o + l.base + l.at(k), v);
}

template <class A> static __device__ inline void fetch(W *v, const A *row, const Line &l, int k) {
    if (MODE == TILE) v[0] = (W)value_of(row[l.at(k) * l.s.inner]);
    else fetched(row + l.at(k), v);
}

// A thread's elements of its row.
template <class A> struct Share {
    const A *row;
    W held[ITEMS ? ITEMS * RUN : 1];
    __device__ Share(const A *x, const Line &l) : row(x + l.base) {
        if (ITEMS) l.each([&](int k) { fetch(held + k * RUN, row, l, k); });
    }
    // Something is added to the elements; the sums are written down, and are the elements from here on.
    template <class B> __device__ void add(const B *more, A *sums, const Line &l) {
        W v[RUN], m[RUN];
        l.each([&](int k) {
            get(v, l, k), fetch(m, more + l.base, l, k);
            #pragma unroll
            for (int j = 0; j < RUN; j++) {
                v[j] = (W)value_of(to<A>(plain_sum(v[j], m[j])));
                if (ITEMS) held[ITEMS ? k * RUN + j : 0] = v[j];
            }
            stored(sums, l, k, v);
        });
        row = sums + l.base;
    }
    __device__ void get(W *v, const Line &l, int k) const {
        if (!ITEMS) return fetch(v, row, l, k);
        #pragma unroll
        for (int j = 0; j < RUN; j++) v[j] = held[k * RUN + j];
    }
};
#define FOR_RUN _Pragma("unroll") for (int j = 0; j < RUN; j++)

static __device__ inline float power(float x) { return exp_f32(x); }
static __device__ inline double power(double x) { return exp_f64(x); }
static __device__ inline float logarithm(float x) { return log_f32(x); }
static __device__ inline double logarithm(double x) { return log_f64(x); }

// The largest element of a row, and the sum of exp(element - largest). keep: those powers take the elements' place where a row is
// in registers.
template <class A>
static __device__ inline void powers(Share<A> &a, const Line &l, W &top, W &total, bool keep = false) {
    const W least = -INFINITY;
    top = least, total = 0;
    W v[RUN];
    if (ITEMS) {
        l.each([&](int k) { a.get(v, l, k); FOR_RUN top = Most()(top, v[j]); });
        top = across(top, Most());
        l.each([&](int k) {
            a.get(v, l, k);
            FOR_RUN {
                const W made = power(v[j] - top);
                total += made;
                if (keep) a.held[ITEMS ? k * RUN + j : 0] = made;
            }
        });
        total = across(total, Add());
        return;
    }
    l.each([&](int k) { // one pass: the sum so far is scaled when a larger one comes
        a.get(v, l, k);
        W high = top;
        FOR_RUN high = Most()(high, v[j]);
        if (high != top) total *= top == least ? (W)0 : power(top - high), top = high;
        FOR_RUN total += v[j] == least ? (W)0 : power(v[j] - top);
    });
    const W mine = top;
    top = across(top, Most());
    total = across(mine == top ? total : total * power(mine - top), Add());
}
