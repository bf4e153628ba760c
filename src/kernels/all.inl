// Every kernel body, in the order they build on one another; included once per instruction set,
// inside its target region and after its vector verbs. The order matters: no sorting here.
// clang-format off
#include "kernels/softmax.inl"
#include "kernels/state.inl"
#include "kernels/prefetch.inl"
#include "kernels/tile.inl"
#include "kernels/convert.inl"
#include "kernels/mask.inl"
#include "kernels/dropout.inl"
#include "kernels/tally.inl"
#include "kernels/histogram.inl"
#include "kernels/layout.inl"
#include "kernels/decode.inl"
#include "kernels/sums.inl"
#include "kernels/visible.inl"
#include "kernels/block.inl"
#include "kernels/forward.inl"
#include "kernels/materialise.inl"
#include "kernels/stream.inl"
#include "kernels/table.inl"
// clang-format on
