// The functions of vmath.h for kernels on a GPU: <name>_f32 and <name>_f64 by CUDA's own, and those of whole numbers.
#pragma once
#ifdef __CUDACC_RTC__ // it has functions, but no headers of C's
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define M_PI 3.14159265358979323846
#define M_LN2 0.69314718055994530942
#define M_SQRT1_2 0.70710678118654752440
#define M_LOG2E 1.44269504088896340736
#else
#include <math.h>
#include <stdint.h>
#endif

#define FL_1(name)                                           \
    FL_DEVICE float name##_f32(float x) { return name##f(x); } \
    FL_DEVICE double name##_f64(double x) { return name(x); }
#define FL_2(name)                                                       \
    FL_DEVICE float name##_f32(float x, float y) { return name##f(x, y); } \
    FL_DEVICE double name##_f64(double x, double y) { return name(x, y); }
#define FL_DEVICE static __device__ inline
FL_1(acos) FL_1(acosh) FL_1(asin) FL_1(asinh) FL_1(atan) FL_1(atanh) FL_1(ceil) FL_1(cos) FL_1(cosh) FL_1(erf) FL_1(erfc)
FL_1(exp) FL_1(exp2) FL_1(expm1) FL_1(fabs) FL_1(floor) FL_1(lgamma) FL_1(log) FL_1(log10) FL_1(log1p) FL_1(log2) FL_1(rint)
FL_1(sin) FL_1(sinh) FL_1(sqrt) FL_1(tan) FL_1(tanh) FL_1(trunc)
FL_2(atan2) FL_2(copysign) FL_2(fmod) FL_2(hypot) FL_2(nextafter) FL_2(pow)

#define FL_BOTH(T, S)                                                                                              \
    FL_DEVICE T fmax_##S(T x, T y) { return y != y ? x : x > y ? x : y; } /* nan is ignored */                     \
    FL_DEVICE T fmin_##S(T x, T y) { return y != y ? x : x < y ? x : y; }                                          \
    FL_DEVICE T max_##S(T x, T y) { return x != x ? x : x > y ? x : y; } /* nan wins */                            \
    FL_DEVICE T min_##S(T x, T y) { return x != x ? x : x < y ? x : y; }                                           \
    FL_DEVICE T atleast_##S(T x, T y) { return x < y ? y : x; } /* y is a number, nan in x stays */                \
    FL_DEVICE T atmost_##S(T x, T y) { return x > y ? y : x; }                                                     \
    FL_DEVICE T abs_##S(T x) { return fabs_##S(x); }                                                               \
    FL_DEVICE T square_##S(T x) { return x * x; }                                                                  \
    FL_DEVICE int isnan_##S(T x) { return x != x; }                                                                \
    FL_DEVICE int isinf_##S(T x) { return fabs_##S(x) == (T)INFINITY; }                                            \
    FL_DEVICE int isfinite_##S(T x) { return fabs_##S(x) < (T)INFINITY; }                                          \
    FL_DEVICE int signbit_##S(T x) { return copysign_##S(1, x) < 0; }                                              \
    FL_DEVICE T sigmoid_##S(T x) { return 1 / (1 + exp_##S(-x)); }                                                 \
    FL_DEVICE T ndtr_##S(T x) { return (T)0.5 * erfc_##S(x * (T)-M_SQRT1_2); }                                     \
    FL_DEVICE T tanh_softplus_##S(T x) { /* as n / (n + 2) with n = e^x * (e^x + 2); from 20 on it is 1 */         \
        T e = exp_##S(x > 20 ? 20 : x), n = e * (e + 2);                                                           \
        return n / (n + 2);                                                                                        \
    }                                                                                                              \
    FL_DEVICE T remainder_##S(T x, T y) {                                                                          \
        T m = fmod_##S(x, y);                                                                                      \
        return m != 0 && (y < 0) != (m < 0) ? m + y : m;                                                           \
    }                                                                                                              \
    FL_DEVICE T floor_divide_##S(T x, T y) { /* from the exact remainder, as vmath.h does it */                    \
        T m = fmod_##S(x, y), d = (x - m) / y;                                                                     \
        d = m != 0 && (y < 0) != (m < 0) ? d - 1 : d;                                                              \
        T whole = floor_##S(d);                                                                                    \
        whole = d - whole > (T)0.5 ? whole + 1 : whole;                                                            \
        return y < 0 || y > 0 ? whole : x / y;                                                                     \
    }
FL_BOTH(float, f32)
FL_BOTH(double, f64)
FL_DEVICE float largest_f32() { return 3.402823466e38f; }
FL_DEVICE double largest_f64() { return 1.7976931348623157e308; }

#define FL_WHOLE(T, S)                                         \
    FL_DEVICE T max_##S(T x, T y) { return x > y ? x : y; }    \
    FL_DEVICE T min_##S(T x, T y) { return x < y ? x : y; }    \
    FL_DEVICE T fmax_##S(T x, T y) { return x > y ? x : y; }   \
    FL_DEVICE T fmin_##S(T x, T y) { return x < y ? x : y; }   \
    FL_DEVICE T abs_##S(T x) { return x < 0 ? -x : x; }        \
    FL_DEVICE T fabs_##S(T x) { return x < 0 ? -x : x; }       \
    FL_DEVICE T floor_##S(T x) { return x; }                   \
    FL_DEVICE T ceil_##S(T x) { return x; }                    \
    FL_DEVICE T trunc_##S(T x) { return x; }                   \
    FL_DEVICE T rint_##S(T x) { return x; }                    \
    FL_DEVICE int isnan_##S(T) { return 0; }                   \
    FL_DEVICE int isinf_##S(T) { return 0; }                   \
    FL_DEVICE int isfinite_##S(T) { return 1; }                \
    FL_DEVICE int signbit_##S(T x) { return x < 0; }
FL_WHOLE(int8_t, i8) FL_WHOLE(int16_t, i16) FL_WHOLE(int32_t, i32) FL_WHOLE(int64_t, i64) FL_WHOLE(uint8_t, u8)
FL_WHOLE(bool, b8)
