// .npz: what NumPy writes is read, stored and deflated; hostile archives are one sentence.
//
// In: archives of tests/io (written by NumPy), archives built byte by byte.
// ctest-labels: unit fast
#include "io/npz.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "io/zip.h"
#include "support/file_builder.h"
#include "support/tensor_files.h"

namespace poise::test {
namespace {

const std::string kArray = npy_bytes(npy_dict("<f4", "(2,)"), std::string(8, '\0'));

TEST(Npz, archives_that_numpy_writes_are_read) {
  for (const char* name : {"stored.npz", "deflated.npz", "streamed.npz"}) {
    SCOPED_TRACE(name);
    io::File file;
    const Error error = io::open(fixture(name), &file);
    ASSERT_FALSE(error) << error.message();
    EXPECT_EQ(file.format(), io::Format::npz);
    ConstTensor q, k, mask;
    ASSERT_FALSE(file.tensor("q", &q));
    ASSERT_FALSE(file.tensor("k", &k));
    ASSERT_FALSE(file.tensor("mask", &mask));
    EXPECT_EQ(elements(q), counting(24));
    EXPECT_EQ(q.rank, 4);
    EXPECT_EQ(elements(k), counting(20));
    EXPECT_EQ(k.stride(0), 1);
    EXPECT_EQ(k.dtype, DType::f64);
    EXPECT_EQ(elements(mask), counting(15, DType::boolean));
    EXPECT_EQ(file.find("q.npy"), nullptr);
  }
}

TEST(Npz, a_member_that_deflate_made_small_is_decoded_whole) {
  io::File file;
  ASSERT_FALSE(io::open(fixture("deflated.npz"), &file));
  const io::Entry* zeros = file.find("zeros");
  ASSERT_NE(zeros, nullptr);
  EXPECT_TRUE(zeros->deflated);
  EXPECT_LT(zeros->end - zeros->begin, 300);
  EXPECT_EQ(zeros->size_bytes, 64 * 64 * 4);
  EXPECT_EQ(elements(*zeros->tensor), std::vector<double>(64 * 64, 0.0));
}

TEST(Npz, an_archive_without_members_is_legal) {
  io::File file;
  ASSERT_FALSE(io::open(fixture("empty.npz"), &file));
  EXPECT_TRUE(file.entries().empty());
  ConstTensor tensor;
  EXPECT_EQ(file.tensor("q", &tensor).message(),
            "[read] " + fixture("empty.npz") + ": has no tensor \"q\"");
}

TEST(Npz, zip64_sizes_and_end_records_are_read) {
  for (const bool deflated : {false, true}) {
    const Opened opened(
        zip_bytes({{.name = "a.npy", .content = kArray, .deflated = deflated, .zip64 = true},
                   {.name = "b.npy", .content = kArray, .zip64 = true}},
                  {.zip64 = true}));
    ASSERT_FALSE(opened.error) << opened.error.message();
    EXPECT_EQ(opened.file.entries().size(), 2u);
    EXPECT_EQ(elements(*opened.file.find("b")->tensor), std::vector<double>(2, 0.0));
  }
}

TEST(Npz, stored_and_deflated_members_tell_where_they_are) {
  const Opened opened(zip_bytes({{.name = "a.npy", .content = kArray},
                                 {.name = "b.npy", .content = kArray, .deflated = true}}));
  ASSERT_FALSE(opened.error) << opened.error.message();
  const io::Entry *a = opened.file.find("a"), *b = opened.file.find("b");
  EXPECT_EQ(opened.bytes.substr(static_cast<std::size_t>(a->begin), 8), std::string(8, '\0'));
  EXPECT_EQ(a->end - a->begin, 8);
  EXPECT_EQ(opened.bytes.substr(static_cast<std::size_t>(b->begin),
                                static_cast<std::size_t>(b->end - b->begin)),
            stored_blocks(kArray));
}

TEST(Npz, hostile_directories_are_refused_with_one_sentence) {
  const ZipPart a{.name = "a.npy", .content = kArray}, b{.name = "b.npy", .content = kArray};
  const std::string good = zip_bytes({a, b});
  const std::string no_end =
      "the zip end record is not its last 22 bytes: truncated, or followed by something";
  ASSERT_EQ(refusal(good), "");
  const auto with = [](ZipPart part, auto change) {
    change(part);
    return part;
  };
  const std::string differs = "the local header of member \"a.npy\" differs from the directory";
  expect_refusals({
      {"truncated", good.substr(0, good.size() - 1), no_end},
      {"half", good.substr(0, good.size() / 2), no_end},
      {"only the magic", good.substr(0, 4), no_end},
      {"trailing", good + "x", no_end},
      {"name twice", zip_bytes({a, a}), "has two members called \"a.npy\""},
      {"offset of another member",
       zip_bytes({a, with(b, [](ZipPart& p) { p.name = "a2.npy"; }),
                  with(a, [](ZipPart& p) { p.name = "a3.npy", p.offset = 0; })}),
       "the local header of member \"a3.npy\" differs from the directory"},
      {"hole before a member", zip_bytes({a, with(b, [](ZipPart& p) { p.gap = "hidden"; })}),
       "has a hole of 6 bytes before member \"b.npy\""},
      {"hole of a descriptor's size without a descriptor",
       zip_bytes({a, with(b, [](ZipPart& p) { p.gap = std::string(16, 'x'); })}),
       "has a hole of 16 bytes before member \"b.npy\""},
      {"hole before the directory", zip_bytes({a}, {.gap = "hidden"}),
       "has a hole of 6 bytes before the zip directory"},
      {"count", zip_bytes({a}, {.count = 2}),
       "the zip directory has 1 members, its end record says 2"},
      {"directory size", zip_bytes({a}, {.directory_size = 50}),
       "the zip directory (50 bytes at 111) does not end at its end record, 162"},
      {"encrypted", zip_bytes({with(a, [](ZipPart& p) { p.flags = 1; })}),
       "member \"a.npy\" is encrypted"},
      {"method", zip_bytes({with(a, [](ZipPart& p) { p.method = 14; })}),
       "member \"a.npy\" has compression method 14, expected 0 (stored) or 8 (deflate)"},
      {"offset past the members", zip_bytes({with(a, [](ZipPart& p) { p.offset = 1000; })}),
       "member \"a.npy\" starts at 1000, past the members' end 111"},
      {"offset beyond int64",
       zip_bytes({with(a, [](ZipPart& p) { p.offset = UINT64_MAX, p.zip64 = true; })}),
       "member \"a.npy\" starts at 18446744073709551615, past the members' end 111"},
      {"other local name", zip_bytes({with(a, [](ZipPart& p) { p.local_name = "x.npy"; })}),
       differs},
      {"stored past the end", zip_bytes({with(a, [](ZipPart& p) { p.stored = 5000; })}),
       "member \"a.npy\" is truncated: 5000 bytes claimed, 76 are left"},
      {"size beyond int64",
       zip_bytes({with(a, [](ZipPart& p) { p.size = UINT64_MAX, p.zip64 = true; })}),
       "member \"a.npy\" claims 18446744073709551615 bytes"},
      {"stored with two sizes", zip_bytes({with(a, [](ZipPart& p) { p.size = 79; })}),
       "stored member \"a.npy\" claims 79 bytes in 76"},
      {"zip64 sizes missing", zip_bytes({with(a, [](ZipPart& p) { p.size = 0xFFFFFFFF; })}),
       "member \"a.npy\" lacks its zip64 sizes"},
      {"NUL in name", zip_bytes({with(a, [](ZipPart& p) { p.name = std::string("a\0b.npy", 7); })}),
       "the name \"a\\x00b.npy\" contains a NUL byte"},
      {"name not UTF-8", zip_bytes({with(a, [](ZipPart& p) { p.name = "\xff.npy"; })}),
       "the name \"\\xff.npy\" is not UTF-8"},
  });
}

TEST(Npz, overlapping_members_are_refused) {
  // The first member's data is a whole second member: header and content of b.npy lie inside it.
  const std::string inner = zip_bytes({{.name = "b.npy", .content = kArray}});
  const std::string record = inner.substr(0, 30 + 5 + kArray.size());
  const std::string archive = zip_bytes(
      {{.name = "a.npy", .content = record}, {.name = "b.npy", .content = kArray, .offset = 35}});
  EXPECT_EQ(refusal(archive), "member \"b.npy\" overlaps the member before it");
}

TEST(Npz, hostile_members_are_refused_with_one_sentence) {
  const ZipPart stored{.name = "a.npy", .content = kArray};
  const ZipPart deflated{.name = "a.npy", .content = kArray, .deflated = true};
  const auto with = [](ZipPart part, auto change) {
    change(part);
    return zip_bytes({part});
  };
  const std::string who = "member \"a.npy\": ", corrupt = who + "its deflate stream is corrupt";
  ASSERT_EQ(refusal(zip_bytes({deflated})), "");
  expect_refusals({
      {"stored checksum", with(stored, [](ZipPart& p) { p.crc = 1; }),
       who + "its checksum is wrong"},
      {"deflated checksum", with(deflated, [](ZipPart& p) { p.crc = 1; }),
       who + "its checksum is wrong"},
      {"no array", with(stored, [](ZipPart& p) { p.name = "a.txt"; }),
       "member \"a.txt\": is no array, its name does not end in .npy"},
      {"no npy inside", with(stored, [](ZipPart& p) { p.content = "hello"; }),
       who + "does not start with the npy magic"},
      {"no npy deflated", with(deflated, [](ZipPart& p) { p.content = "hello"; }),
       who + "does not start with the npy magic"},
      {"nothing deflated", with(deflated, [](ZipPart& p) { p.content = ""; }),
       who + "does not start with the npy magic"},
      {"claims too little", with(deflated, [](ZipPart& p) { p.size = 75; }),
       who + "shape [2] of <f4 needs 8 bytes, the archive claims 7"},
      {"claims too much", with(deflated, [](ZipPart& p) { p.size = 79; }), corrupt},
      {"claims a terabyte", with(deflated, [](ZipPart& p) { p.size = 1ull << 40, p.zip64 = true; }),
       who + "claims 1099511627776 bytes, more than 81 deflated bytes can hold"},
      {"claims 2^63 - 1", with(deflated, [](ZipPart& p) { p.size = INT64_MAX, p.zip64 = true; }),
       who + "claims 9223372036854775807 bytes, more than 81 deflated bytes can hold"},
      {"stream cut",
       with(deflated, [](ZipPart& p) { p.raw = stored_blocks(kArray).substr(0, 60); }), corrupt},
      {"stream of noise", with(deflated, [](ZipPart& p) { p.raw = std::string(100, '\xff'); }),
       corrupt},
      {"bytes after the stream",
       with(deflated, [](ZipPart& p) { p.raw = stored_blocks(kArray) + "x"; }), corrupt},
      {"array with trailing bytes", with(stored, [](ZipPart& p) { p.content += "x"; }),
       who + "shape [2] of <f4 needs 8 bytes, the file has 9: trailing bytes"},
  });
}

TEST(Npz, a_claimed_size_is_compared_with_the_array_before_it_is_allocated) {
  // 2^26 bytes claimed for 70 KiB of data are within deflate's reach, so only the npy header inside
  // can tell that they are not what the array needs.
  const std::string content = kArray + std::string(70000, '\0');
  EXPECT_EQ(refusal(zip_bytes(
                {{.name = "a.npy", .content = content, .deflated = true, .size = 1u << 26}})),
            "member \"a.npy\": shape [2] of <f4 needs 8 bytes, the archive claims 67108796");
}

}  // namespace
}  // namespace poise::test
