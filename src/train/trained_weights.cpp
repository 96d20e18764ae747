// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <kozero/core/error.hpp>
#include <kozero/io/checkpoint_folders.hpp>
#include <kozero/io/posix/path_kind.hpp>
#include <kozero/io/run_folder.hpp>
#include <kozero/io/seal.hpp>
#include <kozero/train/trained_weights.hpp>

namespace kozero::train {

namespace fs = std::filesystem;

namespace {

/// The folder of `path`, "." for a bare file name.
fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

bool holds(const fs::path& folder, const char* file) { return io::is_there((folder / file).string()); }

bool is_checkpoint(const fs::path& folder) { return holds(folder, io::kManifestFile); }

/// By name alone; "" where there is none.
std::string newest_checkpoint(const fs::path& run_folder) {
  for (const auto& folder : io::checkpoints_in(run_folder.string())) {
    if (is_checkpoint(folder)) return folder;
  }
  return "";
}

/// Of DIR, DIR-2, DIR-3 ... the last that holds weights, as create_run_folder numbers them; DIR where none does.
fs::path newest_run(const std::string& run_dir) {
  const std::string dir = io::without_trailing_slash(run_dir);
  fs::path newest = dir;
  fs::path folder = dir;
  for (int number = 2; io::is_there(folder.string()); ++number) {
    if (holds(folder, kWeightsFile) || !newest_checkpoint(folder).empty()) newest = folder;
    folder = dir + "-" + std::to_string(number);
  }
  return newest;
}

/// Where the run that a folder, a file in it, or a deck names lies.
fs::path run_folder_of(const fs::path& path) {
  if (io::is_folder(path.string())) return path;
  const bool kept_with_weights = holds(folder_of(path), kWeightsFile);
  if (path.extension() == ".toml" && !kept_with_weights) return newest_run(io::read_deck(path.string()).run.dir);
  return folder_of(path);
}

/// The latest weights of a folder; a path where nothing is if it has none.
fs::path weights_in(const fs::path& folder) {
  if (is_checkpoint(folder)) return folder / io::kStateFile;
  const fs::path plain = folder / kWeightsFile;
  const std::string checkpoint = newest_checkpoint(folder);
  if (checkpoint.empty()) return plain;
  const bool is_later =
      !holds(folder, kWeightsFile) || io::read_manifest(checkpoint).record.step > io::read_seal(plain.string()).step;
  return is_later ? fs::path(checkpoint) / io::kStateFile : plain;
}

/// The state of a run's best checkpoint. `path`: as the user named the run.
fs::path best_in(const fs::path& folder, const std::string& path) {
  if (is_checkpoint(folder) || (!io::is_folder(path) && fs::path(path).extension() != ".toml")) {
    throw Error(Failure::deck, path + ": --best chooses among a run's checkpoints; give the run's folder or its deck");
  }
  const auto best = io::best_checkpoint(folder.string());
  if (best) return fs::path(best->folder) / io::kStateFile;
  throw Error(Failure::deck, folder.string() +
                                 ": no checkpoint in it has a validation loss; with "
                                 "checkpoint.keep_best = true each save measures it and the best one is kept");
}

/// The first of these files that is there, or "".
std::string first_of(const fs::path& folder, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (holds(folder, name)) return (folder / name).string();
  }
  return "";
}

}  // namespace

std::vector<DeviceSlice> slices_of(const zero::Weights& weights) {
  std::vector<DeviceSlice> slices;
  for (const auto& range : weights.my_ranges())
    slices.push_back({range.unit, range.begin, weights.my_slice(range.unit)});
  return slices;
}

void save_weights(const std::string& path, const ParameterTable& table, const zero::Weights& weights,
                  dist::Communicator& comm, const io::WeightsDescription& description) {
  HostSlices slices(slices_of(weights));
  slices.fetch();
  io::write_weights(comm, path, table, slices.named<const float>(), description);
}

io::WeightsDescription load_weights(const std::string& path, const ParameterTable& table, zero::Weights& weights,
                                    dist::Communicator& comm) {
  HostSlices slices(slices_of(weights));
  const auto description = io::read_weights(comm, path, table, slices.named<float>());
  slices.store();
  weights.publish();
  return description;
}

RunFiles find_run(const std::string& path, Which which) {
  const fs::path named = run_folder_of(path);
  const bool names_weights = !io::is_folder(path) && fs::path(path).extension() != ".toml";
  const fs::path weights = which == Which::best ? best_in(named, path)
                           : names_weights      ? fs::path(path)
                                                : weights_in(named);
  if (!io::is_there(weights.string())) {
    throw Error(Failure::deck, path + ": no trained weights at " + weights.string() +
                                   "; give a run's folder, a weights file, a checkpoint, a Hugging Face folder (with "
                                   "config.json), or a deck that was trained");
  }
  const fs::path folder = folder_of(weights);
  return {folder.string(), weights.string(), first_of(folder, {kDeckFile}),
          first_of(folder, {kTokenizerFile, kTokenizerModelFile})};
}

}  // namespace kozero::train
