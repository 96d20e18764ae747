// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <kozero/core/error.hpp>
#include <kozero/dist/agreed.hpp>
#include <kozero/io/checkpoint.hpp>
#include <kozero/io/file_descriptor.hpp>
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

void create_folder(const std::string& folder) {
  std::error_code problem;
  fs::remove_all(partial_name(folder), problem);
  if (!problem && fs::exists(folder)) throw Error(Failure::write, folder + ": exists already; nothing is overwritten");
  if (!problem) fs::create_directories(partial_name(folder), problem);
  if (problem) throw Error(Failure::write, partial_name(folder) + ": cannot create: " + problem.message());
}

void write_contents(dist::Communicator& comm, const std::string& partial, const ParameterTable& table,
                    const CheckpointContents& contents, Manifest& manifest) {
  const auto path_of = [&](const std::string& name) { return partial + "/" + name; };
  const CheckpointRecord& record = contents.record;
  write_tensor_file(comm, path_of(kStateFile), table, contents.groups, {record.model, record.step, record.tokens});
  on_first_rank(comm, [&] {
    FileDescriptor(path_of(kStateFile), FileDescriptor::Use::sync).sync();
    for (const auto& [name, bytes] : contents.texts) write_whole_file(path_of(name), bytes);
  });
  manifest.record = record;
  manifest.files[kStateFile] = hash_blocks(comm, path_of(kStateFile));
  on_first_rank(comm, [&] {
    for (const auto& [name, bytes] : contents.texts) {
      manifest.files[name] = {static_cast<std::int64_t>(bytes.size()), {}};
      for (std::size_t first = 0; first < bytes.size(); first += kBlockBytes) {
        manifest.files[name].blocks.push_back(xxh3_128(std::string_view(bytes).substr(first, kBlockBytes)));
      }
    }
    write_whole_file(path_of(kManifestFile), manifest_text(manifest));
  });
}

}  // namespace

std::int64_t write_checkpoint(dist::Communicator& comm, const std::string& folder, const ParameterTable& table,
                              const CheckpointContents& contents) {
  Manifest manifest;
  on_first_rank(comm, [&] { create_folder(folder); });
  try {
    write_contents(comm, partial_name(folder), table, contents, manifest);
    on_first_rank(comm, [&] { publish(folder); });
  } catch (...) {
    std::error_code ignored;
    if (comm.rank() == 0) fs::remove_all(partial_name(folder), ignored);
    throw;
  }
  return manifest.files[kStateFile].size;
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = folder + "/" + kManifestFile;
  Manifest manifest = parse_manifest(read_whole_file(path, kMaxManifestBytes), path);
  if (!manifest.files.contains(kStateFile)) throw Error(Failure::input, path + ": names no " + std::string(kStateFile));
  return manifest;
}

Manifest verify_checkpoint(dist::Communicator& comm, const std::string& folder) {
  Manifest manifest = dist::agreed(comm, [&] { return read_manifest(folder); });
  for (const auto& [name, hashes] : manifest.files) verify_blocks(comm, folder + "/" + name, hashes);
  return manifest;
}

}  // namespace kozero::io
