// Whole arrays from half precision to float and back.
#include "runtime.h"
#include "half.h"

//: fl_to_float_bf16(ppl)
//: fl_from_float_bf16(ppl)
//: fl_to_float_f16(ppl)
//: fl_from_float_f16(ppl)

#define BOTH_WAYS(S)                                                                                                        \
    void fl_to_float_##S(const uint16_t *x, float *out, long n) {                                                           \
        _Pragma("omp parallel num_threads(fl_team(n / 2))") {                                                               \
            long from, to;                                                                                                  \
            fl_share(n, 64, omp_get_thread_num(), omp_get_num_threads(), &from, &to);                                       \
            fl_widen_##S(x + from, 1, out + from, to - from);                                                               \
        }                                                                                                                   \
    }                                                                                                                       \
    void fl_from_float_##S(const float *x, uint16_t *out, long n) {                                                         \
        _Pragma("omp parallel num_threads(fl_team(n / 2))") {                                                               \
            long from, to;                                                                                                  \
            fl_share(n, 64, omp_get_thread_num(), omp_get_num_threads(), &from, &to);                                       \
            fl_round_##S(x + from, out + from, 1, to - from);                                                               \
        }                                                                                                                   \
    }
BOTH_WAYS(bf16)
BOTH_WAYS(f16)
