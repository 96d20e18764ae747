// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <kozero/core/error.hpp>
#include <kozero/dist/agreed.hpp>
#include <kozero/io/memory_file.hpp>
#include <kozero/io/weights.hpp>
#include <kozero/io/whole_file.hpp>

namespace kozero::io {

namespace {

constexpr std::int64_t kFormatVersion = 1;

void write_attributes(Hdf5File& file, const WeightsDescription& description) {
  file.write_attribute("format_version", kFormatVersion);
  file.write_attribute("description", description.model);
  file.write_attribute("step", description.step);
  file.write_attribute("tokens", description.tokens);
}

WeightsDescription describe(const Hdf5File& file) {
  const std::int64_t version = file.read_number_attribute("format_version");
  if (version != kFormatVersion) {
    throw Error(Failure::input, file.path() + ": format_version " + std::to_string(version) + ", accepted is " +
                                    std::to_string(kFormatVersion));
  }
  return {file.read_text_attribute("description"), file.read_number_attribute("step"),
          file.read_number_attribute("tokens"), {}};
}

/// All but the tensors' values.
void create_file(const std::string& path, const std::vector<TensorGroup<const float>>& groups,
                 const WeightsDescription& description, std::vector<std::vector<TensorPlace>>& places) {
  MemoryFile draft;
  Hdf5File file(draft.path(), Hdf5Access::create, nullptr);
  draft.remove_name();
  write_attributes(file, description);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const bool has_ties = groups[i].name == kParameterGroup;
    create_tensors(file, groups[i].name, places[i], has_ties ? description.ties : Ties());
  }
  file.close();
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  FileDescriptor copy(path, FileDescriptor::Use::create);
  draft.copy_to(copy);
  copy.close();
}

Hdf5File open_together(dist::Communicator& comm, const std::string& path) {
  auto file = dist::agreed(comm, [&] { return Hdf5File(path, Hdf5Access::read, nullptr); });
  dist::agreed(comm, [&] { describe(file); });
  return file;
}

}  // namespace

std::string weights_dataset(const std::string& name) { return std::string("/") + kParameterGroup + "/" + name; }

void begin_weights(Hdf5File& file, const WeightsDescription& description) {
  write_attributes(file, description);
  file.create_group(std::string("/") + kParameterGroup);
}

std::vector<TensorPlace> write_tensor_file(dist::Communicator& comm, const std::string& path,
                                           const ParameterTable& table,
                                           const std::vector<TensorGroup<const float>>& groups,
                                           const WeightsDescription& description) {
  std::vector<std::vector<TensorPlace>> places;
  for (const auto& group : groups) {
    require_complete(comm, table, group);
    places.push_back(tensors_of(group.name, table));
  }
  dist::agreed(comm, [&] {
    if (comm.rank() == 0) create_file(path, groups, description, places);
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
    write_tensor_file(comm, partial, table, {{kParameterGroup, slices}}, description);
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

WeightsDescription read_description(const std::string& path) {
  return describe(Hdf5File(path, Hdf5Access::read, nullptr));
}

}  // namespace kozero::io
