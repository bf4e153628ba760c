// libFuzzer target for safetensors files. Seeds: tests/fuzz/seeds/safetensors.
//
// In: any bytes. Out: nothing; a crash, a sanitizer's report or a broken promise of
// check_contents.h is the finding.
#include <cstddef>
#include <cstdint>
#include <span>

#include "fuzz/check_contents.h"
#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  poise::io::Contents contents;
  if (!poise::io::parse_safetensors(bytes, "fuzz", &contents))
    poise::test::check_contents(bytes, contents, 1);
  return 0;
}
