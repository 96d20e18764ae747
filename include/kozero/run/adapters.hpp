// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// adapters.hpp: adapters of a PEFT folder for a run or a command, and the weights of a run's adapters merged with their
// base.
//   model.lora.init = PATH      training begins with the adapters of a PEFT folder
//   --adapter PATH              eval, generate and inspect: a base with the adapters of a PEFT folder
// rank, alpha, dropout, targets and rslora are the folder's if they are left out; rank, alpha and rslora must agree. An
// adapter that was trained beside another base, as its folder says, is rejected.
#pragma once
#include <string>

#include <kozero/distributed/communicator.hpp>
#include <kozero/huggingface/adapters.hpp>
#include <kozero/run/weights_source.hpp>
#include <kozero/train/engine.hpp>
#include "io/deck/deck.hpp"

namespace kozero::run {

inline constexpr const char* kNoAdapters = "none";  ///< model.lora.init's default

/// The deck completed from model.lora.init. Rank 0 reads the folder. Collective. Throws Error(deck or input), seen by
/// all ranks.
io::Deck with_initial_adapters(io::Deck deck, distributed::Communicator& comm);

/// Compares the tensors of model.lora.init with the deck's network and targets, on rank 0. Throws Error(input), seen by
/// all ranks. Collective.
void require_fitting_adapters(const io::Deck& deck, distributed::Communicator& comm);

/// The deck of `base` with the adapters of a PEFT folder. Collective. Throws like with_initial_adapters, and if `base`
/// has adapters of its own.
io::Deck with_adapters_of(const std::string& folder, const WeightsSource& base, io::Deck deck,
                          distributed::Communicator& comm);

/// The identity of the base beside which the adapters of model.lora.init were trained; "": unknown. Collective.
std::string base_of_initial_adapters(const io::Deck& deck, distributed::Communicator& comm);

/// Fills the adapters' shards of every rank from model.lora.init and publishes them. Collective. Throws Error(input),
/// seen by all ranks.
void load_initial_adapters(const io::Deck& deck, train::Evaluator& evaluator, distributed::Communicator& comm);

/// The weights of a run's adapters merged with the base of its deck, on one process. `state_file`: the adapters', which
/// is verified already. Throws Error(deck) if the base is not the one that the run recorded.
huggingface::MergedWeights merged_weights(const WeightsSource& source, const std::string& state_file,
                                          const io::Deck& deck, distributed::Communicator& comm);

/// A base and a PEFT folder that fits it.
struct InspectedAdapters {
  WeightsSource base;
  huggingface::AdapterDescription description;
  model::Config config;  ///< the base's, with the adapters
};

/// Compares the folder's tensors with the network of `base`. Collective.
InspectedAdapters inspect_adapters(const std::string& folder, const std::string& base, distributed::Communicator& comm);

}  // namespace kozero::run
