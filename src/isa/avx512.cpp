// The AVX-512 kernels: target region, vector verbs, kernel bodies, table.
// Runs on CPUs with AVX-512 F, BW, DQ and VL; dispatch.cpp decides. No -m flag compiles this file.

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

#define POISE_NAMESPACE avx512
#define POISE_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"
#include "isa/target_begin.h"

#if !defined(__clang__)
// g++ 12 on its own intrinsics, which start masked forms from an undefined register.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include "isa/simd_avx512.h"
#include "kernels/all.inl"
#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include "isa/target_end.h"

namespace poise {
extern const Kernels kAvx512Kernels;
constinit const Kernels kAvx512Kernels = avx512::make_kernels("avx512");
}  // namespace poise

#endif
