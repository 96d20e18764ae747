// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_sampler.cpp: one pass takes each sample exactly once, however ranks and micro-steps share it out.
#include <catch2/catch_test_macros.hpp>
#include <map>

#include <kozero/core/error.hpp>
#include <kozero/train/data_set.hpp>

using namespace kozero;
using train::Sampler;
using train::Share;

namespace {

/// How often each sample is taken in the epoch that begins after `before` epochs, by all ranks together.
std::map<std::int64_t, int> visits(const Sampler& sampler, std::int64_t before, int num_ranks, int micro_steps) {
  std::map<std::int64_t, int> count;
  const std::int64_t first = before * sampler.steps_per_epoch() + 1;
  for (std::int64_t step = first; step < first + sampler.steps_per_epoch(); ++step) {
    CHECK(sampler.epoch(step) == before);
    for (int rank = 0; rank < num_ranks; ++rank) {
      for (int micro = 0; micro < micro_steps; ++micro) {
        const Share now = share_of(share_of(sampler.positions(step), rank, num_ranks), micro, micro_steps);
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
  CHECK(sampler.epochs_after(3) == 1.0);  // the incomplete last step
  CHECK(sampler.epochs_after(4) == 1.0 + 8.0 / 23.0);
}

TEST_CASE("an epoch visits every sample once at 1-4 and 7 ranks, its incomplete last step included") {
  for (const std::int64_t num_samples : {1, 5, 16, 23, 100}) {
    const Sampler sampler(3, num_samples, 8);
    for (const int num_ranks : {1, 2, 3, 4, 7}) {
      for (const int micro_steps : {1, 3}) {
        const auto count = visits(sampler, 1, num_ranks, micro_steps);
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

TEST_CASE("shares are contiguous, cover all, and differ by at most one") {
  for (std::int64_t count = 0; count < 20; ++count) {
    std::int64_t next = 5;
    for (std::int64_t part = 0; part < 7; ++part) {
      const Share share = train::share_of({5, count}, part, 7);
      CHECK(share.first == next);
      CHECK((share.count == count / 7 || share.count == count / 7 + 1));
      next += share.count;
    }
    CHECK(next == 5 + count);
  }
}

TEST_CASE("data without a whole sample are refused") { CHECK_THROWS_AS(Sampler(1, 0, 4), Error); }
