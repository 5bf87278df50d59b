// Matrix products: packed blocks that stay in a core's own caches, and a tile of the result in registers (gemm.h).
// All matrices are row-major; ta, tb: the factor is stored transposed. c = alpha a b + beta c, c is not read when beta is 0.
#include "runtime.h"

#define DEPTH 320     // steps of k whose packed panels stay in the second cache
#define WIDTH 8       // panels of columns at a time
#define FEW 48        // rows up to which an untransposed right factor is read where it is
#define NARROW 192    // columns up to which the left factor's rows are read where they are
#define GRAIN 8       // multiplications that count as one step of a simple loop

static __thread void *scratch_;
static __thread long scratch_size_;

static void *scratch(long bytes) {
    if (scratch_size_ < bytes) {
        free(scratch_);
        scratch_ = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        scratch_size_ = scratch_ ? bytes : 0;
    }
    return scratch_;
}

// What is done with each piece of a result: a function of its first row and column, and how many there are; `row` and `column`
// are where the block begins.
typedef struct {
    void (*run)(void *context, long row, long column, long rows, long columns);
    void *context;
    long row, column;
} after;

#define T float
#define S(name) name##_f32
//: fl_gemm_f32(iilllfplplfpl)
//: fl_gemm1_f32(iilllfplplfpl)
//: fl_bgemm_f32(liilllfpllpllfpll)
//: fl_linear_f32(iilllplplppl)
//: fl_product_f32(iilllplplpplpp)
#include "gemm_body.h"
#undef T
#undef S

#define T double
#define S(name) name##_f64
//: fl_gemm_f64(iillldplpldpl)
//: fl_gemm1_f64(iillldplpldpl)
//: fl_bgemm_f64(liillldpllplldpll)
//: fl_linear_f64(iilllplplppl)
//: fl_product_f64(iilllplplpplpp)
#include "gemm_body.h"
