// Joining axes is a question of strides alone: an outer axis continues an inner one when a step of
// it is as long as the whole inner axis, and stride 0 continues stride 0.
#include "cut.h"

namespace poise::python {

View lift(const View& view, int rank) {
  if (rank <= view.rank) return view;
  View lifted;
  lifted.data = view.data;
  lifted.dtype = view.dtype;
  lifted.rank = rank;
  for (int a = 0; a < rank; ++a) {
    const int from = a - (rank - view.rank);
    lifted.set_axis(a, from < 0 ? 1 : view.extent(from), from < 0 ? 0 : view.stride(from));
  }
  return lifted;
}

Tensor tensor_of(const View& view) {
  if (view.rank > kMaxRank)
    raise_value("an array of " + std::to_string(view.rank) + " axes, shape " + shape_text(view) +
                ", where at most 4 are expected");
  Tensor tensor;
  tensor.data = view.data;
  tensor.dtype = view.dtype;
  tensor.rank = view.rank;
  for (int a = 0; a < view.rank; ++a) {
    tensor.extents[static_cast<std::size_t>(a)] = view.extent(a);
    tensor.strides[static_cast<std::size_t>(a)] = view.stride(a);
  }
  return tensor;
}

Cut::Cut(const Axes& lead, int leads) : lead_(lead), leads_(leads) {}

bool Cut::is_empty() const {
  for (int a = 0; a < leads_; ++a)
    if (lead_[static_cast<std::size_t>(a)] == 0) return true;
  return false;
}

void Cut::consider(const View& view) {
  bool inside = false;  // an axis longer than 1 has been met
  std::int64_t next = 0;
  for (int a = leads_ - 1; a >= first_; --a) {
    const std::int64_t extent = lead_[static_cast<std::size_t>(a)], stride = view.stride(a);
    if (extent == 1) continue;
    if ((inside && stride != next) || __builtin_mul_overflow(stride, extent, &next)) {
      first_ = a + 1;
      return;
    }
    inside = true;
  }
}

void Cut::consider(std::initializer_list<const View*> views) {
  for (const View* view : views) consider(*view);
}

std::int64_t Cut::calls() const {
  if (is_empty()) return 1;
  std::int64_t calls = 1;
  for (int a = 0; a < first_; ++a) calls *= lead_[static_cast<std::size_t>(a)];
  return calls;
}

std::int64_t Cut::batch() const {
  if (is_empty()) return 0;
  std::int64_t batch = 1;
  for (int a = first_; a < leads_; ++a) batch *= lead_[static_cast<std::size_t>(a)];
  return batch;
}

Tensor Cut::part(const View& view, std::int64_t index) const {
  std::int64_t offset = 0, stride = 0;
  for (int a = first_ - 1; a >= 0; --a) {
    const std::int64_t extent = lead_[static_cast<std::size_t>(a)];
    if (extent > 1) {
      offset += index % extent * view.stride(a);
      index /= extent;
    }
  }
  for (int a = leads_ - 1; a >= first_; --a) {
    if (lead_[static_cast<std::size_t>(a)] == 1) continue;
    stride = view.stride(a);
    break;
  }
  // A single leading axis is shown as it is: the library refuses one that does not fit.
  if (leads_ == 1) stride = view.stride(0);
  Tensor tensor;
  tensor.dtype = view.dtype;
  tensor.rank = view.rank - leads_ + 1;
  tensor.data = view.data == nullptr || offset == 0
                    ? view.data
                    : static_cast<char*>(view.data) + offset * size_bytes(view.dtype);
  tensor.extents[0] = leads_ == 1 ? view.extent(0) : batch();
  tensor.strides[0] = stride;
  for (int a = leads_; a < view.rank; ++a) {
    const auto to = static_cast<std::size_t>(a - leads_ + 1);
    tensor.extents[to] = view.extent(a);
    tensor.strides[to] = view.stride(a);
  }
  return tensor;
}

ConstTensor Cut::slice(const ConstTensor& numbers, std::int64_t index) const {
  if (!numbers.given() || calls() == 1) return numbers;
  ConstTensor part = numbers;
  if (part.rank == 0 || part.extents[0] != batch() * calls()) return part;  // the library refuses
  part.extents[0] = batch();
  part.data = static_cast<const char*>(numbers.data) +
              index * batch() * numbers.strides[0] * size_bytes(numbers.dtype);
  return part;
}

}  // namespace poise::python
