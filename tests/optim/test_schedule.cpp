// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_schedule.cpp: the learning rate of each schedule, step by step, and its scaling with the ranks.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/optim/schedule.hpp>

namespace kozero::optim {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

ScheduleConfig schedule(const std::string& kind) {
  return {.kind = kind, .lr = 2.0, .min_lr = 0.5, .warmup_steps = 4, .decay_steps = 0, .total_steps = 24};
}

void check_rate(const ScheduleConfig& config, std::int64_t step, double expected) {
  CAPTURE(config.kind, step);
  CHECK_THAT(learning_rate(config, step), WithinRel(expected, 1e-12));
}

TEST_CASE("all schedules warm up in a straight line to the full rate") {
  for (const char* kind : {"constant", "linear", "cosine", "wsd"}) {
    check_rate(schedule(kind), 1, 0.5);
    check_rate(schedule(kind), 3, 1.5);
    check_rate(schedule(kind), 4, 2.0);
    check_rate(schedule(kind), 5, 2.0);
  }
}

TEST_CASE("constant stays") { check_rate(schedule("constant"), 24, 2.0); }

TEST_CASE("linear falls to min_lr, over the rest of the run or over decay_steps") {
  ScheduleConfig config = schedule("linear");
  check_rate(config, 15, 2.0 - 1.5 * 0.5);
  check_rate(config, 24, 2.0 - 1.5 * 19.0 / 20.0);
  check_rate(config, 25, 0.5);
  config.decay_steps = 10;
  check_rate(config, 10, 2.0 - 1.5 * 0.5);
  check_rate(config, 15, 0.5);
  check_rate(config, 24, 0.5);
}

TEST_CASE("cosine falls by half a wave") {
  const ScheduleConfig config = schedule("cosine");
  check_rate(config, 10, 0.5 + 1.5 * 0.5 * (1.0 + std::sqrt(0.5)));
  check_rate(config, 15, 1.25);
  check_rate(config, 25, 0.5);
  check_rate(config, 1000, 0.5);
}

TEST_CASE("the rates of 8 steps are those of the table in docs/optimizers.md") {
  ScheduleConfig config{.kind = "cosine", .lr = 1e-3, .min_lr = 1e-4, .warmup_steps = 3, .total_steps = 8};
  const auto check = [&](const std::vector<double>& table) {
    for (std::size_t i = 0; i < table.size(); ++i) {
      CAPTURE(config.kind, config.decay_steps, i + 1);
      CHECK_THAT(learning_rate(config, static_cast<std::int64_t>(i) + 1), WithinRel(table[i], 3e-4));
    }
  };
  check({3.333e-4, 6.667e-4, 1e-3, 1e-3, 9.141e-4, 6.891e-4, 4.109e-4, 1.859e-4, 1e-4});
  config.decay_steps = 4;
  check({3.333e-4, 6.667e-4, 1e-3, 1e-3, 8.682e-4, 5.5e-4, 2.318e-4, 1e-4, 1e-4});
  config.decay_steps = 0;
  config.kind = "linear";
  check({3.333e-4, 6.667e-4, 1e-3, 1e-3, 8.2e-4, 6.4e-4, 4.6e-4, 2.8e-4, 1e-4});
}

TEST_CASE("wsd is stable, then falls over its last decay_steps") {
  ScheduleConfig config = schedule("wsd");
  config.decay_steps = 10;
  check_rate(config, 14, 2.0);
  check_rate(config, 15, 2.0);
  check_rate(config, 20, 1.25);
  check_rate(config, 24, 2.0 - 1.5 * 0.9);
  check_rate(config, 25, 0.5);
  config.decay_steps = 1000;
  check_rate(config, 5, 2.0);
  check_rate(config, 6, 2.0 - 1.5 / 1000.0);
}

TEST_CASE("a run of warm-up alone, and one step without any") {
  check_rate({.kind = "cosine", .lr = 1.0, .warmup_steps = 3, .total_steps = 3}, 3, 1.0);
  check_rate({.kind = "linear", .lr = 1.0, .total_steps = 1}, 1, 1.0);
}

TEST_CASE("unknown words are refused with the accepted ones") {
  CHECK_THROWS_AS(learning_rate(schedule("cosin"), 1), Error);
  CHECK_THROWS_WITH(learning_rate(schedule("cosin"), 1), ContainsSubstring("optim.schedule = \"cosin\"") &&
                                                             ContainsSubstring("constant, linear, cosine, wsd"));
  CHECK_THROWS_WITH(scaled_rate("square", 1.0, 2, 1), ContainsSubstring("none, linear, sqrt"));
}

TEST_CASE("scaled_rate follows the growth of the batch") {
  CHECK(scaled_rate("none", 0.3, 8, 2) == 0.3);
  CHECK_THAT(scaled_rate("linear", 0.3, 8, 2), WithinRel(1.2, 1e-12));
  CHECK_THAT(scaled_rate("sqrt", 0.3, 8, 2), WithinRel(0.6, 1e-12));
}

}  // namespace
}  // namespace kozero::optim
