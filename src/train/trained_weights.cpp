// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <kozero/core/error.hpp>
#include <kozero/io/checkpoint.hpp>
#include <kozero/train/trained_weights.hpp>

namespace kozero::train {

namespace fs = std::filesystem;

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
  const fs::path given(path);
  fs::path folder = fs::is_directory(given) ? given : given.parent_path();
  fs::path weights = fs::is_directory(given) ? folder / kWeightsFile : given;
  if (!fs::exists(weights) && fs::exists(folder / io::kStateFile)) weights = folder / io::kStateFile;
  if (given.extension() == ".toml") {
    folder = io::read_deck(path).run.dir;
    weights = folder / kWeightsFile;
  }
  if (!fs::exists(weights)) {
    throw Error(Failure::deck, path + ": no trained weights at " + weights.string() +
                                   "; give a run's folder, a weights file in it, a checkpoint, or a deck that was trained");
  }
  const fs::path deck = folder / kDeckFile;
  if (!fs::exists(deck)) {
    throw Error(Failure::deck, path + ": " + deck.string() + " is missing, which says what model the weights belong to");
  }
  const fs::path tokenizer = folder / kTokenizerFile;
  return TrainedRun{io::read_deck(deck.string(), overrides), folder.string(), weights.string(),
                    fs::exists(tokenizer) ? tokenizer.string() : ""};
}

}  // namespace kozero::train
