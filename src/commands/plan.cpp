// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include <kozero/core/device.hpp>
#include <kozero/dist/communicator.hpp>
#include <kozero/dist/make_communicator.hpp>
#include <kozero/plan/memory_plan.hpp>
#include <kozero/train/data_set.hpp>
#include "io/posix/system_resources.hpp"
#include "src/commands/arguments.hpp"
#include "src/commands/session.hpp"

namespace kozero::commands {
namespace {

/// Between which ranks the plan's data travel, and how.
struct Ranks {
  int count;
  std::string backend;
  bool assumed;  ///< comm.backend = auto, of ranks that are not here to be asked
};

Ranks ranks_of(Session& session, int asked) {
  const io::Deck& deck = session.deck();
  const int count = asked > 0 ? asked : static_cast<int>(deck.run.ranks);
  if (count == session.control().size()) return {count, session.backend(), false};
  const bool assumed = deck.comm.backend == "auto";
  return {count, assumed ? dist::assumed_backend(count) : deck.comm.backend, assumed && count > 1};
}

/// What each may take: its share of this node, or a GPU of its own and its share of a node with a rank a GPU.
plan::DeviceAndHost room_of(const Ranks& ranks) {
  const std::int64_t on_host = io::available_memory();
  if (kHostIsDevice) return {on_host / ranks.count, on_host / ranks.count};
  return {device_memory().free, on_host / std::min(ranks.count, Kokkos::num_devices())};
}

std::string remarks_on(const Ranks& ranks) {
  std::string text;
  if (ranks.assumed) {
    text = "assumed: comm.backend = auto takes " + ranks.backend +
           (ranks.backend == "nccl" ? ", each rank having a GPU of its own" : ", all ranks being on one node") + "\n";
  }
  return text +
         (ranks.backend == "nccl" ? "not in it: what NCCL takes of each GPU, which a run measures and books\n" : "");
}

nlohmann::ordered_json json_of(const std::vector<plan::MemoryPlan>& plans, const Ranks& ranks) {
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (const auto& plan : plans) {
    nlohmann::ordered_json stage = {
        {"stage", plan.stage},
        {"ranks", plan.num_ranks},
        {"total", plan.total()},
        {"formula", plan::model_state_bytes(plan.precision, plan.stage, plan.num_parameters, plan.num_ranks)}};
    for (std::size_t i = 0; i < kMemoryNames.size(); ++i) stage[std::string(kMemoryNames[i])] = plan.bytes[i];
    stages.push_back(stage);
  }
  return {{"parameters", plans.front().num_parameters},
          {"precision", name_of(plans.front().precision)},
          {"backend", ranks.backend},
          {"stages", stages}};
}

}  // namespace

void plan(const dist::Environment& environment, const Arguments& arguments) {
  OptionParser parser("plan");
  DeckArguments deck_arguments;
  deck_arguments.add_to(parser);
  int num_ranks = 0;
  parser.add("--ranks", num_ranks, "ranks to plan for").type_name("N").default_text("run.ranks").positive();
  JsonOutput json;
  json.add_to(parser);
  parser.parse(arguments);

  Session session(environment, [&](dist::Communicator& comm) { return deck_arguments.read_for_any_device(comm); });
  const io::Deck& deck = session.deck();
  const Ranks ranks = ranks_of(session, num_ranks);
  const auto plans = dist::agreed(session.control(), [&] {
    return plan::plans_of_all_stages(deck, ranks.backend, ranks.count, train::vocab_of(deck));
  });
  if (!session.is_first_rank()) return;
  if (json.is_asked()) return json.print(json_of(plans, ranks));
  std::cout << deck.source << ": " << plans.front().num_parameters << " parameters on " << ranks.count
            << (ranks.count == 1 ? " rank" : " ranks") << "; the deck asks for stage " << deck.zero.stage << "\n\n"
            << plan::table_of(plans, room_of(ranks)) << remarks_on(ranks);
}

}  // namespace kozero::commands
