// Dropout of weights: Philox4x32-10 over a vector of rows at a time (philox.h has the rule).
//
//   counter = (key / 4, query, head, batch)      one call serves four keys of a row
//   factor  = word key % 4 >= threshold ? 1/(1 - p) : 0
//
// The words are a function of absolute positions alone, so that forward and backward, any tiling
// and any thread drop the same weights. Rounds 1 and 2 fall into a part of the row and a part of
// the key, which are joined by xor: only eight rounds are left for each (row, four keys).

namespace poise::POISE_NAMESPACE {

// Calls apply(j, factor) for keys j in [begin, end) of the block that starts at key `key`, and the
// vector of rows from `row` on. Row r is query r / heads of head r % heads; lanes beyond the last
// row get factors that go nowhere.
template <class S, class Apply>
POISE_INLINE void draw_factors(const DropoutRule& rule, int64_t heads, int64_t row, int64_t key,
                               int64_t begin, int64_t end, const Apply& apply) {
  using T = typename S::T;
  using Vec = typename S::Vec;
  using Words = typename S::Words;
  constexpr int W = S::kLanes;
  alignas(64) uint32_t queries[W], head[W];
  uint32_t query_word = rule.query + static_cast<uint32_t>(row / heads);
  int64_t head_of_lane = row % heads;
  for (int i = 0; i < W; ++i) {
    queries[i] = query_word;
    head[i] = rule.head + static_cast<uint32_t>(head_of_lane);
    if (++head_of_lane < heads) continue;
    head_of_lane = 0;
    ++query_word;
  }
  uint32_t step[kPhiloxRounds][2];  // the key of each round
  for (uint32_t r = 0; r < kPhiloxRounds; ++r) {
    step[r][0] = rule.key[0] + r * kPhiloxStep0;
    step[r][1] = rule.key[1] + r * kPhiloxStep1;
  }
  const Words multiplier0 = S::set_words(kPhiloxMultiplier0);
  const Words multiplier1 = S::set_words(kPhiloxMultiplier1);
  const Vec factor = S::set(static_cast<T>(rule.factor));

  // What rounds 1 and 2 make of the row.
  Words row_low, row_high, round1_low, round1_high;
  S::multiply_words(S::load_words(head), multiplier1, &round1_low, &round1_high);
  S::multiply_words(S::mix_words(round1_high, S::load_words(queries), S::set_words(step[0][0])),
                    multiplier0, &row_low, &row_high);
  row_high = S::mix_words(row_high, S::set_words(step[1][1]), S::set_words(0));
  const Words row_word = S::mix_words(round1_low, S::set_words(step[1][0]), S::set_words(0));

  const int64_t first = rule.first_key + key;  // the absolute position of the block's key 0
  POISE_UNROLL(1)
  for (int64_t four = (first + begin) / 4; 4 * four < first + end; ++four) {
    // What they make of the key.
    const uint64_t a = uint64_t{kPhiloxMultiplier0} * static_cast<uint32_t>(four);
    const uint64_t b = uint64_t{kPhiloxMultiplier1} * (high_word(a) ^ rule.batch ^ step[0][1]);
    const Words none = S::set_words(0);
    Words c0 = S::mix_words(row_word, S::set_words(high_word(b)), none);
    Words c1 = S::set_words(low_word(b));
    Words c2 = S::mix_words(row_high, S::set_words(low_word(a)), none);
    Words c3 = row_low;
    POISE_UNROLL(8)
    for (int r = 2; r < kPhiloxRounds; ++r) {
      Words low0, high0, low1, high1;
      S::multiply_words(c0, multiplier0, &low0, &high0);
      S::multiply_words(c2, multiplier1, &low1, &high1);
      c0 = S::mix_words(high1, c1, S::set_words(step[r][0]));
      c1 = low1;
      c2 = S::mix_words(high0, c3, S::set_words(step[r][1]));
      c3 = low0;
    }
    const Words words[4] = {c0, c1, c2, c3};
    POISE_UNROLL(4)
    for (int n = 0; n < 4; ++n) {
      const int64_t j = 4 * four + n - first;
      if (j >= begin && j < end)
        apply(j, S::select(S::at_least(words[n], rule.threshold), factor, S::zero()));
    }
  }
}

// Multiplies weights [begin, end) of one vector of rows by 0 or 1/(1 - p), in place. `weights` is
// [key][kQueries], at the vector's first lane. Signs stay, so that a key marked as unseen does too;
// a NaN stays one. Never inlined: calls without dropout keep their registers.
template <class S>
__attribute__((noinline)) void drop_weights(const DropoutRule& rule, int64_t heads, int64_t row,
                                            int64_t key, int64_t begin, int64_t end,
                                            typename S::T* weights) {
  draw_factors<S>(rule, heads, row, key, begin, end, [&](int64_t j, typename S::Vec factor) {
    typename S::T* at = weights + j * kQueries<S>;
    S::store(at, S::mul(S::load(at), factor));
  });
}

// Writes the factors themselves.
template <class S>
__attribute__((noinline)) void fill_dropout(const DropoutRule& rule, int64_t heads, int64_t row,
                                            int64_t key, int64_t begin, int64_t end,
                                            typename S::T* factors) {
  draw_factors<S>(rule, heads, row, key, begin, end, [&](int64_t j, typename S::Vec factor) {
    S::store(factors + j * kQueries<S>, factor);
  });
}

}  // namespace poise::POISE_NAMESPACE
