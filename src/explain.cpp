// explain(): a plan in words, for people who wonder where time and memory go.
// In: a call without data. Out: one line per decision, each with its number and its reason.
// What must not happen here: a decision (plan.cpp makes them), a read through a data pointer.
#include "check.h"
#include "check_view.h"
#include "cpu.h"
#include "executor.h"
#include "isa/dispatch.h"
#include "plan.h"

#include <string>
#include <string_view>
#include <utility>

namespace poise {
namespace {

std::string bytes_text(std::int64_t bytes) {
  constexpr std::int64_t kKibi = 1024;
  if (bytes < kKibi) return text(bytes) + " B";
  return text(static_cast<double>(bytes) / static_cast<double>(kKibi)) + " KiB";
}

std::string percent_text(double share) { return text(100 * share) + " %"; }

// Sizes like 3 of something, plural unless 1.
std::string count_text(std::int64_t count, const char* one) {
  return text(count) + " " + one + (count == 1 ? "" : "s");
}

std::string isa_line(const TaskPlan& plan) {
  std::string others;
  for (const std::string& isa : available_isas()) others += (others.empty() ? "" : ", ") + isa;
  return std::string(plan.kernels->name) + ", of " + others + " on this machine";
}

std::string kernel_line(const TaskPlan& plan) {
  const bool narrow = plan.forward == &plan.kernel->narrow;
  return std::string("forward, fused: no Lq x Lk buffer; ") +
         (narrow ? "few rows: keys along the lanes, read once, in place" : "rows along the lanes");
}

std::string tiles_line(const TaskPlan& plan) {
  std::string line = count_text(plan.forward->task_rows, "row") + " share a block of " +
                     text(kBlock) + " keys; inner tiles of " +
                     count_text(plan.forward->tile_rows, "row") + ", vectors of " +
                     count_text(plan.kernel->lanes, "lane");
  if (plan.heads > 1)
    line += "; rows are (query, head) pairs of " + text(plan.heads) +
            " heads, which read each key once";
  return line;
}

std::string splits_line(const TaskPlan& plan) {
  return count_text(plan.splits, "split") + " of " + text(kSplit) +
         " keys at absolute positions, joined in ascending order, so that no bit depends on "
         "threads, batch or chunking";
}

std::string tasks_line(const TaskPlan& plan) {
  std::string line = text(plan.tasks) + " = " + text(plan.batch) + " batch x " +
                     text(plan.set_count()) + (plan.heads > 1 ? " sets of heads x " : " heads x ") +
                     count_text(plan.row_blocks, "row block");
  if (plan.parts > 1)
    line += " x " + text(plan.parts) + " ranges of splits, joined in order by the last to end";
  if (plan.last_rows_first)
    line += "; within a head the last rows first, since they see the most keys";
  return line;
}

std::string threads_line(const TaskPlan& plan) {
  std::string line = text(std::int64_t{plan.slots}) + " of " + text(std::int64_t{plan.threads});
  if (plan.slots == plan.threads) return line + " allowed";
  if (plan.slots == plan.tasks) return line + " allowed, one per task";
  return line + " allowed: waking more would cost more than this work";
}

std::string workspace_line(const TaskPlan& plan) {
  const std::string slots = text(std::int64_t{plan.slots}) + " x " + bytes_text(plan.slot_bytes);
  const std::string line = bytes_text(plan.workspace_bytes) + " = " + slots;
  if (plan.parts == 1) return line + ", independent of Lq and Lk";
  return line + " + " + text(plan.units * plan.splits) + " states of splits x " +
         bytes_text(plan.record_bytes);
}

std::string flops_line(const TaskPlan& plan, const Problem& problem) {
  return text(plan.flops) + " = 2 (D + Dv) = " + text(2 * (problem.head_dim + problem.value_dim)) +
         " for each of " + text(plan.visible_pairs) + " visible pairs";
}

std::string skipped_line(const TaskPlan& plan, const Options& options) {
  const double share = plan.all_pairs > 0 ? 1 - plan.visible_pairs / plan.all_pairs : 0;
  std::string line = percent_text(share) + " of " + text(plan.all_pairs) +
                     " pairs, hidden by position (causal, window)";
  if (options.kv_lengths.given() || options.q_lengths.given() || options.diagonals.given())
    line += "; lengths and diagonals are data, not read here: counted as full and default";
  if (options.mask.given() || options.bias.given())
    line += "; mask and bias are data, not read here: they hide but save no work";
  return line;
}

}  // namespace

Error explain(const ConstTensor& query, const ConstTensor& key, const ConstTensor& value,
              const Options& options, std::string* text_out) {
  if (Error error = environment_error()) return error;
  Problem problem;
  if (Error error = check_explain(query, key, value, options, &problem)) return error;
  if (text_out == nullptr)
    return refuse(ErrorCode::bad_value, {"explain", "text"}, "null, expected a string to fill", {});
  Error error;
  const Kernels* kernels = active_kernels(&error);
  if (kernels == nullptr) return error;
  const TaskPlan plan = make_plan(problem, *kernels, allowed_threads(options));
  const std::pair<const char*, std::string> lines[] = {
      {"call", "query " + text(query) + ", key " + text(key) + ", value " + text(value) +
                   ", dtype " + name(problem.dtype) + ", " +
                   count_text(problem.group, "query head") + " per key head"},
      {"kernel", kernel_line(plan)},
      {"isa", isa_line(plan)},
      {"tiles", tiles_line(plan)},
      {"splits", splits_line(plan)},
      {"tasks", tasks_line(plan)},
      {"threads", threads_line(plan)},
      {"workspace", workspace_line(plan)},
      {"flops", flops_line(plan, problem)},
      {"skipped", skipped_line(plan, options)},
  };
  constexpr std::size_t kNameWidth = 11;
  text_out->clear();
  for (const auto& [title, line] : lines) {
    *text_out += title;
    text_out->append(kNameWidth - std::string_view(title).size(), ' ');
    *text_out += line + "\n";
  }
  return {};
}

}  // namespace poise
