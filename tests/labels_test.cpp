// ctest-labels: fast unit
// Names of layers made short enough to print: what differs stays.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "report/encoding.h"
#include "report/labels.h"

namespace poise::report {
namespace {

using Names = std::vector<std::string>;

TEST(labels, names_that_fit_are_left_alone) {
  const Names names = {"L0", "decoder.block.1", "ä"};
  EXPECT_EQ(short_labels(names, 15), names);
  EXPECT_EQ(short_labels({}, 8), Names{});
}

TEST(labels, what_long_names_share_goes_first_at_the_beginning_then_at_the_end) {
  const Names names = {"model.decoder.layers.0.attn", "model.decoder.layers.11.attn"};
  EXPECT_EQ(short_labels(names, 20), (Names{"…layers.0.attn", "…layers.11.attn"}));
  EXPECT_EQ(short_labels(names, 12), (Names{"…layers.0…", "…layers.11…"}));
}

TEST(labels, a_single_name_keeps_its_end) {
  EXPECT_EQ(short_labels({"model.decoder.layers.0.attn"}, 10), Names{"…rs.0.attn"});
}

TEST(labels, names_stay_different_and_short_whatever_they_differ_in) {
  const std::string same(60, 'x');
  const std::vector<Names> lists = {
      {"a" + same, "b" + same, "c" + same}, {same + "a" + same, same + "b" + same},
      {"a." + same, "b." + same, "a", "b"}, {same + ".1", same + ".2", same, same + "."},
      {"é" + same, "è" + same, same + "é"},
  };
  for (const Names& names : lists) {
    const Names labels = short_labels(names, 16);
    EXPECT_EQ(std::set<std::string>(labels.begin(), labels.end()).size(), names.size())
        << labels[0] << " " << labels[1];
    for (const std::string& label : labels) {
      EXPECT_LE(columns(label), 16) << label;
      EXPECT_EQ(valid_utf8(label, 100), label);
    }
  }
}

TEST(labels, equal_names_stay_equal) {
  const Names labels = short_labels({std::string(40, 'x'), std::string(40, 'x')}, 16);
  EXPECT_EQ(labels[0], labels[1]);
}

TEST(labels, the_end_that_fits) {
  EXPECT_EQ(fit_end("abcdef", 4), "cdef");
  EXPECT_EQ(fit_end("abc", 4), "abc");
  EXPECT_EQ(fit_end("注意力", 4), "意力");
  EXPECT_EQ(fit_end("注意力", 3), "力");
  EXPECT_EQ(fit_end("abc", -1), "");
}

}  // namespace
}  // namespace poise::report
