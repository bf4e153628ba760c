// poise report: the health of every head of a recording, in words, numbers and pictures.
//
// In: a recording (a safetensors file, or the one linked into the command) and what overrides its
// scale and mask, or run logs. Out: the report on standard output, as HTML and as JSON on request;
// a recording's statistics at the end of a run log. Must not happen here: a statistic, a verdict or
// a word of the report; they are the library's.
#include <poise/cpu.h>
#include <poise/report.h>
#include <poise/run_log.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "embedded_recording.h"
#include "failure.h"
#include "inputs.h"
#include "io/recording.h"
#include "log_file.h"
#include "machine.h"
#include "measure.h"
#include "options.h"
#include "output.h"
#include "verbs.h"
#include "what_if.h"

namespace poise::cli {
namespace {

struct Arguments {
  std::vector<std::string> files;
  std::string html, json, log, fail_on = "never", stored = "f32";
  std::int64_t step = 0;
  bool of_recording = false;  // an option was given that only a recording can obey
  bool all = false, rules = false, ascii = false, shared_weights = false, untrained = false;
  bool pv_in_bf16 = false;
  std::string what_ifs = kDefaultWhatIfs;
  int threads = 0;
  ScoreOptions scores;
};

const std::map<std::string, JudgeContext::Storage> kStorages{{"f32", JudgeContext::Storage::f32},
                                                             {"f16", JudgeContext::Storage::f16},
                                                             {"bf16", JudgeContext::Storage::bf16}};
const std::map<std::string, std::optional<Severity>> kFailOn{{"never", std::nullopt},
                                                             {"watch", Severity::watch},
                                                             {"warn", Severity::warn},
                                                             {"bad", Severity::bad},
                                                             {"critical", Severity::critical}};

std::string value_or_empty(const std::map<std::string, std::string>& metadata,
                           const std::string& key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? std::string() : found->second;
}

// The page's short name of a layer: "layer.0" is L0, any other label stays.
std::string short_label(const std::string& label) {
  constexpr std::string_view kPrefix = "layer.";
  return label.rfind(kPrefix, 0) == 0 ? "L" + label.substr(kPrefix.size()) : label;
}

RunnableLayer runnable(const io::Layer& layer, const Arguments& arguments, Inputs& inputs) {
  RunnableLayer result;
  result.label = short_label(layer.label);
  result.query = inputs.widened(layer.query);
  result.key = inputs.widened(layer.key);
  result.value = inputs.widened(layer.value);
  result.options.scale = layer.scale;
  result.options.causal = arguments.scores.causal_given()
                              ? arguments.scores.causal(layer.query.extent(2), layer.key.extent(2))
                              : parse_causal(layer.label + ".causal", layer.causal);
  result.options.mask = layer.mask;
  result.options.bias = layer.bias;
  result.options.threads = arguments.threads;
  arguments.scores.set_scale(inputs, result.query.dtype, &result.options);
  return result;
}

// What hides keys in this layer, in a few words.
std::string mask_text(const RunnableLayer& layer) {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (layer.options.causal.kind() != Causal::Kind::none)
    add("causal " + causal_text(layer.options.causal));
  if (layer.options.mask.given()) add("mask");
  if (layer.options.bias.given()) add("bias");
  return text.empty() ? "no mask" : text;
}

ReportInput describe(const io::Recording& recording, const std::string& source,
                     const std::vector<RunnableLayer>& layers, const Session& session) {
  ReportInput input;
  const auto text_of = [&](const char* key) { return value_or_empty(recording.metadata, key); };
  input.model = text_of("model");
  input.title = text_of("title");
  if (input.title.empty()) input.title = input.model.empty() ? source : input.model;
  input.licence = text_of("licence");
  input.text = text_of("text");
  input.tokens = recording.tokens;
  const RunnableLayer& first = layers.front();
  input.precision = first.query.dtype == DType::f64 ? "float64" : "float32";
  input.mask = mask_text(first);
  for (const RunnableLayer& layer : layers)
    if (mask_text(layer) != input.mask) input.mask = "masks differ by layer";
  // What differs by layer is left out.
  const auto common = [&](std::int64_t (*size)(const RunnableLayer&)) {
    for (const RunnableLayer& layer : layers)
      if (size(layer) != size(first)) return std::int64_t{0};
    return size(first);
  };
  input.batch = common([](const RunnableLayer& layer) { return layer.query.extent(0); });
  input.q_len = common([](const RunnableLayer& layer) { return layer.query.extent(2); });
  input.kv_len = common([](const RunnableLayer& layer) { return layer.key.extent(2); });
  input.isa = active_isa();
  input.threads = first.options.threads > 0 ? first.options.threads : default_threads();
  input.date = now_text();
  input.command = session.command;
  return input;
}

JudgeContext context_of(const Arguments& arguments) {
  JudgeContext context;
  context.scores_stored = kStorages.at(arguments.stored);
  context.pv_in_bf16 = arguments.pv_in_bf16;
  context.at_initialisation = arguments.untrained;
  context.layers_share_weights = arguments.shared_weights;
  return context;
}

// Runs every layer of a recording.
ReportInput measure(const Arguments& arguments, const Session& session) {
  const WhatIfList what_ifs = parse_what_ifs(arguments.what_ifs);
  io::File file;
  if (arguments.files.empty()) {
    throw_if(io::open_memory(embedded_recording(), "the built-in recording", &file));
  } else {
    throw_if(io::open(arguments.files.front(), &file));
  }
  io::Recording recording;
  throw_if(io::read_recording(file, &recording));
  if (recording.layers.empty()) throw Failure(file.source() + ": no layer is recorded in it");

  Inputs inputs;
  std::vector<RunnableLayer> layers;
  for (const io::Layer& layer : recording.layers)
    layers.push_back(runnable(layer, arguments, inputs));

  ReportInput input = describe(recording, file.source(), layers, session);
  input.context = context_of(arguments);
  input.context.layers_share_weights |=
      value_or_empty(recording.metadata, "layers_share_weights") == "true";
  Timing timing;
  {
    // Every layer is run three times at least: measured, timed without and with statistics; and
    // once for every what-if.
    const std::int64_t steps = what_ifs.empty() ? 3 : 4;
    Progress progress("measuring: step", steps * static_cast<std::int64_t>(layers.size()));
    const auto advance = [&progress] { progress.advance(); };
    input.layers = measure_layers(layers, advance);
    timing = time_layers(layers, advance);
    add_what_ifs(layers, what_ifs, input.context, &input.layers, advance);
  }
  input.attention_ms = timing.attention_ms;
  input.measuring_percent = timing.measuring_percent;
  return input;
}

// The last step of a run, and the way there.
ReportInput read_logs(const Arguments& arguments, const Session& session) {
  if (arguments.of_recording)
    throw usage_failure(
        "--scale, --causal, --threads, --what-if, --log and --step go with a recording; '" +
        arguments.files.front() + "' is a run log, which is measured already");
  const RunLog log = read_run_logs(arguments.files);
  ReportInput input;
  input.title =
      (arguments.files.size() == 1 ? arguments.files.front()
                                   : std::to_string(arguments.files.size()) + " run logs") +
      ", step " + std::to_string(log.last_step());
  input.date = now_text();
  input.command = session.command;
  input.context = context_of(arguments);
  throw_if(read_run(log, input));
  return input;
}

int report(const Arguments& arguments, const Session& session) {
  OutputFiles files;
  for (const std::string& file : arguments.files) files.protect(file);
  if (!arguments.html.empty()) files.check("--html", arguments.html);
  if (!arguments.json.empty()) files.check("--json", arguments.json);
  if (!arguments.log.empty()) {
    files.check("--log", arguments.log);
    check_run_log("--log", arguments.log);
  }
  const auto logs = std::count_if(arguments.files.begin(), arguments.files.end(), is_run_log);
  if (logs == 0 && arguments.files.size() > 1)
    throw usage_failure("'" + arguments.files[1] +
                        "' is a second recording; only run logs are "
                        "reported together");
  if (logs > 0 && logs < static_cast<std::ptrdiff_t>(arguments.files.size()))
    throw usage_failure("recordings and run logs are not reported together");
  const ReportInput input = logs > 0 ? read_logs(arguments, session) : measure(arguments, session);

  const Report report = build_report(input);
  if (!arguments.html.empty()) files.add_text("--html", arguments.html, to_html(report));
  if (!arguments.json.empty()) files.add_text("--json", arguments.json, to_json(report) + '\n');
  files.commit();
  if (!arguments.log.empty()) {
    std::string lines;
    for (const LayerInput& layer : input.layers)
      lines += log_line(arguments.step, layer.label, layer.stats);
    append_to_run_log("--log", arguments.log, lines);
  }

  TextStyle style;
  style.unicode = !arguments.ascii && locale_is_utf8();
  style.colour = use_colour(session.colour);
  style.width = output_width();
  style.all_heads = arguments.all;
  style.rules = arguments.rules;
  print(to_text(report, style));
  const std::optional<Severity> limit = kFailOn.at(arguments.fail_on);
  // Findings know of rows with NaN as well, which no verdict of a head is about.
  const auto severe = [&](const Finding& finding) { return finding.severity >= *limit; };
  const bool failed =
      limit && (report.worst >= *limit ||
                std::any_of(report.findings.begin(), report.findings.end(), severe));
  return failed ? kExitFailed : kExitDone;
}

}  // namespace

Run add_report(CLI::App& app) {
  auto* verb = app.add_subcommand(
      "report", "Show which heads of a recorded model are in trouble, why, and what corrects them");
  auto arguments = std::make_shared<Arguments>();
  verb->add_option("FILE", arguments->files,
                   "a recording (safetensors, see tools/record_sample.py), without it the one that "
                   "is built in; or run logs (docs/run-log.md)");
  verb->add_option("--html", arguments->html, "write the page with all pictures")->type_name("F");
  verb->add_option("--json", arguments->json, "write every number as JSON")->type_name("F");
  auto* log = verb->add_option("--log", arguments->log,
                               "append the recording's statistics to this run log, as of --step")
                  ->type_name("F");
  verb->add_option("--step", arguments->step, "the step of the run that was recorded")
      ->check(whole_number(0, kMaxLogStep))
      ->needs(log)
      ->type_name("N");
  arguments->scores.add_to(*verb);
  verb->add_flag("--all", arguments->all,
                 "every head in the table, not only the first five by verdict");
  verb->add_flag("--rules", arguments->rules, "the thresholds of the verdicts with their sources");
  verb->add_flag("--ascii", arguments->ascii, "ASCII only, as when the locale is not UTF-8");
  verb->add_option("--fail-on", arguments->fail_on,
                   "exit with 1 when a head is at least this: never, watch, warn, bad or critical")
      ->check(CLI::IsMember({"never", "watch", "warn", "bad", "critical"}))
      ->type_name("SEVERITY");
  verb->add_option("--scores-stored", arguments->stored,
                   "the model's own engine stores scores as f32, f16 or bf16")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}))
      ->type_name("T");
  verb->add_flag("--pv-in-bf16", arguments->pv_in_bf16,
                 "the model's own engine multiplies weights by values in bf16");
  verb->add_flag("--shared-weights", arguments->shared_weights,
                 "the layers share weights: advise on the scale");
  verb->add_flag("--untrained", arguments->untrained, "judge as at initialisation");
  verb->add_option("--what-if", arguments->what_ifs,
                   "other temperatures to run every head at, separated by commas: factors of the "
                   "scale, undivided (scale 1), 1/D, advised, qk-norm, softcap=X, "
                   "log-n=TRAINED_KEYS; or none (default " +
                       std::string(kDefaultWhatIfs) + ")")
      ->type_name("LIST");
  add_threads(*verb, &arguments->threads);
  verb->footer(
      "Examples:\n"
      "  poise report\n"
      "  poise report recorded.safetensors --html report.html --json report.json\n"
      "  poise report recorded.safetensors --scale 0.05 --causal top_left --all\n"
      "  poise report recorded.safetensors --fail-on bad   # for scripts\n"
      "  poise report recorded.safetensors --log run.jsonl --step 1200\n"
      "  poise report run.jsonl --html health.html         # the run over time");
  return [arguments, verb](const Session& session) {
    const auto given = [verb](const char* option) { return verb->count(option) > 0; };
    if (given("--log") && !given("--step"))
      throw usage_failure("--log: --step is missing, the step of the run that was recorded");
    arguments->of_recording = given("--scale") || given("--causal") || given("--threads") ||
                              given("--what-if") || given("--log") || given("--step");
    return report(*arguments, session);
  };
}

}  // namespace poise::cli
