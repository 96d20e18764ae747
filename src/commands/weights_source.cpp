// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>

#include <kozero/core/error.hpp>
#include <kozero/dist/agreed.hpp>
#include <kozero/exchange/config_json.hpp>
#include <kozero/exchange/folder_tokenizer.hpp>
#include <kozero/exchange/folder_weights.hpp>
#include <kozero/exchange/imported_deck.hpp>
#include <kozero/io/checkpoint.hpp>
#include <kozero/io/run_folder.hpp>
#include <kozero/io/seal.hpp>
#include <kozero/train/trained_weights.hpp>

#include "device_handover.hpp"
#include "resolved_deck.hpp"
#include "weights_source.hpp"

namespace kozero::commands {
namespace {

namespace fs = std::filesystem;
using Kind = WeightsSource::Kind;

bool is_hugging_face(const fs::path& folder) {
  return fs::exists(folder / "config.json") && !fs::exists(folder / train::kDeckFile);
}

std::string config_file(const WeightsSource& source) { return (fs::path(source.path) / "config.json").string(); }

bool names_device(const std::string& override) {
  return override.starts_with("run.device=") || override.starts_with("run.products=") ||
         override.starts_with("run.tuning=");
}

/// The folder's own name, of "models/x/" too.
std::string name_of_folder(const std::string& path) { return fs::weakly_canonical(fs::path(path)).filename().string(); }

void load_folder(const WeightsSource& source, const model::Config& config, const ParameterTable& table,
                 zero::Weights& weights) {
  const exchange::FolderWeights folder(source.path, config, table);
  for (const auto& slice : train::slices_of(weights)) {
    train::HostSlices one({slice});
    folder.read(one.named<float>().front());
    one.store();
  }
}

}  // namespace

WeightsSource find_weights(const std::string& path) {
  if (is_hugging_face(path)) {
    const std::string folder = io::without_trailing_slash(path);
    const auto config = exchange::read_config((fs::path(folder) / "config.json").string());
    const auto tokenizer = exchange::tokenizer_of(folder, config.vocab);
    return {Kind::hugging_face, folder, "", tokenizer.path, tokenizer.reason};
  }
  const train::RunFiles files = train::find_run(path);
  const bool in_checkpoint = fs::path(files.weights).filename() == io::kStateFile;
  const std::string no_tokenizer = files.tokenizer.empty() ? files.weights + " has no tokenizer beside it" : "";
  if (in_checkpoint) return {Kind::checkpoint, files.folder, files.deck, files.tokenizer, no_tokenizer};
  return {Kind::weights_file, files.weights, files.deck, files.tokenizer, no_tokenizer};
}

model::Config shape_of(const WeightsSource& source) {
  if (source.kind == Kind::hugging_face) return exchange::read_config(config_file(source));
  if (source.kind == Kind::checkpoint) return config_of(io::read_manifest(source.path).record.model, source.path);
  return config_of(io::read_seal(source.path).model, source.path);
}

io::Deck deck_of(const WeightsSource& source, const std::vector<std::string>& overrides) {
  if (!source.deck.empty()) {
    const io::Deck deck = io::read_deck(source.deck, overrides);
    const bool named = std::any_of(overrides.begin(), overrides.end(), names_device);
    return named ? deck : without_device(deck);
  }
  const std::string run_dir = "runs/" + name_of_folder(source.path);
  const io::Deck plain = exchange::imported_deck(shape_of(source), run_dir, source.tokenizer);
  return io::parse_deck(io::resolved_text(plain), source.path, overrides);
}

std::string hdf5_file_of(const WeightsSource& source) {
  return source.kind == Kind::checkpoint ? source.path + "/" + io::kStateFile : source.path;
}

const char* name_of(WeightsSource::Kind kind) {
  if (kind == Kind::hugging_face) return "Hugging Face folder";
  return kind == Kind::checkpoint ? "checkpoint" : "weights file";
}

void verify_source(const WeightsSource& source, dist::Communicator& comm) {
  if (source.kind == Kind::checkpoint) io::verify_checkpoint(comm, source.path);
  if (source.kind == Kind::weights_file) io::verify_seal(comm, source.path);
}

void load(const WeightsSource& source, const model::Config& config, const ParameterTable& table, zero::Weights& weights,
          dist::Communicator& comm) {
  if (source.kind == Kind::hugging_face) {
    dist::agreed(comm, [&] { load_folder(source, config, table, weights); });
    weights.publish();
    return;
  }
  verify_source(source, comm);
  train::load_weights(hdf5_file_of(source), table, weights, comm);
}

}  // namespace kozero::commands
