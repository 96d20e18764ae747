// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// safetensors.hpp: a safetensors file, or a folder of its shards, opened for reading.
//   8 bytes: n, little endian | n bytes: the header, JSON | the tensors' bytes, row-major, little endian
//   a folder holds model.safetensors, or shards with model.safetensors.index.json: {"weight_map": {"NAME": "FILE"}}
// Opening checks everything that safetensors_header.hpp lists, and that index and shards agree; after that only the
// elements asked for are read, with pread: a file that is cut off meanwhile is an error, not a signal.
#pragma once
#include <map>
#include <string>
#include <vector>

#include <kozero/io/file_descriptor.hpp>
#include <kozero/io/safetensors_header.hpp>

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
  /// file, another for weights that were trained further.
  [[nodiscard]] std::string fingerprint() const;
  /// Throws Error(input) where the file was written to since it was opened.
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
  /// The file that says what the folder holds: for messages.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// As SafetensorsFile's, of all files.
  [[nodiscard]] std::string fingerprint() const;
  void require_unchanged() const;

 private:
  void add(const SafetensorsFile& file);

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, StoredTensor> tensors_;
};

inline constexpr const char* kSafetensorsFile = "model.safetensors";
inline constexpr const char* kSafetensorsIndex = "model.safetensors.index.json";

}  // namespace kozero::io
