// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_heartbeat.cpp: which beats rank 0 reports to the others, and what the others know by them.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <vector>

#include "src/distributed/liveness/heartbeat.hpp"

using namespace kozero::distributed;

namespace {

/// All ranks were heard of just now, and wait.
std::vector<Beat> waiting(int size) {
  std::vector<Beat> table(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    Beat& beat = table[static_cast<std::size_t>(rank)];
    beat.rank = rank;
    beat.number = 1;
    beat.waits.fill(1);
  }
  return table;
}

bool has(const std::vector<Beat>& beats, int rank) {
  return std::ranges::find(beats, rank, &Beat::rank) != beats.end();
}

}  // namespace

TEST_CASE("all beats of a few ranks are reported", "[heartbeat]") {
  auto table = waiting(static_cast<int>(kMostReported));
  table[3].waits.fill(0);
  table[5].unheard_s = 2.0;
  auto there = waiting(static_cast<int>(kMostReported));
  take_report(beats_to_report(table), there);
  for (std::size_t r = 0; r < table.size(); ++r) {
    CHECK(there[r].waits == table[r].waits);
    CHECK(there[r].unheard_s == table[r].unheard_s);
  }
}

TEST_CASE("of many ranks, those are reported that others name", "[heartbeat]") {
  constexpr int kRanks = 4096;
  auto table = waiting(kRanks);
  for (const std::size_t rank : {1000U, 2000U, 3000U}) table[rank].unheard_s = 1.0 + static_cast<double>(rank);
  table[70].waits[0] = table[80].waits[0] = table[90].waits[0] = 0;
  table[4000].waits[1] = 0;
  table[4095].ends = 1;
  table[4095].unheard_s = 1e6;  // its last beat was long ago
  const auto reported = beats_to_report(table);
  REQUIRE(reported.size() <= kMostReported);
  CHECK(reported.front().rank == 0);
  for (const int rank : {70, 80, 1000, 2000, 3000, 4000, 4095}) CHECK(has(reported, rank));
  CHECK_FALSE(has(reported, 90));  // two are enough: a rank does not name itself

  auto there = waiting(kRanks);
  there[500].unheard_s = 9.0;  // reported before, heard of since then
  there[600].waits.fill(0);
  take_report(reported, there);
  CHECK(there[500].unheard_s == 0.0);
  CHECK(there[600].waits[0] == 1);
  CHECK(there[3000].unheard_s == 3001.0);
  CHECK(there[70].waits[0] == 0);
  CHECK(there[4095].ends == 1);
  CHECK(there[4094].ends == 0);

  for (Beat& beat : table) beat.ends = 1;
  table.front().all_end = 1;
  take_report(beats_to_report(table), there);
  CHECK(std::ranges::all_of(there, [](const Beat& beat) { return beat.ends == 1; }));
}
