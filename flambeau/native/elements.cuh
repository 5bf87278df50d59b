// The elements of arrays in kernels: each type of storage, the type that it is computed in, and how to get from one to the other.
#pragma once
#include "vmath.cuh"

struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };

#ifdef __CUDACC__
FL_DEVICE float half_to_float(unsigned short h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
FL_DEVICE unsigned short half_of(float f) { unsigned short h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
FL_DEVICE float exp2_quick(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; } // 2 ulp
FL_DEVICE float float_of_bits(unsigned u) { return __uint_as_float(u); }
FL_DEVICE unsigned bits_of_float(float f) { return __float_as_uint(f); }
FL_DEVICE unsigned long bits_of_double(double x) { return (unsigned long)__double_as_longlong(x); }
#else
#include <string.h>
FL_DEVICE float half_to_float(unsigned short h) { _Float16 x; memcpy(&x, &h, 2); return (float)x; }
FL_DEVICE unsigned short half_of(float f) { _Float16 x = (_Float16)f; unsigned short h; memcpy(&h, &x, 2); return h; }
FL_DEVICE float exp2_quick(float x) { return exp2f(x); }
FL_DEVICE float float_of_bits(unsigned u) { float f; memcpy(&f, &u, 4); return f; }
FL_DEVICE unsigned bits_of_float(float f) { unsigned u; memcpy(&u, &f, 4); return u; }
FL_DEVICE unsigned long bits_of_double(double x) { unsigned long u; memcpy(&u, &x, 8); return u; }
#endif

// A number's bits: of floating ones those of double precision.
FL_DEVICE long bits_of(double x) { return (long)bits_of_double(x); }
FL_DEVICE long bits_of(float x) { return bits_of((double)x); }
template <class T> FL_DEVICE long bits_of(T x) { return (long)x; }

template <class T> FL_DEVICE T value_of(T x) { return x; }
FL_DEVICE float value_of(bf16 x) { return float_of_bits((unsigned)x.bits << 16); }
FL_DEVICE float value_of(f16 x) { return half_to_float(x.bits); }

// to<T>(value): a value as an element of type T; numbers that a whole type cannot hold wrap around.
template <class T> struct Element {
    template <class V> FL_DEVICE T from(V x) { return (T)x; }
    FL_DEVICE T from(float x) { return (T)(sizeof(T) < 8 && (T)0.5f == (T)0 ? (T)(long)x : (T)x); }
    FL_DEVICE T from(double x) { return (T)(sizeof(T) < 8 && (T)0.5 == (T)0 ? (T)(long)x : (T)x); }
};
template <> struct Element<bool> {
    template <class V> FL_DEVICE bool from(V x) { return x != 0; }
};
template <> struct Element<bf16> {
    FL_DEVICE bf16 from(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        unsigned short h;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
        return {h};
#endif
        unsigned u = bits_of_float(x);
        if (x != x) return {(unsigned short)(u >> 16 | 64)};
        return {(unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16)};
    }
};
template <> struct Element<f16> {
    FL_DEVICE f16 from(float x) { return {half_of(x)}; }
};
template <class T, class V> FL_DEVICE T to(V x) { return Element<T>::from(x); }

// A sum of two numbers that are rounded already: neither a product before it nor one after it becomes a part of it.
#ifdef __CUDACC__
FL_DEVICE float plain_sum(float x, float y) { return __fadd_rn(x, y); }
FL_DEVICE double plain_sum(double x, double y) { return __dadd_rn(x, y); }
#else
FL_DEVICE float plain_sum(float x, float y) { return x + y; }
FL_DEVICE double plain_sum(double x, double y) { return x + y; }
#endif

// An aligned run of elements, which is loaded and stored at once.
template <class T, int N> struct alignas(sizeof(T) * N) Run { T at[N]; };
// Stores a run at once, in the device's own memory. (Of a plain assignment the compiler may make a store per element.)
template <class T, int N> FL_DEVICE void store(T *o, const Run<T, N> &run) {
#ifdef __CUDACC__
    enum { WORDS = sizeof(run) / 4 };
    unsigned w[WORDS ? WORDS : 1];
    if constexpr (sizeof(run) % 4 == 0) memcpy(w, &run, sizeof(run));
    const unsigned long to = __cvta_generic_to_global(o);
    if constexpr (sizeof(run) == 16)
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]));
    else if constexpr (sizeof(run) == 8) asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(w[0]), "r"(w[1]));
    else if constexpr (sizeof(run) == 4) asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(w[0]));
    else
#endif
        *(Run<T, N> *)o = run;
}
template <int N, class T> FL_DEVICE Run<T, N> run_of(const T *from, bool one) { // one: the same element N times
    if (!one) return *(const Run<T, N> *)from;
    Run<T, N> made;
    #pragma unroll
    for (int i = 0; i < N; i++) made.at[i] = from[0];
    return made;
}

enum { DIMS = 12 };
// How a kernel walks through arrays: sizes, innermost first, and the steps of each array in elements.
template <int ARRAYS> struct Walk {
    long count;
    long dims;
    long size[DIMS];
    long step[ARRAYS][DIMS];
};
