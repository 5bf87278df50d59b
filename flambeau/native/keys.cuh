// What elements are sorted by: whole numbers in their order (not-a-number is the largest), and equal ones by their places.
// The text of a kernel says first: A, the elements; K, an unsigned type of at least their size; DESCENDING.
#pragma once
#include "elements.cuh"

static __device__ inline K ordered(float x) {
    const unsigned u = x != x ? 0x7fffffffu : bits_of_float(x + 0.0f); // one zero of two
    return (K)((u >> 31 ? ~u : u | 0x80000000u));
}
static __device__ inline K ordered(double x) {
    const unsigned long u = x != x ? 0x7fffffffffffffffUL : bits_of_double(x + 0.0);
    return (K)((u >> 63 ? ~u : u | 0x8000000000000000UL));
}
template <class T> static __device__ inline K ordered(T x) { // whole numbers
    return (K)x ^ ((T)-1 < (T)0 ? (K)1 << (sizeof(K) * 8 - 1) : (K)0);
}
static __device__ inline K ordered(bool x) { return (K)x; }
static __device__ inline K key_of(A x) { const K k = ordered(value_of(x)); return DESCENDING ? ~k : k; }

static __device__ inline bool before(K a, int i, K b, int j) { return a < b || (a == b && i < j); }
