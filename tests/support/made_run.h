// A training run that blows up, made without training: fixed random queries and keys, of which one
// head's queries grow by a factor from step to step. Its true crossing of any score is known.
//
// In: nothing. Out: the statistics attention measures of each layer and step, whole or shared out
// over processes by batch.
#pragma once

#include <poise/run_log.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/tensor_buffer.h"

namespace poise::test {

class MadeRun {
 public:
  static constexpr int kSteps = 12, kLayers = 2, kHeads = 3, kProcesses = 3;
  static constexpr std::int64_t kStride = 100;  // steps of the run between two measurements
  static constexpr int kGrowingLayer = 1, kGrowingHead = 2;

  // growth: factor of the growing head's queries from one measurement to the next; 1 = none.
  explicit MadeRun(double growth);

  // Of the whole batch, or of one process's share of it. i: which measurement, 0 ... kSteps - 1.
  Stats measure(int layer, int i) const { return measure(layer, i, 0, kProcesses); }
  Stats measure(int layer, int i, int process) const { return measure(layer, i, process, 1); }

  static std::int64_t step(int i) { return kStride * i; }
  static std::string label(int layer) { return "L" + std::to_string(layer); }

  // The log of the whole batch, and one per process.
  std::string log() const;
  std::vector<std::string> logs() const;

 private:
  Stats measure(int layer, int i, int first_process, int processes) const;

  double growth_;
  TensorBuffer query_[kLayers], key_[kLayers];
};

// The input of a report on these logs.
ReportInput input_of(const std::vector<std::string>& logs);

// Series of two layers of two heads made from formulas, so that its report depends on no kernel:
// "L0" is steady, head 1 of "L1" grows from a spread of 1 to one that is saturated. 12 steps.
ReportInput made_series_input();

}  // namespace poise::test
