// The portable kernels: the same bodies with one lane, for any CPU. No target region, no
// intrinsics. Slow by design; what runs where no vector set of this folder is to be had.

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "float_control.h"
#include "kernels/half.h"
#include "kernels/kernels.h"
#include "kernels/philox.h"
#include "kernels/unroll.h"

#define POISE_NAMESPACE scalar
#include "isa/simd_scalar.h"
#include "kernels/all.inl"

namespace poise {
extern const Kernels kScalarKernels;
constinit const Kernels kScalarKernels = scalar::make_kernels("scalar");
}  // namespace poise
