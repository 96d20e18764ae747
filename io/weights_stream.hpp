// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// weights_stream.hpp: writes a weights file (weights.hpp) on one process, tensor by tensor, whole or in pieces.
// Every element of each tensor must be written before its dataset is closed. Throws Error(write).
#pragma once
#include <kozero/io/hdf5_file.hpp>
#include <kozero/io/weights.hpp>

namespace kozero::io {

class WeightsStream {
 public:
  WeightsStream(const std::string& path, const WeightsDescription& description);
  /// The tensor's dataset, to be written and closed before the next one.
  Hdf5Dataset create(const Parameter& row);
  /// Syncs and gives the file its name.
  void close();

 private:
  std::string path_;
  Hdf5File file_;
};

}  // namespace kozero::io
