// ctest-labels: fast unit
// Contrast of every pair of colours that the page puts on each other, computed from its style
// sheet: 4.5 : 1 for text, 3 : 1 for marks (WCAG 2.2, 1.4.3 and 1.4.11), in light, dark and print.
// Checkers in a browser cannot decide tinted and hatched cells or drawings.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "report/html_parts.h"

namespace poise {
namespace {

using Colour = std::array<double, 3>;  // red, green, blue, 0 ... 1, as written (sRGB)

struct Theme {
  const char* name;
  std::map<std::string, Colour> colours;
  double hatch = 0;  // opacity of the alarm colour in a hatched cell
};

// The variables between a block's braces, over those of an earlier one.
void read_block(const std::string& css, std::size_t from, Theme* theme) {
  const std::size_t end = css.find('}', from);
  for (std::size_t at = css.find("--", from); at < end; at = css.find("--", at + 2)) {
    const std::size_t colon = css.find(':', at);
    const std::string name = css.substr(at + 2, colon - at - 2);
    const std::string value = css.substr(colon + 2, css.find_first_of(";}", colon) - colon - 2);
    if (value.starts_with('#')) {
      const std::string digits =
          value.size() >= 7 ? value.substr(1, 6) : std::string{value[1], value[1], value[2],
                                                               value[2], value[3], value[3]};
      const long code = std::strtol(digits.c_str(), nullptr, 16);
      theme->colours[name] = {static_cast<double>((code >> 16) & 255) / 255,
                              static_cast<double>((code >> 8) & 255) / 255,
                              static_cast<double>(code & 255) / 255};
    } else if (name == "hatch") {
      theme->hatch = std::stod(value.substr(value.find('/') + 1));
    }
  }
}

std::vector<Theme> themes() {
  const std::string css = report::page_style();
  Theme light{"light", {}, 0};
  read_block(css, css.find(":root"), &light);
  Theme dark = light, print = light;
  dark.name = "dark";
  read_block(css, css.find(":root", css.find("prefers-color-scheme: dark")), &dark);
  print.name = "print";
  read_block(css, css.find(":root", css.find("@media print")), &print);
  return {light, dark, print};
}

double luminance(const Colour& colour) {
  const auto linear = [](double c) {
    return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(colour[0]) + 0.7152 * linear(colour[1]) + 0.0722 * linear(colour[2]);
}

double contrast(const Colour& a, const Colour& b) {
  const double one = luminance(a), other = luminance(b);
  return (std::max(one, other) + 0.05) / (std::min(one, other) + 0.05);
}

Colour mixed(const Colour& over, const Colour& under, double share) {
  Colour out{};
  for (std::size_t i = 0; i < 3; ++i) out[i] = share * over[i] + (1 - share) * under[i];
  return out;
}

// Every tint a cell can have, plain or with a stripe of the hatch over it.
std::vector<Colour> cells(const Theme& theme, bool hatched) {
  std::vector<Colour> out;
  for (int step = 0; step <= 20; ++step) {
    const Colour cell = mixed(theme.colours.at("cell-full"), theme.colours.at("cell"), step / 20.0);
    out.push_back(cell);
    if (hatched) out.push_back(mixed(theme.colours.at("alarm"), cell, theme.hatch));
  }
  return out;
}

TEST(contrast, text_stands_out_from_the_page_at_4_5_to_1) {
  for (const Theme& theme : themes()) {
    for (const char* text : {"ink", "ink2", "ink3", "accent", "alarm"}) {
      EXPECT_GE(contrast(theme.colours.at(text), theme.colours.at("bg")), 4.5)
          << text << ", " << theme.name;
    }
  }
}

TEST(contrast, text_on_tinted_and_hatched_cells_stands_out_at_4_5_to_1) {
  for (const Theme& theme : themes()) {
    for (const Colour& cell : cells(theme, true))
      EXPECT_GE(contrast(theme.colours.at("ink"), cell), 4.5) << theme.name;
  }
}

TEST(contrast, the_row_that_a_link_leads_to_stays_readable) {
  for (const Theme& theme : themes()) {
    for (const char* text : {"ink", "ink2", "accent", "alarm"}) {
      EXPECT_GE(contrast(theme.colours.at(text), theme.colours.at("cell")), 4.5)
          << text << ", " << theme.name;
    }
  }
}

TEST(contrast, marks_stand_out_from_the_page_and_from_cells_at_3_to_1) {
  for (const Theme& theme : themes()) {
    for (const char* mark : {"axis", "accent", "alarm", "ink", "ink2"}) {
      EXPECT_GE(contrast(theme.colours.at(mark), theme.colours.at("bg")), 3)
          << mark << ", " << theme.name;
    }
    for (const char* mark : {"accent", "alarm"}) {
      for (const Colour& cell : cells(theme, false)) {
        EXPECT_GE(contrast(theme.colours.at(mark), cell), 3) << mark << ", " << theme.name;
      }
    }
  }
}

TEST(contrast, nothing_is_made_fainter_than_its_colour) {
  std::string css = report::page_style();
  const std::string hidden_radio = "opacity: 0 }";
  const std::size_t at = css.find(hidden_radio);
  ASSERT_NE(at, std::string::npos);
  css.erase(at, hidden_radio.size());
  EXPECT_EQ(css.find("opacity"), std::string::npos);
  EXPECT_EQ(css.find("filter"), std::string::npos);
}

}  // namespace
}  // namespace poise
