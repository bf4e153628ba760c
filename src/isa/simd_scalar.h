// The vector verbs with one lane, in plain C++: the path of any machine.
//
// A multiply-add is two roundings here (libm's fma would be a function call without hardware for
// it). max(a, b) and min(a, b) return b when either is NaN, like the vector instruction sets.

namespace poise::POISE_NAMESPACE {

template <class Number>
struct Simd {
  using T = Number;
  using Vec = T;
  using Mask = bool;
  static constexpr int kLanes = 1;
  static constexpr int kTileRows = 2, kTileVectors = 4;
  // Whether a multiply-add reads a number from memory for all lanes.
  static constexpr bool kReadsScalars = false;

  static Vec load(const T* p) { return *p; }
  static Vec load_any(const T* p) { return *p; }
  // A float or double as this type.
  static Vec load_widened(const float* p) { return static_cast<T>(*p); }
  static Vec load_widened(const double* p) { return static_cast<T>(*p); }
  static Vec load_first(const T* p, int64_t n) { return n > 0 ? *p : T(0); }
  // v where the byte of a bool mask is set, -inf elsewhere; reads n bytes.
  static Vec hide_unseen(Vec v, const uint8_t* seen, int64_t n) {
    return n > 0 && *seen != 0 ? v : -static_cast<T>(__builtin_inf());
  }
  static void store(T* p, Vec v) { *p = v; }
  static void store_any(T* p, Vec v) { *p = v; }
  static void store_first(T* p, Vec v, int64_t n) {
    if (n > 0) *p = v;
  }
  static Vec set(T x) { return x; }
  static Vec zero() { return T(0); }
  static Vec add(Vec a, Vec b) { return a + b; }
  static Vec sub(Vec a, Vec b) { return a - b; }
  static Vec mul(Vec a, Vec b) { return a * b; }
  static Vec div(Vec a, Vec b) { return a / b; }
  static Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
  static Vec max(Vec a, Vec b) { return a > b ? a : b; }
  static Vec min(Vec a, Vec b) { return a < b ? a : b; }
  static Vec abs(Vec a) { return __builtin_signbit(a) ? -a : a; }
  static Vec with_sign_of(Vec magnitude, Vec sign) {
    return __builtin_signbit(sign) ? -magnitude : magnitude;
  }
  static Mask less(Vec a, Vec b) { return a < b; }
  static Mask less_equal(Vec a, Vec b) { return a <= b; }
  static Mask equal(Vec a, Vec b) { return a == b; }
  static Mask negative(Vec a) { return __builtin_signbit(a) != 0; }
  static Mask both(Mask a, Mask b) { return a && b; }
  static Mask first_only(Mask a, Mask b) { return a && !b; }
  static bool any(Mask m) { return m; }
  static Vec select(Mask m, Vec yes, Vec no) { return m ? yes : no; }
  // The operation where m is set, `kept` elsewhere.
  static Vec add_where(Mask m, Vec kept, Vec b) { return m ? kept + b : kept; }
  static Vec fma_where(Mask m, Vec a, Vec b, Vec kept) { return m ? fma(a, b, kept) : kept; }
  static Vec max_where(Mask m, Vec a, Vec kept) { return m ? max(a, kept) : kept; }

  // Only |x| far below 2^31 matters: exp() drops everything under its cut, NaN and infinities
  // included, before the integer below is used.
  static int32_t floor_of(Vec x) {
    const bool usable = x > T(-2000) && x < T(2000);
    const int32_t n = static_cast<int32_t>(usable ? x : T(0));
    return n - (usable && static_cast<T>(n) > x ? 1 : 0);
  }
  static Vec fraction(Vec x) { return x - static_cast<T>(floor_of(x)); }
  static Vec scale_by_power(Vec p, Vec x, Vec cut) {
    constexpr int kMantissaBits = sizeof(T) == 4 ? 23 : 52;
    using Word = decltype(bits_of(T(0)));
    const Word shifted = static_cast<Word>(floor_of(x)) << kMantissaBits;
    Word bits;
    __builtin_memcpy(&bits, &p, sizeof p);
    bits += shifted;
    __builtin_memcpy(&p, &bits, sizeof p);
    return x < cut ? T(0) : p;
  }

  // A set of kBinsPerPart bits, for counting (kernels/histogram.inl).
  using Bits = uint64_t;
  using BitWord = uint64_t;
  static constexpr int kBinsPerPart = 64;
  static Mask rows_mask(int64_t n) { return n > 0; }
  static Bits no_bits() { return 0; }
  static Bits join_bits(Bits a, Bits b) { return a | b; }
  static Bits parity(Bits a, Bits b, Bits c) { return a ^ b ^ c; }
  static Bits majority(Bits a, Bits b, Bits c) { return (a & b) | (c & (a ^ b)); }
  static void store_bits(BitWord* p, Bits bits) { *p = bits; }
  // v rounded down; what is negative, beyond 2^31 or NaN becomes a negative number.
  static Bits floor_bits(Vec v) {
    const bool usable = v >= T(0) && v < T(2147483648.0);
    return static_cast<Bits>(usable ? static_cast<int64_t>(v) : -1);
  }
  // 1 << index, none where that is outside the set.
  static Bits one_bit(Bits index, int) { return index < 64 ? uint64_t{1} << index : 0; }
  // Whether an index joined into `seen` was negative or has a bit above those of `last`.
  static bool beyond(Bits seen, int last) { return (seen & ~static_cast<Bits>(last)) != 0; }

  // One 32-bit word, for random numbers (kernels/dropout.inl).
  using Words = uint32_t;
  static Words load_words(const uint32_t* p) { return *p; }
  static Words set_words(uint32_t x) { return x; }
  // a ^ b ^ c.
  static Words mix_words(Words a, Words b, Words c) { return a ^ b ^ c; }
  // The halves of a * b.
  static void multiply_words(Words a, Words b, Words* low, Words* high) {
    const uint64_t product = uint64_t{a} * b;
    *low = low_word(product);
    *high = high_word(product);
  }
  static Mask at_least(Words a, uint32_t threshold) { return a >= threshold; }

  // One 16-bit element, widened exactly; and back, rounded to nearest even.
  static Vec load_bf16(const uint16_t* p, int64_t n) { return n > 0 ? widen_bf16(*p) : 0; }
  static Vec load_f16(const uint16_t* p, int64_t n) { return n > 0 ? widen_f16(*p) : 0; }
  // A pair of bf16 in the bits of a float, from any address, and the first or second of the pair.
  static float load_bf16_pairs(const void* p) {
    float pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return pair;
  }
  static float first_of_bf16_pairs(float pair) { return float_of_bits(bits_of_float(pair) << 16); }
  static float second_of_bf16_pairs(float pair) {
    return float_of_bits(bits_of_float(pair) & 0xffff0000u);
  }
  // Two columns are those of even and of odd index already.
  static void part_pairs(Vec&, Vec&) {}
  static void join_pairs(Vec&, Vec&) {}
  static void store_bf16(uint16_t* p, Vec v, int64_t n) {
    if (n > 0) *p = narrow_bf16(static_cast<float>(v));
  }
  static void store_f16(uint16_t* p, Vec v, int64_t n) {
    if (n > 0) *p = narrow_f16(static_cast<float>(v));
  }

  static void transpose(Vec (&)[kLanes]) {}

 private:
  static uint32_t bits_of(float) { return 0; }
  static uint64_t bits_of(double) { return 0; }
};

}  // namespace poise::POISE_NAMESPACE
