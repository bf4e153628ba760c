// From scores to logits: softcap, ALiBi, bias and every mask, one vector of queries at a time.
//
//   visible(j, i) = begin[i] <= j < end[i]  (causal, window, lengths)  and  extra(j, i) != -inf
//   logits[j][i]  = visible ? cap(scores) - slope |i + diagonal - j| + extra(j, i) : -inf
// extra is a tile [key][query] that joins bias and bool mask (a masked entry is -inf). A masked key
// is replaced after everything else, so that a NaN in it or in its bias goes nowhere.

namespace poise::POISE_NAMESPACE {

// How one tile of queries sees one block of keys. Keys count from the block's first key.
template <class S>
struct BlockView {
  using T = typename S::T;
  int vectors;                         // vectors with at least one row
  int64_t rows;                        // rows of the tile
  int64_t begin, end;                  // keys any row sees by position
  bool partial;                        // some row sees less than [begin, end)
  int64_t key_begin[S::kTileVectors];  // the same per vector; both ascend
  int64_t key_end[S::kTileVectors];
  alignas(64) T lane_begin[kQueries<S>];  // the same per row
  alignas(64) T lane_end[kQueries<S>];
};

// The query and the head of a row (kernels.h, ForwardTask).
POISE_INLINE int64_t query_of(const ForwardTask& task, int64_t row) {
  return task.heads == 1 ? row : row / task.heads;
}
POISE_INLINE int64_t head_of(const ForwardTask& task, int64_t row) {
  return task.heads == 1 ? 0 : row % task.heads;
}

POISE_INLINE int64_t clamp_key(int64_t key, int64_t limit) {
  return key < 0 ? 0 : key > limit ? limit : key;
}

// Keys [begin, end) of the block [key, key + keys) that one row sees by position.
struct KeyRange {
  int64_t begin, end;
};
POISE_INLINE KeyRange keys_of_row(const ForwardTask& task, int64_t row, int64_t key, int64_t keys) {
  const int64_t query = query_of(task, row);
  const int64_t begin = clamp_key(query + task.lower - key, keys);
  const int64_t end = clamp_key(query + task.upper + 1 - key, keys);
  return {begin, end < begin ? begin : end};
}

template <class S>
inline void fill_lane_ranges(const ForwardTask& task, int64_t row, int64_t key, int64_t keys,
                             BlockView<S>* view) {
  for (int64_t i = 0; i < view->vectors * S::kLanes; ++i) {
    // Lanes without a row repeat the last one: their results go nowhere.
    const KeyRange range =
        keys_of_row(task, row + (i < view->rows ? i : view->rows - 1), key, keys);
    view->lane_begin[i] = static_cast<typename S::T>(range.begin);
    view->lane_end[i] = static_cast<typename S::T>(range.end);
  }
}

// Fills `view` for rows [row, row + rows) and keys [key, key + keys).
template <class S>
inline void view_block(const ForwardTask& task, int64_t row, int64_t rows, int64_t key,
                       int64_t keys, BlockView<S>* view) {
  constexpr int W = S::kLanes;
  const KeyRange first = keys_of_row(task, row, key, keys);
  const KeyRange last = keys_of_row(task, row + rows - 1, key, keys);
  view->rows = rows;
  view->vectors = static_cast<int>((rows + W - 1) / W);
  view->begin = first.begin;
  view->end = last.end;
  view->partial = first.end < last.end || last.begin > first.begin;
  for (int v = 0; v < view->vectors; ++v) {
    const int64_t vector_last = row + ((v + 1) * W < rows ? (v + 1) * W : rows) - 1;
    view->key_begin[v] = keys_of_row(task, row + v * W, key, keys).begin;
    view->key_end[v] = keys_of_row(task, vector_last, key, keys).end;
  }
  if (view->partial) fill_lane_ranges<S>(task, row, key, keys, view);
}

// The same block with every key present, for outputs that show masked keys too: positions then mask
// lane by lane.
template <class S>
inline void view_whole_block(const ForwardTask& task, int64_t row, int64_t rows, int64_t key,
                             int64_t keys, BlockView<S>* view) {
  view->rows = rows;
  view->vectors = static_cast<int>((rows + S::kLanes - 1) / S::kLanes);
  view->begin = 0;
  view->end = keys;
  view->partial = true;
  for (int v = 0; v < view->vectors; ++v) {
    view->key_begin[v] = 0;
    view->key_end[v] = keys;
  }
  fill_lane_ranges<S>(task, row, key, keys, view);
}

template <class S>
POISE_INLINE typename S::Mask sees_by_position(const BlockView<S>& view, int v, int64_t j) {
  const typename S::Vec at = S::set(static_cast<typename S::T>(j));
  return S::both(S::less_equal(S::load(view.lane_begin + v * S::kLanes), at),
                 S::less(at, S::load(view.lane_end + v * S::kLanes)));
}

// The bias of one query row over keys [begin, end), scattered down a column of `extra`.
template <class T, int kStride>
inline void load_bias_row(const ForwardTask& task, int64_t row, int64_t key, int64_t begin,
                          int64_t end, T* column) {
  const ConstPlane& bias = task.bias;
  const int64_t at = row_offset(bias, task.heads, row) + key * bias.col_stride;
  for (int64_t j = begin; j < end; ++j)
    column[j * kStride] = read_element<T>(bias.data, task.bias_element, at + j * bias.col_stride);
}

// Whether one row of a bias or mask serves every row of the task.
POISE_INLINE bool shared_by_rows(const ForwardTask& task, const ConstPlane& plane) {
  return plane.row_stride == 0 && (task.heads == 1 || plane.head_stride == 0);
}

// Whether a bias or mask has a row of adjacent keys for every query.
POISE_INLINE bool has_dense_rows(const ForwardTask& task, const ConstPlane& plane) {
  return plane.data != nullptr && plane.col_stride == 1 && !shared_by_rows(task, plane);
}

// Whether load_elements widens such a bias.
template <class T>
POISE_INLINE bool loads_vectors(Element element) {
  return element == kOwnElement<T> ||
         (sizeof(T) == 4 && (element == Element::f16 || element == Element::bf16));
}

// Whether bias and mask, where given, have dense rows that each_extra() turns, all of them or the
// bias alone.
template <class T>
POISE_INLINE bool has_dense_bias(const ForwardTask& task) {
  return has_dense_rows(task, task.bias) && loads_vectors<T>(task.bias_element);
}
template <class T>
POISE_INLINE bool has_dense_extra(const ForwardTask& task) {
  const bool bias = has_dense_bias<T>(task), mask = has_dense_rows(task, task.mask);
  return (bias || mask) && (bias || task.bias.data == nullptr) &&
         (mask || task.mask.data == nullptr);
}

// Calls apply(j, width, e) for the keys of [begin, end), a vector's width at a time: e[i] is bias,
// mask or both of key j + i, i < width, for one vector of rows, `here` of them from `row` on, 0
// beyond. Blocks of dense rows are turned in registers.
template <class S, bool kBias, bool kMask, class Apply>
POISE_INLINE void each_extra_of(const ForwardTask& task, int64_t row, int64_t here, int64_t key,
                                int64_t begin, int64_t end, const Apply& apply) {
  constexpr int W = S::kLanes;
  int64_t bias[W] = {}, mask[W] = {};
  for (int64_t i = 0; i < here; ++i) {
    bias[i] = row_offset(task.bias, task.heads, row + i) + key;
    mask[i] = row_offset(task.mask, task.heads, row + i) + key;
  }
  const uint8_t* bytes = static_cast<const uint8_t*>(task.mask.data);
  for (int64_t j = begin; j < end; j += W) {
    const int64_t width = end - j < W ? end - j : W;
    typename S::Vec block[W];
    if constexpr (kBias) {
      load_rows<S>(task.bias.data, task.bias_element, bias, j, here, width, block);
    } else {
      POISE_UNROLL(16)
      for (int i = 0; i < W; ++i) block[i] = S::zero();
    }
    if constexpr (kMask) {
      POISE_UNROLL(16)
      for (int i = 0; i < W; ++i)
        if (i < here) block[i] = S::hide_unseen(block[i], bytes + mask[i] + j, width);
    }
    S::transpose(block);
    apply(j, width, block);
  }
}

// The same for a task with a dense bias, a dense mask or both. Another mask is left out.
template <class S, class Apply>
POISE_INLINE void each_extra(const ForwardTask& task, int64_t row, int64_t here, int64_t key,
                             int64_t begin, int64_t end, const Apply& apply) {
  if (!has_dense_rows(task, task.mask))
    each_extra_of<S, true, false>(task, row, here, key, begin, end, apply);
  else if (task.bias.data == nullptr)
    each_extra_of<S, false, true>(task, row, here, key, begin, end, apply);
  else
    each_extra_of<S, true, true>(task, row, here, key, begin, end, apply);
}

// Writes bias and mask of rows [row, row + rows), keys key + [begin, end) into extra [key][query].
// Lanes without a row hold 0.
template <class S>
inline void load_extra(const ForwardTask& task, int64_t row, int64_t rows, int64_t key,
                       int64_t begin, int64_t end, typename S::T* extra) {
  using T = typename S::T;
  constexpr int Q = kQueries<S>;
  const ConstPlane& bias = task.bias;
  const ConstPlane& mask = task.mask;
  if (has_dense_extra<T>(task) || has_dense_bias<T>(task)) {
    for (int64_t v = 0; v < rows; v += S::kLanes)
      each_extra<S>(task, row + v, rows - v < S::kLanes ? rows - v : S::kLanes, key, begin, end,
                    [&](int64_t j, int64_t width, const auto& e) {
                      for (int64_t i = 0; i < width; ++i) S::store(extra + (j + i) * Q + v, e[i]);
                    });
    if (has_dense_rows(task, mask)) return;
  } else if (bias.data != nullptr && !shared_by_rows(task, bias)) {
    for (int64_t i = 0; i < Q; ++i) {
      if (i < rows) {
        load_bias_row<T, Q>(task, row + i, key, begin, end, extra + i);
        continue;
      }
      for (int64_t j = begin; j < end; ++j) extra[j * Q + i] = T(0);
    }
  } else {
    for (int64_t j = begin; j < end; ++j) {
      const T x = bias.data == nullptr
                      ? T(0)
                      : read_element<T>(bias.data, task.bias_element, (key + j) * bias.col_stride);
      for (int64_t i = 0; i < Q; i += S::kLanes) S::store(extra + j * Q + i, S::set(x));
    }
  }
  if (mask.data == nullptr) return;
  const uint8_t* bytes = static_cast<const uint8_t*>(mask.data) + key * mask.col_stride;
  if (shared_by_rows(task, mask)) {
    const typename S::Vec masked = S::set(-Limits<T>::kInfinity);
    for (int64_t j = begin; j < end; ++j)
      if (bytes[j * mask.col_stride] == 0)
        for (int64_t i = 0; i < Q; i += S::kLanes) S::store(extra + j * Q + i, masked);
    return;
  }
  for (int64_t i = 0; i < rows; ++i) {
    const uint8_t* at = bytes + row_offset(mask, task.heads, row + i);
    for (int64_t j = begin; j < end; ++j)
      if (at[j * mask.col_stride] == 0) extra[j * Q + i] = -Limits<T>::kInfinity;
  }
}

// capped = softcap tanh(scores / softcap), in place, keys [begin, end) of one vector.
template <class S>
inline void cap_scores(typename S::T softcap, int64_t begin, int64_t end, typename S::T* scores) {
  const typename S::Vec cap = S::set(softcap);
  for (int64_t j = begin; j < end; ++j) {
    typename S::T* s = scores + j * kQueries<S>;
    S::store(s, S::mul(cap, tanh<S>(S::div(S::load(s), cap))));
  }
}

// How the scores of one vector of rows become logits.
template <class S>
struct LogitRule {
  using Vec = typename S::Vec;
  const ForwardTask& task;
  const BlockView<S>& view;
  int v;
  Vec distance = S::zero();  // query position minus key position, at the first key
  Vec minus_slope = S::zero();

  LogitRule(const ForwardTask& t, const BlockView<S>& block, int vector, int64_t row, int64_t key)
      : task(t), view(block), v(vector) {
    using T = typename S::T;
    if (!task.has_alibi) return;
    alignas(64) T start[S::kLanes], slope[S::kLanes];
    for (int64_t i = 0; i < S::kLanes; ++i) {
      const int64_t at = row + v * S::kLanes + i;
      start[i] = static_cast<T>(static_cast<double>(query_of(task, at) - key) + task.diagonal);
      slope[i] = static_cast<T>(-task.numbers[head_of(task, at)].slope);
    }
    distance = S::load(start);
    minus_slope = S::load(slope);
  }
};

// The logits at key j from its scores x; `e` is bias and mask, only with kExtra. With kSimple
// nothing but `e` acts and every score is finite: adding -inf then masks.
template <class S, bool kExtra, bool kSimple>
POISE_INLINE typename S::Vec finish_key(const LogitRule<S>& rule, int64_t j, typename S::Vec x,
                                        typename S::Vec e) {
  using T = typename S::T;
  if constexpr (kSimple) return S::add(x, e);
  const typename S::Vec masked = S::set(-Limits<T>::kInfinity);
  if (rule.task.has_alibi) {
    const typename S::Vec distance = S::sub(rule.distance, S::set(static_cast<T>(j)));
    x = S::fma(rule.minus_slope, S::abs(distance), x);
  }
  if constexpr (kExtra) x = S::select(S::equal(e, masked), masked, S::add(x, e));
  if (rule.view.partial) x = S::select(sees_by_position<S>(rule.view, rule.v, j), x, masked);
  return x;
}

// Turns the capped scores of vector v into logits in place, keys [begin, end) of the view; `extra`
// null = neither bias nor mask. Returns the largest logit joined with `max`, and adds the visible
// keys of each lane to *visible, null = not wanted.
template <class S>
inline typename S::Vec finish_logits(const ForwardTask& task, const BlockView<S>& view, int v,
                                     int64_t row, int64_t key, const typename S::T* extra,
                                     typename S::T* scores, typename S::Vec max,
                                     typename S::Vec* visible) {
  using Vec = typename S::Vec;
  constexpr int Q = kQueries<S>;
  const int64_t lane = v * S::kLanes;
  const Vec masked = S::set(-Limits<typename S::T>::kInfinity);
  const LogitRule<S> rule(task, view, v, row, key);
  for (int64_t j = view.key_begin[v]; j < view.key_end[v]; ++j) {
    typename S::T* at = scores + j * Q + lane;
    const Vec x = extra == nullptr ? finish_key<S, false, false>(rule, j, S::load(at), masked)
                                   : finish_key<S, true, false>(rule, j, S::load(at),
                                                                S::load(extra + j * Q + lane));
    if (visible != nullptr)
      *visible = S::add(*visible, S::select(S::equal(x, masked), S::zero(), S::set(1)));
    max = S::max(x, max);
    S::store(at, x);
  }
  return max;
}

// Blocks of finish_dense_logits.
template <class S, bool kSimple>
inline typename S::Vec finish_dense_keys(const LogitRule<S>& rule, int64_t row, int64_t here,
                                         int64_t key, typename S::T* scores, typename S::Vec max) {
  constexpr int W = S::kLanes;
  // Inline always: the maximum stays in a register.
  const auto finish = [&](int64_t j, typename S::Vec e) __attribute__((always_inline)) {
    typename S::T* at = scores + j * kQueries<S>;
    const typename S::Vec x = finish_key<S, true, kSimple>(rule, j, S::load(at), e);
    max = S::max(x, max);
    S::store(at, x);
  };
  each_extra<S>(
      rule.task, row, here, key, rule.view.key_begin[rule.v], rule.view.key_end[rule.v],
      [&](int64_t j, int64_t width, const auto& e) __attribute__((always_inline)) {
        if (width < W) {
          for (int64_t i = 0; i < width; ++i) finish(j + i, e[i]);
          return;
        }
        POISE_UNROLL(16)
        for (int i = 0; i < W; ++i) finish(j + i, e[i]);
      });
  return max;
}

// finish_logits where has_dense_extra(): bias and mask go from memory into the logits, by no tile
// of their own. `finite`: every score is.
template <class S>
inline typename S::Vec finish_dense_logits(const ForwardTask& task, const BlockView<S>& view, int v,
                                           int64_t row, int64_t key, bool finite,
                                           typename S::T* scores, typename S::Vec max) {
  const LogitRule<S> rule(task, view, v, row, key);
  const int64_t lane = v * S::kLanes;
  const int64_t here = view.rows - lane < S::kLanes ? view.rows - lane : S::kLanes;
  if (finite && !view.partial && !task.has_alibi)
    return finish_dense_keys<S, true>(rule, row + lane, here, key, scores + lane, max);
  return finish_dense_keys<S, false>(rule, row + lane, here, key, scores + lane, max);
}

}  // namespace poise::POISE_NAMESPACE
