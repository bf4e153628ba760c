// Any number of leading axes, cut into calls of the library, which knows one batch axis.
//
// In: views whose leading axes all have the same extents (lift() and broadcast_axis() make them
// so). Out: how many of the innermost leading axes every view can show as one, and the views of
// each call. Axes that no stride joins are walked, one call after the other; nothing is copied.
// What must not happen here: a bit of a result that depends on where the cut falls (no batch
// changes another's bits, and dropout is told where its batch stands).
#pragma once

#include <initializer_list>

#include "array.h"

namespace poise::python {

// The view with axes of extent 1 in front until it has `rank` of them.
View lift(const View& view, int rank);

// As the library takes it; at most kMaxRank axes.
Tensor tensor_of(const View& view);

class Cut {
 public:
  // `lead` are the extents of the leading axes, at least one.
  Cut(const Axes& lead, int leads);

  // Makes sure that the view, whose first axes are the leading ones, can be shown with what is then
  // one batch axis.
  void consider(const View& view);
  void consider(std::initializer_list<const View*> views);

  std::int64_t calls() const;  // 1 when some leading extent is 0: the call then checks and is empty
  std::int64_t batch() const;  // the batch axis of each

  // The part of a considered view that call `index` sees: one batch axis and the view's own axes
  // behind the leading ones.
  Tensor part(const View& view, std::int64_t index) const;

  // The part of per-batch numbers: an axis [B] over all batches, in row-major order of the leading
  // axes, before whatever axes follow.
  ConstTensor slice(const ConstTensor& numbers, std::int64_t index) const;

 private:
  bool is_empty() const;

  Axes lead_;
  int leads_, first_ = 0;  // axes before first_ are walked
};

}  // namespace poise::python
