// Convolutions of one element type; included by conv.c.
#include "gemm.h"

#define FEW 64                          // products per output up to which writing it counts: its lines are fetched ahead
#define MARGIN (LANES > 8 ? LANES : 8)  // how far tiles may read beyond the end of copies

#include "conv_images.h"
#include "conv_tiles.h"
#include "conv_sweeps.h"
#include "conv_weight.h"

#undef MARGIN
#undef FEW
#undef DOT
#undef SUMS
#undef SUM
#undef PLACE
#undef NEXT
#undef TAP
