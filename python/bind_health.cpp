// poise.judge and the report: verdicts of heads, and the page that shows them.
//
// In: Stats. Out: Health with its flags, Report with its three faces. What must not happen here: a
// rule, a threshold or a word of the report; they are the library's.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <poise/advice.h>
#include <poise/cpu.h>
#include <poise/health.h>
#include <poise/report.h>
#include <poise/run_log.h>

#include <string>
#include <tuple>
#include <vector>

#include "bindings.h"

namespace poise::python {
namespace {

JudgeContext context_of(const std::string& scores_stored, bool pv_in_bf16, bool at_initialisation,
                        bool layers_share_weights) {
  JudgeContext context;
  if (scores_stored == "float16")
    context.scores_stored = JudgeContext::Storage::f16;
  else if (scores_stored == "bfloat16")
    context.scores_stored = JudgeContext::Storage::bf16;
  else if (scores_stored != "float32")
    raise_value("[judge] scores_stored: '" + scores_stored +
                "', expected float32, float16 or bfloat16");
  context.pv_in_bf16 = pv_in_bf16;
  context.at_initialisation = at_initialisation;
  context.layers_share_weights = layers_share_weights;
  return context;
}

// Per head: γ of QK-clip, and by what the head's rows of Wq and of Wk are multiplied.
std::vector<std::tuple<double, double, double>> clip_factors(const Stats& stats, double tau) {
  const auto heads = static_cast<std::int64_t>(stats.heads.size());
  const WeightRule rule = weight_rule(heads, stats.kv_heads, false);
  std::vector<std::tuple<double, double, double>> factors;
  for (const HeadStats& head : stats.heads) {
    const double gamma = clip_gamma(head.scores.max, tau);
    const WeightFactors split = split_factor(gamma, rule);
    factors.emplace_back(gamma, split.query, split.key);
  }
  return factors;
}

Report report_of(const std::vector<const Stats*>& layers, const std::vector<std::string>& labels,
                 const std::string& title, const std::string& model, const std::string& text,
                 const std::string& precision, const std::string& mask, const std::string& command,
                 const std::vector<std::string>& tokens, const std::string& scores_stored,
                 bool pv_in_bf16, bool at_initialisation, bool layers_share_weights,
                 nb::handle log_bytes, const std::string& log_name) {
  if (!labels.empty() && labels.size() != layers.size())
    raise_value("[report] labels: " + std::to_string(labels.size()) +
                ", expected one for each of " + std::to_string(layers.size()) + " layers");
  ReportInput input;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] == nullptr) raise_type("[report] layers: None, expected Stats");
    LayerInput layer;
    if (!labels.empty()) layer.label = labels[i];
    layer.stats = *layers[i];
    input.layers.push_back(std::move(layer));
  }
  input.title = title;
  input.model = model;
  input.text = text;
  input.precision = precision;
  input.mask = mask;
  input.command = command;
  input.tokens = tokens;
  input.isa = active_isa();
  input.context = context_of(scores_stored, pv_in_bf16, at_initialisation, layers_share_weights);
  if (!log_bytes.is_none()) {
    const auto bytes = nb::cast<nb::bytes>(log_bytes);
    RunLog log;
    raise_if(log.add({bytes.c_str(), bytes.size()}, log_name));
    raise_if(read_run(log, input));
    if (title.empty()) input.title = log_name + ", step " + std::to_string(log.last_step());
    for (const std::string& sentence : log.cut_off())
      if (PyErr_WarnEx(PyExc_UserWarning, sentence.c_str(), 1) != 0) throw nb::python_error();
  }
  return build_report(input);
}

}  // namespace

void bind_health(nb::module_& module) {
  module.def(
      "log_line",
      [](std::int64_t step, const std::string& layer, const Stats& stats,
         const std::string& process) { return log_line(step, layer, stats, process); },
      nb::arg("step"), nb::arg("layer"), nb::arg("stats"), nb::arg("process") = "",
      "One record of a run log (schema poise.log, docs/run-log.md) with its line end.");
  module.def(
      "clip_factors", &clip_factors, nb::arg("stats"), nb::arg("tau"),
      "Per head (gamma, factor of its rows of Wq, factor of its rows of Wk): QK-clip at tau.");
  using namespace nb::literals;
  nb::class_<Flag>(
      module, "Flag",
      "One rule that fired: kind, severity, evidence, cause, remedy, and the factor to\n"
      "multiply by (NaN where no number corrects it).")
      .def_prop_ro("kind", [](const Flag& self) { return std::string(name(self.kind)); })
      .def_prop_ro("severity", [](const Flag& self) { return std::string(name(self.severity)); })
      .def_ro("evidence", &Flag::evidence)
      .def_ro("cause", &Flag::cause)
      .def_ro("remedy", &Flag::remedy)
      .def_ro("factor", &Flag::factor)
      .def("__repr__", [](const Flag& self) {
        return "Flag('" + std::string(name(self.kind)) + "', '" + name(self.severity) + "', '" +
               self.evidence + "')";
      });

  nb::class_<HeadHealth>(module, "HeadHealth", "The verdict on one head, with every flag.")
      .def_ro("head", &HeadHealth::head)
      .def_prop_ro("verdict",
                   [](const HeadHealth& self) { return std::string(name(self.verdict)); })
      .def_prop_ro("severity",
                   [](const HeadHealth& self) { return std::string(name(self.severity)); })
      .def_ro("flags", &HeadHealth::flags)
      .def("__repr__", [](const HeadHealth& self) {
        return "HeadHealth(" + std::to_string(self.head) + ", '" + name(self.verdict) + "')";
      });

  nb::class_<Health>(module, "Health", "The verdicts on all heads; str() puts them into words.")
      .def_ro("heads", &Health::heads)
      .def_prop_ro("worst", [](const Health& self) { return std::string(name(self.worst)); })
      .def_prop_ro(
          "counts",
          [](const Health& self) {
            nb::typed<nb::dict, nb::str, int> counts;
            for (int i = 0; i < kSeverities; ++i)
              counts[name(static_cast<Severity>(i))] = self.counts[static_cast<std::size_t>(i)];
            return counts;
          },
          "Heads by the severity of their verdict.")
      .def("__str__", [](const Health& self) { return to_text(self); })
      .def("__repr__", [](const Health& self) {
        return "Health(heads=" + std::to_string(self.heads.size()) + ", worst='" +
               name(self.worst) + "')";
      });

  module.def(
      "judge",
      [](const Stats& stats, const std::string& scores_stored, bool pv_in_bf16,
         bool at_initialisation, bool layers_share_weights) {
        return judge(
            stats, {},
            context_of(scores_stored, pv_in_bf16, at_initialisation, layers_share_weights));
      },
      "stats"_a, nb::kw_only(), "scores_stored"_a = "float32", "pv_in_bf16"_a = false,
      "at_initialisation"_a = false, "layers_share_weights"_a = false,
      "Judges every head: is its softmax too hot, saturated, diffuse, near overflow, and by what\n"
      "number is it corrected.\n\n"
      "stats: poise.Stats of any level but off. scores_stored: the type in which the engine that\n"
      "runs the model stores scores. pv_in_bf16: it multiplies weights by values in bfloat16.\n"
      "at_initialisation: weights are untrained. layers_share_weights: advise on the scale.\n"
      "Returns poise.Health. docs/health.md has rules and sources.");

  nb::class_<Report>(module, "Report", "The health report of layers: one model, three faces.")
      .def_prop_ro("worst", [](const Report& self) { return std::string(name(self.worst)); })
      .def_prop_ro("headline",
                   [](const Report& self) { return self.headline_alarm + self.headline_rest; })
      .def(
          "to_text",
          [](const Report& self, bool unicode, bool colour, int width, bool all_heads, bool rules) {
            TextStyle style;
            style.unicode = unicode;
            style.colour = colour;
            style.width = width;
            style.all_heads = all_heads;
            style.rules = rules;
            return to_text(self, style);
          },
          nb::kw_only(), "unicode"_a = true, "colour"_a = false, "width"_a = 100,
          "all_heads"_a = false, "rules"_a = false, "The face for terminals.")
      .def(
          "to_json", [](const Report& self) { return to_json(self); },
          "The face for programs: docs/report-json.md.")
      .def(
          "to_html", [](const Report& self) { return to_html(self); }, "One self-contained page.")
      .def("__repr__", [](const Report& self) {
        return "Report(layers=" + std::to_string(self.layers) + ", worst='" + name(self.worst) +
               "')";
      });

  module.def("report", &report_of, "layers"_a, "labels"_a, "title"_a, "model"_a, "text"_a,
             "precision"_a, "mask"_a, "command"_a, "tokens"_a, "scores_stored"_a, "pv_in_bf16"_a,
             "at_initialisation"_a, "layers_share_weights"_a, "log"_a.none() = nb::none(),
             "log_name"_a = "", "Builds the report of layers, or of the bytes of a run log.");
}

}  // namespace poise::python
