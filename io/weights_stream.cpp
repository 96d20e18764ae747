// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/io/weights_stream.hpp>
#include <kozero/io/whole_file.hpp>

namespace kozero::io {
namespace {

constexpr std::int64_t kFormatVersion = 1;
constexpr const char* kGroup = "parameters";

}  // namespace

std::string weights_dataset(const std::string& name) { return std::string("/") + kGroup + "/" + name; }

WeightsStream::WeightsStream(const std::string& path, const WeightsDescription& description)
    : path_(path), file_(partial_name(path), Hdf5Access::create, nullptr) {
  file_.write_attribute("format_version", kFormatVersion);
  file_.write_attribute("description", description.model);
  file_.write_attribute("step", description.step);
  file_.write_attribute("tokens", description.tokens);
  file_.create_group(kGroup);
}

Hdf5Dataset WeightsStream::create(const Parameter& row) {
  return file_.create_dataset(weights_dataset(row.name), row.shape);
}

void WeightsStream::close() {
  file_.close();
  publish(path_);
}

}  // namespace kozero::io
