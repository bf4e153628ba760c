// The AVX2 kernels: target region, vector verbs, kernel bodies, table.
// Runs on CPUs with AVX2 and FMA; dispatch.cpp decides. No -m flag compiles this file.

#if defined(__x86_64__)

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "float_control.h"
#include "kernels/half.h"
#include "kernels/kernels.h"
#include "kernels/philox.h"
#include "kernels/unroll.h"

#define POISE_NAMESPACE avx2
#define POISE_TARGET "avx2,fma,f16c"
#include "isa/target_begin.h"

#include "isa/simd_avx2.h"
#include "kernels/all.inl"

#include "isa/target_end.h"

namespace poise {
extern const Kernels kAvx2Kernels;
constinit const Kernels kAvx2Kernels = avx2::make_kernels("avx2");
}  // namespace poise

#endif
