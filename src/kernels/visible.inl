// What a bool mask leaves of a block: keys to skip, blocks to skip, masks to forget.
//
// In: the mask's bytes for some rows and keys. Out: the smallest range of keys that holds every
// visible one, and whether nothing in it is hidden. Only keys that no row sees are left out, so
// every weight that is not 0 stays where it was; a mask is forgotten only where it hides nothing.

namespace poise::POISE_NAMESPACE {

struct MaskExtent {
  int64_t begin, end;
  bool whole;  // every row sees all of [begin, end)
};

// Looks at rows [row, row + rows), keys key + [begin, end). Only masks whose bytes lie densely are
// looked at: others would take longer to read than to apply.
inline MaskExtent mask_extent(const ForwardTask& task, int64_t row, int64_t rows, int64_t key,
                              int64_t begin, int64_t end) {
  const ConstPlane& mask = task.mask;
  if (mask.data == nullptr) return {begin, end, true};
  if (mask.col_stride != 1 || end - begin > kBlockKeys) return {begin, end, false};
  uint8_t seen[kBlockKeys] = {};  // by some row
  uint8_t hidden[kBlockKeys] = {};
  const int64_t keys = end - begin;
  for (int64_t i = 0; i < (shared_by_rows(task, mask) ? 1 : rows); ++i) {
    const uint8_t* bytes = static_cast<const uint8_t*>(mask.data) +
                           row_offset(mask, task.heads, row + i) + key + begin;
    for (int64_t j = 0; j < keys; ++j) {
      seen[j] = static_cast<uint8_t>(seen[j] | bytes[j]);
      hidden[j] = static_cast<uint8_t>(hidden[j] | (bytes[j] == 0));
    }
  }
  int64_t first = 0, last = keys;
  while (first < last && seen[first] == 0) ++first;
  while (last > first && seen[last - 1] == 0) --last;
  uint8_t any_hidden = 0;
  for (int64_t j = first; j < last; ++j) any_hidden = static_cast<uint8_t>(any_hidden | hidden[j]);
  return {begin + first, begin + last, any_hidden == 0};
}

POISE_INLINE int64_t clamp_to(int64_t key, const MaskExtent& extent) {
  return key < extent.begin ? extent.begin : key > extent.end ? extent.end : key;
}

// Leaves out the keys that no row sees.
template <class S>
inline void clip_view(const MaskExtent& extent, BlockView<S>* view) {
  view->begin = clamp_to(view->begin, extent);
  view->end = clamp_to(view->end, extent);
  for (int v = 0; v < view->vectors; ++v) {
    view->key_begin[v] = clamp_to(view->key_begin[v], extent);
    view->key_end[v] = clamp_to(view->key_end[v], extent);
  }
}

}  // namespace poise::POISE_NAMESPACE
