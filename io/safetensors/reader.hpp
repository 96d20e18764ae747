// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// reader.hpp: a safetensors file, or a folder of shards with model.safetensors.index.json, opened for reading.
//   8 bytes: n, little endian | n bytes: the header, JSON | the tensors' bytes, row-major, little endian
//   index: {"metadata": {"total_size": BYTES}, "weight_map": {"NAME": "model-00001-of-00002.safetensors", ...}}
// Opening checks the headers (header.hpp), and index and shards against each other. A shard is a plain file name in the
// same folder. Afterwards only the requested elements are read, by pread as f32: a file that is truncated meanwhile is
// an error, not a signal. Throws Error(input) naming the file.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "io/posix/file.hpp"
#include "io/safetensors/header.hpp"

namespace kozero::io {

class SafetensorsFile {
 public:
  /// Throws Error(input): one line naming file, tensor and reason.
  explicit SafetensorsFile(const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::vector<TensorEntry>& entries() const { return entries_; }
  /// Elements [first, first + count) of an F32, F16 or BF16 tensor, as f32 (exact).
  void read(const TensorEntry& entry, std::int64_t first, std::int64_t count, float* to) const;
  /// XXH3-128 of the file's size, its header and the first 64 bytes of every tensor: equal on ranks that read the same
  /// file, different for weights that were trained further.
  [[nodiscard]] std::string fingerprint() const;
  /// Throws Error(input) if the file was written to since it was opened.
  void require_unchanged() const;

 private:
  std::string path_;
  FileDescriptor file_;
  FileDescriptor::Stamp opened_;
  std::int64_t data_begin_ = 0;
  std::vector<TensorEntry> entries_;
};

/// One tensor of a folder.
struct StoredTensor {
  const SafetensorsFile* file = nullptr;
  const TensorEntry* entry = nullptr;
};

class SafetensorsFolder {
 public:
  explicit SafetensorsFolder(const std::string& folder);
  SafetensorsFolder(const SafetensorsFolder&) = delete;
  SafetensorsFolder& operator=(const SafetensorsFolder&) = delete;

  [[nodiscard]] const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  /// The index or the only file of the folder, for messages.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Which files count, if the folder has a single file and an index; else "".
  [[nodiscard]] const std::string& note() const { return note_; }
  /// The fingerprint of all files.
  [[nodiscard]] std::string fingerprint() const;
  void require_unchanged() const;

 private:
  void add(const SafetensorsFile& file);

  std::string path_;
  std::string note_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, StoredTensor> tensors_;
};

inline constexpr const char* kSafetensorsFile = "model.safetensors";
inline constexpr const char* kSafetensorsIndex = "model.safetensors.index.json";

struct StoredTensor;

using WeightMap = std::map<std::string, std::string>;  ///< tensor -> file

/// Throws Error(input).
WeightMap read_safetensors_index(const std::string& path);

/// The files, each once, sorted.
std::vector<std::string> shards_of(const WeightMap& map);

/// Throws Error(input), naming a tensor, unless the shards have exactly the tensors of the index.
void check_safetensors_index(const std::string& path, const WeightMap& map,
                             const std::map<std::string, StoredTensor>& tensors);

/// The index's text for `map`.
std::string safetensors_index_text(const WeightMap& map, std::int64_t total_bytes);

}  // namespace kozero::io
