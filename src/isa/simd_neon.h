// The vector verbs for AArch64 Advanced SIMD ("NEON"): 4 floats or 2 doubles.
//
// Included by neon.cpp, never elsewhere. The same verbs exist for every instruction set;
// kernels/*.inl speak only these. `Mask` is a vector whose lanes are all ones or all zeros.
// max(a, b) and min(a, b) return b when either is NaN: a comparison and a select, since fmax
// returns NaN and fmaxnm the number. Tails are loaded and stored lane by lane, in registers: there
// is no masked access here.
// Source of the instructions: Arm Architecture Reference Manual, DDI 0487, chapter C7.

namespace poise::POISE_NAMESPACE {

template <class T>
struct Simd;

template <>
struct Simd<float> {
  using T = float;
  using Vec = float32x4_t;
  using Mask = uint32x4_t;
  static constexpr int kLanes = 4;
  // Inner tile of rows x vectors: 24 accumulators, 4 operands, 1 broadcast of 32 registers. Cores
  // with four multiply-add pipes of latency 4 need 16 chains in flight. 8 x 3 has as many chains,
  // but 12 queries neither fill a cache line nor divide a task's rows.
  static constexpr int kTileRows = 6, kTileVectors = 4;
  // Whether a multiply-add reads a number from memory for all lanes.
  static constexpr bool kReadsScalars = false;

  static Vec load(const T* p) { return vld1q_f32(p); }
  static Vec load_any(const T* p) { return vld1q_f32(p); }
  static Vec load_first(const T* p, int64_t n) {
    if (n >= kLanes) return vld1q_f32(p);
    Vec v = zero();
    if (n > 0) v = vld1q_lane_f32(p, v, 0);
    if (n > 1) v = vld1q_lane_f32(p + 1, v, 1);
    if (n > 2) v = vld1q_lane_f32(p + 2, v, 2);
    return v;
  }
  static void store(T* p, Vec v) { vst1q_f32(p, v); }
  static void store_any(T* p, Vec v) { vst1q_f32(p, v); }
  // Truncated to integers that fit 32 bits; p holds kLanes, aligned to 64.
  // v where the byte of a bool mask is set, -inf elsewhere; reads n bytes.
  static Vec hide_unseen(Vec v, const uint8_t* seen, int64_t n) {
    alignas(16) T lanes[kLanes];
    store(lanes, v);
    for (int64_t i = 0; i < n; ++i)
      if (seen[i] == 0) lanes[i] = -__builtin_inff();
    return load(lanes);
  }
  static void store_first(T* p, Vec v, int64_t n) {
    if (n >= kLanes) return vst1q_f32(p, v);
    if (n > 0) vst1q_lane_f32(p, v, 0);
    if (n > 1) vst1q_lane_f32(p + 1, v, 1);
    if (n > 2) vst1q_lane_f32(p + 2, v, 2);
  }
  static Vec set(T x) { return vdupq_n_f32(x); }
  static Vec zero() { return vdupq_n_f32(0); }
  static Vec add(Vec a, Vec b) { return vaddq_f32(a, b); }
  static Vec sub(Vec a, Vec b) { return vsubq_f32(a, b); }
  static Vec mul(Vec a, Vec b) { return vmulq_f32(a, b); }
  static Vec div(Vec a, Vec b) { return vdivq_f32(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return vfmaq_f32(c, a, b); }
  static Vec max(Vec a, Vec b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  static Vec min(Vec a, Vec b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
  static Vec abs(Vec a) { return vabsq_f32(a); }
  static Vec with_sign_of(Vec magnitude, Vec sign) {
    return vbslq_f32(vdupq_n_u32(0x80000000u), sign, magnitude);
  }
  static Mask less(Vec a, Vec b) { return vcltq_f32(a, b); }
  static Mask less_equal(Vec a, Vec b) { return vcleq_f32(a, b); }
  static Mask equal(Vec a, Vec b) { return vceqq_f32(a, b); }
  static Mask negative(Vec a) { return vcltzq_s32(vreinterpretq_s32_f32(a)); }
  static Mask both(Mask a, Mask b) { return vandq_u32(a, b); }
  static Mask first_only(Mask a, Mask b) { return vbicq_u32(a, b); }
  static bool any(Mask m) { return vmaxvq_u32(m) != 0; }
  static Vec select(Mask m, Vec yes, Vec no) { return vbslq_f32(m, yes, no); }
  // x where m is set, 0 elsewhere.
  static Vec masked(Mask m, Vec x) {
    return vreinterpretq_f32_u32(vandq_u32(m, vreinterpretq_u32_f32(x)));
  }
  // The operation where m is set, `kept` elsewhere.
  static Vec add_where(Mask m, Vec kept, Vec b) { return add(kept, masked(m, b)); }
  static Vec fma_where(Mask m, Vec a, Vec b, Vec kept) { return fma(masked(m, a), b, kept); }
  static Vec max_where(Mask m, Vec a, Vec kept) {
    return select(both(m, vcgtq_f32(a, kept)), a, kept);
  }

  // x - floor(x), exact.
  static Vec fraction(Vec x) { return vsubq_f32(x, vrndmq_f32(x)); }
  // p * 2^floor(x), for p in [1, 2); exactly 0 where x < cut, NaN where x is.
  static Vec scale_by_power(Vec p, Vec x, Vec cut) {
    const int32x4_t n = vcvtmq_s32_f32(x);
    const int32x4_t scaled = vaddq_s32(vreinterpretq_s32_f32(p), vshlq_n_s32(n, 23));
    return select(less(x, cut), zero(), vreinterpretq_f32_s32(scaled));
  }

  // The first n 16-bit elements, widened exactly; and back, rounded to nearest even. FCVTL and
  // FCVTN keep f16 subnormals under flush-to-zero, which is for the wider formats.
  static uint16x4_t load_bits(const uint16_t* p, int64_t n) {
    if (n >= kLanes) return vld1_u16(p);
    uint16x4_t bits = vdup_n_u16(0);
    if (n > 0) bits = vld1_lane_u16(p, bits, 0);
    if (n > 1) bits = vld1_lane_u16(p + 1, bits, 1);
    if (n > 2) bits = vld1_lane_u16(p + 2, bits, 2);
    return bits;
  }
  static void store_bits(uint16_t* p, uint16x4_t bits, int64_t n) {
    if (n >= kLanes) return vst1_u16(p, bits);
    if (n > 0) vst1_lane_u16(p, bits, 0);
    if (n > 1) vst1_lane_u16(p + 1, bits, 1);
    if (n > 2) vst1_lane_u16(p + 2, bits, 2);
  }
  static Vec load_bf16(const uint16_t* p, int64_t n) {
    return vreinterpretq_f32_u32(vshll_n_u16(load_bits(p, n), 16));
  }
  static Vec load_f16(const uint16_t* p, int64_t n) {
    return vcvt_f32_f16(vreinterpret_f16_u16(load_bits(p, n)));
  }
  // Sets of kBinsPerPart bits per lane, for counting (kernels/histogram.inl).
  using Bits = uint32x4_t;
  using BitWord = uint32_t;
  static constexpr int kBinsPerPart = 32;
  static Mask rows_mask(int64_t n) {
    const uint32x4_t lane = {0, 1, 2, 3};
    return vcltq_u32(lane, vdupq_n_u32(n < 0 ? 0u : static_cast<uint32_t>(n)));
  }
  static Bits no_bits() { return vdupq_n_u32(0); }
  static Bits join_bits(Bits a, Bits b) { return vorrq_u32(a, b); }
  static Bits parity(Bits a, Bits b, Bits c) { return veorq_u32(veorq_u32(a, b), c); }
  static Bits majority(Bits a, Bits b, Bits c) {
    return vorrq_u32(vandq_u32(a, b), vandq_u32(c, veorq_u32(a, b)));
  }
  static void store_bits(BitWord* p, Bits bits) { vst1q_u32(p, bits); }
  // v rounded down; what no int32 holds becomes negative or the largest one, NaN becomes negative.
  static Bits floor_bits(Vec v) {
    const int32x4_t at = vcvtmq_s32_f32(v);
    return vbslq_u32(vceqq_f32(v, v), vreinterpretq_u32_s32(at), vdupq_n_u32(0xffffffffu));
  }
  // 1 << (index - part * kBinsPerPart), none where that is outside the part.
  static Bits one_bit(Bits index, int part) {
    const uint32x4_t at = vsubq_u32(index, vdupq_n_u32(static_cast<uint32_t>(kBinsPerPart * part)));
    const uint32x4_t bit = vshlq_u32(vdupq_n_u32(1), vreinterpretq_s32_u32(at));
    return vandq_u32(bit, vcltq_u32(at, vdupq_n_u32(kBinsPerPart)));
  }
  // Whether an index joined into `seen` was negative or has a bit above those of `last`.
  static bool beyond(Bits seen, int last) {
    return vmaxvq_u32(vandq_u32(seen, vdupq_n_u32(~static_cast<uint32_t>(last)))) != 0;
  }

  // One 32-bit word per lane, for random numbers (kernels/dropout.inl).
  using Words = uint32x4_t;
  static Words load_words(const uint32_t* p) { return vld1q_u32(p); }
  static Words set_words(uint32_t x) { return vdupq_n_u32(x); }
  // a ^ b ^ c.
  static Words mix_words(Words a, Words b, Words c) { return parity(a, b, c); }
  // The halves of a * b.
  static void multiply_words(Words a, Words b, Words* low, Words* high) {
    const uint32x4_t x = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(a), vget_low_u32(b)));
    const uint32x4_t y = vreinterpretq_u32_u64(vmull_high_u32(a, b));
    *low = vuzp1q_u32(x, y);
    *high = vuzp2q_u32(x, y);
  }
  static Mask at_least(Words a, uint32_t threshold) { return vcgeq_u32(a, vdupq_n_u32(threshold)); }

  // Pairs of bf16 from any address, and the first or second of each pair, widened.
  static Vec load_bf16_pairs(const void* p) {
    return vreinterpretq_f32_u8(vld1q_u8(static_cast<const uint8_t*>(p)));
  }
  static Vec first_of_bf16_pairs(Vec pairs) {
    return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(pairs), 16));
  }
  static Vec second_of_bf16_pairs(Vec pairs) {
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(pairs), vdupq_n_u32(0xffff0000u)));
  }
  // Two vectors of columns as those of even and those of odd index, and back.
  static void part_pairs(Vec& a, Vec& b) {
    const Vec even = vuzp1q_f32(a, b);
    b = vuzp2q_f32(a, b);
    a = even;
  }
  static void join_pairs(Vec& a, Vec& b) {
    const Vec low = vzip1q_f32(a, b);
    b = vzip2q_f32(a, b);
    a = low;
  }
  static void store_f16(uint16_t* p, Vec v, int64_t n) {
    store_bits(p, vreinterpret_u16_f16(vcvt_f16_f32(v)), n);
  }
  static void store_bf16(uint16_t* p, Vec v, int64_t n) {
    const uint32x4_t bits = vreinterpretq_u32_f32(v);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t bias = vaddq_u32(odd, vdupq_n_u32(0x7fff));
    // A NaN keeps its upper half, made quiet; adding to it could carry into infinity.
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    const uint32x4_t rounded = vbslq_u32(vceqq_f32(v, v), vaddq_u32(bits, bias), quiet);
    store_bits(p, vshrn_n_u32(rounded, 16), n);
  }

  static void transpose(Vec (&r)[kLanes]) {
    const float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(r[0], r[1]));
    const float64x2_t b = vreinterpretq_f64_f32(vtrn2q_f32(r[0], r[1]));
    const float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(r[2], r[3]));
    const float64x2_t d = vreinterpretq_f64_f32(vtrn2q_f32(r[2], r[3]));
    r[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
    r[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
    r[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
    r[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
  }
};

template <>
struct Simd<double> {
  using T = double;
  using Vec = float64x2_t;
  using Mask = uint64x2_t;
  static constexpr int kLanes = 2;
  static constexpr int kTileRows = 6, kTileVectors = 4;
  // Whether a multiply-add reads a number from memory for all lanes.
  static constexpr bool kReadsScalars = false;

  static Vec load(const T* p) { return vld1q_f64(p); }
  static Vec load_any(const T* p) { return vld1q_f64(p); }
  static Vec load_first(const T* p, int64_t n) {
    if (n >= kLanes) return vld1q_f64(p);
    return n > 0 ? vld1q_lane_f64(p, zero(), 0) : zero();
  }
  static void store(T* p, Vec v) { vst1q_f64(p, v); }
  static void store_any(T* p, Vec v) { vst1q_f64(p, v); }
  // kLanes floats or doubles.
  static Vec load_widened(const float* p) { return vcvt_f64_f32(vld1_f32(p)); }
  static Vec load_widened(const double* p) { return load(p); }
  static Vec hide_unseen(Vec v, const uint8_t* seen, int64_t n) {
    alignas(16) T lanes[kLanes];
    store(lanes, v);
    for (int64_t i = 0; i < n; ++i)
      if (seen[i] == 0) lanes[i] = -__builtin_inf();
    return load(lanes);
  }
  static void store_first(T* p, Vec v, int64_t n) {
    if (n >= kLanes) return vst1q_f64(p, v);
    if (n > 0) vst1q_lane_f64(p, v, 0);
  }
  static Vec set(T x) { return vdupq_n_f64(x); }
  static Vec zero() { return vdupq_n_f64(0); }
  static Vec add(Vec a, Vec b) { return vaddq_f64(a, b); }
  static Vec sub(Vec a, Vec b) { return vsubq_f64(a, b); }
  static Vec mul(Vec a, Vec b) { return vmulq_f64(a, b); }
  static Vec div(Vec a, Vec b) { return vdivq_f64(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return vfmaq_f64(c, a, b); }
  static Vec max(Vec a, Vec b) { return vbslq_f64(vcgtq_f64(a, b), a, b); }
  static Vec min(Vec a, Vec b) { return vbslq_f64(vcltq_f64(a, b), a, b); }
  static Vec abs(Vec a) { return vabsq_f64(a); }
  static Vec with_sign_of(Vec magnitude, Vec sign) {
    return vbslq_f64(vdupq_n_u64(0x8000000000000000u), sign, magnitude);
  }
  static Mask less(Vec a, Vec b) { return vcltq_f64(a, b); }
  static Mask less_equal(Vec a, Vec b) { return vcleq_f64(a, b); }
  static Mask equal(Vec a, Vec b) { return vceqq_f64(a, b); }
  static Mask negative(Vec a) { return vcltzq_s64(vreinterpretq_s64_f64(a)); }
  static Mask both(Mask a, Mask b) { return vandq_u64(a, b); }
  static Mask first_only(Mask a, Mask b) { return vbicq_u64(a, b); }
  static bool any(Mask m) { return vmaxvq_u32(vreinterpretq_u32_u64(m)) != 0; }
  static Vec select(Mask m, Vec yes, Vec no) { return vbslq_f64(m, yes, no); }
  static Vec masked(Mask m, Vec x) {
    return vreinterpretq_f64_u64(vandq_u64(m, vreinterpretq_u64_f64(x)));
  }
  // The operation where m is set, `kept` elsewhere.
  static Vec add_where(Mask m, Vec kept, Vec b) { return add(kept, masked(m, b)); }
  static Vec fma_where(Mask m, Vec a, Vec b, Vec kept) { return fma(masked(m, a), b, kept); }
  static Vec max_where(Mask m, Vec a, Vec kept) {
    return select(both(m, vcgtq_f64(a, kept)), a, kept);
  }

  static Vec fraction(Vec x) { return vsubq_f64(x, vrndmq_f64(x)); }
  static Vec scale_by_power(Vec p, Vec x, Vec cut) {
    const int64x2_t n = vcvtmq_s64_f64(x);
    const int64x2_t scaled = vaddq_s64(vreinterpretq_s64_f64(p), vshlq_n_s64(n, 52));
    return select(less(x, cut), zero(), vreinterpretq_f64_s64(scaled));
  }

  // Sets of kBinsPerPart bits per lane, for counting (kernels/histogram.inl).
  using Bits = uint64x2_t;
  using BitWord = uint64_t;
  static constexpr int kBinsPerPart = 64;
  static Mask rows_mask(int64_t n) {
    const uint64x2_t lane = {0, 1};
    return vcltq_u64(lane, vdupq_n_u64(n < 0 ? uint64_t{0} : static_cast<uint64_t>(n)));
  }
  static Bits no_bits() { return vdupq_n_u64(0); }
  static Bits join_bits(Bits a, Bits b) { return vorrq_u64(a, b); }
  static Bits parity(Bits a, Bits b, Bits c) { return veorq_u64(veorq_u64(a, b), c); }
  static Bits majority(Bits a, Bits b, Bits c) {
    return vorrq_u64(vandq_u64(a, b), vandq_u64(c, veorq_u64(a, b)));
  }
  static void store_bits(BitWord* p, Bits bits) { vst1q_u64(p, bits); }
  // v rounded down; what no int64 holds becomes negative or the largest one, NaN becomes negative.
  static Bits floor_bits(Vec v) {
    const int64x2_t at = vcvtmq_s64_f64(v);
    return vbslq_u64(vceqq_f64(v, v), vreinterpretq_u64_s64(at), vdupq_n_u64(~uint64_t{0}));
  }
  // 1 << (index - part * kBinsPerPart), none where that is outside the part.
  static Bits one_bit(Bits index, int part) {
    const uint64x2_t at = vsubq_u64(index, vdupq_n_u64(static_cast<uint64_t>(kBinsPerPart * part)));
    const uint64x2_t bit = vshlq_u64(vdupq_n_u64(1), vreinterpretq_s64_u64(at));
    return vandq_u64(bit, vcltq_u64(at, vdupq_n_u64(kBinsPerPart)));
  }
  // Whether an index joined into `seen` was negative or has a bit above those of `last`.
  static bool beyond(Bits seen, int last) {
    const uint64x2_t over = vandq_u64(seen, vdupq_n_u64(~static_cast<uint64_t>(last)));
    return (vgetq_lane_u64(over, 0) | vgetq_lane_u64(over, 1)) != 0;
  }

  using Words = uint32x2_t;  // as above
  static Words load_words(const uint32_t* p) { return vld1_u32(p); }
  static Words set_words(uint32_t x) { return vdup_n_u32(x); }
  static Words mix_words(Words a, Words b, Words c) { return veor_u32(veor_u32(a, b), c); }
  static void multiply_words(Words a, Words b, Words* low, Words* high) {
    const uint64x2_t product = vmull_u32(a, b);
    *low = vmovn_u64(product);
    *high = vshrn_n_u64(product, 32);
  }
  static Mask at_least(Words a, uint32_t threshold) {
    const int32x2_t lanes = vreinterpret_s32_u32(vcge_u32(a, vdup_n_u32(threshold)));
    return vreinterpretq_u64_s64(vmovl_s32(lanes));
  }

  static void transpose(Vec (&r)[kLanes]) {
    const Vec low = vtrn1q_f64(r[0], r[1]), high = vtrn2q_f64(r[0], r[1]);
    r[0] = low;
    r[1] = high;
  }
};

}  // namespace poise::POISE_NAMESPACE
