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

std::string isa_line(const Plan& plan) {
  std::string others;
  for (const std::string& isa : available_isas()) others += (others.empty() ? "" : ", ") + isa;
  return std::string(plan.kernels->name) + ", of " + others + " on this machine";
}

std::string tiles_line(const Plan& plan) {
  const KernelSet& kernel = *plan.kernel;
  return count_text(kernel.task_queries, "query row") + " share a packed key block of " +
         text(kBlock) + " keys; inner tiles of " + count_text(kernel.tile_queries, "row") + " in " +
         count_text(kernel.tile_queries / kernel.lanes, "vector") + " of " +
         count_text(kernel.lanes, "lane");
}

std::string splits_line(const Plan& plan) {
  return count_text(plan.splits, "split") + " of " + text(kSplit) +
         " keys at absolute positions, joined in ascending order, so that no bit depends on "
         "threads, batch or chunking";
}

std::string tasks_line(const Plan& plan) {
  std::string line = text(plan.tasks) + " = " + text(plan.batch) + " batch x " +
                     text(plan.q_heads) + " heads x " + count_text(plan.row_blocks, "row block");
  if (plan.last_rows_first)
    line += "; within a head the last rows first, since they see the most keys";
  return line;
}

std::string threads_line(const Plan& plan) {
  std::string line = text(std::int64_t{plan.slots}) + " of " + text(std::int64_t{plan.threads});
  if (plan.slots == plan.threads) return line + " allowed";
  if (plan.slots == plan.tasks) return line + " allowed, one per task";
  return line + " allowed: waking more would cost more than this work";
}

std::string flops_line(const Plan& plan, const Problem& problem) {
  return text(plan.flops) + " = 2 (D + Dv) = " + text(2 * (problem.head_dim + problem.value_dim)) +
         " for each of " + text(plan.visible_pairs) + " visible pairs";
}

std::string skipped_line(const Plan& plan, const Options& options) {
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
  const Plan plan = make_plan(problem, *kernels, allowed_threads(options));
  *text_out = "call       query " + text(query) + ", key " + text(key) + ", value " + text(value) +
              ", dtype " + name(problem.dtype) + ", " + count_text(problem.group, "query head") +
              " per key head" + "\nkernel     forward, fused: no Lq x Lk buffer" + "\nisa        " +
              isa_line(plan) + "\ntiles      " + tiles_line(plan) + "\nsplits     " +
              splits_line(plan) + "\ntasks      " + tasks_line(plan) + "\nthreads    " +
              threads_line(plan) + "\nworkspace  " + bytes_text(plan.workspace_bytes) + " = " +
              text(std::int64_t{plan.slots}) + " x " + bytes_text(plan.slot_bytes) +
              ", independent of Lq and Lk" + "\nflops      " + flops_line(plan, problem) +
              "\nskipped    " + skipped_line(plan, options) + "\n";
  return {};
}

}  // namespace poise
