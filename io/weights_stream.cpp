// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/io/weights_stream.hpp>
#include <kozero/io/whole_file.hpp>

namespace kozero::io {

WeightsStream::WeightsStream(const std::string& path, const WeightsDescription& description)
    : path_(path), file_(partial_name(path), Hdf5Access::create, nullptr) {
  begin_weights(file_, description);
}

Hdf5Dataset WeightsStream::create(const Parameter& row) {
  return file_.create_dataset(weights_dataset(row.name), row.shape);
}

void WeightsStream::close() {
  file_.close();
  publish(path_);
}

}  // namespace kozero::io
