// The machine's limits: what is measured, what is read, what is refused.
// ctest-labels: fast unit per_isa
//
// No test says how fast a machine must be.
#include <poise/cpu.h>
#include <poise/limits.h>

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <string>
#include <vector>

#include "support/isa.h"
#include "support/tensor_buffer.h"

namespace poise::test {
namespace {

LimitsRequest quick_request() {
  LimitsRequest request;
  request.threads = 2;
  request.stream_bytes = 1 << 20;
  request.seconds = 1e-3;
  return request;
}

TEST(Limits, name_every_instruction_set_of_this_machine_and_are_positive) {
  MachineLimits limits;
  ASSERT_FALSE(measure_limits(quick_request(), &limits));
  std::vector<std::string> isas;
  for (const PeakRate& peak : limits.peaks) {
    isas.push_back(peak.isa);
    EXPECT_GT(peak.f32, 0) << peak.isa;
    EXPECT_GT(peak.f64, 0) << peak.isa;
  }
  EXPECT_EQ(isas, available_isas());
  EXPECT_EQ(limits.peak_together.isa, active_isa());
  EXPECT_GT(limits.peak_together.f32, 0);
  EXPECT_GT(limits.stream, 0);
  EXPECT_GT(limits.stream_together, 0);
  EXPECT_TRUE(std::isfinite(limits.stream) && std::isfinite(limits.stream_together));
  EXPECT_EQ(limits.stream_bytes, 1 << 20);
  EXPECT_EQ(limits.threads, 2);
}

TEST(Limits, count_the_flops_of_the_rounds_they_are_given) {
  for_each_isa_and_dtype([](DType dtype) {
    double one = 0, many = 0, shared = 0, none = -1;
    ASSERT_FALSE(multiply_add(dtype, 1, 1, &one));
    ASSERT_FALSE(multiply_add(dtype, 25000, 1, &many));
    ASSERT_FALSE(multiply_add(dtype, 25000, 2, &shared));
    ASSERT_FALSE(multiply_add(dtype, 0, 1, &none));
    EXPECT_GE(one, 2);
    EXPECT_EQ(many, 25000 * one);
    EXPECT_EQ(shared, many);
    EXPECT_EQ(none, 0);
  });
}

// Pages of ones, one of which may be taken away.
class Pages {
 public:
  static constexpr int kCount = 600;  // more than one piece of the work of several threads

  Pages() : bytes_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    memory_ = static_cast<char*>(
        mmap(nullptr, kCount * bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::fill_n(memory_, kCount * bytes_, char{1});
  }
  ~Pages() { munmap(memory_, kCount * bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  void take_away(int page) const {
    mprotect(memory_ + static_cast<std::size_t>(page) * bytes_, bytes_, PROT_NONE);
  }
  Error read(int threads) const {
    return read_memory(memory_, static_cast<std::int64_t>(kCount * bytes_), threads);
  }

 private:
  std::size_t bytes_;
  char* memory_;
};

TEST(Limits, read_every_page_they_are_given) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (const std::string& isa : available_isas()) {
    const IsaScope scope(isa);
    const Pages pages;
    for (int threads : {1, 2}) {
      EXPECT_FALSE(pages.read(threads));
      for (int page : {0, 255, 256, 300, Pages::kCount - 1})
        EXPECT_EXIT(
            {
              signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would exit instead
              static_cast<void>(set_isa(isa));
              pages.take_away(page);
              static_cast<void>(pages.read(threads));
            },
            testing::KilledBySignal(SIGSEGV), "")
            << isa << ", page " << page << ", threads " << threads;
    }
  }
}

TEST(Limits, read_no_byte_past_the_end) {
  for (const std::string& isa : available_isas()) {
    const IsaScope scope(isa);
    for (std::int64_t count = 1; count < 300; ++count) {
      TensorBuffer tensor =
          TensorBuffer(DType::f32, {count}).copied(Layout::contiguous, Placement::before_guard);
      ASSERT_FALSE(read_memory(tensor.view().data, 4 * count, 1)) << isa << ' ' << count;
    }
  }
}

void expect_refused(const Error& error, ErrorCode code, const std::string& part) {
  EXPECT_EQ(error.code(), code) << error.message();
  EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
}

TEST(Limits, refuse_requests_outside_their_range) {
  MachineLimits limits;
  limits.threads = -7;
  for (double seconds : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    LimitsRequest request = quick_request();
    request.seconds = seconds;
    expect_refused(measure_limits(request, &limits), ErrorCode::bad_value, "[limits] seconds: ");
  }
  for (int threads : {-1, 4097}) {
    LimitsRequest request = quick_request();
    request.threads = threads;
    expect_refused(measure_limits(request, &limits), ErrorCode::bad_value, "[limits] threads: ");
  }
  LimitsRequest request = quick_request();
  for (std::int64_t bytes : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{3}}) {
    request.stream_bytes = bytes;
    expect_refused(measure_limits(request, &limits), ErrorCode::bad_value,
                   "[limits] stream_bytes: ");
  }
  for (std::int64_t bytes : {INT64_MAX, INT64_MAX / 2, std::int64_t{1} << 60}) {
    request.stream_bytes = bytes;
    expect_refused(measure_limits(request, &limits), ErrorCode::out_of_memory, "stream_bytes: no");
  }
  expect_refused(measure_limits(quick_request(), nullptr), ErrorCode::bad_value, "limits: null");
  EXPECT_EQ(limits.threads, -7) << "nothing is written on refusal";

  double flops = -7;
  expect_refused(multiply_add(DType::i32, 1, 1, &flops), ErrorCode::bad_dtype, "i32");
  expect_refused(multiply_add(DType::f32, -1, 1, &flops), ErrorCode::bad_value, "rounds: -1");
  expect_refused(multiply_add(DType::f32, 1, 0, &flops), ErrorCode::bad_value, "threads: 0");
  EXPECT_EQ(flops, -7);
  expect_refused(multiply_add(DType::f32, 1, 1, nullptr), ErrorCode::bad_value, "flops: null");
  const float numbers[4] = {};
  expect_refused(read_memory(nullptr, 4, 1), ErrorCode::bad_layout, "data: null");
  expect_refused(read_memory(numbers, -4, 1), ErrorCode::bad_layout, "bytes: -4");
  expect_refused(read_memory(reinterpret_cast<const char*>(numbers) + 1, 4, 1),
                 ErrorCode::bad_layout, "data: not aligned");
  expect_refused(read_memory(numbers, 16, 4097), ErrorCode::bad_value, "threads: 4097");
  EXPECT_FALSE(read_memory(nullptr, 0, 1));
}

}  // namespace
}  // namespace poise::test
