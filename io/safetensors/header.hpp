// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// header.hpp: the header of a safetensors file: its JSON read as entries, and each entry checked.
//   {"NAME": {"dtype": "F32", "shape": [4, 5], "data_offsets": [0, 80]}, ..., "__metadata__": {"KEY": "TEXT"}}
// Byte counts use checked arithmetic; tensors must cover the file without overlaps or holes. Event by event, text that
// the format does not allow is rejected, as is a key given twice. So a hostile header (depth, huge numbers, a million
// dims) builds nothing; memory stays below the header's size + 100 MB. Throws Error(input) naming the file and the
// tensor. Format: github.com/huggingface/safetensors.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kozero::io {

inline constexpr std::int64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::size_t kMaxTensors = 200'000;
inline constexpr std::size_t kMaxTensorDims = 8;

struct TensorEntry {
  std::string name;
  std::string dtype;  ///< "F32", "F16", "BF16", ...
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  ///< bytes from the end of the header
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t extent() const;  ///< elements
};

/// Bytes of one element; 0 for a dtype that the format does not have.
std::int64_t bytes_of_dtype(std::string_view dtype);

/// The entries in the order of their bytes. `path` is for messages; `data_bytes`: the file's size without the header.
/// Throws Error(input): "PATH: tensor NAME: REASON", always one line.
std::vector<TensorEntry> parse_safetensors_header(const std::string& path, std::string_view header,
                                                  std::int64_t data_bytes);

/// A name from a file, for messages: printable ASCII, at most 100 characters.
std::string shown(std::string_view name);

/// "(4, 5)".
std::string shape_text(const std::vector<std::int64_t>& shape);

/// "element (3, 7) is nan" for the first of a tensor's elements from `first` on that is not finite; "" if all are.
std::string text_of_non_finite(const std::vector<std::int64_t>& shape, std::int64_t first,
                               std::span<const float> values);

/// Checks only the grammar. Entries are in the order of the text; names may repeat, and numbers may be anything from 0
/// to 2^63 - 1. Throws Error(input).
std::vector<TensorEntry> read_header_entries(const std::string& path, std::string_view header);

}  // namespace kozero::io
