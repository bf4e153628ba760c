// Second derivatives: the gradients of what backward gives, along a direction (q', k', v').
//
//   P, dP, delta and dS as in backward.inl; L', t and out' as tangent.inl left them
//   P' = P (L' - t),  dP' = V' dO,  delta' = sum_c dO out'
//   dL = P (dP - delta + dlse),  dL' = P' (dP - delta + dlse) + P (dP' - delta')
//   dS = cap' dL,  dS' = cap' dL' + cap'' scale (K q' + k' Q) dL
//   dQ += scale (dS' K + dS k'),  dK += scale (dS' Q + dS q'),  dV += P' dO
// The Hessian of sum dO out + sum dlse lse is symmetric, so moving backward along the direction
// gives its product with it. Blocks, tiles, splits and sums are backward's.

namespace poise::POISE_NAMESPACE {

// A backward tile, and behind it what moves.
template <class S>
struct SecondTile {
  using T = typename S::T;
  struct Head {
    KnownRows<S> moved_query;  // natural rows; data null = stands still
  };
  GradientTile<S> tile;
  Head* head;
  T* moved_query;         // [head_dim][kQueries]
  T* packed_moved_query;  // [kQueries][stride]
  T *t, *moved_delta;     // [kQueries]
};

template <class S>
inline int64_t carve_second_tile(int64_t head_dim, int64_t value_dim, void* base,
                                 SecondTile<S>* second) {
  using T = typename S::T;
  constexpr int64_t Q = kQueries<S>;
  const int64_t first = carve_tile<S>(head_dim, value_dim, base, &second->tile);
  Carver carver(base == nullptr ? nullptr : static_cast<char*>(base) + first);
  second->head = carver.take<typename SecondTile<S>::Head>(1);
  second->moved_query = carver.take<T>(head_dim * Q);
  second->packed_moved_query = carver.take<T>(Q * second->tile.query_stride);
  second->t = carver.take<T>(Q);
  second->moved_delta = carver.take<T>(Q);
  return first + carver.used();
}

template <class S>
struct SecondBlock {
  using T = typename S::T;
  struct Head {
    KnownRows<S> moved_key, moved_value;
  };
  GradientBlock<S> block;
  Head* head;
  T *packed_moved_key, *packed_moved_value;  // [kBlockKeys][stride]
  T *half, *other, *moved_dp, *curvature;    // [kBlockKeys][kQueries]
};

template <class S>
inline int64_t carve_second_block(int64_t head_dim, int64_t value_dim, void* base,
                                  SecondBlock<S>* second) {
  using T = typename S::T;
  constexpr int64_t Q = kQueries<S>;
  const int64_t first = carve_block<S>(head_dim, value_dim, base, &second->block);
  Carver carver(base == nullptr ? nullptr : static_cast<char*>(base) + first);
  second->head = carver.take<typename SecondBlock<S>::Head>(1);
  second->packed_moved_key = carver.take<T>(kBlockKeys * second->block.key_stride);
  second->packed_moved_value = carver.take<T>(kBlockKeys * second->block.value_stride);
  second->half = carver.take<T>(kBlockKeys * Q);
  second->other = carver.take<T>(kBlockKeys * Q);
  second->moved_dp = carver.take<T>(kBlockKeys * Q);
  second->curvature = carver.take<T>(kBlockKeys * Q);
  return first + carver.used();
}

template <class S>
int64_t second_tile_bytes(int64_t head_dim, int64_t value_dim) {
  SecondTile<S> tile;
  return carve_second_tile<S>(head_dim, value_dim, nullptr, &tile);
}
template <class S>
int64_t second_block_bytes(int64_t head_dim, int64_t value_dim) {
  SecondBlock<S> block;
  return carve_second_block<S>(head_dim, value_dim, nullptr, &block);
}

template <class S>
__attribute__((noinline)) void run_open_second_block(BackwardTask& task) {
  const ForwardTask& problem = task.problem;
  run_open_block<S>(task);
  SecondBlock<S> second;
  carve_second_block<S>(problem.head_dim, problem.value_dim, task.block, &second);
  const auto moved = [&](const ConstPlane& rows, int64_t columns, typename S::T* packed,
                         int64_t stride) {
    return rows.data == nullptr
               ? no_rows<S>()
               : known_rows<S>(rows, problem.element, task.key, task.keys, columns, packed, stride);
  };
  second.head->moved_key =
      moved(task.dkey, problem.head_dim, second.packed_moved_key, second.block.key_stride);
  second.head->moved_value =
      moved(task.dvalue, problem.value_dim, second.packed_moved_value, second.block.value_stride);
}

template <class S>
__attribute__((noinline)) void run_open_second_tile(BackwardTask& task) {
  constexpr int Q = kQueries<S>;
  const ForwardTask& problem = task.problem;
  const int64_t row = problem.row_begin, rows = problem.row_end - row;
  run_open_tile<S>(task);
  SecondTile<S> second;
  carve_second_tile<S>(problem.head_dim, problem.value_dim, task.tile, &second);
  SecondBlock<S> block;
  carve_second_block<S>(problem.head_dim, problem.value_dim, task.block, &block);
  second.head->moved_query = no_rows<S>();
  if (task.dquery.data != nullptr) {
    load_lanes<S>(task.dquery, problem.element, 1, row, rows, problem.head_dim, second.moved_query);
    second.head->moved_query =
        known_rows<S>(task.dquery, problem.element, row, rows, problem.head_dim,
                      second.packed_moved_query, second.tile.query_stride);
  }
  load_lanes<S>(task.out_tangent, problem.element, 1, row, rows, problem.value_dim,
                block.block.turned);
  row_deltas<S>(second.tile.dout, block.block.turned, problem.value_dim, second.moved_delta);
  for (int64_t i = 0; i < Q; ++i)
    second.t[i] = i < rows ? read_row<typename S::T>(task.lse_tangent, row + i) : 0;
}

// The numbers of one vector of queries.
template <class S>
struct SecondJob {
  using Vec = typename S::Vec;
  int64_t begin, end;
  Vec max, inverse, shift, t, moved_delta, scale;
  const typename S::T *slope, *curvature;  // null = not capped
};

// Tiles of logits, d dots in two halves, dP and dP' become: weights P as marks, half scale dS',
// other P', dp scale dS.
template <class S, Unseen kUnseen>
inline void weigh_second(const SecondJob<S>& job, typename S::T* logits, typename S::T* half,
                         typename S::T* other, typename S::T* dp, const typename S::T* moved_dp) {
  using T = typename S::T;
  using Vec = typename S::Vec;
  const Vec unseen = S::set(-Limits<T>::kInfinity);
  for (int64_t j = job.begin; j < job.end; ++j) {
    const int64_t at = j * kQueries<S>;
    const Vec s = S::load(logits + at);
    Vec p = S::mul(exp<S>(S::sub(s, job.max)), job.inverse);
    const Vec moved_score = S::add(S::load(half + at), S::load(other + at));
    const Vec slope = job.slope == nullptr ? S::set(1) : S::load(job.slope + at);
    Vec moved_p = S::mul(p, S::sub(S::mul(moved_score, slope), job.t));
    const Vec u = S::sub(S::load(dp + at), job.shift);
    const Vec dlogit = S::mul(p, u);
    const Vec moved_dlogit =
        S::fma(moved_p, u, S::mul(p, S::sub(S::load(moved_dp + at), job.moved_delta)));
    Vec ds = S::mul(slope, dlogit);
    Vec moved_ds = S::mul(slope, moved_dlogit);
    if (job.curvature != nullptr)
      moved_ds = S::fma(S::mul(S::load(job.curvature + at), moved_score), dlogit, moved_ds);
    if constexpr (kUnseen != Unseen::none) {
      const typename S::Mask hidden = S::equal(s, unseen);
      p = S::select(hidden, S::set(kUnseen == Unseen::marked ? T(-0.0) : T(0)), p);
      moved_p = S::select(hidden, S::zero(), moved_p);
      ds = S::select(hidden, S::zero(), ds);
      moved_ds = S::select(hidden, S::zero(), moved_ds);
    }
    S::store(logits + at, p);
    S::store(half + at, S::mul(moved_ds, job.scale));
    S::store(other + at, moved_p);
    S::store(dp + at, S::mul(ds, job.scale));
  }
}

template <class S>
inline Unseen fill_second(const BackwardTask& task, const ForwardTask& problem,
                          const SecondTile<S>& second, const SecondBlock<S>& block,
                          const BlockView<S>& view) {
  using T = typename S::T;
  constexpr int W = S::kLanes;
  const GradientTile<S>& tile = second.tile;
  const GradientBlock<S>& first = block.block;
  const KnownRows<S>&key = first.head->key, &value = first.head->value;
  const KnownRows<S>& moved_value = block.head->moved_value;
  const bool finite = key.finite && value.finite && tile.head->query.finite &&
                      tile.head->dout.finite && block.head->moved_key.finite &&
                      moved_value.finite && second.head->moved_query.finite;
  const Unseen unseen = unseen_in<S>(problem, view, finite, tile.head->query_square, key.square);
  fill_logits<S>(problem, view, unseen, task.problem.row_begin, task.key, tile.query, key,
                 first.scale, {first.weights, first.extra, first.factor, block.curvature});
  move_dots<S>(view, problem.head_dim, first.scale, tile.query,
               second.head->moved_query.given() ? second.moved_query : nullptr,
               {key, block.head->moved_key}, block.half, block.other);
  dots_block<S>(view, tile.dout, value, problem.value_dim, first.ones, first.dots_gradient);
  if (moved_value.given())
    dots_block<S>(view, tile.dout, moved_value, problem.value_dim, first.ones, block.moved_dp);
  else
    fill<S>(block.moved_dp + view.begin * kQueries<S>, (view.end - view.begin) * kQueries<S>, 0);
  clear_outside<S>(view, unseen == Unseen::marked ? T(-0.0) : T(0), first.weights);
  clear_outside<S>(view, 0, block.half);
  clear_outside<S>(view, 0, block.other);
  clear_outside<S>(view, 0, first.dots_gradient);
  for (int v = 0; v < view.vectors; ++v) {
    const int64_t lane = v * W;
    const bool capped = problem.softcap > 0;
    const SecondJob<S> job{view.key_begin[v],
                           view.key_end[v],
                           S::load(tile.max + lane),
                           S::load(tile.inverse + lane),
                           S::sub(S::load(tile.delta + lane), S::load(tile.dlse + lane)),
                           S::load(second.t + lane),
                           S::load(second.moved_delta + lane),
                           S::load(first.scale + lane),
                           capped ? first.factor + lane : nullptr,
                           capped ? block.curvature + lane : nullptr};
    const auto drop = [&](T* tile_of_lane) {
      if (problem.dropout.on)
        drop_weights<S>(problem.dropout, 1, task.problem.row_begin + lane, task.key, job.begin,
                        job.end, tile_of_lane);
    };
    drop(first.dots_gradient + lane);  // dP and dP' of the weights before it
    drop(block.moved_dp + lane);
    const auto weigh = [&](auto function) {
      function(job, first.weights + lane, block.half + lane, block.other + lane,
               first.dots_gradient + lane, block.moved_dp + lane);
    };
    switch (unseen) {
      case Unseen::none:
        weigh(weigh_second<S, Unseen::none>);
        break;
      case Unseen::masked:
        weigh(weigh_second<S, Unseen::masked>);
        break;
      case Unseen::marked:
        weigh(weigh_second<S, Unseen::marked>);
        break;
    }
    drop(block.other + lane);  // P' as values are multiplied by it
  }
  return unseen;
}

template <class S>
__attribute__((noinline)) void run_second_step(BackwardTask& task) {
  const int64_t head_dim = task.problem.head_dim, value_dim = task.problem.value_dim;
  SecondTile<S> second;
  carve_second_tile<S>(head_dim, value_dim, task.tile, &second);
  SecondBlock<S> block;
  carve_second_block<S>(head_dim, value_dim, task.block, &block);
  GradientTile<S>& tile = second.tile;
  const GradientBlock<S>& first = block.block;
  if (task.key % kSplitKeys == 0) close_gradient_split<S>(tile, head_dim);
  const ForwardTask* problem;
  BlockView<S> view;
  if (!look_at_keys<S>(task.problem, *first.unmasked, task.problem.row_begin,
                       task.problem.row_end - task.problem.row_begin, task.key, task.keys, &problem,
                       &view))
    return;
  const Unseen unseen = fill_second<S>(task, *problem, second, block, view);
  KeySums<S> sums;
  carve_sums<S>(head_dim, value_dim, task.sums, &sums);
  if (task.dv.data != nullptr)
    rows_products<S>(view, unseen, block.other, first.weights, tile.head->dout, value_dim, sums.dv);
  if (task.dk.data != nullptr) {
    rows_products<S>(view, unseen, block.half, first.weights, tile.head->query, head_dim, sums.dk);
    if (second.head->moved_query.given())
      rows_products<S>(view, unseen, first.dots_gradient, first.weights, second.head->moved_query,
                       head_dim, sums.dk);
  }
  if (task.dq.data == nullptr) return;
  if (!tile.head->part_open) clear_rowless<S>(view, head_dim, tile.dq_part);
  add_products<S>(view, unseen, block.half, first.weights, first.head->key, head_dim, first.ones,
                  !tile.head->part_open, tile.dq_part);
  tile.head->part_open = true;
  if (block.head->moved_key.given())
    add_products<S>(view, unseen, first.dots_gradient, first.weights, block.head->moved_key,
                    head_dim, first.ones, false, tile.dq_part);
}

template <class S>
constexpr BackwardKernel make_second() {
  return {static_cast<int>(kQueries<S>),
          &second_block_bytes<S>,
          &second_tile_bytes<S>,
          &gradient_sums_bytes<S>,
          &guarded<S, run_open_second_block<S>>,
          &guarded<S, run_open_second_tile<S>>,
          &guarded<S, run_second_step<S>>,
          &guarded<S, run_close_tile<S>>,
          &guarded<S, run_close_block<S>>};
}

}  // namespace poise::POISE_NAMESPACE
