// The card of one head, empty until the script fills it from the head's row and the data of the
// page, and the drawings in it. Without the script the row itself becomes the card (style.cpp).
// In: the model. Out: markup. The drawings have no data here, only what every head shares: axes,
// the standard normal, names.
#include "report/encoding.h"
#include "report/html_parts.h"
#include "report/svg.h"
#include "report/words.h"

#include <cmath>

namespace poise::report {
namespace {

// The script draws into the classes d-...; its numbers are those of the viewBox here.
std::string histogram_drawing() {
  Svg svg("card-hist", 236, "Histogram of the scaled scores of this head",
          "Logarithmic vertical axis, % of scores per unit; the raw products above.");
  svg.text("s d-top", 0, 0, Anchor::middle, "");
  svg.path("axis", Path().move(32, 196).horizontal(334));
  svg.path("area accent d-area", Path().move(32, 196));
  svg.path("normal d-normal", Path().move(32, 196));
  svg.path("axis d-ticks", Path().move(32, 196));
  svg.text("s", 334, 10, Anchor::end, "raw q·k");
  svg.text("s", 183, 232, Anchor::middle, "scaled score; dashed: standard normal");
  return svg.finish();
}

std::string why_drawing() {
  Svg svg("card-why", 64, "Why it is wide", "Textbook variance, times norms, times alignment.");
  svg.path("bar d-norms", Path().move(6, 34));
  svg.path("bar alarm d-align", Path().move(6, 34));
  svg.text("strong d-norms-text", 6, 14, Anchor::start, "");
  svg.text("strong d-align-text", 334, 14, Anchor::end, "");
  svg.text("s d-from", 6, 60, Anchor::start, "");
  svg.text("strong d-to", 334, 60, Anchor::end, "");
  return svg.finish();
}

}  // namespace

std::string card_html(const Report& report) {
  std::string out =
      "<section id=\"card\" hidden=\"hidden\"><h2 tabindex=\"-1\">Head card</h2><div class=\"row "
      "card\"><div><p class=\"d-flags\"></p><div class=\"d-words\"></div><p class=\"d-bought\"></p>"
      "<p><a class=\"d-back\" href=\"" +
      std::string(has_grid(report) ? "#grid\">back to the grid" : "#heads\">back to the table") +
      "</a></p></div><div>";
  if (report.has_histogram) {
    out +=
        "<figure class=\"d-hist\"><figcaption><h3>How wide its scores are</h3>% of scores per "
        "unit, logarithmic.</figcaption>" +
        histogram_drawing() + "</figure>";
  }
  if (report.has_moments) {
    out +=
        "<figure class=\"d-why\"><figcaption><h3>Why they are wide</h3>Variance of q·k, "
        "logarithmic: textbook, times norms, times alignment.</figcaption>" +
        why_drawing() + "</figure>";
  }
  return out + "</div><dl class=\"facts d-facts\"></dl></div></section>\n";
}

}  // namespace poise::report
