// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// folder.hpp: used by import and export: tensor names, tensors in chunks, and an output folder complete or absent.
//   GPT2LMHeadModel writes "transformer.h.0...", the published GPT-2 has "h.0..."; lm_head never has the prefix
// A chunk has at most 16 MiB of f32, so that memory does not grow with the model. The output folder is filled as
// OUT.partial, then renamed to OUT; a folder that is not committed is removed.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <kozero/core/parameter_table.hpp>
#include <kozero/huggingface/export.hpp>
#include <kozero/model/config.hpp>
#include "io/checkpoint/tensor_groups.hpp"
#include "io/posix/file.hpp"
#include "io/posix/named_file.hpp"
#include "io/safetensors/reader.hpp"

namespace kozero::huggingface {

inline constexpr std::int64_t kChunk = 4 << 20;  ///< elements

/// Calls visit(first, count) for consecutive chunks of [0, extent).
template <class Visit>
void for_each_chunk(std::int64_t extent, Visit visit) {
  for (std::int64_t first = 0; first < extent; first += kChunk) visit(first, std::min(kChunk, extent - first));
}

/// The name of the table's tensor in transformers' own files.
std::string exported_name(const model::Config& config, const std::string& name);

/// The stored tensor of each row of the table, in the table's order. Shapes and names must be the model's; no tensor
/// may be missing or left over, except buffers of old versions and the second copy of a tied embedding. Throws
/// Error(input) naming file, tensor and reason.
std::vector<io::StoredTensor> tensors_of(const model::Config& config, const ParameterTable& table,
                                         const io::SafetensorsFolder& folder);

/// Elements [first, first + count) of the tensor, as f32. Throws Error(input) naming the first that is not finite.
void read_finite(const io::StoredTensor& tensor, std::int64_t first, std::int64_t count, float* to);

/// Fills a shard from the stored tensors of the table's rows, pads with zeros. Throws Error(input), also if a value is
/// not finite.
void read_shard(const ParameterTable& table, const std::vector<io::StoredTensor>& tensors,
                const io::RangeValues<float>& shard);

[[noreturn]] void refuse_tensor(const std::string& path, const std::string& tensor, const std::string& reason);

/// A stored type's names on the command line, in safetensors and in transformers.
struct StoredType {
  const char* name;
  const char* safetensors;
  const char* transformers;
};

/// The type of `--dtype name`. Throws Error(deck).
const StoredType& stored_type(const std::string& name);

/// A folder that is complete or absent. OUT must be empty or absent, or an older export that is to be replaced.
class FolderGuard {
 public:
  /// With `force`, commit() replaces an OUT with an exported model (config.json, no deck.toml) or with exported
  /// adapters. Throws Error(deck) if
  /// OUT must not be replaced, Error(write) if the partial folder cannot be made.
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

inline constexpr std::int64_t kMaxTokenizerBytes = 256 << 20;

/// Copies a tokenizer's file byte for byte. Throws Error(input or write).
inline void copy_tokenizer(const std::string& from, const std::string& to) {
  io::write_whole_file(to, io::read_named_file(from, kMaxTokenizerBytes));
}

}  // namespace kozero::huggingface
