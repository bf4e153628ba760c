// The NEON kernels: vector verbs, kernel bodies, table. No target region: Advanced SIMD belongs to
// the AArch64 baseline, so every CPU that starts this program runs them.

#if defined(__aarch64__)

#include <arm_neon.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "float_control.h"
#include "kernels/half.h"
#include "kernels/kernels.h"
#include "kernels/philox.h"
#include "kernels/unroll.h"

#define POISE_NAMESPACE neon
#include "isa/simd_neon.h"
#include "kernels/all.inl"

namespace poise {
extern const Kernels kNeonKernels;
constinit const Kernels kNeonKernels = neon::make_kernels("neon");
}  // namespace poise

#endif
