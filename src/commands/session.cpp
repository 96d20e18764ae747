// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include <kozero/core/error.hpp>
#include <kozero/dist/agreed.hpp>
#include <kozero/dist/control_communicator.hpp>
#include <kozero/dist/make_communicator.hpp>
#include <kozero/kernels/attention.hpp>
#include <kozero/kernels/matmul.hpp>
#include <kozero/zero/gathered_units.hpp>

#include "device_handover.hpp"
#include "session.hpp"
#include "start_checks.hpp"
#include "tuned_products.hpp"

namespace kozero::commands {
namespace {

kernels::Products products_of(const io::Deck& deck) {
  if (deck.run.products == "tf32") return kernels::Products::tf32;
  return deck.run.products == "library" ? kernels::Products::library : kernels::Products::fastest;
}

}  // namespace

Session::Session(const dist::Environment& environment, const Read& read) : environment_(environment) {
  require_one_world(environment);
  {
    const auto comm = dist::make_control_communicator(environment.world(), io::Deck().comm.timeout_s);
    dist::agreed(*comm, require_gpu);  // Kokkos would abort
    require_same_program(*comm);
    deck_ = read(*comm);
    for (const auto& note : deck_.notes) {
      if (is_first_rank()) std::cerr << "note: " << note << "\n";
    }
    dist::agreed(*comm, [&] { require_device(deck_); });
    require_same_deck(deck_, *comm);
  }
  dist::Environment::obey_timeout(deck_.comm.timeout_s);
  runtime_.emplace(deck_.run.threads, environment);
  control_ = dist::make_control_communicator(environment.world(), deck_.comm.timeout_s);
  kernels::choose_products(products_of(deck_));
  kernels::choose_attention(deck_.run.deterministic ? kernels::Attention::repeating : kernels::Attention::fastest);
  tuning_ = apply_tuning(deck_, *control_);
}

const std::string& Session::backend() {
  if (backend_.empty()) backend_ = dist::backend_of(deck_.comm.backend, environment_.world(), options());
  return backend_;
}

dist::CommunicatorOptions Session::options() const {
  return {.timeout_s = deck_.comm.timeout_s,
          .under_way = zero::collectives_under_way(static_cast<int>(deck_.zero.prefetch_units)),
          .deterministic = deck_.run.deterministic};
}

std::unique_ptr<dist::Communicator> Session::connect(MemoryLedger& ledger) {
  return dist::make_communicator(backend(), environment_.world(), ledger, options());
}

}  // namespace kozero::commands
