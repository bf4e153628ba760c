// Where everything of one task lies in its workspace.
//
// A task is up to kTaskTiles<S> tiles of kQueries<S> query rows that share one packed key/value
// block. Per tile: the queries turned lanes-first, the softmax state of the split at work ("part")
// and of all finished splits ("whole"), their tallies. Shared: packed keys and values, scores,
// bias tile. The size depends on head_dim and value_dim only.

namespace poise::POISE_NAMESPACE {

// Keys per packed block and per split of the key axis (attention.h says why they are constants).
inline constexpr int64_t kBlockKeys = 128;
inline constexpr int64_t kSplitKeys = 512;

// 256 rows reuse one packed block: packing then costs under 1 % of the products.
inline constexpr int64_t kTaskRows = 256;
template <class S>
inline constexpr int64_t kTaskTiles = kTaskRows / kQueries<S>;

inline constexpr int64_t kAlignment = 64;

// Row stride of a packed block: a multiple of the vector whose rows do not collide.
template <class S>
POISE_INLINE int64_t packed_stride(int64_t columns) {
  constexpr int64_t step = kAlignment / static_cast<int64_t>(sizeof(typename S::T));
  const int64_t stride = (columns + step - 1) / step * step;
  return stride + (rows_collide<typename S::T>(stride) ? step : 0);
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
  T* query;                  // [head_dim][kQueries]
  T* part_out;               // [value_dim][kQueries]
  T* whole_out;              // [value_dim][kQueries]
  T *part_max, *part_sum;    // [kQueries]
  T *whole_max, *whole_sum;  // [kQueries]
  double* part_tally;        // [kTallyFields][kQueries]
  double* whole_tally;
  double* tracked;  // [3][kTallyTracked][kQueries]: logits, scores, bias
  bool part_open;   // the split at work has touched this tile
};

template <class S>
struct Workspace {
  using T = typename S::T;
  Tile<S> tiles[kTaskTiles<S>];
  T* key;               // [kBlockKeys][key_stride]
  T* value;             // [kBlockKeys][value_stride]
  T* scores;            // [kBlockKeys][kQueries]
  T* extra;             // [kBlockKeys][kQueries]
  T* alpha;             // [kQueries]
  double* block_tally;  // [kTallyFields][kQueries]
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
  space->alpha = carver.take<T>(Q);
  space->block_tally = carver.take<double>(kTallyFields * Q);
  for (Tile<S>& tile : space->tiles) {
    tile.query = carver.take<T>(head_dim * Q);
    tile.part_out = carver.take<T>(value_dim * Q);
    tile.whole_out = carver.take<T>(value_dim * Q);
    tile.part_max = carver.take<T>(Q);
    tile.part_sum = carver.take<T>(Q);
    tile.whole_max = carver.take<T>(Q);
    tile.whole_sum = carver.take<T>(Q);
    tile.part_tally = carver.take<double>(kTallyFields * Q);
    tile.whole_tally = carver.take<double>(kTallyFields * Q);
    tile.tracked = carver.take<double>(3 * kTallyTracked * Q);
  }
  return carver.used();
}

template <class S>
int64_t workspace_bytes(int64_t head_dim, int64_t value_dim) {
  Workspace<S> space;
  return carve<S>(head_dim, value_dim, nullptr, &space);
}

}  // namespace poise::POISE_NAMESPACE
