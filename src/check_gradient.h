// Rules that backward(), jvp() and double_backward() share: what forward left, what comes in.
// In: an Argument or the call's name for sentences, views, the sizes of a Problem. Out: an Error,
// empty when the view is fine. Not here: rules of one call alone (check_backward.cpp,
// check_tangent.cpp).
#pragma once

#include "check.h"
#include "check_view.h"

namespace poise {

// [B, Hq, Lq, Dv] in query's dtype; [B, Hq, Lq] in the accumulation type.
Error check_values(Argument argument, const ConstTensor& view, const Problem& problem);
Error check_row_numbers(Argument argument, const ConstTensor& view, const Problem& problem);

// Absent, or the dtype and extents of an input; `other` names it, `letters` its axes.
Error check_like(Argument argument, const ConstTensor& view, const char* other,
                 const ConstTensor& input, const char* letters);

Error check_state(const char* call, const Forward& forward, const Problem& problem);
Error check_gradient(const char* call, const OutGradient& gradient, const Problem& problem);

void read_forward(const Forward& forward, AliasCheck* aliases);
void read_gradient(const OutGradient& gradient, AliasCheck* aliases);

}  // namespace poise
