// What loops that add up columns share (compiler/nests.py): sums in an array's own precision go on in double.
#pragma once
#define FL_CARRY(T, S)                                                                            \
    static __attribute__((noinline)) void fl_carry_##S(double *totals, T *parts, long n) {        \
        _Pragma("omp simd") for (long j = 0; j < n; j++) totals[j] += parts[j], parts[j] = 0;     \
    }
FL_CARRY(float, f32)
FL_CARRY(double, f64)
#undef FL_CARRY
