// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <kozero/core/error.hpp>
#include <kozero/train/trained_weights.hpp>

namespace kozero::train {
namespace {

namespace fs = std::filesystem;

/// Host copies of a rank's slices; on a host build they are the weights' own memory.
class HostSlices {
 public:
  explicit HostSlices(const zero::Weights& weights) {
    for (const auto& range : weights.my_ranges()) {
      device_.push_back(weights.my_slice(range.unit));
      host_.push_back(Kokkos::create_mirror_view(Kokkos::HostSpace(), device_.back()));
    }
  }
  void fetch() {
    for (std::size_t i = 0; i < host_.size(); ++i) Kokkos::deep_copy(host_[i], device_[i]);
  }
  void store() {
    for (std::size_t i = 0; i < host_.size(); ++i) Kokkos::deep_copy(device_[i], host_[i]);
  }
  template <class T>
  std::vector<io::UnitSlice<T>> named(const std::vector<UnitRange>& ranges) const {
    std::vector<io::UnitSlice<T>> slices;
    for (std::size_t i = 0; i < host_.size(); ++i) {
      slices.push_back({ranges[i].unit, ranges[i].begin, HostVector<T>(host_[i].data(), host_[i].extent(0))});
    }
    return slices;
  }

 private:
  using HostMirror = decltype(Kokkos::create_mirror_view(Kokkos::HostSpace(), Vector<float>()));
  std::vector<Vector<float>> device_;
  std::vector<HostMirror> host_;
};

}  // namespace

void save_weights(const std::string& path, const ParameterTable& table, const zero::Weights& weights,
                  dist::Communicator& comm, const io::WeightsDescription& description) {
  HostSlices slices(weights);
  slices.fetch();
  io::write_weights(comm, path, table, slices.named<const float>(weights.my_ranges()), description);
}

io::WeightsDescription load_weights(const std::string& path, const ParameterTable& table, zero::Weights& weights,
                                    dist::Communicator& comm) {
  HostSlices slices(weights);
  const auto description = io::read_weights(comm, path, table, slices.named<float>(weights.my_ranges()));
  slices.store();
  weights.publish();
  return description;
}

TrainedRun find_run(const std::string& path, const std::vector<std::string>& overrides) {
  const fs::path given(path);
  fs::path folder = fs::is_directory(given) ? given : given.parent_path();
  fs::path weights = fs::is_directory(given) ? folder / kWeightsFile : given;
  if (given.extension() == ".toml") {
    folder = io::read_deck(path).run.dir;
    weights = folder / kWeightsFile;
  }
  if (!fs::exists(weights)) {
    throw Error(Failure::deck, path + ": no trained weights at " + weights.string() +
                                   "; give a run's folder, a weights file in it, or a deck that was trained");
  }
  const fs::path deck = folder / kDeckFile;
  if (!fs::exists(deck)) {
    throw Error(Failure::deck, path + ": " + deck.string() + " is missing, which says what model the weights belong to");
  }
  fs::path tokenizer = folder / kTokenizerFile;
  if (!fs::exists(tokenizer)) tokenizer = folder / kTokenizerModelFile;
  return TrainedRun{io::read_deck(deck.string(), overrides), folder.string(), weights.string(),
                    fs::exists(tokenizer) ? tokenizer.string() : ""};
}

}  // namespace kozero::train
