// A SAX handler for {"name": {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12]}, ...} and
// {"__metadata__": {"key": "value", ...}}.
//
// Every event is legal at one level only: names at level 1, fields at level 2, numbers inside the
// arrays of level 3. The first event out of place sets the sentence and stops the parser, so the
// work and the stack are bounded whatever the text nests.
#include "io/safetensors_header.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "io/message.h"

namespace poise::io {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMetadata = "__metadata__";

constexpr std::array kTypes = {
    StoredType{"F16", 2, DType::f16},       StoredType{"BF16", 2, DType::bf16},
    StoredType{"F32", 4, DType::f32},       StoredType{"F64", 8, DType::f64},
    StoredType{"BOOL", 1, DType::boolean},  StoredType{"I32", 4, DType::i32},
    StoredType{"I64", 8, DType::i64},       StoredType{"U8", 1, std::nullopt},
    StoredType{"I8", 1, std::nullopt},      StoredType{"I16", 2, std::nullopt},
    StoredType{"U16", 2, std::nullopt},     StoredType{"U32", 4, std::nullopt},
    StoredType{"U64", 8, std::nullopt},     StoredType{"F8_E5M2", 1, std::nullopt},
    StoredType{"F8_E4M3", 1, std::nullopt}, StoredType{"F8_E8M0", 1, std::nullopt},
    StoredType{"C64", 8, std::nullopt},
};

class Handler : public nlohmann::json_sax<Json> {
 public:
  explicit Handler(SafetensorsHeader* header) : header_(header) {}

  // Why the parser stopped; empty when it did not.
  const std::string& fault() const { return fault_; }

  bool start_object(std::size_t) override {
    if (level_ == Level::outside) {
      level_ = Level::names;
      return true;
    }
    if (level_ != Level::names) return stop_at_value("an object");
    fields_.clear();
    level_ = name_ == kMetadata ? Level::metadata : Level::fields;
    if (level_ == Level::fields) header_->tensors.emplace_back().name = name_;
    return true;
  }

  bool end_object() override {
    if (level_ == Level::names) {
      level_ = Level::outside;
      return true;
    }
    if (level_ == Level::fields)
      for (const char* field : {"dtype", "shape", "data_offsets"})
        if (!fields_.contains(field)) return stop("tensor " + in_quotes(name_) + " lacks " + field);
    level_ = Level::names;
    return true;
  }

  bool key(Json::string_t& key) override {
    if (level_ == Level::names) {
      if (const std::string why = name_fault(key); !why.empty()) return stop(why);
      if (!names_.insert(key).second) return stop("has the name " + in_quotes(key) + " twice");
      name_ = key;
      return true;
    }
    if (!fields_.insert(key).second)
      return stop(where() + " has the key " + in_quotes(key) + " twice");
    if (level_ == Level::fields && key != "dtype" && key != "shape" && key != "data_offsets")
      return stop(where() + " has the unknown key " + in_quotes(key));
    field_ = key;
    return true;
  }

  bool string(Json::string_t& value) override {
    if (level_ == Level::metadata) {
      header_->metadata[field_] = value;
      return true;
    }
    if (level_ != Level::fields || field_ != "dtype") return stop_at_value("a string");
    const auto it = std::find_if(kTypes.begin(), kTypes.end(),
                                 [&](const StoredType& type) { return value == type.spelling; });
    if (it == kTypes.end()) return stop(where() + " has the unknown dtype " + in_quotes(value));
    tensor().type = *it;
    return true;
  }

  bool start_array(std::size_t) override {
    if (level_ != Level::fields || field_ == "dtype") return stop_at_value("an array");
    level_ = Level::numbers;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    level_ = Level::fields;
    if (field_ == "shape") {
      tensor().shape = numbers_;
      return true;
    }
    if (numbers_.size() != 2)
      return stop(where() + " has " + std::to_string(numbers_.size()) +
                  " data_offsets, expected 2");
    tensor().begin = numbers_[0];
    tensor().end = numbers_[1];
    return true;
  }

  bool number_unsigned(Json::number_unsigned_t value) override {
    if (level_ != Level::numbers) return stop_at_value("a number");
    if (value > static_cast<std::uint64_t>(INT64_MAX)) return stop_at_number(std::to_string(value));
    numbers_.push_back(static_cast<std::int64_t>(value));
    return true;
  }
  bool number_integer(Json::number_integer_t value) override {
    return stop_at_number(std::to_string(value));
  }
  bool number_float(Json::number_float_t, const Json::string_t& text) override {
    return stop_at_number(in_quotes(text));
  }
  bool null() override { return stop_at_value("null"); }
  bool boolean(bool) override { return stop_at_value("a boolean"); }
  bool binary(Json::binary_t&) override { return stop_at_value("binary data"); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return stop("the header is not JSON at its byte " + std::to_string(position));
  }

 private:
  enum class Level : std::uint8_t { outside, names, fields, metadata, numbers };

  DescribedTensor& tensor() { return header_->tensors.back(); }
  std::string where() const {
    return level_ == Level::metadata ? std::string(kMetadata) : "tensor " + in_quotes(name_);
  }
  bool stop(std::string why) {
    fault_ = std::move(why);
    return false;
  }
  bool stop_at_value(const char* what) {
    switch (level_) {
      case Level::outside:
        return stop(std::string("the header is ") + what + ", expected an object");
      case Level::names:
        return stop(in_quotes(name_) + " is " + what + ", expected an object");
      case Level::metadata:
        return stop("__metadata__ value of " + in_quotes(field_) + " is " + what +
                    ", expected a string");
      case Level::numbers:
        return stop(field_ + " of tensor " + in_quotes(name_) + " holds " + what +
                    ", expected integers");
      case Level::fields:
        break;
    }
    return stop(field_ + " of tensor " + in_quotes(name_) + " is " + what + ", expected " +
                (field_ == "dtype" ? "a string" : "an array"));
  }
  bool stop_at_number(const std::string& text) {
    if (level_ != Level::numbers) return stop_at_value("a number");
    return stop(field_ + " of tensor " + in_quotes(name_) + " holds " + text +
                ", expected integers from 0 to 2^63 - 1");
  }

  SafetensorsHeader* header_;
  Level level_ = Level::outside;
  std::string name_, field_, fault_;
  std::set<std::string> names_, fields_;
  std::vector<std::int64_t> numbers_;
};

}  // namespace

Error parse_safetensors_header(std::string_view text, const std::string& source,
                               SafetensorsHeader* header) {
  if (!is_utf8(text)) return refuse(source, "the header is not UTF-8");
  // nlohmann takes a NUL for the end of the text, and would not see what hides behind it.
  if (text.find('\0') != std::string_view::npos)
    return refuse(source, "the header contains a NUL byte");
  Handler handler(header);
  if (!Json::sax_parse(text.begin(), text.end(), &handler)) return refuse(source, handler.fault());
  return {};
}

const char* safetensors_spelling(DType dtype) {
  const auto it = std::find_if(kTypes.begin(), kTypes.end(),
                               [&](const StoredType& type) { return type.dtype == dtype; });
  return it->spelling;
}

}  // namespace poise::io
