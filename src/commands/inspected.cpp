// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include <kozero/core/error.hpp>
#include <kozero/dist/agreed.hpp>
#include <kozero/dist/make_communicator.hpp>
#include <kozero/io/checkpoint_folders.hpp>
#include <kozero/io/posix/path_kind.hpp>
#include <kozero/io/readable.hpp>
#include <kozero/io/run_folder.hpp>
#include <kozero/io/seal.hpp>
#include <kozero/train/assembly.hpp>
#include <kozero/train/trained_weights.hpp>

#include "inspected.hpp"

namespace kozero::commands {
namespace {

namespace fs = std::filesystem;

bool is_checkpoint(const fs::path& folder) { return io::is_there((folder / io::kManifestFile).string()); }

/// The checkpoint or weights file that the path names.
std::string subject_of(const std::string& given) {
  const std::string path = io::without_trailing_slash(given);
  const bool is_state = fs::path(path).filename() == io::kStateFile;
  const io::PathKind kind = io::path_kind(path);
  if ((kind == io::PathKind::file || kind == io::PathKind::other) && !is_state) return path;
  if (is_state) return (fs::path(".") / path).parent_path().lexically_normal().string();
  if (is_checkpoint(path)) return path;
  for (const auto& folder : io::checkpoints_in(path)) {
    if (is_checkpoint(folder)) return folder;
  }
  const fs::path weights = fs::path(path) / train::kWeightsFile;
  if (io::is_there(weights.string())) return weights.string();
  throw Error(Failure::deck, path + ": nothing to inspect; accepted are a checkpoint (step_...), a run's folder that "
                                    "has one, a weights file");
}

/// Rows and optimizer states by the same parts that train, without memory for them.
std::vector<io::ListedTensor> by_deck(const io::Deck& deck) {
  MemoryLedger ledger(MemoryLedger::Mode::plan);
  const auto comm = dist::make_planned_communicator("self", 0, 1, ledger);
  train::Settings settings = train::settings_of(deck, 1, 0, 0);
  settings.staged = false;
  train::Assembly assembly(settings, *comm, ledger);
  std::vector<std::string> groups = {"/parameters"};
  for (const auto& state : assembly.parts().optimizer.states()) groups.push_back("/optimizer/" + state.name);
  std::sort(groups.begin() + 1, groups.end());
  std::vector<io::ListedTensor> tensors;
  for (const auto& group : groups) {
    const auto first = static_cast<std::ptrdiff_t>(tensors.size());
    for (const auto& row : assembly.network().parameters().rows()) {
      tensors.push_back({group + "/" + row.name, row.shape});
    }
    std::sort(tensors.begin() + first, tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  }
  return tensors;
}

std::string hdf5_file_of(const Inspected& inspected) {
  return inspected.manifest ? inspected.path + "/" + io::kStateFile : inspected.path;
}

}  // namespace

Inspected find_inspected(const std::string& path, dist::Communicator& comm) {
  Inspected inspected;
  inspected.path = dist::from_first_rank(comm, [&] { return subject_of(path); });
  const std::string kind =
      dist::from_first_rank(comm, [&] { return io::is_folder(inspected.path) ? "checkpoint" : "weights"; });
  if (kind == "checkpoint") {
    inspected.manifest = io::read_manifest(comm, inspected.path);
    inspected.record = inspected.manifest->record;
    return inspected;
  }
  const auto description = io::read_seal(comm, inspected.path);
  inspected.record.step = description.step;
  inspected.record.tokens = description.tokens;
  inspected.record.model = description.model;
  return inspected;
}

std::vector<io::ListedTensor> tensors_of(const Inspected& inspected) {
  return by_deck(io::parse_deck(inspected.record.deck, inspected.path + "/" + io::kManifestFile));
}

std::string verified(const Inspected& inspected, dist::Communicator& comm) {
  if (!inspected.manifest) {
    io::verify_seal(comm, inspected.path);
    return fmt::format("verified     {}: every byte is as it was written", inspected.path);
  }
  const io::Manifest manifest = io::verify_checkpoint(comm, inspected.path);
  std::int64_t bytes = 0;
  for (const auto& [name, hashes] : manifest.files) bytes += hashes.size;
  return fmt::format("verified     {}: every byte of {} files, {}, is as it was written", inspected.path,
                     manifest.files.size(), io::readable_bytes(bytes));
}

io::Hdf5File opened(const Inspected& inspected, dist::Communicator& comm) {
  if (inspected.manifest) io::verify_checkpoint(comm, inspected.path);
  if (!inspected.manifest) io::verify_seal(comm, inspected.path);
  return dist::agreed(comm, [&] { return io::Hdf5File(hdf5_file_of(inspected), io::Hdf5Access::read); });
}

}  // namespace kozero::commands
