// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// safetensors_writer.hpp: writes a safetensors file of f32 tensors as a stream.
// The shapes come first, so the header is complete before any value; then the values, in the same order and in pieces
// of any size. The file appears under its name when all are there (see whole_file.hpp).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <kozero/io/file_descriptor.hpp>

namespace kozero::io {

struct PlannedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  [[nodiscard]] std::int64_t bytes() const;
};

/// Throws Error(write).
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, const std::vector<PlannedTensor>& tensors);

  void append(const float* values, std::int64_t count);
  /// All values must have come. Syncs and publishes.
  void close();

 private:
  std::string path_;
  FileDescriptor file_;
  std::int64_t missing_ = 0;  ///< bytes that are still to come
};

}  // namespace kozero::io
