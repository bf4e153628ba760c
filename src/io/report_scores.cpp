// Reading heads out of a report. The promises are in report_scores.h.
//
// In: JSON text. Out: heads in the order of the report; nothing is judged here.
#include "io/report_scores.h"

#include <set>
#include <utility>

#include "io/json_file.h"
#include "io/message.h"

namespace poise::io {
namespace {

constexpr int kMaxDepth = 16;
constexpr std::int64_t kMaxHeads = std::int64_t{1} << 20;
constexpr std::int64_t kMaxRows = std::int64_t{1} << 62;

}  // namespace

Error read_report_scores(std::string_view text, const std::string& source,
                         std::vector<HeadScore>* heads) {
  nlohmann::json json;
  if (Error error = parse_json(text, source, kMaxDepth, &json)) return error;
  std::string fault;
  Members report(json, "", &fault);
  if (report.text("schema", true) != "poise.report")
    report.refuse("schema is not \"poise.report\": expected what poise report --json writes");
  report.whole("version", 1, 1);
  const nlohmann::json* list = report.array("heads");
  std::vector<HeadScore> read;
  std::set<std::pair<std::string, std::int64_t>> seen;
  for (std::size_t i = 0; fault.empty() && i < list->size(); ++i) {
    Members member((*list)[i], "heads[" + std::to_string(i) + "]", &fault);
    HeadScore& head = read.emplace_back();
    head.layer = member.text("layer", true);
    head.head = member.whole("head", 0, kMaxHeads);
    head.nonfinite_rows = member.whole("nonfinite_rows", 0, kMaxRows);
    if (const nlohmann::json* readout = member.object("readout"))
      head.max_score = Members(*readout, member.path("readout"), &fault).number("max_score");
    if (!seen.emplace(head.layer, head.head).second)
      member.refuse("head " + std::to_string(head.head) + " of layer " + in_quotes(head.layer) +
                    " is there twice");
  }
  if (!fault.empty()) return refuse(source, fault);
  *heads = std::move(read);
  return {};
}

}  // namespace poise::io
