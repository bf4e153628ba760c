// What every figure of the page shares: its frame of caption and drawing, rules with their labels,
// ticks, and the marks of many heads as one path.
// In: words and numbers of a chart. Out: markup, everything from outside escaped. Not here: what is
// drawn, statistics.
#pragma once

#include <poise/report.h>

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/svg.h"

namespace poise::report {

// title: a statement with its number; reading: how to read the drawing. Plain text, escaped here.
std::string figure_html(std::string_view id, const std::string& title, const std::string& reading,
                        const std::string& drawing);

struct Tick {
  double value;
  std::string label;
};
// Horizontal rules across the drawing, their labels left of it.
void draw_levels(Svg& svg, const Axis& y, double left, double right,
                 const std::vector<Tick>& ticks);
// The axis at the bottom with its ticks; labels at the right edge end there.
void draw_places(Svg& svg, const Axis& x, double bottom, const std::vector<Tick>& ticks);

// Powers of ten within a logarithmic axis, at most `most` of them.
std::vector<Tick> decades(const Axis& axis, int most = 5);

// MarkPath of many heads. From kManyHeads on they snap to whole units of the drawing and those that
// fall on one another are drawn once, so that the page stays small; no mark moves by more than half
// a unit.
inline constexpr std::size_t kManyHeads = 400;
class MarkPath {
 public:
  explicit MarkPath(const Report& report) : snap_(report.heads.size() >= kManyHeads) {}
  void dot(double x, double y);
  void tick(double x, double y, double height);  // upright, from y downwards
  void dash(double x, double y, double length);
  const Path& path() const { return path_; }
  bool empty() const { return path_.empty(); }

 private:
  bool fresh(double* x, double* y);  // false when such a mark is there already

  bool snap_;
  std::set<std::pair<std::int64_t, std::int64_t>> seen_;
  Path path_;
};

// The alarm that a chart paints: warn or worse.
bool alarming(const ReportHead& head);

}  // namespace poise::report
