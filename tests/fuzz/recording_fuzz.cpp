// libFuzzer target for recordings, through the one door. Seeds: tests/fuzz/seeds/recording.
//
// In: any bytes. Out: nothing; a crash, a sanitizer's report or a broken promise of
// check_contents.h is the finding.
#include <cstddef>
#include <cstdint>
#include <span>

#include "fuzz/check_contents.h"
#include "io/recording.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  poise::io::File file;
  poise::io::Recording recording;
  if (poise::io::open_memory(bytes, "fuzz", &file)) return 0;
  if (poise::io::read_recording(file, &recording)) return 0;
  poise::test::require(!recording.layers.empty());
  for (const poise::io::Layer& layer : recording.layers)
    for (const poise::ConstTensor& tensor : {layer.query, layer.key, layer.value})
      poise::test::require(tensor.given() && tensor.rank == 4);
  return 0;
}
