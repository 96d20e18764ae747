// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/core/error.hpp>
#include <kozero/dist/agreed.hpp>
#include <kozero/dist/control_communicator.hpp>
#include <kozero/dist/make_communicator.hpp>
#include <kozero/kernels/attention.hpp>
#include <kozero/kernels/matmul.hpp>
#include <kozero/zero/gathered_units.hpp>

#include "device_handover.hpp"
#include "session.hpp"
#include "tuned_products.hpp"

namespace kozero::commands {
namespace {

kernels::Products products_of(const io::Deck& deck) {
  if (deck.run.products == "tf32") return kernels::Products::tf32;
  return deck.run.products == "library" ? kernels::Products::library : kernels::Products::fastest;
}

}  // namespace

Session::Session(const dist::Environment& environment, const std::function<io::Deck()>& read)
    : environment_(environment) {
  require_gpu();  // Kokkos would abort
  auto reading = dist::attempted([&] {
    io::Deck deck = read();
    require_device(deck);
    return deck;
  });
  runtime_.emplace(reading.status == 0 ? reading.result->run.threads : 1, environment);
  if (reading.status == 0) dist::Environment::obey_timeout(reading.result->comm.timeout_s);
  const double timeout_s = reading.status == 0 ? reading.result->comm.timeout_s : io::Deck().comm.timeout_s;
  control_ = dist::make_control_communicator(environment.world(), timeout_s);
  deck_ = dist::agreed(*control_, std::move(reading));

  io::Deck here = deck_;
  here.run.device = device_of_this_program();  // auto may have come out differently on another node
  const std::string mine = io::fingerprint(here);
  const std::string difference = io::first_difference(control_->broadcast_control(mine), mine);
  const std::string refusal = "ranks 0 and " + std::to_string(control_->rank()) + " disagree on " + difference +
                              ": give every rank the same deck and overrides";
  dist::agree(*control_, difference.empty() ? 0 : static_cast<int>(Failure::deck), refusal);
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
