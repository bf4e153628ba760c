// The procedural cases, one function per class.
//
// In: a case file. Out: a Judgement. Every buffer handed to poise here lies against a guard page or
// carries watched margins, so a write outside fails the case or faults.
#include "case_procedures.h"

#include <poise/cpu.h>

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>

#include "case_processes.h"
#include "support/gradient_run.h"
#include "support/isa.h"
#include "support/thread_executor.h"

namespace poise::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Collects the first thing that did not hold.
class Checks {
 public:
  void require(bool held, const std::string& sentence) {
    if (held || verdict_.worst == kInfinity) return;
    verdict_.worst = kInfinity;
    verdict_.where = sentence;
  }
  void require_same(const Outputs& a, const Outputs& b, const std::string& when) {
    require(!a.error, when + ": " + a.error.message());
    require(!b.error, when + ": " + b.error.message());
    const std::string difference = first_difference(a, b);
    require(difference.empty(), when + ": " + difference);
    for (const auto& [name, tensor] : b.tensors())
      if (tensor->given())
        require(tensor->gaps_untouched(), when + ": wrote outside " + std::string(name));
  }
  Judgement verdict() const { return verdict_; }

 private:
  Judgement verdict_;
};

Shape shape_of_case(const Json& json) {
  const auto q = json.at("q_shape").get<Extents>(), k = json.at("k_shape").get<Extents>(),
             v = json.at("v_shape").get<Extents>();
  return {q[0], q[1], k[1], q[2], k[2], q[3], v[3]};
}

Judgement run_error(const CaseFile& file) {
  Checks checks;
  for (const Json& item : file.json.at("cases")) {
    const Shape s = shape_of_case(item);
    Problem p = make_problem(s, DType::f32, 1);
    p.key = TensorBuffer(DType::f32, item.at("k_shape").get<Extents>());
    p.value = TensorBuffer(DType::f32, item.at("v_shape").get<Extents>());
    const Outputs result = run(p);
    checks.require(static_cast<bool>(result.error), item.dump() + " was accepted");
    for (const auto& [name, tensor] : result.tensors())
      for (double element : tensor->values())
        checks.require(std::isnan(element), std::string(name) + " was written despite the error");
  }
  return checks.verdict();
}

Judgement run_empty(const CaseFile& file, bool reference) {
  Checks checks;
  for (const Json& item : file.json.at("cases")) {
    const Shape s = shape_of_case(item);
    Problem p = make_problem(s, DType::f32, 2);
    const std::string expect = item.at("expect");
    if (expect.rfind("ok", 0) == 0) {
      const CaseResult result = solve(p, reference);
      checks.require(result.out.empty(), item.dump() + ": out is not empty");
      continue;
    }
    // head_dim 0: the default scale is not finite; an explicit one makes every score 0.
    if (!reference)
      checks.require(static_cast<bool>(run(p).error), item.dump() + ": default scale was accepted");
    p.options.scale = 1;
    const CaseResult result = solve(p, reference);
    const auto kv_len = static_cast<double>(s.kv_len);
    for (double lse : result.lse)
      checks.require(std::fabs(lse - std::log(kv_len)) < 1e-6, "lse is not ln Lk");
    for (std::int64_t c = 0; c < s.value_dim; ++c) {
      double mean = 0;
      for (std::int64_t j = 0; j < s.kv_len; ++j) mean += p.value.at(j * s.value_dim + c) / kv_len;
      for (std::int64_t i = 0; i < s.q_len; ++i)
        checks.require(
            std::fabs(result.out[static_cast<std::size_t>(i * s.value_dim + c)] - mean) < 1e-6,
            "out is not the mean of value");
    }
  }
  return checks.verdict();
}

Judgement run_merge(const CaseFile& file) {
  Checks checks;
  const double out_tolerance = file.json.at("tol").at("out"),
               lse_tolerance = file.json.at("tol").at("lse_rel");
  for (const Json& item : file.json.at("cases")) {
    auto pair_of = [](const Json& side) {
      const auto dim = static_cast<std::int64_t>(side.at("out").size());
      std::pair<TensorBuffer, TensorBuffer> pair{TensorBuffer(DType::f32, {1, 1, 1, dim}),
                                                 TensorBuffer(DType::f32, {1, 1, 1})};
      for (std::int64_t c = 0; c < dim; ++c)
        pair.first.set(c, case_number(side.at("out").at(static_cast<std::size_t>(c))));
      pair.second.set(0, case_number(side.at("lse")));
      return pair;
    };
    const auto a = pair_of(item.at("a")), b = pair_of(item.at("b")),
               expected = pair_of(item.at("expect"));
    TensorBuffer out(DType::f32, {1, 1, 1, a.first.count()}), lse(DType::f32, {1, 1, 1});
    const Error error = merge(a.first.view(), a.second.view(), b.first.view(), b.second.view(),
                              out.view(), lse.view());
    checks.require(!error, error.message());
    for (std::int64_t c = 0; c < out.count(); ++c)
      checks.require(std::fabs(out.at(c) - expected.first.at(c)) <= out_tolerance,
                     item.dump() + ": out " + std::to_string(out.at(c)));
    const double got = lse.at(0), want = expected.second.at(0);
    checks.require(got == want || std::fabs(got - want) <= lse_tolerance * std::fabs(want),
                   item.dump() + ": lse " + std::to_string(got));
    checks.require(out.gaps_untouched() && lse.gaps_untouched(), "merge wrote outside");
  }
  return checks.verdict();
}

// Every key masked, at lengths around vector widths: by a bool mask, then by a bias of -inf.
Judgement run_all_masked(const CaseFile& file, bool reference) {
  Checks checks;
  const Json& sweep = file.json.at("sweep");
  for (std::int64_t kv_len : sweep.at("S"))
    for (std::int64_t q_len : sweep.at("L"))
      for (bool additive : {false, true}) {
        Problem p = make_problem({1, 2, 1, q_len, kv_len, 4, 4}, DType::f32, 3);
        (additive ? p.bias : p.mask) =
            TensorBuffer(additive ? DType::f32 : DType::boolean, Extents{q_len, kv_len});
        (additive ? p.bias : p.mask).fill([&] { return additive ? -kInfinity : 0; });
        const CaseResult result = solve(p, reference);
        const std::string when = "L=" + std::to_string(q_len) + " S=" + std::to_string(kv_len);
        for (double x : result.out) checks.require(x == 0, when + ": out is not 0");
        for (double x : result.lse) checks.require(x == -kInfinity, when + ": lse is not -inf");
      }
  return checks.verdict();
}

// Masks and biases whose base is `bytes` past an aligned address and whose rows are S elements.
Judgement run_unaligned_masks(const CaseFile& file) {
  Checks checks;
  const Json& sweep = file.json.at("sweep");
  constexpr std::int64_t kRows = 5;
  for (std::int64_t kv_len : sweep.at("S"))
    for (DType dtype : {DType::boolean, DType::f16, DType::f32, DType::f64}) {
      Problem p = make_problem({1, 1, 1, kRows, kv_len, 8, 8}, DType::f32, 4);
      Rng rng(5);
      TensorBuffer& tensor = dtype == DType::boolean ? p.mask : p.bias;
      if (dtype == DType::boolean)
        add_random_mask(p, rng, 0.6, {kRows, kv_len});
      else
        add_random_bias(p, rng, dtype, {kRows, kv_len}, 0.3);
      const Outputs aligned = run(p);
      const TensorBuffer original = tensor;
      for (std::int64_t bytes : sweep.at("byte_offsets")) {
        if (bytes % size_bytes(dtype) != 0) continue;
        // Heap buffers start aligned; an extra leading axis of 2 leaves room to shift the base.
        const std::int64_t shift = bytes / size_bytes(dtype);
        const TensorBuffer room(dtype, {kRows * kv_len + shift});
        for (std::int64_t n = 0; n < original.count(); ++n)
          TensorBuffer(room).set(n + shift, original.at(n));
        Options options = p.call_options();
        ConstTensor& view = dtype == DType::boolean ? options.mask : options.bias;
        view.data = static_cast<const std::byte*>(room.view().data) + bytes;
        Outputs moved;
        moved.out = TensorBuffer(DType::f32, {1, 1, kRows, 8});
        moved.lse = TensorBuffer(DType::f32, {1, 1, kRows});
        const Tensor lse = moved.lse.view();
        Extras extras;
        extras.lse = &lse;
        moved.error = attention(p.query.view(), p.key.view(), p.value.view(), moved.out.view(),
                                options, extras);
        checks.require_same(aligned, moved,
                            std::string(name(dtype)) + " S=" + std::to_string(kv_len) + " offset " +
                                std::to_string(bytes));
      }
    }
  return checks.verdict();
}

Judgement run_isolation(const CaseFile& file, bool reference) {
  Checks checks;
  const CaseResult result = solve(case_problem(file), reference);
  const Json& rows = file.json.at("expect").at("rows");
  for (const auto& [key, expected] : rows.items())
    for (std::size_t c = 0; c < expected.size(); ++c)
      checks.require(result.out[std::stoul(key) * expected.size() + c] == case_number(expected[c]),
                     "row " + key + " is not exactly " + expected.dump());
  return checks.verdict();
}

// Row 0 does not depend on the rows, batches and threads that go with it.
Judgement run_batch_invariance(const CaseFile& file) {
  Checks checks;
  const Json& base = file.json.at("base");
  const Json& vary = file.json.at("vary");
  Problem whole;
  whole.query = case_tensor(base.at("q"), DType::f32);
  const TensorBuffer key = case_tensor(base.at("k"), DType::f32),
                     value = case_tensor(base.at("v"), DType::f32);
  const std::int64_t heads = whole.query.extent(1), dim = whole.query.extent(3);
  std::vector<double> first;
  for (std::int64_t q_len : vary.at("L"))
    for (std::int64_t repeat : vary.at("batch_repeat"))
      for (int threads : vary.at("threads")) {
        Problem p;
        p.shape = {repeat, heads, key.extent(1), q_len, key.extent(2), dim, value.extent(3)};
        p.query = TensorBuffer(DType::f32, {repeat, heads, q_len, dim});
        p.key = TensorBuffer(DType::f32, {repeat, key.extent(1), key.extent(2), dim});
        p.value = TensorBuffer(DType::f32, {repeat, key.extent(1), key.extent(2), value.extent(3)});
        for (std::int64_t b = 0; b < repeat; ++b)
          for (std::int64_t h = 0; h < heads; ++h)
            for (std::int64_t n = 0; n < q_len * dim; ++n)
              p.query.set(((b * heads + h) * q_len * dim) + n,
                          whole.query.at(h * whole.query.extent(2) * dim + n));
        for (std::int64_t n = 0; n < p.key.count(); ++n) p.key.set(n, key.at(n % key.count()));
        for (std::int64_t n = 0; n < p.value.count(); ++n)
          p.value.set(n, value.at(n % value.count()));
        ThreadExecutor executor(threads);
        const Outputs o = run(p, {.executor = &executor});
        checks.require(!o.error, o.error.message());
        for (std::int64_t b = 0; b < repeat; ++b) {
          std::vector<double> row_0;
          for (std::int64_t h = 0; h < heads; ++h)
            for (std::int64_t c = 0; c < p.shape.value_dim; ++c)
              row_0.push_back(o.out.at(o.out.index({b, h, 0, c})));
          if (first.empty()) first = row_0;
          checks.require(row_0 == first, "row 0 differs at L=" + std::to_string(q_len) + " batch " +
                                             std::to_string(repeat) + " threads " +
                                             std::to_string(threads));
        }
      }
  return checks.verdict();
}

// The same answer from any number of threads, outputs against guard pages, oneTBB and std::thread.
Judgement run_thread_counts(const CaseFile& file) {
  Checks checks;
  const Json& vary = file.json.at("vary");
  const Json q_lens = vary.value("L", Json{7}), kv_head_counts = vary.value("Hkv", Json{3});
  for (std::int64_t q_len : q_lens)
    for (std::int64_t kv_len : vary.at("S"))
      for (std::int64_t kv_heads : kv_head_counts) {
        const Problem p =
            make_problem({1, 2 * kv_heads, kv_heads, q_len, kv_len, 20, 19}, DType::f32, 6);
        const Outputs one = run(p);
        for (int threads : vary.at("threads")) {
          const std::string when = "L=" + std::to_string(q_len) + " S=" + std::to_string(kv_len) +
                                   " threads " + std::to_string(threads);
          ThreadExecutor executor(threads);
          checks.require_same(
              one, run(p, {.placement = Placement::before_guard, .executor = &executor}), when);
          checks.require_same(one, run(p, {.threads = threads}), when + " (oneTBB)");
        }
      }
  return checks.verdict();
}

// An address range without memory behind it: pages appear where they are touched.
class AddressRange {
 public:
  explicit AddressRange(std::size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) throw std::runtime_error("cannot reserve address space");
  }
  ~AddressRange() { munmap(data_, bytes_); }
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;
  void* data() const { return data_; }

 private:
  std::size_t bytes_;
  void* data_;
};

// Rows more than 2^32 elements apart in all, for key, value, mask and out.
Judgement run_virtual_stride(const CaseFile& file) {
  Checks checks;
  const Json& base = file.json.at("base");
  Problem p;
  p.query = case_tensor(base.at("q"), DType::f32);
  p.key = case_tensor(base.at("k"), DType::f32);
  p.value = case_tensor(base.at("v"), DType::f32);
  const std::int64_t q_len = p.query.extent(2), kv_len = p.key.extent(2), dim = p.query.extent(3);
  p.shape = {1, 1, 1, q_len, kv_len, dim, dim};
  Rng rng(7);
  add_random_mask(p, rng, 0.7, {q_len, kv_len});
  const Outputs contiguous = run(p);

  constexpr std::int64_t kRow = (std::int64_t{1} << 30) + 16;     // floats
  constexpr std::int64_t kMaskRow = (std::int64_t{1} << 31) + 8;  // bytes
  auto range = [](std::int64_t rows, std::int64_t stride, std::int64_t size) {
    return static_cast<std::size_t>(((rows - 1) * stride + 64) * size);
  };
  const AddressRange key(range(kv_len, kRow, 4)), value(range(kv_len, kRow, 4)),
      mask(range(q_len, kMaskRow, 1)), out(range(q_len, kRow, 4));
  auto spread = [](const AddressRange& memory, const TensorBuffer& from, std::int64_t row_axis,
                   std::int64_t stride) {
    Tensor tensor = from.view();
    const auto row_bytes = static_cast<std::size_t>(tensor.stride(static_cast<int>(row_axis)) *
                                                    size_bytes(tensor.dtype));
    for (std::int64_t r = 0; r < tensor.extent(static_cast<int>(row_axis)); ++r)
      std::memcpy(
          static_cast<std::byte*>(memory.data()) + r * stride * size_bytes(tensor.dtype),
          static_cast<std::byte*>(from.view().data) + static_cast<std::size_t>(r) * row_bytes,
          row_bytes);
    tensor.data = memory.data();
    tensor.strides[static_cast<std::size_t>(row_axis)] = stride;
    return tensor;
  };
  const Tensor key_view = spread(key, p.key, 2, kRow), value_view = spread(value, p.value, 2, kRow);
  Options options;
  options.mask = spread(mask, p.mask, 0, kMaskRow);
  Tensor out_view = contiguous.out.view();
  out_view.data = out.data();
  out_view.strides[2] = kRow;
  const Error error = attention(p.query.view(), key_view, value_view, out_view, options);
  checks.require(!error, error.message());
  for (std::int64_t i = 0; i < q_len; ++i)
    checks.require(std::memcmp(static_cast<const float*>(out.data()) + i * kRow,
                               static_cast<const float*>(contiguous.out.view().data) + i * dim,
                               static_cast<std::size_t>(dim) * sizeof(float)) == 0,
                   "row " + std::to_string(i) + " differs from the contiguous run");
  return checks.verdict();
}

#if defined(__x86_64__)
// Wide registers appear only in the functions of their own instruction set: anything else, a static
// initialiser or an inline function the linker shared, would crash older machines.
void require_wide_registers_only_in_kernels(Checks& checks) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  std::FILE* listing =
      popen(("objdump -d --no-show-raw-insn -C '" + program + "' 2>/dev/null").c_str(), "r");
  if (listing == nullptr) throw std::runtime_error("cannot run objdump");
  std::string function;
  int wide = 0;
  char line[4096];
  while (std::fgets(line, sizeof line, listing) != nullptr) {
    const std::string text = line;
    if (text.ends_with(">:\n")) function = text;  // a heading; names inside lines hold ">::" too
    const bool zmm = text.find("%zmm") != std::string::npos;
    if (!zmm && text.find("%ymm") == std::string::npos) continue;
    ++wide;
    const bool own = function.find("poise::avx512::") != std::string::npos ||
                     (!zmm && function.find("poise::avx2::") != std::string::npos);
    checks.require(own, "wide registers in " + function);
  }
  checks.require(pclose(listing) == 0, "objdump failed");
  checks.require(wide > 0, "no wide registers at all: the listing was not understood");
}
#endif

// The instruction set forced by name: what is offered is what the operating system lets this CPU
// run, an unknown name is refused, and every set gives the answer of the definition.
Judgement run_isa_choice() {
  Checks checks;
  const std::string active = active_isa();
  const std::vector<std::string> isas = available_isas();
  auto offered = [&](const char* isa) { return std::count(isas.begin(), isas.end(), isa) == 1; };
  checks.require(offered("scalar") && isas.back() == "scalar", "scalar is not the last choice");
#if defined(__x86_64__)
  std::ifstream cpuinfo("/proc/cpuinfo");
  const std::string flags((std::istreambuf_iterator<char>(cpuinfo)), {});
  auto has = [&](const char* flag) { return flags.find(flag) != std::string::npos; };
  checks.require(offered("avx2") == (has(" avx2") && has(" fma")), "avx2 against /proc/cpuinfo");
  checks.require(!offered("avx512") || has(" avx512f"), "avx512 against /proc/cpuinfo");
  require_wide_registers_only_in_kernels(checks);
#elif defined(__aarch64__)
  checks.require(isas == std::vector<std::string>{"neon", "scalar"}, "not neon, scalar");
#endif
  checks.require(static_cast<bool>(set_isa("no such set")), "an unknown name was accepted");
  checks.require(active_isa() == active, "a refused name changed the active set");

  const Problem p = make_problem({1, 2, 1, 33, 65, 24, 17}, DType::f32, 8);
  const ReferenceResult<double> expected = reference_of<double>(p);
  const Outputs o = run(p);
  checks.require(!o.error, o.error.message());
  for (std::int64_t n = 0; n < o.out.count(); ++n)
    checks.require(std::fabs(o.out.at(n) - expected.out[static_cast<std::size_t>(n)]) < 1e-5,
                   active + " gives another answer than the definition");
  return checks.verdict();
}

// A bias in each float dtype gives the bits of its f32 copy; other dtypes are refused.
Judgement run_mask_dtypes() {
  Checks checks;
  Problem p = make_problem({1, 2, 1, 9, 37, 16, 16}, DType::f32, 9);
  Rng rng(10);
  add_random_bias(p, rng, DType::bf16, {9, 37}, 0.3);  // bf16 values exist in every other dtype
  for (std::int64_t n = 0; n < p.bias.count(); ++n)
    if (std::fabs(p.bias.at(n)) < 0x1p-10) p.bias.set(n, 0);  // also within f16's normal range
  const TensorBuffer values = p.bias;
  p.bias = values.copied_as(DType::f32);
  const Outputs expected = run(p);
  for (DType dtype : {DType::f64, DType::f16, DType::bf16}) {
    p.bias = values.copied_as(dtype);
    checks.require_same(expected, run(p), std::string("bias ") + name(dtype));
  }
  for (DType dtype : {DType::boolean, DType::i32, DType::i64}) {
    p.bias = TensorBuffer(dtype, {9, 37});
    checks.require(static_cast<bool>(run(p).error),
                   std::string("a bias of dtype ") + name(dtype) + " was accepted");
  }
  p.mask = p.bias = TensorBuffer();
  p.mask = TensorBuffer(DType::f32, {9, 37});
  checks.require(static_cast<bool>(run(p).error), "a mask of dtype f32 was accepted");
  return checks.verdict();
}

// The kernels' gradients of one call by the names of `expect`. A second run, with its bias
// broadcast, hands out the gradient of every logit.
CaseGradients solve_backward(const GradientProblem& g) {
  const Shape& s = g.problem.shape;
  GradientProblem dense = g;
  dense.problem.bias = broadcast(g.problem.bias, s);
  const GradientWish wish{.bias_extents = {}, .scale_per_head = g.problem.scale_per_head.given()};
  const GradientOutputs o = run(g, wish),
                        pairs =
                            run(dense, {.bias_extents = {s.batch, s.q_heads, s.q_len, s.kv_len}});
  for (const GradientOutputs* outputs : {&o, &pairs}) {
    if (outputs->error) throw std::runtime_error(outputs->error.message());
    for (const auto& [name, tensor] : outputs->tensors())
      if (tensor->given() && !tensor->gaps_untouched())
        throw std::runtime_error(std::string("wrote outside ") + name);
  }
  return {{"dq", o.dq.values()},         {"dk", o.dk.values()},
          {"dv", o.dv.values()},         {"ds_dense", pairs.dbias.values()},
          {"dbias", o.dbias.values()},   {"dsink", o.dsinks.values()},
          {"dscale", o.dscale.values()}, {"dslopes", o.dslopes.values()}};
}

}  // namespace

CaseResult solve(const Problem& problem, bool reference) {
  if (reference) {
    ReferenceResult<double> r = reference_of<double>(problem);
    return {std::move(r.out), std::move(r.lse), std::move(r.max_score)};
  }
  const Outputs o = run(problem);
  if (o.error) throw std::runtime_error(o.error.message());
  for (const auto& [name, tensor] : o.tensors())
    if (tensor->given() && !tensor->gaps_untouched())
      throw std::runtime_error(std::string("wrote outside ") + name);
  return {o.out.values(), o.lse.values(), o.max_score.values()};
}

CaseResult solve_case(const CaseFile& file, bool reference) {
  if (reference) return reference_case_result(file);
  CaseResult result = solve(case_problem(file), reference);
  if (const auto g = case_gradient_problem(file)) result.gradients = solve_backward(*g);
  return result;
}

bool reference_can_run(const CaseFile& file) {
  return file.cls == "value" || file.cls == "empty" || file.cls == "isolation" ||
         (file.cls == "sweep" && file.json.at("sweep").contains("all_masked"));
}

Judgement run_procedure(const CaseFile& file, bool reference) {
  const Json& json = file.json;
  if (file.cls == "error") return run_error(file);
  if (file.cls == "empty") return run_empty(file, reference);
  if (file.cls == "merge") return run_merge(file);
  if (file.cls == "isolation") return run_isolation(file, reference);
  if (file.cls == "virtual_stride") return run_virtual_stride(file);
  if (file.cls == "sweep" && json.at("sweep").contains("all_masked"))
    return run_all_masked(file, reference);
  if (file.cls == "sweep" && json.at("sweep").contains("byte_offsets"))
    return run_unaligned_masks(file);
  if (file.cls == "property" && json.contains("base")) return run_batch_invariance(file);
  if (file.cls == "property") return run_thread_counts(file);
  if (file.cls == "process" && file.id == "053") return run_fork();
  if (file.cls == "process" && file.id == "054") return run_default_threads();
  if (file.cls == "process" && file.id == "055") return run_isa_choice();
  if (file.cls == "memory" && file.id == "056") return run_memory(file);
  if (file.cls == "api" && file.id == "057") return run_mask_dtypes();
  throw std::runtime_error("class " + file.cls + " has no procedure for this case");
}

}  // namespace poise::test
