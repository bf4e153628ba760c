// Columns that hold many rows' largest weight and that nobody tracked: found by the arg-max index
// of one run, measured by another.
//
// In: two Stats of the same call that tracked different keys. Out: which columns to track next, and
// the first Stats with what the second found. Not here: which weight makes a sink (verdicts).
#include <poise/stats.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace poise {
namespace {

// A column that holds .3 of the mean weight of a head, and is not the largest weight in a fifth of
// the rows, would have to be beaten by another key in each of the others.
constexpr double kColumnShare = 0.2;

// The place of most rows, ties to the smallest; {-1, 0} without any.
PlaceCounts::Entry most_frequent(const PlaceCounts& counts) {
  PlaceCounts::Entry most{-1, 0};
  for (const PlaceCounts::Entry& entry : counts)
    if (entry.second > most.second) most = entry;
  return most;
}

// Where `key` stands among the tracked ones, kTrackedKeys when it does not.
std::size_t slot_of(const StatsRequest& request, std::int64_t key) {
  return static_cast<std::size_t>(std::find(request.tracked.begin(), request.tracked.end(), key) -
                                  request.tracked.begin());
}

// The head's most frequent column, where it is worth a run and has had none; {-1, 0} otherwise.
PlaceCounts::Entry wanted(const Stats& stats, const HeadStats& head) {
  const PlaceCounts::Entry most = most_frequent(head.argmax_column);
  const bool many =
      static_cast<double>(most.second) > kColumnShare * static_cast<double>(head.measured_rows);
  const bool known =
      slot_of(stats.request, most.first) < kTrackedKeys || head.column.key == most.first;
  return many && !known ? most : PlaceCounts::Entry{-1, 0};
}

Error refuse(ErrorCode code, const std::string& sentence) {
  return {code, "[adopt_columns] other: " + sentence};
}

}  // namespace

std::vector<std::int64_t> Stats::untracked_columns() const {
  PlaceCounts rows;
  for (const HeadStats& head : heads)
    if (const PlaceCounts::Entry column = wanted(*this, head); column.first >= 0)
      rows[column.first] += column.second;
  std::vector<PlaceCounts::Entry> columns(rows.begin(), rows.end());
  std::stable_sort(columns.begin(), columns.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::int64_t> keys;
  for (const PlaceCounts::Entry& column : columns) keys.push_back(column.first);
  return keys;
}

Error Stats::adopt_columns(const Stats& other) {
  if (other.heads.size() != heads.size())
    return refuse(ErrorCode::bad_shape, "number of heads " + std::to_string(other.heads.size()) +
                                            " differs from " + std::to_string(heads.size()));
  for (std::size_t h = 0; h < heads.size(); ++h)
    if (other.heads[h].argmax_column != heads[h].argmax_column)
      return refuse(ErrorCode::bad_value,
                    "head " + std::to_string(h) + " has its largest weights elsewhere");
  for (std::size_t h = 0; h < heads.size(); ++h) {
    const std::int64_t key = wanted(*this, heads[h]).first;
    const std::size_t slot = slot_of(other.request, key);
    if (key >= 0 && slot < kTrackedKeys) heads[h].column = {key, other.heads[h].tracked[slot]};
  }
  return {};
}

}  // namespace poise
