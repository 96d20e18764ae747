// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <kozero/core/error.hpp>
#include <kozero/dist/agreed.hpp>
#include <kozero/io/laid_out_file.hpp>
#include <kozero/io/seal.hpp>
#include <kozero/io/weights.hpp>
#include <kozero/io/whole_file.hpp>

namespace kozero::io {

namespace {

WeightsDescription describe(const Hdf5File& file) {
  const std::int64_t version = file.read_number_attribute("format_version");
  if (version != kWeightsFormat) {
    throw Error(Failure::input, file.path() + ": format_version " + std::to_string(version) + ", accepted is " +
                                    std::to_string(kWeightsFormat));
  }
  return {file.read_text_attribute("description"), file.read_number_attribute("step"),
          file.read_number_attribute("tokens"), {}};
}

Hdf5File open_together(dist::Communicator& comm, const std::string& path) {
  auto file = dist::agreed(comm, [&] { return Hdf5File(path, Hdf5Access::read); });
  dist::agreed(comm, [&] { describe(file); });
  return file;
}

/// Lays the file out, writes all slices to their places and returns those.
std::vector<TensorPlace> write_file(dist::Communicator& comm, const std::string& path, const ParameterTable& table,
                                    const std::vector<TensorGroup<const float>>& groups,
                                    const WeightsDescription& description, std::int64_t user_block) {
  std::vector<std::string> names;
  for (const auto& group : groups) {
    require_complete(comm, table, group);
    names.push_back(group.name);
  }
  std::vector<std::vector<TensorPlace>> places;
  for (const auto& name : names) places.push_back(tensors_of(name, table));
  dist::agreed(comm, [&] {
    if (comm.rank() == 0) places = lay_out_file(path, table, names, description, user_block);
  });
  for (auto& tensors : places) share_offsets(comm, tensors);
  dist::agreed(comm, [&] {
    FileDescriptor file(path, FileDescriptor::Use::update);
    for (std::size_t i = 0; i < groups.size(); ++i) write_group(file, table, groups[i], places[i]);
    file.sync();
    file.close();
  });
  std::vector<TensorPlace> all;
  for (const auto& tensors : places) all.insert(all.end(), tensors.begin(), tensors.end());
  return all;
}

}  // namespace

std::string weights_dataset(const std::string& name) { return std::string("/") + kParameterGroup + "/" + name; }

std::vector<TensorPlace> write_tensor_file(dist::Communicator& comm, const std::string& path,
                                           const ParameterTable& table,
                                           const std::vector<TensorGroup<const float>>& groups,
                                           const WeightsDescription& description) {
  return write_file(comm, path, table, groups, description, 0);
}

std::vector<std::string> read_tensor_file(dist::Communicator& comm, const std::string& path,
                                          const ParameterTable& table,
                                          const std::vector<TensorGroup<float>>& groups) {
  const Hdf5File file = open_together(comm, path);
  std::vector<std::string> absent;
  for (std::size_t i = 1; i < groups.size(); ++i) {
    if (!dist::agreed(comm, [&] { return file.has_group(groups[i].name); })) absent.push_back(groups[i].name);
  }
  const std::size_t num_read = absent.empty() ? groups.size() : 1;
  for (std::size_t i = 0; i < num_read; ++i) read_group(comm, file, table, groups[i]);
  return absent;
}

void write_weights(dist::Communicator& comm, const std::string& path, const ParameterTable& table,
                   const std::vector<UnitSlice<const float>>& slices, const WeightsDescription& description) {
  const std::string partial = partial_name(path);
  try {
    write_file(comm, partial, table, {{kParameterGroup, slices}}, description, kSealBytes);
    seal_file(comm, partial, description);
  } catch (...) {
    std::error_code ignored;
    if (comm.rank() == 0) std::filesystem::remove(partial, ignored);
    throw;
  }
  dist::agreed(comm, [&] {
    if (comm.rank() == 0) publish(path);
  });
}

WeightsDescription read_weights(dist::Communicator& comm, const std::string& path, const ParameterTable& table,
                                const std::vector<UnitSlice<float>>& slices) {
  const Hdf5File file = open_together(comm, path);
  read_group(comm, file, table, {kParameterGroup, slices});
  return dist::agreed(comm, [&] { return describe(file); });
}

}  // namespace kozero::io
