// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tensor_groups.cpp: lays a file of tensors out in memory and copies that to the disk; writes and reads a rank's
// shards.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>

#include <kozero/core/disk_memory.hpp>
#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include "io/checkpoint/tensor_groups.hpp"
#include "io/hdf5/handle.hpp"
#include "io/posix/readable.hpp"
#include "io/posix/system_resources.hpp"
#include "io/safetensors/header.hpp"

namespace kozero::io {

void require_finite(const std::string& path, const Tensor& tensor, std::int64_t first, std::span<const float> values) {
  const std::string bad = text_of_non_finite(tensor.shape, first, values);
  if (bad.empty()) return;
  throw Error(Failure::input, path + ": tensor " + shown(tensor.name) + ": " + bad +
                                  "; accepted are finite numbers; use an older checkpoint or another file");
}

bool is_stored(const std::string& group, const ParameterTable& table, int tensor) {
  return !table.is_base(tensor) && (group == kParameterGroup || table.is_trainable(tensor));
}

std::vector<TensorRef> tensors_of(const std::string& group, const ParameterTable& table) {
  std::vector<TensorRef> tensors;
  for (int i = 0; i < std::ssize(table.tensors()); ++i) {
    if (!is_stored(group, table, i)) continue;
    const Tensor& tensor = table.tensors()[static_cast<std::size_t>(i)];
    const auto bytes = tensor.extent() * static_cast<std::int64_t>(sizeof(float));
    tensors.push_back({.name = group + "/" + tensor.name, .shape = tensor.shape, .bytes = bytes});
  }
  return tensors;
}

void create_tensors(Hdf5File& file, const std::string& group, std::vector<TensorRef>& tensors, const Ties& ties) {
  file.create_group("/" + group);
  for (auto& tensor : tensors) {
    auto dataset = file.create_dataset("/" + tensor.name, tensor.shape);
    tensor.offset = dataset.offset();
    const auto tie = ties.find(tensor.name.substr(group.size() + 1));
    if (tie != ties.end()) dataset.write_attribute(kTiedAttribute, tie->second);
    dataset.close();
  }
}

void share_offsets(distributed::Communicator& comm, std::vector<TensorRef>& tensors) {
  std::ostringstream mine;
  for (const auto& tensor : tensors) mine << tensor.offset << '\n';
  std::istringstream all(comm.broadcast_control(mine.str()));
  for (auto& tensor : tensors) all >> tensor.offset;
  require(!all.fail(), "share_offsets: the ranks have different tensors");
}

namespace {

void write_attributes(Hdf5File& file, const WeightsDescription& description) {
  file.write_attribute("format_version", kWeightsFormat);
  file.write_attribute("description", description.model);
  file.write_attribute("step", description.step);
  file.write_attribute("tokens", description.tokens);
}

/// Writes the file without its tensors' values, in memory; returns the tensors' offsets.
std::vector<std::vector<TensorRef>> write_draft(const MemoryFile& draft, const ParameterTable& table,
                                                const std::vector<std::string>& groups,
                                                const WeightsDescription& description, std::int64_t user_block) {
  Hdf5File file(draft.path(), Hdf5Access::create, user_block);
  write_attributes(file, description);
  std::vector<std::vector<TensorRef>> layout;
  for (const auto& group : groups) {
    layout.push_back(tensors_of(group, table));
    create_tensors(file, group, layout.back(), group == kParameterGroup ? description.ties : Ties());
  }
  file.close();
  return layout;
}

/// The tensor's name in messages: with its group, unless it is a parameter.
std::string label_of(const std::string& group, const std::string& name) {
  return group == kParameterGroup ? name : group + "/" + name;
}

std::string label_of(const TensorRef& tensor, const std::string& group) {
  return label_of(group, tensor.name.substr(group.size() + 1));
}

/// Calls `visit(first, last, values)` for each overlap of the row with a shard, as a range of the tensor's elements.
template <class T, class Visit>
void for_each_part(const ParameterTable& table, const TensorGroup<T>& group, const Visit& visit) {
  std::size_t number = 0;
  for (int tensor = 0; tensor < std::ssize(table.tensors()); ++tensor) {
    if (!is_stored(group.name, table, tensor)) continue;
    for (const Parameter& row : table.rows_of_tensor(tensor)) {
      for (const auto& range : group.ranges) {
        if (range.unit != row.unit) continue;
        const TensorPart part = row.part_in(range.begin, static_cast<std::int64_t>(range.values.extent(0)));
        if (part.extent > 0) visit(number, part.first, part.first + part.extent, range.values.data() + part.begin);
      }
    }
    ++number;
  }
}

constexpr std::int64_t kMissing = -1;  // the offset of state that a file lacks

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + ")";
}

/// The group must hold the table's tensors and no others; state may be that of some of them.
void compare_names(const Hdf5File& file, const std::string& group, const ParameterTable& table) {
  const auto found = file.names("/" + group);
  std::set<std::string> wanted;
  for (int i = 0; i < std::ssize(table.tensors()); ++i) {
    if (is_stored(kParameterGroup, table, i)) wanted.insert(table.tensors()[static_cast<std::size_t>(i)].name);
  }
  for (const auto& name : found) {
    if (wanted.contains(name)) continue;
    throw Error(Failure::input, file.path() + ": tensor " + label_of(group, name) + " is not one of the model's");
  }
  if (group != kParameterGroup) return;
  for (const auto& name : wanted) {
    if (std::binary_search(found.begin(), found.end(), name)) continue;
    throw Error(Failure::input, file.path() + ": tensor " + label_of(group, name) + " is missing");
  }
}

/// Elements of a tensor from `first` on.
struct TensorValues {
  const TensorRef& tensor;
  std::int64_t first;
  std::span<const float> values;
};

/// The system begins to store each chunk on the disk while the next chunk is written. Sets `bad`, unless it is set, to
/// the text of the first value that is not finite.
void write_in_chunks(const FileDescriptor& file, const TensorValues& part, ReadWatch* watch, std::string& bad) {
  constexpr std::size_t kChunk = std::size_t{2} << 20;  // elements
  constexpr std::size_t kWorthStarting = std::size_t{1} << 20;
  for (std::size_t begin = 0; begin < part.values.size(); begin += kChunk) {
    const auto chunk = part.values.subspan(begin, std::min(kChunk, part.values.size() - begin));
    const std::int64_t first = part.first + static_cast<std::int64_t>(begin);
    const PageRange pages{chunk.data(), static_cast<std::int64_t>(chunk.size_bytes())};
    read_pages(pages);
    const std::int64_t position = part.tensor.offset + first * static_cast<std::int64_t>(sizeof(float));
    file.write_at({reinterpret_cast<const char*>(chunk.data()), chunk.size_bytes()}, position);
    if (bad.empty()) bad = text_of_non_finite(part.tensor.shape, first, chunk);
    if (watch != nullptr) watch->read(chunk);
    release_pages(pages);
    if (chunk.size_bytes() < kWorthStarting) continue;
    file.start_sync(position, pages.bytes);
  }
}

Hdf5Dataset open_tensor(const Hdf5File& file, const Tensor& tensor, const std::string& group) {
  auto dataset = file.open_dataset("/" + group + "/" + tensor.name);
  if (dataset.shape() == tensor.shape) return dataset;
  throw Error(Failure::input, file.path() + ": tensor " + label_of(group, tensor.name) + " has shape " +
                                  shape_text(dataset.shape()) + ", the model's is " + shape_text(tensor.shape));
}

}  // namespace

std::vector<std::vector<TensorRef>> lay_out_file(const std::string& path, const ParameterTable& table,
                                                 const std::vector<std::string>& groups,
                                                 const WeightsDescription& description, std::int64_t user_block) {
  std::optional<MemoryFile> draft;
  std::vector<std::vector<TensorRef>> layout;
  try {
    draft.emplace();
    layout = write_draft(*draft, table, groups, description, user_block);
  } catch (const Error& problem) {
    if (problem.failure() != Failure::write) throw;
    throw Error(Failure::write, std::string(kTooLittleMemory) + " for the metadata of " + path +
                                    ", not too little disk: " + problem.what() + "; " +
                                    readable_bytes(available_memory()) + " of memory are available");
  }
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  FileDescriptor copy(path, FileDescriptor::Use::create);
  draft->copy_to(copy);
  copy.close();
  return layout;
}

void require_complete(distributed::Communicator& comm, const ParameterTable& table,
                      const TensorGroup<const float>& group) {
  std::uint64_t mine = 0;
  for_each_part(table, group, [&](std::size_t, std::int64_t first, std::int64_t last, const float*) {
    mine += static_cast<std::uint64_t>(last - first);
  });
  const std::int64_t all = group.name == kParameterGroup ? table.num_stored() : table.num_trainable();
  require(comm.sum_control({&mine, 1}).front() == static_cast<std::uint64_t>(all),
          "group " + group.name + ": the ranks' shards do not hold every element exactly once");
}

std::string write_group(const FileDescriptor& file, const ParameterTable& table, const TensorGroup<const float>& group,
                        const std::vector<TensorRef>& tensors, ReadWatch* watch) {
  std::string bad;
  for_each_part(table, group, [&](std::size_t number, std::int64_t first, std::int64_t last, const float* from) {
    const bool is_known = !bad.empty();
    write_in_chunks(file, {tensors[number], first, {from, static_cast<std::size_t>(last - first)}}, watch, bad);
    if (!is_known && !bad.empty()) bad = "tensor " + label_of(tensors[number], group.name) + ": " + bad;
  });
  return bad;
}

std::vector<std::string> read_group(distributed::Communicator& comm, const std::string& path, const Hdf5File* opened,
                                    const ParameterTable& table, const TensorGroup<float>& group) {
  for (const auto& shard : group.ranges) {
    std::fill_n(shard.values.data(), shard.values.extent(0), 0.0F);
    release_pages(shard.values);
  }
  auto tensors = tensors_of(group.name, table);
  distributed::agreed(comm, [&] {
    if (opened == nullptr) return;
    compare_names(*opened, group.name, table);
    const auto found = opened->names("/" + group.name);
    for (TensorRef& tensor : tensors) {
      const std::string name = tensor.name.substr(group.name.size() + 1);
      const bool is_there = std::binary_search(found.begin(), found.end(), name);
      tensor.offset = is_there ? open_tensor(*opened, {name, tensor.shape}, group.name).offset() : kMissing;
    }
  });
  share_offsets(comm, tensors);
  std::vector<std::string> missing;
  for (const TensorRef& tensor : tensors) {
    if (tensor.offset == kMissing) missing.push_back(tensor.name.substr(group.name.size() + 1));
  }
  distributed::agreed(comm, [&] {
    const FileDescriptor file(path, FileDescriptor::Use::read);
    for_each_part(table, group, [&](std::size_t number, std::int64_t first, std::int64_t last, float* to) {
      constexpr std::int64_t kChunk = std::int64_t{2} << 20;  // elements
      if (tensors[number].offset == kMissing) return;
      for (; first < last; first += kChunk, to += kChunk) {
        const auto count = static_cast<std::size_t>(std::min(kChunk, last - first));
        file.read_at({reinterpret_cast<char*>(to), count * sizeof(float)},
                     tensors[number].offset + first * static_cast<std::int64_t>(sizeof(float)));
        require_finite(path, {label_of(tensors[number], group.name), tensors[number].shape}, first, {to, count});
        release_pages({to, static_cast<std::int64_t>(count * sizeof(float))});
      }
    });
  });
  return missing;
}

}  // namespace kozero::io
