// ctest-labels: fast golden unit
// The page: golden file, well-formed for every kind of input, self-contained, small, safe.
#include <poise/report.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/markup.h"
#include "support/sample_report.h"

namespace poise {
namespace {

using test::compare_with_golden;
using test::head_of_spread;
using test::large_layer;
using test::layer_of;
using test::markup_problem;
using test::sample_input;

std::string page_of(std::vector<LayerInput> layers) {
  ReportInput input;
  input.layers = std::move(layers);
  return to_html(build_report(input));
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t times = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++times;
  }
  return times;
}

ReportInput with_level(StatsLevel level) {
  ReportInput input = sample_input();
  for (LayerInput& layer : input.layers) {
    layer.stats.request.level = level;
    layer.wide.reset();
    for (HeadStats& head : layer.stats.heads) {
      head.inputs = {};
      head.gain = {};
      head.histogram = {};
      head.tracked = {};
      head.argmax_column = {};
      head.argmax_offset = {};
      if (level == StatsLevel::max) {
        head.scores.sigma = head.trace = head.entropy_ratio = head.kl = {};
        head.scores.sum_variance = head.sum_entropy_ratio = head.sum_kl = 0;
      }
    }
  }
  return input;
}

TEST(report_html, the_page_of_the_sample_equals_its_golden_file) {
  EXPECT_EQ(compare_with_golden("report.html", to_html(build_report(sample_input()))), "");
}

TEST(report_html, the_page_is_well_formed_whatever_was_measured) {
  std::vector<HeadStats> broken = {head_of_spread(30), head_of_spread(0), HeadStats{}};
  broken[0].nonfinite_rows = 3;
  const std::pair<const char*, std::string> pages[] = {
      {"sample", to_html(build_report(sample_input()))},
      {"no layers", page_of({})},
      {"a layer without heads", page_of({layer_of({})})},
      {"a head without rows", page_of({layer_of({HeadStats{}})})},
      {"one head", page_of({layer_of({head_of_spread(1)})})},
      {"all healthy", page_of({layer_of({head_of_spread(1), head_of_spread(1.2)})})},
      {"saturated, constant and empty", page_of({layer_of(broken)})},
      {"layers of different size", page_of({layer_of({head_of_spread(1)}),
                                            layer_of({head_of_spread(1), head_of_spread(2)}, 32)})},
      {"level core", to_html(build_report(with_level(StatsLevel::core)))},
      {"level max", to_html(build_report(with_level(StatsLevel::max)))},
      {"many heads", page_of({large_layer(1), large_layer(2)})},
  };
  for (const auto& [what, page] : pages) EXPECT_EQ(markup_problem(page), "") << what;
}

TEST(report_html, the_checker_finds_broken_markup) {
  EXPECT_EQ(markup_problem("<p>a<br/></p>"), "");
  for (const char* broken :
       {"<p>", "</p>", "<p><b></p></b>", "<p class=a></p>", "<p>&x;</p>", "<p>a < b</p>",
        "<p id=\"a\"></p><p id=\"a\"></p>", "<a href=\"#none\"></a>", "<p a=\"1\" a=\"2\"></p>"}) {
    EXPECT_NE(markup_problem(broken), "") << broken;
  }
}

TEST(report_html, the_page_refers_to_nothing_outside_itself_and_its_policy_is_strict) {
  const std::string page = to_html(build_report(sample_input()));
  for (const char* forbidden : {"http:", "https:", "//", "url(", "src=", "@import", "<link",
                                "<iframe", "<object", "<img", "javascript:", "data:", "onload",
                                "onclick", "fetch(", "XMLHttpRequest", "innerHTML", "eval("}) {
    EXPECT_FALSE(contains(page, forbidden)) << forbidden;
  }
  EXPECT_EQ(count(page, "href=\""), count(page, "href=\"#"));
  EXPECT_TRUE(contains(page, "content=\"default-src 'none'; style-src 'sha256-"));
  EXPECT_FALSE(contains(page, "unsafe-"));
  EXPECT_FALSE(contains(page, " style=\""));
}

TEST(report_html, hostile_names_are_shown_and_not_obeyed) {
  const std::string hostile =
      "</title><script>alert(1)</script><img src=x onerror=\"a\">'&amp;\x80\xff\x1b\u202E";
  ReportInput input = sample_input();
  input.title = input.model = input.licence = input.text = input.precision = input.mask =
      input.isa = input.date = input.command = hostile;
  input.tokens.assign(56, hostile);
  for (LayerInput& layer : input.layers) layer.label = hostile + std::string(5000, 'x');
  const std::string page = to_html(build_report(input));
  EXPECT_EQ(markup_problem(page), "");
  EXPECT_FALSE(contains(page, "<script>alert"));
  EXPECT_EQ(count(page, "<script"), 2u);
  EXPECT_EQ(count(page, "</script"), 2u);
  EXPECT_FALSE(contains(page, "<img"));
  EXPECT_TRUE(contains(page, "&lt;script&gt;"));
  EXPECT_FALSE(contains(page, "\x1b"));
  EXPECT_FALSE(contains(page, "\u202E"));
  EXPECT_FALSE(contains(page, "\x80\xff"));
  EXPECT_FALSE(contains(page, std::string(100, 'x'))) << "a long name was not shortened";
}

TEST(report_html, measured_transmission_has_its_columns_and_its_words) {
  HeadStats head = head_of_spread(1);
  EXPECT_FALSE(contains(page_of({layer_of({head})}), "expected</th>"));
  head.sum_expected_transmission_squared = 64 * 0.25;
  EXPECT_FALSE(contains(page_of({layer_of({head})}), "expected</th>"));
  head.gradient.measured_rows = 64;
  head.gradient.sum_transmission_squared = 64 * 0.16;
  const std::string page = page_of({layer_of({head})});
  EXPECT_EQ(markup_problem(page), "");
  EXPECT_TRUE(contains(page, "passes</th><th scope=\"col\">expected</th>"));
  EXPECT_TRUE(contains(page, "<td>0.4<td>0.5"));
  EXPECT_TRUE(contains(page, "<dt>passes</dt>"));
  EXPECT_TRUE(contains(page, "<dt>expected</dt>"));
}

TEST(report_html, every_cell_of_the_grid_leads_to_its_row_of_the_table) {
  const Report report = build_report(sample_input());
  const std::string page = to_html(report);
  for (std::size_t i = 0; i < report.heads.size(); ++i) {
    EXPECT_EQ(count(page, "href=\"#h" + std::to_string(i) + "\""), 1u);
    EXPECT_EQ(count(page, "<tr id=\"h" + std::to_string(i) + "\""), 1u);
  }
}

TEST(report_html, the_metric_switch_offers_what_was_measured) {
  EXPECT_EQ(count(to_html(build_report(sample_input())), "type=\"radio\""), 5u);
  EXPECT_EQ(count(to_html(build_report(with_level(StatsLevel::core))), "type=\"radio\""), 4u);
  EXPECT_EQ(count(page_of({layer_of({HeadStats{}})}), "type=\"radio\""), 0u);
}

TEST(report_html, pictures_appear_only_where_there_is_something_to_draw) {
  const std::string full = to_html(build_report(sample_input()));
  EXPECT_TRUE(contains(full, "hist-first-t") && contains(full, "hist-healthy-t"));
  EXPECT_TRUE(contains(full, "variance-chart-t") && contains(full, "full moments"));
  const std::string core = to_html(build_report(with_level(StatsLevel::core)));
  EXPECT_FALSE(contains(core, "hist-first-t"));
  EXPECT_TRUE(contains(core, "variance-chart-t"));
  EXPECT_FALSE(contains(core, "full moments</text>"));
  EXPECT_FALSE(contains(page_of({layer_of({HeadStats{}})}), "<svg"));
}

struct Box {
  double left, top, right, bottom;
};

std::string attribute(const std::string& tag, const std::string& name) {
  const std::size_t from = tag.find(" " + name + "=\"");
  if (from == std::string::npos) return "";
  const std::size_t begin = from + name.size() + 3;
  return tag.substr(begin, tag.find('"', begin) - begin);
}

// The elements `name` of the variance chart, each from its "<" to the end of its text.
std::vector<std::string> chart_elements(const std::string& page, const std::string& name) {
  const std::size_t figure = page.find("<figure id=\"variance\"");
  const std::string chart = page.substr(figure, page.find("</figure>", figure) - figure);
  std::vector<std::string> found;
  for (std::size_t at = chart.find("<" + name + " "); at != std::string::npos;
       at = chart.find("<" + name + " ", at + 1)) {
    found.push_back(chart.substr(at, chart.find('<', at + 1) - at));
  }
  return found;
}

// Where a label is, by a generous width of its letters.
Box label_box(const std::string& tag) {
  constexpr double kLetter = 7.5, kAscent = 9, kDescent = 3;
  const double x = std::stod(attribute(tag, "x")), y = std::stod(attribute(tag, "y"));
  const std::string text = tag.substr(tag.find('>') + 1);
  const auto letters = std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  });
  const double width = kLetter * static_cast<double>(letters);
  const std::string anchor = attribute(tag, "text-anchor");
  const double left = anchor == "end" ? x - width : anchor == "middle" ? x - width / 2 : x;
  return {left, y - kAscent, left + width, y + kDescent};
}

// The marks of a path "M12 34h0M...": discs and dashes.
std::vector<Box> mark_boxes(const std::string& tag) {
  const bool dash = attribute(tag, "class") == "tick";
  if (!dash && !attribute(tag, "class").starts_with("disc")) return {};
  std::vector<Box> boxes;
  std::istringstream data(attribute(tag, "d"));
  char command = 0;
  for (double x = 0, y = 0, length = 0; data >> command >> x >> y >> command >> length;) {
    const double radius = dash ? 0.5 : 2;
    boxes.push_back(
        {x - (dash ? 0 : radius), y - radius, x + std::max(length, radius), y + radius});
  }
  return boxes;
}

TEST(report_html, no_label_of_the_variance_chart_covers_a_mark) {
  const LayerInput narrow = layer_of({head_of_spread(0.2), head_of_spread(0.25)}, 16);
  const LayerInput wide = layer_of({head_of_spread(9), head_of_spread(2)}, 256);
  std::vector<LayerInput> many;
  for (int seed = 0; seed < 12; ++seed) many.push_back(large_layer(seed));
  for (const std::string& page :
       {to_html(build_report(sample_input())), to_html(build_report(with_level(StatsLevel::core))),
        page_of({narrow}), page_of({wide}), page_of({narrow, wide, large_layer(3)}),
        page_of(many)}) {
    std::vector<Box> marks;
    for (const std::string& path : chart_elements(page, "path")) {
      const std::vector<Box> boxes = mark_boxes(path);
      marks.insert(marks.end(), boxes.begin(), boxes.end());
    }
    EXPECT_GE(marks.size(), 2u);
    for (const std::string& text : chart_elements(page, "text")) {
      const Box label = label_box(text);
      for (const Box& mark : marks) {
        const bool apart = mark.right <= label.left || mark.left >= label.right ||
                           mark.bottom <= label.top || mark.top >= label.bottom;
        EXPECT_TRUE(apart) << text << " covers the mark at " << mark.left << ", " << mark.top;
      }
    }
  }
}

TEST(report_html, a_table_that_may_be_cut_off_says_so_on_narrow_screens) {
  const std::string page = to_html(build_report(sample_input()));
  const std::size_t hint = page.find("<p class=\"hint\"");
  ASSERT_NE(hint, std::string::npos);
  EXPECT_LT(hint, page.find("<table class=\"heads\""));
  EXPECT_TRUE(contains(page, ".hint { display: none;"));
  EXPECT_TRUE(contains(page, ".hint { display: block }"));
}

TEST(report_html, a_page_of_48_layers_of_32_heads_stays_below_a_megabyte) {
  std::vector<LayerInput> layers;
  for (int l = 0; l < 48; ++l) layers.push_back(large_layer(l));
  const Report report = build_report([&] {
    ReportInput input;
    input.layers = std::move(layers);
    return input;
  }());
  const std::string page = to_html(report);
  EXPECT_TRUE(report.has_what_ifs && report.has_histogram && report.has_moments);
  EXPECT_EQ(markup_problem(page), "");
  EXPECT_LT(page.size(), 1'000'000u);
  EXPECT_EQ(count(page, "<tr id=\"h"), 1536u);
}

// The numbers element, read back as the script does.
nlohmann::json data_of(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const std::size_t from = page.find(open) + open.size();
  return nlohmann::json::parse(page.substr(from, page.find("</script>", from) - from));
}

TEST(report_html, the_numbers_for_the_script_are_those_of_the_model) {
  const Report report = build_report(sample_input());
  const nlohmann::json data = data_of(to_html(report));
  ASSERT_EQ(data["heads"].size(), report.heads.size());
  const auto& columns = data["columns"];
  const auto place = [&](const char* key) {
    return static_cast<std::size_t>(std::find(columns.begin(), columns.end(), key) -
                                    columns.begin());
  };
  for (std::size_t i = 0; i < report.heads.size(); ++i) {
    const Readout& r = report.heads[i].health.readout;
    const auto& head = data["heads"][i];
    EXPECT_NEAR(head[place("sigma")].get<double>(), r.sigma, 1e-3 * r.sigma);
    EXPECT_NEAR(head[place("gain")].get<double>(), r.gain, 1e-3 * r.gain);
    EXPECT_NEAR(head[place("above_99")].get<double>(), r.above_99, 1e-3);
  }
}

TEST(report_html, a_bin_of_the_packed_histogram_is_within_12_percent_of_its_count) {
  const Report report = build_report(sample_input());
  const nlohmann::json data = data_of(to_html(report));
  const auto columns = data["columns"].size();
  const double decades = data["decades"].get<double>(), steps = data["steps"].get<double>();
  for (std::size_t i = 0; i < report.heads.size(); ++i) {
    const HeadHistogram& h = report.heads[i].histogram;
    const auto& packed = data["heads"][i][columns];
    const double low = packed[0].get<double>(), width = packed[1].get<double>();
    const double peak = packed[2].get<double>();
    const std::string bins = packed[3].get<std::string>();
    EXPECT_NEAR(width, h.width, 1e-3 * h.width);
    const auto first = static_cast<std::size_t>(std::lround((low - h.low) / h.width));
    for (std::size_t bin = 0; bin < bins.size(); ++bin) {
      const auto count = static_cast<double>(h.counts[first + bin]);
      if (bins[bin] == ' ') {
        EXPECT_EQ(count, 0);
        continue;
      }
      const int code = bins[bin];
      const int step = code - (code > '\\') - (code > '<') - (code > '&') - '#';
      const double density = peak * std::pow(10, (step / steps - 1) * decades);
      const double expected = 100 * count / static_cast<double>(h.total) / h.width;
      EXPECT_NEAR(density, expected, 0.12 * expected);
    }
  }
}

TEST(report_html, what_the_scale_does_is_drawn_from_heads_run_at_other_scales) {
  EXPECT_FALSE(contains(to_html(build_report(sample_input())), "slopes-t"));
  const std::string page = page_of({large_layer(1), large_layer(2)});
  EXPECT_TRUE(contains(page, "slopes-t"));
  EXPECT_TRUE(contains(page, "no scale</text>"));
  EXPECT_TRUE(contains(page, ">1/64</text>"));
  EXPECT_TRUE(contains(page, "remedy-chart-t"));
  EXPECT_TRUE(contains(page, "A first-order guess of ΔH says"));
}

TEST(report_html, the_remedy_of_a_hot_and_saturated_head_is_the_factor_of_its_spread) {
  LayerInput layer = large_layer(1);
  const auto title = [](const LayerInput& shown) {
    const std::string page = page_of({shown}), begin = "<title id=\"remedy-chart-t\">";
    const std::size_t at = page.find(begin);
    return page.substr(at, page.find("</title>", at) - at);
  };
  const std::string cool = title(layer);
  EXPECT_TRUE(contains(cool, "one-hot rows to")) << cool;
  for (HeadStats& head : layer.stats.heads) head.scores.max = 160;
  EXPECT_EQ(title(layer), cool);
}

TEST(report_html, heads_that_are_dead_with_and_without_the_scale_are_not_laid_to_its_absence) {
  const auto at = [](double factor, double narrow) {
    std::vector<HeadStats> heads = {head_of_spread(30 * factor), head_of_spread(narrow * factor)};
    for (HeadStats& head : heads) head.scale *= factor;  // 1/8 as they are
    return layer_of(std::move(heads));
  };
  const auto page = [&](double narrow) {
    LayerInput layer = at(1, narrow);
    for (const double factor : {8.0, 0.125})
      layer.what_ifs.push_back({"scale", true, at(factor, narrow).stats});
    return page_of({layer});
  };
  EXPECT_TRUE(contains(page(0.3), "1 head is dead now; without 1/√64 too"));
  EXPECT_TRUE(contains(page(1), "Without 1/√64, all 2 heads would be dead"));
}

TEST(report_html, without_a_usual_scale_among_the_what_ifs_the_extreme_factors_are_drawn) {
  LayerInput layer = large_layer(1);
  layer.what_ifs.erase(layer.what_ifs.begin(), layer.what_ifs.begin() + 2);  // no scale, 1/64
  const std::string page = page_of({layer});
  EXPECT_TRUE(contains(page, "slopes-t"));
  EXPECT_FALSE(contains(page, "no scale</text>"));
  EXPECT_TRUE(contains(page, "×\u00A04.0</text>"));
  EXPECT_TRUE(contains(page, "×\u00A00.25</text>"));
}

TEST(report_html, raw_and_scaled_scores_are_drawn_with_their_own_widths) {
  const std::string page = to_html(build_report(sample_input()));
  EXPECT_TRUE(contains(page, "hist-raw-t"));
  EXPECT_TRUE(contains(page, "Before the scale, L0 H3 spreads over σ 85.6"));
  EXPECT_TRUE(contains(page, "Divided by √32, L0 H3 is 15.1 times as wide as normal"));
}

TEST(report_html, sentences_of_flags_stand_in_the_rows_until_their_share_of_the_page_is_used) {
  const std::string page = to_html(build_report(sample_input()));
  EXPECT_TRUE(contains(page, "<p>Saturated: σ 15.1, 5.33 times the freezing spread"));
  std::vector<LayerInput> layers;
  for (int l = 0; l < 48; ++l) layers.push_back(large_layer(l));
  EXPECT_LT(count(page_of(std::move(layers)), "<p>Saturated: "), 1000u);
}

TEST(report_html, the_page_follows_dark_mode_and_paper) {
  const std::string page = to_html(build_report(sample_input()));
  EXPECT_TRUE(contains(page, "prefers-color-scheme: dark"));
  EXPECT_TRUE(contains(page, "@media print"));
  EXPECT_TRUE(contains(page, "name=\"viewport\""));
}

}  // namespace
}  // namespace poise
