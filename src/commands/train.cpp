// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// train.cpp: the command `train`: a deck's training run, and its summary as JSON.
#include <nlohmann/json.hpp>
#include <optional>

#include <kozero/commands/commands.hpp>
#include <kozero/program/arguments.hpp>
#include <kozero/run/kernel_profile.hpp>
#include <kozero/run/session.hpp>
#include <kozero/run/train.hpp>

namespace kozero::commands {

using program::DeckArguments;
using program::JsonOutput;
using program::OptionParser;
using run::RunSummary;
using run::Session;
using run::StartedAs;

namespace {

nlohmann::ordered_json json_of(const RunSummary& summary) {
  nlohmann::ordered_json json = {{"folder", summary.folder},
                                 {"steps", summary.steps},
                                 {"first_loss", summary.first_loss},
                                 {"last_loss", summary.last_loss},
                                 {"val_loss", nullptr},
                                 {"tokens_per_s", summary.median_tokens_per_s},
                                 {"peak_memory", summary.peak_memory},
                                 {"skipped_steps", summary.skipped_steps}};
  if (summary.val_loss) json["val_loss"] = *summary.val_loss;
  return json;
}

}  // namespace

void train(const distributed::Environment& environment, const Arguments& arguments) {
  OptionParser parser("train");
  DeckArguments deck_arguments;
  deck_arguments.add_to(parser);
  parser.show_keys({"model.preset", "data.text", "run.steps", "run.dir", "train.global_batch", "train.micro_batch",
                    "optim.lr", "zero.stage", "train.precision", "checkpoint.every"});
  StartedAs started{arguments};
  parser.add_flag("--verify-data", started.verify_data,
                  "read and check all token shards and their text before the first step");
  parser.add_flag("--steal-lock", started.steal_lock, "take the folder of a run whose host was lost");
  JsonOutput json;
  json.add_to(parser);
  parser.parse(arguments);

  std::optional<run::KernelProfile> profile;  // before Kokkos is up
  Session session(environment, [&](distributed::Communicator& comm) {
    io::Deck deck = deck_arguments.read(comm);
    const std::string& recorded = deck.log.timeline;
    if (recorded == "all" || (recorded == "rank0" && comm.rank() == 0)) started.profile = &profile.emplace();
    return deck;
  });
  const RunSummary summary = run::train(session, started);
  if (environment.rank() == 0) json.print(json_of(summary));
}

}  // namespace kozero::commands
