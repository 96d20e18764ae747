// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// weights_file.cpp: the header with checksums, collective writing and reading, and the stream of one process.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>

#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include "io/checkpoint/tensor_groups.hpp"
#include "io/checkpoint/weights_file.hpp"
#include "io/posix/block_hashes.hpp"
#include "io/posix/file.hpp"

namespace kozero::io {
namespace {

/// Behind "tensor NAME: element (3, 7) is inf".
constexpr const char* kOverflow =
    ": an update overflowed, and nothing is saved; resume from an older checkpoint with a lower optim.lr";
constexpr std::string_view kFirstWords = "KoZeRO weights 1, sealed ";
constexpr std::size_t kFirstLine = kFirstWords.size() + kHashDigits + 1;

struct WeightsHeader {
  std::int64_t bytes = 0;
  std::string hash;
  WeightsDescription description;
};

std::string block_of(const WeightsHeader& header) {
  std::ostringstream text;
  text << "bytes " << header.bytes << "\nxxh3_128 " << header.hash << "\nstep " << header.description.step
       << "\ntokens " << header.description.tokens << "\nmodel " << header.description.model << '\n';
  if (!header.description.base.empty()) text << "base " << header.description.base << '\n';
  std::string rest = text.str();
  const std::size_t room = static_cast<std::size_t>(kWeightsHeaderBytes) - kFirstLine;
  require(rest.size() < room, "write_weights_header: the model's description takes more than the block of 4 KiB");
  rest.resize(room, '\0');
  return std::string(kFirstWords) + xxh3_128(rest) + "\n" + rest;
}

WeightsHeader parsed(const std::string& block, const std::string& path) {
  const auto refuse = [&](const std::string& reason) { throw Error(Failure::input, path + ": " + reason); };
  if (!block.starts_with(kFirstWords)) {
    refuse(
        "not a weights file that KoZeRO wrote: it begins with no KoZeRO header; other weights come in by kozero "
        "import");
  }
  const std::string rest = block.substr(kFirstLine);
  if (block.substr(kFirstWords.size(), kHashDigits) != xxh3_128(rest)) {
    refuse("its first " + std::to_string(kWeightsHeaderBytes) + " bytes, the header, are not what was written");
  }
  WeightsHeader header;
  std::istringstream text(rest);
  std::string bytes, hash, step, tokens, model;
  text >> bytes >> header.bytes >> hash >> header.hash >> step >> header.description.step >> tokens >>
      header.description.tokens >> model;
  text.get();
  std::getline(text, header.description.model);
  const bool in_order =
      bytes == "bytes" && hash == "xxh3_128" && step == "step" && tokens == "tokens" && model == "model";
  if (text.fail() || !in_order || header.bytes < kWeightsHeaderBytes)
    refuse("its header has other lines than bytes, xxh3_128, step, tokens, model");
  std::string base;
  if (text >> base && base == "base") text >> header.description.base;
  return header;
}

/// The file's first kWeightsHeaderBytes, filled up with zeros.
std::string block_in(const FileDescriptor& file) {
  std::string block(static_cast<std::size_t>(kWeightsHeaderBytes), '\0');
  static_cast<void>(file.read_up_to(block, 0));
  return block;
}

/// Rank 0's header, on every rank.
std::string block_of_first_rank(distributed::Communicator& comm, const std::string& path) {
  return distributed::from_first_rank(comm, [&] { return block_in(FileDescriptor(path, FileDescriptor::Use::read)); });
}

/// The hash of all bytes behind the header. Collective.
std::string hash_behind(distributed::Communicator& comm, const std::string& path, std::int64_t bytes) {
  return hash_of_hashes(hash_spans(comm, path, blocks_of(kWeightsHeaderBytes, bytes - kWeightsHeaderBytes)));
}

WeightsDescription describe(const Hdf5File& file) {
  const std::int64_t version = file.read_number_attribute("format_version");
  if (version != kWeightsFormat) {
    throw Error(Failure::input, file.path() + ": format_version " + std::to_string(version) + ", accepted is " +
                                    std::to_string(kWeightsFormat));
  }
  return {file.read_text_attribute("description"),
          file.read_number_attribute("step"),
          file.read_number_attribute("tokens"),
          {}};
}

/// The open file on rank 0, and its description on every rank.
struct OpenedFile {
  std::optional<Hdf5File> on_first_rank;
  WeightsDescription description;

  [[nodiscard]] const Hdf5File* get() const { return on_first_rank ? &*on_first_rank : nullptr; }
};

OpenedFile open_on_first_rank(distributed::Communicator& comm, const std::string& path) {
  OpenedFile opened;
  WeightsDescription& description = opened.description;
  description.model = distributed::from_first_rank(comm, [&] {
    description = describe(opened.on_first_rank.emplace(path, Hdf5Access::read));
    return description.model;
  });
  description.step = distributed::broadcast_value(comm, description.step);
  description.tokens = distributed::broadcast_value(comm, description.tokens);
  return opened;
}

/// Whether the group has a tensor that the table trains.
bool has_state(const Hdf5File& file, const std::string& group, const ParameterTable& table) {
  if (!file.has_group(group)) return false;
  const auto found = file.names("/" + group);
  const auto stored = tensors_of(group, table);
  return std::ranges::any_of(stored, [&](const TensorRef& tensor) {
    return std::binary_search(found.begin(), found.end(), tensor.name.substr(group.size() + 1));
  });
}

/// Lays the file out, writes all shards to their offsets and returns those.
std::vector<TensorRef> write_file(distributed::Communicator& comm, const std::string& path, const ParameterTable& table,
                                  const std::vector<TensorGroup<const float>>& groups,
                                  const WeightsDescription& description, std::int64_t user_block, ReadWatch* watch) {
  std::vector<std::string> names;
  for (const auto& group : groups) {
    require_complete(comm, table, group);
    names.push_back(group.name);
  }
  std::vector<std::vector<TensorRef>> layout;
  for (const auto& name : names) layout.push_back(tensors_of(name, table));
  distributed::agreed(comm, [&] {
    if (comm.rank() == 0) layout = lay_out_file(path, table, names, description, user_block);
  });
  for (auto& tensors : layout) share_offsets(comm, tensors);
  distributed::agreed(comm, [&] {
    FileDescriptor file(path, FileDescriptor::Use::update);
    if (watch != nullptr) watch->begin();
    std::string bad;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const std::string of_group = write_group(file, table, groups[i], layout[i], watch);
      if (bad.empty()) bad = of_group;
    }
    if (watch != nullptr) watch->require_unchanged();
    if (!bad.empty()) throw Error(Failure::non_finite, bad + kOverflow);
    file.sync();
    file.close();
  });
  std::vector<TensorRef> all;
  for (const auto& tensors : layout) all.insert(all.end(), tensors.begin(), tensors.end());
  return all;
}

}  // namespace

void write_weights_header(distributed::Communicator& comm, const std::string& path,
                          const WeightsDescription& description) {
  const auto bytes = distributed::agreed(comm, [&] { return FileDescriptor(path, FileDescriptor::Use::read).size(); });
  WeightsHeader header{.bytes = bytes, .hash = {}, .description = description};
  header.hash = hash_behind(comm, path, header.bytes);
  distributed::agreed(comm, [&] {
    if (comm.rank() != 0) return;
    FileDescriptor file(path, FileDescriptor::Use::update);
    file.write_at(block_of(header), 0);
    file.sync();
    file.close();
  });
}

WeightsDescription read_weights_header(const std::string& path) {
  return parsed(block_in(FileDescriptor(path, FileDescriptor::Use::read)), path).description;
}

WeightsDescription read_weights_header(distributed::Communicator& comm, const std::string& path) {
  const std::string block = block_of_first_rank(comm, path);
  return distributed::agreed(comm, [&] { return parsed(block, path).description; });
}

WeightsDescription verify_weights_header(distributed::Communicator& comm, const std::string& path) {
  const std::string block = block_of_first_rank(comm, path);
  const WeightsHeader header = distributed::agreed(comm, [&] {
    const FileDescriptor file(path, FileDescriptor::Use::read);
    if (block_in(file) != block) refuse_other_bytes(comm, path);
    WeightsHeader found = parsed(block, path);
    if (file.size() == found.bytes) return found;
    throw Error(Failure::input,
                path + ": " + std::to_string(file.size()) + " bytes, its header says " + std::to_string(found.bytes));
  });
  if (hash_behind(comm, path, header.bytes) == header.hash) return header.description;
  throw Error(Failure::input,
              path + ": bytes " + std::to_string(kWeightsHeaderBytes) + " to " + std::to_string(header.bytes - 1) +
                  " are not what its header says",
              Error::Seen::by_all_ranks);
}

std::string weights_dataset(const std::string& name) { return std::string("/") + kParameterGroup + "/" + name; }

std::vector<TensorRef> write_tensor_file(distributed::Communicator& comm, const std::string& path,
                                         const ParameterTable& table,
                                         const std::vector<TensorGroup<const float>>& groups,
                                         const WeightsDescription& description, ReadWatch* watch) {
  return write_file(comm, path, table, groups, description, 0, watch);
}

AbsentState read_tensor_file(distributed::Communicator& comm, const std::string& path, const ParameterTable& table,
                             const std::vector<TensorGroup<float>>& groups) {
  const OpenedFile file = open_on_first_rank(comm, path);
  AbsentState absent;
  for (std::size_t i = 1; i < groups.size(); ++i) {
    const bool has = distributed::agreed(
        comm, [&] { return file.get() == nullptr || has_state(*file.get(), groups[i].name, table); });
    if (!distributed::broadcast_value(comm, has)) absent.groups.push_back(groups[i].name);
  }
  const std::size_t num_read = absent.groups.empty() ? groups.size() : 1;
  for (std::size_t i = 0; i < num_read; ++i) {
    const auto missing = read_group(comm, path, file.get(), table, groups[i]);
    if (absent.tensors.empty()) absent.tensors = missing;  // each state's are the same
  }
  return absent;
}

void write_weights(distributed::Communicator& comm, const std::string& path, const ParameterTable& table,
                   const std::vector<RangeValues<const float>>& shards, const WeightsDescription& description,
                   const std::function<void()>& may_publish, ReadWatch* watch) {
  const std::string partial = partial_name(path);
  try {
    write_file(comm, partial, table, {{kParameterGroup, shards}}, description, kWeightsHeaderBytes, watch);
    write_weights_header(comm, partial, description);
    distributed::agreed(comm, [&] {
      if (comm.rank() != 0) return;
      may_publish();
      publish(path);
    });
  } catch (...) {
    std::error_code ignored;
    if (comm.rank() == 0) std::filesystem::remove(partial, ignored);
    throw;
  }
}

WeightsDescription read_weights(distributed::Communicator& comm, const std::string& path, const ParameterTable& table,
                                const std::vector<RangeValues<float>>& shards) {
  const OpenedFile file = open_on_first_rank(comm, path);
  read_group(comm, path, file.get(), table, {kParameterGroup, shards});
  return file.description;
}

WeightsStream::WeightsStream(const std::string& path, const ParameterTable& table,
                             const WeightsDescription& description)
    : path_(path),
      description_(description),
      tensors_(lay_out_file(partial_name(path), table, {kParameterGroup}, description, kWeightsHeaderBytes).front()),
      file_(partial_name(path), FileDescriptor::Use::update) {}

void WeightsStream::write(std::size_t index, std::int64_t first, std::span<const float> values) const {
  file_.write_at({reinterpret_cast<const char*>(values.data()), values.size_bytes()},
                 tensors_[index].offset + first * static_cast<std::int64_t>(sizeof(float)));
}

void WeightsStream::close() {
  file_.sync();
  file_.close();
  write_weights_header(*distributed::make_self_communicator(), partial_name(path_), description_);
  publish(path_);
}

}  // namespace kozero::io
