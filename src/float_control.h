// The floating-point environment of every call: round to nearest, subnormals flushed to zero.
//
// Subnormal weights cost a microcode assist each (85 times slower at a logit std of 30), and bits
// must not depend on what the host has set, in the kernels or in what surrounds them (the default
// scale, the folding of statistics). The control word is the thread's: every public call and every
// task holds one of these, and the caller's word is restored on leaving. Baseline instructions
// only.
#pragma once

#include <stdint.h>

namespace poise {

#if defined(__x86_64__) || defined(__i386__)
class FloatControl {
 public:
  FloatControl() : saved_(__builtin_ia32_stmxcsr()) {
    // All exceptions masked, round to nearest, flush-to-zero, denormals-are-zero.
    __builtin_ia32_ldmxcsr(0x9fc0);
  }
  ~FloatControl() { __builtin_ia32_ldmxcsr(saved_); }

 private:
  unsigned saved_;
#elif defined(__aarch64__)
class FloatControl {
 public:
  FloatControl() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_)::"memory");
    // FPCR.FZ alone (Arm ARM DDI 0487, FPCR): no traps, round to nearest, NaNs keep their payload.
    // It flushes inputs and outputs, as both bits of MXCSR together.
    set(uint64_t{1} << 24);
  }
  ~FloatControl() { set(saved_); }

 private:
  // "memory": loads and stores, and with them the arithmetic between, stay on their side of it.
  static void set(uint64_t control) { asm volatile("msr fpcr, %0" : : "r"(control) : "memory"); }

  uint64_t saved_;
#else
class FloatControl {
 public:
  FloatControl() {}
  ~FloatControl() {}

 private:
#endif
  FloatControl(const FloatControl&) = delete;
  FloatControl& operator=(const FloatControl&) = delete;
};

}  // namespace poise
