// How sharp rows are: the share of a head's rows whose largest weight is at most x, one curve per
// head, on a logit axis, where .99 and .999 are as far apart as .5 and .9. On a linear one every
// saturated row would lie on the frame.
// In: quantiles of the model. Out: one figure. From kManyHeads on the healthy heads become a band.
#include "report/charts.h"
#include "report/figure.h"
#include "report/words.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace poise::report {
namespace {

constexpr double kLeft = 34, kRight = 334, kTop = 24, kBottom = 190, kHeight = 226;
constexpr std::size_t kAlarmCurves = 12;  // more would hide one another

double logit(double share) { return std::log(share / (1 - share)); }

bool known(const ReportHead& head) { return !std::isnan(head.top1_logit.front()); }

bool one_hot(const Report& report, const ReportHead& head) {
  return head.health.readout.above_99 >= report.input.thresholds.saturated_share;
}

Axis places(const Report& report) {
  double low = logit(0.2), high = logit(0.995);
  for (const ReportHead& head : report.heads) {
    if (!known(head)) continue;
    low = std::min(low, head.top1_logit.front());
    high = std::max(high, head.top1_logit.back());
  }
  return {std::max(low - 0.2, logit(1e-4)), std::min(high + 0.2, logit(0.99999)), kLeft, kRight};
}

std::vector<Tick> ticks_of(const Axis& x) {
  constexpr std::array<double, 9> kTicks = {0.0001, 0.001, 0.01,  0.1,   0.5,
                                            0.9,    0.99,  0.999, 0.9999};
  std::vector<Tick> ticks;
  for (const double share : kTicks) {
    const double at = logit(share);
    if (at < x.low || at > x.high) continue;
    std::string label = number(share);
    if (label.starts_with("0.")) label = label.substr(1);
    ticks.push_back({at, share == 0.0001 ? ".0001" : share == 0.9999 ? ".9999" : label});
  }
  return ticks;
}

void draw_curve(Path& path, const ReportHead& head, const Axis& x, const Axis& y) {
  const auto points = head.top1_logit.size();
  for (std::size_t i = 0; i < points; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(points - 1);
    const double across = x.at(head.top1_logit[i]), up = y.at(share);
    if (i == 0) {
      path.move(across, up);
    } else {
      path.line(across, up);
    }
  }
}

// From the 10th to the 90th percentile of the heads at each share of rows, and their median.
void draw_band(Svg& svg, const std::vector<const ReportHead*>& heads, const Axis& x,
               const Axis& y) {
  Path left, right, middle;
  std::vector<double> at_share;
  const std::size_t points = heads.front()->top1_logit.size();
  std::vector<std::array<double, 3>> cuts;
  for (std::size_t i = 0; i < points; ++i) {
    at_share.clear();
    for (const ReportHead* head : heads) at_share.push_back(head->top1_logit[i]);
    std::sort(at_share.begin(), at_share.end());
    const auto cut = [&](double q) {
      return at_share[static_cast<std::size_t>(q * static_cast<double>(at_share.size() - 1))];
    };
    cuts.push_back({cut(0.1), cut(0.5), cut(0.9)});
  }
  Path band, medians;
  const auto up = [&](std::size_t i) {
    return y.at(static_cast<double>(i) / static_cast<double>(points - 1));
  };
  for (std::size_t i = 0; i < points; ++i) {
    if (i == 0) {
      band.move(x.at(cuts[i][0]), up(i));
      medians.move(x.at(cuts[i][1]), up(i));
    } else {
      band.line(x.at(cuts[i][0]), up(i));
      medians.line(x.at(cuts[i][1]), up(i));
    }
  }
  for (std::size_t i = points; i-- > 0;) band.line(x.at(cuts[i][2]), up(i));
  svg.path("band", band.close());
  svg.path("curve", medians);
}

std::string title_of(const Report& report, std::int64_t sharp, std::int64_t heads) {
  if (sharp > 0) {
    return plural(sharp, "head") + agree(sharp, " puts", " put") + " nearly all weight on one key";
  }
  double most = 0;
  for (const ReportHead& head : report.heads) {
    if (known(head)) most = std::max(most, head.health.readout.above_99);
  }
  const std::string all = heads == 1 ? "The head" : "No head of " + std::to_string(heads);
  return heads == 1
             ? all + " puts .99 on one key in " + percent_sign(most) + " of its rows"
             : all + " puts .99 on one key in more than " + percent_sign(most) + " of its rows";
}

}  // namespace

std::string sharpness_figure(const Report& report) {
  std::vector<const ReportHead*> calm, sharp;
  for (const int i : report.order) {
    const ReportHead& head = report.heads[static_cast<std::size_t>(i)];
    if (known(head)) (one_hot(report, head) ? sharp : calm).push_back(&head);
  }
  if (calm.empty() && sharp.empty()) return "";
  const auto sharp_heads = static_cast<std::int64_t>(sharp.size());
  const std::string title =
      title_of(report, sharp_heads, static_cast<std::int64_t>(calm.size() + sharp.size()));
  const Axis x = places(report), y{0, 1, kBottom, kTop};
  Svg svg("sharpness", kHeight, title,
          "Cumulative share of rows by largest weight on a logit axis, one curve per head.");
  draw_levels(svg, y, kLeft, kRight,
              {{0, "0"}, {0.25, "25"}, {0.5, "50"}, {0.75, "75"}, {1, "100"}});
  draw_places(svg, x, kBottom, ticks_of(x));
  svg.text("s", (kLeft + kRight) / 2, kHeight - 4, Anchor::middle,
           "largest weight of a row (logit axis)");
  svg.text("s", 0, 11, Anchor::start, "% of rows");
  const bool many = calm.size() >= kManyHeads;
  if (many) {
    draw_band(svg, calm, x, y);
  } else {
    Path curves;
    for (const ReportHead* head : calm) draw_curve(curves, *head, x, y);
    svg.path("thin", curves);
  }
  const double limit = x.at(logit(kOneHot));
  svg.line("limit", limit, kTop, limit, kBottom);
  Path alarms;
  for (std::size_t i = 0; i < std::min(sharp.size(), kAlarmCurves); ++i)
    draw_curve(alarms, *sharp[i], x, y);
  svg.path("curve alarm", alarms);
  if (report.healthy_head >= 0) {
    const ReportHead& healthy = report.heads[static_cast<std::size_t>(report.healthy_head)];
    if (known(healthy) && !one_hot(report, healthy)) {
      Path curve;
      draw_curve(curve, healthy, x, y);
      svg.path("curve accent", curve);
      const double at = x.at(healthy.top1_logit.back());
      svg.text("strong ac", std::max(kLeft + 4, at - 6), kTop + 12,
               at - 6 > kLeft + 60 ? Anchor::end : Anchor::start, healthy.name);
    }
  }
  // Beside the limit at the bottom, where the curves of sharp heads have left.
  constexpr double kLabelRoom = 78;
  const bool room = kRight - limit > kLabelRoom;
  const double beside = room ? limit + 5 : limit - 5;
  const Anchor anchor = room ? Anchor::start : Anchor::end;
  if (!sharp.empty()) {
    svg.text("strong al", beside, kBottom - 36, anchor, sharp[0]->name);
    svg.text("", beside, kBottom - 21, anchor,
             percent_sign(sharp[0]->health.readout.above_99) + " of rows");
    svg.text("", beside, kBottom - 6, anchor, "above .99");
  }
  std::string reading =
      many ? "Share of rows whose largest weight is at most x. Band: from the 10th "
             "to the 90th percentile of the heads, their median in it."
           : "Share of rows whose largest weight is at most x, one curve per head.";
  if (sharp.size() > kAlarmCurves) {
    reading += " Of the sharp heads the first " + std::to_string(kAlarmCurves) + " are drawn.";
  }
  return figure_html("", title, reading, svg.finish());
}

}  // namespace poise::report
