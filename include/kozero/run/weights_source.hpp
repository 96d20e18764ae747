// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// weights_source.hpp: the trained weights that a path names, an engine with these weights, and the weights that a run
// begins with (model.init).
//   a run's folder, a weights file, a checkpoint, a deck that was trained, a Hugging Face folder with config.json
// A checkpoint's bytes are compared with its manifest before libhdf5 reads them. Rank 0 resolves the path for all
// ranks. If another rank reads other bytes than rank 0, the weights are rejected.
//   model.init = random   drawn from run.seed
//   model.init = PATH     fine-tuning: the weights of PATH, a fresh optimizer, step 0, the deck's own data
// Keys of the model that the deck leaves out, and data.tokenizer, come from PATH. Keys that it gives must agree, except
// model.seq with rotary positions, on which no weight depends, and model.dropout.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include <kozero/core/parameter_table.hpp>
#include <kozero/data/data_set.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/model/config.hpp>
#include <kozero/run/engine_on_ranks.hpp>
#include <kozero/run/session.hpp>
#include <kozero/train/engine.hpp>
#include <kozero/train/run_files.hpp>
#include <kozero/train/settings.hpp>
#include "io/deck/deck.hpp"

namespace kozero::huggingface {
class FolderWeights;
}

namespace kozero::run {

/// Trained weights: their files, their network, and the deck and tokenizer beside them.
struct WeightsSource {
  enum class Kind { weights_file, checkpoint, hugging_face };
  Kind kind = Kind::weights_file;
  std::string path;          ///< the weights file, or the folder of the other kinds
  std::string model;         ///< its network, for train::config_of
  std::string base;          ///< of adapters: the base's identity (fill_base); "" otherwise
  std::string deck;          ///< the deck.toml beside the weights, or ""
  std::string deck_text;     ///< the text of `deck`
  std::string tokenizer;     ///< its file, or ""
  std::string no_tokenizer;  ///< then: why
  std::string note;          ///< what is in a Hugging Face folder and not used; "": nothing
};

/// Rank 0 resolves the path, and reads the deck and the network's description: config.json, the manifest, or the
/// weights file's header. Only rank 0 does so, since a trainer may write or remove checkpoints meanwhile. Collective.
/// Throws Error(deck or input), seen by all ranks.
WeightsSource find_weights(const std::string& path, distributed::Communicator& comm,
                           train::Which which = train::Which::latest);

/// The network of the base.
model::Config without_adapters(model::Config config);

/// The network of the weights. Throws Error(input).
model::Config shape_of(const WeightsSource& source);

/// Throws Error(deck), seen by all ranks, naming what differs, unless `base` has the network of `config`, which has no
/// adapters: the adapters in `adapters` were trained beside another base.
void require_same_network(const WeightsSource& base, model::Config config, const std::string& adapters);

/// The deck of their training, or a plain deck with their shape and without data. `overrides` change it.
io::Deck deck_of(const WeightsSource& source, const std::vector<std::string>& overrides);

/// "weights file", "checkpoint", "Hugging Face folder".
const char* name_of(WeightsSource::Kind kind);

/// Throws Error(input), seen by all ranks, if the tensors of a Hugging Face folder are not those of `table`. Call
/// before memory is allocated for the tensors. Collective.
void require_tensors(const WeightsSource& source, const model::Config& config, const ParameterTable& table,
                     distributed::Communicator& comm);

/// The tensors of a Hugging Face folder, the same on all ranks. Collective. Throws Error(input), seen by all ranks.
std::unique_ptr<huggingface::FolderWeights> open_folder(const WeightsSource& source, const model::Config& config,
                                                        const ParameterTable& table, distributed::Communicator& comm);

/// Fills and publishes the base of adapters from model.init; nothing without adapters. Returns the base's identity, a
/// hash of its values in f32, which does not depend on the files' format, the precision or the ranks. Throws
/// Error(deck), seen by all ranks, if it is not `saved`, the base of the adapters in `saved_in`; "": unknown.
/// Collective.
std::string fill_base(const io::Deck& deck, const std::string& saved, const std::string& saved_in,
                      train::Evaluator& evaluator, distributed::Communicator& comm);

/// Verifies, then fills every rank's shards and publishes them. If `source` is the newest checkpoint of the run that
/// `path` names, and its trainer removes it meanwhile, `source` becomes the next newest. On a GPU, uses host memory for
/// one unit's shard. Collective. Throws Error(input), seen by all ranks.
void load(const std::string& path, WeightsSource& source, train::Evaluator& evaluator, distributed::Communicator& comm);

/// The deck of a run for a command whose result does not depend on the number of ranks. zero.shard_group, which may not
/// divide that number, is removed unless an override gives it.
io::Deck on_any_ranks(io::Deck deck, const std::vector<std::string>& overrides);

/// A model with its trained weights for evaluation and generation: in f32, or as an override train.precision says.
class TrainedModel {
 public:
  /// Reads the weights that `path` names (weights_source.hpp), with their deck changed by `overrides`. `adapter`: a
  /// PEFT folder whose adapters are added to them; "": none. Collective. Throws Error, seen by all ranks, and like
  /// require_room().
  TrainedModel(const std::string& path, const std::vector<std::string>& overrides,
               const distributed::Environment& environment, train::Use use, const std::string& adapter = "");

  [[nodiscard]] Session& session() { return session_; }
  [[nodiscard]] const io::Deck& deck() const { return session_.deck(); }
  [[nodiscard]] const WeightsSource& source() const { return source_; }
  [[nodiscard]] const train::Settings& settings() const { return settings_; }
  [[nodiscard]] train::Evaluator& evaluator() { return on_ranks_.evaluator(); }
  [[nodiscard]] MemoryLedger& ledger() { return on_ranks_.ledger(); }

  /// Throws Error(deck) if a tokenizer has more ids than the model.
  void accept_vocabulary(std::int64_t ids) const;

 private:
  WeightsSource source_;
  Session session_;
  train::Settings settings_;
  EngineOnRanks on_ranks_;
};

/// The deck completed from model.init and model.lora.init. Throws, seen by all ranks, Error(deck) naming each key that
/// disagrees, or if the tokenizer has more ids than the model; Error(input) if the path cannot be read. Collective.
io::Deck with_initial_model(io::Deck deck, distributed::Communicator& comm);

/// Fills and publishes the weights of step 0; returns a line for the log, "" if they are random. Collective.
std::string begin_weights(const io::Deck& deck, train::Evaluator& evaluator, distributed::Communicator& control);

}  // namespace kozero::run
