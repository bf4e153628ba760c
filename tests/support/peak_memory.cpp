// Peak memory by getrusage in a forked child.
//
// In: what to prepare and what to measure. Out: bytes. A child's ru_maxrss starts at what it holds
// when it is forked (Linux, dup_mm), so its growth is the work's own.
#include "support/peak_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <stdexcept>

#include "support/child_process.h"
#include "support/problem.h"

namespace poise::test {
namespace {

double peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return 1024.0 * static_cast<double>(usage.ru_maxrss);
}

// The longest work measured here is 2.7 * 10^12 flops, half a minute on two idle cores.
constexpr unsigned kSeconds = 500;

// One number that parent and child share.
class SharedNumber {
 public:
  SharedNumber()
      : number_(static_cast<double*>(mmap(nullptr, sizeof(double), PROT_READ | PROT_WRITE,
                                          MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    if (number_ == MAP_FAILED) throw std::runtime_error("no shared memory");
  }
  ~SharedNumber() { munmap(number_, sizeof(double)); }
  SharedNumber(const SharedNumber&) = delete;
  SharedNumber& operator=(const SharedNumber&) = delete;
  double& operator*() { return *number_; }

 private:
  double* number_;
};

}  // namespace

double peak_bytes_of(const std::function<void()>& prepare, const std::function<void()>& work) {
  SharedNumber bytes;
  *bytes = -1;
  const std::string broken = in_forked_child(
      [&] {
        prepare();
        const double before = peak_resident_bytes();
        work();
        *bytes = peak_resident_bytes() - before;
        return std::string();
      },
      kSeconds);
  if (!broken.empty()) throw std::runtime_error(broken);
  return *bytes;
}

double peak_bytes_with_broadcast_mask(std::int64_t len) {
  Problem p;
  TensorBuffer out;
  Options options;
  return peak_bytes_of(
      [&] {
        p.shape = {1, 8, 2, len, len, 320, 320};
        Rng rng(321);
        auto filled = [&](std::int64_t heads) {
          TensorBuffer tensor(DType::f32, {1, heads, len, 320});
          tensor.fill([&] { return rng.uniform(-1, 1); });
          return tensor;
        };
        p.query = filled(8);
        p.key = filled(2);
        p.value = filled(2);
        add_random_mask(p, rng, 0.9, {1, 1, 1, len});
        out = TensorBuffer(DType::f32, {1, 8, len, 320});
        options = p.call_options();
        options.threads = 2;
      },
      [&] {
        const Error error =
            attention(p.query.view(), p.key.view(), p.value.view(), out.view(), options);
        if (error) throw std::runtime_error(error.message());
      });
}

}  // namespace poise::test
