// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// trained_weights.hpp: the weights file of a run, written from and read into the ranks' slices; and finding a run's files.
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
inline constexpr const char* kTokenizerModelFile = "tokenizer.model";  ///< in its place where it is a SentencePiece model

/// This rank's slices of all units.
std::vector<DeviceSlice> slices_of(const zero::Weights& weights);

/// Writes every rank's slices. Collective. Throws Error(write).
void save_weights(const std::string& path, const ParameterTable& table, const zero::Weights& weights,
                  dist::Communicator& comm, const io::WeightsDescription& description);

/// Fills every rank's slices and publishes them. Collective. Throws Error(input).
io::WeightsDescription load_weights(const std::string& path, const ParameterTable& table, zero::Weights& weights,
                                    dist::Communicator& comm);

/// The files of a finished run.
struct TrainedRun {
  io::Deck deck;          ///< resolved, every shape in it
  std::string folder;
  std::string weights;
  std::string tokenizer;  ///< "" where the data were synthetic
};

/// Finds a run by its folder, a file in it, one of its checkpoints, or a deck (.toml) by its newest run. `overrides`
/// change the run's deck.
/// Throws Error(deck) with what is missing and how it is made.
TrainedRun find_run(const std::string& path, const std::vector<std::string>& overrides);

}  // namespace kozero::train
