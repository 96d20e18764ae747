// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_sampler.cpp: one epoch has each sample exactly once, for any division among ranks and micro-steps; a mixture
// has each source's samples once per epoch of the source.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <set>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/data/sampler.hpp>

using namespace kozero;
using data::Granules;
using data::Sampler;
using data::Share;

namespace {

/// How often all ranks together take each sample in the epoch that begins after `before` epochs.
std::map<std::int64_t, int> visits(const Sampler& sampler, std::int64_t before, int num_ranks,
                                   std::int64_t micro_batch) {
  std::map<std::int64_t, int> count;
  const std::int64_t first = before * sampler.steps_per_epoch() + 1;
  for (std::int64_t step = first; step < first + sampler.steps_per_epoch(); ++step) {
    CHECK(sampler.epoch(step) == before);
    const Granules granules(sampler.positions(step), micro_batch);
    for (int micro = 0; micro < granules.micro_steps(num_ranks); ++micro) {
      CHECK(granules.busy_ranks(micro, num_ranks) > 0);
      for (int rank = 0; rank < num_ranks; ++rank) {
        const Share now = granules.granule(std::int64_t{micro} * num_ranks + rank);
        CHECK((now.count > 0) == (rank < granules.busy_ranks(micro, num_ranks)));
        for (std::int64_t p = now.first; p < now.first + now.count; ++p) ++count[sampler.sample(before, p)];
      }
    }
  }
  return count;
}

}  // namespace

TEST_CASE("epochs after a step are samples taken over samples there are") {
  const Sampler sampler(3, 23, 8);
  CHECK(sampler.epochs_after(0) == 0.0);
  CHECK(sampler.epochs_after(1) == 8.0 / 23.0);
  CHECK(sampler.epochs_after(3) == 1.0);  // includes the incomplete last step
  CHECK(sampler.epochs_after(4) == 1.0 + 8.0 / 23.0);
}

TEST_CASE("a step has the batch, the rest of an epoch, or all samples if these are fewer") {
  const auto steps = [](const Sampler& sampler) {
    return std::vector{sampler.steps_per_epoch(), sampler.sequences_of_step(), sampler.sequences_of_last_step()};
  };
  CHECK(steps(Sampler(3, 59, 25)) == std::vector<std::int64_t>{3, 25, 9});
  CHECK(steps(Sampler(3, 50, 25)) == std::vector<std::int64_t>{2, 25, 25});
  CHECK(steps(Sampler(3, 59, 500)) == std::vector<std::int64_t>{1, 59, 59});
  const Sampler mixture(3, {{5, 1.0}, {3, 2.0}}, 25);
  CHECK(mixture.sequences_of_step() == 25);
  CHECK(mixture.sequences_of_last_step() == 25);
}

TEST_CASE("an epoch visits every sample once at 1-4 and 7 ranks, its incomplete last step included") {
  for (const std::int64_t num_samples : {1, 5, 16, 23, 100}) {
    const Sampler sampler(3, num_samples, 8);
    for (const int num_ranks : {1, 2, 3, 4, 7}) {
      for (const int micro_batch : {1, 3, 8}) {
        const auto count = visits(sampler, 1, num_ranks, micro_batch);
        CHECK(static_cast<std::int64_t>(count.size()) == num_samples);
        for (const auto& [sample, times] : count) {
          CHECK(times == 1);
          CHECK((sample >= 0 && sample < num_samples));
        }
      }
    }
  }
}

TEST_CASE("a step's samples do not depend on the rank count, and epochs differ in order") {
  const Sampler sampler(3, 50, 8);
  CHECK(sampler.steps_per_epoch() == 7);
  CHECK(sampler.positions(7).count == 2);
  CHECK(sampler.positions(8).first == 0);
  int equal = 0;
  for (std::int64_t p = 0; p < 50; ++p) equal += sampler.sample(0, p) == sampler.sample(1, p);
  CHECK(equal < 10);
}

TEST_CASE("granules are contiguous, whole but for the last, and cover all") {
  for (std::int64_t count = 1; count < 20; ++count) {
    const Granules granules({5, count}, 7);
    std::int64_t next = 5;
    for (std::int64_t g = 0; g < granules.count(); ++g) {
      const Share share = granules.granule(g);
      CHECK(share.first == next);
      CHECK(share.count == std::min<std::int64_t>(7, 5 + count - next));
      next += share.count;
    }
    CHECK(next == 5 + count);
    CHECK(granules.granule(granules.count()).count == 0);
  }
}

TEST_CASE("numbers of granules are added in the granules' order, whatever the number of ranks") {
  const std::vector<double> of_granules = {1e16, 1.0, -1e16, 1.0, 1e-3};
  double expected = 0.0;
  for (const double value : of_granules) expected += value;
  for (int ranks = 1; ranks <= 7; ++ranks) {
    const int micro_steps = Granules({0, 5}, 1).micro_steps(ranks);
    std::vector<double> values;
    for (int rank = 0; rank < ranks; ++rank) {
      for (int m = 0; m < micro_steps; ++m) {
        const auto g = static_cast<std::size_t>(m * ranks + rank);
        values.push_back(g < of_granules.size() ? of_granules[g] : 77.0);  // a rank without work may report any value
      }
    }
    CHECK(data::sum_over_granules(values, ranks, 5) == expected);
  }
}

TEST_CASE("data without a whole sample are refused") { CHECK_THROWS_AS(Sampler(1, 0, 4), Error); }

TEST_CASE("the order of one source is that of earlier versions") {
  const Sampler sampler(3, 23, 8);
  std::vector<std::int64_t> first, sixth;
  for (std::int64_t p = 0; p < 12; ++p) {
    first.push_back(sampler.name(1, p).sample);
    sixth.push_back(sampler.name(5 * sampler.steps_per_epoch() + 1, p).sample);
  }
  CHECK(first == std::vector<std::int64_t>{14, 3, 1, 11, 21, 13, 17, 6, 18, 9, 5, 12});
  CHECK(sixth == std::vector<std::int64_t>{20, 15, 4, 11, 22, 7, 6, 18, 10, 12, 14, 2});
  CHECK(sampler.name(16, 0).epoch == 5);
  CHECK(sampler.mixture() == nullptr);
}

TEST_CASE("a mixture has each sample of a source once per epoch of the source, under a name of its own") {
  const std::vector<data::MixedSource> sources = {{17, 7.0}, {40, 2.0}, {1, 1.0}};
  const Sampler sampler(3, sources, 9);
  std::map<std::pair<std::int64_t, std::int64_t>, int> names;
  constexpr std::int64_t kSteps = 300;
  std::vector<std::int64_t> taken(3, 0);
  std::vector<std::int64_t> first_orders[2];
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    const Share now = sampler.positions(step);
    CHECK(now.first == (step - 1) * 9);
    CHECK(now.count == 9);
    for (std::int64_t p = now.first; p < now.first + now.count; ++p) {
      const auto [epoch, sample] = sampler.name(step, p);
      REQUIRE((sample >= 0 && sample < 58));
      const std::size_t source = sample < 17 ? 0 : sample < 57 ? 1 : 2;
      CHECK(epoch == taken[source]++ / sources[source].num_samples);  // in the order of its epochs
      ++names[{epoch, sample}];
      if (source == 0 && epoch < 2) first_orders[epoch].push_back(sample);
    }
  }
  CHECK(std::ranges::all_of(names, [](const auto& each) { return each.second == 1; }));
  CHECK(std::ssize(names) == 9 * kSteps);
  CHECK(taken == std::vector<std::int64_t>{1890, 540, 270});
  CHECK(first_orders[0] != first_orders[1]);
  CHECK(std::set(first_orders[0].begin(), first_orders[0].end()).size() == 17);
  CHECK(sampler.epochs_after(10) == 90.0 / 58.0);
  CHECK(sampler.passes_after(kSteps, 1) == 540.0 / 40.0);
}

TEST_CASE("a mixture is a function of seed and position") {
  const std::vector<data::MixedSource> sources = {{17, 7.0}, {40, 3.0}};
  const Sampler sampler(3, sources, 10), other_batch(3, sources, 7), other_seed(4, sources, 10);
  int equal = 0;
  for (std::int64_t p = 0; p < 2500; ++p) {
    const auto name = sampler.name(p / 10 + 1, p), again = other_batch.name(p / 7 + 1, p);
    CHECK((name.epoch == again.epoch && name.sample == again.sample));
    equal += name.sample == other_seed.name(p / 10 + 1, p).sample ? 1 : 0;
  }
  CHECK(equal < 500);
}

TEST_CASE("the last step within a number of passes over a source") {
  const Sampler sampler(3, {{17, 7.0}, {40, 3.0}}, 10);  // 7 and 3 samples per step
  CHECK(sampler.last_step(0, 1, 1000) == 2);
  CHECK(sampler.last_step(0, 7, 1000) == 17);
  CHECK(sampler.last_step(1, 1, 1000) == 13);
  CHECK(sampler.last_step(1, 1, 13) == 13);
  CHECK(sampler.last_step(1, 1, 5) == 5);
  CHECK_THROWS_AS(Sampler(1, {{17, 7.0}, {0, 3.0}}, 10), Error);
}
