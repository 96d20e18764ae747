// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// weights_stream.hpp: writes a weights file (weights.hpp) on one process, tensor by tensor, in pieces of any size.
// Every element of every tensor must be written before the file is closed. Throws Error(write).
#pragma once
#include <span>
#include <string>
#include <vector>

#include <kozero/io/file_descriptor.hpp>
#include <kozero/io/laid_out_file.hpp>

namespace kozero::io {

class WeightsStream {
 public:
  WeightsStream(const std::string& path, const ParameterTable& table, const WeightsDescription& description);
  /// Elements [first, first + values.size()) of the table's tensor `index`.
  void write(std::size_t index, std::int64_t first, std::span<const float> values) const;
  /// Syncs and seals the file and gives it its name.
  void close();

 private:
  std::string path_;
  WeightsDescription description_;
  std::vector<TensorPlace> places_;
  FileDescriptor file_;
};

}  // namespace kozero::io
