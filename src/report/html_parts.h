// Parts of the page, each a complete piece of markup with everything from outside escaped.
// In: the model. Out: elements that are closed (but for the end tags of table rows and cells, which
// HTML lets one omit) and attributes that are quoted, so that the page stays well-formed however
// they are put together.
// Not here: statistics, references to elsewhere, style attributes (the policy forbids them).
#pragma once

#include <poise/report.h>

#include <string>

namespace poise::report {

// The style sheet and the script. Constant, whatever the report: the policy names their hashes.
std::string page_style();
std::string page_script();

// The parts of the style sheet: page, charts, print; the grid's switch and tints; the labels of a
// row that stands as a card.
std::string base_style();
const char* chart_style();
const char* print_style();
std::string grid_style();
std::string table_style();

// A severity's mark, coloured, with its name for readers that do not see it; empty when healthy.
std::string mark_html(Severity severity);
// The same by a class of a cell, for the thousands of them: "b" bad, "w" warn, "n" note; its sign
// is in the style sheet and silent, so the cell's words must name the flags.
const char* mark_class(Severity severity);

std::string grid_html(const Report& report);     // layer x head, with its metric switch
bool has_grid(const Report& report);             // false when nothing was measured
bool has_long_labels(const Report& report);      // a narrow column would cut some layer's name
std::string card_html(const Report& report);     // the card that the script fills
std::string data_html(const Report& report);     // numbers of every head, for the script
std::string table_html(const Report& report);    // every head, one row each, id h<position>
std::string numbers_html(const Report& report);  // facts about precision and rows left out
std::string rules_html(const Report& report);    // thresholds with sources
std::string glossary_html(const Report& report);

}  // namespace poise::report
