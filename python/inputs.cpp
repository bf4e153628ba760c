// Ranks, layouts and broadcasting: axes of extent 1 are put in front or repeated by stride 0. What
// must not happen here: see inputs.h.
#include "inputs.h"

#include <algorithm>

namespace poise::python {
namespace {

// Makes the axis `extent` long by repeating it; false when it cannot be.
bool broadcast_axis(View* view, int axis, std::int64_t extent) {
  if (view->extent(axis) == extent) return true;
  if (view->extent(axis) != 1) return false;
  view->set_axis(axis, extent, 0);
  return true;
}

}  // namespace

View swapped(View view) {
  if (view.rank < 3) return view;
  const int a = view.rank - 3, b = view.rank - 2;
  const std::int64_t extent = view.extent(a), stride = view.stride(a);
  view.set_axis(a, view.extent(b), view.stride(b));
  view.set_axis(b, extent, stride);
  return view;
}

void Inputs::take(nb::handle query_object, nb::handle key_object, nb::handle value_object,
                  const char* call, bool broadcasts, bool grouped, bool blhd_layout) {
  blhd = blhd_layout;
  const std::string in = std::string("[") + call + "] ";
  const auto open = [&](Array* array, nb::handle object, const char* name) {
    if (object.is_none()) raise_type(in + name + ": None, expected an array");
    array->take(object, call, name);
    if (array->view().rank < 2)
      raise_value(in + name + ": shape " + shape_text(array->view()) +
                  ", expected at least two axes, [..., length, head_dim]");
    rank = std::max(rank, array->view().rank);
  };
  open(&query_array, query_object, "query");
  open(&key_array, key_object, "key");
  open(&value_array, value_object, "value");
  leads = std::max(rank - 3, 1);
  const auto place = [&](const Array& array) {
    return lift(blhd ? swapped(array.view()) : array.view(), leads + 3);
  };
  query = place(query_array);
  key = place(key_array);
  value = place(value_array);

  struct Named {
    View* view;
    const char* name;
  };
  const Named all[] = {{&query, "query"}, {&key, "key"}, {&value, "value"}};
  for (int a = 0; a < leads; ++a) {
    std::int64_t extent = query.extent(a);
    if (broadcasts)
      for (const Named& one : all)
        if (extent == 1) extent = one.view->extent(a);
    for (const Named& one : all) {
      if (one.view->extent(a) == extent) continue;
      // One leading axis that does not broadcast is the library's to refuse.
      if (leads == 1 && !broadcasts) continue;
      if (!broadcasts || !broadcast_axis(one.view, a, extent))
        raise_value(in + one.name + ": leading extent " + std::to_string(one.view->extent(a)) +
                    " on axis " + std::to_string(a) + " differs from " + std::to_string(extent));
    }
    lead[static_cast<std::size_t>(a)] = extent;
  }
  if (!grouped) {
    // Key and value heads stay one where they are one: the library lets all query heads read it.
    std::int64_t heads = query.extent(leads);
    if (heads == 1) heads = key.extent(leads);
    if (heads == 1) heads = value.extent(leads);
    const bool alone = key.extent(leads) == 1 && value.extent(leads) == 1;
    for (const Named& one : all) {
      if (alone && one.view != &query) continue;
      if (!broadcast_axis(one.view, leads, heads))
        raise_value(in + one.name + ": " + std::to_string(one.view->extent(leads)) +
                    " heads do not broadcast with " + std::to_string(heads) +
                    "; enable_gqa=True lets query heads share key heads");
    }
  }
  q_heads = query.extent(leads);
  q_len = query.extent(leads + 1);
  head_dim = query.extent(leads + 2);
  kv_len = key.extent(leads + 1);
  value_dim = value.extent(leads + 2);
}

int Inputs::result_shape(std::int64_t tail, bool as_query, Axes* extents) const {
  int axes = 0;
  const auto add = [&](std::int64_t extent) {
    (*extents)[static_cast<std::size_t>(axes++)] = extent;
  };
  if (rank > 3)
    for (int a = 0; a < leads; ++a) add(lead[static_cast<std::size_t>(a)]);
  if (rank > 2 && !(blhd && as_query)) add(q_heads);
  add(q_len);
  if (rank > 2 && blhd && as_query) add(q_heads);
  if (tail >= 0) add(tail);
  return axes;
}

View Inputs::lifted(const View& result, bool has_tail, bool as_query) const {
  const View view = blhd && as_query ? swapped(result) : result;
  return lift(view, leads + (has_tail ? 3 : 2));
}

void Inputs::check_leading(const View& view, const char* call, const char* name) const {
  if (leads == 1) return;  // one batch axis is the library's to check
  for (int a = 0; a < leads; ++a)
    if (view.extent(a) != lead[static_cast<std::size_t>(a)])
      raise_value("[" + std::string(call) + "] " + name + ": leading extent " +
                  std::to_string(view.extent(a)) + " on axis " + std::to_string(a) + ", expected " +
                  std::to_string(lead[static_cast<std::size_t>(a)]));
}

View take_as(Array* array, nb::handle object, const Inputs& inputs, const char* call,
             const char* name, bool has_tail) {
  array->take(object, call, name);
  if (!array->given()) return {};
  const int expected = inputs.rank - (has_tail ? 0 : 1);
  if (array->view().rank != expected)
    raise_value("[" + std::string(call) + "] " + name + ": shape " + shape_text(array->view()) +
                ", expected " + std::to_string(expected) + " axes as the query's" +
                (has_tail ? "" : " without the last"));
  const View view = inputs.lifted(array->view(), has_tail, has_tail);
  inputs.check_leading(view, call, name);
  return view;
}

}  // namespace poise::python
