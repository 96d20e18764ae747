// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// writer.cpp: the header from the planned tensors, and values rounded chunk by chunk as they are appended.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include "io/posix/file.hpp"
#include "io/safetensors/float_formats.hpp"
#include "io/safetensors/header.hpp"
#include "io/safetensors/writer.hpp"

namespace kozero::io {
namespace {

/// Length and header, padded with blanks so that the data are aligned to 8 bytes.
std::string head_of(const std::vector<PlannedTensor>& tensors) {
  nlohmann::ordered_json json = {{"__metadata__", {{"format", "pt"}}}};
  std::int64_t begin = 0;
  for (const auto& tensor : tensors) {
    const std::int64_t end = begin + tensor.bytes();
    json[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string header = json.dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = header.size();
  std::string head(sizeof(length), '\0');
  std::memcpy(head.data(), &length, sizeof(length));
  return head + header;
}

/// Rounds the values; returns the index of the first finite value that becomes infinite, or -1.
template <class Round>
std::int64_t narrow(const float* values, std::int64_t count, std::uint16_t* to, std::uint16_t infinity, Round round) {
  std::int64_t first = -1;
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = round(values[i]);
    if (first < 0 && (to[i] & 0x7FFFU) == infinity && is_finite(values[i])) first = i;
  }
  return first;
}

}  // namespace

std::int64_t PlannedTensor::extent() const {
  std::int64_t extent = 1;
  for (const std::int64_t dim : shape) extent *= dim;
  return extent;
}

std::int64_t PlannedTensor::bytes() const { return extent() * bytes_of_dtype(dtype); }

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<PlannedTensor>& tensors)
    : path_(path), file_(partial_name(path), FileDescriptor::Use::create), tensors_(tensors) {
  file_.write(head_of(tensors));
}

void SafetensorsWriter::append(const float* values, std::int64_t count) {
  while (count > 0) {
    skip_complete();
    require(next_ < tensors_.size(), "SafetensorsWriter: more values than were announced");
    const std::int64_t fitting = std::min(count, tensors_[next_].extent() - written_);
    append_to_tensor(values, fitting);
    values += fitting;
    count -= fitting;
  }
}

void SafetensorsWriter::skip_complete() {
  while (next_ < tensors_.size() && written_ == tensors_[next_].extent()) {
    ++next_;
    written_ = 0;
  }
}

void SafetensorsWriter::append_to_tensor(const float* values, std::int64_t count) {
  const PlannedTensor& tensor = tensors_[next_];
  const auto* bytes = reinterpret_cast<const char*>(values);
  if (tensor.dtype != "F32") {
    narrow_.resize(static_cast<std::size_t>(count));
    const std::int64_t beyond = tensor.dtype == "F16" ? narrow(values, count, narrow_.data(), 0x7C00U, f16_of_float)
                                                      : narrow(values, count, narrow_.data(), 0x7F80U, bf16_of_float);
    if (beyond >= 0) {
      throw Error(Failure::input, "tensor " + shown(tensor.name) + ": its value " + std::to_string(values[beyond]) +
                                      " is beyond " + tensor.dtype + "; accepted is a wider dtype");
    }
    bytes = reinterpret_cast<const char*>(narrow_.data());
  }
  file_.write({bytes, static_cast<std::size_t>(count * bytes_of_dtype(tensor.dtype))});
  written_ += count;
}

void SafetensorsWriter::close() {
  skip_complete();
  require(next_ == tensors_.size(), "SafetensorsWriter: fewer values than were announced");
  file_.close();
  publish(path_);
}

}  // namespace kozero::io
