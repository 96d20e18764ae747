// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_step_schedule.cpp: the order in which a step starts its collectives, waits for them and waits until their
// arguments are reusable, recorded by a communicator that moves no data. Letters for a gather, a reduction:
//   g r  start   w d  wait   q c  wait until reusable   [..] a kernel
// Units: 0 the embedding, 1 to 3 blocks of one slot, 4 the head, which reads the embedding too.
#include <catch2/catch_test_macros.hpp>

#include <kozero/zero/sharded_state.hpp>

#include "vector_row.hpp"

using namespace kozero;
using distributed::Pending;

namespace {

ParameterTable five_units() {
  ParameterTable table;
  const std::vector<int> slots = {0, 1, 1, 1, 2};
  for (std::size_t unit = 0; unit < slots.size(); ++unit) {
    table.add_unit("unit " + std::to_string(unit), slots[unit]);
    table.add(tests::vector_row("weight",
                                64 * (static_cast<std::int64_t>(unit) + 1)));  // units are identified by their extents
  }
  return table;
}

/// Rank 0 of 2.
class WritingCommunicator final : public distributed::Communicator {
 public:
  std::string events;

  void write(const std::string& event) { events += (events.empty() ? "" : " ") + event; }

  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 2; }
  [[nodiscard]] std::string name() const override { return "writing"; }
  Pending start_reduce_scatter(const float* /*full*/, float* /*shard*/, const Partition& partition,
                               distributed::Fold /*fold*/) override {
    return started(distributed::Collective::reduce_scatter, "r", partition);
  }
  Pending start_all_gather(const void* /*shard*/, void* /*full*/, const Partition& partition,
                           std::size_t /*element_size*/) override {
    return started(distributed::Collective::all_gather, "g", partition);
  }
  void wait(Pending pending) override { write((gathers(pending) ? "w" : "d") + unit_of(pending)); }
  void wait_until_reusable(Pending pending) override { write((gathers(pending) ? "q" : "c") + unit_of(pending)); }
  void barrier() override {}
  std::vector<std::byte> gather_control(std::span<const std::byte> /*mine*/) override { return {}; }
  std::string broadcast_control(const std::string& bytes) override { return bytes; }

 private:
  static bool gathers(Pending pending) { return pending.collective == distributed::Collective::all_gather; }
  static std::string unit_of(Pending pending) { return std::to_string(pending.ticket); }
  Pending started(distributed::Collective collective, const std::string& letter, const Partition& partition) {
    const auto unit = static_cast<std::uint64_t>(partition.extent() / 64 - 1);
    write(letter + std::to_string(unit));
    return {collective, unit};
  }
};

/// The events of a training step of one micro-step in the decoder's order, until its gradients are finished.
std::string events_of_step(zero::ShardedState<float>& state, WritingCommunicator& comm) {
  comm.events.clear();
  state.gradients().begin_micro_step({});
  for (int unit = 0; unit < 4; ++unit) {
    state.acquire(unit);
    comm.write("[forward " + std::to_string(unit) + "]");
    state.release(unit);
  }
  state.acquire(4);
  state.acquire(0);
  state.gradient(4);
  state.gradient(0);
  comm.write("[head]");
  state.release(0);
  state.release(4);
  state.gradient_ready(4);
  for (int unit = 3; unit > 0; --unit) {
    state.acquire(unit);
    state.gradient(unit);
    comm.write("[backward " + std::to_string(unit) + "]");
    state.release(unit);
    state.gradient_ready(unit);
  }
  state.gradient(0);
  comm.write("[backward 0]");
  state.gradient_ready(0);
  state.finish_gradients();
  return comm.events;
}

std::string first_step(const zero::Config& config) {
  WritingCommunicator comm;
  MemoryLedger ledger;
  const auto table = five_units();
  zero::ShardedState<float> state(table, comm, config, ledger);
  return events_of_step(state, comm);
}

}  // namespace

TEST_CASE("stage 3: the next unit is gathered while one works, forward and backward, and reductions overlap") {
  const std::string expected =
      "g0 w0 g1 [forward 0] w1 g2 [forward 1] w2 g3 [forward 2] w3 g4 [forward 3] w4 [head] r4 "
      "[backward 3] r3 d4 g1 [backward 2] r2 d3 w1 c3 [backward 1] r1 d2 [backward 0] r0 d1 d0 q0 q1 q2 q4";
  CHECK(first_step({.stage = 3, .accumulation = zero::Accumulation::ordered}) == expected);
}

TEST_CASE("stage 3 without prefetch and overlap: each is waited for where it is used") {
  const std::string expected =
      "g0 w0 [forward 0] g1 w1 [forward 1] g2 w2 [forward 2] g3 w3 [forward 3] g4 w4 [head] r4 d4 c4 "
      "[backward 3] r3 d3 c3 g2 w2 [backward 2] r2 d2 c2 g1 w1 [backward 1] r1 d1 c1 [backward 0] r0 d0 c0 q0 q1 q4";
  CHECK(first_step({.stage = 3, .accumulation = zero::Accumulation::ordered, .overlap = false, .prefetch_units = 0}) ==
        expected);
}

TEST_CASE("stage 3: two units ahead, and no buffer that is held is gathered into") {
  const std::string expected =
      "g0 w0 g1 g2 [forward 0] w1 g3 [forward 1] w2 g4 [forward 2] w3 [forward 3] w4 [head] r4 "
      "[backward 3] r3 d4 [backward 2] r2 d3 c3 [backward 1] r1 d2 [backward 0] r0 d1 d0 q0 q1 q2 q3 q4";
  CHECK(first_step({.stage = 3, .accumulation = zero::Accumulation::ordered, .prefetch_units = 2}) == expected);
}

TEST_CASE("a vocabulary in blocks: down without the one that is there, up likewise, and reduced twice") {
  ParameterTable table;  // units 0 and 1: blocks of the vocabulary, 2: a block, 3: the head's norm
  const std::vector<int> slots = {kEmbeddingSlot, kEmbeddingSlot, kBlockSlot, kHeadSlot};
  for (std::size_t unit = 0; unit < slots.size(); ++unit) {
    table.add_unit("unit " + std::to_string(unit), slots[unit], unit < 2 ? VocabularyUse::both : VocabularyUse::none);
    table.add(tests::vector_row("weight " + std::to_string(unit), 64 * (static_cast<std::int64_t>(unit) + 1)));
  }
  WritingCommunicator comm;
  MemoryLedger ledger;
  zero::ShardedState<float> state(table, comm, {.stage = 3, .prefetch_units = 0}, ledger);
  const auto read = [&](int unit, const std::string& what) {
    state.acquire(unit);
    comm.write("[" + what + " " + std::to_string(unit) + "]");
    state.release(unit);
  };
  state.gradients().begin_micro_step({});
  for (const int unit : {0, 1, 2}) read(unit, "forward");
  state.acquire(3);
  for (const int unit : {1, 0}) read(unit, "down");
  for (const int unit : {0, 1}) {
    state.gradient(unit);
    read(unit, "up");
    state.gradient_ready(unit);
  }
  state.gradient(3);
  state.release(3);
  state.gradient_ready(3);
  state.gradient(2);
  read(2, "backward");
  state.gradient_ready(2);
  for (const int unit : {0, 1}) {
    state.lookup_gradient(unit);
    state.lookup_gradient_ready(unit);
  }
  state.finish_gradients();
  const std::string expected =
      "g0 w0 [forward 0] g1 w1 [forward 1] g2 w2 [forward 2] g3 w3 [down 1] g0 w0 [down 0] [up 0] r0 g1 w1 [up 1] r1 "
      "d0 "
      "r3 d1 [backward 2] r2 d3 c0 r0 d2 c1 r1 d0 d1 c0 c1 q1 q2 q3";
  CHECK(comm.events == expected);
}

TEST_CASE("stage 1: each unit is reduced while the next works, and taken back when the next step writes it") {
  WritingCommunicator comm;
  MemoryLedger ledger;
  const auto table = five_units();
  zero::ShardedState<float> state(table, comm, {.stage = 1}, ledger);
  const std::string forward = "[forward 0] [forward 1] [forward 2] [forward 3] ";
  CHECK(events_of_step(state, comm) ==
        forward + "[head] r4 [backward 3] r3 d4 [backward 2] r2 d3 [backward 1] r1 d2 [backward 0] r0 d1 d0");
  CHECK(events_of_step(state, comm) == forward +
                                           "c4 c0 [head] r4 c3 [backward 3] r3 d4 c2 [backward 2] r2 d3 "
                                           "c1 [backward 1] r1 d2 [backward 0] r0 d1 d0");
}

TEST_CASE("updated shards are gathered a unit behind their start") {
  WritingCommunicator comm;
  MemoryLedger ledger;
  const auto table = five_units();
  zero::ShardedState<float> state(table, comm, {.stage = 1}, ledger);
  state.publish_update();
  CHECK(comm.events == "g0 g1 w0 g2 w1 g3 w2 g4 w3 w4 q0 q1 q2 q3 q4");
}

TEST_CASE("an order that nobody foresaw gathers what it needs") {
  WritingCommunicator comm;
  MemoryLedger ledger;
  const auto table = five_units();
  zero::ShardedState<float> state(table, comm, {.stage = 3, .accumulation = zero::Accumulation::ordered}, ledger);
  for (const int unit : {2, 0, 3}) {
    state.acquire(unit);
    comm.write("[" + std::to_string(unit) + "]");
    state.release(unit);
  }
  CHECK(comm.events == "g2 w2 g3 [2] w3 g0 w0 g1 [0] w1 g3 w3 g4 [3]");
}
