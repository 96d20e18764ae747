// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// stand_in.cpp: the calls of a GPT-2 with tied embeddings.
#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>

#include "machine.hpp"
#include "stand_in.hpp"

namespace kozero::scale {

StandIn::StandIn(const ParameterTable& table, distributed::Communicator& comm, zero::ShardedState<float>& state,
                 Work work)
    : table_(table), comm_(comm), state_(state), work_(work), head_(table.num_units() - 1) {
  require(table.unit(head_).slot == kHeadSlot && table.unit(0).slot == kEmbeddingSlot,
          "the simulation knows decoders without a vocabulary in blocks");
  head_reads_first_ = table.unit(0).extent > table.unit(head_).extent;  // tied: the head has the last norm alone
}

double StandIn::seconds_of(int unit) const {
  return work_.passes_s / work_.micro_steps * static_cast<double>(table_.unit(unit).extent) /
         static_cast<double>(table_.extent());
}

void StandIn::forward() {
  for (int unit = 0; unit < head_; ++unit) {
    state_.acquire(unit);
    if (table_.unit(unit).slot == kBlockSlot) pass(seconds_of(unit) / 3.0);
    state_.release(unit);
  }
}

void StandIn::head() {
  state_.acquire(head_);
  if (head_reads_first_) state_.acquire(0);
  pass(seconds_of(head_reads_first_ ? 0 : head_));
  if (head_reads_first_) state_.gradient(0);
  if (head_reads_first_) state_.release(0);
  state_.gradient(head_);
  state_.release(head_);
  state_.gradient_ready(head_);
}

void StandIn::backward() {
  for (int unit = head_ - 1; unit >= 0; --unit) {
    const bool is_block = table_.unit(unit).slot == kBlockSlot;
    if (is_block) state_.acquire(unit);
    state_.gradient(unit);
    if (is_block) pass(2.0 / 3.0 * seconds_of(unit));
    if (is_block) state_.release(unit);
    state_.gradient_ready(unit);
  }
}

void StandIn::gather_losses() {
  struct Report {  // as the trainer's
    double loss, micro_step_s;
    std::int64_t request;
  };
  distributed::from_all_ranks(comm_, std::vector<Report>(static_cast<std::size_t>(work_.micro_steps)));
}

void StandIn::step() {
  for (int micro_step = 0; micro_step < work_.micro_steps; ++micro_step) {
    state_.gradients().begin_micro_step({micro_step, work_.micro_steps, comm_.size()});
    forward();
    head();
    backward();
  }
  state_.finish_gradients();
  static_cast<void>(state_.gradients().norm());
  gather_losses();
  pass(work_.update_s);
  state_.publish_update();
}

}  // namespace kozero::scale
