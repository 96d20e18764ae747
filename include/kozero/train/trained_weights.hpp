// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// trained_weights.hpp: the weights file of a run, written from and read into the ranks' slices;
// and finding a run's files.
//   a run's folder:  deck.toml (resolved)  weights.h5  tokenizer.json  metrics.jsonl  log.txt
#pragma once
#include <string>

#include <kozero/io/deck.hpp>
#include <kozero/io/weights.hpp>
#include <kozero/train/host_slices.hpp>
#include <kozero/zero/weights.hpp>

namespace kozero::train {

inline constexpr const char* kWeightsFile = "weights.h5";
inline constexpr const char* kDeckFile = "deck.toml";
inline constexpr const char* kTokenizerFile = "tokenizer.json";
inline constexpr const char* kTokenizerModelFile =
    "tokenizer.model";  ///< in its place where it is a SentencePiece model

/// This rank's slices of all units.
std::vector<DeviceSlice> slices_of(const zero::Weights& weights);

/// Writes every rank's slices. Collective. Throws Error(write).
void save_weights(const std::string& path, const ParameterTable& table, const zero::Weights& weights,
                  dist::Communicator& comm, const io::WeightsDescription& description);

/// Fills every rank's slices and publishes them. Collective. Throws Error(input).
io::WeightsDescription load_weights(const std::string& path, const ParameterTable& table, zero::Weights& weights,
                                    dist::Communicator& comm);

/// Trained weights and the files that come with them.
struct RunFiles {
  std::string folder;     ///< where they lie
  std::string weights;    ///< weights.h5, or a checkpoint's state.h5
  std::string deck;       ///< resolved, every shape in it; "" where the weights lie alone
  std::string tokenizer;  ///< "" where the data were synthetic, or the weights lie alone
};

/// latest: of a run its weights file or its newest checkpoint, whichever is of the later step. best: its checkpoint
/// with the lowest validation loss.
enum class Which { latest, best };

/// Finds them by a run's folder, a weights file, a checkpoint, or a deck (.toml) by its newest run; the best ones by a
/// run's folder or a deck. Throws Error(deck) with what is missing and how it is made.
RunFiles find_run(const std::string& path, Which which = Which::latest);

}  // namespace kozero::train
