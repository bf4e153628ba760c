// poise.Stats and poise.StatsRequest: what a call measured of its scores, per head.
//
// In: Stats that calls filled, or their JSON. Out: read-outs as NumPy arrays with one entry per
// head. What must not happen here: a statistic with a definition of its own; read_out() of the
// library and the members of HeadStats are what is shown.
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <poise/health.h>
#include <poise/report.h>
#include <poise/stats.h>
#include <poise/theory.h>

#include <string>
#include <vector>

#include "bindings.h"
#include "inputs.h"

namespace poise::python {
namespace {

StatsLevel level_of(const char* text, const char* call) {
  for (const StatsLevel level :
       {StatsLevel::off, StatsLevel::max, StatsLevel::core, StatsLevel::full})
    if (std::string(name(level)) == text) return level;
  raise_value("[" + std::string(call) + "] stats: level '" + text +
              "', expected 'off', 'max', 'core' or 'full'");
}

template <class T, int axes = 1>
using NumpyArray = nb::ndarray<nb::numpy, T, nb::ndim<axes>>;

// A NumPy array that owns its memory.
template <class T, std::size_t axes>
NumpyArray<T, axes> numpy_array(const std::vector<T>& values, const std::size_t (&shape)[axes]) {
  auto* memory = new std::vector<T>(values);
  nb::capsule owner(memory, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return NumpyArray<T, axes>(memory->data(), axes, shape, owner);
}

template <class T, class Of>
NumpyArray<T> per_head(const Stats& stats, Of of) {
  std::vector<T> values;
  for (const HeadStats& head : stats.heads) values.push_back(static_cast<T>(of(head)));
  return numpy_array(values, {values.size()});
}

nb::typed<nb::dict, nb::str, Any> readout(const Stats& stats) {
  std::vector<Readout> heads;
  for (const HeadStats& head : stats.heads) heads.push_back(read_out(head, stats));
  nb::dict all;
  const auto add = [&](const char* key, auto of) {
    using T = decltype(of(Readout{}));
    std::vector<T> values;
    for (const Readout& head : heads) values.push_back(of(head));
    all[key] = numpy_array(values, {values.size()});
  };
#define POISE_MEMBER(member) add(#member, [](const Readout& head) { return head.member; })
  POISE_MEMBER(sigma);
  POISE_MEMBER(keys);
  POISE_MEMBER(x);
  POISE_MEMBER(target_sigma);
  POISE_MEMBER(factor);
  POISE_MEMBER(measured_rows);
  POISE_MEMBER(nonfinite_rows);
  POISE_MEMBER(max_score);
  POISE_MEMBER(max_abs_logit);
  POISE_MEMBER(max_abs_dot);
  POISE_MEMBER(f16_headroom_bits);
  POISE_MEMBER(entropy_ratio);
  POISE_MEMBER(kl);
  POISE_MEMBER(top1);
  POISE_MEMBER(above_99);
  POISE_MEMBER(trace);
  POISE_MEMBER(gain);
  POISE_MEMBER(dead);
  POISE_MEMBER(transmission);
  POISE_MEMBER(expected_transmission);
  POISE_MEMBER(passed_gain);
  POISE_MEMBER(passed_dead);
  POISE_MEMBER(effective_keys);
  POISE_MEMBER(near_tie);
  POISE_MEMBER(sink_weight);
  POISE_MEMBER(argmax_column_share);
  POISE_MEMBER(argmax_offset_share);
  POISE_MEMBER(argmax_column);
  POISE_MEMBER(argmax_offset);
#undef POISE_MEMBER
  add("sink_key", [](const Readout& head) { return std::int64_t{head.sink_key}; });
  return all;
}

NumpyArray<double> quantile(const Stats& stats, const std::string& name, double q) {
  if (!(q >= 0 && q <= 1)) raise_value("[quantile] q: " + std::to_string(q) + ", expected 0 ... 1");
  const auto of = [&](auto sketch) {
    return per_head<double>(stats, [&](const HeadStats& head) { return sketch(head).quantile(q); });
  };
#define POISE_SKETCH(key, member) \
  if (name == key) return of([](const HeadStats& head) -> const Sketch& { return head.member; })
  POISE_SKETCH("sigma", scores.sigma);
  POISE_SKETCH("entropy_ratio", entropy_ratio);
  POISE_SKETCH("kl", kl);
  POISE_SKETCH("top1", top1);
  POISE_SKETCH("rest", rest);
  POISE_SKETCH("trace", trace);
  POISE_SKETCH("gain", gain);
  POISE_SKETCH("effective_keys", effective_keys);
  POISE_SKETCH("transmission", gradient.row_transmission);
  POISE_SKETCH("passed_gain", gradient.row_gain);
#undef POISE_SKETCH
  raise_value("[quantile] name: '" + name +
              "', expected sigma, entropy_ratio, kl, top1, rest, trace, gain, effective_keys, "
              "transmission or passed_gain");
}

nb::typed<nb::tuple, NumpyArray<std::int64_t, 2>, NumpyArray<double>> histogram(
    const Stats& stats) {
  std::vector<std::int64_t> counts;
  std::vector<double> edges;
  for (const HeadStats& head : stats.heads)
    counts.insert(counts.end(), head.histogram.counts.begin(), head.histogram.counts.end());
  for (int i = 0; i <= kHistogramBins; ++i)
    edges.push_back(stats.request.histogram_low + i * stats.request.histogram_width);
  return nb::make_tuple(numpy_array(counts, {stats.heads.size(), std::size_t{kHistogramBins}}),
                        numpy_array(edges, {edges.size()}));
}

Stats from_text(std::string_view text) {
  Stats stats;
  raise_if(from_json(text, stats));
  return stats;
}

void measure(Stats* stats, nb::handle query, nb::handle key, nb::handle q_lengths,
             nb::handle kv_lengths) {
  Inputs in;
  in.take(query, key, key, "measure_inputs", false, true, false);
  if (in.leads > 1) raise_value("[measure_inputs] query: at most 4 axes");
  Array q_array, kv_array;
  q_array.take(q_lengths, "measure_inputs", "q_lengths");
  kv_array.take(kv_lengths, "measure_inputs", "kv_lengths");
  const auto lengths = [](const Array& array) {
    return array.given() ? ConstTensor(tensor_of(array.view())) : ConstTensor();
  };
  Error error;
  {
    nb::gil_scoped_release release;
    error = measure_inputs(tensor_of(in.query), tensor_of(in.key), stats, lengths(q_array),
                           lengths(kv_array));
  }
  raise_if(error);
}

}  // namespace

StatsRequest stats_request(nb::handle object, const char* call) {
  StatsRequest request;
  if (object.is_none() || object.ptr() == Py_False) {
    request.level = StatsLevel::off;
  } else if (object.ptr() == Py_True) {
    request.level = StatsLevel::core;
  } else if (PyUnicode_Check(object.ptr())) {
    request.level = level_of(nb::str(object).c_str(), call);
  } else if (Stats stats; nb::try_cast(object, stats)) {
    request = stats.request;
  } else if (!nb::try_cast(object, request)) {
    raise_type("[" + std::string(call) +
               "] stats: expected a bool, a level's name or a StatsRequest, got " +
               nb::type_name(object.type()).c_str());
  }
  return request;
}

void bind_statistics(nb::module_& module) {
  using namespace nb::literals;
  const StatsRequest defaults;
  nb::class_<StatsRequest>(
      module, "StatsRequest",
      "How much is measured.\n\n"
      "level: 'max' (largest logit, lse, top-1), 'core' (+ spread, entropy, Jacobian trace), "
      "'full'\n"
      "    (+ Jacobian norm, histogram, arg-max places, tracked keys).\n"
      "every: measure every n-th vector of query rows, 1 ... 2**20.\n"
      "histogram_low, histogram_width: 64 bins of the scores from histogram_low on.\n"
      "stand_in_bias: a finite bias at or below it stands for -inf.\n"
      "near_tie_gap: keys closer than this to the row's maximum make a near tie.")
      .def(
          "__init__",
          [](StatsRequest* self, const std::string& level, int every, double histogram_low,
             double histogram_width, double stand_in_bias, double near_tie_gap) {
            new (self) StatsRequest{level_of(level.c_str(), "StatsRequest"),
                                    every,
                                    histogram_low,
                                    histogram_width,
                                    stand_in_bias,
                                    near_tie_gap};
          },
          "level"_a = "core", "every"_a = defaults.every,
          "histogram_low"_a = defaults.histogram_low,
          "histogram_width"_a = defaults.histogram_width,
          "stand_in_bias"_a = defaults.stand_in_bias, "near_tie_gap"_a = defaults.near_tie_gap)
      .def_prop_ro("level", [](const StatsRequest& self) { return std::string(name(self.level)); })
      .def_ro("every", &StatsRequest::every)
      .def_ro("histogram_low", &StatsRequest::histogram_low)
      .def_ro("histogram_width", &StatsRequest::histogram_width)
      .def_ro("stand_in_bias", &StatsRequest::stand_in_bias)
      .def_ro("near_tie_gap", &StatsRequest::near_tie_gap)
      .def("__repr__", [](const StatsRequest& self) {
        return "StatsRequest('" + std::string(name(self.level)) +
               "', every=" + std::to_string(self.every) + ")";
      });

  nb::class_<Stats> stats(
      module, "Stats",
      "Statistics of the scores of one call, or of many merged, per query head.\n\n"
      "Arrays have one entry per head, [Hq]. Logarithms are natural. Level 'full' measures what\n"
      "level 'core' leaves NaN or 0. docs/health.md has the definitions.");
  stats.def(nb::init<>(), "Statistics without heads: the neutral element of merge().")
      .def_prop_ro("level", [](const Stats& self) { return std::string(name(self.request.level)); })
      .def_ro("request", &Stats::request)
      .def_prop_ro("heads", [](const Stats& self) { return self.heads.size(); })
      .def_ro("kv_heads", &Stats::kv_heads)
      .def_ro("head_dim", &Stats::head_dim)
      .def_ro("softcap", &Stats::softcap)
      .def(
          "merge", [](Stats& self, const Stats& other) { raise_if(self.merge(other)); }, "other"_a,
          "Joins another call's statistics of the same heads: counts and sums add, extremes are\n"
          "taken. ValueError, and no change, when heads, level or scales differ.")
      .def(
          "to_json", [](const Stats& self) { return to_json(self); },
          "One line of JSON that loses no bit.")
      .def_static("from_json", &from_text, "text"_a,
                  "Statistics from to_json(). ValueError for anything else.")
      .def("measure_inputs", &measure, "query"_a, "key"_a, "q_lengths"_a.none() = nb::none(),
           "kv_lengths"_a.none() = nb::none(),
           "Measures the moments of query and key, from which judge() predicts the spread of the\n"
           "scores. Cost B (Hq Lq + Hkv Lk / 2) D^2 multiply-adds.")
      .def("readout", &readout, "Every read-out the health rules look at: a dict of arrays [Hq].")
      .def("quantile", &quantile, "name"_a, "q"_a,
           "A quantile over rows, per head, within 1.6 % of the value: of sigma, entropy_ratio, "
           "kl,\n"
           "top1, rest, trace, gain, effective_keys, transmission or passed_gain.")
      .def("histogram", &histogram,
           "Counts of finite scores [Hq, 64] and the 65 edges of the bins (level 'full').")
      .def("__eq__",
           [](const Stats& self, nb::handle other) {
             Stats value;
             return nb::try_cast(other, value) && to_json(self) == to_json(value);
           })
      .def("__getstate__", [](const Stats& self) { return to_json(self); })
      .def("__setstate__",
           [](Stats* self, std::string_view text) { new (self) Stats(from_text(text)); })
      .def("__repr__", [](const Stats& self) {
        return "Stats(level='" + std::string(name(self.request.level)) +
               "', heads=" + std::to_string(self.heads.size()) + ")";
      });

  const auto mean = [](const HeadStats& head, double sum) {
    return head.measured_rows > 0 ? sum / static_cast<double>(head.measured_rows)
                                  : std::numeric_limits<double>::quiet_NaN();
  };
#define POISE_HEAD(key, T, expression, text)                                      \
  stats.def_prop_ro(                                                              \
      key,                                                                        \
      [mean](const Stats& self) {                                                 \
        static_cast<void>(mean);                                                  \
        return per_head<T>(self, [&](const HeadStats& h) { return expression; }); \
      },                                                                          \
      nb::rv_policy::move, text)
  POISE_HEAD("scale", double, h.scale, "The scale each head ran with.");
  POISE_HEAD("rows", std::int64_t, h.rows, "Query rows measured, of all kinds.");
  POISE_HEAD("measured_rows", std::int64_t, h.measured_rows,
             "Rows with two visible keys and more, all of it finite: what means are means of.");
  POISE_HEAD("empty_rows", std::int64_t, h.empty_rows, "Rows without a visible key.");
  POISE_HEAD("nonfinite_rows", std::int64_t, h.nonfinite_rows, "Rows with NaN or infinite logits.");
  POISE_HEAD("first_nonfinite_row", std::int64_t, h.first_nonfinite_row,
             "The first of them as batch * Lq + query, -1 = none.");
  POISE_HEAD("max_score", double, h.scores.max, "Largest score, signed.");
  POISE_HEAD("max_logit", double, self.logits_differ() ? h.logits.max : h.scores.max,
             "Largest logit: after softcap, ALiBi and bias.");
  POISE_HEAD("max_abs_dot", double, std::max(h.max_dot, -h.min_dot), "Largest |q . k|.");
  POISE_HEAD("lse_min", double, h.lse_min, "Smallest log-sum-exp over keys, nats.");
  POISE_HEAD("lse_max", double, h.lse_max, "Largest log-sum-exp over keys, nats.");
  POISE_HEAD("score_variance", double, mean(h, h.scores.sum_variance),
             "Mean within-row variance of the scores.");
  POISE_HEAD("entropy", double, mean(h, h.sum_entropy), "Mean entropy of the rows, nats.");
  POISE_HEAD("entropy_ratio", double, mean(h, h.sum_entropy_ratio), "Mean of H / ln n.");
  POISE_HEAD("top1", double, mean(h, h.sum_top1), "Mean of the largest weight.");
  POISE_HEAD("trace", double, mean(h, h.sum_trace), "Mean of tr J = 1 - sum p^2.");
  POISE_HEAD("effective_keys", double, mean(h, h.sum_effective_keys), "Mean of 1 / sum p^2.");
  POISE_HEAD("saturated_share", double, mean(h, static_cast<double>(h.rows_above_99)),
             "Share of rows with a weight > .99.");
  POISE_HEAD("sink_weight", double,
             h.sum_sink_weight / static_cast<double>(h.measured_rows + h.single_rows),
             "The sink's share of the denominator, mean over finite rows with a key; NaN without.");
  POISE_HEAD("expected_transmission", double, h.expected_transmission(),
             "Root mean square share of a gradient that the softmax lets through (full).");
  POISE_HEAD("transmission", double, h.gradient.rms_transmission(),
             "The same of the gradients that backward() measured; NaN without.");
  POISE_HEAD("dq_norm", double, h.gradient.dq_norm(), "Norm of dq, by backward().");
  POISE_HEAD("dk_norm", double, h.gradient.dk_norm(), "Norm of dk, by backward().");
  POISE_HEAD("dv_norm", double, h.gradient.dv_norm(), "Norm of dv, by backward().");
#undef POISE_HEAD
}

}  // namespace poise::python
