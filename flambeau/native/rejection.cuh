// Numbers that are drawn until one is accepted, from a stream of Philox's (philox.cuh) of which nobody knows beforehand how much it
// takes. T: float, or double for elements of double precision.
#pragma once
#include "philox.cuh"

// A stream word by word.
struct Reader {
    Stream stream;
    Words words;
    int used = 4;
    bool kept = false;
    float spare = 0;

    __device__ inline Reader(unsigned long seed, unsigned long which, unsigned long offset)
        : stream(stream_of(seed, which, offset)) {}
    __device__ inline unsigned word() {
        if (used == 4) words = stream.next(), used = 0;
        return words.at[used++];
    }
    // Of [0, 1), in steps of 2**-24, whatever the precision; `unit(word())` is of (0, 1].
    __device__ inline float uniform() { return (float)(word() & 0xffffffu) * 5.9604644775390625e-08f; }
    // Two at a time: the second waits for the next call.
    __device__ inline float normal() {
        if (kept) return kept = false, spare;
        const unsigned x = word(), y = word();
        float both[2];
        box_muller(x, y, both);
        kept = true, spare = both[1];
        return both[0];
    }
};

// Marsaglia and Tsang, 2000; below 1 the number for alpha + 1, shrunk. R: the elements' type, to which PyTorch rounds that sum.
template <class R, class T> static __device__ inline T gamma_of(Reader &r, T alpha) {
    T scale = 1;
    if (alpha < 1) {
        if (alpha == 0) return 0;
        const T power = 1 / alpha;
        scale = (T)pow(1 - (T)unit(r.word()), power);
        alpha = (T)value_of(to<R>(alpha + 1));
    }
    const T d = alpha - (T)(1.0f / 3.0f), c = 1 / (T)sqrt(9 * d);
    while (true) {
        T x, y;
        do {
            x = (T)r.normal();
            y = 1 + c * x;
        } while (y <= 0);
        const T v = y * y * y, u = 1 - (T)unit(r.word()), xx = x * x;
        if (u < 1 - (T)0.0331f * xx * xx || (T)log(u) < (T)0.5 * xx + d * (1 - v + (T)log(v))) return scale * d * v;
    }
}

// The rest of Stirling's series for log k!.
template <class T> static __device__ inline T stirling_rest(T k) {
    const double few[10] = {0.0810614667953272,  0.0413406959554092,  0.0276779256849983, 0.02079067210376509,
                            0.0166446911898211,  0.0138761288230707,  0.0118967099458917, 0.0104112652619720,
                            0.00925546218271273, 0.00833056343336287};
    if (k <= 9) return (T)few[(int)k];
    const T next = (k + 1) * (k + 1);
    return (T)((1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / next) / next) / (k + 1));
}

// Hoermann's transformed rejection (BTRS), for count * p of 10 and more.
template <class T> static __device__ inline T binomial_by_rejection(Reader &r, T n, T p) {
    const T spread = (T)sqrt(n * p * (1 - p)), b = (T)(1.15 + 2.53 * spread), a = (T)(-0.0873 + 0.0248 * b + 0.01 * p);
    const T c = (T)(n * p + 0.5), quick = (T)(0.92 - 4.2 / b), odds = p / (1 - p), alpha = (T)((2.83 + 5.1 / b) * spread);
    const T m = (T)floor((n + 1) * p);
    while (true) {
        const T u = (T)(r.uniform() - 0.5), us = (T)(0.5 - (u < 0 ? -u : u));
        const T v = (T)r.uniform(), k = (T)floor((2 * a / us + b) * u + c);
        if (us >= (T)0.07 && v <= quick) return k;
        if (!(k >= 0 && k <= n)) continue;
        const T bound = (T)((m + 0.5) * log((m + 1) / (odds * (n - m + 1))) + (n + 1) * log((n - m + 1) / (n - k + 1))
                            + (k + 0.5) * log(odds * (n - k + 1) / (k + 1)) + stirling_rest(m) + stirling_rest(n - m)
                            - stirling_rest(k) - stirling_rest(n - k));
        if ((T)log(v * alpha / (a / (us * us) + b)) <= bound) return k;
    }
}
// Sums of geometric gaps where few are wanted.
template <class T> static __device__ inline T binomial_low(Reader &r, T n, T p) {
    if (n * p >= 10) return binomial_by_rejection(r, n, p);
    T total = 0, found = 0;
    const T below = (T)log1p(-p);
    while (true) {
        total += (T)ceil((T)log((T)r.uniform()) / below);
        if (total > n) return found;
        found += 1;
    }
}
template <class T> static __device__ inline T binomial_of(Reader &r, T n, T p) {
    if (n <= 0 || p <= 0) return 0;
    if (p >= 1) return n;
    if (!(n == n && p == p)) return (T)NAN;
    return p <= (T)0.5 ? binomial_low(r, n, p) : n - binomial_low(r, n, (T)(1 - p));
}

// cuRAND's way below 64 (products of uniform numbers) and above 4000 (a rounded normal number); between them Hoermann's
// transformed rejection, where cuRAND inverts an incomplete gamma function.
static __device__ inline double poisson_of(Reader &r, double rate) {
    if (rate < 64) {
        float product = expf((float)rate);
        unsigned found = 0;
        do {
            found++;
            product *= unit(r.word());
        } while (product > 1.0f);
        return found - 1;
    }
    if (rate > 4000) {
        double two[2];
        Normal<double>::draw(r.stream, two);
        return (double)(unsigned)(sqrt(rate) * two[0] + rate + 0.5);
    }
    const double root = sqrt(rate), logarithm = log(rate), b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b;
    const double inverse = 1.1239 + 1.1328 / (b - 3.4), quick = 0.9277 - 3.6224 / (b - 2);
    while (true) {
        const double u = unit(r.word()) - 0.5, v = unit(r.word()), us = 0.5 - fabs(u), k = floor((2 * a / us + b) * u + rate + 0.43);
        if (us == 0) continue;
        if (us >= 0.07 && v <= quick) return k;
        if (k < 0 || (us < 0.013 && v > us)) continue;
        if (log(v) + log(inverse) - log(a / (us * us) + b) <= -rate + k * logarithm - lgamma(k + 1)) return k;
    }
}
