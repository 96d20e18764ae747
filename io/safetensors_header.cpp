// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <unordered_set>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/io/safetensors_entries.hpp>
#include <kozero/io/safetensors_header.hpp>

namespace kozero::io {
namespace {

constexpr std::array<std::pair<std::string_view, std::int64_t>, 15> kDtypes = {{{"F64", 8},
                                                                                {"F32", 4},
                                                                                {"F16", 2},
                                                                                {"BF16", 2},
                                                                                {"I64", 8},
                                                                                {"I32", 4},
                                                                                {"I16", 2},
                                                                                {"I8", 1},
                                                                                {"U64", 8},
                                                                                {"U32", 4},
                                                                                {"U16", 2},
                                                                                {"U8", 1},
                                                                                {"BOOL", 1},
                                                                                {"F8_E4M3", 1},
                                                                                {"F8_E5M2", 1}}};

[[noreturn]] void refuse(const std::string& path, const TensorEntry& entry, const std::string& reason) {
  throw Error(Failure::input, path + ": tensor " + shown(entry.name) + ": " + reason);
}

std::string bytes_text(const TensorEntry& entry) {
  return "bytes " + std::to_string(entry.begin) + " to " + std::to_string(entry.end);
}

/// dtype * shape = bytes, and the bytes lie in the file.
void check_extent(const std::string& path, const TensorEntry& entry, std::int64_t data_bytes) {
  std::int64_t bytes = bytes_of_dtype(entry.dtype);
  if (bytes == 0) refuse(path, entry, "dtype " + shown(entry.dtype) + " is not one of the format's");
  for (const std::int64_t dim : entry.shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) {
      refuse(path, entry, "shape " + shape_text(entry.shape) + " has more bytes than 64 bits can count");
    }
  }
  if (entry.begin > entry.end) refuse(path, entry, bytes_text(entry) + " end before they begin");
  if (entry.end > data_bytes) {
    refuse(path, entry, bytes_text(entry) + " lie beyond the file's " + std::to_string(data_bytes) +
                            " bytes of data: it is truncated");
  }
  if (entry.end - entry.begin != bytes) {
    refuse(path, entry, bytes_text(entry) + " are " + std::to_string(entry.end - entry.begin) + ", but " + entry.dtype +
                            " " + shape_text(entry.shape) + " takes " + std::to_string(bytes));
  }
}

/// The entries, in the order of their bytes, cover [0, data_bytes) exactly.
void check_cover(const std::string& path, const std::vector<TensorEntry>& entries, std::int64_t data_bytes) {
  std::int64_t covered = 0;
  const TensorEntry* previous = nullptr;
  for (const auto& entry : entries) {
    if (entry.begin < covered) refuse(path, entry, bytes_text(entry) + " overlap tensor " + shown(previous->name));
    if (entry.begin > covered) {
      refuse(path, entry, "a hole of " + std::to_string(entry.begin - covered) + " bytes lies before it");
    }
    covered = entry.end;
    previous = &entry;
  }
  if (covered != data_bytes) {
    throw Error(Failure::input, path + ": " + std::to_string(data_bytes - covered) + " bytes behind the last tensor");
  }
}

void check_names(const std::string& path, const std::vector<TensorEntry>& entries) {
  std::unordered_set<std::string_view> names;
  for (const auto& entry : entries) {
    if (entry.name.empty()) throw Error(Failure::input, path + ": a tensor without a name");
    if (!names.insert(entry.name).second) refuse(path, entry, "its name is there twice");
  }
}

}  // namespace

std::int64_t TensorEntry::extent() const { return (end - begin) / bytes_of_dtype(dtype); }

std::int64_t bytes_of_dtype(std::string_view dtype) {
  const auto found = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const auto& row) { return row.first == dtype; });
  return found == kDtypes.end() ? 0 : found->second;
}

std::string shown(std::string_view name) {
  constexpr std::size_t kMost = 100;
  std::string text(name.substr(0, kMost));
  for (char& letter : text) {
    if (letter < ' ' || letter > '~') letter = '?';
  }
  return name.size() > kMost ? text + "..." : text;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + ")";
}

std::vector<TensorEntry> parse_safetensors_header(const std::string& path, std::string_view header,
                                                  std::int64_t data_bytes) {
  auto entries = read_header_entries(path, header);
  check_names(path, entries);
  for (const auto& entry : entries) check_extent(path, entry, data_bytes);
  std::sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  check_cover(path, entries, data_bytes);
  return entries;
}

}  // namespace kozero::io
