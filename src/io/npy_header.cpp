// Reads { 'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } without evaluating anything.
//
// The grammar: a dict with exactly those three keys in any order, strings in single or double
// quotes without escapes, True or False, a tuple of non-negative integers (an L after a number, as
// Python 2 wrote it, is allowed), blanks between tokens, blanks and a newline at the end.
// Source: numpy.lib.format (versions 1.0, 2.0, 3.0).
#include "io/npy_header.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "io/message.h"
#include "io/npy.h"

namespace poise::io {
namespace {

// NumPy 2 arrays have at most 64 dimensions.
constexpr std::size_t kMaxNpyRank = 64;

// The plain number types; `spelling` without the byte order.
constexpr std::array kTypes = {
    StoredType{"f2", 2, DType::f16},     StoredType{"f4", 4, DType::f32},
    StoredType{"f8", 8, DType::f64},     StoredType{"b1", 1, DType::boolean},
    StoredType{"i4", 4, DType::i32},     StoredType{"i8", 8, DType::i64},
    StoredType{"i1", 1, std::nullopt},   StoredType{"i2", 2, std::nullopt},
    StoredType{"u1", 1, std::nullopt},   StoredType{"u2", 2, std::nullopt},
    StoredType{"u4", 4, std::nullopt},   StoredType{"u8", 8, std::nullopt},
    StoredType{"c8", 8, std::nullopt},   StoredType{"c16", 16, std::nullopt},
    StoredType{"f16", 16, std::nullopt}, StoredType{"c32", 32, std::nullopt},
};

std::uint32_t little_endian(std::span<const std::byte> bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;)
    value = value << 8 | std::to_integer<std::uint32_t>(bytes[i]);
  return value;
}

// A cursor over the literal; every take_ function skips blanks first and leaves the cursor where it
// was when it returns false or nullopt.
class Literal {
 public:
  explicit Literal(std::string_view text) : text_(text) {}

  bool take(char c) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::optional<std::string_view> take_string() {
    skip_blanks();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return std::nullopt;
    const std::size_t close = text_.find(text_[at_], at_ + 1);
    if (close == std::string_view::npos) return std::nullopt;
    const std::string_view inside = text_.substr(at_ + 1, close - at_ - 1);
    if (inside.find('\\') != std::string_view::npos) return std::nullopt;
    at_ = close + 1;
    return inside;
  }

  std::optional<bool> take_bool() {
    skip_blanks();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    return std::nullopt;
  }

  // Digits only, no sign; nullopt also when the number does not fit int64.
  std::optional<std::int64_t> take_extent() {
    skip_blanks();
    std::size_t end = at_;
    std::int64_t value = 0;
    for (; end < text_.size() && text_[end] >= '0' && text_[end] <= '9'; ++end)
      if (__builtin_mul_overflow(value, std::int64_t{10}, &value) ||
          __builtin_add_overflow(value, std::int64_t{text_[end] - '0'}, &value))
        return std::nullopt;
    if (end == at_) return std::nullopt;
    at_ = end;
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;
    return value;
  }

  bool at_end() {
    skip_blanks();
    return at_ == text_.size();
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

Error parse_type(std::string_view descr, const std::string& source, NpyHeader* header) {
  header->descr = std::string(descr);
  if (descr.starts_with('>'))
    return refuse(source, "dtype " + in_quotes(descr) +
                              " is big-endian; save it again as little-endian, "
                              "numpy: a.astype(a.dtype.newbyteorder('<'))");
  if (descr.starts_with("|O"))
    return refuse(source, "holds Python objects (dtype \"|O\"), which would have to be unpickled");
  const auto it = std::find_if(kTypes.begin(), kTypes.end(), [&](const StoredType& type) {
    const std::string_view order = type.size_bytes == 1 ? "|" : "<";
    return descr.starts_with(order) && descr.substr(1) == type.spelling;
  });
  if (it == kTypes.end())
    return refuse(source, "dtype " + in_quotes(descr) + " is no plain number type, such as <f4");
  header->type = *it;
  return {};
}

Error parse_shape(Literal* literal, const std::string& source, NpyHeader* header) {
  const auto bad = [&] {
    return refuse(source, "shape in the header is no tuple of integers from 0 to 2^63 - 1");
  };
  if (!literal->take('(')) return bad();
  while (!literal->take(')')) {
    const std::optional<std::int64_t> extent = literal->take_extent();
    if (!extent) return bad();
    header->shape.push_back(*extent);
    if (header->shape.size() > kMaxNpyRank)
      return refuse(
          source, "shape in the header has more than " + std::to_string(kMaxNpyRank) + " extents");
    const bool comma = literal->take(',');
    // (3) is a number in Python, not a tuple.
    if (!comma && header->shape.size() == 1) return bad();
    if (comma) continue;
    if (!literal->take(')')) return bad();
    break;
  }
  return {};
}

Error parse_dict(std::string_view text, const std::string& source, NpyHeader* header) {
  const auto malformed = [&] { return refuse(source, "the header is no dict as NumPy writes it"); };
  Literal literal(text);
  std::vector<std::string_view> seen;
  if (!literal.take('{')) return malformed();
  while (!literal.take('}')) {
    const std::optional<std::string_view> key = literal.take_string();
    if (!key || !literal.take(':')) return malformed();
    if (std::find(seen.begin(), seen.end(), *key) != seen.end())
      return refuse(source, "the header has the key " + in_quotes(*key) + " twice");
    seen.push_back(*key);
    if (*key == "descr") {
      const std::optional<std::string_view> descr = literal.take_string();
      if (!descr) return refuse(source, "dtype in the header is no string (structured array?)");
      if (Error error = parse_type(*descr, source, header)) return error;
    } else if (*key == "fortran_order") {
      const std::optional<bool> value = literal.take_bool();
      if (!value) return refuse(source, "fortran_order in the header is neither True nor False");
      header->fortran_order = *value;
    } else if (*key == "shape") {
      if (Error error = parse_shape(&literal, source, header)) return error;
    } else {
      return refuse(source, "the header has the unknown key " + in_quotes(*key));
    }
    if (literal.take(',')) continue;
    if (!literal.take('}')) return malformed();
    break;
  }
  if (!literal.at_end()) return malformed();
  for (const std::string_view key : {"descr", "fortran_order", "shape"})
    if (std::find(seen.begin(), seen.end(), key) == seen.end())
      return refuse(source, "the header lacks the key " + in_quotes(key));
  return {};
}

}  // namespace

Error parse_npy_header(std::span<const std::byte> bytes, const std::string& source,
                       NpyHeader* header) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kNpyMagic)) return refuse(source, "does not start with the npy magic");
  const std::size_t version_at = kNpyMagic.size(), length_at = version_at + 2;
  if (bytes.size() < length_at) return refuse(source, "is truncated inside its preamble");
  const int major = std::to_integer<int>(bytes[version_at]);
  const int minor = std::to_integer<int>(bytes[version_at + 1]);
  if (major < 1 || major > 3 || minor != 0)
    return refuse(source, "npy version " + std::to_string(major) + "." + std::to_string(minor) +
                              " is none of 1.0, 2.0 and 3.0");
  const std::size_t length_bytes = major == 1 ? 2 : 4, dict_at = length_at + length_bytes;
  if (bytes.size() < dict_at) return refuse(source, "is truncated inside its preamble");
  const std::int64_t length = little_endian(bytes.subspan(length_at, length_bytes));
  if (length > kMaxNpyHeader)
    return refuse(source, "header length " + std::to_string(length) + " is above " +
                              std::to_string(kMaxNpyHeader));
  const std::int64_t left = static_cast<std::int64_t>(bytes.size() - dict_at);
  if (length > left)
    return refuse(source, "header length " + std::to_string(length) + " is past the end, " +
                              std::to_string(left) + " bytes are left");

  NpyHeader parsed;
  if (Error error =
          parse_dict(text.substr(dict_at, static_cast<std::size_t>(length)), source, &parsed))
    return error;
  const std::optional<std::int64_t> size = array_bytes(parsed.shape, parsed.type.size_bytes);
  if (!size)
    return refuse(source, "the product of shape " + shape_text(parsed.shape) +
                              " and the element size does not fit int64");
  parsed.data_offset = static_cast<std::int64_t>(dict_at) + length;
  parsed.data_bytes = *size;
  *header = std::move(parsed);
  return {};
}

}  // namespace poise::io
