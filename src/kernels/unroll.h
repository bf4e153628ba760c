// POISE_UNROLL(n): unroll the next loop n times; every tile loop needs its accumulators in
// registers. POISE_INLINE: inline always, so that vectors never travel through memory between
// verbs.
#pragma once

#define POISE_DO_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define POISE_UNROLL(n) POISE_DO_PRAGMA(unroll n)
#else
#define POISE_UNROLL(n) POISE_DO_PRAGMA(GCC unroll n)
#endif
#define POISE_INLINE __attribute__((always_inline)) inline

// Keeps loads written below from being moved above, to the front of an unrolled body, where what
// they fetch would need more registers than there are. Costs no instruction.
#define POISE_IN_ORDER() asm volatile("" ::: "memory")
