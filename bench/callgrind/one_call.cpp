// poise_one_call SHAPE: one forward call on one thread, for count.py to count its instructions.
//
// In: the name of a shape below; POISE_ISA chooses the kernels. Out: exit code 0 when both calls
// went well. The first call does what only first calls do (reading cgroup files, keeping a
// workspace); counted_call() is the second, and the function whose instructions are counted.
#include <poise/attention.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

struct Shape {
  const char* name;
  std::int64_t batch, q_heads, kv_heads, q_len, kv_len, dim;
  poise::Causal causal = {};
};

const Shape kShapes[] = {
    {"full_128", 1, 2, 2, 128, 128, 64},
    {"causal_192", 1, 2, 2, 192, 192, 64, poise::Causal::bottom_right()},
    {"gqa_decode_600", 1, 8, 2, 1, 600, 64},
    {"short_64", 2, 3, 3, 64, 64, 32},
};

// Numbers in [-1, 1) from the 64-bit linear congruential generator of Knuth's MMIX.
std::vector<float> numbers(std::int64_t count, std::uint64_t state) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<float>(state >> 40) * 0x1p-23F - 1;
  }
  return values;
}

struct Call {
  poise::ConstTensor query, key, value;
  poise::Tensor out;
  poise::Options options;
};

}  // namespace

// A name that count.py finds in the symbol table; C linkage keeps it short.
extern "C" __attribute__((noinline)) int counted_call(const void* call) {
  const Call& c = *static_cast<const Call*>(call);
  return poise::attention(c.query, c.key, c.value, c.out, c.options) ? 1 : 0;
}

int main(int argc, char** argv) {
  const Shape* shape = nullptr;
  for (const Shape& known : kShapes)
    if (argc == 2 && std::strcmp(argv[1], known.name) == 0) shape = &known;
  if (shape == nullptr) {
    std::fprintf(stderr, "usage: poise_one_call SHAPE, one of\n");
    for (const Shape& known : kShapes) std::fprintf(stderr, "  %s\n", known.name);
    return 2;
  }
  const Shape& s = *shape;
  const std::vector<float> query = numbers(s.batch * s.q_heads * s.q_len * s.dim, 1),
                           key = numbers(s.batch * s.kv_heads * s.kv_len * s.dim, 2),
                           value = numbers(s.batch * s.kv_heads * s.kv_len * s.dim, 3);
  std::vector<float> out(query.size());
  Call call;
  call.query = poise::view(query.data(), {s.batch, s.q_heads, s.q_len, s.dim});
  call.key = poise::view(key.data(), {s.batch, s.kv_heads, s.kv_len, s.dim});
  call.value = poise::view(value.data(), {s.batch, s.kv_heads, s.kv_len, s.dim});
  call.out = poise::view(out.data(), {s.batch, s.q_heads, s.q_len, s.dim});
  call.options.causal = s.causal;
  call.options.threads = 1;
  if (const poise::Error error =
          poise::attention(call.query, call.key, call.value, call.out, call.options)) {
    std::fprintf(stderr, "%s\n", error.message().c_str());
    return 1;
  }
  return counted_call(&call);
}
