// poise._core.Options: the keyword arguments of a call, parsed once.
//
// In: Python values. Out: an object that forward, backward and jvp take, to be kept between them.
// What must not happen here: a default that differs from the library's.
#include "bindings.h"

namespace poise::python {

void bind_options(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<CallOptions>(module, "Options",
                          "Everything that changes the result of a call; see poise.attention.")
      .def(
          "__init__",
          [](CallOptions* self, nb::handle causal, nb::handle scale, nb::handle softcap,
             nb::handle attn_mask, nb::handle mask, nb::handle bias, nb::handle window,
             nb::handle diagonal, nb::handle kv_lengths, nb::handle q_lengths,
             nb::handle alibi_slopes, nb::handle sinks, nb::handle dropout_p,
             nb::handle dropout_seed, nb::handle dropout_offset, nb::handle threads) {
            new (self) CallOptions({causal, scale, softcap, attn_mask, mask, bias, window, diagonal,
                                    kv_lengths, q_lengths, alibi_slopes, sinks, threads, dropout_p,
                                    dropout_seed, dropout_offset});
          },
          "causal"_a.none() = nb::none(), "scale"_a.none() = nb::none(),
          "softcap"_a.none() = nb::none(), "attn_mask"_a.none() = nb::none(),
          "mask"_a.none() = nb::none(), "bias"_a.none() = nb::none(),
          "window"_a.none() = nb::none(), "diagonal"_a.none() = nb::none(),
          "kv_lengths"_a.none() = nb::none(), "q_lengths"_a.none() = nb::none(),
          "alibi_slopes"_a.none() = nb::none(), "sinks"_a.none() = nb::none(),
          "dropout_p"_a.none() = nb::float_(0.0), "dropout_seed"_a.none() = nb::int_(0),
          "dropout_offset"_a.none() = nb::int_(0), "threads"_a.none() = nb::none());
}

}  // namespace poise::python
