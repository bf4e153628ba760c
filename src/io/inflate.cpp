// zlib behind the decoding of zip members.
//
// Raw deflate (no zlib header), fed in pieces because zlib counts in 32 bits. Output never exceeds
// the span that the caller sized; nothing is allocated per member but zlib's window.
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <new>

#include "io/zip.h"

namespace poise::io {
namespace {

// The decoder of one member, ended on every way out.
class Inflater {
 public:
  explicit Inflater(std::span<const std::byte> data) : in_(data) {
    const int raw_deflate = -MAX_WBITS;
    if (::inflateInit2(&stream_, raw_deflate) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { ::inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Fills `out` as far as the stream goes; returns the bytes written.
  std::size_t fill(std::span<std::byte> out) {
    const std::size_t wanted = out.size();
    while (!out.empty() && status_ == Z_OK) step(&out);
    return wanted - out.size();
  }

  // True when the stream ends here, with nothing more to write or read.
  bool at_end() {
    std::byte extra{};
    std::span<std::byte> room(&extra, 1);
    while (status_ == Z_OK && !room.empty()) step(&room);
    return status_ == Z_STREAM_END && !room.empty() && in_.empty();
  }

 private:
  void step(std::span<std::byte>* out) {
    constexpr std::size_t kPiece = std::numeric_limits<uInt>::max();
    const auto in_piece = static_cast<uInt>(std::min(in_.size(), kPiece));
    const auto out_piece = static_cast<uInt>(std::min(out->size(), kPiece));
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in_.data()));
    stream_.avail_in = in_piece;
    stream_.next_out = reinterpret_cast<Bytef*>(out->data());
    stream_.avail_out = out_piece;
    status_ = ::inflate(&stream_, Z_NO_FLUSH);  // Z_BUF_ERROR: no progress, the input is cut off
    in_ = in_.subspan(in_piece - stream_.avail_in);
    *out = out->subspan(out_piece - stream_.avail_out);
    if (status_ == Z_MEM_ERROR) throw std::bad_alloc();
  }

  z_stream stream_{};
  std::span<const std::byte> in_;
  int status_ = Z_OK;
};

}  // namespace

bool inflate_prefix(const ZipMember& member, std::span<std::byte> out) {
  return Inflater(member.data).fill(out) == out.size();
}

bool inflate_member(const ZipMember& member, std::span<std::byte> out) {
  Inflater inflater(member.data);
  return inflater.fill(out) == out.size() && inflater.at_end();
}

std::uint32_t zip_crc(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace poise::io
