// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// eval_choices.hpp: `eval --choices`: the accuracy of trained weights on multiple-choice items (data/choices.hpp).
#pragma once
#include <string>

#include <kozero/program/arguments.hpp>
#include <kozero/run/weights_source.hpp>

namespace kozero::commands {

/// Scores the items of the file and prints accuracies, or with --json also each item's choices. Collective. Throws
/// Error(deck or input), seen by all ranks, before anything is computed.
void eval_choices(run::TrainedModel& trained, const program::DeckArguments& named, const std::string& path,
                  const program::JsonOutput& json);

}  // namespace kozero::commands
