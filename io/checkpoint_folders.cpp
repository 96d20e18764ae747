// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <sstream>

#include <fmt/format.h>

#include <kozero/core/error.hpp>
#include <kozero/dist/agreed.hpp>
#include <kozero/io/checkpoint_folders.hpp>
#include <kozero/io/posix/path_kind.hpp>
#include <kozero/io/run_folder.hpp>
#include <kozero/io/whole_file.hpp>

namespace kozero::io {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step_";

/// The step of a folder's name, -1 where it is not the name of a checkpoint.
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

/// All checkpoints, newest first by what their manifests say; by name where a manifest cannot be read, and of two of
/// one step the one that is named so.
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
      continue;  // verifying says why
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

std::optional<FoundCheckpoint> newest_complete(dist::Communicator& comm, const std::string& run_folder,
                                               std::vector<std::string>& skipped) {
  std::istringstream folders(dist::from_first_rank(comm, [&] {
    std::string lines;
    for (const auto& folder : newest_first(run_folder)) lines += folder + '\n';
    return lines;
  }));
  for (std::string folder; std::getline(folders, folder);) {
    try {
      return FoundCheckpoint{folder, verify_checkpoint(comm, folder)};
    } catch (const Error& problem) {
      if (problem.failure() != Failure::input) throw;
      skipped.emplace_back(problem.what());
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
      if (problem.failure() != Failure::input) throw;  // a broken one is not the best
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
