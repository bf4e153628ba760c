// One tile of queries against one packed block of keys: the step everything is made of.
//
//   S = scale K Q                      score_block, maxima kept in registers when nothing is masked
//   S = logits(S)                      mask.inl, only when something masks, caps or adds
//   m' = max(m, max S), alpha = e^(m - m')
//   P = e^(S - m'), l = fma(l, alpha, sum_j P)     j ascending: a fixed order
//   O = fma(alpha, O, V P)             value_block
// Tallies, when on, read S and P on the way and change nothing.

namespace poise::POISE_NAMESPACE {

// What a block may hold besides keys that every row sees.
//   none   every key is seen by every row, and no score overflows
//   masked some logits are -inf
//   marked as masked, and an unseen key gets the weight -0, for value_block_isolated
enum class Unseen : uint8_t { none, masked, marked };

// Weighs keys [begin, end) of one vector: logits become weights in place, their sum is returned.
// `sums` receives the tally of the block, one row of lanes per field up to kArgmax. With kMoments,
// logits are plain scores seen by every row, and their moments about `shift` are gathered too: one
// pass less over the block.
template <class S, TallyLevel kLevel, Unseen kUnseen, bool kMoments>
inline typename S::Vec weigh_keys(int64_t begin, int64_t end, typename S::Vec max,
                                  typename S::Vec shift, typename S::T* logits, typename S::T* sums,
                                  typename S::T* moments) {
  using T = typename S::T;
  using Vec = typename S::Vec;
  constexpr bool kMaxLevel = kLevel >= TallyLevel::max;
  constexpr bool kCore = kLevel >= TallyLevel::core;
  constexpr bool kFull = kLevel >= TallyLevel::full;
  const Vec unseen = S::set(-Limits<T>::kInfinity);
  Vec total = S::zero();
  Vec rest = S::zero(), rest_t = S::zero(), rest_t2 = S::zero();
  Vec rest_e2 = S::zero(), rest_e3 = S::zero(), second = unseen;
  // Keys as negative numbers: the first is the largest.
  Vec minus_key = S::set(static_cast<T>(-begin)), argmax = S::set(-static_cast<T>(kBlockKeys));
  Vec s1 = S::zero(), s2 = S::zero(), low = S::set(Limits<T>::kInfinity);
  POISE_UNROLL(4)
  for (int64_t j = begin; j < end; ++j) {
    T* at = logits + j * kQueries<S>;
    const Vec s = S::load(at);
    const Vec t = S::sub(s, max);
    const Vec p = exp<S>(t);
    total = S::add(total, p);
    if constexpr (kUnseen == Unseen::marked)
      S::store(at, S::select(S::equal(s, unseen), S::set(T(-0.0)), p));
    else
      S::store(at, p);
    if constexpr (kMoments) {
      const Vec d = S::sub(s, shift);
      s1 = S::add(s1, d);
      s2 = S::fma(d, d, s2);
      low = S::min(s, low);
    }
    if constexpr (kMaxLevel) {
      const typename S::Mask below = S::less(t, S::zero());
      rest = S::add_where(below, rest, p);
      second = S::max_where(below, s, second);
      if constexpr (kCore) {
        // t e^t is 0 at the maximum and long before -104; the clamp keeps -inf * 0 away.
        const Vec near = kUnseen == Unseen::none ? t : S::max(t, S::set(-104));
        if constexpr (!kFull) {
          rest_t = S::fma(near, p, rest_t);
          rest_e2 = S::fma_where(below, p, p, rest_e2);
        } else {
          const Vec tp = S::mul(near, p), p2 = S::mul(p, p);
          rest_t = S::add(rest_t, tp);
          rest_t2 = S::fma(tp, near, rest_t2);
          rest_e2 = S::add_where(below, rest_e2, p2);
          rest_e3 = S::fma_where(below, p2, p, rest_e3);
          argmax = S::max_where(S::equal(t, S::zero()), minus_key, argmax);
          minus_key = S::sub(minus_key, S::set(1));
        }
      }
    }
  }
  if constexpr (kMaxLevel) {
    constexpr int W = S::kLanes;
    // Keys at the maximum weigh 1 each, so their number is what the others leave of the total:
    // exact, since rounding errors of 128 weights stay far below 1/2. NaN where a logit was.
    const Vec ones = S::add(S::sub(total, rest), S::set(static_cast<T>(0.5)));
    S::store(sums + kOnes * W, S::sub(ones, S::fraction(ones)));
    S::store(sums + kRest * W, rest);
    S::store(sums + kRestT * W, rest_t);
    S::store(sums + kRestT2 * W, rest_t2);
    S::store(sums + kRestE2 * W, rest_e2);
    S::store(sums + kRestE3 * W, rest_e3);
    S::store(sums + kSecond * W, second);
    S::store(sums + kArgmax * W, S::sub(S::zero(), argmax));
  }
  // The largest score is the softmax state's; a tally reads it there.
  if constexpr (kMoments) store_moments<S>(moments, shift, s1, s2, low, unseen);
  return total;
}

// What weigh_keys is to do with one vector of a block.
template <class S>
struct WeighJob {
  TallyLevel level;
  Unseen unseen;
  bool moments;  // only with Unseen::none and level core or full
  int64_t begin, end;
  typename S::Vec max, shift;
};

template <class S, TallyLevel kLevel>
inline typename S::Vec weigh_at(const WeighJob<S>& job, typename S::T* logits, typename S::T* sums,
                                typename S::T* moments) {
  switch (job.unseen) {
    case Unseen::none:
      if constexpr (kLevel >= TallyLevel::core)
        if (job.moments)
          return weigh_keys<S, kLevel, Unseen::none, true>(job.begin, job.end, job.max, job.shift,
                                                           logits, sums, moments);
      return weigh_keys<S, kLevel, Unseen::none, false>(job.begin, job.end, job.max, job.shift,
                                                        logits, sums, moments);
    case Unseen::masked:
      return weigh_keys<S, kLevel, Unseen::masked, false>(job.begin, job.end, job.max, job.shift,
                                                          logits, sums, moments);
    case Unseen::marked:
      break;
  }
  return weigh_keys<S, kLevel, Unseen::marked, false>(job.begin, job.end, job.max, job.shift,
                                                      logits, sums, moments);
}

template <class S>
inline typename S::Vec weigh(const WeighJob<S>& job, typename S::T* logits, typename S::T* sums,
                             typename S::T* moments) {
  switch (job.level) {
    case TallyLevel::off:
      return weigh_at<S, TallyLevel::off>(job, logits, sums, moments);
    case TallyLevel::max:
      return weigh_at<S, TallyLevel::max>(job, logits, sums, moments);
    case TallyLevel::core:
      return weigh_at<S, TallyLevel::core>(job, logits, sums, moments);
    case TallyLevel::full:
      break;
  }
  return weigh_at<S, TallyLevel::full>(job, logits, sums, moments);
}

// The tally of one vector over one block, gathered while the block is processed: one row of lanes
// per field.
template <class S>
struct BlockTally {
  using T = typename S::T;
  static constexpr int W = S::kLanes;
  alignas(64) T fields[kTallyFields * W];
  int64_t key;  // first of the block
  T* of(int field) { return fields + field * W; }
  // As TallyLanes reads a tally's.
  Simd<double>::Vec operator()(int field, int lane) const {
    using D = Simd<double>;
    const D::Vec x = D::load_widened(fields + field * W + lane);
    if (field != kArgmax) return x;
    return D::select(D::less(x, D::set(double(kBlockKeys))),
                     D::add(x, D::set(static_cast<double>(key))), D::set(kNoKey));
  }
};

// Counts visible keys whose finite bias stands in for -inf; `keys.values` are logits.
template <class S>
inline typename S::Vec count_stand_ins(const MomentKeys<S>& keys) {
  using Vec = typename S::Vec;
  const Vec unseen = S::set(-Limits<typename S::T>::kInfinity);
  Vec count = S::zero();
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    const Vec bias = S::load(keys.extra + j * kQueries<S>);
    const typename S::Mask stand_in = S::less_equal(bias, S::set(keys.stand_in_bias));
    const typename S::Mask hidden = S::equal(S::load(keys.values + j * kQueries<S>), unseen);
    count = S::add_where(S::first_only(stand_in, hidden), count, S::set(1));
  }
  return count;
}

// The largest scale, in size, of the task's heads.
POISE_INLINE double largest_scale(const ForwardTask& task) {
  double largest = 0;
  for (int64_t h = 0; h < task.heads; ++h) {
    const double size = task.numbers[h].scale < 0 ? -task.numbers[h].scale : task.numbers[h].scale;
    largest = size > largest ? size : largest;
  }
  return largest;
}

// Whether a score may leave the range of T, its sums on the way included: |q.k| <= |q| |k|.
template <class T>
inline bool may_overflow(double scale, T query_square, T key_square) {
  const double bound =
      scale * scale * static_cast<double>(query_square) * static_cast<double>(key_square);
  const double unscaled = static_cast<double>(query_square) * static_cast<double>(key_square);
  constexpr double kSafe = static_cast<double>(-Limits<T>::kLowest) * 0.99;
  return !(::sqrt(bound) < kSafe && ::sqrt(unscaled) < kSafe);
}

// Whether one of the tracked keys lies in the block that begins at `key`.
POISE_INLINE bool tracks_block(const ForwardTask& task, int64_t key) {
  bool found = false;
  for (const int64_t tracked : task.tracked_keys)
    found = found || (tracked >= key && tracked - key < kBlockKeys);
  return found;
}

// Values of tracked keys of one vector, whose keys [begin, end) of the block at `key` are there.
template <class S>
inline void track_keys(const ForwardTask& task, const typename S::T* values, int64_t key,
                       int64_t begin, int64_t end, double* tracked) {
  constexpr int Q = kQueries<S>, W = S::kLanes;
  for (int k = 0; k < kTallyTracked; ++k) {
    const int64_t j = task.tracked_keys[k] - key;
    if (j < begin || j >= end) continue;
    for (int i = 0; i < W; ++i) tracked[k * Q + i] = static_cast<double>(values[j * Q + i]);
  }
}

// How the logits of one vector, keys [begin, end), move with ln scale, from its scores: the scores
// themselves, under a softcap times 1 - tanh^2, which is 4 e / (1 + e)^2 with e = exp(-2 |s / cap|)
// and keeps its digits where the cap is reached.
template <class S>
inline void keep_drive(typename S::T softcap, int64_t begin, int64_t end,
                       const typename S::T* scores, typename S::T* drive) {
  using T = typename S::T;
  using Vec = typename S::Vec;
  const Vec one = S::set(1), four = S::set(4);
  const Vec steep = S::set(softcap > T(0) ? T(-2) / softcap : T(0));
  for (int64_t j = begin; j < end; ++j) {
    const Vec s = S::load(scores + j * kQueries<S>);
    if (softcap > T(0)) {
      const Vec e = exp<S>(S::mul(steep, S::abs(s))), d = S::add(one, e);
      const Vec w = S::mul(s, S::div(S::mul(four, e), S::mul(d, d)));
      // An infinite score whose key has a stand-in for -inf spoils nothing.
      S::store(drive + j * S::kLanes, S::select(S::equal(e, S::zero()), S::zero(), w));
    } else {
      S::store(drive + j * S::kLanes, s);
    }
  }
}

// The block's sums of kDrive and kDriveT about `shift`, of one vector, whose logits are not weights
// yet.
template <class S>
inline void sum_drive(int64_t begin, int64_t end, typename S::Vec max, typename S::Vec shift,
                      const typename S::T* logits, const typename S::T* drive,
                      BlockTally<S>* block) {
  using Vec = typename S::Vec;
  const Vec unseen = S::set(-Limits<typename S::T>::kInfinity);
  Vec sum = S::zero(), sum_t = S::zero();
  POISE_UNROLL(4)
  for (int64_t j = begin; j < end; ++j) {
    const Vec s = S::load(logits + j * kQueries<S>), t = S::sub(s, max);
    const Vec w = S::sub(S::load(drive + j * S::kLanes), shift);
    // A key that is not seen may hold anything; t e^t is 0 long before -104.
    const Vec moved = S::mul(exp<S>(t), S::select(S::equal(s, unseen), S::zero(), w));
    sum = S::add(sum, moved);
    sum_t = S::fma(S::max(t, S::set(-104)), moved, sum_t);
  }
  S::store(block->of(kDriveShift), shift);
  S::store(block->of(kDrive), sum);
  S::store(block->of(kDriveT), sum_t);
}

// Whether logits are anything but the scores: their moments are then kept apart.
POISE_INLINE bool changes_scores(const ForwardTask& task) {
  return task.bias.data != nullptr || task.softcap > 0 || task.has_alibi;
}

// Whether no value of a block is NaN, infinite or too large to be squared: looked up once.
enum class Finite : uint8_t { unknown, yes, no };
template <class S>
inline bool all_finite(const BlockRows<S>& values, Finite* known) {
  if (*known == Finite::unknown)
    *known =
        sum_of_squares<S>(values) < Limits<typename S::T>::kInfinity ? Finite::yes : Finite::no;
  return *known == Finite::yes;
}

// How one block's keys and values reach a tile: packed or dense rows for wide tiles, rows as they
// lie for narrow ones.
template <class S>
struct BlockInputs {
  BlockRows<S> keys, values;                   // wide
  typename S::T key_square;                    // wide: the sum of squares of all keys
  Finite values_finite = Finite::unknown;      // wide
  RowsInPlace keys_in_place, values_in_place;  // narrow
};

template <class S>
inline void process_block(const ForwardTask& task, const Workspace<S>& space, Tile<S>& tile,
                          const BlockView<S>& view, int64_t key, BlockInputs<S>& inputs) {
  using T = typename S::T;
  using Vec = typename S::Vec;
  constexpr int W = S::kLanes, Q = kQueries<S>;
  const BlockRows<S>& keys_here = inputs.keys;
  const BlockRows<S>& values_here = inputs.values;
  const bool has_extra = task.bias.data != nullptr || task.mask.data != nullptr;
  const bool changed = changes_scores(task);
  const bool tracks = task.level == TallyLevel::full && tracks_block(task, key);
  // A score that overflows can make a visible logit -inf, which counts as masked; a value that is
  // not finite needs to know which keys are not seen, and is looked for only then. Narrow tiles do
  // not look: they expect the worst.
  const bool overflows =
      kIsNarrow<S> || may_overflow<T>(largest_scale(task), tile.query_square, inputs.key_square);
  const bool masked = view.partial || has_extra || overflows;
  const bool marked =
      kIsNarrow<S> || (masked && !all_finite<S>(values_here, &inputs.values_finite));
  const Unseen kind = marked ? Unseen::marked : masked ? Unseen::masked : Unseen::none;
  T* scores = space.scores;

  Vec max[S::kTileVectors];
  for (int v = 0; v < S::kTileVectors; ++v) max[v] = S::load(tile.part_max + v * W);
  if constexpr (kIsNarrow<S>) {
    narrow_scores<S>(task, tile, inputs.keys_in_place, view.begin, view.end, space.narrow_scores);
    turn_to_lanes<S>(space.narrow_scores, tile.rows, view.begin, view.end, scores);
  } else if (masked || changed) {
    score_block<S, false>(tile.query, keys_here.data, keys_here.stride, task.head_dim, tile.scale,
                          view.begin, view.end, view.vectors, view.key_begin, view.key_end, scores,
                          max, space.ahead);
  } else {
    score_block<S, true>(tile.query, keys_here.data, keys_here.stride, task.head_dim, tile.scale,
                         view.begin, view.end, view.vectors, view.key_begin, view.key_end, scores,
                         max, space.ahead);
  }
  // Tallies and tracked keys read bias and mask too; without them no tile is written.
  const bool direct_extra = task.level == TallyLevel::off && has_dense_extra<T>(task);
  const bool extra_tile = has_extra && !direct_extra;
  if (extra_tile) load_extra<S>(task, tile.row, tile.rows, key, view.begin, view.end, space.extra);

  for (int v = 0; v < view.vectors; ++v) {
    const int64_t lane = v * W, begin = view.key_begin[v], end = view.key_end[v];
    const TallyLevel level = tile.level[v];
    const bool moments = level >= TallyLevel::core;
    const bool fused = moments && kind == Unseen::none && !changed;
    const bool track = tracks && level == TallyLevel::full;
    const bool driven = changed && level == TallyLevel::full;
    double* part = tile.part_tally + lane;
    T* score_shift = tile.part_shift + lane;
    T* s = scores + lane;
    const T* extra = extra_tile ? space.extra + lane : nullptr;
    const MomentKeys<S> keys{
        begin, end, s, extra, static_cast<T>(task.stand_in_bias), -Limits<T>::kInfinity, &view, v};
    // A softcap makes a visible logit of a score of -inf: it counts, and spoils the row's moments.
    MomentKeys<S> score_keys = keys;
    if (task.softcap > 0) score_keys.unseen = Limits<T>::kNaN;
    BlockTally<S> block;
    if constexpr (kIsNarrow<S>) block = {};  // g++ 12 cannot see that what is read was written
    block.key = key;
    Vec visible = S::set(static_cast<T>(end - begin));
    if (moments) {
      if (!fused) block_moments<S>(score_keys, score_shift, block.of(kScoreMoments));
      if (level == TallyLevel::full) {
        const int64_t row = tile.row + lane;
        const typename S::Mask rows = S::rows_mask(tile.rows - lane);
        if (masked || tile.rows - lane < W)
          block_histogram<S, true>(task, score_keys, rows, row, space.histogram);
        else
          block_histogram<S, false>(task, score_keys, rows, row, space.histogram);
      }
    }
    if (track) {
      track_keys<S>(task, s, key, begin, end, tile.tracked + kTallyTracked * Q + lane);
      if (task.bias.data != nullptr)
        track_keys<S>(task, extra, key, begin, end, tile.tracked + 2 * kTallyTracked * Q + lane);
    }
    if (driven) keep_drive<S>(static_cast<T>(task.softcap), begin, end, s, space.drive);
    if (task.softcap > 0) cap_scores<S>(static_cast<T>(task.softcap), begin, end, s);
    if (direct_extra) {
      max[v] = finish_dense_logits<S>(task, view, v, tile.row, key, !overflows, scores, max[v]);
    } else if (masked || changed) {
      visible = S::zero();
      max[v] = finish_logits<S>(task, view, v, tile.row, key, extra_tile ? space.extra : nullptr,
                                scores, max[v], level == TallyLevel::off ? nullptr : &visible);
    }
    if (track) track_keys<S>(task, s, key, begin, end, tile.tracked + lane);
    const Vec stand_ins =
        moments && task.bias.data != nullptr ? count_stand_ins<S>(keys) : S::zero();
    if (moments && changed) block_moments<S>(keys, score_shift + Q, block.of(kLogitMoments));

    const Vec old_max = S::load(tile.part_max + lane);
    const Vec alpha = exp<S>(S::sub(old_max, max[v]));
    const Vec unseen = S::set(kind == Unseen::marked ? T(-0.0) : T(0));
    for (int64_t j = view.begin; j < begin; ++j) S::store(s + j * Q, unseen);
    if constexpr (kIsNarrow<S>)  // its values know one range of keys for all rows
      for (int64_t j = end; j < view.end; ++j) S::store(s + j * Q, unseen);
    if (driven) {
      // Capped scores stay within half the cap of 0, wherever their mean lies.
      const Vec shift = task.softcap > 0 ? S::zero() : S::load(block.of(kScoreMoments + kShift));
      sum_drive<S>(begin, end, max[v], shift, s, space.drive, &block);
    }
    const WeighJob<S> job{level,
                          kind,
                          fused,
                          begin,
                          end,
                          max[v],
                          fused ? moment_shift<S, false>(keys, score_shift) : unseen};
    const Vec total = weigh<S>(job, s, block.fields, block.of(kScoreMoments));
    if (task.dropout.on)
      drop_weights<S>(task.dropout, task.heads, tile.row + lane, key, begin, end, s);
    S::store(tile.part_sum + lane, S::fma(S::load(tile.part_sum + lane), alpha, total));
    S::store(space.alpha + lane, alpha);
    if (level != TallyLevel::off) {
      alignas(64) T from[W], to[W];
      S::store(from, old_max);
      S::store(to, max[v]);
      S::store(block.of(kVisible), visible);
      S::store(block.of(kStandIns), stand_ins);
      raise_max<S>(level, changed, part, from, to, space.alpha + lane);
      add_fields<S>(level, changed, part, block);
    }
    S::store(tile.part_max + lane, max[v]);
  }

  if constexpr (kIsNarrow<S>) {
    turn_to_rows<S>(scores, tile.rows, view.begin, view.end, space.narrow_scores);
    narrow_values<S>(task, tile, inputs.values_in_place, view.begin, view.end, space.narrow_scores,
                     space.alpha, space.narrow_acc);
  } else if (!marked) {
    value_block<S>(scores, values_here.data, values_here.stride, task.value_dim, view.begin,
                   view.vectors, view.key_end, space.alpha, tile.part_empty, tile.part_out,
                   space.ahead);
    tile.part_empty = false;
  } else {
    value_block_isolated<S>(scores, scores, values_here.data, values_here.stride, task.value_dim,
                            view.begin, view.vectors, view.key_end, space.alpha, tile.part_empty,
                            tile.part_out);
    tile.part_empty = false;
  }
}

}  // namespace poise::POISE_NAMESPACE
