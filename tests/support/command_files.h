// Input files for tests of the command: small random tensors, written by poise_io.
//
// In: a folder, names, shapes. Out: files on the disk and the same elements in memory, for the
// reference.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "io/npy.h"
#include "io/safetensors.h"
#include "support/command_runner.h"
#include "support/rng.h"
#include "support/tensor_buffer.h"

namespace poise::test {

inline std::string poise_program() { return POISE_PROGRAM; }

// run_command() on the poise program.
inline CommandResult run_poise(std::vector<std::string> arguments, const CommandSetup& setup = {}) {
  arguments.insert(arguments.begin(), poise_program());
  return run_command(arguments, setup);
}

inline TensorBuffer random_tensor(const Extents& extents, std::uint64_t seed,
                                  DType dtype = DType::f32) {
  TensorBuffer tensor(dtype, extents);
  Rng rng(seed);
  tensor.fill([&rng] { return rng.normal(); });
  return tensor;
}

inline void write_npy_file(const std::string& path, const TensorBuffer& tensor) {
  const Error error = io::write_npy(path, tensor.view());
  ASSERT_FALSE(error) << error.message();
}

// A recording of `layers` layers with 2 heads; the first head of each is `stretch` times as wide.
inline void write_recording(const std::string& path, int layers, double stretch,
                            std::map<std::string, std::string> metadata = {}) {
  std::vector<TensorBuffer> buffers;
  std::vector<io::NamedTensor> tensors;
  for (int layer = 0; layer < layers; ++layer) {
    for (const std::string part : {"query", "key", "value"}) {
      TensorBuffer tensor =
          random_tensor({1, 2, 24, 16}, static_cast<std::uint64_t>(buffers.size()) + 1);
      if (part == "query")
        for (std::int64_t i = 0; i < tensor.count() / 2; ++i) tensor.set(i, stretch * tensor.at(i));
      buffers.push_back(tensor);
      tensors.push_back({"layer." + std::to_string(layer) + "." + part, tensor.view()});
    }
  }
  metadata.emplace("poise.recording", "1");
  const Error error = io::write_safetensors(path, tensors, metadata);
  ASSERT_FALSE(error) << error.message();
}

}  // namespace poise::test
