// Philox4x32-10 (Salmon et al., 2011) as cuRAND's device functions use it: the key is the seed, the upper half of the counter
// says which stream, the lower half how far it is. A stream gives four words at a time.
#pragma once
#include "vmath.cuh"

// Functions of single precision as PyTorch's kernels take them on a device: the approximate ones.
#ifdef __CUDACC__
FL_DEVICE void quick_sincos(float x, float *s, float *c) { __sincosf(x, s, c); }
FL_DEVICE float quick_log(float x) { return __logf(x); }
FL_DEVICE float quick_exp(float x) { return __expf(x); }
FL_DEVICE float quick_tan(float x) { return __tanf(x); }
#else
FL_DEVICE void quick_sincos(float x, float *s, float *c) { *s = sinf(x), *c = cosf(x); }
FL_DEVICE void sincospi(double x, double *s, double *c) { *s = sin(x * M_PI), *c = cos(x * M_PI); }
FL_DEVICE float quick_log(float x) { return logf(x); }
FL_DEVICE float quick_exp(float x) { return expf(x); }
FL_DEVICE float quick_tan(float x) { return tanf(x); }
FL_DEVICE unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long)a * b >> 32); }
#endif
FL_DEVICE double quick_log(double x) { return log(x); }
FL_DEVICE double quick_exp(double x) { return exp(x); }
FL_DEVICE double quick_tan(double x) { return tan(x); }
FL_DEVICE float quick_log1p(float x) { return quick_log(1.0f + x); }
FL_DEVICE double quick_log1p(double x) { return log1p(x); }
FL_DEVICE float joined(float a, float b, float c) { return fmaf(a, b, c); }
FL_DEVICE double joined(double a, double b, double c) { return fma(a, b, c); }
template <class T> FL_DEVICE T epsilon();
template <> __device__ inline float epsilon<float>() { return 1.1920929e-07f; }
template <> __device__ inline double epsilon<double>() { return 2.220446049250313e-16; }
// Away from where the approximate tangent has its poles.
FL_DEVICE float inside(float x) {
    const float least = epsilon<float>();
    return x > 1 - least ? 1 - least : x < least ? least : x;
}
FL_DEVICE double inside(double x) { return x; }

struct Words { unsigned at[4]; };

struct Stream {
    unsigned key[2];
    unsigned long far, which;

    __device__ inline Words next() {
        unsigned k0 = key[0], k1 = key[1];
        unsigned c0 = (unsigned)far, c1 = (unsigned)(far >> 32), c2 = (unsigned)which, c3 = (unsigned)(which >> 32);
        #pragma unroll
        for (int round = 0; round < 10; round++) {
            const unsigned high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
            const unsigned high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
            c0 = high1 ^ c1 ^ k0, c1 = low1, c2 = high0 ^ c3 ^ k1, c3 = low0;
            k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
        }
        far++;
        return {{c0, c1, c2, c3}};
    }
};
// offset: how many words of the stream were used, a multiple of four.
FL_DEVICE Stream stream_of(unsigned long seed, unsigned long which, unsigned long offset) {
    return {{(unsigned)seed, (unsigned)(seed >> 32)}, offset / 4, which};
}

// Uniform numbers of (0, 1].
FL_DEVICE float unit(unsigned x) { return fmaf((float)x, 2.3283064e-10f, 1.1641532e-10f); }
FL_DEVICE double unit(unsigned x, unsigned y) {
    return fma((double)((unsigned long)x ^ (unsigned long)y << 21), 1.1102230246251565e-16, 5.5511151231257827e-17);
}

// What a stream's next four words make: Uniform<float>::values is four numbers, <double> two; Normal likewise.
template <class T> struct Uniform;
template <> struct Uniform<float> {
    enum { COUNT = 4 };
    static __device__ inline void draw(Stream &s, float *to) {
        const Words w = s.next();
        for (int k = 0; k < 4; k++) to[k] = unit(w.at[k]);
    }
};
template <> struct Uniform<double> {
    enum { COUNT = 2 };
    static __device__ inline void draw(Stream &s, double *to) {
        const Words w = s.next();
        to[0] = unit(w.at[0], w.at[1]), to[1] = unit(w.at[2], w.at[3]);
    }
};

FL_DEVICE void box_muller(unsigned x, unsigned y, float *to) {
    const float turn = 2.3283064e-10f * 6.2831855f;
    const float length = sqrtf(-2.0f * logf(unit(x))), angle = fmaf((float)y, turn, turn / 2);
    quick_sincos(angle, &to[0], &to[1]);
    to[0] *= length, to[1] *= length;
}
template <class T> struct Normal;
template <> struct Normal<float> {
    enum { COUNT = 4 };
    static __device__ inline void draw(Stream &s, float *to) {
        const Words w = s.next();
        box_muller(w.at[0], w.at[1], to);
        box_muller(w.at[2], w.at[3], to + 2);
    }
};
template <> struct Normal<double> {
    enum { COUNT = 2 };
    static __device__ inline void draw(Stream &s, double *to) {
        const Words w = s.next();
        const double length = sqrt(-2.0 * log(unit(w.at[0], w.at[1])));
        sincospi(2 * unit(w.at[2], w.at[3]), &to[0], &to[1]);
        to[0] *= length, to[1] *= length;
    }
};

// Whole numbers of 32 bits, or of 64.
template <class T> struct Bits;
template <> struct Bits<unsigned> {
    enum { COUNT = 4 };
    static __device__ inline void draw(Stream &s, unsigned *to) {
        const Words w = s.next();
        for (int k = 0; k < 4; k++) to[k] = w.at[k];
    }
};
template <> struct Bits<unsigned long> {
    enum { COUNT = 2 };
    static __device__ inline void draw(Stream &s, unsigned long *to) {
        const Words w = s.next();
        to[0] = (unsigned long)w.at[0] << 32 | w.at[1], to[1] = (unsigned long)w.at[2] << 32 | w.at[3];
    }
};
