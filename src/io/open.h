// One door to every tensor file: npy, npz or safetensors, told apart by content.
//
// In: a path, or bytes in memory with a label for messages. Out: a File that owns the memory map
// and the decoded buffers; every tensor it hands out is a view that lives as long as the File.
// Hostile files are refused with one sentence; the memory taken beyond the map is at most the
// file's size (realigned data), for npz twice kMaxInflation times it (npz.h).
#pragma once

#include <poise/error.h>
#include <poise/tensor.h>

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/contents.h"
#include "io/mapped_file.h"

namespace poise::io {

class File {
 public:
  const std::string& source() const { return source_; }  // the path, or the label
  Format format() const { return contents_.format; }
  std::int64_t size_bytes() const { return size_bytes_; }
  const std::vector<Entry>& entries() const { return contents_.entries; }
  const std::map<std::string, std::string>& metadata() const { return contents_.metadata; }

  // The entry of that name, nullptr when there is none. Cost: linear in the entries.
  const Entry* find(std::string_view name) const;
  // The view of an entry. Errors: bad_file when there is no such entry, or when poise cannot view
  // it (rank above kMaxRank, a dtype it does not have); the sentence names file and entry.
  Error tensor(std::string_view name, ConstTensor* tensor) const;
  // The same for an entry of this file, without the search.
  Error tensor(const Entry& entry, ConstTensor* tensor) const;

 private:
  friend Error open(const std::string& path, File* file);
  friend Error open_memory(std::span<const std::byte> bytes, const std::string& label, File* file);

  std::string source_;
  std::int64_t size_bytes_ = 0;
  MappedFile map_;
  Contents contents_;
};

// Maps and parses the file. Errors: bad_file with one sentence that starts "[read] <path>: ";
// out_of_memory. *file changes on success only. Cost: header only for aligned npy and safetensors;
// npz reads everything (checksums).
Error open(const std::string& path, File* file);

// The same for bytes in memory, which must outlive *file and every tensor taken from it.
Error open_memory(std::span<const std::byte> bytes, const std::string& label, File* file);

}  // namespace poise::io
