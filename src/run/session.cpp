// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// session.cpp: the order of a session's start: launch checks, deck, device, Kokkos, communicators.
#include <iostream>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/run/device_choice.hpp>
#include <kozero/run/session.hpp>
#include <kozero/run/start_checks.hpp>
#include <kozero/train/settings.hpp>
#include "kernels/attention/attention.hpp"
#include "kernels/matmul/matmul.hpp"
#include "src/run/rank_placement.hpp"

namespace kozero::run {
namespace {

kernels::Products products_of(const io::Deck& deck) {
  if (deck.run.products == "tf32") return kernels::Products::tf32;
  return deck.run.products == "portable" ? kernels::Products::portable : kernels::Products::fastest;
}

}  // namespace

Session::Session(const distributed::Environment& environment, const Read& read)
    : environment_(environment), ranks_(environment.world()) {
  require_one_world(environment);
  {
    const auto comm = distributed::make_control_communicator(environment.world(), io::Deck().comm.timeout_s);
    distributed::agreed(*comm, require_gpu);  // Kokkos would abort
    require_same_program(*comm);
    deck_ = read(*comm);
    for (const auto& note : deck_.notes) {
      if (is_first_rank()) std::cerr << "note: " << escaped(note) << "\n";
    }
    distributed::agreed(*comm, [&] { require_device(deck_); });
    require_same_deck(deck_, *comm);
  }
  if (environment.size() > 1) deck_.ranks_per_node = ranks_per_node();
  distributed::Environment::obey_timeout(deck_.comm.timeout_s);
  runtime_.emplace(deck_.run.threads, environment, deck_.run.bind == "auto" ? train::Bind::share : train::Bind::none);
  control_ = distributed::make_control_communicator(environment.world(), deck_.comm.timeout_s);
  placements_ = placements_of(*runtime_, *control_);
  kernels::choose_products(products_of(deck_));
  kernels::choose_attention(deck_.run.deterministic ? kernels::Attention::repeating : kernels::Attention::fastest);
  tuning_ = train::apply_tuning(deck_, *control_);
}

Session::Session(const Session& all, const distributed::FirstRanks& ranks, std::string backend)
    : environment_(all.environment_),
      ranks_(ranks.ranks()),
      deck_(all.deck_),
      placements_(all.placements_.begin(), all.placements_.begin() + ranks_.size()),
      control_(distributed::make_control_communicator(ranks_, deck_.comm.timeout_s)),
      tuning_(all.tuning_),
      backend_(std::move(backend)) {}

const std::string& Session::backend() {
  if (backend_.empty()) backend_ = distributed::backend_of(deck_.comm.backend, ranks_, options());
  return backend_;
}

int Session::ranks_per_node() const {
  const int ranks = distributed::ranks_per_node(ranks_, options());
  if (ranks > 0) return ranks;
  const auto comm = distributed::make_control_communicator(ranks_, deck_.comm.timeout_s);
  if (distributed::broadcast_value(*comm, environment_.local_ranks()) == comm->size()) return comm->size();
  if (deck_.zero.shard_group != "node") return 0;
  throw Error(Failure::deck,
              "zero.shard_group = \"node\": the nodes have different numbers of ranks, or these are not numbered node "
              "by node; start equally many on each, or give the number of ranks of a group",
              Error::Seen::by_all_ranks);
}

distributed::CommunicatorOptions Session::options() const { return train::communicator_options(deck_); }

plan::MemoryPlan Session::plan_of(train::Settings settings) {
  settings.comm.ranks_per_node = deck_.ranks_per_node;
  const std::string& name = backend();
  return distributed::agreed(*control_, [&] { return plan::memory_plan(settings, name, control_->size()); });
}

distributed::MeshCommunicators Session::connect(const train::Settings& settings, MemoryLedger& ledger) {
  return distributed::make_mesh(backend(), ranks_, settings.ranks_per_group, ledger, options());
}

}  // namespace kozero::run
