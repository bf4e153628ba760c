// The vector verbs for AVX2 with FMA: 8 floats or 4 doubles.
//
// Included inside the target region of avx2.cpp, never elsewhere. `Mask` is a vector whose lanes
// are all ones or all zeros. max(a, b) and min(a, b) return b when either is NaN.

namespace poise::POISE_NAMESPACE {

template <class T>
struct Simd;

template <>
struct Simd<float> {
  using T = float;
  using Vec = __m256;
  using Mask = __m256;
  static constexpr int kLanes = 8;
  // Inner tile of rows x vectors: 12 accumulators, 2 operands, 1 broadcast of 16 registers.
  static constexpr int kTileRows = 6, kTileVectors = 2;
  // Whether a multiply-add reads a number from memory for all lanes.
  static constexpr bool kReadsScalars = false;

  static __m256i first_lanes(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Vec load(const T* p) { return _mm256_load_ps(p); }
  static Vec load_any(const T* p) { return _mm256_loadu_ps(p); }
  static Vec load_first(const T* p, int64_t n) { return _mm256_maskload_ps(p, first_lanes(n)); }
  // v where the byte of a bool mask is set, -inf elsewhere; reads n bytes.
  static Vec hide_unseen(Vec v, const uint8_t* seen, int64_t n) {
    uint64_t bytes = 0;
    if (n == kLanes)
      memcpy(&bytes, seen, kLanes);
    else
      for (int64_t i = 0; i < n; ++i) bytes |= uint64_t{seen[i]} << (8 * i);
    const __m256i wide = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(bytes)));
    const __m256i hidden = _mm256_cmpeq_epi32(wide, _mm256_setzero_si256());
    return _mm256_blendv_ps(v, _mm256_set1_ps(-__builtin_inff()), _mm256_castsi256_ps(hidden));
  }
  static void store(T* p, Vec v) { _mm256_store_ps(p, v); }
  static void store_any(T* p, Vec v) { _mm256_storeu_ps(p, v); }
  static void store_first(T* p, Vec v, int64_t n) { _mm256_maskstore_ps(p, first_lanes(n), v); }
  static Vec set(T x) { return _mm256_set1_ps(x); }
  static Vec zero() { return _mm256_setzero_ps(); }
  static Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
  static Vec sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
  static Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
  static Vec div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
  static Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
  static Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
  static Vec abs(Vec a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
  static Vec with_sign_of(Vec magnitude, Vec sign) {
    return _mm256_or_ps(magnitude, _mm256_and_ps(_mm256_set1_ps(-0.0f), sign));
  }
  static Mask less(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  static Mask less_equal(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
  static Mask equal(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
  // Lanes whose sign bit is set; good for select() and any() only.
  static Mask negative(Vec a) { return a; }
  static Mask both(Mask a, Mask b) { return _mm256_and_ps(a, b); }
  static Mask first_only(Mask a, Mask b) { return _mm256_andnot_ps(b, a); }
  static bool any(Mask m) { return _mm256_movemask_ps(m) != 0; }
  static Vec select(Mask m, Vec yes, Vec no) { return _mm256_blendv_ps(no, yes, m); }
  // The operation where m is set, `kept` elsewhere.
  static Vec add_where(Mask m, Vec kept, Vec b) { return add(kept, _mm256_and_ps(m, b)); }
  static Vec fma_where(Mask m, Vec a, Vec b, Vec kept) { return fma(_mm256_and_ps(m, a), b, kept); }
  static Vec max_where(Mask m, Vec a, Vec kept) { return max(select(m, a, kept), kept); }

  static Vec fraction(Vec x) { return _mm256_sub_ps(x, _mm256_floor_ps(x)); }
  static Vec scale_by_power(Vec p, Vec x, Vec cut) {
    const __m256i n = _mm256_cvttps_epi32(_mm256_floor_ps(x));
    const __m256i scaled = _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(n, 23));
    return _mm256_andnot_ps(less(x, cut), _mm256_castsi256_ps(scaled));
  }

  // Sets of kBinsPerPart bits per lane, for counting (kernels/histogram.inl).
  using Bits = __m256i;
  using BitWord = uint32_t;
  static constexpr int kBinsPerPart = 32;
  static Mask rows_mask(int64_t n) { return _mm256_castsi256_ps(first_lanes(n)); }
  static Bits no_bits() { return _mm256_setzero_si256(); }
  static Bits join_bits(Bits a, Bits b) { return _mm256_or_si256(a, b); }
  static Bits parity(Bits a, Bits b, Bits c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }
  static Bits majority(Bits a, Bits b, Bits c) {
    return _mm256_or_si256(_mm256_and_si256(a, b), _mm256_and_si256(c, _mm256_xor_si256(a, b)));
  }
  static void store_bits(BitWord* p, Bits bits) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(p), bits);
  }
  // v rounded down; what no int32 holds becomes a negative number.
  static Bits floor_bits(Vec v) { return _mm256_cvttps_epi32(_mm256_floor_ps(v)); }
  // 1 << (index - part * kBinsPerPart), none where that is outside the part.
  static Bits one_bit(Bits index, int part) {
    return _mm256_sllv_epi32(_mm256_set1_epi32(1),
                             _mm256_sub_epi32(index, _mm256_set1_epi32(kBinsPerPart * part)));
  }
  // Whether an index joined into `seen` was negative or has a bit above those of `last`.
  static bool beyond(Bits seen, int last) {
    return !_mm256_testz_si256(seen, _mm256_set1_epi32(~last));
  }

  // One 32-bit word per lane, for random numbers (kernels/dropout.inl): the low halves of 64-bit
  // lanes, since those are what the instruction set multiplies. The high halves may hold anything.
  struct Words {
    __m256i even, odd;  // lanes 0, 2, ... and 1, 3, ...
  };
  static Words load_words(const uint32_t* p) {
    const __m256i words = _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
    return {words, _mm256_srli_epi64(words, 32)};
  }
  static Words set_words(uint32_t x) {
    const __m256i words = _mm256_set1_epi32(static_cast<int>(x));
    return {words, words};
  }
  // a ^ b ^ c.
  static Words mix_words(Words a, Words b, Words c) {
    return {parity(a.even, b.even, c.even), parity(a.odd, b.odd, c.odd)};
  }
  // The halves of a * b.
  static void multiply_words(Words a, Words b, Words* low, Words* high) {
    *low = {_mm256_mul_epu32(a.even, b.even), _mm256_mul_epu32(a.odd, b.odd)};
    *high = {_mm256_srli_epi64(low->even, 32), _mm256_srli_epi64(low->odd, 32)};
  }
  static Mask at_least(Words a, uint32_t threshold) {
    const __m256i words = _mm256_blend_epi32(a.even, _mm256_slli_epi64(a.odd, 32), 0xaa);
    const __m256i least = _mm256_set1_epi32(static_cast<int>(threshold));
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_max_epu32(words, least), words));
  }

  // The first n 16-bit elements, widened exactly; and back, rounded to nearest even. There is no
  // masked 16-bit access here: tails go through eight elements of their own.
  static __m128i load_bits(const uint16_t* p, int64_t n) {
    if (n == kLanes) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    alignas(16) uint16_t tail[kLanes] = {};
    for (int64_t i = 0; i < n; ++i) tail[i] = p[i];
    return _mm_load_si128(reinterpret_cast<const __m128i*>(tail));
  }
  static void store_bits(uint16_t* p, __m128i bits, int64_t n) {
    if (n == kLanes) return _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bits);
    alignas(16) uint16_t tail[kLanes];
    _mm_store_si128(reinterpret_cast<__m128i*>(tail), bits);
    for (int64_t i = 0; i < n; ++i) p[i] = tail[i];
  }
  static Vec load_bf16(const uint16_t* p, int64_t n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_bits(p, n)), 16));
  }
  static Vec load_f16(const uint16_t* p, int64_t n) { return _mm256_cvtph_ps(load_bits(p, n)); }
  // Pairs of bf16 from any address, and the first or second of each pair, widened.
  static Vec load_bf16_pairs(const void* p) {
    return _mm256_castsi256_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  static Vec first_of_bf16_pairs(Vec pairs) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs), 16));
  }
  static Vec second_of_bf16_pairs(Vec pairs) {
    return _mm256_castsi256_ps(
        _mm256_and_si256(_mm256_castps_si256(pairs), _mm256_set1_epi32(-65536)));
  }
  // Two vectors of columns as those of even and those of odd index, and back.
  static void part_pairs(Vec& a, Vec& b) {
    const Vec low = _mm256_permute2f128_ps(a, b, 0x20), high = _mm256_permute2f128_ps(a, b, 0x31);
    a = _mm256_shuffle_ps(low, high, 0x88);
    b = _mm256_shuffle_ps(low, high, 0xdd);
  }
  static void join_pairs(Vec& a, Vec& b) {
    const Vec low = _mm256_unpacklo_ps(a, b), high = _mm256_unpackhi_ps(a, b);
    a = _mm256_permute2f128_ps(low, high, 0x20);
    b = _mm256_permute2f128_ps(low, high, 0x31);
  }
  static void store_f16(uint16_t* p, Vec v, int64_t n) {
    store_bits(p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), n);
  }
  static void store_bf16(uint16_t* p, Vec v, int64_t n) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    // A NaN keeps its upper half, made quiet; adding to it could carry into infinity.
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i rounded = _mm256_castps_si256(
        _mm256_blendv_ps(_mm256_castsi256_ps(_mm256_add_epi32(bits, bias)),
                         _mm256_castsi256_ps(quiet), _mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
    const __m256i high = _mm256_srli_epi32(rounded, 16);
    store_bits(p, _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1)),
               n);
  }

  static void transpose(Vec (&r)[kLanes]) {
    Vec t[kLanes];
    POISE_UNROLL(2)
    for (int i = 0; i < 8; i += 4) {
      const Vec a = _mm256_unpacklo_ps(r[i], r[i + 1]), b = _mm256_unpackhi_ps(r[i], r[i + 1]);
      const Vec c = _mm256_unpacklo_ps(r[i + 2], r[i + 3]);
      const Vec d = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
      t[i] = _mm256_shuffle_ps(a, c, 0x44);
      t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
      t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
      t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
    POISE_UNROLL(4)
    for (int c = 0; c < 4; ++c) {
      r[c] = _mm256_permute2f128_ps(t[c], t[4 + c], 0x20);
      r[4 + c] = _mm256_permute2f128_ps(t[c], t[4 + c], 0x31);
    }
  }
};

template <>
struct Simd<double> {
  using T = double;
  using Vec = __m256d;
  using Mask = __m256d;
  static constexpr int kLanes = 4;
  static constexpr int kTileRows = 6, kTileVectors = 2;
  // Whether a multiply-add reads a number from memory for all lanes.
  static constexpr bool kReadsScalars = false;

  static __m256i first_lanes(int64_t n) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
  }
  static Vec load(const T* p) { return _mm256_load_pd(p); }
  static Vec load_any(const T* p) { return _mm256_loadu_pd(p); }
  // kLanes floats or doubles, aligned to their own vector.
  static Vec load_widened(const float* p) { return _mm256_cvtps_pd(_mm_load_ps(p)); }
  static Vec load_widened(const double* p) { return load(p); }
  static Vec load_first(const T* p, int64_t n) { return _mm256_maskload_pd(p, first_lanes(n)); }
  static Vec hide_unseen(Vec v, const uint8_t* seen, int64_t n) {
    uint64_t bytes = 0;
    if (n == kLanes)
      memcpy(&bytes, seen, kLanes);
    else
      for (int64_t i = 0; i < n; ++i) bytes |= uint64_t{seen[i]} << (8 * i);
    const __m256i wide = _mm256_cvtepu8_epi64(_mm_cvtsi64_si128(static_cast<int64_t>(bytes)));
    const __m256i hidden = _mm256_cmpeq_epi64(wide, _mm256_setzero_si256());
    return _mm256_blendv_pd(v, _mm256_set1_pd(-__builtin_inf()), _mm256_castsi256_pd(hidden));
  }
  static void store(T* p, Vec v) { _mm256_store_pd(p, v); }
  static void store_any(T* p, Vec v) { _mm256_storeu_pd(p, v); }
  static void store_first(T* p, Vec v, int64_t n) { _mm256_maskstore_pd(p, first_lanes(n), v); }
  static Vec set(T x) { return _mm256_set1_pd(x); }
  static Vec zero() { return _mm256_setzero_pd(); }
  static Vec add(Vec a, Vec b) { return _mm256_add_pd(a, b); }
  static Vec sub(Vec a, Vec b) { return _mm256_sub_pd(a, b); }
  static Vec mul(Vec a, Vec b) { return _mm256_mul_pd(a, b); }
  static Vec div(Vec a, Vec b) { return _mm256_div_pd(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_pd(a, b, c); }
  static Vec max(Vec a, Vec b) { return _mm256_max_pd(a, b); }
  static Vec min(Vec a, Vec b) { return _mm256_min_pd(a, b); }
  static Vec abs(Vec a) { return _mm256_andnot_pd(_mm256_set1_pd(-0.0), a); }
  static Vec with_sign_of(Vec magnitude, Vec sign) {
    return _mm256_or_pd(magnitude, _mm256_and_pd(_mm256_set1_pd(-0.0), sign));
  }
  static Mask less(Vec a, Vec b) { return _mm256_cmp_pd(a, b, _CMP_LT_OQ); }
  static Mask less_equal(Vec a, Vec b) { return _mm256_cmp_pd(a, b, _CMP_LE_OQ); }
  static Mask equal(Vec a, Vec b) { return _mm256_cmp_pd(a, b, _CMP_EQ_OQ); }
  static Mask negative(Vec a) { return a; }
  static Mask both(Mask a, Mask b) { return _mm256_and_pd(a, b); }
  static Mask first_only(Mask a, Mask b) { return _mm256_andnot_pd(b, a); }
  static bool any(Mask m) { return _mm256_movemask_pd(m) != 0; }
  static Vec select(Mask m, Vec yes, Vec no) { return _mm256_blendv_pd(no, yes, m); }
  // The operation where m is set, `kept` elsewhere.
  static Vec add_where(Mask m, Vec kept, Vec b) { return add(kept, _mm256_and_pd(m, b)); }
  static Vec fma_where(Mask m, Vec a, Vec b, Vec kept) { return fma(_mm256_and_pd(m, a), b, kept); }
  static Vec max_where(Mask m, Vec a, Vec kept) { return max(select(m, a, kept), kept); }

  static Vec fraction(Vec x) { return _mm256_sub_pd(x, _mm256_floor_pd(x)); }
  static Vec scale_by_power(Vec p, Vec x, Vec cut) {
    const __m256i n = _mm256_cvtepi32_epi64(_mm256_cvttpd_epi32(_mm256_floor_pd(x)));
    const __m256i scaled = _mm256_add_epi64(_mm256_castpd_si256(p), _mm256_slli_epi64(n, 52));
    return _mm256_andnot_pd(less(x, cut), _mm256_castsi256_pd(scaled));
  }

  using Bits = __m256i;
  using BitWord = uint64_t;
  static constexpr int kBinsPerPart = 64;
  static Mask rows_mask(int64_t n) { return _mm256_castsi256_pd(first_lanes(n)); }
  static Bits no_bits() { return _mm256_setzero_si256(); }
  static Bits join_bits(Bits a, Bits b) { return _mm256_or_si256(a, b); }
  static Bits parity(Bits a, Bits b, Bits c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }
  static Bits majority(Bits a, Bits b, Bits c) {
    return _mm256_or_si256(_mm256_and_si256(a, b), _mm256_and_si256(c, _mm256_xor_si256(a, b)));
  }
  static void store_bits(BitWord* p, Bits bits) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(p), bits);
  }
  static Bits floor_bits(Vec v) {
    return _mm256_cvtepi32_epi64(_mm256_cvttpd_epi32(_mm256_floor_pd(v)));
  }
  static Bits one_bit(Bits index, int part) {
    return _mm256_sllv_epi64(_mm256_set1_epi64x(1),
                             _mm256_sub_epi64(index, _mm256_set1_epi64x(kBinsPerPart * part)));
  }
  static bool beyond(Bits seen, int last) {
    return !_mm256_testz_si256(seen, _mm256_set1_epi64x(~last));
  }

  using Words = __m256i;  // as above, of all lanes
  static Words load_words(const uint32_t* p) {
    return _mm256_cvtepu32_epi64(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Words set_words(uint32_t x) { return _mm256_set1_epi64x(x); }
  static Words mix_words(Words a, Words b, Words c) { return parity(a, b, c); }
  static void multiply_words(Words a, Words b, Words* low, Words* high) {
    *low = _mm256_mul_epu32(a, b);
    *high = _mm256_srli_epi64(*low, 32);
  }
  static Mask at_least(Words a, uint32_t threshold) {
    // Signed numbers of 33 bits: threshold - 1 may be -1.
    const __m256i words = _mm256_and_si256(a, _mm256_set1_epi64x(0xffffffff));
    return _mm256_castsi256_pd(
        _mm256_cmpgt_epi64(words, _mm256_set1_epi64x(int64_t{threshold} - 1)));
  }

  static void transpose(Vec (&r)[kLanes]) {
    const Vec a = _mm256_unpacklo_pd(r[0], r[1]), b = _mm256_unpackhi_pd(r[0], r[1]);
    const Vec c = _mm256_unpacklo_pd(r[2], r[3]), d = _mm256_unpackhi_pd(r[2], r[3]);
    r[0] = _mm256_permute2f128_pd(a, c, 0x20);
    r[1] = _mm256_permute2f128_pd(b, d, 0x20);
    r[2] = _mm256_permute2f128_pd(a, c, 0x31);
    r[3] = _mm256_permute2f128_pd(b, d, 0x31);
  }
};

}  // namespace poise::POISE_NAMESPACE
