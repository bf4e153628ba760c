// Aligned text. In: a Result. Out: lines of ASCII.
//
// Numbers stand right, words left; an error stands in a column of its own behind its number, so
// that both align. Must not happen here: rounding that hides more than the error does.
#include "lab/table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace poise::lab {
namespace {

std::string printed(const char* format, int digits, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, digits, value);
  return text;
}

// A number as the table writes it, and what of it is the error.
struct Words {
  std::string value, error;
  bool is_word = false;
};

Words measured(const Estimate& estimate) {
  const double value = estimate.value, error = estimate.error;
  if (!std::isfinite(value) || !std::isfinite(error))
    return {printed("%.*g", 4, value), "?", false};
  const double size = std::max(std::fabs(value), error);
  if (error <= 0) return {printed("%.*g", 5, value), "0", false};
  const int decimals = 1 - static_cast<int>(std::floor(std::log10(error)));
  // Beyond six decimals or with nothing before the point's thousands: powers of ten.
  if (size < 1e-3 || decimals > 7) {
    const int shown =
        static_cast<int>(std::floor(std::log10(size)) - std::floor(std::log10(error)));
    return {printed("%.*e", std::clamp(shown + 1, 1, 9), value), printed("%.*e", 1, error), false};
  }
  const int places = std::max(0, decimals);
  return {printed("%.*f", places, value), printed("%.*f", places, error), false};
}

Words words_of(const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return {*text, "", true};
  if (const auto* whole = std::get_if<std::int64_t>(&cell))
    return {std::to_string(*whole), "", false};
  if (const auto* exact = std::get_if<double>(&cell); exact != nullptr && std::isnan(*exact))
    return {};  // does not apply
  if (const auto* exact = std::get_if<double>(&cell))
    return {printed("%.*g", 6, *exact), "", false};
  if (const auto* estimate = std::get_if<Estimate>(&cell)) return measured(*estimate);
  std::string list;
  for (const std::int64_t size : std::get<std::vector<std::int64_t>>(cell))
    list += (list.empty() ? "" : ",") + std::to_string(size);
  return {list, "", true};
}

std::string padded(const std::string& text, std::size_t width, bool left) {
  const std::string blanks(width > text.size() ? width - text.size() : 0, ' ');
  return left ? text + blanks : blanks + text;
}

std::string without_trailing_blanks(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

std::string table_text(const Table& table) {
  const std::size_t count = table.columns.size();
  std::vector<std::size_t> values(count), errors(count);
  std::vector<bool> left(count);
  std::vector<std::vector<Words>> rows;
  for (const auto& cells : table.rows) {
    std::vector<Words>& row = rows.emplace_back();
    for (std::size_t i = 0; i < count; ++i) {
      row.push_back(words_of(cells[i]));
      values[i] = std::max(values[i], row.back().value.size());
      errors[i] = std::max(errors[i], row.back().error.size());
      left[i] = left[i] || row.back().is_word;
    }
  }
  const auto width = [&](std::size_t i) {
    return values[i] + (errors[i] > 0 ? errors[i] + 4 : 0);  // " +- "
  };
  std::string text = table.title + '\n', head;
  for (std::size_t i = 0; i < count; ++i) {
    // The head of a measured column may be wider than its numbers.
    const std::size_t label = table.columns[i].label.size();
    if (label > width(i)) values[i] += label - width(i);
    head += "  " + padded(table.columns[i].label, width(i), left[i]);
  }
  text += without_trailing_blanks(head);
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < count; ++i) {
      line += "  " + padded(row[i].value, values[i], left[i]);
      if (errors[i] > 0)
        line += (row[i].error.empty() ? "    " : " +- ") + padded(row[i].error, errors[i], false);
    }
    text += without_trailing_blanks(line);
  }
  return text;
}

std::string meanings(const Result& result) {
  std::vector<const Column*> told;
  std::size_t widest = 0;
  for (const Table& table : result.tables) {
    if (!table.in_text) continue;
    for (const Column& column : table.columns) {
      const auto same = [&](const Column* other) { return other->label == column.label; };
      if (std::any_of(told.begin(), told.end(), same)) continue;
      told.push_back(&column);
      widest = std::max(widest, column.label.size());
    }
  }
  std::string text;
  for (const Column* column : told)
    text += "  " + padded(column->label, widest, true) + "  " + column->meaning + '\n';
  return text;
}

}  // namespace

std::string to_text(const Cell& cell) {
  const Words words = words_of(cell);
  return words.error.empty() ? words.value : words.value + " +- " + words.error;
}

std::string two_digits(double value) { return printed("%.*g", 2, value); }

std::string percent(double share) {
  const double hundred = 100 * share;
  return printed("%.*f", hundred > 0 && hundred < 1 ? 2 : 0, hundred) + " %";
}

std::string to_text(const Result& result) {
  std::string text = result.statement + ".\n";
  for (const Table& table : result.tables)
    if (table.in_text) text += '\n' + table_text(table);
  text += '\n' + meanings(result);
  if (!result.notes.empty()) text += '\n';
  for (const std::string& note : result.notes) text += note + '\n';
  return text;
}

}  // namespace poise::lab
