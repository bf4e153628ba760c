// The one way poise says no: a code for programs, one sentence for people.
//
// Every call that can refuse its input returns an Error. It is empty (false) on success; on refusal
// nothing has been written. The sentence has the form
//   [forward] key: head_dim 80 differs from query head_dim 64
// that is: the call, the argument, its value, what was expected. The library never throws, prints
// or aborts.
#pragma once

#include <string>
#include <utility>

namespace poise {

enum class ErrorCode {
  none = 0,
  bad_shape,      // extents do not fit together, or do not broadcast
  bad_dtype,      // a dtype this argument cannot have, or dtypes that must agree and do not
  bad_layout,     // null data, negative extents, strides that overflow int64 or overlap themselves
  bad_value,      // a number outside its range: NaN scale, window below -1, length beyond Lk, ...
  bad_alias,      // an output overlaps an input or another output
  unsupported,    // well-formed, but this build or machine cannot do it (an unknown POISE_ISA, ...)
  out_of_memory,  // an allocation failed
  bad_file,       // poise_io: a file that is truncated, malformed or hostile
};

class [[nodiscard]] Error {
 public:
  Error() = default;
  Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  // True when the call was refused.
  explicit operator bool() const { return code_ != ErrorCode::none; }
  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  ErrorCode code_ = ErrorCode::none;
  std::string message_;
};

}  // namespace poise
