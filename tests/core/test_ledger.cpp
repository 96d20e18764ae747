// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_ledger.cpp: planned and allocated memory are booked alike; memory is zeroed; slices of planned memory.
#include <catch2/catch_test_macros.hpp>

#include <kozero/core/ledger.hpp>

using namespace kozero;

TEST_CASE("a planning ledger books what an allocating one books, without memory") {
  MemoryLedger real, plan(MemoryLedger::Mode::plan);
  for (MemoryLedger* ledger : {&real, &plan}) {
    const auto weights = ledger->take<float>(Memory::parameters, "weights", 100);
    const auto logits = ledger->take<double>(Memory::workspace, "logits", 3, 5);
    CHECK(weights.extent(0) == 100);
    CHECK(logits.extent(1) == 5);
    CHECK((weights.data() == nullptr) == ledger->plans_only());
    ledger->book(Memory::communication, "window", 7);
    CHECK(ledger->bytes(Memory::parameters) == 400);
    CHECK(ledger->bytes(Memory::workspace) == 120);
    CHECK(ledger->total() == 527);
  }
}

TEST_CASE("memory is zeroed and shards of planned memory stay planned") {
  MemoryLedger real, plan(MemoryLedger::Mode::plan);
  const auto values = real.take<float>(Memory::gradients, "g", 1001);
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), values);
  float sum = 0;
  for (std::size_t i = 0; i < host.extent(0); ++i) sum += host(i) * host(i);
  CHECK(sum == 0.0F);
  const auto planned = slice(plan.take<float>(Memory::gradients, "g", 1001), 64, 128);
  CHECK(planned.data() == nullptr);
  CHECK(planned.extent(0) == 128);
}
