// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// weights_source.hpp: the trained weights that a path names, an engine that holds them, and the weights that a run
// begins with (model.init).
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

namespace kozero::run {

// The trained weights that a path names: where they lie, of what model, how the ranks get them.
//   a run's folder, a weights file, a checkpoint, a deck that was trained, a Hugging Face folder with config.json
// A checkpoint's bytes are compared with its manifest before libhdf5 reads them. All ranks read the same files: what
// rank 0 found, and where another rank's own look at a file shows other bytes, the weights are refused.

struct WeightsSource {
  enum class Kind { weights_file, checkpoint, hugging_face };
  Kind kind = Kind::weights_file;
  std::string path;          ///< the weights file, or the folder of the other kinds
  std::string model;         ///< its network, as train::config_of reads it
  std::string deck;          ///< the deck.toml beside them, or ""
  std::string deck_text;     ///< its text
  std::string tokenizer;     ///< its file, or ""
  std::string no_tokenizer;  ///< then: why
};

/// Rank 0 looks, and reads the deck and what describes the network: config.json, the manifest, or the weights file's
/// header. A trainer may write or remove checkpoints meanwhile: no other rank looks for itself. Collective. Throws
/// Error(deck or input), seen by all ranks.
WeightsSource find_weights(const std::string& path, distributed::Communicator& comm,
                           train::Which which = train::Which::latest);

/// The network of the weights. Throws Error(input).
model::Config shape_of(const WeightsSource& source);

/// The deck that they were trained by, or a plain one with their shape, which names no data. `overrides` change it.
io::Deck deck_of(const WeightsSource& source, const std::vector<std::string>& overrides);

/// "weights file", "checkpoint", "Hugging Face folder".
const char* name_of(WeightsSource::Kind kind);

/// Throws Error(input), seen by all ranks, where the tensors of a Hugging Face folder are not those of `table`: before
/// memory is taken for them. Collective.
void require_tensors(const WeightsSource& source, const model::Config& config, const ParameterTable& table,
                     distributed::Communicator& comm);

/// Verifies, then fills every rank's shards and publishes them. If `source` is the newest checkpoint of the run that
/// `path` names, and its trainer removes it meanwhile, `source` becomes the next newest. Host memory, where the
/// device's is another, is one unit's shard. Collective. Throws Error(input), seen by all ranks.
void load(const std::string& path, WeightsSource& source, train::Evaluator& evaluator, distributed::Communicator& comm);

/// The deck of a run for a command that gives the same on any number of ranks: the run's groups of ranks, which may not
/// divide that number, are left out unless an override names them.
io::Deck on_any_ranks(io::Deck deck, const std::vector<std::string>& overrides);

// A model with its trained weights, in f32, for evaluation and generation.

class TrainedModel {
 public:
  /// Reads the weights that `path` names (weights_source.hpp), with their deck changed by `overrides`. Collective.
  /// Throws Error, seen by all ranks, and as require_room() does.
  TrainedModel(const std::string& path, const std::vector<std::string>& overrides,
               const distributed::Environment& environment, train::Use use);

  [[nodiscard]] Session& session() { return session_; }
  [[nodiscard]] const io::Deck& deck() const { return session_.deck(); }
  [[nodiscard]] const WeightsSource& source() const { return source_; }
  [[nodiscard]] const train::Settings& settings() const { return settings_; }
  [[nodiscard]] train::Evaluator& evaluator() { return on_ranks_.evaluator(); }
  [[nodiscard]] MemoryLedger& ledger() { return on_ranks_.ledger(); }

  /// Throws Error(deck) where a tokenizer has more ids than the model.
  void accept_vocabulary(std::int64_t ids) const;

 private:
  WeightsSource source_;
  Session session_;
  train::Settings settings_;
  EngineOnRanks on_ranks_;
};

// `model.init`: the model and the weights that a run begins with.
//   random   drawn from run.seed
//   PATH     fine-tuning: weights_source.hpp's weights, a fresh optimizer, step 0, the deck's own data
// Keys of the model that the deck leaves out, and data.tokenizer, come from PATH; those it gives must agree, but for
// model.seq under rotary positions, of which no weight depends, and model.dropout.

/// The deck with what PATH says filled in. Throws Error(deck) naming each key that disagrees, and where the tokenizer
/// has more ids than the model; Error(input) where PATH cannot be read; seen by all ranks. Collective.
io::Deck with_initial_model(io::Deck deck, distributed::Communicator& comm);

/// Fills and publishes the weights of step 0; returns a line for the log, "" where they are random. Collective.
std::string begin_weights(const io::Deck& deck, train::Evaluator& evaluator, distributed::Communicator& control);

}  // namespace kozero::run
