// libFuzzer target for MAP.json. Seeds: tests/fuzz/seeds/clip_map.
//
// In: any bytes. Out: nothing; a crash, a sanitizer's report or a broken promise of check_map.h is
// the finding.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz/check_map.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  poise::test::check_map(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
