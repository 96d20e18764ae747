// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// writer.hpp: writes a safetensors file as a stream of f32 values, stored as F32, BF16 or F16.
// The header is written first, from the tensors' shapes; then the values in the same order, in chunks of any size.
// 16-bit values are rounded to nearest, ties to even; a finite value that would become infinity is rejected. The file
// is renamed to its name when it is complete (file.hpp).
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

/// Throws Error(write), and Error(input) naming a tensor with a value beyond the range of its dtype.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, const std::vector<PlannedTensor>& tensors);

  /// The next values, of one tensor or of several.
  void append(const float* values, std::int64_t count);
  /// Call after all values. Syncs and renames the file.
  void close();

 private:
  void skip_complete();
  /// Values of the next tensor, at most as many as it still lacks.
  void append_to_tensor(const float* values, std::int64_t count);

  std::string path_;
  FileDescriptor file_;
  std::vector<PlannedTensor> tensors_;
  std::size_t next_ = 0;      ///< index of the tensor that is being written
  std::int64_t written_ = 0;  ///< its values so far
  std::vector<std::uint16_t> narrow_;
};

}  // namespace kozero::io
