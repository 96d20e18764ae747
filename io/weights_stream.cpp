// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/dist/self_communicator.hpp>
#include <kozero/io/seal.hpp>
#include <kozero/io/weights_stream.hpp>
#include <kozero/io/whole_file.hpp>

namespace kozero::io {

WeightsStream::WeightsStream(const std::string& path, const ParameterTable& table,
                             const WeightsDescription& description)
    : path_(path),
      description_(description),
      places_(lay_out_file(partial_name(path), table, {kParameterGroup}, description, kSealBytes).front()),
      file_(partial_name(path), FileDescriptor::Use::update) {}

void WeightsStream::write(std::size_t index, std::int64_t first, std::span<const float> values) const {
  file_.write_at({reinterpret_cast<const char*>(values.data()), values.size_bytes()},
                 places_[index].offset + first * static_cast<std::int64_t>(sizeof(float)));
}

void WeightsStream::close() {
  file_.sync();
  file_.close();
  seal_file(*dist::make_self_communicator(), partial_name(path_), description_);
  publish(path_);
}

}  // namespace kozero::io
