// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_gradients.cpp: addends of all ranks and micro-steps against a plain sum, for each placement and order.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include <kozero/core/error.hpp>
#include <kozero/zero/gradients.hpp>

#include "tiny_table.hpp"

using namespace kozero;
using distributed::Placement;
using zero::Accumulation;
using zero::Gradients;

namespace {

constexpr int kMicroSteps = 2;

struct Kind {
  Placement placement;
  Accumulation accumulation;
};
const std::vector<Kind> kKinds = {{Placement::replicated, Accumulation::local},
                                  {Placement::replicated, Accumulation::ordered},
                                  {Placement::partial, Accumulation::local},
                                  {Placement::partial, Accumulation::ordered},
                                  {Placement::sharded, Accumulation::ordered}};

/// Small integers, so that every order of addition gives the same float.
float addend_at(int step, int micro_step, int rank, std::int64_t index) {
  return static_cast<float>((step * 31 + micro_step * 7 + rank * 3 + index) % 11 - 5);
}

float sum_at(int step, int num_ranks, std::int64_t index) {
  float sum = 0.0F;
  for (int micro_step = 0; micro_step < kMicroSteps; ++micro_step) {
    for (int rank = 0; rank < num_ranks; ++rank) sum += addend_at(step, micro_step, rank, index);
  }
  return sum;
}

/// One step; units become ready last to first, as in backward. Pads stay zero.
void take_step(Gradients& gradients, const ParameterTable& table, int step, int rank) {
  for (int micro_step = 0; micro_step < kMicroSteps; ++micro_step) {
    gradients.begin_micro_step({micro_step, kMicroSteps});
    for (int unit = table.num_units() - 1; unit >= 0; --unit) {
      const auto [addend, begins] = gradients.addend(unit);
      CHECK_FALSE(gradients.addend(unit).begins);
      for (const auto& row : table.rows()) {
        for (std::int64_t i = 0; row.unit == unit && i < row.extent(); ++i) {
          float& sum = addend(row.offset + i);
          sum = (begins && row.overwritten ? 0.0F : sum) + addend_at(step, micro_step, rank, row.offset + i);
        }
      }
      gradients.ready(unit);
    }
  }
  gradients.finish();
}

bool shards_are_sums(const Gradients& gradients, const ParameterTable& table, int step,
                     const distributed::Communicator& comm) {
  bool all = true;
  for (const auto& row : table.rows()) {
    const Partition cut(table.unit(row.unit).extent, comm.size());
    const auto mine = gradients.shard(row.unit);
    for (std::int64_t at = row.offset; at < row.offset + row.extent(); ++at) {
      if (at < cut.begin(comm.rank()) || at >= cut.end(comm.rank())) continue;
      all = all && mine(at - cut.begin(comm.rank())) == sum_at(step, comm.size(), at);
    }
  }
  return all;
}

}  // namespace

TEST_CASE("shards hold the sum over ranks and micro-steps of their step alone, and the norm is the sum's") {
  const auto table = tests::tiny_table();
  for (const auto& kind : kKinds) {
    MemoryLedger ledger;
    const auto comm = tests::all_ranks(ledger);
    Gradients gradients(table, *comm, kind.placement, kind.accumulation, kMicroSteps, ledger);
    for (const int step : {1, 2}) {
      take_step(gradients, table, step, comm->rank());
      CHECK(shards_are_sums(gradients, table, step, *comm));
      double squares = 0.0;
      for (const auto& row : table.rows()) {
        for (std::int64_t i = 0; i < row.extent(); ++i)
          squares += std::pow(sum_at(step, comm->size(), row.offset + i), 2);
      }
      CHECK(gradients.norm() == Catch::Approx(std::sqrt(squares)).epsilon(1e-12));
    }
    if (kind.placement != Placement::replicated) continue;
    for (const auto& row : table.rows()) {
      CHECK(gradients.full(row.unit)(row.offset + row.extent() - 1) ==
            sum_at(2, comm->size(), row.offset + row.extent() - 1));
    }
  }
}

TEST_CASE(
    "ordered: every element is the left fold over granules, whatever the number of ranks and of those with work") {
  const auto table = tests::tiny_table();
  const auto value = [](std::int64_t granule, std::int64_t index) {  // the sum of these values depends on the order
    return std::ldexp(static_cast<float>((granule * 37 + index * 11) % 101 - 50) / 3.0F, static_cast<int>(granule % 7));
  };
  for (const auto placement : {Placement::replicated, Placement::partial, Placement::sharded}) {
    for (const std::int64_t granules : {1, 2, 5, 8}) {
      MemoryLedger ledger;
      const auto comm = tests::all_ranks(ledger);
      const int ranks = comm->size();
      const int micro_steps = static_cast<int>((granules + ranks - 1) / ranks);
      Gradients gradients(table, *comm, placement, Accumulation::ordered, micro_steps, ledger);
      for (int m = 0; m < micro_steps; ++m) {
        const auto busy = static_cast<int>(std::min<std::int64_t>(ranks, granules - std::int64_t{m} * ranks));
        gradients.begin_micro_step({m, micro_steps, busy});
        for (int unit = table.num_units() - 1; unit >= 0; --unit) {
          const auto addend = gradients.addend(unit).values;
          for (std::int64_t i = 0; i < table.unit(unit).extent; ++i) {
            addend(i) = comm->rank() < busy ? value(std::int64_t{m} * ranks + comm->rank(), i) : 1e30F;
          }
          gradients.ready(unit);
        }
      }
      gradients.finish();
      bool equal = true;
      double squares = 0.0;
      for (int unit = 0; unit < table.num_units(); ++unit) {
        const Partition cut(table.unit(unit).extent, ranks);
        for (std::int64_t i = 0; i < table.unit(unit).extent; ++i) {
          float sum = value(0, i);
          for (std::int64_t g = 1; g < granules; ++g) sum += value(g, i);
          squares += static_cast<double>(sum) * sum;
          if (i < cut.begin(comm->rank()) || i >= cut.end(comm->rank())) continue;
          equal = equal && gradients.shard(unit)(i - cut.begin(comm->rank())) == sum;
        }
      }
      CHECK(equal);
      CHECK(gradients.norm() == Catch::Approx(std::sqrt(squares)).epsilon(1e-14));
    }
  }
}

TEST_CASE("lookups of a tied vocabulary's block have a fold of their own, added at the step's end") {
  ParameterTable table;
  for (const char* name : {"v.0", "v.1", "v.2"}) {
    table.add_unit(name, 0, VocabularyUse::both);
    Parameter row = tests::vector_row(name, 130);
    row.overwritten = true;
    table.add(row);
  }
  const auto value = [](std::int64_t granule, std::int64_t index) {  // the sum of these values depends on the order
    return std::ldexp(static_cast<float>((granule * 37 + index * 11) % 101 - 50) / 3.0F, static_cast<int>(granule % 7));
  };
  for (const auto& kind : kKinds) {
    constexpr std::int64_t kGranules = 7;
    MemoryLedger ledger;
    const auto comm = tests::all_ranks(ledger);
    const int ranks = comm->size();
    const auto micro_steps = static_cast<int>((kGranules + ranks - 1) / ranks);
    Gradients gradients(table, *comm, kind.placement, kind.accumulation, micro_steps, ledger, true);
    for (int step = 0; step < 2; ++step) {
      for (int m = 0; m < micro_steps; ++m) {
        const auto busy = static_cast<int>(std::min<std::int64_t>(ranks, kGranules - std::int64_t{m} * ranks));
        const std::int64_t granule = std::int64_t{m} * ranks + comm->rank();
        gradients.begin_micro_step({m, micro_steps, busy});
        for (const bool lookups : {false, true}) {
          for (int unit = 0; unit < table.num_units(); ++unit) {
            const int number = lookups ? gradients.lookups_of(unit) : unit;
            const auto [addend, begins] = gradients.addend(number);
            for (std::int64_t i = 0; i < 130; ++i) {
              const float now = comm->rank() < busy ? value(granule + (lookups ? 100 : 0), i + unit) : 0.0F;
              addend(i) = lookups || !begins ? addend(i) + now : now;  // lookups add to zeros or to the sum so far
            }
            gradients.ready(number);
          }
        }
      }
      gradients.finish();
      bool equal = true;
      for (int unit = 0; unit < table.num_units(); ++unit) {
        const Partition cut(table.unit(unit).extent, ranks);
        for (std::int64_t i = cut.begin(comm->rank()); i < std::min<std::int64_t>(cut.end(comm->rank()), 130); ++i) {
          float heads = value(0, i + unit);
          float lookups = value(100, i + unit);
          for (std::int64_t g = 1; g < kGranules; ++g) {
            heads += value(g, i + unit);
            lookups += value(100 + g, i + unit);
          }
          const float got = gradients.shard(unit)(i - cut.begin(comm->rank()));
          const bool ordered = kind.accumulation == Accumulation::ordered;
          equal = equal && (ordered ? got == heads + lookups : std::abs(got - heads - lookups) < 1e-2F);
        }
      }
      CHECK(equal);
      CHECK(gradients.first_non_finite().empty());
    }
    CHECK_THROWS_AS(Gradients(tests::tiny_table(), *comm, kind.placement, kind.accumulation, 1, ledger).lookups_of(0),
                    Error);
  }
}

TEST_CASE("the first non-finite tensor is named alike on all ranks, whichever rank owns or added it") {
  const auto table = tests::tiny_table();
  for (const auto& kind : kKinds) {
    for (const auto& bad : table.rows()) {
      MemoryLedger ledger;
      const auto comm = tests::all_ranks(ledger);
      Gradients gradients(table, *comm, kind.placement, kind.accumulation, 1, ledger);
      gradients.begin_micro_step({});
      for (int unit = table.num_units() - 1; unit >= 0; --unit) {
        const auto addend = gradients.addend(unit).values;
        Kokkos::deep_copy(addend, 0.0F);
        // On the last rank: the tensor's last element, and one of the last tensor, which comes after.
        if (comm->rank() == comm->size() - 1) {
          if (unit == bad.unit) addend(bad.offset + bad.extent() - 1) = std::numeric_limits<float>::quiet_NaN();
          if (unit == table.num_units() - 1) addend(4) = std::numeric_limits<float>::infinity();
        }
        gradients.ready(unit);
      }
      gradients.finish();
      CHECK_FALSE(std::isfinite(gradients.norm()));
      CHECK(gradients.first_non_finite() == bad.name);
    }
  }
}

TEST_CASE("a unit that is ready without a contribution is zero, whatever its memory held") {
  const auto table = tests::tiny_table();
  for (const auto& kind : kKinds) {
    MemoryLedger ledger;
    const auto comm = tests::all_ranks(ledger);
    Gradients gradients(table, *comm, kind.placement, kind.accumulation, kMicroSteps, ledger);
    take_step(gradients, table, 1, comm->rank());
    for (int micro_step = 0; micro_step < kMicroSteps; ++micro_step) {
      gradients.begin_micro_step({micro_step, kMicroSteps});
      for (int unit = table.num_units() - 1; unit >= 0; --unit) gradients.ready(unit);
    }
    gradients.finish();
    CHECK(gradients.norm() == 0.0);
  }
}

TEST_CASE("a unit whose gradient is never ready, and local sums of sharded gradients, are internal errors") {
  const auto table = tests::tiny_table();
  MemoryLedger ledger;
  const auto comm = tests::all_ranks(ledger);
  Gradients gradients(table, *comm, Placement::sharded, Accumulation::ordered, 1, ledger);
  gradients.begin_micro_step({});
  gradients.addend(1);
  CHECK_THROWS_AS(gradients.begin_micro_step({}), Error);
  CHECK_THROWS_AS(Gradients(table, *comm, Placement::sharded, Accumulation::local, 2, ledger), Error);
}
