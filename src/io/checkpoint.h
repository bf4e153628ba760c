// A checkpoint: the weights of a model in one safetensors file, copied with some rows scaled.
//
// In: a path; per tensor the factor of every index along one axis. Out: a new file of the same
// bytes, header included, but for the elements whose factor is not 1. The file is mapped and
// streamed: memory beyond the map is one buffer, whatever the file's alignment. What must not
// happen here: knowing what a tensor is for, an element with factor 1 that passes through
// arithmetic.
#pragma once

#include <poise/error.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "io/mapped_file.h"
#include "io/safetensors.h"

namespace poise::io {

struct AxisScaling {
  const ListedTensor* tensor;   // of the Checkpoint; f64, f32, f16 or bf16; no tensor twice
  std::size_t axis;             // below its rank
  std::vector<double> factors;  // finite; one for each index along the axis
};

class Checkpoint {
 public:
  // Maps the file and reads its header. Errors: bad_file, "[read] <path>: ...".
  static Error open(const std::string& path, Checkpoint* checkpoint);

  const std::string& source() const { return source_; }
  // nullptr when there is no tensor of that name. Valid as long as the Checkpoint.
  const ListedTensor* find(const std::string& name) const;

  // Writes the copy, whole or not at all. An element x becomes x · factor, computed in double and
  // rounded once, to nearest even. Errors: bad_file (the system's reason).
  Error write_scaled(const std::string& path, std::vector<AxisScaling> scalings) const;

 private:
  std::string source_;
  MappedFile map_;
  std::vector<ListedTensor> tensors_;
  std::map<std::string, std::size_t> by_name_;
};

}  // namespace poise::io
