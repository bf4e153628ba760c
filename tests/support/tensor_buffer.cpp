// Owning tensors: strides from layouts, memory with margins or guard pages, element conversion.
//
// In: dtype, extents, layout, placement. Out: views for poise, values as double. f16 and bf16 are
// rounded to nearest even here, so that inputs are exactly what the dtype can hold.
#include "support/tensor_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

namespace poise::test {
namespace {

constexpr std::size_t kMargin = 256;  // bytes beside the elements of a heap buffer, watched

Extents strides_of(Layout layout, const Extents& extents) {
  const std::size_t rank = extents.size();
  std::vector<std::size_t> order;  // axes from the slowest to the fastest
  for (std::size_t axis = 0; axis < rank; ++axis) order.push_back(axis);
  if (rank == 4 && layout == Layout::blhd) std::swap(order[1], order[2]);
  if (rank >= 2 && layout == Layout::transposed) std::swap(order[rank - 2], order[rank - 1]);

  Extents strides(rank, 1);
  std::int64_t step = layout == Layout::gapped ? 2 : 1;
  for (std::size_t n = rank; n-- > 0;) {
    const std::size_t axis = order[n];
    strides[axis] = step;
    step *= std::max<std::int64_t>(extents[axis], 1);
    if (layout == Layout::padded && n + 1 == rank) step += 3 - step % 2;  // odd, with room
  }
  if (layout == Layout::reversed)
    for (std::int64_t& stride : strides) stride = -stride;
  return strides;
}

// Nearest-even rounding of a double to a float with `fraction_bits` of fraction, as its bits.
std::uint16_t narrow(double value, int fraction_bits, int min_exponent, int bias) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const auto top = static_cast<std::uint16_t>((0x7fff >> fraction_bits) << fraction_bits);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | top | 1);
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  const int exponent =
      std::isinf(magnitude) ? bias + 1 : std::max(std::ilogb(magnitude), min_exponent);
  if (exponent > bias) return static_cast<std::uint16_t>(sign | top);
  // Units of the last place; a carry out of the fraction lands in the exponent by itself.
  const auto units =
      static_cast<std::int64_t>(std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent)));
  const std::int64_t bits =
      units + (static_cast<std::int64_t>(exponent + bias - 1) << fraction_bits);
  return static_cast<std::uint16_t>(sign | std::min<std::int64_t>(bits, top));
}

double widen_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0x1f)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

// A page before and this many bytes behind the data that nobody can touch. Views of lengths claim
// more than the data: no other tensor may lie there.
constexpr std::size_t kRoomBehind = std::size_t{1} << 20;

std::size_t mapped_bytes(std::size_t data_bytes, std::size_t page) {
  return page + data_bytes + kRoomBehind;
}

std::byte* map_with_guards(std::size_t data_bytes, std::size_t page) {
  const std::size_t total = mapped_bytes(data_bytes, page);
  void* memory = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto* start = static_cast<std::byte*>(memory);
  if (mprotect(start, page, PROT_NONE) != 0 ||
      mprotect(start + page + data_bytes, kRoomBehind, PROT_NONE) != 0)
    throw std::bad_alloc();
  return start;
}

}  // namespace

const char* name(Layout layout) {
  switch (layout) {
    case Layout::contiguous:
      return "contiguous";
    case Layout::blhd:
      return "blhd";
    case Layout::padded:
      return "padded";
    case Layout::gapped:
      return "gapped";
    case Layout::transposed:
      return "transposed";
    case Layout::reversed:
      return "reversed";
  }
  return "?";
}

TensorBuffer::TensorBuffer(DType dtype, const Extents& extents, Layout layout, Placement placement)
    : TensorBuffer(dtype, extents, strides_of(layout, extents), placement) {}

TensorBuffer::TensorBuffer(DType dtype, const Extents& extents, const Extents& strides,
                           Placement placement) {
  tensor_.dtype = dtype;
  tensor_.rank = static_cast<int>(extents.size());
  for (std::size_t axis = 0; axis < extents.size(); ++axis) {
    tensor_.extents[axis] = extents[axis];
    tensor_.strides[axis] = strides[axis];
  }
  allocate(placement);
}

void TensorBuffer::allocate(Placement placement) {
  std::int64_t first = 0, last = -1;  // smallest and largest element offset
  if (count() > 0) {
    last = 0;
    for (int axis = 0; axis < tensor_.rank; ++axis) {
      const std::int64_t reach = (extent(axis) - 1) * tensor_.stride(axis);
      (reach < 0 ? first : last) += reach;
    }
  }
  const std::int64_t element = size_bytes(tensor_.dtype);
  const auto data_bytes = static_cast<std::size_t>((last - first + 1) * element);

  std::byte* data = nullptr;
  if (placement == Placement::heap) {
    memory_bytes_ = data_bytes + 2 * kMargin;
    auto* memory = new std::byte[memory_bytes_];
    memory_ = std::shared_ptr<std::byte>(memory, std::default_delete<std::byte[]>());
    std::memset(memory, 0xff, memory_bytes_);
    data = memory + kMargin;
  } else {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t rounded = (data_bytes + page - 1) / page * page;
    std::byte* mapping = map_with_guards(rounded, page);
    const std::size_t total = mapped_bytes(rounded, page);
    memory_bytes_ = rounded;
    memory_ = std::shared_ptr<std::byte>(mapping + page,
                                         [mapping, total](std::byte*) { munmap(mapping, total); });
    std::memset(mapping + page, 0xff, rounded);
    data = mapping + page + (placement == Placement::before_guard ? rounded - data_bytes : 0);
  }
  tensor_.data = data - first * element;
}

std::int64_t TensorBuffer::count() const {
  if (!given()) return 0;
  std::int64_t elements = 1;
  for (int axis = 0; axis < tensor_.rank; ++axis) elements *= extent(axis);
  return elements;
}

bool TensorBuffer::contiguous() const {
  std::int64_t step = 1;
  for (int axis = tensor_.rank - 1; axis >= 0; --axis) {
    if (extent(axis) != 1 && tensor_.stride(axis) != step) return false;
    step *= extent(axis);
  }
  return true;
}

std::int64_t TensorBuffer::offset(std::int64_t index) const {
  std::int64_t sum = 0;
  for (int axis = tensor_.rank - 1; axis >= 0; --axis) {
    sum += index % extent(axis) * tensor_.stride(axis);
    index /= extent(axis);
  }
  return sum;
}

std::int64_t TensorBuffer::index(std::initializer_list<std::int64_t> position) const {
  std::int64_t flat = 0;
  int axis = 0;
  for (std::int64_t i : position) flat = flat * extent(axis++) + i;
  return flat;
}

double TensorBuffer::at(std::int64_t index) const {
  const std::int64_t o = offset(index);
  switch (tensor_.dtype) {
    case DType::f32:
      return static_cast<double>(static_cast<const float*>(tensor_.data)[o]);
    case DType::f64:
      return static_cast<const double*>(tensor_.data)[o];
    case DType::f16:
      return widen_half(static_cast<const f16*>(tensor_.data)[o].bits);
    case DType::bf16:
      return static_cast<double>(std::bit_cast<float>(
          static_cast<std::uint32_t>(static_cast<const bf16*>(tensor_.data)[o].bits) << 16));
    case DType::boolean:
      return static_cast<const unsigned char*>(tensor_.data)[o];
    case DType::i32:
      return static_cast<const std::int32_t*>(tensor_.data)[o];
    case DType::i64:
      return static_cast<double>(static_cast<const std::int64_t*>(tensor_.data)[o]);
  }
  return 0;
}

void TensorBuffer::set(std::int64_t index, double value) {
  const std::int64_t o = offset(index);
  switch (tensor_.dtype) {
    case DType::f32:
      static_cast<float*>(tensor_.data)[o] = static_cast<float>(value);
      break;
    case DType::f64:
      static_cast<double*>(tensor_.data)[o] = value;
      break;
    case DType::f16:
      static_cast<f16*>(tensor_.data)[o].bits = narrow(value, 10, -14, 15);
      break;
    case DType::bf16:
      static_cast<bf16*>(tensor_.data)[o].bits = narrow(value, 7, -126, 127);
      break;
    case DType::boolean:
      static_cast<unsigned char*>(tensor_.data)[o] = value != 0 ? 1 : 0;
      break;
    case DType::i32:
      static_cast<std::int32_t*>(tensor_.data)[o] = static_cast<std::int32_t>(value);
      break;
    case DType::i64:
      static_cast<std::int64_t*>(tensor_.data)[o] = static_cast<std::int64_t>(value);
      break;
  }
}

void TensorBuffer::fill(const std::function<double()>& next) {
  const std::int64_t elements = count();
  for (std::int64_t n = 0; n < elements; ++n) set(n, next());
}

std::vector<double> TensorBuffer::values() const {
  std::vector<double> all;
  const std::int64_t elements = count();
  all.reserve(static_cast<std::size_t>(elements));
  for (std::int64_t n = 0; n < elements; ++n) all.push_back(at(n));
  return all;
}

TensorBuffer TensorBuffer::copied(Layout layout, Placement placement) const {
  if (!given()) return {};
  TensorBuffer copy(tensor_.dtype,
                    Extents(tensor_.extents.begin(), tensor_.extents.begin() + tensor_.rank),
                    layout, placement);
  std::int64_t n = 0;
  copy.fill([&] { return at(n++); });
  return copy;
}

TensorBuffer TensorBuffer::copied_as(DType dtype) const {
  if (!given()) return {};
  TensorBuffer copy(dtype,
                    Extents(tensor_.extents.begin(), tensor_.extents.begin() + tensor_.rank));
  std::int64_t n = 0;
  copy.fill([&] { return at(n++); });
  return copy;
}

TensorBuffer TensorBuffer::sliced(int axis, std::int64_t begin, std::int64_t count) const {
  TensorBuffer slice = *this;
  slice.tensor_.data = static_cast<std::byte*>(tensor_.data) +
                       begin * tensor_.stride(axis) * size_bytes(tensor_.dtype);
  slice.tensor_.extents[static_cast<std::size_t>(axis)] = count;
  return slice;
}

bool TensorBuffer::gaps_untouched() const {
  std::vector<bool> element_byte(memory_bytes_, false);
  const auto size = static_cast<std::size_t>(size_bytes(tensor_.dtype));
  const auto origin =
      static_cast<std::size_t>(static_cast<std::byte*>(tensor_.data) - memory_.get());
  const std::int64_t elements = count();
  for (std::int64_t n = 0; n < elements; ++n) {
    const std::size_t start = origin + static_cast<std::size_t>(offset(n)) * size;  // wraps back
    for (std::size_t byte = 0; byte < size; ++byte) element_byte[start + byte] = true;
  }
  for (std::size_t byte = 0; byte < memory_bytes_; ++byte)
    if (!element_byte[byte] && memory_.get()[byte] != std::byte{0xff}) return false;
  return true;
}

std::string first_difference(const TensorBuffer& a, const TensorBuffer& b) {
  if (a.count() != b.count()) return "element counts differ";
  if (a.dtype() == b.dtype() && a.contiguous() && b.contiguous() &&
      std::memcmp(a.view().data, b.view().data,
                  static_cast<std::size_t>(a.count() * size_bytes(a.dtype()))) == 0)
    return {};
  const std::int64_t elements = a.count();
  for (std::int64_t n = 0; n < elements; ++n) {
    const double x = a.at(n), y = b.at(n);
    if (std::isnan(x) ? std::isnan(y)
                      : std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y))
      continue;
    std::string position;
    std::int64_t rest = n;
    for (int axis = a.view().rank - 1; axis >= 0; --axis) {
      position = std::to_string(rest % a.extent(axis)) + (position.empty() ? "" : ", ") + position;
      rest /= a.extent(axis);
    }
    char text[80];
    std::snprintf(text, sizeof text, "]: %.17g against %.17g", x, y);
    return "[" + position + text;
  }
  return {};
}

}  // namespace poise::test
