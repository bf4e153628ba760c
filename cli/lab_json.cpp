// A lab Result as JSON: what was measured, where and how, and every number of every table.
//
// In: a Result. Out: text, indented, with a line end. An estimate `x` becomes the members `x` and
// `x_se`. Must not happen here: a number that the Result does not hold.
#include <poise/cpu.h>

#include <nlohmann/json.hpp>

#include <cmath>

#include "lab.h"
#include "machine.h"

namespace poise::cli {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no NaN and no infinity.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

void put(const std::string& name, const lab::Cell& cell, Json* object) {
  if (const auto* estimate = std::get_if<lab::Estimate>(&cell)) {
    (*object)[name] = number(estimate->value);
    (*object)[name + "_se"] = number(estimate->error);
  } else if (const auto* exact = std::get_if<double>(&cell)) {
    (*object)[name] = number(*exact);
  } else if (const auto* whole = std::get_if<std::int64_t>(&cell)) {
    (*object)[name] = *whole;
  } else if (const auto* text = std::get_if<std::string>(&cell)) {
    (*object)[name] = *text;
  } else {
    (*object)[name] = std::get<std::vector<std::int64_t>>(cell);
  }
}

Json table_json(const lab::Table& table) {
  Json columns = Json::array(), rows = Json::array();
  for (const lab::Column& column : table.columns)
    columns.push_back({{"name", column.name}, {"meaning", column.meaning}});
  for (const auto& cells : table.rows) {
    Json row = Json::object();
    for (std::size_t i = 0; i < cells.size(); ++i) put(table.columns[i].name, cells[i], &row);
    rows.push_back(row);
  }
  return {{"name", table.name}, {"title", table.title}, {"columns", columns}, {"rows", rows}};
}

}  // namespace

std::string lab_json(const lab::Result& result, const lab::RunSettings& settings,
                     const Session& session) {
  const Machine machine = this_machine();
  Json parameters = Json::object(), tables = Json::array();
  for (const auto& [name, cell] : result.parameters) put(name, cell, &parameters);
  for (const lab::Table& table : result.tables) tables.push_back(table_json(table));
  const Json json{
      {"format", "poise.lab"},
      {"format_version", 1},
      {"experiment", result.experiment},
      {"statement", result.statement},
      {"poise_version", POISE_VERSION},
      {"compiler", compiler_text()},
      {"date", now_text()},
      {"command", session.command},
      {"machine", {{"cpu", machine.cpu}, {"cores", machine.cores}, {"isa", active_isa()}}},
      {"seed", settings.seed},
      {"parameters", parameters},
      {"tables", tables},
      {"notes", result.notes}};
  // A name from the machine that is no UTF-8 must not cost the run.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace poise::cli
