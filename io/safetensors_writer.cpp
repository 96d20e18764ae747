// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include <cstring>

#include <kozero/core/error.hpp>
#include <kozero/io/safetensors_writer.hpp>
#include <kozero/io/whole_file.hpp>

namespace kozero::io {
namespace {

/// Length and header, padded with blanks so that the data begin on an 8-byte border.
std::string head_of(const std::vector<PlannedTensor>& tensors) {
  nlohmann::ordered_json json = {{"__metadata__", {{"format", "pt"}}}};
  std::int64_t begin = 0;
  for (const auto& tensor : tensors) {
    const std::int64_t end = begin + tensor.bytes();
    json[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string header = json.dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = header.size();
  std::string head(sizeof(length), '\0');
  std::memcpy(head.data(), &length, sizeof(length));
  return head + header;
}

}  // namespace

std::int64_t PlannedTensor::bytes() const {
  std::int64_t bytes = sizeof(float);
  for (const std::int64_t dim : shape) bytes *= dim;
  return bytes;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<PlannedTensor>& tensors)
    : path_(path), file_(partial_name(path), FileDescriptor::Use::create) {
  for (const auto& tensor : tensors) missing_ += tensor.bytes();
  file_.write(head_of(tensors));
}

void SafetensorsWriter::append(const float* values, std::int64_t count) {
  const auto bytes = count * static_cast<std::int64_t>(sizeof(float));
  require(bytes <= missing_, "SafetensorsWriter: more values than were announced");
  file_.write({reinterpret_cast<const char*>(values), static_cast<std::size_t>(bytes)});
  missing_ -= bytes;
}

void SafetensorsWriter::close() {
  require(missing_ == 0, "SafetensorsWriter: fewer values than were announced");
  file_.close();
  publish(path_);
}

}  // namespace kozero::io
