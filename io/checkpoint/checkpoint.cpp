// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// checkpoint.cpp: the phases of writing a checkpoint, verification, and search, renaming and removal in a run's folder.
#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <sstream>

#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/weights_file.hpp"
#include "io/posix/file.hpp"
#include "io/posix/system_resources.hpp"
#include "io/run/run_folder.hpp"

namespace kozero::io {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kMaxManifestBytes = std::int64_t{256} << 20;

/// Work of rank 0, for which all ranks wait.
template <class Work>
void on_first_rank(distributed::Communicator& comm, const Work& work) {
  distributed::agreed(comm, [&] {
    if (comm.rank() == 0) work();
  });
}

/// The error that ends a save, with the free disk space at that time if the error is about the checkpoint's files.
Error with_space(const Error& problem, const std::string& folder, std::int64_t needed) {
  const std::string name = fs::path(folder).filename().string();  // other ranks may know the folder by another path
  const std::string_view text = problem.what();
  const bool is_of_memory = text.starts_with(kTooLittleMemory);
  if (problem.failure() != Failure::write || is_of_memory || text.find(name) == std::string_view::npos) return problem;
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

/// Hashes of the state file and of its datasets, from one pass over the file, distributed over the ranks.
void hash_state(distributed::Communicator& comm, const std::string& path, const std::vector<TensorRef>& tensors,
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
    const auto end = next + std::ssize(blocks_of(tensor.offset, tensor.bytes));
    manifest.datasets[tensor.name] = hash_of_hashes({next, end});
    next = end;
  }
}

Manifest write_contents(distributed::Communicator& comm, const std::string& partial, const ParameterTable& table,
                        const CheckpointContents& contents) {
  const auto path_of = [&](const std::string& name) { return partial + "/" + name; };
  const CheckpointRecord& record = contents.record;
  Manifest manifest{record, {}, {}};
  const auto tensors = write_tensor_file(comm, path_of(kStateFile), table, contents.groups,
                                         {record.model, record.step, record.tokens, contents.ties}, contents.watch);
  hash_state(comm, path_of(kStateFile), tensors, manifest);
  on_first_rank(comm, [&] {
    for (const auto& [name, bytes] : contents.texts) {
      write_whole_file(path_of(name), bytes);
      manifest.files[name] = hashes_of_bytes(bytes);
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

SavedState saved_state(const std::string& path, const WeightsDescription& description) {
  Manifest manifest;
  manifest.record.step = description.step;
  manifest.record.tokens = description.tokens;
  manifest.record.model = description.model;
  manifest.record.base = description.base;
  return {path, false, std::move(manifest)};
}

/// Whether rank 0 finds a folder at `path`.
bool is_folder_for_all(distributed::Communicator& comm, const std::string& path) {
  return distributed::broadcast_value(comm, static_cast<int>(comm.rank() == 0 && is_folder(path))) != 0;
}

constexpr std::string_view kPrefix = "step_";

/// The step of a folder's name; -1 if it is not the name of a checkpoint.
std::int64_t step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  std::int64_t step = -1;
  if (!name.starts_with(kPrefix)) return -1;
  const auto [end, problem] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  return problem == std::errc() && end == name.data() + name.size() ? step : -1;
}

bool is_leftover(const fs::path& folder) {
  return folder.extension() == partial_name("") && step_of(fs::path(folder).replace_extension()) >= 0;
}

std::vector<fs::path> folders_in(const std::string& run_folder) {
  std::vector<fs::path> folders;
  std::error_code problem;
  if (!fs::is_directory(run_folder, problem)) return folders;
  for (fs::directory_iterator entry(run_folder, problem), end; !problem && entry != end; entry.increment(problem)) {
    std::error_code ignored;
    if (entry->is_directory(ignored)) folders.push_back(entry->path());
  }
  if (problem) throw Error(Failure::input, run_folder + ": cannot list: " + problem.message());
  return folders;
}

void rename_folder(const fs::path& from, const fs::path& to) {
  std::error_code problem;
  fs::rename(from, to, problem);
  if (problem)
    throw Error(Failure::write, from.string() + ": cannot rename to " + to.string() + ": " + problem.message());
}

/// All checkpoints, newest first by the steps in their manifests, or by name if a manifest cannot be read. Of two with
/// one step, the one with that step's name is first.
std::vector<std::string> newest_first(const std::string& run_folder) {
  struct Candidate {
    std::string folder;
    std::int64_t step;
    bool named_so;
  };
  std::vector<Candidate> candidates;
  for (const auto& folder : checkpoints_in(run_folder)) {
    Candidate& one = candidates.emplace_back(Candidate{folder, step_of(folder), true});
    try {
      one.step = read_manifest(folder).record.step;
      one.named_so = one.step == step_of(folder);
    } catch (const Error&) {
      continue;  // verification reports the reason
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.step != b.step ? a.step > b.step : a.named_so && !b.named_so;
  });
  std::vector<std::string> folders;
  for (const auto& one : candidates) folders.push_back(one.folder);
  return folders;
}

void remove_folder(const fs::path& folder) {
  std::error_code problem;
  fs::remove_all(folder, problem);
  if (problem) throw Error(Failure::write, folder.string() + ": cannot remove: " + problem.message());
}

}  // namespace

std::int64_t checkpoint_bytes(const ParameterTable& table, const CheckpointContents& contents) {
  constexpr std::int64_t kMargin = std::int64_t{1} << 20;
  std::int64_t bytes = kMargin;
  for (const auto& [name, text] : contents.texts) bytes += static_cast<std::int64_t>(text.size());
  const auto states = static_cast<std::int64_t>(contents.groups.size()) - 1;
  const std::int64_t elements = table.num_stored() + states * table.num_trainable();
  return bytes + elements * static_cast<std::int64_t>(sizeof(float));
}

std::int64_t write_checkpoint(distributed::Communicator& comm, const std::string& folder, const ParameterTable& table,
                              const CheckpointContents& contents, const std::function<void()>& may_publish) {
  const std::int64_t needed = checkpoint_bytes(table, contents);
  on_first_rank(comm, [&] {
    may_publish();
    require_space(folder, needed);
    create_folder(folder, needed);
  });
  try {
    const Manifest manifest = write_contents(comm, partial_name(folder), table, contents);
    on_first_rank(comm, [&] {
      may_publish();
      publish(folder);
    });
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

Manifest read_manifest(distributed::Communicator& comm, const std::string& folder) {
  const std::string path = manifest_in(folder);
  const std::string text = distributed::from_first_rank(comm, [&] { return read_whole_file(path, kMaxManifestBytes); });
  return distributed::agreed(comm, [&] { return manifest_from(text, path); });
}

Manifest verify_checkpoint(distributed::Communicator& comm, const std::string& folder) {
  const std::string path = manifest_in(folder);
  const std::string text = distributed::from_first_rank(comm, [&] { return read_whole_file(path, kMaxManifestBytes); });
  Manifest manifest = distributed::agreed(comm, [&] {
    if (comm.rank() > 0 && read_whole_file(path, kMaxManifestBytes) != text) refuse_other_bytes(comm, path);
    return manifest_from(text, path);
  });
  for (const auto& [name, hashes] : manifest.files) verify_blocks(comm, folder + "/" + name, hashes);
  return manifest;
}

std::string SavedState::state_file() const { return is_checkpoint ? path + "/" + kStateFile : path; }

SavedState read_saved_state(const std::string& path) {
  if (is_folder(path)) return {path, true, read_manifest(path)};
  return saved_state(path, read_weights_header(path));
}

SavedState read_saved_state(distributed::Communicator& comm, const std::string& path) {
  if (is_folder_for_all(comm, path)) return {path, true, read_manifest(comm, path)};
  return saved_state(path, read_weights_header(comm, path));
}

SavedState verify(distributed::Communicator& comm, const std::string& path) {
  if (is_folder_for_all(comm, path)) return {path, true, verify_checkpoint(comm, path)};
  return saved_state(path, verify_weights_header(comm, path));
}

std::string checkpoint_folder(const std::string& run_folder, std::int64_t step) {
  return fmt::format("{}/{}{:09}", run_folder, kPrefix, step);
}

std::vector<std::string> checkpoints_in(const std::string& run_folder) {
  std::vector<fs::path> folders = folders_in(run_folder);
  std::erase_if(folders, [](const fs::path& folder) { return step_of(folder) < 0; });
  std::sort(folders.begin(), folders.end(),
            [](const fs::path& a, const fs::path& b) { return step_of(a) > step_of(b); });
  std::vector<std::string> names;
  for (const auto& folder : folders) names.push_back(folder.string());
  return names;
}

std::optional<FoundCheckpoint> newest_complete(distributed::Communicator& comm, const std::string& run_folder,
                                               std::vector<std::string>& skipped) {
  bool removed = true;  // by a running trainer, meanwhile
  for (int look = 0; removed && look < kMostReads; ++look) {
    removed = false;
    skipped.clear();
    std::istringstream folders(distributed::from_first_rank(comm, [&] {
      std::string lines;
      for (const auto& folder : newest_first(run_folder)) lines += folder + '\n';
      return lines;
    }));
    for (std::string folder; std::getline(folders, folder);) {
      try {
        return FoundCheckpoint{folder, verify_checkpoint(comm, folder)};
      } catch (const Error& problem) {
        if (problem.failure() != Failure::input) throw;
        std::error_code unknown;
        if (distributed::broadcast_value(comm, comm.rank() == 0 && !fs::exists(folder, unknown) && !unknown)) {
          removed = true;
        } else {
          skipped.emplace_back(problem.what());
        }
      }
    }
  }
  return std::nullopt;
}

std::optional<FoundCheckpoint> best_checkpoint(const std::string& run_folder) {
  std::optional<FoundCheckpoint> best;
  for (const auto& folder : checkpoints_in(run_folder)) {
    try {
      Manifest manifest = read_manifest(folder);
      const auto& loss = manifest.record.validation_loss;
      if (!loss || (best && *best->manifest.record.validation_loss < *loss)) continue;
      best = FoundCheckpoint{folder, std::move(manifest)};
    } catch (const Error& problem) {
      if (problem.failure() != Failure::input) throw;  // a broken checkpoint is not the best
    }
  }
  return best;
}

void prune_checkpoints(const std::string& run_folder, std::int64_t keep, const std::string& best) {
  for (const auto& folder : folders_in(run_folder)) {
    if (is_leftover(folder)) remove_folder(folder);
  }
  const auto all = checkpoints_in(run_folder);
  for (std::size_t i = static_cast<std::size_t>(keep); keep > 0 && i < all.size(); ++i) {
    if (all[i] == best) continue;
    rename_folder(all[i], partial_name(all[i]));
    remove_folder(partial_name(all[i]));
  }
}

std::vector<std::string> set_aside_after(const std::string& run_folder, std::int64_t step, const std::string& loaded) {
  std::vector<std::string> renamed;
  std::error_code ignored;
  for (const auto& folder : checkpoints_in(run_folder)) {
    if (step_of(folder) > step && !fs::equivalent(folder, loaded, ignored)) renamed.push_back(set_aside(folder));
  }
  return renamed;
}

std::string name_by_step(const std::string& run_folder, const std::string& loaded, std::int64_t step) {
  if (loaded.empty()) return loaded;
  const fs::path folder = (fs::absolute(loaded) / "").parent_path();
  std::error_code ignored;
  const bool is_ours = step_of(folder) >= 0 && fs::equivalent(folder.parent_path(), run_folder, ignored);
  if (!is_ours || step_of(folder) == step) return loaded;
  const std::string named = checkpoint_folder(run_folder, step);
  if (is_there(named)) set_aside(named);
  rename_folder(folder, named);
  return named;
}

}  // namespace kozero::io
