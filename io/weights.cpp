// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <set>

#include <kozero/core/error.hpp>
#include <kozero/dist/agreed.hpp>
#include <kozero/io/hdf5_file.hpp>
#include <kozero/io/weights.hpp>
#include <kozero/io/whole_file.hpp>

namespace kozero::io {

namespace {

constexpr std::int64_t kFormatVersion = 1;
constexpr const char* kGroup = "parameters";

/// agreed() for work without a result.
template <class Work>
void together(dist::Communicator& comm, const Work& work) {
  dist::agreed(comm, [&] {
    work();
    return true;
  });
}

std::string dataset_name(const Parameter& row) { return std::string("/") + kGroup + "/" + row.name; }

/// Calls `visit(first, last, values)` for the parts of the tensor, as ranges of its elements, that the slices hold.
template <class T, class Visit>
void for_each_part(const Parameter& row, const std::vector<UnitSlice<T>>& slices, const Visit& visit) {
  for (const auto& slice : slices) {
    if (slice.unit != row.unit) continue;
    const std::int64_t begin = std::max(slice.begin, row.offset);
    const std::int64_t end =
        std::min(slice.begin + static_cast<std::int64_t>(slice.values.extent(0)), row.offset + row.extent());
    if (begin < end) visit(begin - row.offset, end - row.offset, slice.values.data() + (begin - slice.begin));
  }
}

/// Datasets are not filled at creation, so an element that no rank writes would be garbage in the file.
void require_complete(dist::Communicator& comm, const ParameterTable& table,
                      const std::vector<UnitSlice<const float>>& slices) {
  std::int64_t mine = 0;
  for (const auto& row : table.rows()) {
    for_each_part(row, slices, [&](std::int64_t first, std::int64_t last, const float*) { mine += last - first; });
  }
  const double all = dist::sum_in_rank_order(comm, static_cast<double>(mine));
  require(all == static_cast<double>(table.num_parameters()),
          "write_weights: the ranks' slices do not hold every element exactly once");
}

void write_tensors(dist::Communicator& comm, Hdf5File& file, const ParameterTable& table,
                   const std::vector<UnitSlice<const float>>& slices) {
  for (const auto& row : table.rows()) {
    auto dataset = dist::agreed(comm, [&] { return file.create_dataset(dataset_name(row), row.shape); });
    together(comm, [&] {
      for_each_part(row, slices, [&](std::int64_t first, std::int64_t last, const float* from) {
        dataset.write(first, last, from);
      });
    });
    together(comm, [&] { dataset.close(); });
  }
}

void write_file(dist::Communicator& comm, const std::string& path, const ParameterTable& table,
                const std::vector<UnitSlice<const float>>& slices, const WeightsDescription& description) {
  auto file = dist::agreed(comm, [&] { return Hdf5File(path, Hdf5Access::create, comm.mpi_handle()); });
  together(comm, [&] {
    file.write_attribute("format_version", kFormatVersion);
    file.write_attribute("description", description.model);
    file.write_attribute("step", description.step);
    file.write_attribute("tokens", description.tokens);
    file.create_group(kGroup);
  });
  write_tensors(comm, file, table, slices);
  together(comm, [&] { file.close(); });
}

WeightsDescription describe(const Hdf5File& file, const std::string& path) {
  const std::int64_t version = file.read_number_attribute("format_version");
  if (version != kFormatVersion) {
    throw Error(Failure::input, path + ": format_version " + std::to_string(version) + ", accepted is " +
                                    std::to_string(kFormatVersion));
  }
  return {file.read_text_attribute("description"), file.read_number_attribute("step"),
          file.read_number_attribute("tokens")};
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + ")";
}

/// The file must hold the table's tensors and no others.
void compare_names(const Hdf5File& file, const std::string& path, const ParameterTable& table) {
  const auto found = file.names(std::string("/") + kGroup);
  std::set<std::string> wanted;
  for (const auto& row : table.rows()) wanted.insert(row.name);
  for (const auto& name : found) {
    if (!wanted.contains(name)) throw Error(Failure::input, path + ": tensor " + name + " is not one of the model's");
  }
  for (const auto& name : wanted) {
    if (!std::binary_search(found.begin(), found.end(), name)) {
      throw Error(Failure::input, path + ": tensor " + name + " is missing");
    }
  }
}

void read_tensor(const Hdf5File& file, const std::string& path, const Parameter& row,
                 const std::vector<UnitSlice<float>>& slices) {
  const auto dataset = file.open_dataset(dataset_name(row));
  if (dataset.shape() != row.shape) {
    throw Error(Failure::input, path + ": tensor " + row.name + " has shape " + shape_text(dataset.shape()) +
                                    ", the model's is " + shape_text(row.shape));
  }
  for_each_part(row, slices, [&](std::int64_t first, std::int64_t last, float* to) { dataset.read(first, last, to); });
}

}  // namespace

void write_weights(dist::Communicator& comm, const std::string& path, const ParameterTable& table,
                   const std::vector<UnitSlice<const float>>& slices, const WeightsDescription& description) {
  require_complete(comm, table, slices);
  const std::string partial = partial_name(path);
  try {
    write_file(comm, partial, table, slices, description);
  } catch (...) {
    std::error_code ignored;
    if (comm.rank() == 0) std::filesystem::remove(partial, ignored);
    throw;
  }
  together(comm, [&] {
    if (comm.rank() == 0) publish(path);
  });
}

WeightsDescription read_weights(dist::Communicator& comm, const std::string& path, const ParameterTable& table,
                                const std::vector<UnitSlice<float>>& slices) {
  for (const auto& slice : slices) std::fill_n(slice.values.data(), slice.values.extent(0), 0.0F);
  const auto file = dist::agreed(comm, [&] { return Hdf5File(path, Hdf5Access::read, comm.mpi_handle()); });
  const auto description = dist::agreed(comm, [&] {
    compare_names(file, path, table);
    return describe(file, path);
  });
  for (const auto& row : table.rows()) {
    together(comm, [&] { read_tensor(file, path, row, slices); });
  }
  return description;
}

WeightsDescription read_description(const std::string& path) {
  const Hdf5File file(path, Hdf5Access::read, nullptr);
  return describe(file, path);
}

}  // namespace kozero::io
