// What the readers share: files on the disk, the one door, atomic writing, safe messages, widening.
//
// In: temporary files, every 16-bit pattern. The formats have tests of their own.
// ctest-labels: unit fast
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "io/atomic_file.h"
#include "io/elements.h"
#include "io/mapped_file.h"
#include "io/message.h"
#include "io/npy.h"
#include "io/open.h"
#include "io/safetensors.h"
#include "support/command_runner.h"
#include "support/file_builder.h"
#include "support/tensor_files.h"

namespace poise::test {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(MappedFile, the_bytes_of_a_file_are_mapped_and_survive_a_move) {
  const TemporaryFolder folder;
  folder.write("a", "hello");
  io::MappedFile file;
  ASSERT_FALSE(io::MappedFile::open(folder.path("a"), &file));
  io::MappedFile moved(std::move(file));
  EXPECT_TRUE(file.bytes().empty());
  file = std::move(moved);
  ASSERT_EQ(file.bytes().size(), 5u);
  EXPECT_EQ(file.bytes()[4], std::byte{'o'});
}

TEST(MappedFile, what_is_no_regular_file_is_refused_without_waiting) {
  const TemporaryFolder folder;
  const std::string fifo = folder.path("fifo"), missing = folder.path("missing");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  io::MappedFile file;
  EXPECT_EQ(io::MappedFile::open(fifo, &file).message(),
            "[read] " + fifo + ": is not a regular file");
  EXPECT_EQ(io::MappedFile::open(folder.path(""), &file).message(),
            "[read] " + folder.path("") + ": is not a regular file");
  EXPECT_EQ(io::MappedFile::open(missing, &file).message(),
            "[read] " + missing + ": cannot be opened: No such file or directory");
}

TEST(Open, content_and_not_the_extension_tells_the_format) {
  const TemporaryFolder folder;
  const std::pair<const char*, io::Format> kinds[] = {
      {"f4.npy", io::Format::npy},
      {"stored.npz", io::Format::npz},
      {"empty.npz", io::Format::npz},
      {"all_types.safetensors", io::Format::safetensors}};
  for (const auto& [name, format] : kinds) {
    std::filesystem::copy_file(fixture(name), folder.path("x.dat"),
                               std::filesystem::copy_options::overwrite_existing);
    io::File file;
    const Error error = io::open(folder.path("x.dat"), &file);
    EXPECT_FALSE(error) << error.message();
    EXPECT_EQ(file.format(), format) << name;
    EXPECT_EQ(file.source(), folder.path("x.dat"));
    EXPECT_EQ(static_cast<std::uintmax_t>(file.size_bytes()),
              std::filesystem::file_size(fixture(name)));
  }
}

TEST(Open, empty_and_foreign_files_are_refused_by_path) {
  const TemporaryFolder folder;
  folder.write("empty", "");
  folder.write("text", "hello, world");
  io::File file;
  EXPECT_EQ(io::open(folder.path("empty"), &file).message(),
            "[read] " + folder.path("empty") + ": is empty");
  EXPECT_EQ(io::open(folder.path("text"), &file).message(),
            "[read] " + folder.path("text") +
                ": is none of npy, npz and safetensors, going by its first bytes");
}

TEST(Open, a_refused_file_leaves_the_open_one_as_it_was) {
  io::File file;
  ASSERT_FALSE(io::open(fixture("f4.npy"), &file));
  ASSERT_TRUE(io::open(fixture("text.npy"), &file));
  EXPECT_EQ(file.source(), fixture("f4.npy"));
  EXPECT_EQ(elements(*file.entries().front().tensor), counting(6));
}

TEST(Open, views_stay_valid_when_the_file_object_moves) {
  for (const char* name : {"f4.npy", "stored.npz", "deflated.npz", "all_types.safetensors"}) {
    io::File file;
    ASSERT_FALSE(io::open(fixture(name), &file));
    const io::Entry first = file.entries().front();
    const io::File moved = std::move(file);
    EXPECT_EQ(elements(*first.tensor), elements(*moved.entries().front().tensor)) << name;
  }
}

TEST(Open, a_reader_called_on_another_format_refuses_it) {
  io::Contents contents;
  EXPECT_EQ(io::parse_npy(bytes_of("PK"), "x", &contents).message(),
            "[read] x: does not start with the npy magic");
  EXPECT_EQ(io::parse_safetensors(bytes_of("PK"), "x", &contents).message(),
            "[read] x: is truncated inside the header length");
}

TEST(AtomicFile, the_target_appears_on_commit_and_never_before) {
  const TemporaryFolder folder;
  folder.write("a", "old");
  {
    io::AtomicFile file;
    ASSERT_FALSE(file.create(folder.path("a")));
    ASSERT_FALSE(file.write(bytes_of("ne")));
    EXPECT_EQ(folder.read("a"), "old");
    ASSERT_FALSE(file.write(bytes_of("w")));
    ASSERT_FALSE(file.commit());
  }
  EXPECT_EQ(folder.read("a"), "new");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a"});
}

TEST(AtomicFile, without_commit_the_target_stays_and_no_temporary_is_left) {
  const TemporaryFolder folder;
  folder.write("a", "old");
  {
    io::AtomicFile file;
    ASSERT_FALSE(file.create(folder.path("a")));
    ASSERT_FALSE(file.write(bytes_of("new")));
    EXPECT_EQ(folder.names().size(), 2u);
  }
  EXPECT_EQ(folder.read("a"), "old");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a"});
}

TEST(AtomicFile, a_new_file_has_the_mode_that_the_umask_leaves) {
  const TemporaryFolder folder;
  const mode_t mask = ::umask(027);
  const Error error = io::write_file(folder.path("a"), bytes_of("x"));
  ::umask(mask);
  ASSERT_FALSE(error) << error.message();
  struct stat status {};
  ASSERT_EQ(::stat(folder.path("a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0640u);
}

TEST(AtomicFile, a_symbolic_link_is_written_through) {
  const TemporaryFolder folder;
  folder.write("real", "old");
  std::filesystem::create_symlink("real", folder.path("link"));
  ASSERT_FALSE(io::write_file(folder.path("link"), bytes_of("new")));
  EXPECT_EQ(folder.read("real"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path("link")));
}

TEST(AtomicFile, devices_folders_and_missing_folders_are_refused) {
  const TemporaryFolder folder;
  EXPECT_EQ(io::write_file("/dev/null", bytes_of("x")).message(),
            "[write] /dev/null: exists and is not a regular file");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_EQ(io::write_file(folder.path(""), bytes_of("x")).message(),
            "[write] " + folder.path("") + ": exists and is not a regular file");
  const std::string path = folder.path("missing/a");
  EXPECT_EQ(io::write_file(path, bytes_of("x")).message(),
            "[write] " + path + ": cannot be created: No such file or directory");
  EXPECT_TRUE(folder.names().empty());
}

TEST(Message, names_out_of_files_cannot_write_to_the_terminal) {
  EXPECT_EQ(io::in_quotes("plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x99\x82"),
            "\"plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x99\x82\"");
  EXPECT_EQ(io::in_quotes("\x1b[2J\n\x7f"), "\"\\x1b[2J\\x0a\\x7f\"");
  EXPECT_EQ(io::in_quotes("\xc2\x9b"), "\"\\xc2\\x9b\"");  // CSI in one character
  EXPECT_EQ(io::in_quotes("a\"b\\c"), "\"a\\\"b\\\\c\"");
  EXPECT_EQ(io::in_quotes("\xff"), "\"\\xff\"");
  EXPECT_EQ(io::on_one_line("a \"b\" \\ \xc3\xa9\x1b\n\xc2\x9b\xff"),
            "a \"b\" \\ \xc3\xa9\\x1b\\x0a\\xc2\\x9b\\xff");
  EXPECT_EQ(io::in_quotes(std::string(1000, 'a')), "\"" + std::string(80, 'a') + "...\"");
}

TEST(Message, utf8_is_told_from_what_only_looks_like_it) {
  for (const char* good : {"", "a", "\xc3\xa9", "\xe2\x82\xac", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_TRUE(io::is_utf8(good)) << good;
  for (const char* bad :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "\xe0\x9f\xbf", "\xe2\x82", "\xed\xa0\x80",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xfe", "a\xe2\x82z"})
    EXPECT_FALSE(io::is_utf8(bad)) << bad;
}

// The value of a binary float by its definition: sign, exponent field, fraction field.
double by_definition(unsigned bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1, special = (1 << exponent_bits) - 1;
  const int exponent = static_cast<int>(bits >> fraction_bits) & special;
  const double fraction = std::ldexp(bits & ((1u << fraction_bits) - 1), -fraction_bits);
  const double sign = bits >> (exponent_bits + fraction_bits) ? -1 : 1;
  if (exponent == special)
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  return exponent == 0 ? sign * std::ldexp(fraction, 1 - bias)
                       : sign * std::ldexp(1 + fraction, exponent - bias);
}

TEST(Widen, all_65536_patterns_of_f16_and_bf16_are_exact) {
  std::vector<f16> halves;
  std::vector<bf16> brains;
  for (unsigned bits = 0; bits < 65536; ++bits) {
    halves.push_back({static_cast<std::uint16_t>(bits)});
    brains.push_back({static_cast<std::uint16_t>(bits)});
  }
  std::vector<float> from_f16, from_bf16;
  ASSERT_FALSE(io::widen(view(halves.data(), {256, 256}), &from_f16));
  ASSERT_FALSE(io::widen(view(brains.data(), {256, 256}), &from_bf16));
  const auto expect_value = [](float value, double expected, unsigned bits) {
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
    } else {
      EXPECT_EQ(static_cast<double>(value), expected) << bits;
    }
    EXPECT_EQ(std::signbit(value), bits >> 15 == 1) << bits;
  };
  for (unsigned bits = 0; bits < 65536; ++bits) {
    expect_value(from_f16[bits], by_definition(bits, 5, 10), bits);
    expect_value(from_bf16[bits], by_definition(bits, 8, 7), bits);
  }
  EXPECT_EQ(std::bit_cast<std::uint32_t>(from_f16[0x7E01]), 0x7FC02000u);  // NaN payload kept
  EXPECT_EQ(std::bit_cast<std::uint32_t>(from_bf16[0x7FA5]), 0x7FA50000u);
}

TEST(Widen, strides_are_followed_and_other_dtypes_refused) {
  const std::vector<f16> halves = {{0x0000}, {0x3C00}, {0x4000}, {0x4200}};  // 0, 1, 2, 3
  std::vector<float> widened;
  ASSERT_FALSE(io::widen(view(halves.data(), {2, 2}, {1, 2}), &widened));
  EXPECT_EQ(widened, (std::vector<float>{0, 2, 1, 3}));
  const double value = 1;
  EXPECT_EQ(io::widen(view(&value, {1}), &widened).message(),
            "[widen] tensor: dtype f64 is none of f16, bf16 and f32");
  ConstTensor deep = view(halves.data(), {1});
  deep.rank = 5;
  EXPECT_EQ(io::widen(deep, &widened).message(), "[widen] tensor: rank 5 is not in 0 ... 4");
}

}  // namespace
}  // namespace poise::test
