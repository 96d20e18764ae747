// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// folder.hpp: what import and export share: tensor names, tensors in chunks, and an output folder complete or absent.
//   GPT2LMHeadModel writes "transformer.h.0...", the published GPT-2 has "h.0..."; lm_head never has the prefix
// A chunk has at most 16 MiB of f32. The output folder is filled as OUT.partial, then renamed to OUT; a folder that is
// not committed is removed.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include <kozero/core/parameter_table.hpp>
#include <kozero/model/config.hpp>
#include "io/posix/file.hpp"
#include "io/safetensors/reader.hpp"

namespace kozero::huggingface {

// A tensor of any size in chunks of at most 16 MiB of f32, so that memory does not grow with the model.

inline constexpr std::int64_t kChunk = 4 << 20;  ///< elements

/// Calls visit(first, count) for consecutive chunks of [0, extent).
template <class Visit>
void for_each_chunk(std::int64_t extent, Visit visit) {
  for (std::int64_t first = 0; first < extent; first += kChunk) visit(first, std::min(kChunk, extent - first));
}

// The table's tensor names and those of Hugging Face's files, which differ for GPT-2 alone.
//   GPT2LMHeadModel writes "transformer.h.0...", the published GPT-2 has "h.0..."; lm_head never has the prefix

/// The name that transformers' own files have for the table's tensor.
std::string exported_name(const model::Config& config, const std::string& name);

/// Where each row of the table lies in the folder, in the table's order. Shapes and names must be the model's, no
/// tensor may be missing and none left over, but for buffers of old versions and the second copy of a tied embedding.
/// Throws Error(input) naming file, tensor and reason.
std::vector<io::StoredTensor> tensors_of(const model::Config& config, const ParameterTable& table,
                                         const io::SafetensorsFolder& folder);

// A folder that is complete or absent: filled as OUT.partial, then renamed to OUT.
// An OUT that holds anything is refused, but for an older export that is to be replaced; what is not committed is
// removed.

class FolderGuard {
 public:
  /// With `force`, an OUT that holds an exported model (config.json, no deck.toml) is replaced by commit(). Throws
  /// Error(deck) where OUT is taken, Error(write) where the partial folder cannot be made.
  explicit FolderGuard(const std::string& out, bool force = false);
  ~FolderGuard();
  FolderGuard(const FolderGuard&) = delete;
  FolderGuard& operator=(const FolderGuard&) = delete;

  /// The path of a file of the folder, while it is filled.
  [[nodiscard]] std::string operator/(const std::string& name) const { return partial_ + "/" + name; }
  /// Throws Error(write).
  void commit();

 private:
  std::string out_;
  std::string partial_;
  bool committed_ = false;
};

// A tokenizer's file from one folder to another, byte for byte.

inline constexpr std::int64_t kMaxTokenizerBytes = 256 << 20;

/// Throws Error(input or write).
inline void copy_tokenizer(const std::string& from, const std::string& to) {
  io::write_whole_file(to, io::read_whole_file(from, kMaxTokenizerBytes));
}

}  // namespace kozero::huggingface
