// Parts of the page, each a complete piece of markup with everything from outside escaped.
// In: the model. Out: elements that are closed and attributes that are quoted, so that the page
// stays well-formed however they are put together.
// Not here: statistics, scripts, references to elsewhere.
#pragma once

#include <poise/report.h>

#include <string>

namespace poise::report {

const char* style_sheet();
// The rules that let radio button i choose note, tint and number i of every cell.
std::string grid_style();

// A severity's mark, coloured, with its name for readers that do not see it; empty when healthy.
std::string mark_html(Severity severity);

std::string grid_html(const Report& report);     // layer x head, with its metric switch
std::string table_html(const Report& report);    // every head, one row each, id h<position>
std::string numbers_html(const Report& report);  // facts about precision and rows left out
std::string rules_html(const Report& report);    // thresholds with sources
std::string glossary_html(const Report& report);

}  // namespace poise::report
