// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// writer.hpp: writes a safetensors file as a stream of f32 values, stored as F32, BF16 or F16.
// The shapes come first, so the header is complete before any value; then the values, in the same order and in chunks
// of any size. 16-bit values are the nearest, ties to even; one that only infinity is near to is refused.
// The file appears under its name when all values are there (see file.hpp).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "io/posix/file.hpp"

namespace kozero::io {

struct PlannedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string dtype = "F32";
  [[nodiscard]] std::int64_t extent() const;
  [[nodiscard]] std::int64_t bytes() const;
};

/// Throws Error(write), and Error(input) naming the tensor whose value its dtype cannot hold.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, const std::vector<PlannedTensor>& tensors);

  /// The next values, of one tensor or of several.
  void append(const float* values, std::int64_t count);
  /// All values must have come. Syncs and publishes.
  void close();

 private:
  void skip_complete();
  /// Values of the tensor that is next, at most those it still lacks.
  void append_to_tensor(const float* values, std::int64_t count);

  std::string path_;
  FileDescriptor file_;
  std::vector<PlannedTensor> tensors_;
  std::size_t next_ = 0;      ///< the tensor that is being written
  std::int64_t written_ = 0;  ///< its values so far
  std::vector<std::uint16_t> narrow_;
};

}  // namespace kozero::io
