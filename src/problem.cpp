// The numbers per head and batch of a checked problem: see Problem in check.h.
// What must not happen here: a rule or a refusal; whatever is read has passed check_forward.
#include "check.h"

#include "view_values.h"

#include <algorithm>
#include <limits>

namespace poise {
namespace {

using Wide = __int128;

std::int64_t clamp_to_open(Wide end) {
  return static_cast<std::int64_t>(std::clamp<Wide>(end, kOpenLower, kOpenUpper));
}

}  // namespace

double Problem::scale(std::int64_t head) const {
  return options.scale_per_head.given() ? read_number(options.scale_per_head, head) : scale_value;
}

double Problem::sink(std::int64_t head) const {
  return options.sinks.given() ? read_number(options.sinks, head)
                               : -std::numeric_limits<double>::infinity();
}

double Problem::slope(std::int64_t b, std::int64_t head) const {
  const ConstTensor& slopes = options.alibi_slopes;
  if (!slopes.given()) return 0;
  return slopes.rank == 2 ? read_number(slopes, b, head) : read_number(slopes, head);
}

std::int64_t Problem::kv_length(std::int64_t b) const {
  return options.kv_lengths.given() ? read_integer(options.kv_lengths, b) : kv_len;
}

std::int64_t Problem::q_length(std::int64_t b) const {
  return options.q_lengths.given() ? read_integer(options.q_lengths, b) : q_len;
}

std::int64_t Problem::diagonal(std::int64_t b) const {
  if (options.diagonal) return *options.diagonal;
  if (options.diagonals.given()) return read_integer(options.diagonals, b);
  switch (options.causal.kind()) {
    case Causal::Kind::top_left:
      return 0;
    case Causal::Kind::offset:
      return options.causal.diagonal();
    case Causal::Kind::none:
    case Causal::Kind::bottom_right:
      break;
  }
  return kv_length(b) - q_len;
}

// Diagonal and window may each be any int64, so they are added in 128 bits; beyond the open ends
// every row sees every key of the side, or none.
std::int64_t Problem::lower(std::int64_t b) const {
  if (window_left < 0) return kOpenLower;
  return clamp_to_open(static_cast<Wide>(diagonal(b)) - window_left);
}

std::int64_t Problem::upper(std::int64_t b) const {
  if (!causal && window_right < 0) return kOpenUpper;
  // Causal cuts at or before any right end of a window.
  return clamp_to_open(static_cast<Wide>(diagonal(b)) + (causal ? 0 : window_right));
}

}  // namespace poise
