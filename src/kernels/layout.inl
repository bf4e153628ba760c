// Where everything of one task lies in its workspace.
//
// A task is up to kTaskTiles<S> tiles of query rows that share one pass over the keys. Per tile:
// the queries, the softmax state of the split at work ("part") and of all finished splits
// ("whole"), their tallies. Shared: packed keys and values, scores, bias tile. The size depends on
// head_dim and value_dim only. A record is the state of one split, kept for a later join.
//
// Wide tiles have rows along the lanes: queries and sums are [column][kQueries]. Narrow ones have
// them [row][column], rows a multiple of the vector long.

namespace poise::POISE_NAMESPACE {

// Keys per packed block and per split of the key axis (attention.h says why they are constants).
inline constexpr int64_t kBlockKeys = 128;
inline constexpr int64_t kSplitKeys = 512;

// Rows of a narrow tile: their sums over one vector of keys fit the registers beside the turned
// keys. More rows fill the lanes of a wide tile well enough.
inline constexpr int kNarrowRows = 8;

// The verbs of a Simd, with tiles of just enough vectors for kNarrowRows rows.
template <class Wide>
struct Narrow : Wide {
  static constexpr int kTileVectors = (kNarrowRows + Wide::kLanes - 1) / Wide::kLanes;
};
template <class S>
inline constexpr bool kIsNarrow = false;
template <class Wide>
inline constexpr bool kIsNarrow<Narrow<Wide>> = true;

// Scores and weights of a narrow tile lie [row][key], with room for whole vectors of keys.
inline constexpr int64_t kKeyRoom = 32;
inline constexpr int64_t kScoreStride = kBlockKeys + kKeyRoom;

// 256 rows reuse one packed block: packing then costs under 1 % of the products.
inline constexpr int64_t kWideTaskRows = 256;
template <class S>
inline constexpr int64_t kTileRowsMost = kIsNarrow<S> ? kNarrowRows : kQueries<S>;
template <class S>
inline constexpr int64_t kTaskTiles = kIsNarrow<S> ? 1 : kWideTaskRows / kQueries<S>;

inline constexpr int64_t kAlignment = 64;

// Row stride of a packed block: a multiple of the vector whose rows do not collide.
template <class S>
POISE_INLINE int64_t packed_stride(int64_t columns) {
  constexpr int64_t step = kAlignment / static_cast<int64_t>(sizeof(typename S::T));
  const int64_t stride = (columns + step - 1) / step * step;
  return stride + (rows_collide<typename S::T>(stride) ? step : 0);
}

// Row stride of the [row][column] arrays of a narrow tile: whole vectors, and a multiple of the
// alignment.
template <class S>
POISE_INLINE int64_t narrow_stride(int64_t columns) {
  constexpr int64_t step = kAlignment / static_cast<int64_t>(sizeof(typename S::T));
  return (columns + step - 1) / step * step;
}

// Numbers in the queries or sums of one tile.
template <class S>
POISE_INLINE int64_t tile_numbers(int64_t columns) {
  return kIsNarrow<S> ? kNarrowRows * narrow_stride<S>(columns) : columns * kQueries<S>;
}

// Hands out aligned pieces of the workspace; with base null it only measures.
class Carver {
 public:
  explicit Carver(void* base) : base_(static_cast<char*>(base)) {}
  template <class Item>
  Item* take(int64_t count) {
    char* at = base_ == nullptr ? nullptr : base_ + used_;
    const int64_t bytes = count * static_cast<int64_t>(sizeof(Item));
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<Item*>(at);
  }
  int64_t used() const { return used_; }

 private:
  char* base_;
  int64_t used_ = 0;
};

template <class S>
struct Tile {
  using T = typename S::T;
  int64_t row, rows;
  T* query;                  // wide [head_dim][kQueries], narrow [kNarrowRows][head_dim]
  T query_square;            // wide: at least the sum of squares of any query
  T* scale;                  // [kQueries]
  T* part_out;               // wide [value_dim][kQueries], narrow [kNarrowRows][value_dim]
  T* whole_out;              // the same
  T *part_max, *part_sum;    // [kQueries]
  T *whole_max, *whole_sum;  // [kQueries]
  T* part_shift;             // [2][kQueries]: of moments of scores and logits; NaN = none yet
  double* part_tally;        // [kTallyFields][kQueries]
  double* whole_tally;
  double* tracked;                    // [3][kTallyTracked][kQueries]: logits, scores, bias
  TallyLevel level[S::kTileVectors];  // of each vector of rows: sampling leaves some out
  bool part_open;                     // the split at work has touched this tile
  bool part_empty;                    // wide: part_out is not written yet and stands for zeros
  bool whole_empty;                   // so does whole_out
  bool whole_first;  // whole_out is the first part as it came, where -0 stands for 0
};

template <class S>
struct Workspace {
  using T = typename S::T;
  Tile<S> tiles[kTaskTiles<S>];
  T* key;                 // [kBlockKeys][key_stride]
  T* value;               // [kBlockKeys][value_stride]
  T* scores;              // [kBlockKeys][kQueries]
  T* extra;               // [kBlockKeys][kQueries]
  T* drive;               // [kBlockKeys][lanes]: how the logits of one vector move with ln scale
  T *alpha, *beta;        // [kQueries]
  T* merged_max;          // [kQueries]
  T* narrow_scores;       // narrow only: [kNarrowRows][kScoreStride]
  T* narrow_acc;          // narrow only: [kNarrowRows][value_dim]
  ForwardTask* unmasked;  // the task without its bool mask, for tiles that it hides nothing from
  Histogram<S>* histogram;
  Ahead* ahead;
  int64_t key_stride, value_stride;
};

template <class S>
inline int64_t carve(int64_t head_dim, int64_t value_dim, void* base, Workspace<S>* space) {
  using T = typename S::T;
  constexpr int64_t Q = kQueries<S>;
  Carver carver(base);
  space->key_stride = packed_stride<S>(head_dim);
  space->value_stride = packed_stride<S>(value_dim);
  space->scores = carver.take<T>(kBlockKeys * Q);
  space->key = carver.take<T>(kBlockKeys * space->key_stride);
  space->value = carver.take<T>(kBlockKeys * space->value_stride);
  space->extra = carver.take<T>(kBlockKeys * Q);
  space->drive = carver.take<T>(kBlockKeys * S::kLanes);
  space->alpha = carver.take<T>(Q);
  space->beta = carver.take<T>(Q);
  space->merged_max = carver.take<T>(Q);
  space->narrow_scores = carver.take<T>(kIsNarrow<S> ? kNarrowRows * kScoreStride : 0);
  space->narrow_acc = carver.take<T>(kIsNarrow<S> ? tile_numbers<S>(value_dim) : 0);
  space->unmasked = carver.take<ForwardTask>(1);
  space->ahead = carver.take<Ahead>(1);
  space->histogram = carver.take<Histogram<S>>(1);
  for (Tile<S>& tile : space->tiles) {
    tile.query = carver.take<T>(tile_numbers<S>(head_dim));
    tile.scale = carver.take<T>(Q);
    tile.part_out = carver.take<T>(tile_numbers<S>(value_dim));
    tile.whole_out = carver.take<T>(tile_numbers<S>(value_dim));
    tile.part_max = carver.take<T>(Q);
    tile.part_sum = carver.take<T>(Q);
    tile.whole_max = carver.take<T>(Q);
    tile.whole_sum = carver.take<T>(Q);
    tile.part_shift = carver.take<T>(2 * Q);
    tile.part_tally = carver.take<double>(kTallyFields * Q);
    tile.whole_tally = carver.take<double>(kTallyFields * Q);
    tile.tracked = carver.take<double>(3 * kTallyTracked * Q);
  }
  return carver.used();
}

// Where the state of one split of one tile lies in a record.
template <class S>
struct Record {
  int64_t* open;  // 1 = the split touched the tile
  typename S::T *out, *max, *sum;
  double *tally, *tracked;
};

template <class S>
inline Record<S> carve_record(int64_t value_dim, Carver& carver) {
  using T = typename S::T;
  constexpr int64_t Q = kQueries<S>;
  Record<S> record;
  record.open = carver.take<int64_t>(1);
  record.out = carver.take<T>(tile_numbers<S>(value_dim));
  record.max = carver.take<T>(Q);
  record.sum = carver.take<T>(Q);
  record.tally = carver.take<double>(kTallyFields * Q);
  record.tracked = carver.take<double>(3 * kTallyTracked * Q);
  return record;
}

template <class S>
int64_t record_bytes(int64_t rows, int64_t value_dim) {
  Carver carver(nullptr);
  for (int64_t row = 0; row < rows; row += kTileRowsMost<S>) carve_record<S>(value_dim, carver);
  return carver.used();
}

template <class S>
int64_t workspace_bytes(int64_t head_dim, int64_t value_dim) {
  Workspace<S> space;
  return carve<S>(head_dim, value_dim, nullptr, &space);
}

}  // namespace poise::POISE_NAMESPACE
