// The vector verbs for AVX-512 (F, BW, DQ, VL): 16 floats or 8 doubles.
//
// Included inside the target region of avx512.cpp, never elsewhere. The same verbs exist for every
// instruction set; kernels/*.inl speak only these. `Mask` is one bit per lane.
// max(a, b) and min(a, b) return b when either is NaN, as the x86 instructions do.

namespace poise::POISE_NAMESPACE {

template <class T>
struct Simd;

template <>
struct Simd<float> {
  using T = float;
  using Vec = __m512;
  using Mask = __mmask16;
  static constexpr int kLanes = 16;
  // Inner tile of rows x vectors: 24 accumulators, 4 operands, 1 broadcast of 32 registers.
  static constexpr int kTileRows = 6, kTileVectors = 4;
  // Whether a multiply-add reads a number from memory for all lanes.
  static constexpr bool kReadsScalars = true;

  static Vec load(const T* p) { return _mm512_load_ps(p); }
  static Vec load_any(const T* p) { return _mm512_loadu_ps(p); }
  static Vec load_first(const T* p, int64_t n) {
    return _mm512_maskz_loadu_ps(static_cast<Mask>((1u << n) - 1u), p);
  }
  // v where the byte of a bool mask is set, -inf elsewhere; reads n bytes.
  static Vec hide_unseen(Vec v, const uint8_t* seen, int64_t n) {
    const __m128i bytes = _mm_maskz_loadu_epi8(static_cast<__mmask16>((1u << n) - 1u), seen);
    return _mm512_mask_blend_ps(_mm_test_epi8_mask(bytes, bytes), _mm512_set1_ps(-__builtin_inff()),
                                v);
  }
  static void store(T* p, Vec v) { _mm512_store_ps(p, v); }
  static void store_any(T* p, Vec v) { _mm512_storeu_ps(p, v); }
  static void store_first(T* p, Vec v, int64_t n) {
    _mm512_mask_storeu_ps(p, static_cast<Mask>((1u << n) - 1u), v);
  }
  static Vec set(T x) { return _mm512_set1_ps(x); }
  static Vec zero() { return _mm512_setzero_ps(); }
  static Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
  static Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
  static Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
  static Vec div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
  static Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
  static Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
  static Vec abs(Vec a) { return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a); }
  static Vec with_sign_of(Vec magnitude, Vec sign) {
    return _mm512_or_ps(magnitude, _mm512_and_ps(_mm512_set1_ps(-0.0f), sign));
  }
  static Mask less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static Mask less_equal(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
  static Mask equal(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
  static Mask negative(Vec a) { return _mm512_movepi32_mask(_mm512_castps_si512(a)); }
  static Mask both(Mask a, Mask b) { return static_cast<Mask>(a & b); }
  static Mask first_only(Mask a, Mask b) { return static_cast<Mask>(a & ~b); }
  static bool any(Mask m) { return m != 0; }
  static Vec select(Mask m, Vec yes, Vec no) { return _mm512_mask_blend_ps(m, no, yes); }
  // The operation where m is set, `kept` elsewhere.
  static Vec add_where(Mask m, Vec kept, Vec b) { return _mm512_mask_add_ps(kept, m, kept, b); }
  static Vec fma_where(Mask m, Vec a, Vec b, Vec kept) {
    return _mm512_mask3_fmadd_ps(a, b, kept, m);
  }
  static Vec max_where(Mask m, Vec a, Vec kept) { return _mm512_mask_max_ps(kept, m, a, kept); }

  // x - floor(x), exact.
  static Vec fraction(Vec x) { return _mm512_reduce_ps(x, 0x09); }
  // p * 2^floor(x), for p in [1, 2); exactly 0 where x < cut, NaN where x is.
  static Vec scale_by_power(Vec p, Vec x, Vec cut) {
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, cut, _CMP_NLT_UQ), p, x);
  }

  // Sets of kBinsPerPart bits per lane, for counting (kernels/histogram.inl).
  using Bits = __m512i;
  using BitWord = uint32_t;
  static constexpr int kBinsPerPart = 32;
  static Mask rows_mask(int64_t n) {
    return static_cast<Mask>(n < kLanes ? (1u << n) - 1u : 0xffffu);
  }
  static Bits no_bits() { return _mm512_setzero_si512(); }
  static Bits join_bits(Bits a, Bits b) { return _mm512_or_si512(a, b); }
  static Bits parity(Bits a, Bits b, Bits c) { return _mm512_ternarylogic_epi64(a, b, c, 0x96); }
  static Bits majority(Bits a, Bits b, Bits c) { return _mm512_ternarylogic_epi64(a, b, c, 0xe8); }
  static void store_bits(BitWord* p, Bits bits) { _mm512_store_si512(p, bits); }
  // v rounded down; what no int32 holds becomes a negative number.
  static Bits floor_bits(Vec v) {
    return _mm512_cvt_roundps_epi32(v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  }
  // 1 << (index - part * kBinsPerPart), none where that is outside the part.
  static Bits one_bit(Bits index, int part) {
    return _mm512_sllv_epi32(_mm512_set1_epi32(1),
                             _mm512_sub_epi32(index, _mm512_set1_epi32(kBinsPerPart * part)));
  }
  // Whether an index joined into `seen` was negative or has a bit above those of `last`.
  static bool beyond(Bits seen, int last) {
    return _mm512_test_epi32_mask(seen, _mm512_set1_epi32(~last)) != 0;
  }

  // One 32-bit word per lane, for random numbers (kernels/dropout.inl): the low halves of 64-bit
  // lanes, since those are what the instruction set multiplies. The high halves may hold anything.
  struct Words {
    __m512i even, odd;  // lanes 0, 2, ... and 1, 3, ...
  };
  static Words load_words(const uint32_t* p) {
    const __m512i words = _mm512_load_si512(p);
    return {words, _mm512_srli_epi64(words, 32)};
  }
  static Words set_words(uint32_t x) {
    const __m512i words = _mm512_set1_epi32(static_cast<int>(x));
    return {words, words};
  }
  // a ^ b ^ c.
  static Words mix_words(Words a, Words b, Words c) {
    return {parity(a.even, b.even, c.even), parity(a.odd, b.odd, c.odd)};
  }
  // The halves of a * b.
  static void multiply_words(Words a, Words b, Words* low, Words* high) {
    *low = {_mm512_mul_epu32(a.even, b.even), _mm512_mul_epu32(a.odd, b.odd)};
    *high = {_mm512_srli_epi64(low->even, 32), _mm512_srli_epi64(low->odd, 32)};
  }
  static Mask at_least(Words a, uint32_t threshold) {
    const __m512i words = _mm512_mask_shuffle_epi32(a.even, 0xaaaa, a.odd, _MM_PERM_CCAA);
    return _mm512_cmpge_epu32_mask(words, _mm512_set1_epi32(static_cast<int>(threshold)));
  }

  // The first n 16-bit elements, widened exactly; and back, rounded to nearest even.
  static Vec load_bf16(const uint16_t* p, int64_t n) {
    const __m256i bits = _mm256_maskz_loadu_epi16(static_cast<Mask>((1u << n) - 1u), p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static Vec load_f16(const uint16_t* p, int64_t n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(static_cast<Mask>((1u << n) - 1u), p));
  }
  // Pairs of bf16 from any address, and the first or second of each pair, widened.
  static Vec load_bf16_pairs(const void* p) { return _mm512_loadu_ps(p); }
  static Vec first_of_bf16_pairs(Vec pairs) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), 16));
  }
  static Vec second_of_bf16_pairs(Vec pairs) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(pairs), _mm512_set1_epi32(-65536)));
  }
  // Two vectors of columns as those of even and those of odd index, and back.
  static void part_pairs(Vec& a, Vec& b) {
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const Vec first = _mm512_permutex2var_ps(a, even, b);
    b = _mm512_permutex2var_ps(a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b);
    a = first;
  }
  static void join_pairs(Vec& a, Vec& b) {
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const Vec first = _mm512_permutex2var_ps(a, low, b);
    b = _mm512_permutex2var_ps(a, _mm512_add_epi32(low, _mm512_set1_epi32(8)), b);
    a = first;
  }
  static void store_f16(uint16_t* p, Vec v, int64_t n) {
    const __m256i bits = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_mask_storeu_epi16(p, static_cast<Mask>((1u << n) - 1u), bits);
  }
  static void store_bf16(uint16_t* p, Vec v, int64_t n) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    // A NaN keeps its upper half, made quiet; adding to it could carry into infinity.
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __m512i rounded = _mm512_mask_mov_epi32(_mm512_add_epi32(bits, bias),
                                                  _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), quiet);
    _mm256_mask_storeu_epi16(p, static_cast<Mask>((1u << n) - 1u),
                             _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
  }

  // In the order of the columns: those that come out first can be used first.
  static void transpose(Vec (&r)[kLanes]) {
    Vec t[kLanes];
    POISE_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      const Vec even_a = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88);
      const Vec odd_a = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xdd);
      const Vec even_b = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88);
      const Vec odd_b = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xdd);
      t[i] = _mm512_shuffle_f32x4(even_a, even_b, 0x88);
      t[8 + i] = _mm512_shuffle_f32x4(even_a, even_b, 0xdd);
      t[4 + i] = _mm512_shuffle_f32x4(odd_a, odd_b, 0x88);
      t[12 + i] = _mm512_shuffle_f32x4(odd_a, odd_b, 0xdd);
    }
    // t[4g + i] holds columns 4g ... 4g + 3 of rows i, 4 + i, 8 + i, 12 + i, one per 128-bit lane.
    POISE_UNROLL(4)
    for (int g = 0; g < 16; g += 4) {
      const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(t[g], t[g + 1]));
      const __m512d b = _mm512_castps_pd(_mm512_unpackhi_ps(t[g], t[g + 1]));
      const __m512d c = _mm512_castps_pd(_mm512_unpacklo_ps(t[g + 2], t[g + 3]));
      const __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(t[g + 2], t[g + 3]));
      r[g] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
      r[g + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
      r[g + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
      r[g + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
  }
};

template <>
struct Simd<double> {
  using T = double;
  using Vec = __m512d;
  using Mask = __mmask8;
  static constexpr int kLanes = 8;
  static constexpr int kTileRows = 6, kTileVectors = 4;
  // Whether a multiply-add reads a number from memory for all lanes.
  static constexpr bool kReadsScalars = true;

  static Vec load(const T* p) { return _mm512_load_pd(p); }
  static Vec load_any(const T* p) { return _mm512_loadu_pd(p); }
  // kLanes floats or doubles, aligned to their own vector.
  static Vec load_widened(const float* p) { return _mm512_cvtps_pd(_mm256_load_ps(p)); }
  static Vec load_widened(const double* p) { return load(p); }
  static Vec load_first(const T* p, int64_t n) {
    return _mm512_maskz_loadu_pd(static_cast<Mask>((1u << n) - 1u), p);
  }
  static Vec hide_unseen(Vec v, const uint8_t* seen, int64_t n) {
    const __m128i bytes = _mm_maskz_loadu_epi8(static_cast<__mmask16>((1u << n) - 1u), seen);
    return _mm512_mask_blend_pd(static_cast<Mask>(_mm_test_epi8_mask(bytes, bytes)),
                                _mm512_set1_pd(-__builtin_inf()), v);
  }
  static void store(T* p, Vec v) { _mm512_store_pd(p, v); }
  static void store_any(T* p, Vec v) { _mm512_storeu_pd(p, v); }
  static void store_first(T* p, Vec v, int64_t n) {
    _mm512_mask_storeu_pd(p, static_cast<Mask>((1u << n) - 1u), v);
  }
  static Vec set(T x) { return _mm512_set1_pd(x); }
  static Vec zero() { return _mm512_setzero_pd(); }
  static Vec add(Vec a, Vec b) { return _mm512_add_pd(a, b); }
  static Vec sub(Vec a, Vec b) { return _mm512_sub_pd(a, b); }
  static Vec mul(Vec a, Vec b) { return _mm512_mul_pd(a, b); }
  static Vec div(Vec a, Vec b) { return _mm512_div_pd(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_pd(a, b, c); }
  static Vec max(Vec a, Vec b) { return _mm512_max_pd(a, b); }
  static Vec min(Vec a, Vec b) { return _mm512_min_pd(a, b); }
  static Vec abs(Vec a) { return _mm512_andnot_pd(_mm512_set1_pd(-0.0), a); }
  static Vec with_sign_of(Vec magnitude, Vec sign) {
    return _mm512_or_pd(magnitude, _mm512_and_pd(_mm512_set1_pd(-0.0), sign));
  }
  static Mask less(Vec a, Vec b) { return _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ); }
  static Mask less_equal(Vec a, Vec b) { return _mm512_cmp_pd_mask(a, b, _CMP_LE_OQ); }
  static Mask equal(Vec a, Vec b) { return _mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ); }
  static Mask negative(Vec a) { return _mm512_movepi64_mask(_mm512_castpd_si512(a)); }
  static Mask both(Mask a, Mask b) { return static_cast<Mask>(a & b); }
  static Mask first_only(Mask a, Mask b) { return static_cast<Mask>(a & ~b); }
  static bool any(Mask m) { return m != 0; }
  static Vec select(Mask m, Vec yes, Vec no) { return _mm512_mask_blend_pd(m, no, yes); }
  // The operation where m is set, `kept` elsewhere.
  static Vec add_where(Mask m, Vec kept, Vec b) { return _mm512_mask_add_pd(kept, m, kept, b); }
  static Vec fma_where(Mask m, Vec a, Vec b, Vec kept) {
    return _mm512_mask3_fmadd_pd(a, b, kept, m);
  }
  static Vec max_where(Mask m, Vec a, Vec kept) { return _mm512_mask_max_pd(kept, m, a, kept); }

  static Vec fraction(Vec x) { return _mm512_reduce_pd(x, 0x09); }
  static Vec scale_by_power(Vec p, Vec x, Vec cut) {
    return _mm512_maskz_scalef_pd(_mm512_cmp_pd_mask(x, cut, _CMP_NLT_UQ), p, x);
  }

  using Bits = __m512i;
  using BitWord = uint64_t;
  static constexpr int kBinsPerPart = 64;
  static Mask rows_mask(int64_t n) {
    return static_cast<Mask>(n < kLanes ? (1u << n) - 1u : 0xffu);
  }
  static Bits no_bits() { return _mm512_setzero_si512(); }
  static Bits join_bits(Bits a, Bits b) { return _mm512_or_si512(a, b); }
  static Bits parity(Bits a, Bits b, Bits c) { return _mm512_ternarylogic_epi64(a, b, c, 0x96); }
  static Bits majority(Bits a, Bits b, Bits c) { return _mm512_ternarylogic_epi64(a, b, c, 0xe8); }
  static void store_bits(BitWord* p, Bits bits) { _mm512_store_si512(p, bits); }
  // v rounded down; what no int64 holds becomes a negative number.
  static Bits floor_bits(Vec v) {
    return _mm512_cvt_roundpd_epi64(v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  }
  // 1 << (index - part * kBinsPerPart), none where that is outside the part.
  static Bits one_bit(Bits index, int part) {
    return _mm512_sllv_epi64(_mm512_set1_epi64(1),
                             _mm512_sub_epi64(index, _mm512_set1_epi64(kBinsPerPart * part)));
  }
  // Whether an index joined into `seen` was negative or has a bit above those of `last`.
  static bool beyond(Bits seen, int last) {
    return _mm512_test_epi64_mask(seen, _mm512_set1_epi64(~last)) != 0;
  }

  using Words = __m512i;  // as above, of all lanes
  static Words load_words(const uint32_t* p) {
    return _mm512_cvtepu32_epi64(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Words set_words(uint32_t x) { return _mm512_set1_epi64(x); }
  static Words mix_words(Words a, Words b, Words c) { return parity(a, b, c); }
  static void multiply_words(Words a, Words b, Words* low, Words* high) {
    *low = _mm512_mul_epu32(a, b);
    *high = _mm512_srli_epi64(*low, 32);
  }
  static Mask at_least(Words a, uint32_t threshold) {
    return _mm512_cmpge_epu64_mask(_mm512_slli_epi64(a, 32),
                                   _mm512_slli_epi64(_mm512_set1_epi64(threshold), 32));
  }

  static void transpose(Vec (&r)[kLanes]) {
    Vec t[kLanes];
    POISE_UNROLL(4)
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm512_unpacklo_pd(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_pd(r[i], r[i + 1]);
    }
    // t[2g + c] holds columns c, 2 + c, 4 + c, 6 + c of rows 2g, 2g + 1, one per 128-bit lane.
    POISE_UNROLL(2)
    for (int c = 0; c < 2; ++c) {
      const Vec even_a = _mm512_shuffle_f64x2(t[c], t[2 + c], 0x88);
      const Vec odd_a = _mm512_shuffle_f64x2(t[c], t[2 + c], 0xdd);
      const Vec even_b = _mm512_shuffle_f64x2(t[4 + c], t[6 + c], 0x88);
      const Vec odd_b = _mm512_shuffle_f64x2(t[4 + c], t[6 + c], 0xdd);
      r[c] = _mm512_shuffle_f64x2(even_a, even_b, 0x88);
      r[4 + c] = _mm512_shuffle_f64x2(even_a, even_b, 0xdd);
      r[2 + c] = _mm512_shuffle_f64x2(odd_a, odd_b, 0x88);
      r[6 + c] = _mm512_shuffle_f64x2(odd_a, odd_b, 0xdd);
    }
  }
};

}  // namespace poise::POISE_NAMESPACE
