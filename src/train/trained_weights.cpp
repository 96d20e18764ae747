// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <kozero/core/error.hpp>
#include <kozero/io/checkpoint.hpp>
#include <kozero/io/run_folder.hpp>
#include <kozero/train/trained_weights.hpp>

namespace kozero::train {

namespace fs = std::filesystem;

namespace {

/// The folder of `path`, "." for a bare file name.
fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

/// Of DIR, DIR-2, DIR-3 ... the last that holds weights, as create_run_folder numbers them; DIR where none does.
fs::path newest_run(const std::string& run_dir) {
  const std::string dir = io::without_trailing_slash(run_dir);
  fs::path newest = dir;
  fs::path folder = dir;
  for (int number = 2; fs::exists(folder); ++number) {
    if (fs::exists(folder / kWeightsFile)) newest = folder;
    folder = dir + "-" + std::to_string(number);
  }
  return newest;
}

/// Where the run that a folder, a file in it, or a deck names lies.
fs::path run_folder_of(const fs::path& path) {
  if (fs::is_directory(path)) return path;
  const bool kept_with_weights = fs::exists(folder_of(path) / kWeightsFile);
  if (path.extension() == ".toml" && !kept_with_weights) return newest_run(io::read_deck(path.string()).run.dir);
  return folder_of(path);
}

}  // namespace

std::vector<DeviceSlice> slices_of(const zero::Weights& weights) {
  std::vector<DeviceSlice> slices;
  for (const auto& range : weights.my_ranges()) slices.push_back({range.unit, range.begin, weights.my_slice(range.unit)});
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

TrainedRun find_run(const std::string& path, const std::vector<std::string>& overrides) {
  const fs::path folder = run_folder_of(path);
  const bool names_weights = !fs::is_directory(path) && fs::path(path).extension() != ".toml";
  const char* kept = fs::exists(folder / io::kStateFile) ? io::kStateFile : kWeightsFile;
  const fs::path weights = names_weights ? fs::path(path) : folder / kept;
  if (!fs::exists(weights)) {
    throw Error(Failure::deck, path + ": no trained weights at " + weights.string() +
                                   "; give a run's folder, a weights file in it, a checkpoint, or a deck that was trained");
  }
  const fs::path deck = folder / kDeckFile;
  if (!fs::exists(deck)) {
    throw Error(Failure::deck,
                path + ": " + deck.string() + " is missing, which says what model the weights belong to");
  }
  fs::path tokenizer = folder / kTokenizerFile;
  if (!fs::exists(tokenizer)) tokenizer = folder / kTokenizerModelFile;
  return TrainedRun{io::read_deck(deck.string(), overrides), folder.string(), weights.string(),
                    fs::exists(tokenizer) ? tokenizer.string() : ""};
}

}  // namespace kozero::train
