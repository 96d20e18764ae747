// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <kozero/core/error.hpp>
#include <kozero/dist/agreed.hpp>
#include <kozero/io/checkpoint.hpp>
#include <kozero/io/disk_space.hpp>
#include <kozero/io/weights.hpp>
#include <kozero/io/whole_file.hpp>

namespace kozero::io {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxManifestBytes = std::int64_t{256} << 20;

/// Work for rank 0 that all ranks wait for.
template <class Work>
void on_first_rank(dist::Communicator& comm, const Work& work) {
  dist::agreed(comm, [&] {
    if (comm.rank() == 0) work();
  });
}

/// The error that ends a save, with what the disk had at that time where it is about the checkpoint's files.
Error with_space(const Error& problem, const std::string& folder, std::int64_t needed) {
  if (problem.failure() != Failure::write || !std::string_view(problem.what()).starts_with(folder)) return problem;
  std::string space;
  try {
    space = "; the checkpoint " + space_text(needed, free_disk_bytes(folder));
  } catch (const Error&) {
    space = "; the checkpoint takes " + std::to_string(needed) + " bytes";
  }
  const auto seen = problem.seen_by_all_ranks() ? Error::Seen::by_all_ranks : Error::Seen::by_this_rank;
  return {Failure::write, problem.what() + space, seen};
}

void create_folder(const std::string& folder, std::int64_t needed) {
  std::error_code problem;
  fs::remove_all(partial_name(folder), problem);
  if (!problem && fs::exists(folder)) throw Error(Failure::write, folder + ": exists already; nothing is overwritten");
  if (!problem) fs::create_directories(partial_name(folder), problem);
  if (!problem) return;
  throw with_space(Error(Failure::write, partial_name(folder) + ": cannot create: " + problem.message()), folder,
                   needed);
}

void require_space(const std::string& folder, std::int64_t needed) {
  const std::int64_t free = free_disk_bytes(folder);
  if (free >= needed) return;
  throw Error(Failure::write, folder + ": not begun: the checkpoint " + space_text(needed, free) +
                                  "; make room, or keep fewer by checkpoint.keep");
}

FileHashes hashes_of(const std::string& bytes) {
  FileHashes hashes{static_cast<std::int64_t>(bytes.size()), {}};
  for (std::size_t first = 0; first < bytes.size(); first += kBlockBytes) {
    hashes.blocks.push_back(xxh3_128(std::string_view(bytes).substr(first, kBlockBytes)));
  }
  return hashes;
}

/// The state file's hashes and its datasets', read in one pass over the ranks.
void hash_state(dist::Communicator& comm, const std::string& path, const std::vector<TensorPlace>& tensors,
                Manifest& manifest) {
  manifest.files[kStateFile] = hash_blocks(comm, path);
  std::vector<Span> spans;
  for (const auto& tensor : tensors) {
    const auto blocks = blocks_of(tensor.offset, tensor.bytes);
    spans.insert(spans.end(), blocks.begin(), blocks.end());
  }
  const auto hashes = hash_spans(comm, path, spans);
  auto next = hashes.begin();
  for (const auto& tensor : tensors) {
    std::string digits;
    for (std::size_t i = blocks_of(tensor.offset, tensor.bytes).size(); i > 0; --i) digits += *next++;
    manifest.datasets[tensor.name] = xxh3_128(digits);
  }
}

Manifest write_contents(dist::Communicator& comm, const std::string& partial, const ParameterTable& table,
                        const CheckpointContents& contents) {
  const auto path_of = [&](const std::string& name) { return partial + "/" + name; };
  const CheckpointRecord& record = contents.record;
  Manifest manifest{record, {}, {}};
  const auto tensors = write_tensor_file(comm, path_of(kStateFile), table, contents.groups,
                                         {record.model, record.step, record.tokens, contents.ties});
  hash_state(comm, path_of(kStateFile), tensors, manifest);
  on_first_rank(comm, [&] {
    for (const auto& [name, bytes] : contents.texts) {
      write_whole_file(path_of(name), bytes);
      manifest.files[name] = hashes_of(bytes);
    }
    write_whole_file(path_of(kManifestFile), manifest_text(manifest));
  });
  return manifest;
}

std::string manifest_in(const std::string& folder) { return folder + "/" + kManifestFile; }

Manifest manifest_from(const std::string& text, const std::string& path) {
  Manifest manifest = parse_manifest(text, path);
  if (!manifest.files.contains(kStateFile)) throw Error(Failure::input, path + ": names no " + std::string(kStateFile));
  return manifest;
}

}  // namespace

std::int64_t checkpoint_bytes(const ParameterTable& table, const CheckpointContents& contents) {
  constexpr std::int64_t kMargin = std::int64_t{1} << 20;
  std::int64_t bytes = kMargin;
  for (const auto& [name, text] : contents.texts) bytes += static_cast<std::int64_t>(text.size());
  const auto group = table.num_parameters() * static_cast<std::int64_t>(sizeof(float));
  return bytes + static_cast<std::int64_t>(contents.groups.size()) * group;
}

std::int64_t write_checkpoint(dist::Communicator& comm, const std::string& folder, const ParameterTable& table,
                              const CheckpointContents& contents) {
  const std::int64_t needed = checkpoint_bytes(table, contents);
  on_first_rank(comm, [&] {
    require_space(folder, needed);
    create_folder(folder, needed);
  });
  try {
    const Manifest manifest = write_contents(comm, partial_name(folder), table, contents);
    on_first_rank(comm, [&] { publish(folder); });
    return manifest.files.at(kStateFile).size;
  } catch (const Error& problem) {
    const Error whole = with_space(problem, folder, needed);
    std::error_code ignored;
    if (comm.rank() == 0) fs::remove_all(partial_name(folder), ignored);
    throw Error(whole);
  }
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = manifest_in(folder);
  return manifest_from(read_whole_file(path, kMaxManifestBytes), path);
}

Manifest read_manifest(dist::Communicator& comm, const std::string& folder) {
  const std::string path = manifest_in(folder);
  const std::string text = dist::from_first_rank(comm, [&] { return read_whole_file(path, kMaxManifestBytes); });
  return dist::agreed(comm, [&] { return manifest_from(text, path); });
}

Manifest verify_checkpoint(dist::Communicator& comm, const std::string& folder) {
  const std::string path = manifest_in(folder);
  const std::string text = dist::from_first_rank(comm, [&] { return read_whole_file(path, kMaxManifestBytes); });
  Manifest manifest = dist::agreed(comm, [&] {
    if (comm.rank() > 0 && read_whole_file(path, kMaxManifestBytes) != text) refuse_other_bytes(comm, path);
    return manifest_from(text, path);
  });
  for (const auto& [name, hashes] : manifest.files) verify_blocks(comm, folder + "/" + name, hashes);
  return manifest;
}

}  // namespace kozero::io
