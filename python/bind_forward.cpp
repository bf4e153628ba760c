// poise._core.forward: one attention call from Python, and what else it hands out.
//
// In: arrays, Options, an AuxRequest, perhaps an array to write to. Out: the result in the caller's
// kind, with an Aux when one was requested. What must not happen here: the interpreter's lock held
// while the library computes.
#include <nanobind/stl/string.h>
#include <poise/attention.h>

#include <utility>

#include "bindings.h"
#include "inputs.h"
#include "output.h"

namespace poise::python {
namespace {

struct AuxRequest {
  bool lse = false, lse_without_sink = false, max_scores = false, state = false;
  bool scores = false, capped = false, logits = false, weights = false;
  StatsRequest stats{.level = StatsLevel::off};  // the library's own default measures
};

struct Aux {
  Any lse = nb::none(), lse_without_sink = nb::none(), max_scores = nb::none(),
      row_max = nb::none(), row_sum = nb::none(), scores = nb::none(), capped = nb::none(),
      logits = nb::none(), weights = nb::none(), stats = nb::none();
};

// An output besides `out`: where it goes in Aux and in Extras.
struct Extra {
  bool wanted;
  bool per_key;  // [..., Hq, Lq, Lk] rather than [..., Hq, Lq]
  Any Aux::*result;
  const Tensor* Extras::*tensor;
  Output output;
  View view;
  Tensor part;
};

constexpr const char* kCall = "forward";

Any forward(nb::handle query, nb::handle key, nb::handle value, const CallOptions& options,
            nb::handle request_object, nb::handle out_object, bool grouped, bool blhd) {
  Inputs in;
  in.take(query, key, value, kCall, true, grouped, blhd);
  AuxRequest request;
  const bool wants_aux = !request_object.is_none();
  if (wants_aux && !nb::try_cast(request_object, request))
    raise_type("[forward] return_aux: expected an AuxRequest, got " +
               std::string(nb::type_name(request_object.type()).c_str()));

  Output out;
  Axes shape{};
  const int rank = in.result_shape(in.value_dim, true, &shape);
  if (out_object.is_none()) {
    out.create(in.query_array, shape, rank, in.query.dtype, &in.query_array.view());
  } else {
    out.use(out_object, kCall, "out");
    if (out.view().rank != rank)
      raise_value("[forward] out: shape " + shape_text(out.view()) + ", expected " +
                  std::to_string(rank) + " axes");
  }
  const View out_view = in.lifted(out.view(), true, true);
  in.check_leading(out_view, kCall, "out");

  Extra extras[] = {
      {request.lse, false, &Aux::lse, &Extras::lse, {}, {}, {}},
      {request.lse_without_sink,
       false,
       &Aux::lse_without_sink,
       &Extras::lse_without_sink,
       {},
       {},
       {}},
      {request.max_scores, false, &Aux::max_scores, &Extras::max_score, {}, {}, {}},
      {request.state, false, &Aux::row_max, &Extras::row_max, {}, {}, {}},
      {request.state, false, &Aux::row_sum, &Extras::row_sum, {}, {}, {}},
      {request.scores, true, &Aux::scores, &Extras::scores, {}, {}, {}},
      {request.capped, true, &Aux::capped, &Extras::capped, {}, {}, {}},
      {request.logits, true, &Aux::logits, &Extras::logits, {}, {}, {}},
      {request.weights, true, &Aux::weights, &Extras::weights, {}, {}, {}},
  };
  Cut cut(in.lead, in.leads);
  cut.consider({&in.query, &in.key, &in.value, &out_view});
  if (wants_aux) {
    for (Extra& extra : extras) {
      if (!extra.wanted) continue;
      Axes extents{};
      const int axes = in.result_shape(extra.per_key ? in.kv_len : -1, false, &extents);
      extra.output.create(in.query_array, extents, axes, in.numbers());
      extra.view = in.lifted(extra.output.view(), extra.per_key, false);
      cut.consider(extra.view);
    }
  }
  const ResolvedOptions resolved(options, in.numbers(), in.lead, in.leads, kCall, &cut);

  Stats whole;
  whole.request = request.stats;
  Error error;
  {
    nb::gil_scoped_release release;
    const std::int64_t calls = cut.calls();
    for (std::int64_t index = 0; index < calls && !error; ++index) {
      Stats stats;
      stats.request = request.stats;
      Extras wanted;
      if (request.stats.level != StatsLevel::off) wanted.stats = calls == 1 ? &whole : &stats;
      for (Extra& extra : extras) {
        if (!extra.wanted) continue;
        extra.part = cut.part(extra.view, index);
        wanted.*extra.tensor = &extra.part;
      }
      error =
          attention(cut.part(in.query, index), cut.part(in.key, index), cut.part(in.value, index),
                    cut.part(out_view, index), resolved.of(cut, index), wanted);
      if (calls == 1 || error || wanted.stats == nullptr) continue;
      // Rows are counted over all batches of this call from Python.
      for (HeadStats& head : stats.heads)
        if (head.first_nonfinite_row >= 0)
          head.first_nonfinite_row += index * cut.batch() * in.q_len;
      error = whole.merge(stats);
    }
  }
  raise_if(error);
  if (!wants_aux) return out.finish();
  Aux aux;
  for (Extra& extra : extras)
    if (extra.wanted) aux.*extra.result = extra.output.finish();
  if (request.stats.level != StatsLevel::off) aux.stats = nb::cast(std::move(whole));
  return nb::make_tuple(out.finish(), nb::cast(std::move(aux)));
}

std::string text_of(const AuxRequest& request) {
  std::string text;
  const auto add = [&text](const char* name, bool wanted, const std::string& value = "True") {
    if (wanted) text += (text.empty() ? "" : ", ") + std::string(name) + "=" + value;
  };
  add("lse", request.lse);
  add("max_scores", request.max_scores);
  add("stats", request.stats.level != StatsLevel::off,
      "'" + std::string(name(request.stats.level)) + "'");
  add("scores", request.scores);
  add("weights", request.weights);
  add("lse_without_sink", request.lse_without_sink);
  add("state", request.state);
  add("capped", request.capped);
  add("logits", request.logits);
  return "AuxRequest(" + text + ")";
}

std::string text_of(const Aux& aux) {
  std::string text;
  const auto add = [&text](const char* name, const nb::object& value) {
    if (!value.is_none()) text += (text.empty() ? "" : ", ") + std::string(name);
  };
  add("lse", aux.lse);
  add("lse_without_sink", aux.lse_without_sink);
  add("max_scores", aux.max_scores);
  add("row_max", aux.row_max);
  add("row_sum", aux.row_sum);
  add("scores", aux.scores);
  add("capped", aux.capped);
  add("logits", aux.logits);
  add("weights", aux.weights);
  add("stats", aux.stats);
  return "Aux(" + text + ")";
}

}  // namespace

void bind_forward(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<AuxRequest>(
      module, "AuxRequest",
      "What a call hands out besides its result; asking for it changes no bit of the result.\n\n"
      "lse: natural log of each row's denominator, sink included, [..., Hq, Lq]; -inf in a row\n"
      "    without keys.\n"
      "max_scores: largest visible logit of each row (the sink does not count), [..., Hq, Lq].\n"
      "stats: True (level \"core\"), \"max\", \"core\", \"full\" or a StatsRequest: a "
      "poise.Stats.\n"
      "scores: scale * query . key, of every key, masked ones too, [..., Hq, Lq, Lk].\n"
      "weights: the softmax, 0 at masked keys, [..., Hq, Lq, Lk].\n"
      "lse_without_sink: lse of the keys alone. state: row_max and row_sum, which backward() "
      "takes.\n"
      "capped, logits: after softcap; after ALiBi and bias, -inf at masked keys.\n\n"
      "All are float32 (float64 for float64 inputs) in the kind of the query.")
      .def(
          "__init__",
          [](AuxRequest* self, bool lse, bool max_scores, nb::handle stats, bool scores,
             bool weights, bool lse_without_sink, bool state, bool capped, bool logits) {
            new (self) AuxRequest{lse,    lse_without_sink, max_scores,
                                  state,  scores,           capped,
                                  logits, weights,          stats_request(stats, "AuxRequest")};
          },
          "lse"_a = false, "max_scores"_a = false, "stats"_a.none() = nb::bool_(false),
          "scores"_a = false, "weights"_a = false, nb::kw_only(), "lse_without_sink"_a = false,
          "state"_a = false, "capped"_a = false, "logits"_a = false,
          nb::sig(
              "def __init__(self, lse: bool = False, max_scores: bool = False, stats: bool | "
              "str | StatsRequest | None = False, scores: bool = False, weights: bool = False, *, "
              "lse_without_sink: bool = False, state: bool = False, capped: bool = False, "
              "logits: bool = False) -> None"))
      .def_ro("lse", &AuxRequest::lse)
      .def_ro("max_scores", &AuxRequest::max_scores)
      .def_ro("stats", &AuxRequest::stats)
      .def_ro("scores", &AuxRequest::scores)
      .def_ro("weights", &AuxRequest::weights)
      .def_ro("lse_without_sink", &AuxRequest::lse_without_sink)
      .def_ro("state", &AuxRequest::state)
      .def_ro("capped", &AuxRequest::capped)
      .def_ro("logits", &AuxRequest::logits)
      .def("__repr__", [](const AuxRequest& self) { return text_of(self); });

  nb::class_<Aux>(module, "Aux", "What an AuxRequest asked for; what it did not ask for is None.")
      .def_ro("lse", &Aux::lse)
      .def_ro("lse_without_sink", &Aux::lse_without_sink)
      .def_ro("max_scores", &Aux::max_scores)
      .def_ro("row_max", &Aux::row_max)
      .def_ro("row_sum", &Aux::row_sum)
      .def_ro("scores", &Aux::scores)
      .def_ro("capped", &Aux::capped)
      .def_ro("logits", &Aux::logits)
      .def_ro("weights", &Aux::weights)
      .def_ro("stats", &Aux::stats)
      .def("__repr__", [](const Aux& self) { return text_of(self); });

  module.def(
      "forward", &forward, "query"_a.none(), "key"_a.none(), "value"_a.none(), "options"_a,
      "return_aux"_a.none() = nb::none(), "out"_a.none() = nb::none(), "grouped"_a = true,
      "blhd"_a = false,
      "One attention call. Without `grouped` heads broadcast as leading axes do; `blhd`: the\n"
      "arrays are [..., length, heads, head_dim].");
}

}  // namespace poise::python
